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
 * used last at the very end.  What a node is opened with for the time of a request is not refused
 * at all: to read the attributes of a known file, or to remove it, must always be possible.
 *
 * Nodes can do without (node_reclaim.c).  They begin to give descriptors up from a softer limit on,
 * so that open files have the room above it, and give up all they can before anything is refused.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * A share may hold EXCESS_MAX above the limit and four for each lane that had begun by then: two to
 * keep and two directories, or two nodes of a path and two directories.  65 lanes are the most of a
 * share, and PCI has room for 31 shares: 10044.  The other 2244 are for the rest of heddle.  Where
 * descriptors are few, a quarter of them must do.
 */
#define EXCESS_MAX     64
#define FDS_LEFT_ALONE 12288

/* Each keeps an inode in the host's memory, a kilobyte or so: enough where there is no limit. */
#define SOFT_MAX (3 << 18)

void fds_init(struct fuse_session *s)
{
	struct rlimit rl;
	int left;

	s->fd_limit = s->fd_excess_max = INT32_MAX;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur <= INT32_MAX) {
		left = (int)MIN(rl.rlim_cur / 4, FDS_LEFT_ALONE);
		s->fd_limit = (int)rl.rlim_cur - left;
		s->fd_excess_max = MIN(left / 4, EXCESS_MAX);
	}
	s->fd_soft = MIN(s->fd_limit / 4 * 3, SOFT_MAX);
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

static bool has_room(struct fuse_session *s)
{
	int fd, excess = atomic_load_explicit(&s->fd_excess, memory_order_relaxed);

	if (excess == 0)
		return true;
	if (excess >= s->fd_excess_max)
		return false;
	fd = fcntl(s->proc_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return false;
	close(fd);
	return fd < s->fd_limit;
}

int fd_room(struct fuse_session *s)
{
	if (has_room(s) || (nodes_reclaim(s) && has_room(s)))
		return 0;
	return -ENFILE;
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
