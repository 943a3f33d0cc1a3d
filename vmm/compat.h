/*
 * System calls that glibc wraps and musl (before 1.2.5) does not, with glibc's names and arguments.  Include
 * it where one of them is used; with glibc it is empty.
 */
#ifndef VMM_COMPAT_H
#define VMM_COMPAT_H

#ifndef __GLIBC__

#include <linux/fs.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static inline int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	return (int)syscall(SYS_statx, dir, path, flags, mask, st);
}

static inline int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

/* 64-bit only, like heddle: the offset is one argument, the high half is unused. */
static inline ssize_t preadv2(int fd, const struct iovec *v, int n, off_t off, int flags)
{
	return syscall(SYS_preadv2, fd, v, (long)n, off, 0L, flags);
}

static inline ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t off, int flags)
{
	return syscall(SYS_pwritev2, fd, v, (long)n, off, 0L, flags);
}

#endif
#endif
