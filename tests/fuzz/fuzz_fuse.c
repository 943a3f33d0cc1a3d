/*
 * Fuzzer of the file server.  The input is a list of requests by a hostile client: it chooses opcodes,
 * how buffers are cut, ids that are right (learned from earlier replies) or forged, names from a list
 * or raw.  After each request the reply's frame must be in order and the thread be itself; after each
 * input all descriptors must be back and the file outside the share untouched.
 *
 * The share is a small tmpfs when that can be had (root), else a folder with a limit on file sizes.
 * Where that is allowed all is in a user namespace, in which not every user and group exists.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/fuse/session.h"
#include "devices/fuse/wire.h"
#include "tests/fuzz/input.h"
#include "tests/unit/userns.h"
#include "vmm/base.h"

#define REQUESTS 40
#define IN_MAX   4096
#define OUT_MAX  8192
#define KNOWN    16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct fuse_session *session;
static int home; /* libFuzzer's own paths are relative, and serving threads live elsewhere */
static char base[64], share[80], outside[80];
static uint64_t nodes[KNOWN], handles[KNOWN]; /* learned from replies; the oldest go first */
static unsigned n_nodes, n_handles;
static char in_buf[IN_MAX], out_buf[OUT_MAX];
static size_t in_len;

/* --- the share -------------------------------------------------------------------------------- */

static bool removed_all;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	if (f->level == 0)
		return 0;
	/* A folder that the client has closed to us. */
	if (type == FTW_DNR && chmod(path, 0700) == 0)
		removed_all = false;
	else
		remove(path);
	return 0;
}

static void empty_share(void)
{
	chmod(share, 0755);
	do {
		removed_all = true;
		nftw(share, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	} while (!removed_all);
}

static void clean_up(void)
{
	empty_share();
	umount2(share, MNT_DETACH);
	rmdir(share);
	unlink(outside);
	rmdir(base);
}

static void put_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	require(fd >= 0 && write(fd, "content", 7) == 7);
	close(fd);
}

static void make_base(void)
{
	struct rlimit rl = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };

	snprintf(base, sizeof(base), "/tmp/fuzz-fuse-XXXXXX");
	require(mkdtemp(base));
	snprintf(share, sizeof(share), "%s/share", base);
	snprintf(outside, sizeof(outside), "%s/outside", base);
	require(mkdir(share, 0755) == 0);
	put_file(outside);
	atexit(clean_up);
	signal(SIGXFSZ, SIG_IGN);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("fuzz", share, "tmpfs", 0, "size=8m,nr_inodes=2000") < 0)
		setrlimit(RLIMIT_FSIZE, &rl);
}

static void fill_share(void)
{
	char path[128];

	empty_share();
	snprintf(path, sizeof(path), "%s/f", share);
	put_file(path);
	snprintf(path, sizeof(path), "%s/d", share);
	require(mkdir(path, 0777) == 0);
	snprintf(path, sizeof(path), "%s/d/g", share);
	put_file(path);
	snprintf(path, sizeof(path), "%s/l", share);
	require(symlink("../outside", path) == 0);
	snprintf(path, sizeof(path), "%s/p", share);
	require(mkfifo(path, 0666) == 0);
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	require(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void start(void)
{
	struct fuse_opts o = {
		.path = share,
		.workers = 1,
		.locks = FUSE_LOCKS_HOST,
		.choices = { .acl = true, .labels = true, .xattr = FUSE_XATTR_USER, .direct = true },
	};

	(void)userns_enter();
	make_base();
	home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(home >= 0);
	require(fuse_session_create(&o, &session) == 0);
	require(fuse_thread_init(session) == 0);
	require(fchdir(home) == 0);
}

/*
 * Before libFuzzer has a second thread: with one, no namespace can be entered, and LeakSanitizer,
 * which attaches to all, must find none with more capabilities than ours.
 */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	start();
	return 0;
}

/* --- requests --------------------------------------------------------------------------------- */

static void put(const void *p, size_t len)
{
	if (len > IN_MAX - in_len)
		len = IN_MAX - in_len;
	memcpy(in_buf + in_len, p, len);
	in_len += len;
}

static uint64_t take_id(struct input *in, const uint64_t *known, unsigned n)
{
	uint8_t x = (uint8_t)take(in, 1);

	if (x == 255)
		return take(in, 8);
	if (x % 8 == 7)
		return FUSE_ROOT_ID;
	return n ? known[x % MIN(n, KNOWN)] : FUSE_ROOT_ID;
}

static void put_name(struct input *in)
{
	static const char *const names[] = { "f",
					     "d",
					     "g",
					     "l",
					     "p",
					     "n1",
					     "n2",
					     "..",
					     ".",
					     "",
					     "/",
					     "a/b",
					     "user.a",
					     "d/g",
					     "../outside",
					     "security.capability",
					     "system.posix_acl_access",
					     "trusted.x" };
	static const char long_name[256] = { 0 };
	uint8_t x = (uint8_t)take(in, 1);

	if (x < 224) {
		put(names[x % ARRAY_SIZE(names)], strlen(names[x % ARRAY_SIZE(names)]) + 1);
		return;
	}
	for (int i = 0; i < x; i++)
		put(x % 2 ? "n" : long_name, 1);
	if (x % 4)
		put("", 1);
}

/* What a request of each kind looks like when it is in order. */
struct shape {
	uint8_t opcode, len;
	int8_t fh_at, node_at, size_at; /* places in the body; -1: none */
	uint8_t names;
};

#define LEN(name) sizeof(struct fuse_##name##_in)

static const struct shape shapes[] = {
	{ FUSE_LOOKUP, 0, -1, -1, -1, 1 },
	{ FUSE_LOOKUP, 0, -1, -1, -1, 1 },
	{ FUSE_FORGET, LEN(forget), -1, -1, 0, 0 },
	{ FUSE_BATCH_FORGET, LEN(batch_forget) + 16, -1, 8, 0, 0 },
	{ FUSE_GETATTR, LEN(getattr), 8, -1, -1, 0 },
	{ FUSE_STATX, LEN(statx), 8, -1, -1, 0 },
	{ FUSE_SETATTR, LEN(setattr), 8, -1, 16, 0 },
	{ FUSE_READLINK, 0, -1, -1, -1, 0 },
	{ FUSE_SYMLINK, 0, -1, -1, -1, 2 },
	{ FUSE_MKNOD, LEN(mknod), -1, -1, -1, 1 },
	{ FUSE_MKDIR, LEN(mkdir), -1, -1, -1, 1 },
	{ FUSE_UNLINK, 0, -1, -1, -1, 1 },
	{ FUSE_RMDIR, 0, -1, -1, -1, 1 },
	{ FUSE_RENAME, LEN(rename), -1, 0, -1, 2 },
	{ FUSE_RENAME2, LEN(rename2), -1, 0, -1, 2 },
	{ FUSE_LINK, LEN(link), -1, 0, -1, 1 },
	{ FUSE_OPEN, LEN(open), -1, -1, -1, 0 },
	{ FUSE_OPENDIR, LEN(open), -1, -1, -1, 0 },
	{ FUSE_READ, LEN(read), 0, -1, 16, 0 },
	{ FUSE_READDIR, LEN(read), 0, -1, 16, 0 },
	{ FUSE_READDIRPLUS, LEN(read), 0, -1, 16, 0 },
	{ FUSE_WRITE, LEN(write), 0, -1, 16, 0 },
	{ FUSE_STATFS, 0, -1, -1, -1, 0 },
	{ FUSE_RELEASE, LEN(release), 0, -1, -1, 0 },
	{ FUSE_RELEASEDIR, LEN(release), 0, -1, -1, 0 },
	{ FUSE_FLUSH, LEN(flush), 0, -1, -1, 0 },
	{ FUSE_FSYNC, LEN(fsync), 0, -1, -1, 0 },
	{ FUSE_FSYNCDIR, LEN(fsync), 0, -1, -1, 0 },
	{ FUSE_SYNCFS, LEN(syncfs), -1, -1, -1, 0 },
	{ FUSE_SETXATTR, WIRE_SETXATTR_IN_MIN, -1, -1, 0, 1 },
	{ FUSE_GETXATTR, LEN(getxattr), -1, -1, 0, 1 },
	{ FUSE_LISTXATTR, LEN(getxattr), -1, -1, 0, 0 },
	{ FUSE_REMOVEXATTR, 0, -1, -1, -1, 1 },
	{ FUSE_ACCESS, LEN(access), -1, -1, -1, 0 },
	{ FUSE_CREATE, LEN(create), -1, -1, -1, 1 },
	{ FUSE_CREATE, LEN(create), -1, -1, -1, 1 },
	{ FUSE_TMPFILE, LEN(create), -1, -1, -1, 1 },
	{ FUSE_FALLOCATE, LEN(fallocate), 0, -1, 16, 0 },
	{ FUSE_LSEEK, LEN(lseek), 0, -1, 8, 0 },
	{ FUSE_COPY_FILE_RANGE, LEN(copy_file_range), 0, -1, 40, 0 },
	{ FUSE_COPY_FILE_RANGE_64, LEN(copy_file_range), 0, 24, 40, 0 },
	{ FUSE_INIT, LEN(init), -1, -1, -1, 0 },
	{ FUSE_DESTROY, 0, -1, -1, -1, 0 },
	{ FUSE_INTERRUPT, LEN(interrupt), -1, -1, -1, 0 },
	{ FUSE_IOCTL, LEN(ioctl), 0, -1, -1, 0 },
	{ FUSE_GETLK, LEN(lk), 0, -1, -1, 0 },
	{ FUSE_SETLK, LEN(lk), 0, -1, -1, 0 },
	{ FUSE_SETLK, LEN(lk), 0, -1, -1, 0 },
	{ FUSE_SETLKW, LEN(lk), 0, -1, -1, 0 },
	{ FUSE_POLL, LEN(poll), 0, -1, -1, 0 },
	{ 54, 64, 0, -1, -1, 1 },
};

static void put_at(size_t at, uint64_t v, size_t len)
{
	if (at + len <= in_len)
		memcpy(in_buf + at, &v, len);
}

/* Few owners and places, so that locks meet. */
static void put_lock(struct input *in, size_t at)
{
	uint8_t x = (uint8_t)take(in, 1), y = (uint8_t)take(in, 1);
	uint64_t start = y & 15, end = y & 128 ? INT64_MAX : start + (y >> 4 & 7);

	put_at(at + offsetof(struct fuse_lk_in, owner), x & 3, 8);
	put_at(at + offsetof(struct fuse_lk_in, lk.start), start, 8);
	put_at(at + offsetof(struct fuse_lk_in, lk.end), end, 8);
	put_at(at + offsetof(struct fuse_lk_in, lk.type), x >> 2 & 3, 4);
	put_at(at + offsetof(struct fuse_lk_in, lk.pid), x, 4);
	put_at(at + offsetof(struct fuse_lk_in, lk_flags), x >> 7, 4);
}

static void put_ioctl(struct input *in, size_t at)
{
	static const uint32_t cmds[] = { FS_IOC_GETFLAGS,   FS_IOC_SETFLAGS,   FS_IOC32_GETFLAGS,
					 FS_IOC32_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR };
	uint8_t x = (uint8_t)take(in, 1);

	put_at(at + offsetof(struct fuse_ioctl_in, cmd), cmds[x % ARRAY_SIZE(cmds)], 4);
	put_at(at + offsetof(struct fuse_ioctl_in, flags), x & 128 ? FUSE_IOCTL_DIR : 0, 4);
	put_at(at + offsetof(struct fuse_ioctl_in, in_size), x & 64 ? 4 : 28, 4);
	put_at(at + offsetof(struct fuse_ioctl_in, out_size), x & 64 ? 4 : 28, 4);
}

/* What some operations say of locks, and what is of no use as zeros. */
static void put_special(struct input *in, uint32_t opcode, size_t at)
{
	switch (opcode) {
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
		put_lock(in, at);
		break;
	case FUSE_IOCTL:
		put_ioctl(in, at);
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		put_at(at + 16, take(in, 1) & 3, 8); /* lock_owner */
		if (opcode == FUSE_RELEASE)
			put_at(at + 12, take(in, 1) & 3, 4);
		break;
	}
}

/* The body in order, then raw bytes over it at places of the input's choice. */
static void put_body(struct input *in, const struct shape *k, size_t size)
{
	uint8_t how = (uint8_t)take(in, 1);
	size_t at = in_len;
	char zeros[128] = { 0 };

	put(zeros, k->len);
	if (k->fh_at >= 0)
		put_at(at + (size_t)k->fh_at, take_id(in, handles, n_handles), 8);
	if (k->node_at >= 0)
		put_at(at + (size_t)k->node_at, take_id(in, nodes, n_nodes), 8);
	if (k->opcode == FUSE_COPY_FILE_RANGE)
		put_at(at + 24, take_id(in, handles, n_handles), 8);
	if (k->opcode == FUSE_LSEEK)
		put_at(at + 16, how % 2 ? SEEK_DATA : SEEK_HOLE, 4);
	if (k->size_at >= 0)
		put_at(at + (size_t)k->size_at, size, 4);
	put_special(in, k->opcode, at);
	for (unsigned i = 0; i < how % 4 && k->len > 0; i++) {
		size_t to = take(in, 1) % k->len;

		put_at(at + to, take(in, 4), 4);
	}
	if (how >= 240)
		in_len = MIN(in_len, at + how % 16);
}

/* Of users and groups: root's, some, one that a user namespace lacks, one that nobody has. */
static const uint32_t ids[] = { 0, 0, 1, 1000, 65534, USERNS_IDS, UINT32_MAX };

/* Extensions: raw, or the caller's further group in order. */
static uint16_t put_extensions(struct input *in)
{
	uint64_t raw[3] = { take(in, 8), take(in, 8), take(in, 8) };
	struct {
		struct fuse_ext_header head;
		uint32_t n, group;
	} ext = { { sizeof(ext), FUSE_EXT_GROUPS }, 1, ids[raw[1] % ARRAY_SIZE(ids)] };
	uint16_t words = (uint16_t)take(in, 1) % 5;

	if (words % 2)
		put(raw, sizeof(raw));
	else
		put(&ext, sizeof(ext));
	return words;
}

static void build(struct input *in, const struct shape *k)
{
	struct fuse_in_header h = { .opcode = k->opcode, .unique = take(in, 2) };
	size_t size = k->size_at >= 0 ? take(in, 2) % 2049 : 0;
	uint8_t how = (uint8_t)take(in, 1);
	static const char data[2048] = "data";

	h.nodeid = take_id(in, nodes, n_nodes);
	h.uid = ids[(how & 7) % ARRAY_SIZE(ids)];
	h.gid = ids[(how >> 3 & 7) % ARRAY_SIZE(ids)];
	in_len = sizeof(h);
	put_body(in, k, size);
	for (int i = 0; i < k->names; i++)
		put_name(in);
	if (k->opcode == FUSE_WRITE || k->opcode == FUSE_SETXATTR)
		put(data, size);
	if (k->opcode == FUSE_IOCTL)
		put(data, sizeof(struct fsxattr));
	if (how & 64)
		h.total_extlen = put_extensions(in);
	h.len = (uint32_t)in_len;
	if (how & 128 && take(in, 1) % 4 == 0)
		h.len += (uint32_t)take(in, 1) - 128;
	memcpy(in_buf, &h, sizeof(h));
	if (how == 255)
		in_len = MIN(in_len, take(in, 1));
}

/* --- replies ---------------------------------------------------------------------------------- */

static void learn(uint32_t opcode, size_t len)
{
	const struct fuse_entry_out *e = (const void *)(out_buf + sizeof(struct fuse_out_header));
	bool with_open = opcode == FUSE_CREATE || opcode == FUSE_TMPFILE;

	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_MKDIR:
	case FUSE_MKNOD:
	case FUSE_SYMLINK:
	case FUSE_LINK:
	case FUSE_CREATE:
	case FUSE_TMPFILE:
		require(len == sizeof(*e) + (with_open ? sizeof(struct fuse_open_out) : 0));
		nodes[n_nodes++ % KNOWN] = e->nodeid;
		if (with_open)
			memcpy(&handles[n_handles++ % KNOWN], e + 1, 8);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		require(len == sizeof(struct fuse_open_out));
		memcpy(&handles[n_handles++ % KNOWN], e, 8);
		break;
	}
}

static void check_reply(uint32_t opcode, ssize_t n, size_t room)
{
	struct fuse_out_header out;
	struct fuse_in_header h;

	if (n == -EPROTO) {
		require(in_len < sizeof(h) || room < sizeof(out));
		return;
	}
	if (n == FUSE_AGAIN && opcode == FUSE_SETLKW)
		return;
	require(n >= 0 && (size_t)n <= room);
	if (n == 0)
		return;
	memcpy(&h, in_buf, sizeof(h));
	memcpy(&out, out_buf, sizeof(out));
	require(out.len == (uint32_t)n && out.unique == h.unique);
	require(out.error <= 0 && out.error > -4096);
	require(out.error == 0 || n == sizeof(out));
	if (out.error == 0)
		learn(opcode, (size_t)n - sizeof(out));
}

static unsigned cut(struct iovec *v, char *buf, size_t len, size_t piece)
{
	unsigned n = 0;

	for (size_t at = 0; at < len; at += piece)
		v[n++] = (struct iovec){ buf + at, MIN(piece, len - at) };
	return n;
}

static void serve(uint32_t opcode, size_t room, size_t piece)
{
	static struct iovec in_v[IN_MAX], out_v[OUT_MAX];
	struct cursor in = cursor_of(in_v, cut(in_v, in_buf, in_len, piece));
	struct cursor out = cursor_of(out_v, cut(out_v, out_buf, room, piece));

	check_reply(opcode, fuse_serve(session, fuse_session_worker(session, 0), &in, &out), room);
}

static void init(void)
{
	struct {
		struct fuse_in_header h;
		struct fuse_init_in in;
	} r = { { .len = sizeof(r), .opcode = FUSE_INIT }, { .major = 7, .minor = 45 } };

	in_len = 0;
	put(&r, sizeof(r));
	serve(FUSE_INIT, OUT_MAX, OUT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t pieces[] = { OUT_MAX, 1, 7, 64 };
	struct input in = { data, size };
	struct stat st;
	unsigned fds;
	uid_t uid = geteuid();

	if (!session)
		start();
	require(fuse_thread_init(session) == 0);
	fill_share();
	fds = count_fds();
	n_nodes = n_handles = 0;
	init();
	for (int i = 0; i < REQUESTS && in.left > 0; i++) {
		const struct shape *k = &shapes[take(&in, 1) % ARRAY_SIZE(shapes)];
		uint8_t x = (uint8_t)take(&in, 1);
		size_t room = (x & 28) == 28 ? take(&in, 1) : OUT_MAX;

		build(&in, k);
		serve(k->opcode, room, pieces[x & 3]);
		require(geteuid() == uid);
	}
	fuse_session_reset(session);
	require(count_fds() == fds);
	require(stat(outside, &st) == 0 && st.st_size == 7 && st.st_mode == (S_IFREG | 0644));
	require(fchdir(home) == 0);
	/* Changes of user took that away, and LeakSanitizer attaches to its own process. */
	prctl(PR_SET_DUMPABLE, 1);
	return 0;
}
