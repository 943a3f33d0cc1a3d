/* Listings, of ordinary directories and of one whose names are longer than local ones can be. */
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "tests/unit/fixture.h"
#include "tests/unit/fuse_client.h"

static struct client c;

static void setup(void)
{
	struct fuse_opts o = { 0 };

	client_start(&c, &o);
}

static void teardown(void)
{
	client_stop(&c);
}

static int list(uint32_t opcode, uint64_t fh, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size };
	int rc = CALL(&c, opcode, FUSE_ROOT_ID, in, NULL);

	return rc ? rc : (int)body_len(&c);
}

static struct fuse_dirent *dirent_at(int pos, bool plus)
{
	return (struct fuse_dirent *)(void *)((char *)body(&c) + pos +
					      (plus ? sizeof(struct fuse_entry_out) : 0));
}

static int dirent_len(const struct fuse_dirent *d, bool plus)
{
	return (int)(FUSE_DIRENT_SIZE(d) + (plus ? sizeof(struct fuse_entry_out) : 0));
}

static void make_files(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "file-%u-%.*s", i, (int)(i % 13), "long name end");
		host_write(&c, name, "x", 1);
	}
}

/* One pass with replies of size bytes; every name once; references as many as nodes named. */
static void list_all(bool plus, uint32_t size, unsigned want)
{
	uint32_t opcode = plus ? FUSE_READDIRPLUS : FUSE_READDIR;
	static uint64_t cookie[4096], node[4096];
	unsigned n = 0, nodes = 0, before = count_fds();
	uint64_t fh, off = 0;
	int len;

	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	while ((len = list(opcode, fh, off, size)) > 0) {
		ck_assert_int_le(len, (int)size);
		for (int pos = 0; pos < len;) {
			struct fuse_dirent *d = dirent_at(pos, plus);

			if (plus) {
				struct fuse_entry_out *e = (void *)((char *)body(&c) + pos);
				bool dot = d->name[0] == '.';

				ck_assert(dot == (e->nodeid == 0));
				if (e->nodeid)
					node[nodes++] = e->nodeid;
				ck_assert(dot || e->attr.ino == d->ino);
			}
			for (unsigned i = 0; i < n; i++)
				ck_assert_uint_ne(cookie[i], d->off);
			cookie[n++] = off = d->off;
			pos += dirent_len(d, plus);
		}
	}
	ck_assert_int_eq(len, 0);
	ck_assert_uint_eq(n, want + 2);
	/* Again from the middle, and once more at the end. */
	ck_assert_int_gt(list(opcode, fh, cookie[n / 2], size), 0);
	for (int pos = 0, rest = (int)body_len(&c); plus && pos < rest;) {
		struct fuse_entry_out *e = (void *)((char *)body(&c) + pos);

		if (e->nodeid)
			node[nodes++] = e->nodeid;
		pos += dirent_len(dirent_at(pos, true), true);
	}
	ck_assert_uint_eq(dirent_at(0, plus)->off, cookie[n / 2 + 1]);
	ck_assert_int_eq(list(opcode, fh, cookie[n - 1], size), 0);
	for (unsigned i = 0; i < nodes; i++)
		forget(&c, node[i], 1);
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, fh), 0);
	ck_assert_uint_eq(count_fds(), before);
}

START_TEST(listings)
{
	static const uint32_t sizes[] = { 300, 500, 4096, 65536, 1 << 20 };

	make_files(500);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		list_all(false, sizes[i], 500);
		list_all(true, sizes[i], 500);
	}
}
END_TEST

START_TEST(listing_without_room)
{
	uint64_t fh;

	make_files(3);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	ck_assert_int_eq(list(FUSE_READDIR, fh, 0, 8), -EINVAL);
	ck_assert_int_eq(list(FUSE_READDIRPLUS, fh, 0, 100), -EINVAL);
	ck_assert_int_eq(list(FUSE_READDIR, fh, UINT64_MAX, 4096), -EINVAL);
	c.out_room = 16 + 64;
	ck_assert_int_gt(list(FUSE_READDIR, fh, 0, UINT32_MAX), 0);
	ck_assert_int_le((int)body_len(&c), 64);
}
END_TEST

/* A listing from the start shows the directory of now, not what was read ahead. */
START_TEST(listing_again)
{
	uint64_t fh;
	int before;

	make_files(3);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	before = list(FUSE_READDIR, fh, 0, 4096);
	host_write(&c, "one-more", "x", 1);
	ck_assert_int_gt(list(FUSE_READDIR, fh, 0, 4096), before);
}
END_TEST

START_TEST(seek_that_fails_loses_nothing)
{
	uint64_t fh, off = 0;
	unsigned n = 0;
	int len;

	make_files(100);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	while ((len = list(FUSE_READDIR, fh, off, 300)) > 0) {
		for (int pos = 0; pos < len; pos += dirent_len(dirent_at(pos, false), false)) {
			off = dirent_at(pos, false)->off;
			n++;
		}
		ck_assert_int_eq(list(FUSE_READDIR, fh, UINT64_MAX, 300), -EINVAL);
	}
	ck_assert_uint_eq(n, 102);
}
END_TEST

/* --- many open directories -------------------------------------------------------------------- */

#define OPEN_DIRS 1500 /* more than keep what was read ahead */

static uint64_t dir_fh[OPEN_DIRS], dir_off[OPEN_DIRS];
static unsigned dir_seen[OPEN_DIRS];

/* One reply's worth of each.  False when all are at their end. */
static bool list_each_further(void)
{
	bool more = false;

	for (unsigned i = 0; i < OPEN_DIRS; i++) {
		int len = list(FUSE_READDIR, dir_fh[i], dir_off[i], 4096);

		ck_assert_int_ge(len, 0);
		more |= len > 0;
		for (int pos = 0; pos < len; pos += dirent_len(dirent_at(pos, false), false)) {
			dir_off[i] = dirent_at(pos, false)->off;
			dir_seen[i]++;
		}
	}
	return more;
}

static size_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd; /* 0 under a sanitizer */
}

/* Descriptors are what limits a guest that opens directories; memory must not run out before. */
START_TEST(many_open_directories_cost_little)
{
	struct rlimit rl;
	size_t before;

	make_files(200);
	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur < 2 * OPEN_DIRS) {
		printf("skipped: 1, descriptors are few here\n");
		return;
	}
	fuse_session_destroy(c.s);
	ck_assert_int_eq(
		fuse_session_create(&(struct fuse_opts){ .path = c.share, .workers = 1 }, &c.s), 0);
	c.w = fuse_session_worker(c.s, 0);
	ck_assert_int_eq(client_init_as(&c, 45, 0), 0);
	before = allocated();
	for (unsigned i = 0; i < OPEN_DIRS; i++)
		ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &dir_fh[i]), 0);
	ck_assert_uint_lt(allocated() - before, OPEN_DIRS * (size_t)1024);
	while (list_each_further())
		ck_assert_uint_lt(allocated() - before, 1024 * (size_t)16 * 1024);
	for (unsigned i = 0; i < OPEN_DIRS; i++)
		ck_assert_uint_eq(dir_seen[i], 202);
	ck_assert_uint_lt(allocated() - before, OPEN_DIRS * (size_t)1024);
}
END_TEST

/* --- names longer than NAME_MAX --------------------------------------------------------------- */

/* A file system of the host that lists names of these lengths.  FUSE: vfat would take a disk. */
static const uint32_t host_names[] = { 5, 255, 256, 700, 1024, 1025, 3000, 7 };

static void host_reply(int fd, uint64_t unique, int error, const void *p, size_t len)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + len),
				     .error = error,
				     .unique = unique };
	struct iovec v[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)p, len } };

	(void)!writev(fd, v, 2);
}

static void host_list(int fd, uint64_t unique, uint64_t off)
{
	static _Alignas(8) char buf[4096];
	struct fuse_dirent *d = (void *)buf;

	if (off >= ARRAY_SIZE(host_names)) {
		host_reply(fd, unique, 0, NULL, 0);
		return;
	}
	memset(buf, 0, sizeof(buf));
	*d = (struct fuse_dirent){
		.ino = off + 2, .off = off + 1, .namelen = host_names[off], .type = DT_REG
	};
	memset(d->name, 'n', d->namelen);
	host_reply(fd, unique, 0, buf, FUSE_DIRENT_SIZE(d));
}

static void host_answer(int fd, const struct fuse_in_header *h)
{
	const struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 4096 };
	const struct fuse_attr_out root = {
		.attr_valid = 100,
		.attr = { .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2 },
	};
	const struct fuse_open_out open = { 0 };

	switch (h->opcode) {
	case FUSE_INIT:
		host_reply(fd, h->unique, 0, &init, sizeof(init));
		break;
	case FUSE_GETATTR:
		host_reply(fd, h->unique, 0, &root, sizeof(root));
		break;
	case FUSE_OPENDIR:
		host_reply(fd, h->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READDIR:
		host_list(fd, h->unique,
			  ((const struct fuse_read_in *)(const void *)(h + 1))->offset);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		break;
	default:
		host_reply(fd, h->unique, -ENOSYS, NULL, 0);
	}
}

static void host_serve(int fd)
{
	static _Alignas(8) char buf[64 * 1024];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(fd, buf, sizeof(buf)) > 0)
		host_answer(fd, (const struct fuse_in_header *)(const void *)buf);
	_exit(0);
}

/* Mounted at the share.  Its server's process, or -1: not possible here. */
static pid_t host_mount(void)
{
	char opts[100];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	pid_t pid;

	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (fd < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("heddle-test", c.share, "fuse.heddle-test", 0, opts) < 0)
		return -1;
	pid = fork();
	if (pid == 0)
		host_serve(fd);
	close(fd);
	return pid;
}

/*
 * All of them that a client can take; the rest is left out.  A host whose own limit is 1024 breaks
 * the listing off at the longer one, with an error.
 */
static void check_long_names(uint32_t opcode)
{
	bool plus = opcode == FUSE_READDIRPLUS;
	uint64_t fh, off = 0;
	unsigned n = 0;
	int len;

	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	while ((len = list(opcode, fh, off, 4096)) > 0) {
		for (int pos = 0; pos < len; pos += dirent_len(dirent_at(pos, plus), plus)) {
			n += host_names[n] > 1024 ? 2 : 0;
			ck_assert_uint_lt(n, ARRAY_SIZE(host_names));
			ck_assert_uint_eq(dirent_at(pos, plus)->namelen, host_names[n]);
			off = dirent_at(pos, plus)->off;
			n++;
		}
	}
	ck_assert(len == 0 ? n == ARRAY_SIZE(host_names) : len == -EIO && n == 5);
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, fh), 0);
}

START_TEST(names_may_be_longer_than_local_ones)
{
	struct fuse_opts o = { .workers = 1 };
	pid_t pid = host_mount();

	if (pid < 0) {
		printf("skipped: 1, a FUSE mount takes root and /dev/fuse\n");
		return;
	}
	fuse_session_destroy(c.s);
	o.path = c.share;
	ck_assert_int_eq(fuse_session_create(&o, &c.s), 0);
	c.w = fuse_session_worker(c.s, 0);
	ck_assert_int_eq(client_init_as(&c, 45, 0), 0);
	check_long_names(FUSE_READDIR);
	check_long_names(FUSE_READDIRPLUS);
	fuse_session_reset(c.s);
	umount2(c.share, MNT_DETACH);
	kill(pid, SIGKILL);
}
END_TEST

SUITE_MAIN_FIXTURE("fuse_dirs", 60, setup, teardown, listings, listing_without_room, listing_again,
		   seek_that_fails_loses_nothing, many_open_directories_cost_little,
		   names_may_be_longer_than_local_ones)
