/*
 * Fuzzer of the network device, with sockets for a tap.  The input first chooses features, then is
 * a program for a hostile driver (descriptors, frames, commands, scribbles) and a hostile network
 * (frames with any header), with kicks and the other events of the device's loops between.
 *
 * No threads: the device is launched with none, so that iothread_call() runs in the caller, and
 * events are served from here, in the input's order.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "devices/net.h"
#include "devices/net_internal.h"
#include "tests/fuzz/input.h"
#include "tests/unit/ring.h"
#include "vmm/log.h"

#define PAIRS  2
#define QUEUES (2 * PAIRS + 1)
#define SIZE   64
#define AREA   0x20000u /* buffers; tables lie in front of it */
#define TABLES 0x10000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct guest g;
static struct device device;
static struct virtio_dev *d;
static struct net *net;
static struct ring ring[QUEUES];
static int far[PAIRS];
static uint8_t bytes[70000];

static void create(void)
{
	struct device_env env = { .name = "net0", .mem = &g.mem, .n_vcpus = 2 };
	char spec[96];
	int near[PAIRS];

	/* What a guest does wrong is logged, and every run does much wrong. */
	log_set_level(LOG_LEVEL_ERROR);
	guest_create_default(&g);
	for (unsigned i = 0; i < PAIRS; i++) {
		int pair[2];

		require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
		near[i] = pair[0];
		far[i] = pair[1];
		/* So that a few frames fill it. */
		require(setsockopt(near[i], SOL_SOCKET, SO_SNDBUF, &(int){ 40000 }, sizeof(int)) ==
			0);
	}
	snprintf(spec, sizeof(spec), "fds=%d:%d,ring=%d,offload=all", near[0], near[1], SIZE);
	require(net_create(spec, &env, &device) == 0);
	d = device.dev;
	net = container_of(d, struct net, dev);
	for (unsigned i = 0; i < d->n_threads; i++)
		require(loop_init(&d->thread[i].loop) == 0);
	d->n_threads = 0;
	require(virtio_dev_launch(d, NULL) == 0);
	for (unsigned i = 0; i < QUEUES; i++)
		ring_init(&ring[i], &g, SIZE, true);
	require(g.next_gpa <= TABLES);
}

/* As an honest driver would, with features and queues of the input's choice. */
static void bring_up(struct input *in)
{
	uint64_t features = ~take(in, 8) | 1ULL << VIRTIO_F_VERSION_1;
	uint8_t x = (uint8_t)take(in, 1);

	virtio_status_write(d, 0);
	virtio_status_write(d, 3);
	features &= d->features;
	virtio_driver_features_write(d, 0, (uint32_t)features);
	virtio_driver_features_write(d, 1, (uint32_t)(features >> 32));
	virtio_status_write(d, 11);
	for (unsigned i = 0; i < QUEUES; i++) {
		struct virtio_queue *q = virtio_queue_settable(d, i);

		ring[i].size = x & 0x80 ? 8 : SIZE;
		ring[i].event_idx = features >> VIRTIO_RING_F_EVENT_IDX & 1;
		ring_reset(&ring[i]);
		q->desc_gpa = ring[i].desc_gpa;
		q->avail_gpa = ring[i].avail_gpa;
		q->used_gpa = ring[i].used_gpa;
		q->size = ring[i].size;
		q->enabled = !(x >> i & 1);
	}
	virtio_status_write(d, 15);
}

/* Mostly in the area; also at the edges of RAM, or nowhere. */
static uint64_t take_gpa(struct input *in)
{
	static const uint64_t edge[] = { 0, 4u << 20, 5u << 20, 4ull << 30,
					 (4ull << 30) + (1u << 20) };
	uint8_t x = (uint8_t)take(in, 1);

	if (x < 200)
		return AREA + x * 512u;
	if (x < 250)
		return edge[x % ARRAY_SIZE(edge)] + take(in, 1) - 128;
	return take(in, 8);
}

static uint32_t take_len(struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);

	if (x < 64)
		return x;
	if (x < 250)
		return (x - 60u) * 16;
	return (uint32_t)take(in, 4);
}

/* A chain of the input's choice: direct, or in a table. */
static void add_chain(struct input *in, unsigned i)
{
	uint8_t x = (uint8_t)take(in, 1);
	unsigned n = 1 + (x & 7), first_in = x >> 3 & 7;
	struct seg s[8];

	for (unsigned k = 0; k < n; k++)
		s[k] = (struct seg){ take_gpa(in), take_len(in), k >= first_in };
	if (x & 0x80)
		ring_add_indirect(&ring[i], TABLES + i * 0x1000, s, n);
	else if (n <= ring[i].size)
		ring_add(&ring[i], s, n);
}

/* Hundreds of small segments, which no fuzzer would find one by one. */
static void add_long_chain(struct input *in, unsigned i)
{
	unsigned n = 1 + (unsigned)take(in, 2) % 1030,
		 head = ring[i].next_desc++ & (ring[i].size - 1);
	uint16_t flags = take(in, 1) & 1 ? VRING_DESC_F_WRITE : 0;
	struct vring_desc *table = guest_at(&g, TABLES + 0x8000);
	uint8_t step = (uint8_t)take(in, 1);

	for (unsigned k = 0; k < n; k++)
		table[k] = (struct vring_desc){
			AREA + k * step, step,
			(uint16_t)(flags | (k + 1 < n ? VRING_DESC_F_NEXT : 0)), (uint16_t)(k + 1)
		};
	ring[i].desc[head] =
		(struct vring_desc){ TABLES + 0x8000, 16 * n, VRING_DESC_F_INDIRECT, 0 };
	ring_offer(&ring[i], (uint16_t)head);
	ring_show(&ring[i]);
}

/* Some receive buffers of one size, as drivers post them. */
static void post(struct input *in, unsigned pair)
{
	unsigned n = (unsigned)take(in, 1) % SIZE, len = (unsigned)take(in, 2);

	for (unsigned k = 0; k < n; k++) {
		const struct seg s = { AREA + k * 0x400u, len, true };

		ring_add(&ring[2 * pair], &s, 1);
	}
}

/* A frame that makes sense up to its header, which is the input's. */
static void add_frame(struct input *in, unsigned pair)
{
	uint64_t hdr[2] = { take(in, 8), take(in, 2) };
	uint32_t len = TAP_HDR_LEN + (uint32_t)take(in, 2);
	const struct seg s = { AREA, len, false };

	memcpy(guest_at(&g, AREA), hdr, 10);
	ring_add(&ring[2 * pair + 1], &s, 1);
}

static void add_command(struct input *in)
{
	unsigned i = net->ctrl_index ? net->ctrl_index : QUEUES - 1;
	uint8_t *p = guest_at(&g, AREA);
	uint32_t len = (uint32_t)take(in, 1);
	const struct seg s[] = { { AREA, 2 + len, false }, { AREA + 0x1000, 1, true } };

	p[0] = (uint8_t)take(in, 1) % 7;
	p[1] = (uint8_t)take(in, 1) % 7;
	for (uint32_t k = 0; k < len; k++)
		p[2 + k] = (uint8_t)take(in, 1);
	ring_add(&ring[i], s, 2);
}

static void scribble(struct input *in)
{
	uint8_t *p = guest_at(&g, GUEST_PAGE);
	uint16_t at = (uint16_t)take(in, 2);

	for (unsigned k = 0; k < 8; k++)
		p[(at + k) % 0x8000] = (uint8_t)take(in, 1);
}

static void send_frame(struct input *in, unsigned pair)
{
	uint64_t hdr[2] = { take(in, 8), take(in, 2) };
	size_t len = (size_t)take(in, 2);

	memcpy(bytes, hdr, 10);
	for (unsigned k = 0; k < 16; k++)
		bytes[TAP_HDR_LEN + k] = (uint8_t)take(in, 1);
	if (len > 0)
		(void)!send(far[pair], bytes, len + (len > 60000 ? 4000 : 0), MSG_NOSIGNAL);
}

static void drain(int fd)
{
	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* --- what the loops would call ---------------------------------------------------------------- */

static void kick(unsigned i)
{
	struct virtio_queue *q = &d->queue[i];

	if (q->running && !q->vq.broken)
		d->class->queue_kick(q);
}

static void tap_event(unsigned pair)
{
	struct net_rx *rx = &net->rx[pair];
	struct net_tx *tx = &net->tx[pair];

	if (rx->tap.events)
		rx->tap.ready(&rx->tap, EPOLLIN);
	if (tx->out.events)
		tx->out.ready(&tx->out, EPOLLOUT);
}

static void timer_event(unsigned pair)
{
	const struct itimerspec now = { .it_value.tv_nsec = 1 };
	struct net_rx *rx = &net->rx[pair];

	if (!rx->timer.events || !rx->timer_set)
		return;
	require(timerfd_settime(rx->timer.fd, 0, &now, NULL) == 0);
	rx->timer.ready(&rx->timer, EPOLLIN);
}

/* --- what must hold --------------------------------------------------------------------------- */

static void check_window(const struct net_rx *rx)
{
	uint64_t room = 0;
	unsigned segs = 0;

	for (unsigned k = 0; k < rx->n_chains; k++) {
		const struct rx_chain *c = &rx->chain[(rx->first_chain + k) % VIRTQ_IOV_MAX];

		room += c->len;
		segs += c->n_seg;
	}
	require(room == rx->room && segs == rx->n_seg && segs < VIRTQ_IOV_MAX);
	room = 0;
	for (unsigned k = 0; k < segs; k++)
		room += rx->iov[rx->first_seg + k].iov_len;
	require(room == rx->room);
	require(!rx->waiting || rx->timer_set);
}

static void check(void)
{
	uint8_t status = virtio_status_read(d);
	bool broken = false;

	for (unsigned i = 0; i < QUEUES; i++) {
		const struct virtio_queue *q = &d->queue[i];
		unsigned held = 0;

		if (!q->running)
			continue;
		broken |= q->vq.broken;
		if (i % 2 == 0 && i < 2 * net->run_pairs) {
			check_window(&net->rx[i / 2]);
			held = net->rx[i / 2].n_chains;
		}
		/*
		 * Nothing is kept but the receive buffers in hand, and nothing is left unpublished.
		 */
		require(q->vq.broken ||
			(q->vq.in_flight == held && q->vq.next_used == q->vq.published));
	}
	require(!broken || (status & VIRTIO_CONFIG_S_NEEDS_RESET));
	require(net->tap.attached >= 1 && net->tap.attached <= PAIRS);
}

static void step(struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);
	unsigned queue = (x >> 4) % QUEUES, pair = (x >> 4) % PAIRS;

	switch (x & 15) {
	case 0:
		add_chain(in, queue);
		break;
	case 1:
		add_long_chain(in, queue);
		break;
	case 2:
	case 3:
		post(in, pair);
		break;
	case 4:
		add_frame(in, pair);
		break;
	case 5:
		add_command(in);
		break;
	case 6:
		scribble(in);
		break;
	case 7:
	case 8:
		send_frame(in, pair);
		break;
	case 9:
		drain(far[pair]);
		break;
	case 10:
		tap_event(pair);
		break;
	case 11:
		timer_event(pair);
		break;
	case 12:
		*ring_used_event(&ring[queue]) =
			(uint16_t)(ring[queue].used->idx + take(in, 1) % 3 - 1);
		break;
	case 13:
		bring_up(in);
		break;
	default:
		kick(queue);
	}
	check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!g.ram)
		create();
	for (unsigned i = 0; i < PAIRS; i++) {
		drain(far[i]);
		drain(net->tap.fd[i]);
	}
	memset(g.ram, 0, AREA + 0x1000);
	bring_up(&in);
	while (in.left > 0)
		step(&in);
	return 0;
}
