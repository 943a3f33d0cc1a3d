/* Cases: times, extended attributes, inode numbers, statx. */
#include "tests/fuse/posix.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <sys/sysmacros.h>

static struct stat stat_of(const char *name)
{
	struct stat st = { 0 };

	CHECK(lstat(name, &st) == 0);
	return st;
}

static void times_set(void)
{
	static const struct timespec t[][2] = {
		{ { 1, 1 }, { 2, 2 } },
		{ { 1700000000, 999999999 }, { 1600000000, 123456789 } },
		{ { -1, 0 }, { -100000, 5 } },
		{ { 0x7fffffff, 0 }, { 0x80000000LL, 0 } },
		{ { 0, UTIME_OMIT }, { 77, 0 } },
		{ { 88, 0 }, { 0, UTIME_OMIT } },
	};
	static const char *const names[] = { "f", "d", "l", "p" };
	static const struct timespec bad[2] = { { 1, 1000000000 }, { 1, 0 } };

	make_file("f", "x", 1, 0644);
	CHECK(mkdir("d", 0755) == 0 && symlink("absent", "l") == 0 && mkfifo("p", 0644) == 0);
	for (size_t i = 0; i < 4 * 6; i++) {
		const char *name = names[i % 4];
		struct stat st;

		DO(utimensat(AT_FDCWD, name, t[i / 4], AT_SYMLINK_NOFOLLOW));
		st = stat_of(name);
		posix_note_text("%s %lld.%09ld %lld.%09ld\n", name, (long long)st.st_atim.tv_sec,
				st.st_atim.tv_nsec, (long long)st.st_mtim.tv_sec,
				st.st_mtim.tv_nsec);
	}
	DO(utimensat(AT_FDCWD, "f", bad, 0));
	DO(utimensat(AT_FDCWD, "l", t[0], 0));
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

/* Which of mtime and ctime a call moves on. */
#define MOVES(name, call)                                                                         \
	do {                                                                                      \
		struct stat was = stat_of(name), is;                                              \
		usleep(20000);                                                                    \
		CHECK((call) >= 0);                                                               \
		is = stat_of(name);                                                               \
		posix_note_text("%s: mtime %d ctime %d\n", #call, later(is.st_mtim, was.st_mtim), \
				later(is.st_ctim, was.st_ctim));                                  \
	} while (0)

static void times_move(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	CHECK(mkdir("d", 0755) == 0);
	MOVES("f", write(fd, "x", 1));
	MOVES("f", ftruncate(fd, 10));
	MOVES("f", ftruncate(fd, 10));
	MOVES("f", chmod("f", 0600));
	MOVES("f", chown("f", 1, 1));
	MOVES("f", link("f", "g"));
	MOVES("f", unlink("g"));
	MOVES("f", rename("f", "h") | rename("h", "f"));
	MOVES("f", setxattr("f", "user.a", "x", 1, 0));
	MOVES("f", truncate("f", 0));
	MOVES("d", mkdir("d/x", 0755));
	MOVES("d", rmdir("d/x"));
	MOVES("d", symlink("x", "d/l"));
	MOVES("d", rename("d/l", "d/m"));
	MOVES("d", unlink("d/m"));
	MOVES("d", close(open("d/new", O_RDWR | O_CREAT, 0644)));
	MOVES("d", close(open("d/new", O_RDWR | O_CREAT, 0644)));
}

/* --- extended attributes ---------------------------------------------------------------------- */

static void xattr_basic(void)
{
	static char big[65537], back[65536];
	char buf[256];
	ssize_t n;

	make_file("f", "x", 1, 0644);
	CHECK(mkdir("d", 0755) == 0 && symlink("f", "l") == 0 && mkfifo("p", 0644) == 0);
	DO(setxattr("f", "user.a", "value", 5, 0));
	DO(setxattr("f", "user.a", "v2", 2, XATTR_CREATE));
	DO(setxattr("f", "user.b", "v", 1, XATTR_REPLACE));
	DO(setxattr("f", "user.empty", "", 0, XATTR_CREATE));
	DO(getxattr("f", "user.a", buf, sizeof(buf)));
	DO(getxattr("f", "user.a", buf, 0));
	DO(getxattr("f", "user.a", buf, 2));
	DO(getxattr("f", "user.empty", buf, sizeof(buf)));
	DO(getxattr("f", "user.absent", buf, sizeof(buf)));
	DO(getxattr("f", "nonsense", buf, sizeof(buf)));
	DO(getxattr("absent", "user.a", buf, sizeof(buf)));
	DO(setxattr("f", "user.a", "v", 1, 0xff));
	DO(setxattr("d", "user.a", "dir", 3, 0));
	DO(lsetxattr("l", "user.a", "v", 1, 0));
	DO(lsetxattr("p", "user.a", "v", 1, 0));
	DO(setxattr("f", "trusted.t", "v", 1, 0));
	DO(lsetxattr("l", "trusted.t", "v", 1, 0));
	DO(lgetxattr("l", "trusted.t", buf, sizeof(buf)));
	DO(setxattr("f", "user.big", big, 2000, 0));
	DO(getxattr("f", "user.big", back, sizeof(back)));
	DO(setxattr("f", "user.big", big, sizeof(big), 0));
	n = DO(listxattr("f", buf, sizeof(buf)));
	CHECK(n > 0 && memmem(buf, (size_t)n, "user.a", 7) != NULL);
	DO(listxattr("f", buf, 3));
	DO(removexattr("f", "user.a"));
	DO(removexattr("f", "user.a"));
	DO(listxattr("d", buf, sizeof(buf)));
}

static void xattr_user_part(void)
{
	char buf[16];

	DO(setxattr("f", "user.a", "v", 1, 0));
	DO(getxattr("f", "user.b", buf, sizeof(buf)));
	DO(getxattr("secret", "user.b", buf, sizeof(buf)));
	DO(setxattr("f", "trusted.a", "v", 1, 0));
	DO(getxattr("f", "trusted.b", buf, sizeof(buf)));
	DO(setxattr("f", "security.a", "v", 1, 0));
	DO(listxattr("f", buf, 0) > 0);
}

static void xattr_user(void)
{
	make_file("f", "x", 1, 0644);
	make_file("secret", "x", 1, 0600);
	CHECK(setxattr("f", "user.b", "v", 1, 0) == 0);
	CHECK(setxattr("secret", "user.b", "v", 1, 0) == 0);
	as_user(1000, xattr_user_part);
}

/* --- identity --------------------------------------------------------------------------------- */

static void inode_numbers(void)
{
	struct stat a, b;

	make_file("a", "x", 1, 0644);
	CHECK(link("a", "b") == 0);
	a = stat_of("a");
	b = stat_of("b");
	CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_nlink == 2);
	CHECK(rename("b", "c") == 0 && stat_of("c").st_ino == a.st_ino);
	make_file("d", "x", 1, 0644);
	CHECK(stat_of("d").st_ino != a.st_ino);
	CHECK(unlink("a") == 0 && stat_of("c").st_nlink == 1);
	CHECK(stat_of("c").st_ino == a.st_ino);
}

static void statx_fields(void)
{
	struct statx x = { 0 };
	struct stat st;

	make_file("f", "content", 7, 0640);
	st = stat_of("f");
	CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &x) == 0);
	CHECK(x.stx_ino == st.st_ino && x.stx_size == 7 && x.stx_mode == st.st_mode);
	CHECK(x.stx_mtime.tv_sec == st.st_mtim.tv_sec);
	CHECK(x.stx_blocks == (uint64_t)st.st_blocks);
	DO(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_ALL, &x));
	DO(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &x));
}

static void device_nodes(void)
{
	static const uint32_t devs[][2] = { { 1, 3 }, { 8, 255 }, { 259, 65537 } };

	for (int i = 0; i < 3; i++) {
		struct stat st;

		if (mknod("dev", S_IFBLK | 0600, (dev_t)0) < 0)
			posix_skip("no right to make devices");
		CHECK(unlink("dev") == 0);
		CHECK(mknod("dev", S_IFCHR | 0600, gnu_dev_makedev(devs[i][0], devs[i][1])) == 0);
		st = stat_of("dev");
		CHECK(st.st_rdev == gnu_dev_makedev(devs[i][0], devs[i][1]));
		posix_note_text("mode %o\n", st.st_mode);
		CHECK(unlink("dev") == 0);
	}
}

const struct posix_case posix_attr_cases[] = {
	{ "times-set", times_set },         { "times-move", times_move },
	{ "xattr-basic", xattr_basic },     { "xattr-user", xattr_user },
	{ "inode-numbers", inode_numbers }, { "statx-fields", statx_fields },
	{ "device-nodes", device_nodes },   { 0 },
};
