/*
 * The guest of bench-fs-guest, a static program.  As process 1 of an initramfs: loads the files of /modules in
 * order, mounts the virtio-fs tag "share", and goes through the cases there, a line each on the console:
 *	case NAME JOBS ops N ns N
 * The kernel's command line may say ms=N (of the cases that run for a time), files=N (of the tree), mib=N
 * (of each job's file).
 *
 * What is read was put out of the guest's cache before; the host has it in its own.  Random reads use O_DIRECT,
 * or the guest's cache would answer most of them.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHARE	  "/share"
#define JOBS_MAX  4
#define OPS_MIN	  16 /* however slow the host */
#define LARGE	  (256u << 10)
#define SMALL	  4096u
#define DIR_FILES 100 /* in each folder of the tree */

static unsigned ms = 1000, files = 4000, mib = 16;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void need(int ok, const char *what)
{
	if (ok)
		return;
	printf("failed: %s: %s\n", what, strerror(errno));
	reboot(RB_POWER_OFF);
}

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	need(fd >= 0 && write(fd, "3", 1) == 1, "drop_caches");
	close(fd);
}

static void print_case(const char *name, unsigned jobs, uint64_t ops, int64_t ns)
{
	printf("case %s %u ops %llu ns %lld\n", name, jobs, (unsigned long long)ops, (long long)ns);
}

/* --- bytes -------------------------------------------------------------------------------------- */

struct job {
	pthread_t thread;
	unsigned index;
	int fd;
	int writes, random;
	int64_t end_ns;
	uint64_t ops;
};

static void *job_main(void *arg)
{
	struct job *j = arg;
	unsigned len = j->random ? SMALL : LARGE;
	uint64_t pieces = ((uint64_t)mib << 20) / len, seed = j->index + 1, at = 0;
	void *buf = aligned_alloc(4096, LARGE);

	need(buf != NULL, "memory");
	memset(buf, 'x', LARGE);
	while (j->random ? now_ns() < j->end_ns || j->ops < OPS_MIN : j->ops < pieces) {
		ssize_t n;

		if (j->random) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			at = (seed >> 33) % pieces;
		}
		n = j->writes ? pwrite(j->fd, buf, len, (off_t)(at * len))
			      : pread(j->fd, buf, len, (off_t)(at * len));
		need(n == (ssize_t)len, "a short read or write");
		at++;
		j->ops++;
	}
	free(buf);
	return NULL;
}

static void bytes(const char *name, unsigned jobs, int writes, int random)
{
	int flags = O_RDWR | O_CREAT | (random && !writes ? O_DIRECT : 0);
	struct job j[JOBS_MAX];
	uint64_t ops = 0;
	int64_t start;
	char path[64];

	for (unsigned i = 0; i < jobs; i++) {
		snprintf(path, sizeof(path), SHARE "/data-%u", i);
		j[i] = (struct job){ .index = i, .writes = writes, .random = random };
		j[i].fd = open(path, flags, 0644);
		need(j[i].fd >= 0, path);
	}
	drop_caches();
	start = now_ns();
	for (unsigned i = 0; i < jobs; i++) {
		j[i].end_ns = start + (int64_t)ms * 1000000;
		need(!pthread_create(&j[i].thread, NULL, job_main, &j[i]), "thread");
	}
	for (unsigned i = 0; i < jobs; i++) {
		pthread_join(j[i].thread, NULL);
		ops += j[i].ops;
	}
	print_case(name, jobs, ops, now_ns() - start);
	for (unsigned i = 0; i < jobs; i++)
		close(j[i].fd);
}

/* --- a tree -------------------------------------------------------------------------------------- */

/* As tar unpacks one: every file made, filled, and given owner, mode and time. */
static void unpack_file(const char *path, unsigned i)
{
	static const char data[8192];
	const struct timespec t[2] = { { 1700000000, 0 }, { 1700000000, 0 } };
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	size_t len = 200 + i * 37 % 8000;

	need(fd >= 0 && write(fd, data, len) == (ssize_t)len, path);
	need(!futimens(fd, t) && !fchown(fd, 0, 0) && !fchmod(fd, 0644), path);
	close(fd);
}

static uint64_t unpack(void)
{
	char path[128];

	need(!mkdir(SHARE "/tree", 0755), "mkdir");
	for (unsigned i = 0; i < files; i++) {
		snprintf(path, sizeof(path), SHARE "/tree/d%03u", i / DIR_FILES);
		if (i % DIR_FILES == 0)
			need(!mkdir(path, 0755), path);
		snprintf(path, sizeof(path), SHARE "/tree/d%03u/file-%05u.c", i / DIR_FILES, i);
		unpack_file(path, i);
	}
	return files;
}

enum { FIND, REMOVE };

/* Names only, as find does it; or all removed.  How many entries. */
static uint64_t walk(int at, const char *name, int what)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	DIR *d = fdopendir(fd);
	struct dirent *e;
	uint64_t n = 0;

	need(d != NULL, name);
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		n++;
		if (e->d_type == DT_DIR) {
			n += walk(fd, e->d_name, what);
			if (what == REMOVE)
				need(!unlinkat(fd, e->d_name, AT_REMOVEDIR), e->d_name);
		} else if (what == REMOVE) {
			need(!unlinkat(fd, e->d_name, 0), e->d_name);
		}
	}
	closedir(d);
	return n;
}

static uint64_t find(void)
{
	return walk(AT_FDCWD, SHARE "/tree", FIND);
}

/* As git status refreshes its index: lstat of every file by its whole path, then the folders listed. */
static uint64_t status(void)
{
	struct stat st;
	char path[128];

	for (unsigned i = 0; i < files; i++) {
		snprintf(path, sizeof(path), SHARE "/tree/d%03u/file-%05u.c", i / DIR_FILES, i);
		need(!lstat(path, &st), path);
	}
	return files + find();
}

static uint64_t remove_all(void)
{
	uint64_t n = walk(AT_FDCWD, SHARE "/tree", REMOVE);

	need(!rmdir(SHARE "/tree"), "rmdir");
	return n;
}

static void timed(const char *name, uint64_t (*fn)(void))
{
	int64_t start;
	uint64_t n;

	drop_caches();
	start = now_ns();
	n = fn();
	print_case(name, 1, n, now_ns() - start);
}

static void cases(void)
{
	for (unsigned jobs = 2; jobs <= JOBS_MAX; jobs *= 2) {
		bytes("seqwrite", jobs, 1, 0);
		bytes("randwrite", jobs, 1, 1);
		bytes("seqread", jobs, 0, 0);
		bytes("randread", jobs, 0, 1);
	}
	timed("untar", unpack);
	timed("find", find);
	timed("status", status);
	timed("remove", remove_all);
}

/* --- process 1 ----------------------------------------------------------------------------------- */

static void load_modules(void)
{
	struct dirent **list;
	char path[300];
	int n = scandir("/modules", &list, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/modules/%s", list[i]->d_name);
		if (list[i]->d_name[0] != '.' &&
		    syscall(SYS_finit_module, open(path, O_RDONLY), "", 0) && errno != EEXIST)
			printf("%s: %s\n", path, strerror(errno));
	}
}

static unsigned wanted(const char *key, unsigned otherwise)
{
	char line[4096] = "", *at;
	int fd = open("/proc/cmdline", O_RDONLY);

	(void)!read(fd, line, sizeof(line) - 1);
	close(fd);
	at = strstr(line, key);
	return at ? (unsigned)atoi(at + strlen(key)) : otherwise;
}

int main(void)
{
	if (getpid() != 1)
		return 1;
	mkdir("/proc", 0755);
	mkdir("/dev", 0755);
	mkdir(SHARE, 0755);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	for (int i = 0, fd = open("/dev/console", O_RDWR); i < 3; i++)
		dup2(fd, i);
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_modules();
	ms = wanted("ms=", ms);
	files = wanted("files=", files);
	mib = wanted("mib=", mib);
	need(!mount("share", SHARE, "virtiofs", 0, NULL), "mount of the share");
	cases();
	umount(SHARE);
	printf("end of cases\n");
	reboot(RB_POWER_OFF);
	return 1;
}
