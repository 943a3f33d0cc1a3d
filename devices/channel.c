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
 *	3. channel_port.c: when the descriptor is ready (or an event has come), the queue is worked
 *	   off in order, until it would have to wait again.
 *	4. channel_end() forgets what is queued: the ring is going away.
 *
 * The guest is not trusted: every length is taken from the buffers that are really there, and a
 * port keeps at most CHANNEL_PORT_QUEUE requests; more are answered EAGAIN.  A real agent has one
 * request per file.
 *
 * Between threads: the signals and the size that main wants to pass on are two atomic words, in
 * which everything coalesces, and an eventfd.  All else belongs to the I/O thread.
 */
#include "devices/channel_internal.h"

#include "vmm/base.h"
#include "vmm/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define WRITE_MAX    (1u << 20) /* bytes of one request; 256 pages are what guests offer at most */
#define ATTR_VALID_S (1u << 30) /* for ever */

#define NODE_OF(port) ((port) + FUSE_ROOT_ID + 1)

struct call {
	struct channel *c;
	struct fs_request *r;
	struct fuse_in_header h;
	bool hiprio;
	struct cursor in; /* after the header */
	struct cursor out;
};

/* --- replies ---------------------------------------------------------------------------------- */

ssize_t channel_reply(struct cursor *out, uint64_t unique, int err, const void *body, size_t len)
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
	return channel_reply(&k->out, k->h.unique, err, NULL, 0);
}

static ssize_t reply_body(struct call *k, const void *body, size_t len)
{
	return channel_reply(&k->out, k->h.unique, 0, body, len);
}

/* --- opcodes ---------------------------------------------------------------------------------- */

/* The port a call is about; NULL for the root and for ids nobody got from us. */
static struct channel_port *call_port(struct call *k)
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
	atomic_store(&k->c->mounted, true);
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
		if (strcmp(name, channel_port_name[i]) != 0)
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

static ssize_t call_port_request(struct call *k, struct channel_port *p, size_t len)
{
	const struct channel_waiting w = { .r = k->r, .unique = k->h.unique, .len = len };

	return channel_port_request(p, &w, &k->in, &k->out);
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
	struct channel_port *p = call_port(k);
	struct fuse_read_in in;

	if (!p || k->hiprio || (p->index != PORT_STDIN && p->index != PORT_EVENTS) ||
	    !cursor_read(&k->in, &in, sizeof(in)))
		return reply_error(k, -EINVAL);
	if (p->index == PORT_EVENTS)
		channel_connect(k->c);
	return call_port_request(k, p, in.size);
}

static bool status_sanitize(struct channel_status *s)
{
	s->text[sizeof(s->text) - 1] = '\0';
	for (char *t = s->text; *t; t++)
		if (!log_may_print(*t))
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
	struct channel_port *p = call_port(k);
	struct fuse_write_in in;

	if (!p || k->hiprio || !cursor_read(&k->in, &in, sizeof(in)) || in.size > WRITE_MAX ||
	    cursor_left(&k->in) < in.size)
		return reply_error(k, -EINVAL);
	if (p->index == PORT_STATUS)
		return status_write(k, in.size);
	if (p->index != PORT_STDOUT && p->index != PORT_STDERR)
		return reply_error(k, -EINVAL);
	return call_port_request(k, p, in.size);
}

/* virtio-fs has none of these so far; a mount through /dev/fuse has. */
static ssize_t op_interrupt(struct call *k)
{
	struct fuse_interrupt_in in;

	if (!cursor_read(&k->in, &in, sizeof(in)))
		return 0;
	for (unsigned i = 0; i < N_PORTS; i++)
		if (channel_port_interrupt(&k->c->port[i], in.unique))
			break;
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

	return worker == &c->worker[0] ? 0
				       : channel_ports_begin(c, loop); /* hiprio keeps nothing */
}

static void channel_end(void *server, void *worker)
{
	struct channel *c = server;

	if (worker != &c->worker[0])
		channel_ports_end(c);
}

/*
 * Nodes and handles are the same for every guest.  The next agent has yet to start a command that
 * signals could be for, and was told the size the terminal had first.
 */
static void channel_reset(void *server)
{
	struct channel *c = server;

	atomic_store(&c->connected, false);
	atomic_store(&c->signals, 0);
	atomic_store(&c->has_winsize, atomic_load(&c->winsize) != 0);
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

int channel_create(const struct channel_opts *o, struct channel **out)
{
	struct channel *c = calloc(1, sizeof(*c));
	int err;

	if (!c) {
		log_error("no memory for the channel to the guest's agent");
		return -ENOMEM;
	}
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
	channel_ports_init(c);
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
