/*
 * An inherited descriptor (standard input, output, error) read or written without ever waiting, and
 * without changing its file description: O_NONBLOCK set there would be set for every process that
 * shares it.
 *
 * One user at a time; opened by main, then used on one I/O thread.
 */
#ifndef VMM_STREAM_H
#define VMM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum stream_kind {
	STREAM_CLOSED, /* the caller has none: reads give end of file, writes EBADF */
	STREAM_FILE,   /* regular file, block device, /dev/null...: never waits for anyone */
	STREAM_OWN,    /* pipe or terminal opened anew: our own description, non-blocking */
	STREAM_SOCKET, /* recvmsg, sendmsg with MSG_DONTWAIT */
	STREAM_SHARED, /* could not be opened anew: RWF_NOWAIT, or small steps after poll() */
};

struct stream {
	int fd; /* ours; to be watched for readiness; -1 when closed */
	enum stream_kind kind;
	bool tty;
	size_t step; /* SHARED: bytes that surely fit after poll() has said so */
};

/* fd stays the caller's; -1 and closed descriptors give STREAM_CLOSED.  0 or -errno. */
int stream_open(struct stream *s, int fd, bool writing);
void stream_close(struct stream *s);

/*
 * Like readv and writev: count (reading: 0 = end of file), or -errno; -EAGAIN when it would have to
 * wait. The iovecs may be changed.  SIGPIPE must be blocked or ignored.
 */
ssize_t stream_readv(const struct stream *s, struct iovec *v, unsigned n);
ssize_t stream_writev(const struct stream *s, struct iovec *v, unsigned n);

/*
 * s is our controlling terminal, and another job is in its foreground: reading is not ours to do
 * now.
 */
bool stream_in_background(const struct stream *s);

#endif
