/*
 * The files of the channel: see channel.c for the whole.
 *
 * A port is a file with its kept requests.  It answers at once when it can and nothing is queued
 * before; else the request joins the queue, and the port watches what will let the oldest go on:
 * its stream's descriptor, the eventfd of the events, or, for a terminal that another job has, a
 * timer.
 */
#include "devices/channel_internal.h"

#include "vmm/base.h"
#include "vmm/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PASS_MAX (1u << 20) /* bytes a port may move before the other ports get a turn */

/* How often a terminal is looked at while another job has it; see stream_in_background(). */
#define BACKGROUND_POLL_NS 250000000

const char *const channel_port_name[N_PORTS] = {
	[PORT_STDIN] = "stdin",	  [PORT_STDOUT] = "stdout", [PORT_STDERR] = "stderr",
	[PORT_EVENTS] = "events", [PORT_STATUS] = "status",
};

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

bool channel_mounted(const struct channel *c)
{
	return atomic_load(&c->mounted);
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

/* --- one request ------------------------------------------------------------------------------ */

/* An event is taken only when it can be delivered whole. */
static ssize_t events_read(struct channel_port *p, const struct channel_waiting *w,
			   struct cursor *out)
{
	struct channel_event e;

	if (w->len < sizeof(e))
		return channel_reply(out, w->unique, -EINVAL, NULL, 0);
	if (cursor_left(out) < sizeof(struct fuse_out_header) + sizeof(e))
		return -EPROTO;
	if (!event_take(p->c, &e))
		return FS_LATER;
	return channel_reply(out, w->unique, 0, &e, sizeof(e));
}

/* Straight into the guest's buffers, then the header before it. */
static ssize_t stream_read(struct channel_port *p, const struct channel_waiting *w,
			   struct cursor *out)
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
		return channel_reply(out, w->unique, (int)n, NULL, 0);
	h.len = sizeof(h) + n;
	cursor_write(out, &h, sizeof(h));
	return h.len;
}

/*
 * The guest's end of a broken pipe is normal; a full disk the person at the terminal wants to know.
 */
static void port_complain(struct channel_port *p, int err)
{
	if (err != -EPIPE && !p->complained)
		log_warn("%s: %s", channel_port_name[p->index], strerror(-err));
	p->complained = true;
}

/* in: the data.  A short write is no answer: the agent would only come again. */
static ssize_t stream_write(struct channel_port *p, struct channel_waiting *w,
			    const struct cursor *in, struct cursor *out)
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
			return channel_reply(out, w->unique, n ? (int)n : -EIO, NULL, 0);
		}
		w->done += n;
		cursor_skip(&data, n);
	}
	return channel_reply(out, w->unique, 0, &ok, sizeof(ok));
}

/* in as it stood after the request's headers.  FS_LATER: not yet; w may have advanced. */
static ssize_t port_try(struct channel_port *p, struct channel_waiting *w, const struct cursor *in,
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

/* --- the queue -------------------------------------------------------------------------------- */

/*
 * Watch, or stop watching, whatever will let the oldest request go on.  The events port watches its
 * eventfd all the time.  A terminal that another job reads from would be ready all the time: the
 * timer asks instead.
 */
static void port_arm(struct channel_port *p)
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
		log_limited(LOG_LEVEL_WARN, "channel: cannot watch %s",
			    channel_port_name[p->index]);
}

static void port_pop(struct channel_port *p, unsigned i)
{
	p->n--;
	memmove(&p->queue[i], &p->queue[i + 1], (p->n - i) * sizeof(p->queue[0]));
}

static size_t request_header_len(const struct channel_port *p)
{
	const bool writes = p->index == PORT_STDOUT || p->index == PORT_STDERR;

	return sizeof(struct fuse_in_header) +
	       (writes ? sizeof(struct fuse_write_in) : sizeof(struct fuse_read_in));
}

/*
 * Work the queue off.  A request leaves it before it is completed: completing may bring the next
 * one.
 */
static void port_run(struct channel_port *p)
{
	for (size_t moved = 0; p->n > 0 && moved < PASS_MAX;) {
		struct channel_waiting w = p->queue[0];
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
	port_run(container_of(watch, struct channel_port, watch));
}

static void events_ready(struct watch *watch, uint32_t events)
{
	uint64_t count;

	(void)events;
	(void)!read(watch->fd, &count, sizeof(count));
	port_run(container_of(watch, struct channel_port, watch));
}

static void timer_ready(struct watch *watch, uint32_t events)
{
	struct channel *c = container_of(watch, struct channel, timer);
	uint64_t count;

	(void)events;
	(void)!read(watch->fd, &count, sizeof(count));
	port_run(&c->port[PORT_STDIN]);
}

ssize_t channel_port_request(struct channel_port *p, const struct channel_waiting *request,
			     const struct cursor *in, struct cursor *out)
{
	struct channel_waiting w = *request;
	ssize_t ret;

	if (p->n == CHANNEL_PORT_QUEUE)
		return channel_reply(out, w.unique, -EAGAIN, NULL, 0);
	ret = p->n ? FS_LATER : port_try(p, &w, in, out);
	if (ret != FS_LATER)
		return ret;
	p->queue[p->n++] = w;
	port_arm(p);
	return FS_LATER;
}

bool channel_port_interrupt(struct channel_port *p, uint64_t unique)
{
	struct cursor in, out;

	for (unsigned i = 0; i < p->n; i++) {
		struct channel_waiting w = p->queue[i];

		if (w.unique != unique)
			continue;
		port_pop(p, i);
		port_arm(p);
		fs_request_cursors(w.r, &in, &out);
		fs_complete(w.r, channel_reply(&out, w.unique, -EINTR, NULL, 0));
		return true;
	}
	return false;
}

/* --- life ------------------------------------------------------------------------------------- */

void channel_ports_init(struct channel *c)
{
	for (unsigned i = 0; i < N_PORTS; i++) {
		struct channel_port *p = &c->port[i];

		p->watch = (struct watch){ .fd = p->stream.fd, .ready = port_ready };
	}
	c->port[PORT_EVENTS].watch = (struct watch){ .fd = c->wake_fd, .ready = events_ready };
	c->timer.ready = timer_ready;
}

int channel_ports_begin(struct channel *c, struct loop *loop)
{
	int err;

	c->loop = loop;
	err = loop_watch(loop, &c->port[PORT_EVENTS].watch, EPOLLIN);
	if (!err)
		err = loop_watch(loop, &c->timer, EPOLLIN);
	return err;
}

void channel_ports_end(struct channel *c)
{
	if (!c->loop)
		return;
	for (unsigned i = 0; i < N_PORTS; i++) {
		c->port[i].n = 0;
		loop_watch(c->loop, &c->port[i].watch, 0);
	}
	loop_watch(c->loop, &c->timer, 0);
	c->loop = NULL;
}
