/*
 * O_DIRECT of the guest (option direct-io).
 *
 * READ and WRITE say each how the guest's file is open now: fcntl(F_SETFL) changes that without a
 * request, and what its kernel writes back from a mapping is buffered whatever the flags say, and
 * need not be aligned.  Linux has no such flag for one call, and to switch a descriptor would meet the
 * calls of other queues on it.  So a handle gets a second descriptor on the day it is used the other
 * way.
 */
#include "devices/fuse/server.h"

#include <fcntl.h>

static int other_open(struct fuse_session *s, const struct handle *h)
{
	int flags = fcntl(h->fd, F_GETFL);

	if (flags < 0 || fd_room(s) < 0)
		return -1;
	flags = (flags & (O_ACCMODE | O_NOATIME | O_NONBLOCK)) | (h->direct ? 0 : O_DIRECT);
	return fd_taken(s, openat(s->proc_fd, fd_name(h->fd).s, flags | O_CLOEXEC | O_NOCTTY));
}

int handle_fd(struct fuse_session *s, struct handle *h, bool direct)
{
	int fd, none = -1;

	if (h->direct == direct)
		return h->fd;
	fd = atomic_load_explicit(&h->other_fd, memory_order_acquire);
	if (fd >= 0)
		return fd;
	fd = other_open(s, h);
	/* Not to be had, as on a host without O_DIRECT: then the other way must do. */
	if (fd < 0)
		return h->fd;
	if (atomic_compare_exchange_strong(&h->other_fd, &none, fd))
		return fd;
	fd_close(s, fd);
	return none;
}
