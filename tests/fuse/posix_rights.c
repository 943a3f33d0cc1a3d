/* Cases: whose a new file is, and what becomes of set-id bits and file capabilities. */
#include "tests/fuse/posix.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/xattr.h>

/* cap_net_raw+ep, as setcap writes it. */
static const unsigned char file_cap[20] = { 1, 0, 0, 2, 0, 0x20 };

static void note_bits(const char *what)
{
	struct stat st;
	char cap[32];

	CHECK(stat("x", &st) == 0);
	posix_note_text("%s: %o, capability %s\n", what, st.st_mode & 07777,
			getxattr("x", "security.capability", cap, sizeof(cap)) > 0 ? "kept"
										   : "gone");
}

/* A file of mode, with a capability, that anybody may write. */
static void arm(mode_t mode)
{
	CHECK(chmod("x", mode | 0666) == 0);
	if (setxattr("x", "security.capability", file_cap, sizeof(file_cap), 0) < 0)
		posix_note("setxattr", -1);
}

static void do_append(void)
{
	int fd = open("x", O_WRONLY | O_APPEND);

	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
}

static void do_truncate(void)
{
	CHECK(truncate("x", 3) == 0);
}

static void do_ftruncate(void)
{
	int fd = open("x", O_RDWR);

	CHECK(fd >= 0 && ftruncate(fd, 2) == 0);
}

static void do_open_trunc(void)
{
	int fd = open("x", O_WRONLY | O_TRUNC);

	CHECK(fd >= 0 && close(fd) == 0);
}

static void do_fallocate(void)
{
	int fd = open("x", O_RDWR);

	CHECK(fd >= 0 && fallocate(fd, 0, 0, 100) == 0);
}

static void do_copy(void)
{
	int from = open("y", O_RDONLY), to = open("x", O_WRONLY);
	off_t a = 0, b = 0;

	CHECK(from >= 0 && to >= 0 && copy_file_range(from, &a, to, &b, 3, 0) == 3);
}

static void do_read(void)
{
	int fd = open("x", O_RDONLY);
	char c;

	CHECK(fd >= 0 && read(fd, &c, 1) >= 0);
}

static void do_chown(void)
{
	CHECK(chown("x", 0, 0) == 0);
}

static void do_chmod(void)
{
	CHECK(chmod("x", 0755) == 0);
}

static void do_utimes(void)
{
	CHECK(utimensat(AT_FDCWD, "x", NULL, 0) == 0);
}

/* Not here: chown(-1, -1), of which a FUSE server hears no more than an empty SETATTR. */
static void setid_matrix(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
		bool root_only;
	} how[] = {
		{ "append", do_append, false },       { "truncate", do_truncate, false },
		{ "ftruncate", do_ftruncate, false }, { "O_TRUNC", do_open_trunc, false },
		{ "fallocate", do_fallocate, false }, { "copy", do_copy, false },
		{ "read", do_read, false },           { "utimes", do_utimes, false },
		{ "chown", do_chown, true },          { "chmod", do_chmod, true },
	};
	/*
	 * No set-group-id bit without group execution: since 6.2 local file systems drop that, too, from
	 * a writer outside the group, while FUSE's contract (FUSE_HANDLE_KILLPRIV_V2) leaves it.
	 */
	static const mode_t modes[] = { 06777, 04777, 02777, 04766, 02775 };

	make_file("x", "content", 7, 0777);
	make_file("y", "other", 5, 0777);
	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
			arm(modes[m]);
			posix_note_text("%s %o ", how[i].name, modes[m]);
			how[i].fn();
			note_bits("root");
			if (how[i].root_only)
				continue;
			arm(modes[m]);
			as_user(1000, how[i].fn);
			note_bits("user");
		}
	}
}

/* The first write drops the bits, a writer that has the file open for long is no exception. */
static void setid_open_writer_part(void)
{
	int fd = open("x", O_RDWR);

	CHECK(write(fd, "1", 1) == 1);
	note_bits("first");
	CHECK(write(fd, "2", 1) == 1);
	note_bits("second");
}

static void setid_open_writer(void)
{
	make_file("x", "content", 7, 0777);
	arm(06777);
	as_user(1000, setid_open_writer_part);
	arm(06777);
	as_user(1000, setid_open_writer_part);
}

static void setid_owner_part(void)
{
	gid_t groups[] = { 1000, 2000 };

	become(1000, 1000, 2, groups);
	CHECK(chmod("x", 06775) == 0);
	note_bits("owner chmod");
	DO(chown("x", (uid_t)-1, 2000));
	note_bits("owner chgrp");
	posix_note_stat("x");
	DO(chown("x", (uid_t)-1, 3000));
	DO(chown("x", 1001, (gid_t)-1));
	CHECK(chmod("x", 02775) == 0);
	note_bits("again");
	DO(chmod("foreign", 02775)); /* group 3000 is not ours: the bit does not stick */
	posix_note_stat("foreign");
}

static void setid_owner(void)
{
	make_file("x", "content", 7, 0644);
	make_file("foreign", "content", 7, 0644);
	CHECK(chown("x", 1000, 1000) == 0 && chown("foreign", 1000, 3000) == 0);
	setid_owner_part();
}

/* --- new files -------------------------------------------------------------------------------- */

static void make_all_kinds(const char *dir)
{
	static const mode_t masks[] = { 0, 022, 027, 077, 0777 };
	char name[64];

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		umask(masks[i]);
		for (int kind = 0; kind < 6; kind++) {
			int fd;

			snprintf(name, sizeof(name), "%s/%zu-%d-%u", dir, i, kind, geteuid());
			if (kind == 0)
				DO_FD(fd = open(name, O_RDWR | O_CREAT, 0666));
			else if (kind == 1)
				DO_FD(fd = open(name, O_RDWR | O_CREAT, 06777));
			else if (kind == 2)
				DO(mkdir(name, 07777));
			else if (kind == 3)
				DO(mkfifo(name, 0666));
			else if (kind == 4)
				DO(symlink("x", name));
			else
				DO(mknod(name, S_IFREG | 02775, 0));
			posix_note_stat(name);
		}
	}
}

static const char *const kinds[] = { "plain", "setgid", "setgid-group", "sticky" };

static void owner_part(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		make_all_kinds(kinds[i]);
}

static void owner_dirs(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		CHECK(mkdir(kinds[i], 0777) == 0);
	CHECK(chown("setgid", 0, 500) == 0 && chmod("setgid", 02777) == 0);
	CHECK(chown("setgid-group", 0, 600) == 0 && chmod("setgid-group", 02777) == 0);
	CHECK(chmod("plain", 0777) == 0 && chmod("sticky", 01777) == 0);
}

static void owner_root(void)
{
	owner_dirs();
	owner_part();
}

static void owner_user(void)
{
	owner_dirs();
	as_user(1000, owner_part);
}

static void owner_groups(void)
{
	gid_t groups[] = { 600, 700 };

	owner_dirs();
	become(1000, 100, 2, groups);
	owner_part();
}

/* Permission by a further group, which a server does not hear of. */
static void owner_by_group(void)
{
	gid_t groups[] = { 600, 700 };

	CHECK(mkdir("d", 0770) == 0 && chown("d", 0, 700) == 0);
	become(1000, 100, 2, groups);
	DO(mkdir("d/x", 0755));
	DO_FD(open("d/f", O_RDWR | O_CREAT, 0644));
	posix_note_stat("d/x");
	posix_note_stat("d/f");
	DO(rmdir("d/x"));
	DO(unlink("d/f"));
}

static void owner_changes(void)
{
	make_file("f", "x", 1, 0644);
	CHECK(symlink("f", "l") == 0 && mkdir("d", 0755) == 0);
	DO(chown("f", 1000, 2000));
	DO(lchown("l", 5, 6));
	posix_note_stat("f");
	posix_note_stat("l");
	DO(chown("l", 7, (gid_t)-1));
	posix_note_stat("f");
	DO(chown("d", 65534, 65534));
	DO(chown("f", 0xfffffffe, 0xfffffffe));
	posix_note_stat("d");
	posix_note_stat("f");
	DO(chmod("d", 07777));
	DO(chmod("l", 0600));
	DO(fchmodat(AT_FDCWD, "f", 0, 0));
	posix_note_stat("d");
	posix_note_stat("f");
}

static void write_without_permission_part(void)
{
	/* Open for writing is a right of the descriptor: the mode does not matter afterwards. */
	int fd = DO_FD(open("own/f", O_RDWR | O_CREAT, 0400));

	DO(write(fd, "hello", 5));
	DO(ftruncate(fd, 2));
	DO(fchmod(fd, 0));
	DO(pwrite(fd, "X", 1, 1));
	DO_FD(open("own/f", O_RDONLY));
	posix_note_fstat(fd);
}

static void write_without_permission(void)
{
	CHECK(mkdir("own", 0777) == 0 && chmod("own", 0777) == 0);
	as_user(1000, write_without_permission_part);
}

const struct posix_case posix_rights_cases[] = {
	{ "setid-matrix", setid_matrix },
	{ "setid-open-writer", setid_open_writer },
	{ "setid-owner", setid_owner },
	{ "owner-root", owner_root },
	{ "owner-user", owner_user },
	{ "owner-groups", owner_groups },
	{ "owner-by-group", owner_by_group },
	{ "owner-changes", owner_changes },
	{ "write-without-permission", write_without_permission },
	{ 0 },
};
