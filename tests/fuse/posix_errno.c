/* Cases: the error of every wrong call. */
#include "tests/fuse/posix.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

static char name255[256], name256[257], path4096[4097];

static void make_names(void)
{
	memset(name255, 'n', 255);
	memset(name256, 'n', 256);
	memset(path4096, 'x', 4096);
	for (int i = 1; i < 4096; i += 2)
		path4096[i] = '/';
}

static void make_tree(void)
{
	make_file("f", "content", 7, 0644);
	CHECK(mkdir("d", 0755) == 0);
	CHECK(mkdir("d/sub", 0755) == 0);
	make_file("d/f", "x", 1, 0644);
	CHECK(mkdir("empty", 0755) == 0);
	CHECK(symlink("f", "link") == 0);
	CHECK(symlink("loop", "loop") == 0);
	CHECK(symlink("absent", "dangling") == 0);
	CHECK(symlink("d", "dlink") == 0);
	CHECK(mkfifo("fifo", 0644) == 0);
}

static void errno_open(void)
{
	make_tree();
	make_names();
	DO_FD(open("absent", O_RDONLY));
	DO_FD(open("absent/f", O_RDONLY));
	DO_FD(open("f/f", O_RDONLY));
	DO_FD(open("f/", O_RDONLY));
	DO_FD(open("d", O_RDWR));
	DO_FD(open("d", O_WRONLY));
	DO_FD(open("d", O_RDONLY | O_TRUNC));
	DO_FD(open("d", O_RDONLY | O_CREAT, 0644));
	DO_FD(open("new/", O_RDWR | O_CREAT, 0644));
	DO_FD(open("f", O_RDONLY | O_DIRECTORY));
	DO_FD(open("f", O_RDWR | O_CREAT | O_EXCL, 0644));
	DO_FD(open("d", O_RDONLY | O_CREAT | O_EXCL, 0644));
	DO_FD(open("link", O_RDONLY | O_NOFOLLOW));
	DO_FD(open("loop", O_RDONLY));
	DO_FD(open("loop", O_RDWR | O_CREAT, 0644));
	DO_FD(open("dangling", O_RDONLY));
	DO_FD(open("dangling", O_RDWR | O_CREAT | O_EXCL, 0644));
	DO_FD(open("dlink", O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
	DO_FD(open(name256, O_RDWR | O_CREAT, 0644));
	DO_FD(open(path4096, O_RDONLY));
	DO_FD(open("", O_RDONLY));
	DO_FD(open("fifo", O_WRONLY | O_NONBLOCK));
	DO_FD(open("dangling", O_RDWR | O_CREAT, 0644));
	posix_note_stat("absent");
	DO_FD(open(name255, O_RDWR | O_CREAT | O_EXCL, 0644));
	DO(unlink(name255));
}

static void errno_remove(void)
{
	make_tree();
	make_names();
	DO(unlink("absent"));
	DO(unlink("d"));
	DO(unlink("f/"));
	DO(unlink("f/x"));
	DO(unlink(name256));
	DO(rmdir("absent"));
	DO(rmdir("f"));
	DO(rmdir("d"));
	DO(rmdir("d/."));
	DO(rmdir("d/.."));
	DO(rmdir("link"));
	DO(rmdir("dlink"));
	DO(rmdir("empty"));
	DO(rmdir("empty"));
	DO(unlink("dlink"));
	DO(unlink("dangling"));
	DO(unlink("fifo"));
	posix_note_stat("d");
}

static void errno_make(void)
{
	make_tree();
	make_names();
	DO(mkdir("d", 0755));
	DO(mkdir("f", 0755));
	DO(mkdir("dangling", 0755));
	DO(mkdir("f/x", 0755));
	DO(mkdir("absent/x", 0755));
	DO(mkdir(name256, 0755));
	DO(mkdir("slash/", 0755));
	DO(symlink("x", "f"));
	DO(symlink("", "emptytarget"));
	DO(symlink("x", name256));
	DO(symlink("x", "f/l"));
	DO(mkfifo("f", 0644));
	DO(mkfifo("fifo", 0644));
	DO(mknod("node", S_IFREG | 0640, 0));
	DO(mknod("node", S_IFREG | 0640, 0));
	DO(mknod("dirnode", S_IFDIR | 0755, 0));
	posix_note_stat("node");
	DO(link("absent", "x"));
	DO(link("f", "d"));
	DO(link("d", "x"));
	DO(link("f", "f/x"));
	DO(link("f", name256));
	DO(link("link", "link2"));
	posix_note_stat("link2");
	DO(link("fifo", "fifo2"));
	posix_note_stat("fifo2");
}

static void errno_rename(void)
{
	make_tree();
	make_names();
	DO(rename("absent", "x"));
	DO(rename("f", "absent/x"));
	DO(rename("f", "f/x"));
	DO(rename("f", "d"));
	DO(rename("d", "f"));
	DO(rename("empty", "d"));
	DO(rename("d", "d/sub/x"));
	DO(rename("d", "d"));
	DO(rename("f", name256));
	DO(rename("d/.", "x"));
	DO(rename("d/sub", "empty"));
	posix_note_stat("d/sub");
	posix_note_stat("empty");
	DO(rename("f", "link"));
	posix_note_stat("link");
	DO(rename("loop", "dangling"));
	posix_note_stat("dangling");
	DO(rename("link", "d/moved"));
	posix_note_stat("d/moved");
}

static void errno_rename_links(void)
{
	make_file("a", "1", 1, 0644);
	DO(link("a", "b"));
	DO(rename("a", "b")); /* one file: nothing happens */
	posix_note_stat("a");
	posix_note_stat("b");
}

static void errno_path(void)
{
	char buf[100];

	make_tree();
	DO(readlink("f", buf, sizeof(buf)));
	DO(readlink("d", buf, sizeof(buf)));
	DO(readlink("absent", buf, sizeof(buf)));
	DO(readlink("link", buf, sizeof(buf)));
	DO(readlink("link", buf, 1) == 1 && buf[0] == 'f');
	DO(truncate("d", 0));
	DO(truncate("f", -1));
	DO(truncate("absent", 0));
	DO(truncate("fifo", 0));
	DO(chmod("absent", 0));
	DO(chmod("loop", 0));
	DO(chdir("f"));
	DO(chdir("absent"));
	DO(access("absent", F_OK));
	DO(access("d", R_OK | W_OK | X_OK));
	DO(access("f", X_OK));
}

static void errno_data(void)
{
	char buf[16] = { 0 };
	int r, w, d;

	make_tree();
	r = DO_FD(open("f", O_RDONLY));
	w = DO_FD(open("f", O_WRONLY));
	d = DO_FD(open("d", O_RDONLY));
	DO(write(r, buf, 1));
	DO(read(w, buf, 1));
	DO(read(d, buf, 1));
	DO(pread(r, buf, 1, -1));
	DO(pwrite(w, buf, 1, -1));
	DO(ftruncate(r, 1));
	DO(ftruncate(w, -1));
	DO(ftruncate(d, 1));
	DO(lseek(r, -1, SEEK_SET));
	DO(lseek(r, 3, SEEK_END));
	DO(read(r, buf, sizeof(buf)));
	DO(fallocate(r, 0, 0, 10));
	DO(fallocate(w, 0, -1, 10));
	DO(fallocate(w, 0, 0, 0));
	DO(posix_fallocate(w, 0, 100));
	posix_note_stat("f");
}

static void errno_user_part(void)
{
	struct timespec t[2] = { { 1, 0 }, { 1, 0 } };
	struct timespec now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };

	DO_FD(open("secret", O_RDONLY));
	DO_FD(open("readable", O_RDWR));
	DO_FD(open("readable", O_RDONLY));
	DO_FD(open("closed/f", O_RDONLY));
	DO_FD(open("new", O_RDWR | O_CREAT, 0644));
	DO(unlink("readable"));
	DO(mkdir("newdir", 0755));
	DO(symlink("x", "newlink"));
	DO(link("secret", "open/l"));
	DO(rename("readable", "open/x"));
	DO(chmod("readable", 0777));
	DO(chown("readable", 1000, 1000));
	DO(chown("readable", (uid_t)-1, (gid_t)-1));
	DO(truncate("readable", 0));
	DO(utimensat(AT_FDCWD, "readable", t, 0));
	DO(utimensat(AT_FDCWD, "readable", now, 0));
	DO(utimensat(AT_FDCWD, "writable", now, 0));
	DO(utimensat(AT_FDCWD, "writable", t, 0));
	DO(access("secret", R_OK));
	DO(access("readable", R_OK));
	DO(access("readable", W_OK));
	DO_FD(open("writable", O_RDONLY | O_NOATIME));
	DO(unlink("sticky/f"));
	DO(rename("sticky/f", "sticky/g"));
	DO(mkdir("sticky/mine", 0755));
	DO(rmdir("sticky/mine"));
	DO(unlink("open/f"));
	DO(mknod("open/dev", S_IFCHR | 0644, 0x103));
	DO(mkfifo("open/fifo", 0644));
	posix_note_stat("open/fifo");
	DO_FD(open("open/new", O_RDWR | O_CREAT, 0));
	posix_note_stat("open/new");
	DO_FD(open("open/new", O_RDONLY));
}

static void errno_user(void)
{
	make_file("secret", "x", 1, 0600);
	make_file("readable", "x", 1, 0644);
	make_file("writable", "x", 1, 0666);
	CHECK(mkdir("closed", 0700) == 0 && mkdir("open", 0755) == 0 && mkdir("sticky", 0755) == 0);
	CHECK(chmod("open", 0777) == 0 && chmod("sticky", 01777) == 0);
	make_file("closed/f", "x", 1, 0644);
	make_file("open/f", "x", 1, 0644);
	make_file("sticky/f", "x", 1, 0644);
	as_user(1000, errno_user_part);
	posix_note_stat("readable");
	posix_note_stat("sticky/f");
}

static void errno_limits(void)
{
	struct rlimit rl = { .rlim_cur = 8192, .rlim_max = 8192 };
	static char buf[10000];
	int fd;

	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &rl) == 0);
	fd = DO_FD(open("f", O_RDWR | O_CREAT, 0644));
	DO(write(fd, buf, sizeof(buf)));
	DO(write(fd, buf, 1));
	DO(ftruncate(fd, 8193));
	DO(ftruncate(fd, 100));
	posix_note_fstat(fd);
}

static void errno_names(void)
{
	static const char *const odd[] = {
		"a b",  "new\nline", "\xff\xfe", "...", ".x", "-rf", "\xc3\xa9\xe2\x82\xac",
		"a\\b", "*?[",       "\x01"
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		DO_FD(open(odd[i], O_RDWR | O_CREAT | O_EXCL, 0644));
		DO(access(odd[i], F_OK));
		DO(rename(odd[i], "moved"));
		DO(rename("moved", odd[i]));
		DO(unlink(odd[i]));
		DO(mkdir(odd[i], 0755));
		DO(rmdir(odd[i]));
	}
}

static void errno_symlink_lengths(void)
{
	static char target[4096], back[4200];
	static const size_t lens[] = { 1, 59, 60, 255, 256, 1023, 4000, 4095 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		memset(target, 'a' + (int)i, sizeof(target));
		target[lens[i]] = '\0';
		if (lens[i] == 4095)
			target[4095] = '\0';
		/* Local file systems stop at a block less one. */
		if (lens[i] < 4095)
			CHECK(symlink(target, "l") == 0);
		else
			DO(symlink(target, "l"));
		if (readlink("l", back, sizeof(back)) >= 0) {
			CHECK(readlink("l", back, sizeof(back)) == (ssize_t)lens[i]);
			CHECK(!memcmp(back, target, lens[i]));
		}
		unlink("l");
	}
}

static void statvfs_values(void)
{
	struct statvfs v;

	CHECK(statvfs(".", &v) == 0);
	CHECK(v.f_blocks > 0 && v.f_bfree <= v.f_blocks && v.f_files > 0);
	posix_note_text("namemax %lu bsize %lu frsize %lu blocks %lu files %lu\n", v.f_namemax,
			v.f_bsize, v.f_frsize, v.f_blocks, v.f_files);
}

const struct posix_case posix_errno_cases[] = {
	{ "errno-open", errno_open },
	{ "errno-remove", errno_remove },
	{ "errno-make", errno_make },
	{ "errno-rename", errno_rename },
	{ "errno-rename-links", errno_rename_links },
	{ "errno-path", errno_path },
	{ "errno-data", errno_data },
	{ "errno-user", errno_user },
	{ "errno-limits", errno_limits },
	{ "errno-names", errno_names },
	{ "errno-symlink-lengths", errno_symlink_lengths },
	{ "statvfs", statvfs_values },
	{ 0 },
};
