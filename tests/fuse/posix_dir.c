/* Cases: directories and renames. */
#include "tests/fuse/posix.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define MANY 1200

static unsigned char times_seen[2 * MANY];

static void make_many(int from, int to)
{
	char name[32];

	for (int i = from; i < to; i++) {
		snprintf(name, sizeof(name), "many/file-%d", i);
		CHECK(mknod(name, S_IFREG | 0644, 0) == 0);
	}
}

static int number_of(const char *name)
{
	int n = -1;

	sscanf(name, "file-%d", &n);
	return n;
}

/* Every entry of [from, to) once, and both dots. */
static void all_seen(int from, int to)
{
	for (int i = from; i < to; i++)
		if (times_seen[i] != 1) {
			posix_note_text("file-%d seen %d times\n", i, times_seen[i]);
			CHECK(times_seen[i] == 1);
			return;
		}
}

static void list_whole(DIR *d)
{
	struct dirent *e;
	int dots = 0;

	memset(times_seen, 0, sizeof(times_seen));
	while ((e = readdir(d))) {
		int n = number_of(e->d_name);

		if (n < 0)
			dots++;
		else
			times_seen[n]++;
	}
	CHECK(dots == 2);
}

static void dir_many(void)
{
	DIR *d;

	CHECK(mkdir("many", 0755) == 0);
	make_many(0, MANY);
	d = opendir("many");
	list_whole(d);
	all_seen(0, MANY);
	make_many(MANY, MANY + 10);
	rewinddir(d);
	list_whole(d);
	all_seen(0, MANY + 10);
	closedir(d);
	posix_note_stat("many");
}

static void dir_seek(void)
{
	static struct {
		long at;
		int n;
	} seen[MANY + 2];
	struct dirent *e;
	int n = 0;
	DIR *d;

	CHECK(mkdir("many", 0755) == 0);
	make_many(0, MANY);
	d = opendir("many");
	for (;;) {
		long at = telldir(d);

		e = readdir(d);
		if (!e)
			break;
		CHECK(n < MANY + 2);
		seen[n].at = at;
		seen[n++].n = number_of(e->d_name);
	}
	CHECK(n == MANY + 2);
	/* Cookies survive the end, and going back and forth. */
	for (int i = 0; i < n; i += 97) {
		int k = i % 2 ? i : n - 1 - i;

		seekdir(d, seen[k].at);
		e = readdir(d);
		CHECK(e && number_of(e->d_name) == seen[k].n);
	}
	seekdir(d, seen[n / 2].at);
	for (int i = n / 2; i < n; i++) {
		e = readdir(d);
		CHECK(e && number_of(e->d_name) == seen[i].n);
	}
	CHECK(readdir(d) == NULL);
	closedir(d);
}

static void dir_small_buffer(void)
{
	char buf[300];
	int fd, dots = 0;
	long len;

	CHECK(mkdir("many", 0755) == 0);
	make_many(0, 500);
	memset(times_seen, 0, sizeof(times_seen));
	fd = open("many", O_RDONLY | O_DIRECTORY);
	while ((len = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < len;) {
			struct dirent64 *e = (void *)(buf + at);
			int n = number_of(e->d_name);

			if (n < 0)
				dots++;
			else
				times_seen[n]++;
			at += e->d_reclen;
		}
	}
	CHECK(len == 0 && dots == 2);
	all_seen(0, 500);
	DO(syscall(SYS_getdents64, fd, buf, 10));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	DO(syscall(SYS_getdents64, fd, buf, 10));
}

static void dir_unlink_while_reading(void)
{
	struct dirent *e;
	char name[300];
	DIR *d;

	CHECK(mkdir("many", 0755) == 0);
	make_many(0, MANY);
	memset(times_seen, 0, sizeof(times_seen));
	d = opendir("many");
	while ((e = readdir(d))) {
		int n = number_of(e->d_name);

		if (n < 0)
			continue;
		times_seen[n]++;
		snprintf(name, sizeof(name), "many/%s", e->d_name);
		CHECK(unlink(name) == 0);
	}
	closedir(d);
	all_seen(0, MANY);
	DO(rmdir("many"));
}

static void dir_create_while_reading(void)
{
	struct dirent *e;
	int made = MANY;
	DIR *d;

	CHECK(mkdir("many", 0755) == 0);
	make_many(0, MANY);
	memset(times_seen, 0, sizeof(times_seen));
	d = opendir("many");
	while ((e = readdir(d))) {
		int n = number_of(e->d_name);

		if (n >= 0)
			times_seen[n]++;
		if (made < 2 * MANY)
			make_many(made, made + 1);
		made++;
	}
	closedir(d);
	all_seen(0, MANY); /* of the new ones nothing is said */
}

static void dir_types(void)
{
	struct dirent *e;
	struct stat st;
	DIR *d;

	make_file("file", "", 0, 0644);
	CHECK(mkdir("dir", 0755) == 0 && symlink("x", "link") == 0 && mkfifo("fifo", 0644) == 0);
	d = opendir(".");
	while ((e = readdir(d))) {
		CHECK(lstat(e->d_name, &st) == 0);
		CHECK(e->d_type == DT_UNKNOWN || e->d_type == IFTODT(st.st_mode));
		if (strcmp(e->d_name, ".."))
			CHECK(e->d_ino == st.st_ino);
	}
	closedir(d);
}

static void dir_gone(void)
{
	struct stat st;
	DIR *d;
	int fd;

	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
	d = opendir("b");
	fd = dirfd(d);
	DO(rename("a", "b"));
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	DO(fchmod(fd, 0700));
	DO(fsync(fd));
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0700);
	DO_FD(openat(fd, "new", O_RDWR | O_CREAT, 0644));
	DO(mkdirat(fd, "new", 0755));
	DO(readdir(d) == NULL);
	posix_note_stat("b");
	closedir(d);
	fd = open("b", O_RDONLY | O_DIRECTORY);
	DO(rmdir("b"));
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	DO_FD(openat(fd, ".", O_RDONLY));
	DO(fchdir(fd));
	DO(access(".", F_OK));
	DO(mkdir("x", 0755));
}

static void dir_links(void)
{
	struct stat st;

	CHECK(mkdir("d", 0755) == 0);
	for (int i = 0; i < 5; i++) {
		char name[16];

		snprintf(name, sizeof(name), "d/%d", i);
		CHECK(mkdir(name, 0755) == 0);
	}
	CHECK(stat("d", &st) == 0);
	posix_note_text("links %u\n", (unsigned)st.st_nlink);
	CHECK(rmdir("d/0") == 0);
	CHECK(stat("d", &st) == 0);
	posix_note_text("links %u\n", (unsigned)st.st_nlink);
}

static void dir_move(void)
{
	static char cwd[4096];

	CHECK(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0 && mkdir("z", 0755) == 0);
	make_file("a/b/f", "x", 1, 0644);
	CHECK(chdir("a/b") == 0);
	DO(rename("../../a", "../../z/moved"));
	posix_note_stat("f");
	CHECK(getcwd(cwd, sizeof(cwd)) != NULL && strstr(cwd, "/z/moved/b"));
	DO(access("../../moved", F_OK));
	DO(rename("../b", "../../b"));
	posix_note_stat("f");
	CHECK(getcwd(cwd, sizeof(cwd)) != NULL && strstr(cwd, "/z/b"));
}

static void rename_flags(void)
{
	make_file("a", "1", 1, 0644);
	make_file("b", "22", 2, 0644);
	CHECK(mkdir("d", 0755) == 0);
	make_file("d/f", "x", 1, 0644);
	DO(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE));
	DO(renameat2(AT_FDCWD, "a", AT_FDCWD, "new", RENAME_NOREPLACE));
	posix_note_stat("new");
	DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "b", RENAME_EXCHANGE));
	posix_note_stat("new");
	posix_note_stat("b");
	DO(renameat2(AT_FDCWD, "b", AT_FDCWD, "d", RENAME_EXCHANGE));
	posix_note_stat("b");
	posix_note_stat("b/f");
	posix_note_stat("d");
	DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "absent", RENAME_EXCHANGE));
	DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "x", RENAME_EXCHANGE | RENAME_NOREPLACE));
	DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "x", 1u << 10));
	DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "moved", RENAME_WHITEOUT));
	posix_note_stat("new");
	posix_note_stat("moved");
}

const struct posix_case posix_dir_cases[] = {
	{ "dir-many", dir_many },
	{ "dir-seek", dir_seek },
	{ "dir-small-buffer", dir_small_buffer },
	{ "dir-unlink-while-reading", dir_unlink_while_reading },
	{ "dir-create-while-reading", dir_create_while_reading },
	{ "dir-types", dir_types },
	{ "dir-gone", dir_gone },
	{ "dir-links", dir_links },
	{ "dir-move", dir_move },
	{ "rename-flags", rename_flags },
	{ 0 },
};
