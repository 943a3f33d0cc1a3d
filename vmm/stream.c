/*
 * Inherited descriptors without waiting: see stream.h.
 *
 * The ways, best first:
 *	1. Pipes and terminals: open /proc/self/fd/N.  That gives a second description of the same
 *	   pipe or terminal, whose O_NONBLOCK is nobody else's.  It fails when /proc is not mounted,
 *	   and when the pipe was made by another user (its inode then refuses us although the
 *	   descriptor works).
 *	2. Sockets: MSG_DONTWAIT is per call.
 *	3. RWF_NOWAIT is per call too; pipes know it since Linux 6.4, terminals do not.
 *	4. poll(), then no more than surely fits: a writable pipe has PIPE_BUF bytes free, a
 *	   writable terminal fewer.  Another process that shares the description can still get in
 *	   between, and then the call waits as long as for any program; this is the last resort.
 *
 * Regular files are never opened anew: the position is shared with the caller's other programs, and
 * they rely on that (`(heddle run ...; echo) >file`).
 */
#include "vmm/stream.h"

#include "vmm/compat.h"

#include "vmm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/*
 * A writable terminal has room for a byte; in practice for far more, unless its reader has stopped.
 */
#define TTY_STEP 256

static bool can_poll(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	bool can = epoll_fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;

	if (epoll_fd >= 0)
		close(epoll_fd);
	return can;
}

/* A second description, or -1.  Above 2: below, it would pass for a descriptor of the caller's. */
static int reopen(int fd, bool writing)
{
	char path[32];
	int own, low;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, (writing ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (own < 0 || own > 2)
		return own;
	low = own;
	own = fcntl(low, F_DUPFD_CLOEXEC, 3);
	close(low);
	return own;
}

static enum stream_kind stream_kind_of(const struct stream *s, mode_t mode)
{
	if (S_ISSOCK(mode))
		return STREAM_SOCKET;
	if (S_ISREG(mode) || S_ISBLK(mode) || S_ISDIR(mode) || !can_poll(s->fd))
		return STREAM_FILE;
	return STREAM_SHARED;
}

int stream_open(struct stream *s, int fd, bool writing)
{
	struct stat st;
	int own;

	*s = (struct stream){ .fd = -1, .kind = STREAM_CLOSED };
	if (fd < 0 || fstat(fd, &st))
		return 0;
	s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (s->fd < 0)
		return -errno;
	s->tty = isatty(s->fd);
	s->kind = stream_kind_of(s, st.st_mode);
	s->step = s->tty ? TTY_STEP : PIPE_BUF;
	/* Opening a terminal's master side (/dev/ptmx) anew would make a new terminal. */
	if (!S_ISFIFO(st.st_mode) && (!s->tty || st.st_rdev == makedev(5, 2)))
		return 0;
	own = reopen(fd, writing);
	if (own < 0)
		return 0;
	close(s->fd);
	s->fd = own;
	s->kind = STREAM_OWN;
	return 0;
}

void stream_close(struct stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->kind = STREAM_CLOSED;
}

static bool poll_now(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, 0) > 0;
}

/* Cut the iovecs to len bytes in all.  Returns how many are left; at least one. */
static unsigned iov_cut(struct iovec *v, unsigned n, size_t len)
{
	for (unsigned i = 0; i < n; i++) {
		if (v[i].iov_len >= len) {
			v[i].iov_len = len;
			return i + 1;
		}
		len -= v[i].iov_len;
	}
	return n;
}

static ssize_t shared_readv(const struct stream *s, struct iovec *v, unsigned n)
{
	ssize_t ret = preadv2(s->fd, v, n, -1, RWF_NOWAIT);

	if (ret >= 0 || errno != EOPNOTSUPP)
		return ret < 0 ? -errno : ret;
	if (!poll_now(s->fd, POLLIN))
		return -EAGAIN;
	ret = readv(s->fd, v, n);
	return ret < 0 ? -errno : ret;
}

static ssize_t shared_writev(const struct stream *s, struct iovec *v, unsigned n)
{
	ssize_t ret = pwritev2(s->fd, v, n, -1, RWF_NOWAIT);

	if (ret >= 0 || errno != EOPNOTSUPP)
		return ret < 0 ? -errno : ret;
	if (!poll_now(s->fd, POLLOUT))
		return -EAGAIN;
	ret = writev(s->fd, v, iov_cut(v, n, s->step));
	return ret < 0 ? -errno : ret;
}

static ssize_t stream_read_once(const struct stream *s, struct iovec *v, unsigned n)
{
	struct msghdr msg = { .msg_iov = v, .msg_iovlen = n };
	ssize_t ret;

	switch (s->kind) {
	case STREAM_CLOSED:
		return 0;
	case STREAM_SHARED:
		return shared_readv(s, v, n);
	case STREAM_SOCKET:
		ret = recvmsg(s->fd, &msg, MSG_DONTWAIT);
		break;
	default:
		ret = readv(s->fd, v, n);
	}
	return ret < 0 ? -errno : ret;
}

static ssize_t stream_write_once(const struct stream *s, struct iovec *v, unsigned n)
{
	struct msghdr msg = { .msg_iov = v, .msg_iovlen = n };
	ssize_t ret;

	switch (s->kind) {
	case STREAM_CLOSED:
		return -EBADF;
	case STREAM_SHARED:
		return shared_writev(s, v, n);
	case STREAM_SOCKET:
		ret = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	default:
		ret = writev(s->fd, v, n);
	}
	return ret < 0 ? -errno : ret;
}

ssize_t stream_readv(const struct stream *s, struct iovec *v, unsigned n)
{
	ssize_t ret;

	do
		ret = stream_read_once(s, v, n);
	while (ret == -EINTR);
	return ret;
}

ssize_t stream_writev(const struct stream *s, struct iovec *v, unsigned n)
{
	ssize_t ret;

	do
		ret = stream_write_once(s, v, n);
	while (ret == -EINTR);
	return ret;
}

bool stream_in_background(const struct stream *s)
{
	pid_t front = s->tty ? tcgetpgrp(s->fd) : -1; /* -1: not our controlling terminal */

	return front >= 0 && front != getpgrp();
}
