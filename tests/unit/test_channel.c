/*
 * heddle's end of the channel (devices/channel.h, vmm/stream.h), with a guest that may be hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/unit/channel_guest.h"
#include "tests/unit/suite.h"
#include "vmm/log.h"
#include "vmm/stream.h"

struct seen {
	struct channel_status status;
	unsigned n_status, n_ready;
};

static struct seen seen;

static void on_status(void *ctx, const struct channel_status *s)
{
	((struct seen *)ctx)->status = *s;
	((struct seen *)ctx)->n_status++;
}

static void on_ready(void *ctx)
{
	((struct seen *)ctx)->n_ready++;
}

static void start(struct guest *g, int in, int out, int err)
{
	const struct channel_opts o = { in, out, err, on_ready, on_status, &seen };
	struct channel *c;

	signal(SIGPIPE, SIG_IGN);
	memset(&seen, 0, sizeof(seen));
	ck_assert_int_eq(channel_create(&o, &c), 0);
	ck_assert_int_eq(guest_begin(g, c), 0);
}

static void finish(struct guest *g)
{
	guest_end(g);
	channel_destroy(g->c);
}

/* The request was answered, once, with this error and a body of this length; frees it. */
static void check_reply(struct fs_request *r, int error, size_t body_len)
{
	struct fuse_out_header h;

	ck_assert_uint_eq(r->completed, 1);
	ck_assert_int_eq(r->result, (ssize_t)(sizeof(h) + body_len));
	memcpy(&h, r->out, sizeof(h));
	ck_assert_int_eq(h.error, error);
	ck_assert_uint_eq(h.len, sizeof(h) + body_len);
	ck_assert_uint_eq(h.unique, ((struct fuse_in_header *)(void *)r->in)->unique);
	request_free(r);
}

static void check_data(struct fs_request *r, const char *text)
{
	ck_assert_mem_eq(reply_body_of(r), text, strlen(text));
	check_reply(r, 0, strlen(text));
}

/* --- the file system -------------------------------------------------------------------------- */

static struct fs_request *send_init(struct guest *g, uint32_t major, uint32_t minor, uint32_t flags)
{
	const struct fuse_init_in in = { .major = major, .minor = minor, .flags = flags };

	return guest_send(g, FUSE_INIT, 0, &in, sizeof(in), NULL, 0, 256, 7);
}

START_TEST(negotiation)
{
	struct fuse_init_out out;
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	r = send_init(&g, 7, 41, ~0u);
	memcpy(&out, reply_body_of(r), sizeof(out));
	check_reply(r, 0, sizeof(out));
	ck_assert_uint_eq(out.major, 7);
	ck_assert_uint_le(out.minor, 41);
	ck_assert_uint_eq(out.max_write, 1 << 20);
	ck_assert_uint_eq(out.max_pages, 256);
	ck_assert_uint_eq(out.flags, FUSE_BIG_WRITES | FUSE_MAX_PAGES);
	r = send_init(&g, 7, 31, 0);
	memcpy(&out, reply_body_of(r), sizeof(out));
	ck_assert_uint_eq(out.minor, 31);
	ck_assert_uint_eq(out.flags, 0);
	check_reply(r, 0, sizeof(out));
	check_reply(send_init(&g, 7, 30, 0), -EPROTO, 0);
	check_reply(send_init(&g, 6, 99, 0), -EPROTO, 0);
	check_reply(send_init(&g, 8, 0, 0), 0, sizeof(out));
	check_reply(guest_send(&g, FUSE_INIT, 0, "short", 5, NULL, 0, 256, 256), -EINVAL, 0);
	finish(&g);
}
END_TEST

static void check_lookup(struct guest *g, uint64_t parent, const char *name, size_t len,
			 uint64_t node)
{
	struct fs_request *r = guest_send(g, FUSE_LOOKUP, parent, name, len, NULL, 0, 256, 3);
	struct fuse_entry_out out;

	memcpy(&out, reply_body_of(r), sizeof(out));
	if (node) {
		check_reply(r, 0, sizeof(out));
		ck_assert_uint_eq(out.nodeid, node);
		ck_assert_uint_eq(out.attr.mode, S_IFREG | 0600);
	} else {
		check_reply(r, -ENOENT, 0);
	}
}

START_TEST(names)
{
	struct guest g;

	start(&g, -1, -1, -1);
	check_lookup(&g, 1, "stdin", 6, NODE_STDIN);
	check_lookup(&g, 1, "stdout", 7, NODE_STDOUT);
	check_lookup(&g, 1, "stderr", 7, NODE_STDERR);
	check_lookup(&g, 1, "events", 7, NODE_EVENTS);
	check_lookup(&g, 1, "status", 7, NODE_STATUS);
	check_lookup(&g, 1, "stdi", 5, 0);
	check_lookup(&g, 1, "", 0, 0);
	check_lookup(&g, 1, "", 1, 0);
	check_lookup(&g, 1, "0123456789abcdefghij", 21, 0);
	check_lookup(&g, NODE_STDIN, "stdin", 6, 0);
	check_lookup(&g, 0, "stdin", 6, 0);
	finish(&g);
}
END_TEST

START_TEST(attributes_and_handles)
{
	struct fuse_open_out open_out;
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	for (uint64_t node = NODE_ROOT; node <= NODE_STATUS; node++)
		check_reply(guest_send(&g, FUSE_GETATTR, node, NULL, 0, NULL, 0, 256, 256), 0,
			    sizeof(struct fuse_attr_out));
	for (uint64_t node = NODE_STDIN; node <= NODE_STATUS; node++) {
		r = guest_send(&g, FUSE_OPEN, node, NULL, 0, NULL, 0, 256, 256);
		memcpy(&open_out, reply_body_of(r), sizeof(open_out));
		ck_assert_uint_eq(open_out.open_flags,
				  FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE | FOPEN_STREAM);
		check_reply(r, 0, sizeof(open_out));
		check_reply(guest_send(&g, FUSE_RELEASE, node, NULL, 0, NULL, 0, 16, 16), 0, 0);
	}
	check_reply(guest_send(&g, FUSE_GETATTR, 7, NULL, 0, NULL, 0, 256, 256), -ENOENT, 0);
	check_reply(guest_send(&g, FUSE_GETATTR, 0, NULL, 0, NULL, 0, 256, 256), -ENOENT, 0);
	check_reply(guest_send(&g, FUSE_OPEN, 1, NULL, 0, NULL, 0, 256, 256), -ENOENT, 0);
	check_reply(guest_send(&g, FUSE_OPEN, ~0ull, NULL, 0, NULL, 0, 256, 256), -ENOENT, 0);
	check_reply(guest_send(&g, FUSE_STATFS, 1, NULL, 0, NULL, 0, 256, 256), 0,
		    sizeof(struct fuse_statfs_out));
	check_reply(guest_send(&g, FUSE_DESTROY, 0, NULL, 0, NULL, 0, 16, 16), 0, 0);
	finish(&g);
}
END_TEST

START_TEST(what_is_not_served)
{
	static const uint32_t opcodes[] = { 0,		 FUSE_MKNOD, FUSE_UNLINK,
					    FUSE_FSYNC,	 FUSE_FLUSH, FUSE_GETXATTR,
					    FUSE_SYNCFS, 77,	     4096,
					    ~0u };
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++)
		check_reply(guest_send(&g, opcodes[i], 1, NULL, 0, NULL, 0, 256, 256), -ENOSYS, 0);
	r = guest_send(&g, FUSE_FORGET, 2, "12345678", 8, NULL, 0, 0, 16);
	ck_assert_int_eq(r->result, 0);
	request_free(r);
	finish(&g);
}
END_TEST

START_TEST(requests_too_short_to_answer)
{
	struct fuse_in_header h = { .len = sizeof(h), .opcode = FUSE_GETATTR, .nodeid = 1 };
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	for (size_t len = 0; len < sizeof(h); len++) {
		r = request_new(&h, len, 256, 256);
		guest_serve(&g, r, 1);
		ck_assert_int_eq(r->result, -EPROTO);
		request_free(r);
	}
	for (size_t len = 0; len < sizeof(struct fuse_out_header) + sizeof(struct fuse_attr_out);
	     len++) {
		r = request_new(&h, sizeof(h), len, 5);
		guest_serve(&g, r, 1);
		ck_assert_int_eq(r->result, -EPROTO);
		request_free(r);
	}
	finish(&g);
}
END_TEST

/* --- standard input --------------------------------------------------------------------------- */

START_TEST(input_waits_and_comes_in_order)
{
	struct fs_request *a, *b, *c, *d;
	struct guest g;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	start(&g, p[0], -1, -1);
	(void)!write(p[1], "now", 3);
	check_data(guest_read(&g, NODE_STDIN, 100), "now");
	a = guest_read(&g, NODE_STDIN, 4);
	b = guest_read(&g, NODE_STDIN, 100);
	c = guest_read(&g, NODE_STDIN, 100);
	guest_turn(&g, 0);
	ck_assert_uint_eq(a->completed + b->completed + c->completed, 0);
	(void)!write(p[1], "abcdefgh", 8);
	guest_turn(&g, 0);
	check_data(a, "abcd");
	check_data(b, "efgh");
	ck_assert_uint_eq(c->completed, 0);
	d = guest_read(&g, NODE_STDIN, 100);
	close(p[1]);
	guest_turn(&g, 0);
	check_reply(c, 0, 0);
	check_reply(d, 0, 0);
	check_reply(guest_read(&g, NODE_STDIN, 100), 0, 0);
	finish(&g);
	close(p[0]);
}
END_TEST

START_TEST(waiting_requests_are_bounded)
{
	struct fs_request *r[8];
	unsigned refused = 0;
	struct guest g;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	start(&g, p[0], -1, -1);
	for (int i = 0; i < 8; i++) {
		r[i] = guest_read(&g, NODE_STDIN, 10);
		if (r[i]->completed) {
			ck_assert_int_eq(reply_error_of(r[i]), -EAGAIN);
			refused++;
		}
	}
	ck_assert_uint_eq(refused, 4);
	close(p[1]);
	guest_turn(&g, 0);
	for (int i = 0; i < 8; i++) {
		ck_assert_uint_eq(r[i]->completed, 1);
		request_free(r[i]);
	}
	finish(&g);
	close(p[0]);
}
END_TEST

START_TEST(scattered_buffers)
{
	const struct fuse_read_in in = { .size = 40 };
	struct fs_request *r;
	struct guest g;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	start(&g, p[0], -1, -1);
	r = guest_send(&g, FUSE_READ, NODE_STDIN, &in, sizeof(in), NULL, 0, 56, 1);
	(void)!write(p[1], "one byte a piece, and it fits to the end", 40);
	guest_turn(&g, 0);
	check_data(r, "one byte a piece, and it fits to the end");
	(void)!write(p[1], "abc", 3);
	/* A size beyond the buffers is cut to them. */
	r = guest_send(&g, FUSE_READ, NODE_STDIN, &in, sizeof(in), NULL, 0, 18, 1);
	check_data(r, "ab");
	finish(&g);
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(no_input_at_all)
{
	int null = open("/dev/null", O_RDONLY), closed = dup(null), dir = open("/", O_RDONLY);
	struct guest g;

	close(closed);
	start(&g, -1, -1, -1);
	check_reply(guest_read(&g, NODE_STDIN, 100), 0, 0);
	finish(&g);
	start(&g, closed, -1, -1);
	check_reply(guest_read(&g, NODE_STDIN, 100), 0, 0);
	finish(&g);
	start(&g, null, -1, -1);
	check_reply(guest_read(&g, NODE_STDIN, 100), 0, 0);
	check_reply(guest_read(&g, NODE_STDIN, 0), 0, 0);
	finish(&g);
	start(&g, dir, -1, -1);
	check_reply(guest_read(&g, NODE_STDIN, 100), -EISDIR, 0);
	finish(&g);
}
END_TEST

START_TEST(flags_of_inherited_descriptors_stay)
{
	int p[2], s[2], master, slave;
	struct guest g;

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
	start(&g, p[0], s[0], slave);
	check_reply(guest_write(&g, NODE_STDOUT, "x", 1), 0, 8);
	check_reply(guest_write(&g, NODE_STDERR, "x", 1), 0, 8);
	ck_assert_int_eq(fcntl(p[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(fcntl(s[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(fcntl(slave, F_GETFL) & O_NONBLOCK, 0);
	finish(&g);
}
END_TEST

/*
 * Run fn in a child that leads a session with the slave as its terminal, and pass its failure on.
 */
static void in_session(int slave, void (*fn)(int tty))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		signal(SIGTTOU, SIG_IGN);
		setsid();
		ioctl(slave, TIOCSCTTY, 0);
		fn(slave);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
}

#define child_assert(x) ((x) ? (void)0 : _exit(__LINE__ & 0x7f))

static int tty_master;

static void background_child(int tty)
{
	struct fs_request *r;
	struct guest g;
	pid_t job = fork();

	if (job == 0) {
		pause();
		_exit(0);
	}
	setpgid(job, job);
	child_assert(tcsetpgrp(tty, job) == 0);
	start(&g, tty, -1, -1);
	(void)!write(tty_master, "line\n", 5);
	r = guest_read(&g, NODE_STDIN, 100);
	child_assert(r->completed == 0);
	guest_turn(&g, 600); /* looked at again, and still not ours */
	child_assert(r->completed == 0);
	child_assert(tcsetpgrp(tty, getpgrp()) == 0);
	guest_turn(&g, 600);
	child_assert(r->completed == 1);
	child_assert(memcmp(reply_body_of(r), "line\n", 5) == 0);
	kill(job, SIGKILL);
}

START_TEST(a_terminal_is_read_in_the_foreground_only)
{
	int slave;

	ck_assert_int_eq(openpty(&tty_master, &slave, NULL, NULL, NULL), 0);
	in_session(slave, background_child);
}
END_TEST

/* --- standard output and error ---------------------------------------------------------------- */

static size_t slurp(int fd, void *buf, size_t len)
{
	size_t got = 0;
	ssize_t n;

	while (got < len && (n = read(fd, (char *)buf + got, len - got)) > 0)
		got += n;
	return got;
}

/* Take all of a write of a megabyte, which fits no pipe, in small steps. */
static void check_big_write(int write_fd, int read_fd)
{
	static uint8_t data[1 << 20], got[1 << 20];
	struct fs_request *r, *next;
	struct guest g;
	size_t len = 0;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = i * 7 ^ i >> 11;
	start(&g, -1, write_fd, -1);
	r = guest_write(&g, NODE_STDOUT, data, sizeof(data));
	next = guest_write(&g, NODE_STDOUT, "next", 4);
	ck_assert_uint_eq(r->completed, 0);
	while (len < sizeof(data)) {
		size_t step = MIN(sizeof(data) - len, (size_t)50001);
		struct pollfd p = { .fd = read_fd, .events = POLLIN };
		ssize_t n;

		ck_assert_int_eq(poll(&p, 1, 1000), 1);
		n = read(read_fd, got + len, step);
		ck_assert_int_gt(n, 0);
		len += n;
		guest_turn(&g, 0);
	}
	ck_assert(memcmp(got, data, len) == 0);
	check_reply(r, 0, sizeof(struct fuse_write_out));
	ck_assert_uint_eq(slurp(read_fd, got, 4), 4);
	ck_assert_mem_eq(got, "next", 4);
	check_reply(next, 0, sizeof(struct fuse_write_out));
	finish(&g);
}

START_TEST(slow_readers)
{
	int p[2], s[2], master, slave;
	struct termios raw;

	ck_assert_int_eq(pipe(p), 0);
	check_big_write(p[1], p[0]);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	check_big_write(s[1], s[0]);
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
	tcgetattr(slave, &raw);
	cfmakeraw(&raw);
	tcsetattr(slave, TCSANOW, &raw);
	check_big_write(slave, master);
}
END_TEST

START_TEST(a_stuck_stream_does_not_hold_another)
{
	static uint8_t data[1 << 20];
	struct fs_request *r;
	struct guest g;
	int p[2], q[2];

	ck_assert_int_eq(pipe(p) + pipe(q), 0);
	start(&g, -1, p[1], q[1]);
	r = guest_write(&g, NODE_STDOUT, data, sizeof(data));
	check_reply(guest_write(&g, NODE_STDERR, "err", 3), 0, sizeof(struct fuse_write_out));
	ck_assert_uint_eq(r->completed, 0);
	finish(&g);
	request_free(r);
}
END_TEST

START_TEST(broken_pipes)
{
	static uint8_t data[1 << 20];
	struct fs_request *r;
	struct guest g;
	int p[2], s[2];

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	start(&g, -1, p[1], s[1]);
	r = guest_write(&g, NODE_STDOUT, data, sizeof(data));
	close(p[0]); /* while it waits */
	guest_turn(&g, 100);
	check_reply(r, -EPIPE, 0);
	check_reply(guest_write(&g, NODE_STDOUT, "x", 1), -EPIPE, 0);
	close(s[0]);
	check_reply(guest_write(&g, NODE_STDERR, "x", 1), -EPIPE, 0);
	finish(&g);
}
END_TEST

START_TEST(sinks_that_refuse)
{
	int full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_WRONLY);
	struct guest g;

	log_set_level(LOG_LEVEL_ERROR);
	start(&g, -1, full, -1);
	check_reply(guest_write(&g, NODE_STDOUT, "x", 1), -ENOSPC, 0);
	check_reply(guest_write(&g, NODE_STDERR, "x", 1), -EBADF, 0);
	finish(&g);
	start(&g, -1, null, -1);
	check_reply(guest_write(&g, NODE_STDOUT, "x", 1), 0, sizeof(struct fuse_write_out));
	check_reply(guest_write(&g, NODE_STDOUT, "", 0), 0, sizeof(struct fuse_write_out));
	finish(&g);
}
END_TEST

START_TEST(a_files_position_is_shared)
{
	char path[] = "/tmp/channel-XXXXXX", buf[16] = "";
	int fd = mkstemp(path);
	struct guest g;

	(void)!write(fd, "one ", 4);
	start(&g, -1, fd, fd);
	check_reply(guest_write(&g, NODE_STDOUT, "two ", 4), 0, sizeof(struct fuse_write_out));
	check_reply(guest_write(&g, NODE_STDERR, "three ", 6), 0, sizeof(struct fuse_write_out));
	(void)!write(fd, "4", 1);
	finish(&g);
	ck_assert_int_eq(pread(fd, buf, 15, 0), 15);
	ck_assert_str_eq(buf, "one two three 4");
	unlink(path);
}
END_TEST

START_TEST(writes_that_lie)
{
	struct fuse_write_in in = { .size = 5 };
	int null = open("/dev/null", O_WRONLY);
	struct guest g;

	start(&g, null, null, null);
	check_reply(guest_send(&g, FUSE_WRITE, NODE_STDOUT, &in, sizeof(in), "four", 4, 64, 9),
		    -EINVAL, 0);
	in.size = ~0u;
	check_reply(guest_send(&g, FUSE_WRITE, NODE_STDOUT, &in, sizeof(in), "four", 4, 64, 9),
		    -EINVAL, 0);
	check_reply(guest_send(&g, FUSE_WRITE, NODE_STDOUT, &in, 8, NULL, 0, 64, 9), -EINVAL, 0);
	check_reply(guest_send(&g, FUSE_READ, NODE_STDIN, &in, 8, NULL, 0, 64, 9), -EINVAL, 0);
	check_reply(guest_write(&g, NODE_STDIN, "x", 1), -EINVAL, 0);
	check_reply(guest_write(&g, NODE_EVENTS, "x", 1), -EINVAL, 0);
	check_reply(guest_write(&g, NODE_ROOT, "x", 1), -EINVAL, 0);
	check_reply(guest_read(&g, NODE_STDOUT, 1), -EINVAL, 0);
	check_reply(guest_read(&g, NODE_STATUS, 1), -EINVAL, 0);
	check_reply(guest_read(&g, 99, 1), -EINVAL, 0);
	finish(&g);
}
END_TEST

START_TEST(hiprio_keeps_nothing)
{
	struct {
		struct fuse_in_header h;
		struct fuse_read_in read;
	} in = { { .len = sizeof(in), .opcode = FUSE_READ, .nodeid = NODE_EVENTS, .unique = 5 },
		 { .size = 100 } };
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	r = request_new(&in, sizeof(in), 200, 200);
	guest_serve(&g, r, 0);
	check_reply(r, -EINVAL, 0);
	ck_assert(!channel_connected(g.c));
	finish(&g);
}
END_TEST

/* --- descriptors that cannot be opened anew --------------------------------------------------- */

static size_t shared_fill(struct stream *s)
{
	static char block[1000];
	struct iovec v[3];
	size_t total = 0;
	ssize_t n;

	for (;;) {
		for (int i = 0; i < 3; i++)
			v[i] = (struct iovec){ block, sizeof(block) };
		n = stream_writev(s, v, 3);
		if (n < 0)
			break;
		ck_assert_int_gt(n, 0);
		total += n;
	}
	ck_assert_int_eq(n, -EAGAIN);
	return total;
}

START_TEST(shared_descriptors_do_not_wait)
{
	int p[2], master, slave;
	static char buf[4096];
	struct stream s;
	struct iovec v = { buf, sizeof(buf) };

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
	ck_assert_int_eq(stream_open(&s, p[1], true), 0);
	ck_assert_int_eq(s.kind, STREAM_OWN);
	dup2(p[1], s.fd); /* the shared description after all */
	s.kind = STREAM_SHARED;
	ck_assert_uint_ge(shared_fill(&s), 40000);
	stream_close(&s);
	ck_assert_int_eq(stream_open(&s, slave, true), 0);
	dup2(slave, s.fd);
	s.kind = STREAM_SHARED;
	ck_assert_uint_gt(shared_fill(&s), 0);
	stream_close(&s);
	ck_assert_int_eq(stream_open(&s, slave, false), 0);
	dup2(slave, s.fd);
	s.kind = STREAM_SHARED;
	ck_assert_int_eq(stream_readv(&s, &v, 1), -EAGAIN);
	(void)!write(master, "x\n", 2);
	v.iov_len = sizeof(buf);
	ck_assert_int_eq(stream_readv(&s, &v, 1), 2);
	stream_close(&s);
}
END_TEST

/* --- events ----------------------------------------------------------------------------------- */

static void check_event(struct guest *g, uint32_t kind, uint32_t a, uint32_t b)
{
	struct fs_request *r = guest_read(g, NODE_EVENTS, sizeof(struct channel_event));
	struct channel_event e;

	memcpy(&e, reply_body_of(r), sizeof(e));
	check_reply(r, 0, sizeof(e));
	ck_assert_uint_eq(e.kind, kind);
	ck_assert_uint_eq(e.a, a);
	ck_assert_uint_eq(e.b, b);
}

START_TEST(events_coalesce)
{
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	channel_signal(g.c, SIGTERM);
	channel_signal(g.c, SIGINT);
	channel_signal(g.c, SIGTERM);
	channel_signal(g.c, 64);
	channel_signal(g.c, 0);
	channel_signal(g.c, 65);
	channel_signal(g.c, -1);
	channel_winsize(g.c, 24, 80);
	channel_winsize(g.c, 50, 70000);
	ck_assert(!channel_connected(g.c));
	check_event(&g, CHANNEL_EVENT_WINSIZE, 50, 65535);
	ck_assert(channel_connected(g.c));
	ck_assert_uint_eq(seen.n_ready, 1);
	check_event(&g, CHANNEL_EVENT_SIGNAL, SIGINT, 0);
	check_event(&g, CHANNEL_EVENT_SIGNAL, SIGTERM, 0);
	check_event(&g, CHANNEL_EVENT_SIGNAL, 64, 0);
	r = guest_read(&g, NODE_EVENTS, 100);
	guest_turn(&g, 0);
	ck_assert_uint_eq(r->completed, 0);
	channel_signal(g.c, SIGHUP);
	guest_turn(&g, 100);
	check_reply(r, 0, sizeof(struct channel_event));
	ck_assert_uint_eq(seen.n_ready, 1);
	finish(&g);
}
END_TEST

START_TEST(stop_and_continue_cancel_each_other)
{
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	channel_signal(g.c, SIGTSTP);
	channel_signal(g.c, SIGSTOP);
	channel_signal(g.c, SIGCONT);
	check_event(&g, CHANNEL_EVENT_SIGNAL, SIGCONT, 0);
	channel_signal(g.c, SIGCONT);
	channel_signal(g.c, SIGTSTP);
	check_event(&g, CHANNEL_EVENT_SIGNAL, SIGTSTP, 0);
	r = guest_read(&g, NODE_EVENTS, 100);
	ck_assert_uint_eq(r->completed, 0);
	finish(&g);
	request_free(r);
}
END_TEST

START_TEST(events_are_not_lost_to_bad_requests)
{
	const struct fuse_read_in in = { .size = 100 };
	struct fs_request *r;
	struct guest g;

	start(&g, -1, -1, -1);
	channel_signal(g.c, SIGTERM);
	check_reply(guest_read(&g, NODE_EVENTS, 11), -EINVAL, 0);
	r = guest_send(&g, FUSE_READ, NODE_EVENTS, &in, sizeof(in), NULL, 0, 27, 27);
	ck_assert_int_eq(r->result, -EPROTO);
	request_free(r);
	check_event(&g, CHANNEL_EVENT_SIGNAL, SIGTERM, 0);
	finish(&g);
}
END_TEST

static void *signal_main(void *arg)
{
	struct guest *g = arg;

	for (int i = 0; i < 2000; i++) {
		channel_winsize(g->c, i, i);
		channel_signal(g->c, 1 + i % 64);
	}
	channel_winsize(g->c, 7, 7);
	channel_signal(g->c, SIGUSR2);
	return NULL;
}

START_TEST(events_from_another_thread)
{
	struct channel_event e = { 0 };
	unsigned rows = 0, usr2 = 0, got = 0;
	pthread_t thread;
	struct guest g;

	start(&g, -1, -1, -1);
	pthread_create(&thread, NULL, signal_main, &g);
	while (rows != 7 || !usr2) {
		struct fs_request *r = guest_read(&g, NODE_EVENTS, sizeof(e));

		for (int i = 0; i < 100 && !r->completed; i++)
			guest_turn(&g, 100);
		memcpy(&e, reply_body_of(r), sizeof(e));
		check_reply(r, 0, sizeof(e));
		if (e.kind == CHANNEL_EVENT_WINSIZE)
			rows = e.a;
		usr2 |= e.kind == CHANNEL_EVENT_SIGNAL && e.a == SIGUSR2;
		got++;
	}
	pthread_join(thread, NULL);
	ck_assert_uint_gt(got, 1);
	finish(&g);
}
END_TEST

/* --- status ----------------------------------------------------------------------------------- */

START_TEST(the_last_word)
{
	struct channel_status s = { .kind = CHANNEL_SETUP_FAILED, .code = 5 };
	struct guest g;

	start(&g, -1, -1, -1);
	memset(s.text, 'x', sizeof(s.text));
	memcpy(s.text, "a\033[2Jb\n\xff", 9);
	check_reply(guest_write(&g, NODE_STATUS, &s, sizeof(s) - 1), -EINVAL, 0);
	check_reply(guest_write(&g, NODE_STATUS, "x", 0), -EINVAL, 0);
	s.kind = 0;
	check_reply(guest_write(&g, NODE_STATUS, &s, sizeof(s)), -EINVAL, 0);
	s.kind = 5;
	check_reply(guest_write(&g, NODE_STATUS, &s, sizeof(s)), -EINVAL, 0);
	ck_assert_uint_eq(seen.n_status, 0);
	s.kind = CHANNEL_SETUP_FAILED;
	s.text[8] = 'x';
	check_reply(guest_write(&g, NODE_STATUS, &s, sizeof(s)), 0, sizeof(struct fuse_write_out));
	ck_assert_uint_eq(seen.n_status, 1);
	ck_assert_uint_eq(seen.status.code, 5);
	ck_assert_uint_eq(strlen(seen.status.text), sizeof(s.text) - 1);
	ck_assert_mem_eq(seen.status.text, "a?[2Jb??x", 9);
	check_reply(guest_write(&g, NODE_STATUS, &s, sizeof(s)), -EALREADY, 0);
	ck_assert_uint_eq(seen.n_status, 1);
	finish(&g);
}
END_TEST

/* --- interrupts and resets -------------------------------------------------------------------- */

START_TEST(interrupts)
{
	struct fuse_interrupt_in in;
	struct fs_request *a, *b, *i;
	struct guest g;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	start(&g, p[0], -1, -1);
	a = guest_read(&g, NODE_STDIN, 10);
	in.unique = g.unique;
	b = guest_read(&g, NODE_STDIN, 10);
	i = guest_send(&g, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL, 0, 0, 64);
	ck_assert_int_eq(i->result, 0);
	check_reply(a, -EINTR, 0);
	ck_assert_uint_eq(b->completed, 0);
	request_free(i);
	(void)!write(p[1], "rest", 4);
	guest_turn(&g, 100);
	check_data(b, "rest");
	i = guest_send(&g, FUSE_INTERRUPT, 0, &in, 3, NULL, 0, 0, 64);
	ck_assert_int_eq(i->result, 0);
	request_free(i);
	finish(&g);
}
END_TEST

START_TEST(a_reset_forgets_what_waits)
{
	struct fs_request *r;
	struct channel *c;
	struct guest g;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	start(&g, p[0], -1, -1);
	c = g.c;
	check_reply(send_init(&g, 7, 41, ~0u), 0, sizeof(struct fuse_init_out));
	r = guest_read(&g, NODE_STDIN, 10);
	channel_winsize(c, 30, 90);
	check_event(&g, CHANNEL_EVENT_WINSIZE, 30, 90);
	ck_assert(channel_connected(c));
	channel_signal(c, SIGTERM);
	guest_end(&g);
	ck_assert_uint_eq(r->completed, 0);
	request_free(r);
	ck_assert_int_eq(guest_begin(&g, c), 0);
	/* The next agent: signals were for another command, but the size is that of the terminal. */
	ck_assert(!channel_connected(c));
	ck_assert(channel_mounted(c));
	check_event(&g, CHANNEL_EVENT_WINSIZE, 30, 90);
	ck_assert(channel_connected(c));
	r = guest_read(&g, NODE_EVENTS, 100);
	guest_turn(&g, 0);
	ck_assert_uint_eq(r->completed, 0);
	channel_signal(c, SIGHUP);
	guest_turn(&g, 100);
	check_reply(r, 0, sizeof(struct channel_event));
	(void)!write(p[1], "after", 5);
	guest_turn(&g, 0);
	check_data(guest_read(&g, NODE_STDIN, 10), "after");
	finish(&g);
}
END_TEST

SUITE_MAIN("channel", 60, negotiation, names, attributes_and_handles, what_is_not_served,
	   requests_too_short_to_answer, input_waits_and_comes_in_order,
	   waiting_requests_are_bounded, scattered_buffers, no_input_at_all,
	   flags_of_inherited_descriptors_stay, a_terminal_is_read_in_the_foreground_only,
	   slow_readers, a_stuck_stream_does_not_hold_another, broken_pipes, sinks_that_refuse,
	   a_files_position_is_shared, writes_that_lie, hiprio_keeps_nothing,
	   shared_descriptors_do_not_wait, events_coalesce, stop_and_continue_cancel_each_other,
	   events_are_not_lost_to_bad_requests, events_from_another_thread, the_last_word,
	   interrupts, a_reset_forgets_what_waits)
