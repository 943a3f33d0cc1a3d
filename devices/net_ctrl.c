/*
 * The control queue, and the link (virtio 1.2, "Control Virtqueue", "Device configuration layout").
 *
 * Everything here runs on the control thread, which owns the number of pairs in use, the filter and
 * the link's state, and alone changes the tap.  What a receiver has to know it is told by a call to
 * its own thread; while the control queue runs all other queues do, since it begins last and ends
 * first.
 *
 * Pairs: to use more, attach their tap queues, then let the receivers read; to use fewer, detach
 * from the top (the kernel waits for senders in flight and throws away what was queued there), then
 * stop the receivers.  When the command is answered no frame comes in on another pair any more.
 *
 * Filter: there are two, one that the receivers have and one to prepare.  When every receiver has
 * been handed the new one, the old is free.
 *
 * Link: a netlink socket says that some link changed; the tap is asked for its state.  Some time after
 * the link came up again the guest is asked to announce itself, for the host may have plugged the tap
 * into another bridge.  Not at once: Linux announces before it turns its carrier on, into the void, and
 * 6.12 before July 2025 hangs when its probe finds the request.
 *
 * Pace: changing a tap's queues or offloads takes the lock under which all network set-up of the host
 * happens.  A guest gets a handful of changes at once and then so many a second.
 */
#include "devices/net_internal.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/iov.h"
#include "vmm/log.h"

#define CTRL_BUDGET 16
#define ANNOUNCE_S  1
#define PACE_NS     50000000 /* a change */
#define PACE_BURST  20

static bool has(const struct net *net, unsigned bit)
{
	return net->features >> bit & 1;
}

/* --- telling the receivers -------------------------------------------------------------------- */

struct rx_order {
	struct net_rx *rx;
	const struct net_filter *filter;
	unsigned offloads;
	bool active;
};

static int rx_obey(void *arg)
{
	const struct rx_order *o = arg;
	bool was_active = o->rx->active;

	if (!o->rx->q->running)
		return 0;
	o->rx->filter = o->filter;
	o->rx->offloads = o->offloads;
	o->rx->active = o->active;
	/* Frames may have come in before anybody read them: their edge is gone. */
	if (!was_active)
		net_rx_pass(o->rx);
	return 0;
}

/* What receivers are to know now. */
static void tell_receivers(struct net *net)
{
	for (unsigned i = 0; i < net->run_pairs; i++) {
		struct rx_order o = {
			.rx = &net->rx[i],
			.filter = &net->filter[net->filter_now],
			.offloads = net->offloads,
			.active = i < net->tap.attached,
		};

		(void)iothread_call(o.rx->q->thread, rx_obey, &o);
	}
}

static struct net_filter *filter_edit(struct net *net)
{
	struct net_filter *next = &net->filter[!net->filter_now];

	*next = net->filter[net->filter_now];
	return next;
}

static void filter_publish(struct net *net)
{
	net->filter_now = !net->filter_now;
	tell_receivers(net);
}

/* --- pace ------------------------------------------------------------------------------------- */

static void pace(struct net *net)
{
	struct timespec t;
	int64_t now;

	if (!net->tap.kernel)
		return; /* a socket: nobody's lock */
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
	net->paced_ns = MAX(net->paced_ns, now - (int64_t)PACE_NS * PACE_BURST) + PACE_NS;
	if (net->paced_ns <= now)
		return;
	t.tv_sec = (net->paced_ns - now) / 1000000000;
	t.tv_nsec = (net->paced_ns - now) % 1000000000;
	nanosleep(&t, NULL);
}

static int change_offloads(struct net *net, unsigned offloads)
{
	if (offloads != net->tap.offloads_now)
		pace(net);
	return tap_set_offloads(&net->tap, offloads);
}

static int change_pairs(struct net *net, unsigned n)
{
	if (n != net->tap.attached)
		pace(net);
	return tap_attach(&net->tap, n);
}

/* --- commands: true = done -------------------------------------------------------------------- */

struct command {
	uint8_t cmd;
	struct cursor in; /* what follows the two bytes that name it */
};

static bool set_rx_mode(struct net *net, struct command *c)
{
	uint8_t on;

	if (!cursor_read(&c->in, &on, sizeof(on)))
		return false;
	filter_edit(net)->mode[c->cmd] = on != 0;
	filter_publish(net);
	return true;
}

/*
 * One of the two tables: a count and so many addresses.  More than there is room for is all of
 * them.
 */
static bool read_macs(struct net_filter *f, bool multi, struct cursor *in)
{
	uint8_t mac[ETH_ALEN];
	uint32_t n;

	if (!cursor_read(in, &n, sizeof(n)) || cursor_left(in) / ETH_ALEN < n)
		return false;
	f->too_many[multi] = n > NET_MACS_MAX;
	if (f->too_many[multi])
		return cursor_skip(in, (size_t)n * ETH_ALEN);
	for (; n > 0; n--) {
		if (!cursor_read(in, mac, sizeof(mac)))
			return false;
		f->mac[f->n_macs++] = net_mac_number(mac);
	}
	return true;
}

static bool set_mac_table(struct net *net, struct command *c)
{
	struct net_filter *f = filter_edit(net);

	f->n_macs = 0;
	if (!read_macs(f, false, &c->in) || !read_macs(f, true, &c->in))
		return false;
	filter_publish(net);
	return true;
}

static bool set_mac(struct net *net, struct command *c)
{
	uint8_t mac[ETH_ALEN];

	if (!cursor_read(&c->in, mac, sizeof(mac)) || (mac[0] & 1))
		return false;
	filter_edit(net)->own = net_mac_number(mac);
	filter_publish(net);
	virtio_config_store(net->config.mac, mac, sizeof(mac));
	return true;
}

static bool set_vlan(struct net *net, struct command *c)
{
	struct net_filter *f;
	uint64_t bit;
	uint16_t id;

	if (!cursor_read(&c->in, &id, sizeof(id)) || id >= NET_VLANS)
		return false;
	f = filter_edit(net);
	bit = 1ULL << id % 64;
	if (c->cmd == VIRTIO_NET_CTRL_VLAN_ADD)
		f->vlan[id / 64] |= bit;
	else
		f->vlan[id / 64] &= ~bit;
	filter_publish(net);
	return true;
}

static void store_status(struct net *net, uint16_t status)
{
	virtio_config_store(&net->config.status, &status, sizeof(status));
}

static bool ack_announce(struct net *net, struct command *c)
{
	(void)c;
	net->announce = false;
	store_status(net, net->link_up ? VIRTIO_NET_S_LINK_UP : 0);
	return true;
}

static bool pair_runs(const struct net *net, unsigned i)
{
	return net->rx[i].q->running && net->tx[i].q->running;
}

static bool set_pairs(struct net *net, struct command *c)
{
	unsigned before = net->tap.attached;
	uint16_t n;
	int err;

	if (!cursor_read(&c->in, &n, sizeof(n)) || n < 1 || n > net->run_pairs)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (!pair_runs(net, i))
			return false;
	err = change_pairs(net, n);
	if (err) {
		log_limited(LOG_LEVEL_WARN,
			    "%s: %s has %u queues attached, not %u (TUNSETQUEUE): %s",
			    net->dev.name, net->tap.name, net->tap.attached, n, strerror(-err));
		/* The driver goes on with as many as before. */
		(void)tap_attach(&net->tap, before);
	}
	tell_receivers(net);
	return !err;
}

static bool set_guest_offloads(struct net *net, struct command *c)
{
	uint64_t possible = net_features_rx(TAP_OFFLOADS_ALL) & net->features, bits;
	unsigned before = net->offloads, wanted;
	int err;

	if (!cursor_read(&c->in, &bits, sizeof(bits)) || (bits & ~possible))
		return false;
	/* Frames of the old kind and of the new are on their way until the tap has changed. */
	wanted = net_offloads_rx(bits);
	net->offloads = before | wanted;
	tell_receivers(net);
	err = change_offloads(net, wanted);
	net->offloads = err ? before : wanted;
	tell_receivers(net);
	return !err;
}

/* Which commands there are, and the feature that a driver must have taken to give them. */
static const struct {
	uint8_t class, first, last;
	uint8_t feature;
	bool (*run)(struct net *net, struct command *c);
} commands[] = {
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_CTRL_RX_ALLMULTI,
	  VIRTIO_NET_F_CTRL_RX, set_rx_mode },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLUNI, VIRTIO_NET_CTRL_RX_NOBCAST,
	  VIRTIO_NET_F_CTRL_RX_EXTRA, set_rx_mode },
	{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_CTRL_MAC_TABLE_SET,
	  VIRTIO_NET_F_CTRL_RX, set_mac_table },
	{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, VIRTIO_NET_CTRL_MAC_ADDR_SET,
	  VIRTIO_NET_F_CTRL_MAC_ADDR, set_mac },
	{ VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, VIRTIO_NET_CTRL_VLAN_DEL,
	  VIRTIO_NET_F_CTRL_VLAN, set_vlan },
	{ VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK, VIRTIO_NET_CTRL_ANNOUNCE_ACK,
	  VIRTIO_NET_F_GUEST_ANNOUNCE, ack_announce },
	{ VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
	  VIRTIO_NET_F_MQ, set_pairs },
	{ VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
	  VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, VIRTIO_NET_F_CTRL_GUEST_OFFLOADS,
	  set_guest_offloads },
};

static uint8_t run_command(struct net *net, struct cursor in)
{
	struct virtio_net_ctrl_hdr h;
	struct command c = { .in = in };

	if (!cursor_read(&c.in, &h, sizeof(h)))
		return VIRTIO_NET_ERR;
	c.cmd = h.cmd;
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].class == h.class && h.cmd >= commands[i].first &&
		    h.cmd <= commands[i].last && has(net, commands[i].feature))
			return commands[i].run(net, &c) ? VIRTIO_NET_OK : VIRTIO_NET_ERR;
	return VIRTIO_NET_ERR;
}

/* --- the queue -------------------------------------------------------------------------------- */

/* A command that leaves no room for the answer is not carried out. */
static void serve(struct net *net, struct virtio_queue *q, const struct chain *c)
{
	struct cursor in = cursor_of(c->iov, c->n_out), out = cursor_of(c->iov + c->n_out, c->n_in);
	uint32_t written = 0;
	uint8_t ack;

	if (c->in_len > 0) {
		ack = run_command(net, in);
		written = cursor_write(&out, &ack, sizeof(ack)) ? sizeof(ack) : 0;
	}
	virtq_push(&q->vq, c->head, written);
	stat_add(&q->stats.requests, 1);
	virtio_queue_flush(q);
}

void net_ctrl_pass(struct net *net, struct virtio_queue *q)
{
	unsigned budget = CTRL_BUDGET;
	struct chain c;
	int ret;

	do {
		virtq_mute(&q->vq);
		while ((ret = virtq_pop(&q->vq, net->ctrl_iov, VIRTQ_IOV_MAX, &c)) == 1) {
			serve(net, q, &c);
			if (--budget == 0) {
				virtio_queue_again(q);
				return;
			}
		}
		if (ret < 0) {
			virtio_fail(q, NULL);
			return;
		}
	} while (virtq_unmute(&q->vq));
}

/* --- the link --------------------------------------------------------------------------------- */

static void set_announce_timer(struct net *net, time_t seconds)
{
	const struct itimerspec t = { .it_value.tv_sec = seconds };

	timerfd_settime(net->announce_timer.fd, 0, &t, NULL);
}

/* What the guest can read of the link, and that it should. */
static void say_status(struct net *net)
{
	store_status(net, (uint16_t)((net->link_up ? VIRTIO_NET_S_LINK_UP : 0) |
				     (net->announce ? VIRTIO_NET_S_ANNOUNCE : 0)));
	if (has(net, VIRTIO_NET_F_STATUS))
		virtio_config_interrupt(&net->dev);
}

/* Taking notice of the tap's state; the guest hears of it while it runs and cares. */
static void link_update(struct net *net)
{
	bool up = tap_link_up(&net->tap);

	if (up == net->link_up)
		return;
	net->link_up = up;
	say_status(net);
	set_announce_timer(net, up && has(net, VIRTIO_NET_F_GUEST_ANNOUNCE) ? ANNOUNCE_S : 0);
}

static void announce_due(struct watch *w, uint32_t events)
{
	struct net *net = container_of(w, struct net, announce_timer);
	uint64_t count;

	(void)events;
	if (read(w->fd, &count, sizeof(count)) != sizeof(count) || !net->link_up ||
	    !has(net, VIRTIO_NET_F_GUEST_ANNOUNCE))
		return;
	net->announce = true;
	say_status(net);
}

static void link_ready(struct watch *w, uint32_t events)
{
	struct net *net = container_of(w, struct net, link);

	(void)events;
	tap_link_drain(&net->tap);
	link_update(net);
}

int net_link_watch(struct net *net)
{
	struct loop *loop = &net->ctrl_thread->loop;
	int err;

	link_update(net);
	net->link = (struct watch){ .fd = net->tap.link_fd, .ready = link_ready };
	err = loop_watch(loop, &net->announce_timer, EPOLLIN);
	if (err || net->link.fd < 0)
		return err;
	return loop_watch(loop, &net->link, EPOLLIN);
}

int net_link_init(struct net *net)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	net->announce_timer = (struct watch){ .fd = fd, .ready = announce_due };
	return fd < 0 ? -errno : 0;
}

void net_link_destroy(struct net *net)
{
	if (net->announce_timer.ready && net->announce_timer.fd >= 0)
		close(net->announce_timer.fd);
}

/* --- begin and end of a run ------------------------------------------------------------------- */

int net_ctrl_start(void *arg)
{
	struct net *net = arg;
	int err;

	net->features = net->dev.driver_features;
	net->announce = false;
	net->tap_mtu = tap_mtu(&net->tap);
	net->filter_now = 0;
	net_filter_init(&net->filter[0], net->mac, has(net, VIRTIO_NET_F_CTRL_VLAN));
	net->offloads = net_offloads_rx(net->features);
	err = change_offloads(net, net->offloads);
	net->link_up = tap_link_up(&net->tap);
	/* A tap that was deleted has a link that is down; its guest starts all the same. */
	if (err && net->link_up)
		log_limited(LOG_LEVEL_WARN,
			    "%s: %s does not take the guest's offloads (TUNSETOFFLOAD): %s",
			    net->dev.name, net->tap.name, strerror(-err));
	if (err)
		net->offloads = tap_set_offloads(&net->tap, 0) ? net->offloads : 0;
	store_status(net, net->link_up ? VIRTIO_NET_S_LINK_UP : 0);
	return 0;
}

int net_ctrl_stop(void *arg)
{
	struct net *net = arg;

	(void)change_pairs(net, 1);
	set_announce_timer(net, 0);
	net->features = 0;
	virtio_config_store(net->config.mac, net->mac, sizeof(net->mac));
	net->announce = false;
	store_status(net, net->link_up ? VIRTIO_NET_S_LINK_UP : 0);
	return 0;
}
