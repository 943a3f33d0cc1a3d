/*
 * Fuzzer of the split ring.  The input first chooses ring size and features, then is a program for
 * a hostile driver (writes to descriptors, tables, rings) and the device's calls between.  After
 * each pop all segments must lie in RAM, and be readable and writable.
 */
#include <errno.h>
#include <linux/virtio_ring.h>
#include <stdio.h>

#include "devices/virtq.h"
#include "tests/fuzz/input.h"
#include "tests/unit/ring.h"

#define SIZE_MAX_HERE 64
#define TABLE_ENTRIES 1040

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct guest g;
static struct ring r;
static struct virtq q;
static struct iovec iov[VIRTQ_IOV_MAX];
static uint64_t table;
static uint16_t held[SIZE_MAX_HERE]; /* heads popped, in order */
static unsigned n_held;

static void begin(struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);
	uint64_t features = (uint64_t)(x >> 4 & 1) << VIRTIO_RING_F_EVENT_IDX |
			    (uint64_t)(x >> 5 & 1) << VIRTIO_RING_F_INDIRECT_DESC;

	r.size = (uint16_t)(1u << (x & 7) % 7);
	r.event_idx = x >> 4 & 1;
	ring_reset(&r);
	n_held = 0;
	require(virtq_start(&q, &g.mem, r.size, r.desc_gpa, r.avail_gpa, r.used_gpa, features) ==
		0);
}

/* Interesting places: data, the table itself, the ring, edges of regions, nowhere. */
static uint64_t take_gpa(struct input *in)
{
	static const uint64_t edge[] = { 0, 4u << 20, 5u << 20, 4ull << 30,
					 (4ull << 30) + (1u << 20) };
	uint8_t x = (uint8_t)take(in, 1);

	switch (x % 4) {
	case 0:
		return table + (x / 4) * 16;
	case 1:
		return edge[x / 4 % ARRAY_SIZE(edge)] + take(in, 1) - 128;
	case 2:
		return 0x3000 + x * 16u;
	default:
		return take(in, 8);
	}
}

static uint32_t take_len(struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);

	return x < 200 ? x : x < 240 ? (x - 199u) * 16 : (uint32_t)take(in, 4);
}

static void write_descriptor(struct input *in)
{
	uint16_t at = (uint16_t)take(in, 1);
	struct vring_desc d = { .addr = take_gpa(in), .len = take_len(in) };

	d.flags = (uint16_t)take(in, 1) & 15;
	d.next = (uint16_t)take(in, 1);
	if (d.flags & 8)
		memcpy((uint8_t *)guest_at(&g, table) + at * sizeof(d), &d, sizeof(d));
	else
		r.desc[at & (r.size - 1)] = d;
}

/* A long run of small descriptors in the table: chains that no fuzzer would find entry by entry. */
static void fill_table(struct input *in)
{
	unsigned n = (unsigned)take(in, 2) % TABLE_ENTRIES, first_in = (unsigned)take(in, 2);
	uint16_t head = r.next_desc++ & (r.size - 1);

	for (unsigned i = 0; i < n; i++) {
		const struct vring_desc d = {
			.addr = 0x3000 + i, .len = 1,
			.flags = (uint16_t)((i + 1 < n) | (i >= first_in ? VRING_DESC_F_WRITE : 0)),
			.next = (uint16_t)(i + 1),
		};

		memcpy((uint8_t *)guest_at(&g, table) + i * sizeof(d), &d, sizeof(d));
	}
	r.desc[head] = (struct vring_desc){ table, 16 * n, VRING_DESC_F_INDIRECT, 0 };
	ring_offer(&r, head);
	ring_show(&r);
}

static void check_segments(const struct chain *c)
{
	uint64_t sum[2] = { 0, 0 };

	for (unsigned i = 0; i < (unsigned)c->n_out + c->n_in; i++) {
		volatile uint8_t *p = c->iov[i].iov_base;

		require(c->iov[i].iov_len > 0);
		sum[i >= c->n_out] += c->iov[i].iov_len;
		/* Faults unless it is RAM. */
		(void)p[0];
		(void)p[c->iov[i].iov_len - 1];
	}
	require(sum[0] == c->out_len && sum[1] == c->in_len && c->head < q.size);
}

static void pop(struct input *in)
{
	unsigned max = take(in, 1) & 1 ? VIRTQ_IOV_MAX : (unsigned)take(in, 1);
	uint16_t before = q.next_avail;
	struct chain c;
	int ret = virtq_pop(&q, iov, max, &c);

	if (ret == 1) {
		check_segments(&c);
		require(n_held < r.size);
		held[n_held++] = c.head;
		return;
	}
	require(ret == 0 || ret == -EPROTO || (ret == -ENOBUFS && max < VIRTQ_IOV_MAX));
	require(q.next_avail == before && q.broken == (ret == -EPROTO));
	require(!q.broken || q.fault);
}

static void push(struct input *in)
{
	unsigned i;

	if (n_held == 0)
		return;
	i = (unsigned)take(in, 1) % n_held;
	virtq_push(&q, held[i], (uint32_t)take(in, 2));
	memmove(held + i, held + i + 1, (n_held - i - 1) * sizeof(*held));
	n_held--;
}

static void unpop(struct input *in)
{
	unsigned n = (unsigned)take(in, 1) % (n_held + 1);

	virtq_unpop(&q, n);
	n_held -= n;
}

static void publish(void)
{
	uint16_t before = q.published;

	if (virtq_publish(&q))
		require(q.published != before);
	require(q.published == q.next_used && r.used->idx == q.next_used);
}

static void step(struct input *in)
{
	switch (take(in, 1) % 16) {
	case 0:
	case 1:
	case 2:
		write_descriptor(in);
		break;
	case 3:
	case 4:
		ring_offer(&r, (uint16_t)(take(in, 1) & 0x7f));
		ring_show(&r);
		break;
	case 5:
		r.avail_idx = (uint16_t)take(in, 2);
		ring_show(&r);
		break;
	case 6:
		fill_table(in);
		break;
	case 7:
		*ring_used_event(&r) = (uint16_t)(q.next_used + take(in, 1) - 128);
		r.avail->flags = (uint16_t)take(in, 1);
		break;
	case 8:
		publish();
		break;
	case 9:
		push(in);
		break;
	case 10:
		unpop(in);
		break;
	case 11:
		virtq_mute(&q);
		break;
	case 12:
		(void)virtq_unmute(&q);
		break;
	case 13:
		/* Close to the wrap, as if much had gone before. */
		if (q.in_flight == 0 && !q.broken) {
			q.next_avail = q.seen_avail = r.avail_idx =
				(uint16_t)(65530 + take(in, 1) % 6);
			ring_show(&r);
		}
		break;
	case 14:
		begin(in);
		break;
	default:
		pop(in);
	}
	require(q.in_flight == n_held && q.in_flight <= q.size);
}

static void make_guest(void)
{
	guest_create_default(&g);
	ring_init(&r, &g, SIZE_MAX_HERE, true);
	g.next_gpa = 0x8000;
	table = guest_alloc(&g, 16 * TABLE_ENTRIES, 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!g.ram)
		make_guest();
	memset(g.ram, 0, 0x10000);
	begin(&in);
	while (in.left > 0)
		step(&in);
	return 0;
}
