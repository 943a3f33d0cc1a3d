/*
 * Runs one command in the test host; see testbed, which calls it, and proto.h.
 *
 * usage: client [-n] [-t SECONDS] PORT TOKEN-FILE FOLDER COMMAND [ARGUMENT...]
 *
 * Standard input, output and error are the command's; -n gives it an empty input.  The exit status
 * is the command's; 124 if it was killed after SECONDS; 128 + signal if this client was told to
 * stop (it then waits for the command to be gone); 255 if the test host cannot be reached or is
 * lost.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto.h"

#define STOP_SECONDS 6			/* longer than the server's TERM and KILL take */

static int sock = -1;
static volatile sig_atomic_t stopped;	/* the signal that stopped us */

static int stop_status(void)
{
	return stopped == SIGALRM ? 124 : 128 + stopped;
}

/* Asks the server to kill the command; on a second signal, or if it takes too long, gives up. */
static void on_signal(int sig)
{
	if (stopped)
		_exit(stop_status());
	stopped = sig;
	shutdown(sock, SHUT_WR);
	alarm(STOP_SECONDS);
}

static int fail(const char *what)
{
	if (stopped)
		return stop_status();
	fprintf(stderr, "testbed: %s: %s\n", what, errno ? strerror(errno) : "connection closed");
	return 255;
}

static bool connect_to(int port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int on = 1;

	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return false;
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return true;
}

static bool send_token(const char *file)
{
	char token[TOKEN_LEN];
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	bool ok = fd >= 0 && read_all(fd, token, sizeof(token));

	if (fd >= 0)
		close(fd);
	return ok && write_all(sock, token, sizeof(token));
}

static bool send_run(char **words)
{
	struct frame f = { .type = FRAME_RUN };

	for (char **w = words; *w; w++)
		f.len += (uint32_t)strlen(*w) + 1;
	if (f.len > RUN_MAX) {
		errno = E2BIG;
		return false;
	}
	if (!write_all(sock, &f, sizeof(f)))
		return false;
	for (char **w = words; *w; w++)
		if (!write_all(sock, *w, strlen(*w) + 1))
			return false;
	return true;
}

/* Input on its way: a frame read from stdin, sent as far as the socket takes it. */
struct input {
	char buf[sizeof(struct frame) + FRAME_MAX];
	size_t off, end;
	bool eof;
};

static void input_read(struct input *in)
{
	struct frame f = { .type = FRAME_STDIN };
	ssize_t n = read(STDIN_FILENO, in->buf + sizeof(f), FRAME_MAX);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	in->eof = n <= 0;
	f.len = n > 0 ? (uint32_t)n : 0;
	memcpy(in->buf, &f, sizeof(f));
	in->off = 0;
	in->end = sizeof(f) + f.len;
}

static void input_send(struct input *in)
{
	ssize_t n = send(sock, in->buf + in->off, in->end - in->off, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n > 0)
		in->off += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR)
		in->off = in->end;	/* the reading side will see what happened */
}

/* One frame from the server.  Returns the exit status once it is there, -1 before, -2 when lost. */
static int output_frame(void)
{
	static char buf[FRAME_MAX];
	struct frame f;
	uint32_t status;
	int fd;

	errno = 0;
	if (!read_all(sock, &f, sizeof(f)) || f.len > sizeof(buf) || !read_all(sock, buf, f.len))
		return -2;
	if (f.type == FRAME_EXIT && f.len == sizeof(status)) {
		memcpy(&status, buf, sizeof(status));
		return (int)(status & 255);
	}
	fd = f.type == FRAME_STDERR ? STDERR_FILENO : STDOUT_FILENO;
	if (!write_all(fd, buf, f.len) && !stopped)
		on_signal(SIGPIPE);	/* nobody reads us any more */
	return -1;
}

static int pump(bool no_input)
{
	static struct input in;
	int status;

	if (no_input) {
		struct frame f = { .type = FRAME_STDIN };

		memcpy(in.buf, &f, sizeof(f));
		in.end = sizeof(f);
		in.eof = true;
	}
	for (;;) {
		bool sending = in.off < in.end;
		struct pollfd p[] = {
			{ .fd = sock, .events = (short)(POLLIN | (sending ? POLLOUT : 0)) },
			{ .fd = STDIN_FILENO, .events = POLLIN },
		};

		if (sending || in.eof || stopped)
			p[1].fd = -1;
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].fd >= 0 && p[1].revents)
			input_read(&in);
		if (p[0].revents & POLLOUT)
			input_send(&in);
		if (!(p[0].revents & ~POLLOUT))
			continue;
		status = output_frame();
		if (status == -2)
			return fail("test host lost");
		if (status >= 0)
			return stopped ? stop_status() : status;
	}
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_signal };
	unsigned seconds = 0;
	bool no_input = false;
	int opt;

	while ((opt = getopt(argc, argv, "+nt:")) != -1) {
		if (opt == 'n')
			no_input = true;
		else if (opt == 't')
			seconds = (unsigned)strtoul(optarg, NULL, 10);
		else
			return 255;
	}
	if (argc - optind < 4) {
		fprintf(stderr, "usage: client [-n] [-t SECONDS] PORT TOKEN-FILE FOLDER COMMAND\n");
		return 255;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!connect_to(atoi(argv[optind])))
		return fail("cannot reach the test host");
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	sigaction(SIGALRM, &act, NULL);
	alarm(seconds);
	if (!send_token(argv[optind + 1]) || !send_run(argv + optind + 2))
		return fail("cannot send the command");
	return pump(no_input);
}
