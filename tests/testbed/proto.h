/*
 * How testbed's client (on this machine) and server (in the test host) talk: one TCP connection for
 * each command.
 *
 * The client sends the token, then frames.  A frame is a struct frame and len bytes.
 *   client: one FRAME_RUN (the folder, then the arguments, each with its final NUL),
 *           then any FRAME_STDIN; an empty one is the end of file.
 *   server: FRAME_STDOUT and FRAME_STDERR in any order, then one FRAME_EXIT (a uint32_t, as $? in a
 *           shell would show it) and the end.
 * A client that ends the connection, or its own half of it, asks for the command to be killed.
 * Both ends are x86-64 or arm64, so numbers are sent as they are (little-endian).
 */
#ifndef TESTBED_PROTO_H
#define TESTBED_PROTO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define TOKEN_LEN 32
#define FRAME_MAX 65536			/* of data; FRAME_RUN may be up to RUN_MAX */
#define RUN_MAX (1u << 20)

enum frame_type { FRAME_RUN = 1, FRAME_STDIN, FRAME_STDOUT, FRAME_STDERR, FRAME_EXIT };

struct frame {
	uint32_t type;
	uint32_t len;
};

static inline bool write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static inline bool read_all(int fd, void *data, size_t len)
{
	char *p = data;

	while (len > 0) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

#endif
