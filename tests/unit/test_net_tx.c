/* Frames from the guest (devices/net_tx.c), with a socket for a tap. */
#include "tests/unit/net_rig.h"

#include "tests/unit/fixture.h"

#define SIZE 256

static struct rig r;
static struct frame f, got;

static void setup(void)
{
	rig_create(&r, 2, SIZE, ",offload=all");
	rig_start(&r, ~0ULL);
}

static void teardown(void)
{
	rig_destroy(&r);
}

static struct net_stats *stats(void)
{
	return &r.net->tx[0].stats;
}

/* The bytes of f in these pieces; returns the head. */
static uint16_t put_pieces(const uint32_t *len, unsigned n)
{
	const uint8_t *from = (const uint8_t *)&f;
	struct seg s[64];

	for (unsigned i = 0; i < n; i++) {
		s[i] = (struct seg){ rig_alloc(&r, len[i] + 64), len[i], false };
		memcpy(guest_at(&r.g, s[i].gpa), from, len[i]);
		from += len[i];
	}
	return ring_add(&r.ring[TX(0)], s, n);
}

/* f with its header is dropped, its head comes back, and a good one passes. */
static void assert_dropped(size_t total)
{
	uint64_t bad = stat_read(&stats()->bad);
	uint16_t head = tx_put(&r, 0, &f, total);
	uint32_t len;

	rig_kick(&r, TX(0));
	ck_assert_uint_eq(rig_used(&r, TX(0), &len), head);
	ck_assert_uint_eq(len, 0);
	ck_assert_uint_eq(stat_read(&stats()->bad), bad + 1);
	assert_tx(&r, 0, 100, 1);
	ck_assert_uint_eq(virtio_status_read(r.d), 15);
}

/* f with its header goes out; got holds it as it came out. */
static void assert_passes(size_t len)
{
	uint16_t head = tx_put(&r, 0, &f, HDR + len);
	uint32_t used;

	rig_kick(&r, TX(0));
	ck_assert_uint_eq(rig_used(&r, TX(0), &used), head);
	ck_assert_int_eq(far_recv(&r, 0, &got, 2000), (ssize_t)len);
	ck_assert_mem_eq(got.data, f.data, len);
}

START_TEST(frames_of_all_sizes_go_out)
{
	static const size_t sizes[] = { 14, 15, 60, 1500, 1514, 9014, 16384, 65535, 65550, 65597 };

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		assert_tx(&r, 0, sizes[i], i);
	ck_assert_uint_eq(stat_read(&stats()->frames), ARRAY_SIZE(sizes));
	ck_assert_uint_eq(stat_read(&r.d->queue[TX(0)].stats.requests), ARRAY_SIZE(sizes));
}
END_TEST

START_TEST(header_may_be_cut_anywhere)
{
	uint32_t used;

	frame_make(&f, 100, 3);
	for (uint32_t cut = 1; cut < HDR + 100; cut++) {
		const uint32_t two[] = { cut, HDR + 100 - cut };

		(void)put_pieces(two, 2);
		rig_kick(&r, TX(0));
		(void)rig_used(&r, TX(0), &used);
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 100);
		must(memcmp(got.data, f.data, 100) == 0);
	}
}
END_TEST

START_TEST(frame_of_one_byte_segments_goes_out)
{
	const struct seg s = { rig_alloc(&r, 1100), 1023, false };
	uint64_t table = rig_alloc(&r, 16 * 1100);
	uint32_t used;

	/* 1023 segments; the header's twelve become one. */
	frame_make(&f, 1023 - HDR, 4);
	memcpy(guest_at(&r.g, s.gpa), &f, 1023);
	ring_add_bytes(&r.ring[TX(0)], table, &s, 1);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &used);
	ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 1023 - HDR);
	ck_assert_mem_eq(got.data, f.data, 1023 - HDR);
}
END_TEST

/* --- S-04: nonsense --------------------------------------------------------------------------- */

START_TEST(short_frames_are_dropped_and_their_heads_come_back)
{
	frame_make(&f, 100, 1);
	for (size_t total = 1; total < HDR + ETH_HLEN; total++)
		assert_dropped(total);
}
END_TEST

START_TEST(empty_chain_is_dropped)
{
	const struct seg s = { r.area, 0, false };
	uint32_t len;

	ring_add(&r.ring[TX(0)], &s, 1);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &len);
	ck_assert_uint_eq(stat_read(&stats()->bad), 1);
	assert_tx(&r, 0, 100, 1);
}
END_TEST

START_TEST(writable_chain_is_dropped_and_not_written)
{
	const struct seg s = { r.area, 2000, true };
	uint32_t len;

	memset(guest_at(&r.g, r.area), 0x55, 2000);
	r.area_next = r.area + 4096;
	ring_add(&r.ring[TX(0)], &s, 1);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &len);
	ck_assert_uint_eq(len, 0);
	ck_assert_uint_eq(stat_read(&stats()->bad), 1);
	for (unsigned i = 0; i < 2000; i++)
		must(((uint8_t *)guest_at(&r.g, r.area))[i] == 0x55);
	assert_tx(&r, 0, 100, 1);
}
END_TEST

START_TEST(frame_above_64_kib_is_dropped)
{
	frame_make(&f, 69000, 1);
	assert_dropped(NET_TX_MAX + 1);
	assert_dropped(69000);
}
END_TEST

START_TEST(chain_of_more_segments_than_a_writev_takes_is_dropped)
{
	const struct seg s = { rig_alloc(&r, 2048), 1023, false };
	uint64_t table = rig_alloc(&r, 16 * 1100);
	static struct seg many[1024];
	uint32_t len;

	/* The header and its frame share the first segment, so 1024 become 1025. */
	many[0] = (struct seg){ s.gpa, HDR + 14, false };
	for (unsigned i = 1; i < 1024; i++)
		many[i] = (struct seg){ s.gpa + i, 1, false };
	memset(guest_at(&r.g, s.gpa), 0, 2048);
	ring_add_indirect(&r.ring[TX(0)], table, many, 1024);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &len);
	ck_assert_uint_eq(stat_read(&stats()->bad), 1);
	ck_assert_uint_eq(virtio_status_read(r.d), 15);
	assert_tx(&r, 0, 100, 1);
}
END_TEST

START_TEST(checksum_outside_the_frame_is_dropped)
{
	static const uint16_t bad[][2] = {
		{ 99, 0 }, { 98, 1 }, { 0, 99 }, { 65535, 65535 }, { 100, 0 }
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		frame_make(&f, 100, 1);
		f.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		f.hdr.csum_start = bad[i][0];
		f.hdr.csum_offset = bad[i][1];
		assert_dropped(HDR + 100);
	}
	f.hdr.csum_start = 34;
	f.hdr.csum_offset = 64;
	assert_passes(100);
	ck_assert_uint_eq(got.hdr.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	ck_assert_uint_eq(got.hdr.csum_start, 34);
	ck_assert_uint_eq(got.hdr.csum_offset, 64);
}
END_TEST

START_TEST(unknown_gso_types_and_size_0_are_dropped)
{
	static const uint8_t good[] = { 1, 3, 4, 5, 0x81, 0x84 };

	for (unsigned type = 0; type < 256; type++) {
		bool ok = type == 0 || memchr(good, (int)type, sizeof(good));

		frame_make(&f, 3000, type);
		f.hdr.gso_type = (uint8_t)type;
		f.hdr.gso_size = 1448;
		f.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		if (ok)
			assert_passes(3000);
		else
			assert_dropped(HDR + 3000);
		f.hdr.gso_size = 0;
		if (type && ok)
			assert_dropped(HDR + 3000);
	}
	f.hdr.gso_type = 1;
	f.hdr.gso_size = 65535;
	assert_passes(3000);
}
END_TEST

START_TEST(wrong_hdr_len_is_ignored_and_foreign_flags_are_cleared)
{
	static const uint16_t wrong[] = { 1, 13, 101, 65535 };

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		frame_make(&f, 100, i);
		f.hdr.hdr_len = wrong[i];
		f.hdr.flags = 0xfe;
		f.hdr.num_buffers = 77;
		assert_passes(100);
		ck_assert_uint_eq(got.hdr.hdr_len, 0);
		ck_assert_uint_eq(got.hdr.flags, 0);
		ck_assert_uint_eq(got.hdr.num_buffers, 0);
	}
	f.hdr.hdr_len = 100;
	assert_passes(100);
	ck_assert_uint_eq(got.hdr.hdr_len, 100);
}
END_TEST

START_TEST(offloads_not_negotiated_are_dropped)
{
	static const struct {
		unsigned bit;
		uint8_t type;
	} cases[] = {
		{ VIRTIO_NET_F_HOST_TSO4, 1 },
		{ VIRTIO_NET_F_HOST_TSO6, 4 },
		{ VIRTIO_NET_F_HOST_UFO, 3 },
		{ 56, 5 },
	};
	const uint64_t all = BIT(11) | BIT(12) | BIT(13) | BIT(14) | BIT(56);

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		rig_stop(&r);
		rig_start(&r, ~(all & ~BIT(cases[i].bit)));
		for (unsigned k = 0; k < ARRAY_SIZE(cases); k++) {
			frame_make(&f, 3000, k);
			f.hdr.gso_type = cases[k].type;
			f.hdr.gso_size = 1000;
			if (i == k)
				assert_passes(3000);
			else
				assert_dropped(HDR + 3000);
		}
		f.hdr.gso_type = 0x81;
		assert_dropped(HDR + 3000);
	}
	rig_stop(&r);
	rig_start(&r, ~BIT(VIRTIO_NET_F_CSUM));
	frame_make(&f, 100, 1);
	f.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	assert_dropped(HDR + 100);
}
END_TEST

START_TEST(broken_ring_stops_its_queue_only)
{
	ring_offer(&r.ring[TX(0)], 9999);
	ring_show(&r.ring[TX(0)]);
	irq_signal(r.d->queue[TX(0)].kick_fd);
	for (unsigned i = 0; i < 2000 && virtio_status_read(r.d) == 15; i++)
		usleep(1000);
	ck_assert_uint_eq(virtio_status_read(r.d), 15 | 0x40);
	rx_post(&r, 0, 32, 2048);
	assert_rx(&r, 0, 100, 1);
	assert_tx(&r, 1, 100, 1);
	rig_stop(&r);
	rig_start(&r, ~0ULL);
	assert_tx(&r, 0, 100, 2);
}
END_TEST

/* --- back-pressure (N-04) --------------------------------------------------------------------- */

/* Fill the ring until the socket has had enough and the device waits. */
static unsigned fill_until_stalled(unsigned first)
{
	unsigned n = first;

	while (stat_read(&stats()->stalls) == 0 && n - first < 4000) {
		uint32_t head, len;

		frame_make(&f, 1000, n);
		memcpy(f.data + 20, &n, sizeof(n));
		(void)tx_put(&r, 0, &f, HDR + 1000);
		n++;
		rig_kick(&r, TX(0));
		while ((uint16_t)(r.ring[TX(0)].avail_idx - r.ring[TX(0)].last_used) > SIZE - 8 &&
		       stat_read(&stats()->stalls) == 0)
			if (!ring_take(&r.ring[TX(0)], &head, &len))
				usleep(100);
	}
	ck_assert_uint_eq(stat_read(&stats()->stalls), 1);
	return n;
}

START_TEST(tap_that_says_try_again_loses_nothing)
{
	unsigned sent = fill_until_stalled(0), seen, back = r.ring[TX(0)].last_used;
	uint32_t head, len;

	for (unsigned i = 0; i < sent; i++) {
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 1000);
		memcpy(&seen, got.data + 20, sizeof(seen));
		must(seen == i);
	}
	for (; back < sent; back++)
		(void)rig_used(&r, TX(0), &len);
	ck_assert(!ring_take(&r.ring[TX(0)], &head, &len));
	ck_assert_uint_eq(stat_read(&stats()->frames), sent);
	ck_assert_uint_eq(stat_read(&stats()->dropped), 0);
	assert_tx(&r, 0, 500, 9);
}
END_TEST

START_TEST(waiting_for_the_tap_costs_no_cpu_and_no_kicks)
{
	unsigned sent = fill_until_stalled(0);
	long before = cpu_us();

	usleep(300000);
	ck_assert_int_lt(cpu_us() - before, 30000);
	/* A kick all the same (a driver that ignores the event index) is harmless. */
	irq_signal(r.d->queue[TX(0)].kick_fd);
	assert_tx(&r, 1, 100, 1);
	for (unsigned i = 0; i < sent; i++)
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 1000);
}
END_TEST

START_TEST(what_was_sent_is_published_before_the_wait)
{
	unsigned sent = fill_until_stalled(0);
	uint16_t done = __atomic_load_n(&r.ring[TX(0)].used->idx, __ATOMIC_ACQUIRE);

	for (unsigned i = 0; i < 1000 && done != (uint16_t)stat_read(&stats()->frames); i++) {
		usleep(1000);
		done = __atomic_load_n(&r.ring[TX(0)].used->idx, __ATOMIC_ACQUIRE);
	}
	ck_assert_uint_eq(done, stat_read(&stats()->frames));
	ck_assert_uint_lt(done, sent);
}
END_TEST

START_TEST(reset_while_waiting_for_the_tap)
{
	for (unsigned round = 0; round < 3; round++) {
		(void)fill_until_stalled(0);
		rig_stop(&r);
		while (far_recv(&r, 0, &got, 0) >= 0)
			;
		rig_start(&r, ~0ULL);
		atomic_store(&stats()->stalls, 0);
		assert_tx(&r, 0, 100, round);
	}
}
END_TEST

START_TEST(closed_other_end_drops_and_counts)
{
	uint32_t len;

	close(r.far[0]);
	r.far[0] = 0;
	frame_make(&f, 100, 1);
	for (unsigned i = 0; i < 50; i++) {
		(void)tx_put(&r, 0, &f, HDR + 100);
		rig_kick(&r, TX(0));
		(void)rig_used(&r, TX(0), &len);
	}
	ck_assert_uint_eq(stat_read(&stats()->dropped), 50);
	assert_tx(&r, 1, 100, 1);
}
END_TEST

/* --- batches, kicks, event index -------------------------------------------------------------- */

START_TEST(heads_come_back_in_batches_long_before_the_ring_is_done)
{
	struct virtio_queue *q = &r.d->queue[TX(0)];
	uint32_t len;

	frame_make(&f, 60, 1);
	for (unsigned i = 0; i < SIZE; i++)
		(void)tx_put(&r, 0, &f, HDR + 60);
	rig_kick(&r, TX(0));
	for (unsigned i = 0; i < SIZE; i++) {
		(void)rig_used(&r, TX(0), &len);
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 60);
	}
	ck_assert_uint_ge(stat_read(&q->stats.batches), SIZE / NET_BATCH_FRAMES);
	ck_assert_uint_le(stat_read(&q->stats.batches), SIZE / 4);
	/* The budget of a pass was spent, and the device's kick to itself is none of the guest's. */
	ck_assert_uint_eq(SIZE, NET_BUDGET_FRAMES);
	usleep(20000);
	ck_assert_uint_eq(stat_read(&q->stats.kicks), 1);
}
END_TEST

START_TEST(queue_with_work_asks_for_no_kicks)
{
	struct ring *tx = &r.ring[TX(0)];
	unsigned sent = fill_until_stalled(0), wanted = 0;
	uint32_t len;

	/* One was perhaps asked for before; from then on the device knows that there is work. */
	(void)ring_wants_kick(tx);
	frame_make(&f, 1000, 1);
	while ((uint16_t)(tx->avail_idx - tx->used->idx) < SIZE) {
		(void)tx_put(&r, 0, &f, HDR + 1000);
		wanted += ring_wants_kick(tx);
		sent++;
	}
	ck_assert_uint_eq(wanted, 0);
	for (unsigned i = 0; i < sent; i++)
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 1000);
	while (tx->last_used != tx->avail_idx)
		(void)rig_used(&r, TX(0), &len);
	assert_tx(&r, 0, 100, 1);
}
END_TEST

START_TEST(without_event_index_the_flags_rule)
{
	rig_stop(&r);
	rig_start(&r, ~BIT(VIRTIO_RING_F_EVENT_IDX));
	for (unsigned i = 0; i < 200; i++)
		assert_tx(&r, 0, 100, i);
	ring_no_irq(&r.ring[TX(0)]);
	/* An interrupt more may be on its way. */
	usleep(20000);
	uint64_t before = stat_read(&r.d->queue[TX(0)].stats.interrupts);

	frame_make(&f, 60, 1);
	for (unsigned i = 0; i < 50; i++)
		(void)tx_put(&r, 0, &f, HDR + 60);
	rig_kick(&r, TX(0));
	for (unsigned i = 0; i < 50; i++)
		ck_assert_int_eq(far_recv(&r, 0, &got, 2000), 60);
	ck_assert(counted(&stats()->frames, 250));
	ck_assert_uint_eq(stat_read(&r.d->queue[TX(0)].stats.interrupts), before);
}
END_TEST

/* N-08: one frame at a time, through the wrap of the indices. */
START_TEST(no_kick_or_interrupt_is_lost_at_the_wrap_of_the_indices)
{
	frame_make(&f, 60, 1);
	for (unsigned i = 0; i < 66000; i++) {
		uint32_t len;

		(void)tx_put(&r, 0, &f, HDR + 60);
		rig_kick(&r, TX(0));
		(void)rig_used(&r, TX(0), &len);
		must(recv(r.far[0], &got, sizeof(got), 0) == HDR + 60);
	}
}
END_TEST

START_TEST(flood_on_one_direction_leaves_the_other_its_turn)
{
	uint32_t head, len;

	/* One thread serves both: RX frames come through while TX has always work. */
	rx_post(&r, 0, 64, 2048);
	frame_make(&f, 60, 1);
	for (unsigned i = 0; i < 40; i++) {
		while ((uint16_t)(r.ring[TX(0)].avail_idx - r.ring[TX(0)].last_used) < SIZE)
			(void)tx_put(&r, 0, &f, HDR + 60);
		rig_kick(&r, TX(0));
		assert_rx(&r, 0, 100, i);
		while (ring_take(&r.ring[TX(0)], &head, &len))
			;
		while (far_recv(&r, 0, &got, 0) >= 0)
			;
	}
}
END_TEST

SUITE_MAIN_FIXTURE(
	"net_tx", 60, setup, teardown, frames_of_all_sizes_go_out, header_may_be_cut_anywhere,
	frame_of_one_byte_segments_goes_out, short_frames_are_dropped_and_their_heads_come_back,
	empty_chain_is_dropped, writable_chain_is_dropped_and_not_written,
	frame_above_64_kib_is_dropped, chain_of_more_segments_than_a_writev_takes_is_dropped,
	checksum_outside_the_frame_is_dropped, unknown_gso_types_and_size_0_are_dropped,
	wrong_hdr_len_is_ignored_and_foreign_flags_are_cleared, offloads_not_negotiated_are_dropped,
	broken_ring_stops_its_queue_only, tap_that_says_try_again_loses_nothing,
	waiting_for_the_tap_costs_no_cpu_and_no_kicks, what_was_sent_is_published_before_the_wait,
	reset_while_waiting_for_the_tap, closed_other_end_drops_and_counts,
	heads_come_back_in_batches_long_before_the_ring_is_done, queue_with_work_asks_for_no_kicks,
	without_event_index_the_flags_rule, no_kick_or_interrupt_is_lost_at_the_wrap_of_the_indices,
	flood_on_one_direction_leaves_the_other_its_turn)
