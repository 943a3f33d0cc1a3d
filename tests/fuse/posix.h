/*
 * A suite of POSIX and Linux file system behaviour: runs in any directory, and compares what happens
 * there with what happens in a second one on a local file system (the oracle).
 *
 * A case is a function that works in an empty directory of its own, its working directory.  DO() runs
 * a call and notes its text and outcome; the notes of both directories must be equal.  CHECK() says
 * what must be true in either.  Each case runs in a process of its own, so it may change credentials,
 * limits and umask.
 */
#ifndef TESTS_FUSE_POSIX_H
#define TESTS_FUSE_POSIX_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct posix_case {
	const char *name;
	void (*run)(void);
};

/* Lists of cases, ended by an empty one. */
extern const struct posix_case posix_errno_cases[], posix_file_cases[], posix_dir_cases[],
	posix_rights_cases[], posix_attr_cases[], posix_lock_cases[], posix_setid_cases[];

/* Note a call's outcome; returns value. */
long posix_note(const char *text, long value);
void posix_note_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void posix_check(bool ok, const char *file, int line, const char *text);
/* Ends the case: counted as skipped. */
void posix_skip(const char *why) __attribute__((noreturn));

/* Value, or -1 and the errno. */
#define DO(call) posix_note(#call, (long)(call))
/* For calls whose good value differs from run to run: descriptors, byte counts of no interest. */
#define DO_FD(call) posix_fd(#call, (int)(call))
#define CHECK(cond) posix_check((cond), __FILE__, __LINE__, #cond)

int posix_fd(const char *text, int fd);

/* Mode, links, size, owner; what else local file systems agree on. */
void posix_note_stat(const char *name);
void posix_note_fstat(int fd);

/* Files. */
void make_file(const char *name, const void *data, size_t len, mode_t mode);
bool file_is(const char *name, const void *data, size_t len);
/* Bytes that depend on their place and on seed. */
void fill(void *buf, size_t len, uint32_t seed);

/* Become this user for good. */
void become(uid_t uid, gid_t gid, size_t n, const gid_t *groups);
/* Run fn in a child as this user, wait. */
void as_user(uid_t uid, void (*fn)(void));

#endif
