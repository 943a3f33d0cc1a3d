/*
 * Descriptors.  Nodes and handles hold one each, so the guest decides how many there are.
 *
 * Numbers are given from the bottom.  So one at or above a limit tells that the process has little
 * left, whichever share took the rest, and shares need not know of each other: each counts those
 * that it holds above the limit, its excess.  While there is none, nothing is asked of the kernel.
 * With some, a lane may begin when a number below the limit is free.  Several lanes may see the
 * same free number, and one operation takes up to two, so excess can grow all the same: from
 * EXCESS_MAX on nobody begins.  To refuse at the first would be simpler, but the first may stay
 * with the guest for good (a log file, somebody's working directory), and its kernel drops what was
 * used last at the very end.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * A share may hold EXCESS_MAX above the limit and two for each lane that had begun by then; 65
 * lanes are the most of a share, and PCI has room for 31 shares: 6014.  The other 2178 are for the
 * rest of heddle.  Where descriptors are few, a quarter of them must do.
 */
#define EXCESS_MAX     64
#define FDS_LEFT_ALONE 8192

void fds_init(struct fuse_session *s)
{
	struct rlimit rl;
	int left;

	s->fd_limit = s->fd_excess_max = INT32_MAX;
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur > INT32_MAX)
		return;
	left = (int)MIN(rl.rlim_cur / 4, FDS_LEFT_ALONE);
	s->fd_limit = (int)rl.rlim_cur - left;
	s->fd_excess_max = MIN(left / 4, EXCESS_MAX);
}

struct fd_name fd_name(int fd)
{
	struct fd_name name;
	char *p = name.s + sizeof(name.s);

	*--p = '\0';
	do
		*--p = (char)('0' + fd % 10);
	while ((fd /= 10) > 0);
	memmove(name.s, p, (size_t)(name.s + sizeof(name.s) - p));
	return name;
}

int fd_room(struct fuse_session *s)
{
	int fd, excess = atomic_load_explicit(&s->fd_excess, memory_order_relaxed);

	if (excess == 0)
		return 0;
	if (excess >= s->fd_excess_max)
		return -ENFILE;
	fd = fcntl(s->proc_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -ENFILE;
	close(fd);
	return fd < s->fd_limit ? 0 : -ENFILE;
}

int fd_taken(struct fuse_session *s, int fd)
{
	if (fd < 0)
		return -errno;
	if (fd >= s->fd_limit)
		atomic_fetch_add_explicit(&s->fd_excess, 1, memory_order_relaxed);
	return fd;
}

void fd_close(struct fuse_session *s, int fd)
{
	close(fd);
	if (fd >= s->fd_limit)
		atomic_fetch_sub_explicit(&s->fd_excess, 1, memory_order_relaxed);
}
