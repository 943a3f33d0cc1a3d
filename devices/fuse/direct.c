/*
 * O_DIRECT of the guest (option direct-io).
 *
 * READ and WRITE say each how the guest's file is open now: fcntl(F_SETFL) changes that without a
 * request, and what its kernel writes back from a mapping is buffered whatever the flags say, and
 * need not be aligned.  Linux has no such flag for one call, and to switch a descriptor would meet the
 * calls of other queues on it.  So a handle's own descriptor is a buffered one, which takes anything,
 * and it gets a second one with O_DIRECT on the day it is used so.
 */
#include "devices/fuse/server.h"

#include <fcntl.h>

static int direct_open(struct fuse_session *s, const struct handle *h)
{
	int flags = fcntl(h->fd, F_GETFL);

	if (flags < 0 || fd_room(s) < 0)
		return -1;
	flags = (flags & (O_ACCMODE | O_APPEND | O_NOATIME | O_NONBLOCK)) | O_DIRECT;
	return fd_taken(s, openat(s->proc_fd, fd_name(h->fd).s, flags | O_CLOEXEC | O_NOCTTY));
}

int handle_fd(struct fuse_session *s, struct handle *h, bool direct)
{
	int fd, none = -1;

	if (!direct)
		return h->fd;
	fd = atomic_load_explicit(&h->direct_fd, memory_order_acquire);
	if (fd >= 0)
		return fd;
	fd = direct_open(s, h);
	/* Not to be had, as on a host without O_DIRECT: then the page cache must do. */
	if (fd < 0)
		return h->fd;
	if (atomic_compare_exchange_strong(&h->direct_fd, &none, fd))
		return fd;
	fd_close(s, fd);
	return none;
}
