/*
 * Random work on a directory by several threads, with every byte checked.
 *
 * usage: stress [-t THREADS] [-n STEPS] [-s SEED] DIR
 *
 * Each thread has a folder of its own and a model of it in memory: what each name leads to and what
 * each file holds, names that share a file by hard link and files kept open without a name included.
 * Now and then it works in a folder shared by all, where no model can be right, but where a file's
 * first bytes must name its own inode, and only certain errors are possible.
 *
 * Exit code 1 and one line on the first difference.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES      24
#define FILE_MAX   (192 * 1024)
#define SHARED_MAX 16

/* A file's contents as they must be; shared by its names. */
struct model {
	unsigned names;
	size_t len;
	unsigned char data[FILE_MAX];
};

struct worker {
	pthread_t thread;
	unsigned index;
	uint64_t random;
	unsigned step;
	const char *doing;
	int dir, shared;
	struct model *file[NAMES];
	int open_fd[NAMES]; /* -1, or a descriptor that stays open for a while */
	struct model *nameless;
	int nameless_fd;
	unsigned char buf[FILE_MAX];
};

static unsigned steps = 3000;

static void fail(struct worker *w, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "stress: thread %u step %u %s: ", w->index, w->step, w->doing);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (errno %s)\n", strerrorname_np(errno));
	exit(1);
}

#define MUST(cond) ((cond) ? (void)0 : fail(w, "%s", #cond))

static uint32_t pick(struct worker *w, uint32_t n)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((w->random >> 33) % n);
}

static const char *name_of(unsigned i)
{
	static const char names[NAMES][12] = {
		"a", "b", "c",           "d", "e", "f", "long-name-1", "h", "i", "j", "k", "l",
		"m", "n", "long-name-2", "p", "q", "r", "s",           "t", "u", "v", "w", "x",
	};

	return names[i];
}

static void random_bytes(struct worker *w, size_t len)
{
	uint64_t x = w->random | 1;

	for (size_t i = 0; i < len; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(w->buf + i, &x, len - i < 8 ? len - i : 8);
	}
}

/* --- checks ----------------------------------------------------------------------------------- */

static void check_fd(struct worker *w, int fd, const struct model *m)
{
	struct stat st;

	MUST(fstat(fd, &st) == 0);
	if ((size_t)st.st_size != m->len || st.st_nlink != m->names)
		fail(w, "size %lld, not %zu; links %u, not %u", (long long)st.st_size, m->len,
		     (unsigned)st.st_nlink, m->names);
	MUST(pread(fd, w->buf, FILE_MAX, 0) == (ssize_t)m->len);
	for (size_t i = 0; i < m->len; i++)
		if (w->buf[i] != m->data[i])
			fail(w, "byte %zu of %zu is %#x, not %#x", i, m->len, w->buf[i],
			     m->data[i]);
}

static int open_name(struct worker *w, unsigned i, int flags)
{
	int fd = openat(w->dir, name_of(i), flags);

	MUST(fd >= 0);
	return fd;
}

static void check_name(struct worker *w, unsigned i)
{
	int fd;

	if (!w->file[i]) {
		MUST(openat(w->dir, name_of(i), O_RDONLY) < 0 && errno == ENOENT);
		return;
	}
	fd = open_name(w, i, O_RDONLY);
	check_fd(w, fd, w->file[i]);
	close(fd);
}

static void check_listing(struct worker *w)
{
	int fd = openat(w->dir, ".", O_RDONLY | O_DIRECTORY);
	unsigned seen = 0, want = 0;
	struct dirent *e;
	DIR *d = fdopendir(fd);

	MUST(d);
	while ((e = readdir(d)))
		seen += e->d_name[0] != '.';
	closedir(d);
	for (unsigned i = 0; i < NAMES; i++)
		want += w->file[i] != NULL;
	if (seen != want)
		fail(w, "%u entries, not %u", seen, want);
}

/* --- the model -------------------------------------------------------------------------------- */

static void model_drop(struct worker *w, unsigned i)
{
	struct model *m = w->file[i];

	w->file[i] = NULL;
	if (w->open_fd[i] >= 0) {
		/* The descriptor outlives the name. */
		if (m->names == 1 && !w->nameless) {
			w->nameless = m;
			w->nameless_fd = w->open_fd[i];
			w->open_fd[i] = -1;
			m->names = 0;
			return;
		}
		close(w->open_fd[i]);
		w->open_fd[i] = -1;
	}
	if (--m->names == 0)
		free(m);
}

static void model_resize(struct model *m, size_t len)
{
	if (len > m->len)
		memset(m->data + m->len, 0, len - m->len);
	m->len = len;
}

static void model_write(struct worker *w, struct model *m, size_t off, size_t len)
{
	if (off + len > m->len)
		model_resize(m, off + len);
	memcpy(m->data + off, w->buf, len);
}

/* --- steps ------------------------------------------------------------------------------------ */

static void step_create(struct worker *w, unsigned i)
{
	int fd;

	if (w->file[i]) {
		MUST(openat(w->dir, name_of(i), O_RDWR | O_CREAT | O_EXCL, 0644) < 0);
		MUST(errno == EEXIST);
		return;
	}
	fd = openat(w->dir, name_of(i), O_RDWR | O_CREAT | O_EXCL, 0644);
	MUST(fd >= 0);
	w->file[i] = calloc(1, sizeof(struct model));
	w->file[i]->names = 1;
	if (pick(w, 3) == 0)
		w->open_fd[i] = fd;
	else
		close(fd);
}

static int writable(struct worker *w, unsigned i)
{
	return w->open_fd[i] >= 0 ? dup(w->open_fd[i]) : open_name(w, i, O_RDWR);
}

static void step_write(struct worker *w, unsigned i)
{
	size_t off = pick(w, FILE_MAX), len = 1 + pick(w, pick(w, 2) ? 100 : FILE_MAX);
	int fd = writable(w, i);

	if (off + len > FILE_MAX)
		len = FILE_MAX - off;
	random_bytes(w, len);
	MUST(pwrite(fd, w->buf, len, (off_t)off) == (ssize_t)len);
	model_write(w, w->file[i], off, len);
	close(fd);
}

static void step_append(struct worker *w, unsigned i)
{
	struct model *m = w->file[i];
	size_t len = 1 + pick(w, 5000);
	int fd;

	if (m->len + len > FILE_MAX)
		return;
	fd = open_name(w, i, O_WRONLY | O_APPEND);
	random_bytes(w, len);
	MUST(write(fd, w->buf, len) == (ssize_t)len);
	model_write(w, m, m->len, len);
	close(fd);
}

static void step_truncate(struct worker *w, unsigned i)
{
	size_t len = pick(w, FILE_MAX);
	int fd = writable(w, i);

	MUST(ftruncate(fd, (off_t)len) == 0);
	model_resize(w->file[i], len);
	close(fd);
}

static void step_map(struct worker *w, unsigned i)
{
	struct model *m = w->file[i];
	size_t off, len;
	unsigned char *p;
	int fd;

	if (m->len == 0)
		return;
	fd = writable(w, i);
	p = mmap(NULL, m->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED && errno == ENODEV)
		return;
	MUST(p != MAP_FAILED);
	MUST(memcmp(p, m->data, m->len) == 0);
	off = pick(w, (uint32_t)m->len);
	len = 1 + pick(w, (uint32_t)(m->len - off));
	random_bytes(w, len);
	memcpy(p + off, w->buf, len);
	model_write(w, m, off, len);
	if (pick(w, 2))
		MUST(msync(p, m->len, MS_SYNC) == 0);
	munmap(p, m->len);
}

static void step_punch(struct worker *w, unsigned i)
{
	struct model *m = w->file[i];
	size_t off = pick(w, FILE_MAX), len = 1 + pick(w, 20000);
	int fd = writable(w, i);

	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) < 0)
		MUST(errno == EOPNOTSUPP);
	else if (off < m->len)
		memset(m->data + off, 0, off + len > m->len ? m->len - off : len);
	close(fd);
}

static void step_copy(struct worker *w, unsigned i, unsigned j)
{
	off_t from = pick(w, FILE_MAX), to = pick(w, FILE_MAX / 2);
	size_t len = 1 + pick(w, FILE_MAX / 2);
	int a, b;
	ssize_t n;

	if (!w->file[j] || w->file[i] == w->file[j])
		return;
	a = open_name(w, i, O_RDONLY);
	b = open_name(w, j, O_RDWR);
	memcpy(w->buf, w->file[i]->data + from, FILE_MAX - (size_t)from);
	n = copy_file_range(a, &(off_t){ from }, b, &(off_t){ to }, len, 0);
	MUST(n >= 0);
	MUST((size_t)n <= len && (n == 0 || (size_t)(from + n) <= w->file[i]->len));
	if (n > 0)
		model_write(w, w->file[j], (size_t)to, (size_t)n);
	close(a);
	close(b);
}

static void step_unlink(struct worker *w, unsigned i)
{
	MUST(unlinkat(w->dir, name_of(i), 0) == 0);
	model_drop(w, i);
}

static void step_rename(struct worker *w, unsigned i, unsigned j)
{
	MUST(renameat(w->dir, name_of(i), w->dir, name_of(j)) == 0);
	if (w->file[i] == w->file[j])
		return; /* one file, or one name: nothing happens */
	if (w->file[j])
		model_drop(w, j);
	w->file[j] = w->file[i];
	w->open_fd[j] = w->open_fd[i];
	w->file[i] = NULL;
	w->open_fd[i] = -1;
}

static void step_link(struct worker *w, unsigned i, unsigned j)
{
	int rc = linkat(w->dir, name_of(i), w->dir, name_of(j), 0);

	if (w->file[j]) {
		MUST(rc < 0 && errno == EEXIST);
		return;
	}
	MUST(rc == 0);
	w->file[j] = w->file[i];
	w->file[j]->names++;
}

static void step_nameless(struct worker *w)
{
	struct model *m = w->nameless;
	size_t len = pick(w, FILE_MAX);

	if (!m)
		return;
	check_fd(w, w->nameless_fd, m);
	MUST(ftruncate(w->nameless_fd, (off_t)len) == 0);
	model_resize(m, len);
	random_bytes(w, 1000);
	MUST(pwrite(w->nameless_fd, w->buf, 1000, 500) == 1000);
	model_write(w, m, 500, 1000);
	check_fd(w, w->nameless_fd, m);
	if (pick(w, 3))
		return;
	close(w->nameless_fd);
	free(m);
	w->nameless = NULL;
}

static void step_xattr(struct worker *w, unsigned i)
{
	size_t len = 1 + pick(w, 500);
	int fd = open_name(w, i, O_RDONLY);
	char back[512];

	random_bytes(w, len);
	if (fsetxattr(fd, "user.stress", w->buf, len, 0) == 0) {
		MUST(fgetxattr(fd, "user.stress", back, sizeof(back)) == (ssize_t)len);
		MUST(memcmp(back, w->buf, len) == 0);
	} else {
		MUST(errno == EOPNOTSUPP || errno == ENOSPC);
	}
	close(fd);
}

static void step_folder(struct worker *w)
{
	static const char *const deep[] = { ".x", ".x/y", ".x/y/z" };

	for (int i = 0; i < 3; i++)
		MUST(mkdirat(w->dir, deep[i], 0755) == 0);
	MUST(mkdirat(w->dir, ".x/y", 0755) < 0 && errno == EEXIST);
	MUST(unlinkat(w->dir, ".x", AT_REMOVEDIR) < 0 && errno == ENOTEMPTY);
	MUST(renameat(w->dir, ".x/y", w->dir, ".moved") == 0);
	MUST(faccessat(w->dir, ".moved/z", F_OK, 0) == 0);
	MUST(unlinkat(w->dir, ".x", AT_REMOVEDIR) == 0);
	MUST(unlinkat(w->dir, ".moved/z", AT_REMOVEDIR) == 0);
	MUST(unlinkat(w->dir, ".moved", AT_REMOVEDIR) == 0);
}

/* --- the folder shared by all ----------------------------------------------------------------- */

static void shared_name(struct worker *w, char name[16])
{
	snprintf(name, 16, "s%u", pick(w, SHARED_MAX));
}

/* A file is made under a name of its own and moved in when complete. */
static void shared_make(struct worker *w)
{
	char mine[32], name[16];
	struct stat st;
	int fd;

	snprintf(mine, sizeof(mine), ".new-%u", w->index);
	shared_name(w, name);
	fd = openat(w->shared, mine, O_RDWR | O_CREAT | O_EXCL, 0644);
	MUST(fd >= 0 && fstat(fd, &st) == 0);
	MUST(write(fd, &st.st_ino, sizeof(st.st_ino)) == (ssize_t)sizeof(st.st_ino));
	MUST(renameat(w->shared, mine, w->shared, name) == 0);
	close(fd);
}

static void shared_use(struct worker *w)
{
	char name[16], other[16];
	struct stat st;
	uint64_t ino = 0;
	int fd;

	shared_name(w, name);
	fd = openat(w->shared, name, O_RDONLY);
	if (fd < 0) {
		MUST(errno == ENOENT);
		return;
	}
	MUST(fstat(fd, &st) == 0);
	MUST(pread(fd, &ino, sizeof(ino), 0) == (ssize_t)sizeof(ino));
	if (ino != st.st_ino)
		fail(w, "%s: inode %llu holds %llu", name, (unsigned long long)st.st_ino,
		     (unsigned long long)ino);
	close(fd);
	shared_name(w, other);
	switch (pick(w, 3)) {
	case 0:
		MUST(renameat(w->shared, name, w->shared, other) == 0 || errno == ENOENT);
		break;
	case 1:
		MUST(linkat(w->shared, name, w->shared, other, 0) == 0 || errno == ENOENT ||
		     errno == EEXIST);
		break;
	default:
		MUST(unlinkat(w->shared, name, 0) == 0 || errno == ENOENT);
	}
}

/* --- the run ---------------------------------------------------------------------------------- */

enum {
	CREATE,
	WRITE,
	APPEND,
	TRUNCATE,
	MAP,
	PUNCH,
	COPY,
	UNLINK,
	RENAME,
	LINK,
	XATTR,
	CHECK,
	N_FILE
};

static void step_file(struct worker *w, unsigned kind, unsigned i, unsigned j)
{
	switch (kind) {
	case WRITE:
		return step_write(w, i);
	case APPEND:
		return step_append(w, i);
	case TRUNCATE:
		return step_truncate(w, i);
	case MAP:
		return step_map(w, i);
	case PUNCH:
		return step_punch(w, i);
	case COPY:
		return step_copy(w, i, j);
	case UNLINK:
		return step_unlink(w, i);
	case RENAME:
		return step_rename(w, i, j);
	case LINK:
		return step_link(w, i, j);
	case XATTR:
		return step_xattr(w, i);
	default:
		return check_name(w, i);
	}
}

static void step(struct worker *w)
{
	static const char *const words[] = { "create", "write", "append", "truncate",
					     "map",    "punch", "copy",   "unlink",
					     "rename", "link",  "xattr",  "check" };
	unsigned kind = pick(w, N_FILE + 4), i = pick(w, NAMES), j = pick(w, NAMES);

	w->doing = kind < N_FILE ? words[kind] : "other";
	if (kind < N_FILE && (!w->file[i] || kind == CREATE))
		return step_create(w, i);
	if (kind < N_FILE)
		return step_file(w, kind, i, j);
	if (kind == N_FILE)
		return step_nameless(w);
	if (kind == N_FILE + 1)
		return pick(w, 8) ? check_listing(w) : step_folder(w);
	if (kind == N_FILE + 2)
		return shared_make(w);
	shared_use(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (w->step = 0; w->step < steps; w->step++)
		step(w);
	w->doing = "end";
	for (unsigned i = 0; i < NAMES; i++)
		check_name(w, i);
	check_listing(w);
	return NULL;
}

static struct worker *worker_new(int base, unsigned index, uint64_t seed)
{
	struct worker *w = calloc(1, sizeof(*w));
	char name[16];

	if (!w)
		exit(2);
	w->index = index;
	w->random = seed * 7919 + index;
	w->doing = "start";
	snprintf(name, sizeof(name), "t%u", index);
	MUST(mkdirat(base, name, 0755) == 0);
	w->dir = openat(base, name, O_RDONLY | O_DIRECTORY);
	w->shared = openat(base, "shared", O_RDONLY | O_DIRECTORY);
	MUST(w->dir >= 0 && w->shared >= 0);
	for (unsigned i = 0; i < NAMES; i++)
		w->open_fd[i] = -1;
	return w;
}

int main(int argc, char **argv)
{
	struct worker *w[64];
	unsigned threads = 4;
	uint64_t seed = 1;
	int opt, base;

	while ((opt = getopt(argc, argv, "t:n:s:")) != -1) {
		if (opt == 't')
			threads = (unsigned)atoi(optarg);
		else if (opt == 'n')
			steps = (unsigned)atoi(optarg);
		else if (opt == 's')
			seed = (uint64_t)atoll(optarg);
	}
	if (optind + 1 != argc || threads < 1 || threads > 64) {
		fprintf(stderr, "usage: stress [-t THREADS] [-n STEPS] [-s SEED] DIR\n");
		return 2;
	}
	base = open(argv[optind], O_RDONLY | O_DIRECTORY);
	if (base < 0 || mkdirat(base, "shared", 0755) < 0) {
		perror(argv[optind]);
		return 2;
	}
	for (unsigned i = 0; i < threads; i++)
		w[i] = worker_new(base, i, seed);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&w[i]->thread, NULL, work, w[i]))
			return 2;
	for (unsigned i = 0; i < threads; i++)
		pthread_join(w[i]->thread, NULL);
	return 0;
}
