/* Split ring, device side (devices/virtq.h) against a fake guest. */
#include <errno.h>
#include <linux/virtio_config.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "devices/virtq.h"
#include "tests/unit/fixture.h"
#include "tests/unit/ring.h"

#define EVENT_IDX (1ULL << VIRTIO_RING_F_EVENT_IDX)
#define INDIRECT  (1ULL << VIRTIO_RING_F_INDIRECT_DESC)

static struct guest g;
static struct ring r;
static struct virtq q;
static struct iovec iov[VIRTQ_IOV_MAX];
static struct chain c;
static uint64_t buf, table; /* gpa of a page of data, of room for an indirect table */

static void begin(uint16_t size, uint64_t features)
{
	ring_init(&r, &g, size, features & EVENT_IDX);
	ck_assert_int_eq(
		virtq_start(&q, &g.mem, size, r.desc_gpa, r.avail_gpa, r.used_gpa, features), 0);
}

static void setup(void)
{
	guest_create_default(&g);
	buf = guest_alloc(&g, GUEST_PAGE, GUEST_PAGE);
	table = guest_alloc(&g, 16 * RING_SEGS_MAX, 16);
	begin(16, EVENT_IDX | INDIRECT);
}

static void teardown(void)
{
	guest_destroy(&g);
}

static int pop(void)
{
	return virtq_pop(&q, iov, VIRTQ_IOV_MAX, &c);
}

static void assert_in_ram(const struct iovec *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = v[i].iov_base;
		bool in = false;

		for (unsigned k = 0; k < g.mem.n; k++) {
			const struct mem_region *m = &g.mem.region[k];

			in |= p >= m->host && p + v[i].iov_len <= m->host + m->len;
		}
		must(in);
	}
}

static void assert_broken(const char *why)
{
	ck_assert_int_eq(pop(), -EPROTO);
	ck_assert_str_eq(q.fault, why);
	ck_assert(q.broken);
	/* It stays so, and nothing was taken. */
	ck_assert_int_eq(pop(), -EPROTO);
	ck_assert_uint_eq(q.in_flight, 0);
	ck_assert(!virtq_unmute(&q));
	ck_assert_int_eq(virtq_start(&q, &g.mem, r.size, r.desc_gpa, r.avail_gpa, r.used_gpa, 0),
			 0);
	ck_assert(!q.broken);
}

/* --- start ------------------------------------------------------------------------------------ */

START_TEST(start_refuses_sizes_that_are_no_power_of_two_or_too_big)
{
	static const uint16_t bad[] = { 0, 3, 5, 100, 4097, 8192, 65535 };
	static const uint16_t good[] = { 1, 2, 4, 16, 4096 };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(virtq_start(&q, &g.mem, bad[i], 0x10000, 0x30000, 0x40000, 0),
				 -EINVAL);
		ck_assert_uint_eq(q.size, 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_int_eq(virtq_start(&q, &g.mem, good[i], 0x10000, 0x30000, 0x40000, 0), 0);
}
END_TEST

START_TEST(start_refuses_misaligned_rings)
{
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1008, 0x3000, 0x4000, 0), -EINVAL);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, 0x3001, 0x4000, 0), -EINVAL);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, 0x3000, 0x4002, 0), -EINVAL);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1010, 0x3002, 0x4004, 0), 0);
}
END_TEST

START_TEST(start_refuses_rings_partly_outside_ram)
{
	const uint64_t top = (4ull << 30) + (1u << 20), hole = 5u << 20;
	static const uint64_t wild[] = { 6u << 20, 1ull << 63, UINT64_MAX - 15 };

	/* Exactly at the end, with the event fields, fits; two bytes on does not. */
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, top - 256, hole - 38, top - 256 - 136, 0), 0);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, top - 240, 0x3000, 0x4000, 0), -EINVAL);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, hole - 36, 0x4000, 0), -EINVAL);
	ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, 0x3000, top - 132, 0), -EINVAL);
	for (unsigned i = 0; i < ARRAY_SIZE(wild); i++) {
		uint64_t a = wild[i];

		ck_assert_int_eq(virtq_start(&q, &g.mem, 16, a, 0x3000, 0x4000, 0), -EINVAL);
		ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, a & ~1ull, 0x4000, 0),
				 -EINVAL);
		ck_assert_int_eq(virtq_start(&q, &g.mem, 16, 0x1000, 0x3000, a & ~3ull, 0),
				 -EINVAL);
	}
}
END_TEST

START_TEST(stopped_queue_pops_an_error)
{
	virtq_stop(&q);
	ck_assert_int_eq(pop(), -EPROTO);
	virtq_mute(&q);
	ck_assert(!virtq_unmute(&q));
	ck_assert(!virtq_publish(&q));
}
END_TEST

/* --- pop: good chains ------------------------------------------------------------------------- */

START_TEST(pop_of_an_empty_ring_is_zero)
{
	ck_assert_int_eq(pop(), 0);
	ck_assert_int_eq(pop(), 0);
}
END_TEST

START_TEST(pop_gives_readable_then_writable_segments)
{
	const struct seg s[] = { { buf, 10, false },
				 { buf + 100, 20, false },
				 { buf + 200, 30, true } };
	uint16_t head = ring_add(&r, s, 3);

	memcpy(guest_at(&g, buf + 100), "hello", 5);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.head, head);
	ck_assert_uint_eq(c.n_out, 2);
	ck_assert_uint_eq(c.n_in, 1);
	ck_assert_uint_eq(c.out_len, 30);
	ck_assert_uint_eq(c.in_len, 30);
	ck_assert_uint_eq(iov[1].iov_len, 20);
	ck_assert_mem_eq(iov[1].iov_base, "hello", 5);
	assert_in_ram(iov, 3);
	ck_assert_int_eq(pop(), 0);
}
END_TEST

START_TEST(pop_walks_indirect_tables_with_the_same_result)
{
	const struct seg s[] = { { buf, 10, false },
				 { buf + 100, 20, true },
				 { buf + 200, 30, true } };

	ring_add_indirect(&r, table, s, 3);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_out, 1);
	ck_assert_uint_eq(c.n_in, 2);
	ck_assert_uint_eq(c.in_len, 50);
	ck_assert_uint_eq(iov[2].iov_len, 30);
}
END_TEST

/*
 * virtio 1.2, "Indirect Descriptors": direct descriptors may be followed by one that is indirect.
 */
START_TEST(pop_accepts_direct_descriptors_before_an_indirect_one)
{
	const struct seg direct = { buf, 10, false }, inner = { buf + 64, 6, true };

	ring_add(&r, &direct, 1);
	ring_fill(guest_at(&g, table), (const uint16_t[]){ 0 }, &inner, 1);
	r.desc[0].flags = VRING_DESC_F_NEXT;
	r.desc[0].next = 7;
	/* The write flag of the referring descriptor is to be ignored. */
	r.desc[7] = (struct vring_desc){ table, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 0 };
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.out_len, 10);
	ck_assert_uint_eq(c.in_len, 6);
}
END_TEST

START_TEST(pop_takes_tables_longer_than_the_ring)
{
	static struct seg s[256];

	for (unsigned i = 0; i < 256; i++)
		s[i] = (struct seg){ buf + i, 1, i >= 128 };
	ring_add_indirect(&r, table, s, 256);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_out, 128);
	ck_assert_uint_eq(c.n_in, 128);
}
END_TEST

START_TEST(pop_takes_unaligned_tables)
{
	const struct seg s[] = { { buf, 3, false }, { buf + 8, 4, true } };

	ring_add_indirect(&r, table + 5, s, 2);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.out_len, 3);
	ck_assert_uint_eq(c.in_len, 4);
}
END_TEST

START_TEST(pop_tolerates_empty_descriptors)
{
	/* Their addresses are nobody's business. */
	const struct seg s[] = { { UINT64_MAX, 0, false },
				 { buf, 4, false },
				 { 6u << 20, 0, true } };
	const struct seg none = { 0, 0, false };

	ring_add(&r, s, 3);
	ring_add(&r, &none, 1);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_out, 1);
	ck_assert_uint_eq(c.n_in, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_out + c.n_in, 0);
}
END_TEST

START_TEST(pop_splits_a_buffer_that_crosses_two_regions)
{
	const struct seg s = { (4u << 20) - 100, 300, true };

	ring_add(&r, &s, 1);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_in, 2);
	ck_assert_uint_eq(c.in_len, 300);
	ck_assert_uint_eq(iov[0].iov_len, 100);
	ck_assert_uint_eq(iov[1].iov_len, 200);
	ck_assert_ptr_eq(iov[1].iov_base, g.mem.region[1].host);
	assert_in_ram(iov, 2);
}
END_TEST

START_TEST(pop_takes_one_byte_segments)
{
	const struct seg s[] = { { buf, 40, false }, { buf + 64, 80, true } };

	ring_add_bytes(&r, table, s, 2);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_out, 40);
	ck_assert_uint_eq(c.n_in, 80);
	ck_assert_uint_eq(c.out_len, 40);
	ck_assert_uint_eq(c.in_len, 80);
}
END_TEST

START_TEST(pop_takes_a_chain_as_long_as_the_ring)
{
	struct seg s[16];

	for (unsigned i = 0; i < 16; i++)
		s[i] = (struct seg){ buf, 1, true };
	ring_add(&r, s, 16);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_in, 16);
}
END_TEST

START_TEST(ring_of_one_descriptor_works)
{
	const struct seg s = { buf, 7, true };
	uint32_t head, len;

	begin(1, EVENT_IDX);
	for (unsigned i = 0; i < 10; i++) {
		ring_add(&r, &s, 1);
		ck_assert_int_eq(pop(), 1);
		virtq_push(&q, c.head, 7);
		virtq_publish(&q);
		ck_assert(ring_take(&r, &head, &len));
		ck_assert_uint_eq(len, 7);
	}
}
END_TEST

START_TEST(too_small_iov_takes_nothing)
{
	const struct seg s[] = { { buf, 1, false }, { buf, 1, false }, { buf, 1, true } };

	ring_add(&r, s, 3);
	ck_assert_int_eq(virtq_pop(&q, iov, 2, &c), -ENOBUFS);
	ck_assert_int_eq(virtq_pop(&q, iov, 0, &c), -ENOBUFS);
	ck_assert_uint_eq(q.in_flight, 0);
	ck_assert_int_eq(virtq_pop(&q, iov, 3, &c), 1);
}
END_TEST

START_TEST(unpop_gives_the_same_chains_again_in_order)
{
	uint16_t head[5];
	const struct seg s = { buf, 1, true };

	for (unsigned i = 0; i < 5; i++)
		head[i] = ring_add(&r, &s, 1);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(pop(), 1);
	virtq_unpop(&q, 3);
	for (unsigned i = 2; i < 5; i++) {
		ck_assert_int_eq(pop(), 1);
		ck_assert_uint_eq(c.head, head[i]);
	}
	ck_assert_int_eq(pop(), 0);
	ck_assert_uint_eq(q.in_flight, 5);
}
END_TEST

/* --- pop: what is refused --------------------------------------------------------------------- */

START_TEST(index_that_jumped_past_the_ring_is_refused)
{
	r.avail_idx = 17;
	ring_show(&r);
	assert_broken("available index jumped past the ring");
}
END_TEST

START_TEST(index_that_went_backwards_is_refused)
{
	const struct seg s = { buf, 1, true };

	ring_add(&r, &s, 1);
	ck_assert_int_eq(pop(), 1);
	virtq_push(&q, c.head, 0);
	r.avail_idx = 0;
	ring_show(&r);
	assert_broken("available index jumped past the ring");
}
END_TEST

START_TEST(full_ring_is_no_jump)
{
	const struct seg s = { buf, 1, true };

	for (unsigned i = 0; i < 16; i++)
		ring_add(&r, &s, 1);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 0);
}
END_TEST

START_TEST(more_chains_in_hand_than_descriptors_are_refused)
{
	const struct seg s = { buf, 1, true };

	for (unsigned i = 0; i < 16; i++)
		ring_add(&r, &s, 1);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(pop(), 1);
	ring_add(&r, &s, 1);
	ck_assert_int_eq(pop(), -EPROTO);
	ck_assert_str_eq(q.fault, "more chains available than descriptors exist");
}
END_TEST

START_TEST(head_outside_the_ring_is_refused)
{
	static const uint16_t bad[] = { 16, 17, 65535 };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		ring_reset(&r);
		ring_offer(&r, bad[i]);
		ring_show(&r);
		assert_broken("descriptor number outside its table");
	}
}
END_TEST

START_TEST(next_outside_the_ring_is_refused)
{
	const struct seg s[] = { { buf, 1, false }, { buf, 1, true } };

	ring_add(&r, s, 2);
	r.desc[0].next = 16;
	assert_broken("descriptor number outside its table");
}
END_TEST

START_TEST(self_loop_is_refused)
{
	const struct seg s = { buf, 0, false };

	ring_add(&r, &s, 1);
	r.desc[0].flags = VRING_DESC_F_NEXT;
	r.desc[0].next = 0;
	assert_broken("descriptor chain loops");
}
END_TEST

START_TEST(two_cycle_is_refused)
{
	const struct seg s[] = { { buf, 1, false }, { buf, 1, false } };

	ring_add(&r, s, 2);
	r.desc[1].flags |= VRING_DESC_F_NEXT;
	r.desc[1].next = 0;
	assert_broken("descriptor chain loops");
}
END_TEST

static struct vring_desc *add_table(unsigned n)
{
	static struct seg s[RING_SEGS_MAX];

	for (unsigned i = 0; i < n; i++)
		s[i] = (struct seg){ buf, 1, false };
	ring_add_indirect(&r, table, s, n);
	return guest_at(&g, table);
}

START_TEST(loop_in_an_indirect_table_is_refused)
{
	struct vring_desc *t = add_table(3);

	t[2].flags |= VRING_DESC_F_NEXT;
	t[2].next = 1;
	assert_broken("descriptor chain loops");
}
END_TEST

START_TEST(next_outside_an_indirect_table_is_refused)
{
	struct vring_desc *t = add_table(3);

	/* Within the ring, not within the table. */
	t[0].next = 3;
	assert_broken("descriptor number outside its table");
}
END_TEST

START_TEST(indirect_inside_indirect_is_refused)
{
	struct vring_desc *t = add_table(3);

	t[1] = (struct vring_desc){ table, 32, VRING_DESC_F_INDIRECT, 0 };
	assert_broken("indirect table inside an indirect table");
}
END_TEST

START_TEST(indirect_with_next_is_refused)
{
	add_table(3);
	r.desc[0].flags |= VRING_DESC_F_NEXT;
	assert_broken("indirect table with a next descriptor");
}
END_TEST

START_TEST(indirect_of_impossible_length_is_refused)
{
	static const uint32_t bad[] = { 0, 1, 15, 17, 40, 16 * 1025, 16 << 20, UINT32_MAX,
					UINT32_MAX & ~15u };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		ring_reset(&r);
		begin(16, INDIRECT);
		add_table(1);
		r.desc[0].len = bad[i];
		assert_broken("indirect table of impossible length");
	}
}
END_TEST

START_TEST(indirect_outside_ram_is_refused)
{
	static const uint64_t bad[] = { 6u << 20, (5u << 20) - 16, UINT64_MAX - 15, UINT64_MAX };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(16, INDIRECT);
		add_table(2);
		r.desc[0].addr = bad[i];
		assert_broken("indirect table outside RAM");
	}
}
END_TEST

START_TEST(indirect_that_was_not_negotiated_is_refused)
{
	begin(16, EVENT_IDX);
	add_table(2);
	assert_broken("indirect table without VIRTIO_F_INDIRECT_DESC");
}
END_TEST

START_TEST(readable_after_writable_is_refused)
{
	const struct seg s[] = { { buf, 1, true }, { buf, 1, false } };
	const struct seg empty[] = { { buf, 0, true }, { buf, 1, false } };

	ring_add(&r, s, 2);
	assert_broken("readable descriptor after a writable one");
	begin(16, 0);
	ring_add(&r, empty, 2);
	assert_broken("readable descriptor after a writable one");
}
END_TEST

START_TEST(buffer_outside_ram_is_refused)
{
	const uint64_t top = (4ull << 30) + (1u << 20);
	const struct seg bad[] = {
		{ 6u << 20, 1, true },          /* in the hole */
		{ (5u << 20) - 8, 4096, true }, /* runs into it */
		{ (4ull << 30) - 1, 2, true },  /* comes out of it */
		{ top - 8, 4096, false },       /* off the end */
		{ top, 1, true },
		{ UINT64_MAX, 1, false },
		{ UINT64_MAX - 4, 4096, true }, /* wraps */
		{ buf, UINT32_MAX, true },      /* across everything */
		{ 0, UINT32_MAX, false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(16, 0);
		ring_add(&r, &bad[i], 1);
		assert_broken("buffer outside RAM");
	}
}
END_TEST

START_TEST(chain_of_four_gib_is_refused)
{
	const struct mem_region layout = { .gpa = 0, .len = 3ull << 30 };
	const struct seg ok[] = { { 0, 0x80000000u, true }, { 0, 0x7fffffffu, true } };
	const struct seg bad[] = { { 0, 0x80000000u, true }, { 0, 0x80000000u, true } };

	guest_destroy(&g);
	guest_create(&g, &layout, 1);
	begin(16, 0);
	ring_add(&r, ok, 2);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.in_len, UINT32_MAX);
	begin(16, 0);
	ring_add(&r, bad, 2);
	assert_broken("chain of 4 GiB or more");
}
END_TEST

START_TEST(chain_of_too_many_segments_is_refused)
{
	static struct seg s[VIRTQ_IOV_MAX];

	/* As many as there is room for, and one of them crosses two regions. */
	for (unsigned i = 0; i < VIRTQ_IOV_MAX; i++)
		s[i] = (struct seg){ buf, 1, true };
	ring_add_indirect(&r, table, s, VIRTQ_IOV_MAX);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(c.n_in, VIRTQ_IOV_MAX);
	begin(16, INDIRECT);
	s[500] = (struct seg){ (4u << 20) - 1, 2, true };
	ring_add_indirect(&r, table, s, VIRTQ_IOV_MAX);
	assert_broken("chain of too many segments");
}
END_TEST

/* --- push and publish ------------------------------------------------------------------------- */

static void one(uint32_t written)
{
	const struct seg s = { buf, 64, true };

	ring_add(&r, &s, 1);
	must(pop() == 1);
	virtq_push(&q, c.head, written);
}

START_TEST(pushes_show_only_after_publish)
{
	uint32_t head, len;

	one(11);
	one(12);
	ck_assert(!ring_take(&r, &head, &len));
	virtq_publish(&q);
	ck_assert(ring_take(&r, &head, &len));
	ck_assert_uint_eq(head, 0);
	ck_assert_uint_eq(len, 11);
	ck_assert(ring_take(&r, &head, &len));
	ck_assert_uint_eq(head, 1);
	ck_assert_uint_eq(len, 12);
	ck_assert(!ring_take(&r, &head, &len));
}
END_TEST

START_TEST(publish_of_nothing_wants_no_interrupt)
{
	ck_assert(!virtq_publish(&q));
	one(0);
	ck_assert(virtq_publish(&q));
	ck_assert(!virtq_publish(&q));
}
END_TEST

START_TEST(shown_entries_still_want_their_interrupt)
{
	uint32_t head, len;

	one(0);
	virtq_show(&q);
	ck_assert(ring_take(&r, &head, &len));
	ck_assert(virtq_publish(&q));
	ck_assert(!virtq_publish(&q));
	/* The driver looked, found all of them, and asks for the next one. */
	one(0);
	virtq_show(&q);
	ck_assert(ring_take(&r, &head, &len));
	ck_assert(!ring_want_irq(&r));
	ck_assert(!virtq_publish(&q));
	one(0);
	ck_assert(virtq_publish(&q));
}
END_TEST

START_TEST(without_event_index_flags_decide_about_interrupts)
{
	begin(16, 0);
	one(0);
	ck_assert(virtq_publish(&q));
	ring_no_irq(&r);
	one(0);
	ck_assert(!virtq_publish(&q));
	ring_want_irq(&r);
	one(0);
	ck_assert(virtq_publish(&q));
}
END_TEST

START_TEST(interrupt_comes_when_the_batch_passes_used_event)
{
	/* used_event = 0: the first entry. */
	one(0);
	ck_assert(virtq_publish(&q));
	/* Still 0: passed already. */
	one(0);
	ck_assert(!virtq_publish(&q));
	/* In the middle of a batch, at its last entry, behind it. */
	*ring_used_event(&r) = 3;
	for (unsigned i = 0; i < 4; i++)
		one(0);
	ck_assert(virtq_publish(&q));
	*ring_used_event(&r) = 6;
	one(0);
	ck_assert(virtq_publish(&q));
	*ring_used_event(&r) = 8;
	one(0);
	ck_assert(!virtq_publish(&q));
	one(0);
	ck_assert(virtq_publish(&q));
}
END_TEST

/* Whether event lies in [old, new), counted one by one. */
static bool passes(uint16_t event, uint16_t new, uint16_t old)
{
	for (uint16_t i = old; i != new; i++)
		if (i == event)
			return true;
	return false;
}

START_TEST(event_index_is_right_at_every_distance_and_at_the_wrap)
{
	unsigned seed = 1;

	for (unsigned i = 0; i < 20000; i++) {
		uint16_t old = q.signalled, batch = (uint16_t)(1 + rand_r(&seed) % 16);
		uint16_t event = (uint16_t)(old + rand_r(&seed) % 40 - 20);

		if (rand_r(&seed) % 8 == 0)
			event = (uint16_t)rand_r(&seed);
		*ring_used_event(&r) = event;
		for (unsigned k = 0; k < batch; k++)
			one(0);
		must(virtq_publish(&q) == passes(event, (uint16_t)(old + batch), old));
	}
}
END_TEST

START_TEST(indices_wrap_without_loss)
{
	uint32_t head, len, n = 0;

	begin(4, EVENT_IDX);
	for (unsigned i = 0; i < 140000; i++) {
		one(i & 0xff);
		virtq_publish(&q);
		while (ring_take(&r, &head, &len)) {
			must(head == (n & 3));
			must(len == (n & 0xff));
			n++;
		}
	}
	ck_assert_uint_eq(n, 140000);
}
END_TEST

/* --- mute and unmute -------------------------------------------------------------------------- */

START_TEST(muted_event_index_queue_gets_no_kicks_while_draining)
{
	const struct seg s = { buf, 1, true };
	unsigned kicks = 0;

	ck_assert(!virtq_unmute(&q));
	for (unsigned i = 0; i < 8; i++) {
		ring_add(&r, &s, 1);
		kicks += ring_wants_kick(&r);
		/* The first entry kicks; then the device works, and more come. */
		virtq_mute(&q);
		ck_assert_int_eq(pop(), 1);
		virtq_push(&q, c.head, 0);
		virtq_publish(&q);
	}
	ck_assert_uint_eq(kicks, 1);
	ck_assert(!virtq_unmute(&q));
	ring_add(&r, &s, 1);
	ck_assert(ring_wants_kick(&r));
}
END_TEST

START_TEST(muted_flags_queue_gets_no_kicks_while_draining)
{
	const struct seg s = { buf, 1, true };

	begin(16, 0);
	ring_add(&r, &s, 1);
	ck_assert(ring_wants_kick(&r));
	virtq_mute(&q);
	ring_add(&r, &s, 1);
	ck_assert(!ring_wants_kick(&r));
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 1);
	ck_assert(!virtq_unmute(&q));
	ring_add(&r, &s, 1);
	ck_assert(ring_wants_kick(&r));
}
END_TEST

START_TEST(unmute_sees_what_came_while_muted)
{
	const struct seg s = { buf, 1, true };

	for (unsigned features = 0; features < 2; features++) {
		begin(16, features ? EVENT_IDX : 0);
		virtq_mute(&q);
		ck_assert_int_eq(pop(), 0);
		ring_add(&r, &s, 1);
		ck_assert(virtq_unmute(&q));
		ck_assert_int_eq(pop(), 1);
		ck_assert(!virtq_unmute(&q));
	}
}
END_TEST

START_TEST(kicks_come_at_every_index_up_to_the_wrap)
{
	for (unsigned i = 0; i < 70000; i++) {
		const struct seg s = { buf, 1, true };

		must(!virtq_unmute(&q));
		ring_add(&r, &s, 1);
		must(ring_wants_kick(&r));
		must(pop() == 1);
		virtq_push(&q, c.head, 0);
		virtq_publish(&q);
	}
}
END_TEST

START_TEST(driver_waits_when_it_took_all_and_asks_for_the_next)
{
	uint32_t head, len;

	for (unsigned event_idx = 0; event_idx < 2; event_idx++) {
		begin(16, event_idx ? EVENT_IDX : 0);
		one(0);
		one(0);
		virtq_publish(&q);
		ring_no_irq(&r);
		ck_assert(!virtq_driver_waits(&q));
		ck_assert(ring_take(&r, &head, &len) && ring_take(&r, &head, &len));
		ck_assert(!ring_want_irq(&r));
		ck_assert(virtq_driver_waits(&q));
	}
	virtq_stop(&q);
	ck_assert(!virtq_driver_waits(&q));
}
END_TEST

/* --- a guest that changes its mind ------------------------------------------------------------ */

static _Atomic bool flip_stop, flip_started;

/* Rewrites descriptors, the table and the ring with plausible and wild values as fast as it can. */
static void *flipper(void *arg)
{
	static const uint64_t addr[] = { 0x5000, (5u << 20) - 8, UINT64_MAX - 3, 4ull << 30,
					 6u << 20 };
	static const uint32_t len[] = { 0, 1, 16, 64, 4096, UINT32_MAX };
	struct vring_desc *t = guest_at(&g, table);
	unsigned seed = 3;

	(void)arg;
	flip_started = true;
	while (!flip_stop) {
		unsigned x = (unsigned)rand_r(&seed);
		struct vring_desc *d = x & 1 ? &t[x / 2 % 16] : &r.desc[x / 2 % 16];

		d->addr = x & 32 ? table : addr[x / 64 % ARRAY_SIZE(addr)];
		d->len = len[x / 1024 % ARRAY_SIZE(len)];
		d->flags = (uint16_t)(x >> 16 & 7);
		d->next = (uint16_t)(x >> 20 & 31);
		r.avail->ring[x >> 24 & 15] = (uint16_t)(x >> 20 & 31);
	}
	return NULL;
}

START_TEST(flipping_descriptors_never_lead_outside_ram)
{
	unsigned good = 0, bad = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, flipper, NULL), 0);
	while (!flip_started)
		;
	for (unsigned i = 0; i < 100000 || good < 100 || bad < 100; i++) {
		int ret;

		r.avail_idx++;
		ring_show(&r);
		ret = pop();
		if (ret == 1) {
			unsigned n = c.n_out + c.n_in;
			uint64_t sum = 0;

			assert_in_ram(iov, n);
			for (unsigned k = 0; k < n; k++)
				sum += iov[k].iov_len;
			must(sum == (uint64_t)c.out_len + c.in_len);
			virtq_push(&q, c.head, 0);
			virtq_publish(&q);
			good++;
		} else {
			must(ret == -EPROTO);
			r.avail_idx = 0;
			ring_show(&r);
			virtq_start(&q, &g.mem, 16, r.desc_gpa, r.avail_gpa, r.used_gpa, INDIRECT);
			bad++;
		}
	}
	flip_stop = true;
	pthread_join(thread, NULL);
}
END_TEST

SUITE_MAIN_FIXTURE("virtq", 30, setup, teardown,
		   driver_waits_when_it_took_all_and_asks_for_the_next,
		   start_refuses_sizes_that_are_no_power_of_two_or_too_big,
		   start_refuses_misaligned_rings, start_refuses_rings_partly_outside_ram,
		   stopped_queue_pops_an_error, pop_of_an_empty_ring_is_zero,
		   pop_gives_readable_then_writable_segments,
		   pop_walks_indirect_tables_with_the_same_result,
		   pop_accepts_direct_descriptors_before_an_indirect_one,
		   pop_takes_tables_longer_than_the_ring, pop_takes_unaligned_tables,
		   pop_tolerates_empty_descriptors, pop_splits_a_buffer_that_crosses_two_regions,
		   pop_takes_one_byte_segments, pop_takes_a_chain_as_long_as_the_ring,
		   ring_of_one_descriptor_works, too_small_iov_takes_nothing,
		   unpop_gives_the_same_chains_again_in_order,
		   index_that_jumped_past_the_ring_is_refused,
		   index_that_went_backwards_is_refused, full_ring_is_no_jump,
		   more_chains_in_hand_than_descriptors_are_refused,
		   head_outside_the_ring_is_refused, next_outside_the_ring_is_refused,
		   self_loop_is_refused, two_cycle_is_refused,
		   loop_in_an_indirect_table_is_refused,
		   next_outside_an_indirect_table_is_refused, indirect_inside_indirect_is_refused,
		   indirect_with_next_is_refused, indirect_of_impossible_length_is_refused,
		   indirect_outside_ram_is_refused, indirect_that_was_not_negotiated_is_refused,
		   readable_after_writable_is_refused, buffer_outside_ram_is_refused,
		   chain_of_four_gib_is_refused, chain_of_too_many_segments_is_refused,
		   pushes_show_only_after_publish, publish_of_nothing_wants_no_interrupt,
		   shown_entries_still_want_their_interrupt,
		   without_event_index_flags_decide_about_interrupts,
		   interrupt_comes_when_the_batch_passes_used_event,
		   event_index_is_right_at_every_distance_and_at_the_wrap,
		   indices_wrap_without_loss,
		   muted_event_index_queue_gets_no_kicks_while_draining,
		   muted_flags_queue_gets_no_kicks_while_draining,
		   unmute_sees_what_came_while_muted, kicks_come_at_every_index_up_to_the_wrap,
		   flipping_descriptors_never_lead_outside_ram)
