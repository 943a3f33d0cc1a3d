/*
 * A fake guest: RAM, and the driver's side of split rings (virtio 1.2, "Split Virtqueues").
 *
 * RAM is one memfd mapped twice: the view the device gets through struct mem, each region between
 * inaccessible pages, and the view the driver writes through.  A device that uses a guest address
 * or a driver pointer as its own, or runs off a region, faults at once.
 *
 * Everything is static inline so that each test and fuzzer stays one object file.
 */
#ifndef TESTS_UNIT_RING_H
#define TESTS_UNIT_RING_H

#include <assert.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/mem.h"

/* For loops: Check notes every assertion that passes in a file, which is slow. */
#define must(x) ((x) ? (void)0 : ck_abort_msg("line %d: %s", __LINE__, #x))

#define GUEST_PAGE    4096u
#define RING_SEGS_MAX 1100 /* more than a device takes */

struct guest {
	struct mem mem;    /* the device's view */
	uint8_t *ram;      /* the driver's view, regions back to back */
	uint64_t len;
	uint64_t next_gpa; /* bump allocator in region 0 */
	int memfd;
};

/* One region's device view, fenced by a page without access on both sides. */
static inline uint8_t *guest_map_region(int memfd, uint64_t off, uint64_t len)
{
	uint8_t *p =
		mmap(NULL, len + 2 * GUEST_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert(p != MAP_FAILED);
	p = mmap(p + GUEST_PAGE, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
		 (off_t)off);
	assert(p != MAP_FAILED);
	return p;
}

static inline void guest_create(struct guest *g, const struct mem_region *layout, unsigned n)
{
	*g = (struct guest){ .memfd = memfd_create("guest", MFD_CLOEXEC), .mem.n = n };
	assert(g->memfd >= 0 && n <= MEM_REGIONS_MAX);
	for (unsigned i = 0; i < n; i++)
		g->len += layout[i].len;
	assert(ftruncate(g->memfd, (off_t)g->len) == 0);
	g->ram = mmap(NULL, g->len, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
	assert(g->ram != MAP_FAILED);
	for (uint64_t i = 0, off = 0; i < n; off += layout[i++].len) {
		g->mem.region[i] = layout[i];
		g->mem.region[i].host = guest_map_region(g->memfd, off, layout[i].len);
	}
	/* Address 0 is valid RAM but a poor pointer: start above it. */
	g->next_gpa = layout[0].gpa + GUEST_PAGE;
}

/* Two neighbouring regions from 0, and one behind a hole at 4 GiB. */
static inline void guest_create_default(struct guest *g)
{
	const struct mem_region layout[] = {
		{ .gpa = 0, .len = 4u << 20 },
		{ .gpa = 4u << 20, .len = 1u << 20 },
		{ .gpa = 4ull << 30, .len = 1u << 20 },
	};

	guest_create(g, layout, ARRAY_SIZE(layout));
}

static inline void guest_destroy(struct guest *g)
{
	for (unsigned i = 0; i < g->mem.n; i++)
		munmap(g->mem.region[i].host - GUEST_PAGE, g->mem.region[i].len + 2 * GUEST_PAGE);
	munmap(g->ram, g->len);
	close(g->memfd);
}

/* The driver's pointer to gpa, which must be RAM. */
static inline void *guest_at(struct guest *g, uint64_t gpa)
{
	uint64_t off = 0;

	for (unsigned i = 0; i < g->mem.n; off += g->mem.region[i++].len)
		if (gpa >= g->mem.region[i].gpa &&
		    gpa - g->mem.region[i].gpa < g->mem.region[i].len)
			return g->ram + off + (gpa - g->mem.region[i].gpa);
	assert(!"not RAM");
	return NULL;
}

static inline uint64_t guest_alloc(struct guest *g, uint64_t len, uint64_t align)
{
	uint64_t gpa = ALIGN_UP(g->next_gpa, align);

	g->next_gpa = gpa + len;
	assert(g->next_gpa <= g->mem.region[0].gpa + g->mem.region[0].len);
	return gpa;
}

struct seg {
	uint64_t gpa;
	uint32_t len;
	bool in; /* the device writes it */
};

struct ring {
	struct guest *g;
	uint16_t size;
	bool event_idx;
	uint64_t desc_gpa, avail_gpa, used_gpa;
	struct vring_desc *desc; /* driver's view */
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t next_desc;  /* descriptors are taken round robin: the tests keep count of what is
				free */
	uint16_t avail_idx;  /* next to fill; shown by ring_show */
	uint16_t shown;      /* as the device sees it */
	uint16_t last_used;  /* next to take */
};

static inline void ring_init(struct ring *r, struct guest *g, uint16_t size, bool event_idx)
{
	*r = (struct ring){ .g = g, .size = size, .event_idx = event_idx };
	r->desc_gpa = guest_alloc(g, 16u * size, 16);
	r->avail_gpa = guest_alloc(g, 6 + 2u * size, 2);
	r->used_gpa = guest_alloc(g, 6 + 8u * size, 4);
	r->desc = guest_at(g, r->desc_gpa);
	r->avail = guest_at(g, r->avail_gpa);
	r->used = guest_at(g, r->used_gpa);
	memset(r->desc, 0, 16u * size);
	memset(r->avail, 0, 6 + 2u * size);
	memset(r->used, 0, 6 + 8u * size);
}

/* After a device reset: both sides begin at 0 again. */
static inline void ring_reset(struct ring *r)
{
	memset(r->avail, 0, 6 + 2u * r->size);
	memset(r->used, 0, 6 + 8u * r->size);
	r->next_desc = r->avail_idx = r->shown = r->last_used = 0;
}

static inline __virtio16 *ring_used_event(struct ring *r)
{
	return &r->avail->ring[r->size];
}

static inline uint16_t ring_avail_event(const struct ring *r)
{
	return __atomic_load_n((const __virtio16 *)(const void *)&r->used->ring[r->size],
			       __ATOMIC_RELAXED);
}

/* Descriptors s[0..n) in entries at[] of a table, which need not be aligned; linked. */
static inline void ring_fill(void *table, const uint16_t *at, const struct seg *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct vring_desc d = {
			.addr = s[i].gpa,
			.len = s[i].len,
			.flags = (uint16_t)((s[i].in ? VRING_DESC_F_WRITE : 0) |
					    (i + 1 < n ? VRING_DESC_F_NEXT : 0)),
			.next = i + 1 < n ? at[i + 1] : 0,
		};

		memcpy((uint8_t *)table + at[i] * sizeof(d), &d, sizeof(d));
	}
}

/* Put a head into the available ring, not yet shown. */
static inline void ring_offer(struct ring *r, uint16_t head)
{
	r->avail->ring[r->avail_idx++ & (r->size - 1)] = head;
}

/* Release: pairs with the device's acquire of avail idx. */
static inline void ring_show(struct ring *r)
{
	__atomic_store_n(&r->avail->idx, r->avail_idx, __ATOMIC_RELEASE);
}

/* Whether the device wants a kick for what was shown since the last call. */
static inline bool ring_wants_kick(struct ring *r)
{
	uint16_t old = r->shown;

	r->shown = r->avail_idx;
	/* Full barrier: pairs with the device's in virtq_unmute. */
	__sync_synchronize();
	if (r->event_idx)
		return vring_need_event(ring_avail_event(r), r->avail_idx, old);
	return !(__atomic_load_n(&r->used->flags, __ATOMIC_RELAXED) & VRING_USED_F_NO_NOTIFY);
}

/* A chain of direct descriptors; returns its head. */
static inline uint16_t ring_add(struct ring *r, const struct seg *s, unsigned n)
{
	uint16_t at[RING_SEGS_MAX];

	assert(n >= 1 && n <= r->size && n <= RING_SEGS_MAX);
	for (unsigned i = 0; i < n; i++)
		at[i] = r->next_desc++ & (r->size - 1);
	ring_fill(r->desc, at, s, n);
	ring_offer(r, at[0]);
	ring_show(r);
	return at[0];
}

/* One descriptor that points at a table of n at table_gpa. */
static inline uint16_t ring_add_indirect(struct ring *r, uint64_t table_gpa, const struct seg *s,
					 unsigned n)
{
	uint16_t at[RING_SEGS_MAX], head = r->next_desc++ & (r->size - 1);

	for (unsigned i = 0; i < n; i++)
		at[i] = (uint16_t)i;
	ring_fill(guest_at(r->g, table_gpa), at, s, n);
	r->desc[head] = (struct vring_desc){ .addr = table_gpa, .len = 16 * n,
					     .flags = VRING_DESC_F_INDIRECT };
	ring_offer(r, head);
	ring_show(r);
	return head;
}

/* s[0..n) cut into segments of one byte each, in an indirect table at table_gpa. */
static inline uint16_t ring_add_bytes(struct ring *r, uint64_t table_gpa, const struct seg *s,
				      unsigned n)
{
	static struct seg byte[RING_SEGS_MAX]; /* large for a stack; one thread at a time */
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		for (uint32_t b = 0; b < s[i].len; b++) {
			assert(k < ARRAY_SIZE(byte));
			byte[k++] = (struct seg){ s[i].gpa + b, 1, s[i].in };
		}
	return ring_add_indirect(r, table_gpa, byte, k);
}

/* The next used entry, false if there is none. */
static inline bool ring_take(struct ring *r, uint32_t *head, uint32_t *len)
{
	struct vring_used_elem *e = &r->used->ring[r->last_used & (r->size - 1)];

	/* Acquire: pairs with the device's release in virtq_publish. */
	if (__atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) == r->last_used)
		return false;
	*head = e->id;
	*len = e->len;
	r->last_used++;
	return true;
}

/* Ask for an interrupt at the next used entry; true = entries came meanwhile, take them first. */
static inline bool ring_want_irq(struct ring *r)
{
	if (r->event_idx)
		__atomic_store_n(ring_used_event(r), r->last_used, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&r->avail->flags, 0, __ATOMIC_RELAXED);
	/* Full barrier: pairs with the device's in virtq_publish. */
	__sync_synchronize();
	return __atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) != r->last_used;
}

static inline void ring_no_irq(struct ring *r)
{
	if (!r->event_idx)
		__atomic_store_n(&r->avail->flags, VRING_AVAIL_F_NO_INTERRUPT, __ATOMIC_RELAXED);
}

#endif
