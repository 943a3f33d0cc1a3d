/* What bench-fs compares with: the same work by plain system calls; see fs_rig.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/fs_rig.h"
#include "tests/bench/harness.h"
#include "vmm/base.h"

struct plain {
	pthread_t thread;
	unsigned index;
	int fd;
	const struct move_kind *k;
	plain_data_fn *data;
	uint64_t begin_ns, end_ns, cpu_ns;
};

static int folder(const char *dir, const char *name)
{
	int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	need(at >= 0, dir);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	need(fd >= 0, name);
	close(at);
	return fd;
}

static int data_file(const char *dir, unsigned i, int flags)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/data-%u", dir, i);
	fd = open(path, flags | O_CLOEXEC, 0644);
	need(fd >= 0, path);
	return fd;
}

/* --- the directory ---------------------------------------------------------------------------- */

static void make_folder(const char *dir, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	need(mkdir(path, 0755) == 0 || errno == EEXIST, path);
}

/* Written once and given to the disk, so that writeback does not begin in the midst of a run. */
static void fill(int fd)
{
	static char piece[1 << 20];

	memset(piece, 'x', sizeof(piece));
	for (size_t at = 0; at < FS_FILE_LEN; at += sizeof(piece))
		need(write(fd, piece, sizeof(piece)) == sizeof(piece), "write");
	need(fdatasync(fd) == 0, "fdatasync");
}

/* In the host's cache until the program ends: some hosts put out what nobody maps. */
static void keep_cached(int fd)
{
	void *p = mmap(NULL, FS_FILE_LEN, PROT_READ, MAP_SHARED, fd, 0);

	need(p != MAP_FAILED && mlock(p, FS_FILE_LEN) == 0, "mlock of a file");
}

void plain_files(const char *dir, unsigned queues)
{
	make_folder(dir, "small");
	make_folder(dir, "many");
	for (unsigned i = 0; i < queues; i++) {
		int fd = data_file(dir, i, O_RDWR | O_CREAT);
		struct stat st;

		need(fstat(fd, &st) == 0, "fstat");
		if (st.st_size != FS_FILE_LEN)
			fill(fd);
		keep_cached(fd);
		close(fd);
	}
}

void plain_many(const char *dir)
{
	int at = folder(dir, "many");
	char name[32];

	for (unsigned i = 0; i < FS_LISTED; i++) {
		snprintf(name, sizeof(name), "entry-%07u", i);
		need(mknodat(at, name, S_IFREG | 0644, 0) == 0, "mknodat");
	}
	close(at);
}

static void empty(const char *dir, const char *name)
{
	int at = folder(dir, name);
	DIR *d = fdopendir(at);
	struct dirent *e;

	need(d != NULL, "fdopendir");
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			unlinkat(at, e->d_name, 0);
	closedir(d);
}

void plain_clean(const char *dir)
{
	char path[512];

	empty(dir, "small");
	empty(dir, "many");
	for (unsigned i = 0; i < FS_QUEUES_MAX; i++) {
		snprintf(path, sizeof(path), "%s/data-%u", dir, i);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/small", dir);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/many", dir);
	rmdir(path);
}

bool plain_can_direct(const char *dir)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/data-0", dir);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void move_all(struct plain *p)
{
	const struct move_kind *k = p->k;
	uint64_t pieces = FS_FILE_LEN / k->len, seed = p->index + 1;

	for (unsigned i = 0; i < k->ops; i++) {
		void *data = p->data(p->index, i);
		uint64_t at = i;
		ssize_t n;

		if (k->random) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			at = seed >> 33;
		}
		at = at % pieces * k->len;
		n = k->write ? pwrite(p->fd, data, k->len, (off_t)at)
			     : pread(p->fd, data, k->len, (off_t)at);
		need(n == (ssize_t)k->len, "a short read or write");
	}
}

static void *move_thread(void *arg)
{
	struct plain *p = arg;
	uint64_t cpu_ns;

	prctl(PR_SET_NAME, "plain");
	cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	p->begin_ns = clock_ns(CLOCK_MONOTONIC);
	move_all(p);
	p->end_ns = clock_ns(CLOCK_MONOTONIC);
	p->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	return NULL;
}

struct sample plain_move(const char *dir, const struct move_kind *k, unsigned threads,
			 plain_data_fn *data)
{
	static struct plain plain[FS_QUEUES_MAX];
	struct sample s = { .ops = (double)k->ops * threads };
	uint64_t begin_ns = UINT64_MAX, end_ns = 0;

	for (unsigned i = 0; i < threads; i++) {
		plain[i] = (struct plain){ .index = i, .k = k, .data = data };
		plain[i].fd = data_file(dir, i, O_RDWR | (k->direct ? O_DIRECT : 0));
	}
	for (unsigned i = 0; i < threads; i++)
		need(!pthread_create(&plain[i].thread, NULL, move_thread, &plain[i]), "thread");
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(plain[i].thread, NULL);
		begin_ns = MIN(begin_ns, plain[i].begin_ns);
		end_ns = MAX(end_ns, plain[i].end_ns);
		s.cpu_ns += (double)plain[i].cpu_ns;
		close(plain[i].fd);
	}
	s.wall_ns = (double)(end_ns - begin_ns);
	return s;
}

/* --- small files, and a large directory ------------------------------------------------------- */

static struct sample sample_begin(void)
{
	return (struct sample){ .wall_ns = -(double)clock_ns(CLOCK_MONOTONIC),
				.cpu_ns = -(double)clock_ns(CLOCK_THREAD_CPUTIME_ID) };
}

static void sample_end(struct sample *s, double ops)
{
	s->wall_ns += (double)clock_ns(CLOCK_MONOTONIC);
	s->cpu_ns += (double)clock_ns(CLOCK_THREAD_CPUTIME_ID);
	s->ops = ops;
}

static struct sample each_small(const char *dir, unsigned n, void (*each)(int at, const char *name))
{
	int at = folder(dir, "small");
	struct sample s = sample_begin();
	char name[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "f%06u", i);
		each(at, name);
	}
	sample_end(&s, n);
	close(at);
	return s;
}

static void create_one(int at, const char *name)
{
	static const char data[FS_SMALL_LEN];
	int fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	need(fd >= 0 && pwrite(fd, data, sizeof(data), 0) == sizeof(data), "a small file");
	close(fd);
}

static void stat_one(int at, const char *name)
{
	struct stat st;

	need(fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0, "fstatat");
}

static void unlink_one(int at, const char *name)
{
	need(unlinkat(at, name, 0) == 0, "unlinkat");
}

struct sample plain_create(const char *dir, unsigned n)
{
	return each_small(dir, n, create_one);
}

struct sample plain_stat(const char *dir, unsigned n)
{
	return each_small(dir, n, stat_one);
}

struct sample plain_unlink(const char *dir, unsigned n)
{
	return each_small(dir, n, unlink_one);
}

struct sample plain_list(const char *dir, bool plus)
{
	int at = folder(dir, "many");
	struct sample s = sample_begin();
	DIR *d = fdopendir(at);
	struct dirent *e;
	unsigned n = 0;

	need(d != NULL, "fdopendir");
	for (; (e = readdir(d)); n++)
		if (plus)
			stat_one(at, e->d_name);
	sample_end(&s, n);
	need(n == FS_LISTED + 2, "entries are missing");
	closedir(d);
	return s;
}
