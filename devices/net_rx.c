/*
 * Frames from the tap to the guest.
 *
 * Theory of operation.  At an edge of the tap, or a kick, on the queue's thread:
 *	1. Fill: pop chains until the buffers in hand hold the largest frame that may come, for
 *	   nothing says how long the next one is.  With mergeable buffers (MRG_RXBUF) that is many
 *	   chains, else one.
 *	2. One readv.  The front of the frame (28 bytes: virtio header, addresses, VLAN tag) comes
 *	   into a copy of our own, what is behind it straight into guest RAM: into as many segments
 *	   as the frames before this one make likely, for the kernel copies and checks each, and all
 *	   in hand would be 43 for 64 bytes of frame.  Behind them lies the bounce buffer.  What has
 *	   to go there is copied to the other segments, and the next reads take more of them.  A
 *	   frame longer than all buffers is dropped, whole frame or none.
 *	3. Check header and filter, then write the front to its place, with the number of buffers.
 *	   Guest RAM is never read: that would be a cache miss behind a large frame.  A frame that
 *	   does not pass leaves the buffers in hand.
 *	4. Push the chains that were filled.  The rest stays in hand for the next frame, also until
 *	   the next pass: popping the 40-odd chains of a large frame again for each small one would
 *	   cost more than the read.  They are the device's until reset, popped or not.
 *	5. Publish in small batches, after each large frame.
 *
 * The tap is watched for edges.  An edge may come at any time, so whoever stops before the tap is
 * empty must know what will bring him back: a kick (no buffers left: asked for by unmute), or his
 * own kick (budget spent).  With levels the same would take two epoll_ctl calls each time a fast
 * sender outruns the guest, and a packet waiting for a guest without buffers would turn the loop.
 *
 * Few buffers (MRG_RXBUF): there are some, yet not enough for the largest frame.  Reading would
 * lose that frame; not reading would stop a driver that never offers more.  So:
 *	- publish, ask for kicks, look again;
 *	- when the driver waits for an interrupt it has given what it has: read with what there is;
 *	- else it is at work on what it got, and will come back with buffers and kick: wait for
 *	  that.  It may also go to sleep without offering more, so look at it now and then (ticks);
 *	  and it may never ask for interrupts at all, so patience ends, until there are buffers
 *	  again.
 */
#include "devices/net_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/iov.h"
#include "vmm/log.h"

/*
 * A packet may have to wait for the first tick; each is twice as long as the one before.  Together
 * they are a quarter of a second: a few time slices of a host whose CPUs are busy with others than
 * the guest.
 */
#define TICK_NS        500000
#define PATIENCE_TICKS 9
#define LATE_TICK      7 /* 64 ms */

/* Segments in hand, and of them those that one readv takes beside the front and the bounce buffer. */
#define SEGS_MAX  (VIRTQ_IOV_MAX - 1)
#define SEGS_READ (VIRTQ_IOV_MAX - 2)
/* The first slot of iov where segments may be: the one before them is for the front. */
#define FIRST_SEG 1
/* One chain more than fits behind what is in hand, at any place before it is moved down. */
#define IOV_SLOTS   (FIRST_SEG + 2 * VIRTQ_IOV_MAX + 1)
#define CHAIN_SLOTS VIRTQ_IOV_MAX
/* A byte more than any frame, so that a full buffer tells that something is missing. */
#define RX_BOUNCE_LEN (NET_RX_MAX + 1)

/* Reads in a row that bring nothing. */
#define STRIKES_MAX 8

enum rx_fill { RX_ENOUGH, RX_EMPTY, RX_STOP };

static void rx_flush(struct net_rx *rx)
{
	virtio_queue_flush(rx->q);
	rx->batch = (struct net_batch){ 0 };
}

static bool rx_has_budget(const struct net_rx *rx)
{
	return rx->frames_left > 0 && rx->bytes_left > 0;
}

/* --- buffers in hand -------------------------------------------------------------------------- */

static void rx_drop_window(struct net_rx *rx)
{
	rx->first_seg = FIRST_SEG;
	rx->n_seg = rx->first_chain = rx->n_chains = 0;
	rx->room = 0;
}

/* Where the segments of the next chain go, with room for all it may have. */
static struct iovec *window_end(struct net_rx *rx)
{
	if (rx->first_seg + rx->n_seg + VIRTQ_IOV_MAX >= IOV_SLOTS) {
		memmove(rx->iov + FIRST_SEG, rx->iov + rx->first_seg, rx->n_seg * sizeof(*rx->iov));
		rx->first_seg = FIRST_SEG;
	}
	return rx->iov + rx->first_seg + rx->n_seg;
}

static void window_add(struct net_rx *rx, const struct chain *c)
{
	rx->chain[(rx->first_chain + rx->n_chains++) % CHAIN_SLOTS] =
		(struct rx_chain){ .head = c->head, .n_seg = c->n_in, .len = c->in_len };
	rx->n_seg += c->n_in;
	rx->room += c->in_len;
}

/* The oldest chains leave, with len bytes in them; returns how many. */
static uint16_t window_push(struct net_rx *rx, uint32_t len)
{
	struct virtq *vq = &rx->q->vq;
	unsigned at = rx->first_chain, n_seg = 0;
	uint64_t room = 0;
	uint16_t n = 0;

	for (; len > 0; n++) {
		const struct rx_chain *c = &rx->chain[at];
		uint32_t step = MIN(len, c->len);

		virtq_push(vq, c->head, step);
		len -= step;
		n_seg += c->n_seg;
		room += c->len;
		at = (at + 1) % CHAIN_SLOTS;
	}
	rx->first_chain = at;
	rx->n_chains -= n;
	rx->first_seg += n_seg;
	rx->n_seg -= n_seg;
	rx->room -= room;
	stat_add(&rx->q->stats.requests, n);
	return n;
}

/* Only writable, and room for the header; without MRG_RXBUF for an empty frame as well. */
static bool usable(const struct net_rx *rx, const struct chain *c)
{
	uint32_t least = rx->mrg ? TAP_HDR_LEN : TAP_HDR_LEN + ETH_HLEN;

	return c->n_out == 0 && c->n_in <= SEGS_MAX && c->in_len >= least;
}

/*
 * Of no use, or a driver's joke: it goes back empty, and counts, so that a flood of them has an
 * end.
 */
static void rx_reject(struct net_rx *rx, const struct chain *c)
{
	virtq_push(&rx->q->vq, c->head, 0);
	stat_add(&rx->q->stats.requests, 1);
	stat_add(&rx->stats.bad, 1);
	rx->batch.frames++;
	rx->frames_left--;
}

static bool rx_enough(const struct net_rx *rx)
{
	return rx->room >= rx->need || rx->n_seg == SEGS_MAX;
}

static enum rx_fill rx_fill(struct net_rx *rx)
{
	struct virtq *vq = &rx->q->vq;
	struct chain c;
	int ret;

	while (!rx_enough(rx)) {
		struct iovec *end = window_end(rx);
		unsigned max = rx->n_seg > 0 ? SEGS_MAX - rx->n_seg : VIRTQ_IOV_MAX;

		if (!rx_has_budget(rx))
			return RX_STOP;
		ret = virtq_pop(vq, end, max, &c);
		if (ret == 0)
			return RX_EMPTY;
		if (ret == -ENOBUFS)
			return RX_ENOUGH; /* as much as one readv takes */
		if (ret < 0) {
			virtio_fail(rx->q, NULL);
			return RX_STOP;
		}
		if (usable(rx, &c))
			window_add(rx, &c);
		else
			rx_reject(rx, &c);
	}
	return RX_ENOUGH;
}

/* --- few buffers, or none --------------------------------------------------------------------- */

static void rx_set_timer(struct net_rx *rx)
{
	const struct itimerspec t = { .it_value.tv_nsec = TICK_NS << rx->ticks };

	if (!rx->timer_set)
		rx->timer_set = timerfd_settime(rx->timer.fd, 0, &t, NULL) == 0;
}

/* Look again after this tick, if nothing else comes before. */
static void rx_wait(struct net_rx *rx, unsigned tick)
{
	if (rx->waiting)
		return;
	rx->waiting = true;
	rx->ticks = tick;
	rx_set_timer(rx);
}

static void rx_count_stall(struct net_rx *rx)
{
	if (!rx->starved)
		stat_add(&rx->stats.stalls, 1);
	rx->starved = true;
}

/* The ring is empty and kicks are asked for.  True: read all the same. */
static bool rx_make_do(struct net_rx *rx)
{
	if (rx->n_chains > 0 && (rx->patience_over || virtq_driver_waits(&rx->q->vq))) {
		rx->starved = rx->waiting = false;
		return true;
	}
	rx_count_stall(rx);
	if (rx->n_chains > 0)
		rx_wait(rx, 0);
	return false;
}

/* True when there are buffers to read into. */
static bool rx_room(struct net_rx *rx)
{
	enum rx_fill got;

	while ((got = rx_fill(rx)) == RX_EMPTY) {
		rx_flush(rx);
		if (!virtq_unmute(&rx->q->vq))
			return rx_make_do(rx);
	}
	if (got == RX_ENOUGH)
		rx->patience_over = rx->starved = rx->waiting = false;
	return got == RX_ENOUGH;
}

static void rx_timer(struct watch *w, uint32_t events)
{
	struct net_rx *rx = container_of(w, struct net_rx, timer);
	uint64_t count;

	(void)events;
	if (read(w->fd, &count, sizeof(count)) != sizeof(count))
		return;
	rx->timer_set = false;
	if (!rx->waiting)
		return;
	rx->patience_over = ++rx->ticks == PATIENCE_TICKS;
	if (!rx->patience_over && !virtq_driver_waits(&rx->q->vq)) {
		rx_set_timer(rx);
		return;
	}
	/* From here on it is a new wait, if any. */
	rx->waiting = false;
	net_rx_pass(rx);
}

/* --- one frame -------------------------------------------------------------------------------- */

/* Hand over the chains in hand with len bytes in them, all in place but for the front. */
static void rx_deliver(struct net_rx *rx, uint32_t len)
{
	struct cursor at = cursor_of(rx->iov + rx->first_seg, rx->n_seg);

	rx->front.hdr.num_buffers = window_push(rx, len);
	(void)cursor_write(&at, &rx->front, MIN(len, sizeof(rx->front)));
	stat_add(&rx->stats.frames, 1);
	stat_add(&rx->stats.bytes, len - TAP_HDR_LEN);
	rx->batch.frames++;
	rx->batch.bytes += len;
	if (rx->batch.frames >= NET_BATCH_FRAMES || rx->batch.bytes >= NET_BATCH_BYTES)
		rx_flush(rx);
}

/* Of len bytes, `direct` lie in place or in the front, the others in the bounce buffer. */
static bool rx_unbounce(struct net_rx *rx, size_t direct, size_t len)
{
	struct cursor to = cursor_of(rx->iov + rx->first_seg, rx->n_seg);

	return len <= direct ||
	       (cursor_skip(&to, direct) && cursor_write(&to, rx->bounce, len - direct));
}

static void rx_frame(struct net_rx *rx, size_t direct, size_t len)
{
	struct net_rx_front *f = &rx->front;

	/* A full bounce buffer: the end may be missing. */
	if (len > rx->room || len - MIN(direct, len) == RX_BOUNCE_LEN) {
		stat_add(&rx->stats.dropped, 1);
		/* Longer than was to be expected: somebody has raised the tap's MTU. */
		if (rx->room >= rx->need && rx->mrg)
			rx->need = NET_RX_MAX;
		return;
	}
	if (len < TAP_HDR_LEN + ETH_HLEN ||
	    !net_hdr_fit_rx(&f->hdr, len - TAP_HDR_LEN, rx->offloads))
		stat_add(&rx->stats.bad, 1);
	else if (f->hdr.gso_type == VIRTIO_NET_HDR_GSO_NONE && len > rx->longest)
		stat_add(&rx->stats.dropped, 1);
	else if (!net_filter_passes(rx->filter, f->eth, MIN(len, sizeof(*f)) - TAP_HDR_LEN))
		stat_add(&rx->stats.filtered, 1);
	else if (rx_unbounce(rx, direct, len))
		rx_deliver(rx, (uint32_t)len);
}

/* The other end of a socket is closed: nothing will come any more. */
static bool rx_closed(const struct net_rx *rx)
{
	struct pollfd p = { .fd = rx->fd };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

/*
 * A read that brought nothing: is there to be another?  Whatever it was may have cost one frame (EFAULT,
 * EINVAL: a header the kernel cannot make) or be a message without bytes, and there will be no edge for
 * those behind it.  It may also be the end of a socket, or stay: so after some strikes, look again later.
 */
static bool rx_read_on(struct net_rx *rx, ssize_t n)
{
	int err = n < 0 ? errno : 0;

	/* EBADFD: a deleted tap; the link is down then, and TX says it. */
	if (err == EAGAIN || err == EBADFD)
		return false;
	if (err == EINTR)
		return true;
	if (err && err != ENOMEM) {
		stat_add(&rx->stats.dropped, 1);
		log_limited(LOG_LEVEL_WARN, "%s: cannot read from %s: %s", rx->q->name,
			    *rx->net->tap.name ? rx->net->tap.name : "the other end", strerror(err));
	}
	if (err != ENOMEM && ++rx->strikes < STRIKES_MAX)
		return true;
	rx->strikes = 0;
	if (n < 0 || !rx_closed(rx))
		rx_wait(rx, LATE_TICK);
	return false;
}

/* Segments for a frame as those before it were, and their bytes: one at least. */
static unsigned rx_segs_likely(const struct net_rx *rx, size_t *bytes)
{
	const struct iovec *v = rx->iov + rx->first_seg;
	unsigned n = 0, max = MIN(rx->n_seg, SEGS_READ);

	*bytes = 0;
	do
		*bytes += v[n++].iov_len;
	while (n < max && (*bytes < rx->likely || *bytes < sizeof(rx->front)));
	return n;
}

/*
 * Read a frame: its front, then n_seg segments from where the front ends in them, then the bounce
 * buffer.  The slots that are borrowed for it are put back.
 */
static ssize_t rx_read(struct net_rx *rx, unsigned n_seg)
{
	struct iovec *v = rx->iov + rx->first_seg, *end = v + n_seg, before, cut, behind = *end;
	size_t skip = sizeof(rx->front);
	ssize_t n;

	for (; v < end && v->iov_len <= skip; v++)
		skip -= v->iov_len;
	before = v[-1];
	cut = *v;
	v[-1] = (struct iovec){ .iov_base = &rx->front, .iov_len = sizeof(rx->front) };
	if (v < end) {
		v->iov_base = (uint8_t *)v->iov_base + skip;
		v->iov_len -= skip;
	}
	*end = (struct iovec){ .iov_base = rx->bounce, .iov_len = RX_BOUNCE_LEN };
	n = readv(rx->fd, v - 1, (int)(end - v) + 2);
	*end = behind;
	v[-1] = before;
	*v = cut;
	return n;
}

/* At once for more, slowly for less: large frames come with small ones between them. */
static void rx_learn(struct net_rx *rx, size_t len)
{
	if (len >= rx->likely)
		rx->likely = len;
	else
		rx->likely -= (rx->likely - len) / 16;
}

/* True: there may be more. */
static bool rx_one(struct net_rx *rx)
{
	size_t direct;
	unsigned n_seg;
	ssize_t n;

	if (!rx_room(rx))
		return false;
	n_seg = rx_segs_likely(rx, &direct);
	n = rx_read(rx, n_seg);
	rx->frames_left--;
	if (n <= 0)
		return rx_read_on(rx, n);
	rx->strikes = 0;
	rx->bytes_left -= n;
	rx_learn(rx, (size_t)n);
	rx_frame(rx, MAX(direct, sizeof(rx->front)), (size_t)n);
	return true;
}

void net_rx_pass(struct net_rx *rx)
{
	bool more = true;

	if (!rx->active || rx->q->vq.broken)
		return;
	rx->frames_left = NET_BUDGET_FRAMES;
	rx->bytes_left = NET_BUDGET_BYTES;
	virtq_mute(&rx->q->vq);
	while (more && rx_has_budget(rx))
		more = rx_one(rx);
	rx_flush(rx);
	if (!rx_has_budget(rx))
		virtio_queue_again(rx->q);
}

static void rx_readable(struct watch *w, uint32_t events)
{
	(void)events;
	net_rx_pass(container_of(w, struct net_rx, tap));
}

/* --- life ------------------------------------------------------------------------------------- */

/* Any frame that the driver and the tap may agree on. */
static uint32_t largest_frame(const struct net_rx *rx)
{
	unsigned mtu = rx->net->tap_mtu;

	if (rx->offloads & ~(unsigned)TUN_F_CSUM || mtu == 0)
		return NET_RX_MAX;
	return MIN(TAP_HDR_LEN + ETH_HLEN + 8 + mtu, (unsigned)NET_RX_MAX);
}

/* Virtio 1.2, 5.1.4.1: with F_MTU nothing longer than that may come, unless it is segmented. */
static uint32_t longest_packet(const struct net *net, uint64_t features)
{
	if (!(features >> VIRTIO_NET_F_MTU & 1))
		return NET_RX_MAX;
	return TAP_HDR_LEN + ETH_HLEN + 8 + net->config.mtu; /* and two VLAN tags */
}

int net_rx_begin(struct net_rx *rx)
{
	struct loop *loop = &rx->q->thread->loop;
	uint64_t features = rx->q->dev->driver_features;
	int err;

	rx->mrg = features >> VIRTIO_NET_F_MRG_RXBUF & 1;
	rx->offloads = rx->net->offloads;
	rx->need = rx->mrg ? largest_frame(rx) : 1;
	rx->filter = &rx->net->filter[rx->net->filter_now];
	rx->active = rx == &rx->net->rx[0];
	rx->starved = rx->waiting = rx->patience_over = false;
	rx->likely = 0;
	rx->strikes = 0;
	rx->longest = longest_packet(rx->net, features);
	rx->batch = (struct net_batch){ 0 };
	rx_drop_window(rx);
	err = loop_watch(loop, &rx->tap, EPOLLIN | EPOLLET);
	if (!err)
		err = loop_watch(loop, &rx->timer, EPOLLIN);
	if (err)
		net_rx_end(rx);
	return err;
}

void net_rx_end(struct net_rx *rx)
{
	struct loop *loop = &rx->q->thread->loop;

	(void)loop_watch(loop, &rx->tap, 0);
	(void)loop_watch(loop, &rx->timer, 0);
	rx->active = false;
	rx_drop_window(rx);
}

int net_rx_init(struct net_rx *rx, struct net *net, unsigned pair)
{
	rx->q = &net->dev.queue[(size_t)pair * 2];
	rx->net = net;
	rx->fd = net->tap.fd[pair];
	rx->tap = (struct watch){ .fd = rx->fd, .ready = rx_readable };
	rx->timer =
		(struct watch){ .fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
				.ready = rx_timer };
	if (rx->timer.fd < 0)
		return -errno;
	rx->iov = calloc(IOV_SLOTS, sizeof(*rx->iov));
	rx->chain = calloc(CHAIN_SLOTS, sizeof(*rx->chain));
	rx->bounce = malloc(RX_BOUNCE_LEN); /* costs memory when it is first used */
	return rx->iov && rx->chain && rx->bounce ? 0 : -ENOMEM;
}

void net_rx_destroy(struct net_rx *rx)
{
	if (rx->timer.ready && rx->timer.fd >= 0)
		close(rx->timer.fd);
	free(rx->iov);
	free(rx->chain);
	free(rx->bounce);
}
