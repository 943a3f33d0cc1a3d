/*
 * A network device with a fake guest at one end and sockets (or a real tap, the test's choice) at
 * the other. far[i] is the other end of pair i: what is sent there the guest receives, with the
 * virtio header in front.
 */
#ifndef TESTS_UNIT_NET_RIG_H
#define TESTS_UNIT_NET_RIG_H

#include <check.h>
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "devices/net.h"
#include "devices/net_internal.h"
#include "tests/unit/ring.h"
#include "vmm/irq.h"

#define RIG_PAIRS_MAX 64
#define RIG_QUEUES    (2 * RIG_PAIRS_MAX + 1)
#define HDR           TAP_HDR_LEN
#define FRAME_MAX     70000

#define RX(pair) (2 * (pair))
#define TX(pair) (2 * (pair) + 1)
#define BIT(n)   (1ULL << (n))

struct rig {
	struct guest g;
	struct device device;
	struct virtio_dev *d;
	struct net *net;
	unsigned pairs;
	unsigned ctrl; /* index of the control queue, as started */
	int far[RIG_PAIRS_MAX];
	struct ring ring[RIG_QUEUES];
	int call[RIG_QUEUES], config_call;
	uint16_t size;
	uint64_t area; /* buffers; the bump pointer is reset by rig_reset */
	uint64_t area_next, area_end;
};

static inline void rig_guest(struct rig *r)
{
	const struct mem_region layout[] = {
		{ .gpa = 0, .len = 96u << 20 },
		{ .gpa = 96u << 20, .len = 1u << 20 },
		{ .gpa = 4ull << 30, .len = 1u << 20 },
	};

	guest_create(&r->g, layout, ARRAY_SIZE(layout));
}

/* Launch what net_create made of spec. */
static inline int rig_launch(struct rig *r, const char *spec, unsigned n_vcpus, uint16_t size)
{
	const struct device_env env = { .name = "net0", .mem = &r->g.mem, .n_vcpus = n_vcpus };
	char copy[1024];
	int err;

	snprintf(copy, sizeof(copy), "%s", spec);
	err = net_create(copy, &env, &r->device);
	if (err)
		return err;
	r->d = r->device.dev;
	r->net = container_of(r->d, struct net, dev);
	r->pairs = r->net->n_pairs;
	r->size = size;
	err = virtio_dev_launch(r->d, r->device.thread_start);
	if (err)
		return err;
	for (unsigned i = 0; i < r->d->n_queues; i++) {
		ring_init(&r->ring[i], &r->g, size, true);
		r->call[i] = eventfd(0, EFD_NONBLOCK);
		r->d->queue[i].call_fd = r->call[i];
	}
	r->config_call = eventfd(0, EFD_NONBLOCK);
	r->d->config_call_fd = r->config_call;
	r->area = r->area_next = guest_alloc(&r->g, 32u << 20, GUEST_PAGE);
	r->area_end = r->area + (32u << 20);
	return 0;
}

/* Socket pairs for a tap; more options in `more`, which starts with a comma. */
static inline void rig_create(struct rig *r, unsigned pairs, uint16_t size, const char *more)
{
	char spec[1024] = "fds=";
	size_t len;

	*r = (struct rig){ .pairs = pairs };
	rig_guest(r);
	for (unsigned i = 0; i < pairs; i++) {
		int pair[2];

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		r->far[i] = pair[1];
		len = strlen(spec);
		snprintf(spec + len, sizeof(spec) - len, "%s%d", i ? ":" : "", pair[0]);
	}
	len = strlen(spec);
	snprintf(spec + len, sizeof(spec) - len, ",ring=%u%s", size, more);
	ck_assert_int_eq(rig_launch(r, spec, pairs, size), 0);
}

static inline void rig_destroy(struct rig *r)
{
	virtio_dev_shutdown(r->d);
	for (unsigned i = 0; i < r->d->n_queues; i++)
		close(r->call[i]);
	close(r->config_call);
	for (unsigned i = 0; i < r->pairs; i++)
		if (r->far[i] > 0)
			close(r->far[i]);
	r->d->class->destroy(r->d);
	guest_destroy(&r->g);
}

/*
 * Negotiate these features (of what is offered), give all queues of n pairs and the control queue.
 */
static inline void rig_start_some(struct rig *r, uint64_t features, unsigned n)
{
	features = (features & r->d->features) | BIT(VIRTIO_F_VERSION_1);
	virtio_status_write(r->d, 3);
	virtio_driver_features_write(r->d, 0, (uint32_t)features);
	virtio_driver_features_write(r->d, 1, (uint32_t)(features >> 32));
	virtio_status_write(r->d, 11);
	ck_assert_uint_eq(virtio_status_read(r->d), 11);
	r->ctrl = features & BIT(VIRTIO_NET_F_MQ) ? 2 * r->pairs : 2;
	r->area_next = r->area;
	for (unsigned i = 0; i < r->d->n_queues; i++) {
		struct virtio_queue *q = virtio_queue_settable(r->d, i);

		if (i >= 2 * n && i != r->ctrl)
			continue;
		r->ring[i].event_idx = features >> VIRTIO_RING_F_EVENT_IDX & 1;
		ring_reset(&r->ring[i]);
		q->desc_gpa = r->ring[i].desc_gpa;
		q->avail_gpa = r->ring[i].avail_gpa;
		q->used_gpa = r->ring[i].used_gpa;
		q->size = r->size;
		q->enabled = true;
	}
	virtio_status_write(r->d, 15);
	ck_assert_uint_eq(virtio_status_read(r->d), 15);
}

static inline void rig_start(struct rig *r, uint64_t features)
{
	rig_start_some(r, features, features & BIT(VIRTIO_NET_F_MQ) ? r->pairs : 1);
}

static inline void rig_stop(struct rig *r)
{
	virtio_status_write(r->d, 0);
	ck_assert_uint_eq(virtio_status_read(r->d), 0);
}

static inline uint64_t rig_alloc(struct rig *r, uint64_t len)
{
	uint64_t gpa = r->area_next;

	if (gpa + len > r->area_end)
		gpa = r->area;
	r->area_next = ALIGN_UP(gpa + len, 64);
	return gpa;
}

static inline void rig_kick(struct rig *r, unsigned q)
{
	if (ring_wants_kick(&r->ring[q]))
		irq_signal(r->d->queue[q].kick_fd);
}

/* The next used entry of queue q within ms; false after that. */
static inline bool rig_used_within(struct rig *r, unsigned q, int ms, uint32_t *head, uint32_t *len)
{
	uint64_t count;

	while (!ring_take(&r->ring[q], head, len)) {
		struct pollfd p = { .fd = r->call[q], .events = POLLIN };

		if (ring_want_irq(&r->ring[q]))
			continue;
		if (poll(&p, 1, ms) != 1)
			return false;
		(void)!read(p.fd, &count, sizeof(count));
	}
	return true;
}

static inline uint32_t rig_used(struct rig *r, unsigned q, uint32_t *len)
{
	uint32_t head = UINT32_MAX;

	if (!rig_used_within(r, q, 5000, &head, len))
		ck_abort_msg("nothing came back on queue %u", q);
	return head;
}

static inline bool rig_quiet(struct rig *r, unsigned q, int ms)
{
	uint32_t head, len;

	return !rig_used_within(r, q, ms, &head, &len);
}

/* --- frames ----------------------------------------------------------------------------------- */

struct frame {
	struct virtio_net_hdr_v1 hdr;
	uint8_t data[FRAME_MAX];
};

/* A frame of len bytes to `to`, with seed in its payload. */
static inline void frame_make(struct frame *f, size_t len, unsigned seed)
{
	static const uint8_t eth[ETH_HLEN] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };

	f->hdr = (struct virtio_net_hdr_v1){ 0 };
	for (size_t i = 0; i < len; i++)
		f->data[i] = (uint8_t)(seed * 31 + i * 7 + i / 256);
	memcpy(f->data, eth, MIN(len, sizeof(eth)));
}

/* From outside to the guest, on pair i. */
static inline bool far_send(struct rig *r, unsigned i, const struct frame *f, size_t len)
{
	return send(r->far[i], f, HDR + len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(HDR + len);
}

/* From the guest to outside: bytes of the frame, -1 if none came within ms. */
static inline ssize_t far_recv(struct rig *r, unsigned i, struct frame *f, int ms)
{
	struct pollfd p = { .fd = r->far[i], .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, ms) != 1)
		return -1;
	n = recv(r->far[i], f, sizeof(*f), MSG_DONTWAIT);
	ck_assert_int_ge(n, HDR);
	return n - HDR;
}

/*
 * Put len bytes of f (header included) into the TX ring of pair i as one descriptor; returns the
 * head.
 */
static inline uint16_t tx_put(struct rig *r, unsigned i, const struct frame *f, size_t len)
{
	struct seg s = { rig_alloc(r, len), (uint32_t)len, false };

	memcpy(guest_at(&r->g, s.gpa), f, len);
	return ring_add(&r->ring[TX(i)], &s, 1);
}

/* A good frame goes through, and its head comes back. */
static inline void assert_tx(struct rig *r, unsigned i, size_t len, unsigned seed)
{
	static struct frame out, in;
	uint32_t used;
	uint16_t head;

	frame_make(&out, len, seed);
	head = tx_put(r, i, &out, HDR + len);
	rig_kick(r, TX(i));
	ck_assert_uint_eq(rig_used(r, TX(i), &used), head);
	ck_assert_uint_eq(used, 0);
	ck_assert_int_eq(far_recv(r, i, &in, 2000), (ssize_t)len);
	ck_assert_mem_eq(in.data, out.data, len);
}

/* n receive buffers of len bytes. */
static inline void rx_post(struct rig *r, unsigned i, unsigned n, uint32_t len)
{
	for (; n > 0; n--) {
		const struct seg s = { rig_alloc(r, len), len, true };

		ring_add(&r->ring[RX(i)], &s, 1);
	}
	rig_kick(r, RX(i));
}

/* The bytes of the chain that starts at head, gathered; at most len. */
static inline void rx_gather(struct rig *r, unsigned q, uint32_t head, uint8_t *to, size_t len)
{
	struct vring_desc d;

	for (;;) {
		size_t step;

		must(head < r->size);
		d = r->ring[q].desc[head];
		step = MIN(len, d.len);
		memcpy(to, guest_at(&r->g, d.addr), step);
		to += step;
		len -= step;
		if (len == 0 || !(d.flags & VRING_DESC_F_NEXT))
			break;
		head = d.next;
	}
	ck_assert_uint_eq(len, 0);
}

/*
 * The next frame that the guest receives on pair i: its bytes, with all its buffers; -1 after ms.
 */
static inline ssize_t rx_take_within(struct rig *r, unsigned i, struct frame *f, int ms)
{
	uint8_t *to = (uint8_t *)f;
	uint32_t head, len;
	size_t sum = 0;
	unsigned n = 1;

	for (unsigned k = 0; k < n; k++) {
		if (!rig_used_within(r, RX(i), ms, &head, &len)) {
			ck_assert_uint_eq(k, 0);
			return -1;
		}
		must(sum + len <= sizeof(*f));
		rx_gather(r, RX(i), head, to + sum, len);
		sum += len;
		if (k == 0)
			n = f->hdr.num_buffers;
		must(n >= 1);
	}
	ck_assert_uint_ge(sum, HDR);
	return (ssize_t)(sum - HDR);
}

static inline ssize_t rx_take(struct rig *r, unsigned i, struct frame *f)
{
	return rx_take_within(r, i, f, 5000);
}

/* A frame from outside comes in whole. */
static inline void assert_rx(struct rig *r, unsigned i, size_t len, unsigned seed)
{
	static struct frame out, in;

	frame_make(&out, len, seed);
	ck_assert(far_send(r, i, &out, len));
	ck_assert_int_eq(rx_take(r, i, &in), (ssize_t)len);
	ck_assert_mem_eq(in.data, out.data, len);
}

/* --- control queue ---------------------------------------------------------------------------- */

/* The answer to a command; -1 if the device wrote none. */
static inline int ctrl(struct rig *r, uint8_t class, uint8_t cmd, const void *data, uint32_t len)
{
	uint64_t at = rig_alloc(r, 4096 + len);
	const struct seg s[] = {
		{ at, 2, false },
		{ at + 64, len, false },
		{ at + 2, 1, true },
	};
	uint8_t *p = guest_at(&r->g, at);
	uint32_t used;

	p[0] = class;
	p[1] = cmd;
	p[2] = 0xee;
	if (len)
		memcpy(p + 64, data, len);
	ring_add(&r->ring[r->ctrl], s, 3);
	rig_kick(r, r->ctrl);
	(void)rig_used(r, r->ctrl, &used);
	return used == 1 ? p[2] : -1;
}

static inline int ctrl_pairs(struct rig *r, uint16_t n)
{
	return ctrl(r, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, &n, sizeof(n));
}

static inline int ctrl_mode(struct rig *r, uint8_t cmd, uint8_t on)
{
	return ctrl(r, VIRTIO_NET_CTRL_RX, cmd, &on, 1);
}

/* Until *counter has reached n, at most two seconds. */
static inline bool counted(const _Atomic uint64_t *counter, uint64_t n)
{
	for (unsigned i = 0; i < 2000; i++) {
		if (stat_read(counter) >= n)
			return true;
		usleep(1000);
	}
	return false;
}

/* CPU time that this process has used, in microseconds. */
static inline long cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000L + u.ru_utime.tv_usec +
	       u.ru_stime.tv_usec;
}

#endif
