/*
 * heddle's end of the channel: see channel.h.
 *
 * A file server for the smallest of FUSE file systems: a root folder with five files.  The files
 * are opened with direct I/O and as streams, so the guest's kernel passes every read and write on
 * as it is, without offset, size or cache.  An answer that must wait keeps its request (FS_LATER):
 *
 *	1. channel_serve() copies the headers once, checks them, and looks the opcode up in a table.
 *	2. READ and WRITE go to a port, one for each file.  A port answers at once when it can and
 *	   nothing is queued before; else the request joins the port's queue and the port watches
 *	   its descriptor.
 *	3. port_run(), when the descriptor is ready (or an event has come), works the queue off in
 *	   order until it would have to wait again.
 *	4. channel_end() forgets what is queued: the ring is going away.
 *
 * The guest is not trusted: every length is taken from the buffers that are really there, and a
 * port keeps at most PORT_QUEUE requests; more are answered EAGAIN.  A real agent has one request
 * per file.
 *
 * Between threads: the signals and the size that main wants to pass on are two atomic words, in
 * which everything coalesces, and an eventfd.  All else belongs to the I/O thread.
 */
#include "devices/channel.h"

#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/stream.h"

#include <errno.h>
#include <limits.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PORT_QUEUE 4
#define WRITE_MAX  (1u << 20) /* bytes of one request; 256 pages are what guests offer at most */
#define PASS_MAX   (1u << 20) /* bytes a port may move before the other ports get a turn */

/* How often a terminal is looked at while another job has it; see stream_in_background(). */
#define BACKGROUND_POLL_NS 250000000

#define ATTR_VALID_S (1u << 30) /* for ever */

enum { PORT_STDIN, PORT_STDOUT, PORT_STDERR, PORT_EVENTS, PORT_STATUS, N_PORTS };

#define NODE_OF(port) ((port) + FUSE_ROOT_ID + 1)

static const char *const port_name[N_PORTS] = {
	[PORT_STDIN] = "stdin",	  [PORT_STDOUT] = "stdout", [PORT_STDERR] = "stderr",
	[PORT_EVENTS] = "events", [PORT_STATUS] = "status",
};

struct waiting {
	struct fs_request *r;
	uint64_t unique;
	size_t len;  /* bytes asked for, or to be written */
	size_t done; /* of a write */
};

struct port {
	struct channel *c;
	unsigned index;
	struct stream stream; /* not for events and status */
	struct watch watch;
	struct waiting queue[PORT_QUEUE];
	unsigned n; /* queued; [0] is the oldest */
	bool complained;
};

struct channel {
	struct channel_opts opts;
	struct port port[N_PORTS];
	struct loop *loop; /* while the device runs */
	struct watch timer;
	char worker[CHANNEL_WORKERS]; /* their addresses tell the queues apart */
	bool has_status;
	struct iovec iov[IOV_MAX]; /* scratch; readv and writev take no more */

	/* Shared with other threads. */
	_Atomic uint64_t signals; /* bit sig - 1 */
	_Atomic uint32_t winsize; /* rows << 16 | columns */
	atomic_bool has_winsize;
	atomic_bool connected;
	int wake_fd;
};

struct call {
	struct channel *c;
	struct fs_request *r;
	struct fuse_in_header h;
	bool hiprio;
	struct cursor in; /* after the header */
	struct cursor out;
};

/* --- replies ---------------------------------------------------------------------------------- */

static ssize_t reply(struct cursor *out, uint64_t unique, int err, const void *body, size_t len)
{
	const struct fuse_out_header h = { .len = sizeof(h) + (err ? 0 : len),
					   .error = err,
					   .unique = unique };

	if (cursor_left(out) < h.len)
		return -EPROTO;
	cursor_write(out, &h, sizeof(h));
	if (!err)
		cursor_write(out, body, len);
	return h.len;
}

static ssize_t reply_error(struct call *k, int err)
{
	return reply(&k->out, k->h.unique, err, NULL, 0);
}

static ssize_t reply_body(struct call *k, const void *body, size_t len)
{
	return reply(&k->out, k->h.unique, 0, body, len);
}

/* --- events ----------------------------------------------------------------------------------- */

static const uint64_t stop_signals = 1ull << (SIGSTOP - 1) | 1ull << (SIGTSTP - 1) |
				     1ull << (SIGTTIN - 1) | 1ull << (SIGTTOU - 1);
static const uint64_t cont_signal = 1ull << (SIGCONT - 1);

static void channel_wake(struct channel *c)
{
	const uint64_t one = 1;

	(void)!write(c->wake_fd, &one, sizeof(one));
}

void channel_signal(struct channel *c, int sig)
{
	uint64_t old = atomic_load(&c->signals), new;

	if (sig < 1 || sig > 64)
		return;
	do {
		const uint64_t bit = 1ull << (sig - 1);

		new = old | bit;
		if (bit & cont_signal)
			new &= ~stop_signals;
		else if (bit & stop_signals)
			new &= ~cont_signal;
	} while (!atomic_compare_exchange_weak(&c->signals, &old, new));
	channel_wake(c);
}

/*
 * The flag is set after the size and cleared before it is read: a change in between is seen next
 * time.
 */
void channel_winsize(struct channel *c, unsigned rows, unsigned columns)
{
	rows = MIN(rows, 0xffffu);
	columns = MIN(columns, 0xffffu);
	atomic_store(&c->winsize, rows << 16 | columns);
	atomic_store(&c->has_winsize, true);
	channel_wake(c);
}

bool channel_connected(const struct channel *c)
{
	return atomic_load(&c->connected);
}

static bool event_take(struct channel *c, struct channel_event *e)
{
	uint64_t pending = atomic_load(&c->signals);
	uint32_t size;

	if (atomic_exchange(&c->has_winsize, false)) {
		size = atomic_load(&c->winsize);
		*e = (struct channel_event){ CHANNEL_EVENT_WINSIZE, size >> 16, size & 0xffff };
		return true;
	}
	while (pending) {
		const uint64_t lowest = pending & -pending;

		if (!atomic_compare_exchange_weak(&c->signals, &pending, pending & ~lowest))
			continue;
		*e = (struct channel_event){ CHANNEL_EVENT_SIGNAL,
					     (uint32_t)__builtin_ctzll(lowest) + 1, 0 };
		return true;
	}
	return false;
}

/* --- ports: one request ----------------------------------------------------------------------- */

/* An event is taken only when it can be delivered whole. */
static ssize_t events_read(struct port *p, const struct waiting *w, struct cursor *out)
{
	struct channel_event e;

	if (w->len < sizeof(e))
		return reply(out, w->unique, -EINVAL, NULL, 0);
	if (cursor_left(out) < sizeof(struct fuse_out_header) + sizeof(e))
		return -EPROTO;
	if (!event_take(p->c, &e))
		return FS_LATER;
	return reply(out, w->unique, 0, &e, sizeof(e));
}

/* Straight into the guest's buffers, then the header before it. */
static ssize_t stream_read(struct port *p, const struct waiting *w, struct cursor *out)
{
	struct fuse_out_header h = { .unique = w->unique };
	struct cursor body = *out;
	ssize_t n = -EAGAIN;
	unsigned n_iov;

	if (!cursor_skip(&body, sizeof(h)))
		return -EPROTO;
	n_iov = cursor_slice(&body, w->len, p->c->iov, IOV_MAX, NULL);
	if (!stream_in_background(&p->stream))
		n = n_iov ? stream_readv(&p->stream, p->c->iov, n_iov) : 0;
	if (n == -EAGAIN)
		return FS_LATER;
	if (n < 0)
		return reply(out, w->unique, (int)n, NULL, 0);
	h.len = sizeof(h) + n;
	cursor_write(out, &h, sizeof(h));
	return h.len;
}

/*
 * The guest's end of a broken pipe is normal; a full disk the person at the terminal wants to know.
 */
static void port_complain(struct port *p, int err)
{
	if (err != -EPIPE && !p->complained)
		log_warn("%s: %s", port_name[p->index], strerror(-err));
	p->complained = true;
}

/* in: the data.  A short write is no answer: the agent would only come again. */
static ssize_t stream_write(struct port *p, struct waiting *w, const struct cursor *in,
			    struct cursor *out)
{
	const struct fuse_write_out ok = { .size = w->len };
	struct cursor data = *in;

	cursor_skip(&data, w->done);
	while (w->done < w->len) {
		unsigned n_iov = cursor_slice(&data, w->len - w->done, p->c->iov, IOV_MAX, NULL);
		ssize_t n = stream_writev(&p->stream, p->c->iov, n_iov);

		if (n == -EAGAIN)
			return FS_LATER;
		if (n <= 0) {
			port_complain(p, n ? (int)n : -EIO);
			return reply(out, w->unique, n ? (int)n : -EIO, NULL, 0);
		}
		w->done += n;
		cursor_skip(&data, n);
	}
	return reply(out, w->unique, 0, &ok, sizeof(ok));
}

/* in as it stood after the request's headers.  FS_LATER: not yet; w may have advanced. */
static ssize_t port_try(struct port *p, struct waiting *w, const struct cursor *in,
			struct cursor *out)
{
	switch (p->index) {
	case PORT_STDIN:
		return stream_read(p, w, out);
	case PORT_EVENTS:
		return events_read(p, w, out);
	default:
		return stream_write(p, w, in, out);
	}
}

/* --- ports: the queue ------------------------------------------------------------------------- */

/*
 * Watch, or stop watching, whatever will let the oldest request go on.  The events port watches its
 * eventfd all the time.  A terminal that another job reads from would be ready all the time: the
 * timer asks instead.
 */
static void port_arm(struct port *p)
{
	struct channel *c = p->c;
	const bool background = p->n && p->index == PORT_STDIN && stream_in_background(&p->stream);
	const struct itimerspec soon = { .it_value.tv_nsec = background ? BACKGROUND_POLL_NS : 0 };
	uint32_t events = 0;

	if (p->index == PORT_EVENTS)
		return;
	if (p->n && !background)
		events = p->index == PORT_STDIN ? EPOLLIN : EPOLLOUT;
	if (p->index == PORT_STDIN && p->stream.tty)
		timerfd_settime(c->timer.fd, 0, &soon, NULL);
	if (loop_watch(c->loop, &p->watch, events))
		log_limited(LOG_LEVEL_WARN, "channel: cannot watch %s", port_name[p->index]);
}

static void port_pop(struct port *p, unsigned i)
{
	p->n--;
	memmove(&p->queue[i], &p->queue[i + 1], (p->n - i) * sizeof(p->queue[0]));
}

static size_t request_header_len(const struct port *p)
{
	const bool writes = p->index == PORT_STDOUT || p->index == PORT_STDERR;

	return sizeof(struct fuse_in_header) +
	       (writes ? sizeof(struct fuse_write_in) : sizeof(struct fuse_read_in));
}

/*
 * Work the queue off.  A request leaves it before it is completed: completing may bring the next
 * one.
 */
static void port_run(struct port *p)
{
	for (size_t moved = 0; p->n > 0 && moved < PASS_MAX;) {
		struct waiting w = p->queue[0];
		struct cursor in, out;
		ssize_t ret;

		fs_request_cursors(w.r, &in, &out);
		cursor_skip(&in, request_header_len(p));
		ret = port_try(p, &w, &in, &out);
		p->queue[0] = w;
		if (ret == FS_LATER)
			break;
		port_pop(p, 0);
		moved += w.len;
		fs_complete(w.r, ret);
	}
	port_arm(p);
}

static void port_ready(struct watch *watch, uint32_t events)
{
	(void)events;
	port_run(container_of(watch, struct port, watch));
}

static void events_ready(struct watch *watch, uint32_t events)
{
	uint64_t count;

	(void)events;
	(void)!read(watch->fd, &count, sizeof(count));
	port_run(container_of(watch, struct port, watch));
}

static void timer_ready(struct watch *watch, uint32_t events)
{
	struct channel *c = container_of(watch, struct channel, timer);
	uint64_t count;

	(void)events;
	(void)!read(watch->fd, &count, sizeof(count));
	port_run(&c->port[PORT_STDIN]);
}

static ssize_t port_request(struct port *p, struct call *k, size_t len)
{
	struct waiting w = { .r = k->r, .unique = k->h.unique, .len = len };
	ssize_t ret;

	if (p->n == PORT_QUEUE)
		return reply_error(k, -EAGAIN);
	ret = p->n ? FS_LATER : port_try(p, &w, &k->in, &k->out);
	if (ret != FS_LATER)
		return ret;
	p->queue[p->n++] = w;
	port_arm(p);
	return FS_LATER;
}

/* --- opcodes ---------------------------------------------------------------------------------- */

/* The port a call is about; NULL for the root and for ids nobody got from us. */
static struct port *call_port(struct call *k)
{
	const uint64_t i = k->h.nodeid - NODE_OF(0);

	return i < N_PORTS ? &k->c->port[i] : NULL;
}

static ssize_t op_init(struct call *k)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_write = WRITE_MAX,
		.max_background = 16,
		.congestion_threshold = 12,
		.time_gran = 1,
		.max_pages = WRITE_MAX / 4096,
	};
	struct fuse_init_in in = { 0 };
	const size_t v1_len = offsetof(struct fuse_init_in, flags2);

	if (!cursor_read(&k->in, &in, v1_len))
		return reply_error(k, -EINVAL);
	/*
	 * 7.31: what virtio-fs began with.  A guest with a newer major version asks again with
	 * ours.
	 */
	if (in.major < FUSE_KERNEL_VERSION || (in.major == FUSE_KERNEL_VERSION && in.minor < 31))
		return reply_error(k, -EPROTO);
	out.minor = MIN(in.minor, (uint32_t)FUSE_KERNEL_MINOR_VERSION);
	out.flags = in.flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES);
	return reply_body(k, &out, sizeof(out));
}

static struct fuse_attr node_attr(uint64_t nodeid)
{
	const bool root = nodeid == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = nodeid,
		.mode = root ? S_IFDIR | 0500 : S_IFREG | 0600,
		.nlink = root ? 2 : 1,
		.blksize = 4096,
	};
}

static ssize_t op_getattr(struct call *k)
{
	struct fuse_attr_out out = { .attr_valid = ATTR_VALID_S, .attr = node_attr(k->h.nodeid) };

	if (k->h.nodeid != FUSE_ROOT_ID && !call_port(k))
		return reply_error(k, -ENOENT);
	return reply_body(k, &out, sizeof(out));
}

static ssize_t op_lookup(struct call *k)
{
	struct fuse_entry_out out = { .entry_valid = ATTR_VALID_S, .attr_valid = ATTR_VALID_S };
	char name[16] = "";
	size_t len = cursor_left(&k->in);

	if (k->h.nodeid != FUSE_ROOT_ID || len == 0 || len > sizeof(name))
		return reply_error(k, -ENOENT);
	cursor_read(&k->in, name, len);
	name[len - 1] = '\0';
	for (unsigned i = 0; i < N_PORTS; i++) {
		if (strcmp(name, port_name[i]) != 0)
			continue;
		out.nodeid = NODE_OF(i);
		out.attr = node_attr(out.nodeid);
		return reply_body(k, &out, sizeof(out));
	}
	return reply_error(k, -ENOENT);
}

static ssize_t op_open(struct call *k)
{
	const struct fuse_open_out out = {
		.open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE | FOPEN_STREAM,
	};

	if (!call_port(k))
		return reply_error(k, -ENOENT);
	return reply_body(k, &out, sizeof(out));
}

/* The agent asks for events once the command runs. */
static void channel_connect(struct channel *c)
{
	if (atomic_exchange(&c->connected, true))
		return;
	if (c->opts.on_ready)
		c->opts.on_ready(c->opts.ctx);
}

static ssize_t op_read(struct call *k)
{
	struct port *p = call_port(k);
	struct fuse_read_in in;

	if (!p || k->hiprio || (p->index != PORT_STDIN && p->index != PORT_EVENTS) ||
	    !cursor_read(&k->in, &in, sizeof(in)))
		return reply_error(k, -EINVAL);
	if (p->index == PORT_EVENTS)
		channel_connect(k->c);
	return port_request(p, k, in.size);
}

/* The text may end up on a terminal: nothing but printable ASCII leaves here. */
static bool status_sanitize(struct channel_status *s)
{
	s->text[sizeof(s->text) - 1] = '\0';
	for (char *t = s->text; *t; t++)
		if (*t < ' ' || *t > '~')
			*t = '?';
	return s->kind >= CHANNEL_EXITED && s->kind <= CHANNEL_SETUP_FAILED;
}

static ssize_t status_write(struct call *k, size_t len)
{
	const struct fuse_write_out ok = { .size = len };
	struct channel *c = k->c;
	struct channel_status s;

	if (len != sizeof(s) || !cursor_read(&k->in, &s, sizeof(s)) || !status_sanitize(&s))
		return reply_error(k, -EINVAL);
	if (c->has_status)
		return reply_error(k, -EALREADY);
	c->has_status = true;
	c->opts.on_status(c->opts.ctx, &s);
	return reply_body(k, &ok, sizeof(ok));
}

static ssize_t op_write(struct call *k)
{
	struct port *p = call_port(k);
	struct fuse_write_in in;

	if (!p || k->hiprio || !cursor_read(&k->in, &in, sizeof(in)) || in.size > WRITE_MAX ||
	    cursor_left(&k->in) < in.size)
		return reply_error(k, -EINVAL);
	if (p->index == PORT_STATUS)
		return status_write(k, in.size);
	if (p->index != PORT_STDOUT && p->index != PORT_STDERR)
		return reply_error(k, -EINVAL);
	return port_request(p, k, in.size);
}

/* virtio-fs has none of these so far; a mount through /dev/fuse has. */
static ssize_t op_interrupt(struct call *k)
{
	struct fuse_interrupt_in in;

	if (!cursor_read(&k->in, &in, sizeof(in)))
		return 0;
	for (unsigned port = 0; port < N_PORTS; port++) {
		struct port *p = &k->c->port[port];

		for (unsigned i = 0; i < p->n; i++) {
			struct waiting w = p->queue[i];
			struct cursor unused, out;

			if (w.unique != in.unique)
				continue;
			port_pop(p, i);
			port_arm(p);
			fs_request_cursors(w.r, &unused, &out);
			fs_complete(w.r, reply(&out, w.unique, -EINTR, NULL, 0));
			return 0;
		}
	}
	return 0;
}

static ssize_t op_statfs(struct call *k)
{
	const struct fuse_statfs_out out = { .st = { .bsize = 4096, .namelen = 16 } };

	return reply_body(k, &out, sizeof(out));
}

static ssize_t op_ok(struct call *k)
{
	return reply_error(k, 0);
}

static ssize_t op_no_reply(struct call *k)
{
	(void)k;
	return 0;
}

static ssize_t (*const op_table[])(struct call *k) = {
	[FUSE_INIT] = op_init,
	[FUSE_LOOKUP] = op_lookup,
	[FUSE_GETATTR] = op_getattr,
	[FUSE_SETATTR] = op_getattr,
	[FUSE_OPEN] = op_open,
	[FUSE_READ] = op_read,
	[FUSE_WRITE] = op_write,
	[FUSE_RELEASE] = op_ok,
	[FUSE_STATFS] = op_statfs,
	[FUSE_INTERRUPT] = op_interrupt,
	[FUSE_DESTROY] = op_ok,
	[FUSE_FORGET] = op_no_reply,
	[FUSE_BATCH_FORGET] = op_no_reply,
};

/* --- struct fs_server ------------------------------------------------------------------------- */

static ssize_t channel_serve(void *server, void *worker, struct fs_request *r, struct cursor *in,
			     struct cursor *out)
{
	struct channel *c = server;
	struct call k = {
		.c = c, .r = r, .hiprio = worker == &c->worker[0], .in = *in, .out = *out
	};
	ssize_t (*op)(struct call * k) = NULL;

	if (!cursor_read(&k.in, &k.h, sizeof(k.h)))
		return -EPROTO;
	if (k.h.opcode < ARRAY_SIZE(op_table))
		op = op_table[k.h.opcode];
	return op ? op(&k) : reply_error(&k, -ENOSYS);
}

static int channel_begin(void *server, void *worker, struct loop *loop)
{
	struct channel *c = server;
	struct port *events = &c->port[PORT_EVENTS];
	int err;

	if (worker == &c->worker[0])
		return 0; /* hiprio never keeps a request */
	c->loop = loop;
	err = loop_watch(loop, &events->watch, EPOLLIN);
	if (!err)
		err = loop_watch(loop, &c->timer, EPOLLIN);
	return err;
}

static void channel_end(void *server, void *worker)
{
	struct channel *c = server;

	if (worker == &c->worker[0] || !c->loop)
		return;
	for (unsigned i = 0; i < N_PORTS; i++) {
		c->port[i].n = 0;
		loop_watch(c->loop, &c->port[i].watch, 0);
	}
	loop_watch(c->loop, &c->timer, 0);
	c->loop = NULL;
}

/* Nothing is remembered of nodes and handles: they are the same for every guest. */
static void channel_reset(void *server)
{
	(void)server;
}

const struct fs_server channel_fs_server = {
	.serve = channel_serve,
	.worker_begin = channel_begin,
	.worker_end = channel_end,
	.reset = channel_reset,
};

/* --- life ------------------------------------------------------------------------------------- */

static int channel_open_streams(struct channel *c)
{
	int err = stream_open(&c->port[PORT_STDIN].stream, c->opts.stdin_fd, false);

	if (!err)
		err = stream_open(&c->port[PORT_STDOUT].stream, c->opts.stdout_fd, true);
	if (!err)
		err = stream_open(&c->port[PORT_STDERR].stream, c->opts.stderr_fd, true);
	return err;
}

static int channel_open_wakers(struct channel *c)
{
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return c->wake_fd < 0 || c->timer.fd < 0 ? -errno : 0;
}

static void channel_init_watches(struct channel *c)
{
	for (unsigned i = 0; i < N_PORTS; i++) {
		struct port *p = &c->port[i];

		p->watch = (struct watch){ .fd = p->stream.fd, .ready = port_ready };
	}
	c->timer.ready = timer_ready;
	c->port[PORT_EVENTS].watch = (struct watch){ .fd = c->wake_fd, .ready = events_ready };
}

int channel_create(const struct channel_opts *o, struct channel **out)
{
	struct channel *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->opts = *o;
	for (unsigned i = 0; i < N_PORTS; i++) {
		c->port[i].c = c;
		c->port[i].index = i;
		c->port[i].stream.fd = -1;
	}
	c->wake_fd = c->timer.fd = -1;
	/* First: an eventfd could take the number of a descriptor that the caller has not open. */
	err = channel_open_streams(c);
	if (!err)
		err = channel_open_wakers(c);
	if (err) {
		log_error("channel to the guest agent: %s", strerror(-err));
		channel_destroy(c);
		return err;
	}
	channel_init_watches(c);
	*out = c;
	return 0;
}

void channel_destroy(struct channel *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < N_PORTS; i++)
		stream_close(&c->port[i].stream);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	if (c->timer.fd >= 0)
		close(c->timer.fd);
	free(c);
}

void channel_workers(struct channel *c, void *workers[CHANNEL_WORKERS])
{
	for (unsigned i = 0; i < CHANNEL_WORKERS; i++)
		workers[i] = &c->worker[i];
}
