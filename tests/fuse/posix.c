/*
 * usage: posix [-o ORACLE] [-k WORD] [-x WORD] DIR
 *   -o  a directory on a local file system to compare with      -k  only cases whose name has WORD
 * Prints "ok N name", "not ok N name" or "ok N name # skip why"; exit code 1 when a case failed.
 */
#include "tests/fuse/posix.h"

#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define NOTES_LEN (256 * 1024)
#define CASE_TIME 120 /* seconds */

/* What a case's process tells; shared memory. */
struct record {
	size_t len;
	bool failed, skipped;
	char why[200];
	char notes[NOTES_LEN];
};

static struct record *here; /* of the case running in this process */

/* --- for cases -------------------------------------------------------------------------------- */

void posix_note_text(const char *fmt, ...)
{
	size_t room = NOTES_LEN - here->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(here->notes + here->len, room, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < room)
		here->len += (size_t)n;
}

long posix_note(const char *text, long value)
{
	int err = errno;

	if (value == -1)
		posix_note_text("%s: %s\n", text, strerrorname_np(err));
	else
		posix_note_text("%s: %ld\n", text, value);
	errno = err;
	return value;
}

int posix_fd(const char *text, int fd)
{
	posix_note(text, fd < 0 ? -1 : 0);
	return fd;
}

void posix_check(bool ok, const char *file, int line, const char *text)
{
	if (ok)
		return;
	here->failed = true;
	printf("# %s:%d: %s (errno %s)\n", file, line, text, strerrorname_np(errno));
	fflush(stdout);
}

void posix_skip(const char *why)
{
	here->skipped = true;
	snprintf(here->why, sizeof(here->why), "%s", why);
	_exit(0);
}

static void note_struct(const char *name, const struct stat *st)
{
	posix_note_text("%s: mode %o nlink %u uid %u gid %u size %lld\n", name, st->st_mode,
			S_ISDIR(st->st_mode) ? 0 : (unsigned)st->st_nlink, st->st_uid, st->st_gid,
			S_ISDIR(st->st_mode) ? 0LL : (long long)st->st_size);
}

void posix_note_stat(const char *name)
{
	struct stat st;

	if (lstat(name, &st) < 0)
		posix_note(name, -1);
	else
		note_struct(name, &st);
}

void posix_note_fstat(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		posix_note("fstat", -1);
	else
		note_struct("fstat", &st);
}

void make_file(const char *name, const void *data, size_t len, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0);
	CHECK(write(fd, data, len) == (ssize_t)len);
	CHECK(fchmod(fd, mode) == 0);
	CHECK(close(fd) == 0);
}

bool file_is(const char *name, const void *data, size_t len)
{
	char *buf = malloc(len + 1);
	int fd = open(name, O_RDONLY);
	ssize_t n = 0, step;
	bool same;

	if (fd < 0 || !buf)
		return false;
	while (n <= (ssize_t)len && (step = read(fd, buf + n, len + 1 - (size_t)n)) > 0)
		n += step;
	same = n == (ssize_t)len && !memcmp(buf, data, len);
	close(fd);
	free(buf);
	return same;
}

void fill(void *buf, size_t len, uint32_t seed)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < len; i++) {
		uint32_t x = ((uint32_t)i + seed) * 2654435761u;

		p[i] = (unsigned char)(x >> 13 ^ x >> 24);
	}
}

void become(uid_t uid, gid_t gid, size_t n, const gid_t *groups)
{
	CHECK(setgroups(n, groups) == 0);
	CHECK(setresgid(gid, gid, gid) == 0);
	CHECK(setresuid(uid, uid, uid) == 0);
}

void as_user(uid_t uid, void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		become(uid, uid, 0, NULL);
		fn();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- the runner ------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	return remove(path);
}

static void run_child(const char *dir, const struct posix_case *c)
{
	alarm(CASE_TIME);
	umask(022);
	if (chdir(dir) < 0)
		_exit(1);
	c->run();
	_exit(0);
}

/* Run c in a new directory below base; true unless its process died. */
static bool run_in(const char *base, const struct posix_case *c, struct record *r)
{
	char dir[512];
	int status;
	pid_t pid;

	memset(r, 0, offsetof(struct record, notes));
	snprintf(dir, sizeof(dir), "%s/posix-%s", base, c->name);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (mkdir(dir, 0755) < 0 || chmod(dir, 0755) < 0) {
		printf("# mkdir %s: %s\n", dir, strerror(errno));
		return false;
	}
	here = r;
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		run_child(dir, c);
	waitpid(pid, &status, 0);
	if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
		printf("# %s cannot be removed: %s\n", dir, strerror(errno));
		return false;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	printf("# the case's process ended with status %#x\n", status);
	return false;
}

/* The first line that differs. */
static void show_difference(struct record *a, struct record *b)
{
	char *p = a->notes, *q = b->notes;

	a->notes[a->len] = b->notes[b->len] = '\0';
	for (;;) {
		size_t n = strcspn(p, "\n"), m = strcspn(q, "\n");

		if (n != m || strncmp(p, q, n) != 0 || !p[n] || !q[m]) {
			printf("#   here:   %.*s\n#   oracle: %.*s\n", (int)n, p, (int)m, q);
			return;
		}
		p += n + 1;
		q += m + 1;
	}
}

static struct record *record_new(void)
{
	void *p = mmap(NULL, sizeof(struct record), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		exit(2);
	return p;
}

/* 1 passed, 0 failed, -1 skipped. */
static int run_case(const struct posix_case *c, const char *dir, const char *oracle)
{
	static struct record *mine, *theirs;
	bool ok;

	if (!mine) {
		mine = record_new();
		theirs = record_new();
	}
	ok = run_in(dir, c, mine) && !mine->failed;
	if (ok && mine->skipped)
		return -1;
	if (!ok || !oracle)
		return ok;
	if (!run_in(oracle, c, theirs) || theirs->failed) {
		printf("# (the oracle fails, too)\n");
		return 0;
	}
	if (theirs->skipped)
		return -1;
	if (mine->len == theirs->len && !memcmp(mine->notes, theirs->notes, mine->len))
		return 1;
	show_difference(mine, theirs);
	return 0;
}

/* Has the name one of the words, "a,b,c" or NULL, in it? */
static bool is_one_of(const char *name, const char *words)
{
	char word[64];
	size_t len;

	for (; words && *words; words += len + (words[len] == ',')) {
		len = strcspn(words, ",");
		snprintf(word, sizeof(word), "%.*s", (int)len, words);
		if (strstr(name, word))
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	const struct posix_case *const lists[] = { posix_errno_cases, posix_file_cases,
						   posix_dir_cases,   posix_rights_cases,
						   posix_attr_cases,  posix_lock_cases,
						   posix_setid_cases };
	const char *oracle = NULL, *word = "", *not = NULL;
	unsigned n = 0, failed = 0;
	int opt;

	while ((opt = getopt(argc, argv, "o:k:x:")) != -1) {
		if (opt == 'o')
			oracle = optarg;
		else if (opt == 'k')
			word = optarg;
		else if (opt == 'x')
			not = optarg;
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: posix [-o ORACLE] [-k WORD] [-x WORD,...] DIR\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (const struct posix_case *c = lists[i]; c->name; c++) {
			int rc;

			if (!strstr(c->name, word) || is_one_of(c->name, not))
				continue;
			rc = run_case(c, argv[optind], oracle);
			failed += rc == 0;
			printf("%s %u %s%s\n", rc ? "ok" : "not ok", ++n, c->name,
			       rc < 0 ? " # skip" : "");
		}
	}
	printf("1..%u\n", n);
	return failed != 0;
}
