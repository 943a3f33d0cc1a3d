/*
 * Split virtqueue, device side: see virtq.h and virtio 1.2, "Split Virtqueues".
 *
 * Theory of operation.  The driver owns the descriptor table and the available ring, we own the
 * used ring, all three in guest RAM.  Free-running 16-bit indices count entries; ring slots are
 * indices modulo the size.
 *
 *   1. virtq_pop: when next_avail has caught up with the last index seen, read the driver's index
 *      again (acquire).  It cannot be more than one ring ahead.
 *   2. Read the head once, walk the chain from it.  Each descriptor is copied once and the copy is
 *      checked: the driver may rewrite the original at any time.  Segments become host pointers
 *      into guest RAM; payload is never looked at here.
 *   3. virtq_push: fill the next used slots.
 *   4. virtq_publish: one release store shows a batch of them; then decide about the interrupt.
 *   5. virtq_mute/unmute: kicks are wanted only while nobody is looking at the ring.
 *
 * What is refused, as a broken ring: an index that jumped, a head, link or table entry out of
 * range, a chain with more links than its table has entries (a loop), a table inside a table, a
 * table with a link behind it, a table of odd or no length, a readable segment after a writable
 * one, a byte outside RAM, 4 GiB or more in one direction, and more chains in hand than there are
 * descriptors.
 */
#include "devices/virtq.h"

#include <assert.h>
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <string.h>

#include "vmm/base.h"

/* Sizes of the two rings in bytes, event fields included (virtio 1.2, "Virtqueues": 6 + 2 * size
 * and 6 + 8 * size whether or not EVENT_IDX is in use). */
#define AVAIL_LEN(size) (6 + 2 * (uint64_t)(size))
#define USED_LEN(size)  (6 + 8 * (uint64_t)(size))

static uint16_t load16(const __virtio16 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void store16(__virtio16 *p, uint16_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* used_event lies behind the available ring, avail_event behind the used ring. */
static uint16_t used_event(const struct virtq *q)
{
	return load16(&q->avail->ring[q->size]);
}

static __virtio16 *avail_event(const struct virtq *q)
{
	return (__virtio16 *)(void *)&q->used->ring[q->size];
}

int virtq_start(struct virtq *q, const struct mem *mem, uint16_t size, uint64_t desc_gpa,
		uint64_t avail_gpa, uint64_t used_gpa, uint64_t features)
{
	virtq_stop(q);
	if (size == 0 || size > VIRTQ_SIZE_MAX || (size & (size - 1)) != 0)
		return -EINVAL;
	if (desc_gpa % VRING_DESC_ALIGN_SIZE || avail_gpa % VRING_AVAIL_ALIGN_SIZE ||
	    used_gpa % VRING_USED_ALIGN_SIZE)
		return -EINVAL;
	q->desc = mem_at(mem, desc_gpa, sizeof(struct vring_desc) * (uint64_t)size);
	q->avail = mem_at(mem, avail_gpa, AVAIL_LEN(size));
	q->used = mem_at(mem, used_gpa, USED_LEN(size));
	if (!q->desc || !q->avail || !q->used)
		return -EINVAL;
	q->mem = mem;
	q->ram = &mem->region[0];
	q->size = size;
	q->event_idx = (features >> VIRTIO_RING_F_EVENT_IDX) & 1;
	q->indirect = (features >> VIRTIO_RING_F_INDIRECT_DESC) & 1;
	q->broken = false;
	q->fault = NULL;
	return 0;
}

/*
 * A stopped ring is a broken one: whoever pops it all the same gets an error, not a NULL pointer.
 */
void virtq_stop(struct virtq *q)
{
	*q = (struct virtq){ .broken = true, .fault = "queue is stopped" };
}

static __attribute__((cold)) int virtq_break(struct virtq *q, const char *what)
{
	q->broken = true;
	q->fault = what;
	return -EPROTO;
}

/* 1 = entries are waiting, 0 = none. */
static int virtq_look(struct virtq *q)
{
	if (q->next_avail != q->seen_avail)
		return 1;
	/* Acquire: pairs with the driver's write barrier between filling ring[] and descriptors and
	 * storing idx.  All reads of this batch come after it. */
	q->seen_avail = __atomic_load_n(&q->avail->idx, __ATOMIC_ACQUIRE);
	if ((uint16_t)(q->seen_avail - q->next_avail) > q->size)
		return virtq_break(q, "available index jumped past the ring");
	return q->next_avail != q->seen_avail;
}

/* Where the walk is: in the ring's own table, or in an indirect one. */
struct walk {
	const uint8_t *table; /* an indirect one may lie at any address */
	uint32_t entries;
	uint32_t links;       /* taken from this table so far */
	bool indirect;
	bool in_seen;             /* a writable segment was met */
	struct iovec *next, *end; /* segments go here */
	struct iovec *first_in;   /* where the writable ones begin, once there are any */
	uint64_t len[2];          /* bytes readable, writable */
};

/* One copy, which the compiler may not replace by a second look at memory the guest can change. */
static void copy_once(struct vring_desc *d, const uint8_t *from)
{
	memcpy(d, from, sizeof(*d));
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static int walk_enter_table(struct virtq *q, struct walk *w, const struct vring_desc *d)
{
	if (w->indirect)
		return virtq_break(q, "indirect table inside an indirect table");
	if (!q->indirect)
		return virtq_break(q, "indirect table without VIRTIO_F_INDIRECT_DESC");
	if (d->flags & VRING_DESC_F_NEXT)
		return virtq_break(q, "indirect table with a next descriptor");
	if (d->len == 0 || d->len % sizeof(*d) != 0 || d->len / sizeof(*d) > VIRTQ_IOV_MAX)
		return virtq_break(q, "indirect table of impossible length");
	w->table = mem_at(q->mem, d->addr, d->len);
	if (!w->table)
		return virtq_break(q, "indirect table outside RAM");
	w->entries = d->len / sizeof(*d);
	w->links = 0;
	w->indirect = true;
	return 0;
}

/*
 * Bytes that do not lie in the region of the buffer before: one segment, or more where regions meet.
 * Rare, and kept out of the way of what is not.
 */
static __attribute__((noinline)) int walk_add_runs(struct virtq *q, struct walk *w, uint64_t gpa,
						   uint64_t left)
{
	while (left > 0) {
		uint64_t run = left;
		void *p = mem_run(q->mem, gpa, &run);

		if (!p)
			return virtq_break(q, "buffer outside RAM");
		if (w->next == w->end)
			return -ENOBUFS;
		*w->next++ = (struct iovec){ .iov_base = p, .iov_len = run };
		for (unsigned i = 0; i < q->mem->n; i++)
			if (gpa - q->mem->region[i].gpa < q->mem->region[i].len)
				q->ram = &q->mem->region[i];
		gpa += run;
		left -= run;
	}
	return 0;
}

/* One descriptor's bytes; no segment when there are none. */
static int walk_add(struct virtq *q, struct walk *w, const struct vring_desc *d)
{
	const struct mem_region *r = q->ram;
	bool in = d->flags & VRING_DESC_F_WRITE;
	uint64_t off = d->addr - r->gpa;

	if (in && !w->in_seen)
		w->first_in = w->next;
	if (!in && w->in_seen)
		return virtq_break(q, "readable descriptor after a writable one");
	w->in_seen = in;
	/* Never near 64 bits: a few thousand links of 32. */
	w->len[in] += d->len;
	if (w->len[in] > UINT32_MAX)
		return virtq_break(q, "chain of 4 GiB or more");
	if (d->len == 0 || off >= r->len || d->len > r->len - off || w->next == w->end)
		return walk_add_runs(q, w, d->addr, d->len);
	*w->next++ = (struct iovec){ .iov_base = r->host + off, .iov_len = d->len };
	return 0;
}

static int virtq_walk(struct virtq *q, uint32_t i, struct walk *w)
{
	struct vring_desc d;
	int err;

	do {
		if (i >= w->entries)
			return virtq_break(q, "descriptor number outside its table");
		if (w->links++ == w->entries)
			return virtq_break(q, "descriptor chain loops");
		copy_once(&d, w->table + i * sizeof(d));
		if (d.flags & VRING_DESC_F_INDIRECT) {
			err = walk_enter_table(q, w, &d);
			d.next = 0;
			d.flags = VRING_DESC_F_NEXT;
		} else {
			err = walk_add(q, w, &d);
		}
		if (err)
			return err;
		i = d.next;
	} while (d.flags & VRING_DESC_F_NEXT);
	return 0;
}

int virtq_pop(struct virtq *q, struct iovec *iov, unsigned max, struct chain *c)
{
	struct walk w = { .next = iov, .end = iov + MIN(max, VIRTQ_IOV_MAX) };
	uint16_t head;
	int ret;

	if (q->broken)
		return -EPROTO;
	ret = virtq_look(q);
	if (ret <= 0)
		return ret;
	/* A chain takes a descriptor at least, so an honest driver has none left to offer; a
	 * hostile one would make us hold requests without limit. */
	if (q->in_flight == q->size)
		return virtq_break(q, "more chains available than descriptors exist");
	head = load16(&q->avail->ring[q->next_avail & (q->size - 1)]);
	w.table = (const uint8_t *)q->desc;
	w.entries = q->size;
	ret = virtq_walk(q, head, &w);
	if (ret == -ENOBUFS && max >= VIRTQ_IOV_MAX)
		ret = virtq_break(q, "chain of too many segments");
	if (ret < 0)
		return ret;
	if (!w.in_seen)
		w.first_in = w.next;
	*c = (struct chain){
		.iov = iov,
		.head = head,
		.n_out = (uint16_t)(w.first_in - iov),
		.n_in = (uint16_t)(w.next - w.first_in),
		.out_len = (uint32_t)w.len[0],
		.in_len = (uint32_t)w.len[1],
	};
	q->next_avail++;
	q->in_flight++;
	return 1;
}

void virtq_unpop(struct virtq *q, unsigned n)
{
	assert(n <= q->in_flight);
	q->next_avail -= (uint16_t)n;
	q->in_flight -= (uint16_t)n;
}

void virtq_push(struct virtq *q, uint16_t head, uint32_t written)
{
	struct vring_used_elem *e = &q->used->ring[q->next_used & (q->size - 1)];

	assert(q->in_flight > 0);
	__atomic_store_n(&e->id, head, __ATOMIC_RELAXED);
	__atomic_store_n(&e->len, written, __ATOMIC_RELAXED);
	q->next_used++;
	q->in_flight--;
}

void virtq_show(struct virtq *q)
{
	/* Release: pairs with the driver's read barrier after it has read idx; it sees the used
	 * elements and our writes to its buffers. */
	__atomic_store_n(&q->used->idx, q->next_used, __ATOMIC_RELEASE);
	q->published = q->next_used;
}

bool virtq_publish(struct virtq *q)
{
	uint16_t signalled = q->signalled;

	if (q->next_used == signalled)
		return false;
	virtq_show(q);
	q->signalled = q->next_used;
	/* Full barrier: pairs with the one between the driver's store of used_event (or flags) and
	 * its last look at used idx.  Either it sees our entries or we see that it wants to be
	 * woken. */
	__sync_synchronize();
	if (!q->event_idx)
		return !(load16(&q->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	return vring_need_event(used_event(q), q->next_used, signalled);
}

/*
 * With EVENT_IDX there is nothing to write: the driver kicks when its index passes avail_event,
 * which happened once, and stays silent until unmute moves avail_event on.
 */
void virtq_mute(struct virtq *q)
{
	if (!q->broken && !q->event_idx)
		store16(&q->used->flags, VRING_USED_F_NO_NOTIFY);
}

bool virtq_unmute(struct virtq *q)
{
	if (q->broken)
		return false;
	if (q->event_idx)
		store16(avail_event(q), q->next_avail);
	else
		store16(&q->used->flags, 0);
	/* Full barrier: pairs with the one between the driver's store of avail idx and its look at
	 * avail_event (or flags).  Either we see the new entry or it sees that it has to kick. */
	__sync_synchronize();
	return load16(&q->avail->idx) != q->next_avail;
}

bool virtq_driver_waits(const struct virtq *q)
{
	if (q->broken)
		return false;
	if (q->event_idx)
		return used_event(q) == q->published;
	return !(load16(&q->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
}
