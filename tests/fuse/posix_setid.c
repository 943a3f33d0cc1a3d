/*
 * Cases: set-id bits and file capabilities against a local file system, for every (mode, caller,
 * operation).  What FUSE's contract (FUSE_HANDLE_KILLPRIV_V2) makes different is named here.
 */
#include "tests/fuse/posix.h"

#include <stdio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* cap_net_raw+ep, as setcap writes it. */
static const unsigned char file_cap[20] = { 1, 0, 0, 2, 0, 0x20 };

static void op_write(void)
{
	int fd = open("x", O_WRONLY);

	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
}

static void op_truncate(void)
{
	CHECK(truncate("x", 3) == 0);
}

static void op_ftruncate(void)
{
	int fd = open("x", O_RDWR);

	CHECK(fd >= 0 && ftruncate(fd, 2) == 0 && close(fd) == 0);
}

static void op_open_trunc(void)
{
	int fd = open("x", O_WRONLY | O_TRUNC);

	CHECK(fd >= 0 && close(fd) == 0);
}

static void op_fallocate(void)
{
	int fd = open("x", O_RDWR);

	CHECK(fd >= 0 && fallocate(fd, 0, 0, 100) == 0 && close(fd) == 0);
}

static void op_copy(void)
{
	int from = open("y", O_RDONLY), to = open("x", O_WRONLY);
	off_t a = 0, b = 0;

	CHECK(from >= 0 && to >= 0 && copy_file_range(from, &a, to, &b, 3, 0) == 3);
	CHECK(close(from) == 0 && close(to) == 0);
}

static void op_chown_same(void)
{
	DO(chown("x", 1000, 1000));
}

static void op_chown_nothing(void)
{
	DO(chown("x", (uid_t)-1, (gid_t)-1));
}

static void op_chgrp(void)
{
	DO(chown("x", (uid_t)-1, 2000));
}

static void op_chmod(void)
{
	DO(chmod("x", 06755));
}

static void op_set_capability(void)
{
	DO(setxattr("x", "security.capability", file_cap, sizeof(file_cap), 0));
}

static void op_set_user(void)
{
	DO(setxattr("x", "user.a", "v", 1, 0));
}

static void op_utimes(void)
{
	DO(utimensat(AT_FDCWD, "x", NULL, 0));
}

enum caller { ROOT, OWNER, GROUP, OTHER, CALLERS };

static void as_caller(enum caller who)
{
	static const uid_t uids[CALLERS] = { 0, 1000, 1001, 1002 };
	gid_t groups[] = { 1000, 2000 };

	if (who != ROOT)
		become(uids[who], uids[who] == 1000 ? 1000 : 500, who == OTHER ? 0 : 2, groups);
}

static const struct setid_op {
	const char *name;
	void (*fn)(void);
	enum caller first;
	bool writes;
} ops[] = {
	{ "write", op_write, ROOT, true },
	{ "truncate", op_truncate, ROOT, true },
	{ "ftruncate", op_ftruncate, ROOT, true },
	{ "O_TRUNC", op_open_trunc, ROOT, true },
	{ "fallocate", op_fallocate, ROOT, true },
	{ "copy", op_copy, ROOT, true },
	{ "chown same", op_chown_same, ROOT, false },
	/*
	 * Only the owner's: it comes as an empty SETATTR, which the kernel sends before writes, too, and
	 * capabilities the kernel takes off before it asks whether the caller may.
	 */
	{ "chown -1 -1", op_chown_nothing, OWNER, false },
	{ "chgrp", op_chgrp, ROOT, false },
	{ "chmod", op_chmod, ROOT, false },
	{ "set capability", op_set_capability, ROOT, false },
	{ "set user", op_set_user, ROOT, false },
	{ "utimes", op_utimes, ROOT, false },
};

/*
 * Set-group-id without group execution.  Since 6.2 local file systems drop it, too, when a writer is
 * outside the group.  The server knows a caller's first group only, and takes him to be outside others.
 */
static bool is_outside_contract(mode_t mode, enum caller who, const struct setid_op *op)
{
	return (mode & (S_ISGID | S_IXGRP)) == S_ISGID && who == GROUP && op->writes;
}

static void one(mode_t mode, enum caller who, const struct setid_op *op, bool with_cap)
{
	char cap[32];
	struct stat st;
	int status;
	pid_t pid;

	CHECK(chown("x", 1000, 1000) == 0 && chmod("x", mode) == 0);
	removexattr("x", "security.capability");
	if (with_cap)
		CHECK(setxattr("x", "security.capability", file_cap, sizeof(file_cap), 0) == 0);
	posix_note_text("%o caller %d %s%s: ", mode, who, op->name, with_cap ? " +cap" : "");
	pid = fork();
	if (pid == 0) {
		as_caller(who);
		op->fn();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(stat("x", &st) == 0);
	posix_note_text("%o %u:%u, capability %s\n", st.st_mode & 07777, st.st_uid, st.st_gid,
			getxattr("x", "security.capability", cap, sizeof(cap)) > 0 ? "kept"
										   : "gone");
}

static void by_callers(mode_t mode, const struct setid_op *op)
{
	int last = op->fn == op_chown_nothing ? OWNER : OTHER;

	for (int who = (int)op->first; who <= last; who++) {
		if (is_outside_contract(mode, (enum caller)who, op))
			continue;
		one(mode, (enum caller)who, op, false);
		one(mode, (enum caller)who, op, true);
	}
}

static void setid_table(void)
{
	static const mode_t modes[] = { 0666, 04777, 02777, 06777, 04666, 02666 };

	make_file("x", "content", 7, 0777);
	make_file("y", "other", 5, 0777);
	CHECK(chmod(".", 0777) == 0);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++)
			by_callers(modes[m], &ops[i]);
}

const struct posix_case posix_setid_cases[] = {
	{ "setid-table", setid_table },
	{ 0 },
};
