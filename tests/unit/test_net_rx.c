/* Frames to the guest (devices/net_rx.c), with a socket for a tap. */
#include "tests/unit/net_rig.h"

#include "tests/unit/fixture.h"

#define SIZE 256
#define MRG  BIT(VIRTIO_NET_F_MRG_RXBUF)

static struct rig r;
static struct frame f, got;

static void setup(void)
{
	rig_create(&r, 2, SIZE, ",offload=all");
}

static void teardown(void)
{
	rig_destroy(&r);
}

static struct net_stats *stats(void)
{
	return &r.net->rx[0].stats;
}

static void restart(uint64_t features)
{
	rig_stop(&r);
	rig_start(&r, features);
}

/* --- whole frames (N-10) ---------------------------------------------------------------------- */

START_TEST(frames_of_all_sizes_come_in_with_mergeable_buffers)
{
	static const size_t sizes[] = { 14, 15, 60, 1500, 1514, 1515, 9014, 16384, 65535, 65550 };

	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 1526);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_rx(&r, 0, sizes[i], i);
		rx_post(&r, 0, (unsigned)(sizes[i] + HDR + 1525) / 1526, 1526);
	}
	ck_assert_uint_eq(stat_read(&stats()->frames), ARRAY_SIZE(sizes));
}
END_TEST

START_TEST(number_of_buffers_and_used_lengths_add_up)
{
	uint32_t len, sum = 0;
	uint16_t n = 0;

	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 1000);
	frame_make(&f, 5000, 1);
	ck_assert(far_send(&r, 0, &f, 5000));
	for (unsigned i = 0; i < 6; i++) {
		uint32_t head = rig_used(&r, RX(0), &len);

		if (i == 0)
			memcpy(&n, (uint8_t *)guest_at(&r.g, r.ring[RX(0)].desc[head].addr) + 10,
			       2);
		ck_assert_uint_eq(len, i < 5 ? 1000 : 5000 + HDR - 5000);
		sum += len;
	}
	ck_assert_uint_eq(n, 6);
	ck_assert_uint_eq(sum, 5000 + HDR);
	ck_assert(rig_quiet(&r, RX(0), 20));
}
END_TEST

START_TEST(frame_that_fills_its_buffers_exactly)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, 70, 1000);
	for (unsigned i = 0; i < 5; i++) {
		rx_post(&r, 0, 4, 1000);
		assert_rx(&r, 0, 3000 - HDR, i);
		assert_rx(&r, 0, 1000 - HDR, i);
	}
	restart(~MRG);
	for (unsigned i = 0; i < 5; i++) {
		rx_post(&r, 0, 1, 1000);
		assert_rx(&r, 0, 1000 - HDR, i);
	}
}
END_TEST

START_TEST(many_small_mergeable_buffers)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 64);
	assert_rx(&r, 0, 1514, 1);
	assert_rx(&r, 0, 9014, 2);
	/* 24 + 142 are gone; the next does not fit into what is left. */
	frame_make(&f, 9014, 3);
	ck_assert(far_send(&r, 0, &f, 9014));
	ck_assert(counted(&stats()->dropped, 1));
	assert_rx(&r, 0, 1514, 4);
}
END_TEST

START_TEST(buffers_just_long_enough_for_the_header)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, HDR);
	assert_rx(&r, 0, 60, 1);
	assert_rx(&r, 0, 1514, 1);
}
END_TEST

START_TEST(more_small_buffers_than_one_read_takes)
{
	rig_destroy(&r);
	rig_create(&r, 1, 4096, ",offload=all");
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, 4096, 32);
	/* 1023 segments are the limit: the frame that needs them all still comes in. */
	assert_rx(&r, 0, 1023 * 32 - HDR, 1);
	frame_make(&f, 1023 * 32 - HDR + 1, 2);
	ck_assert(far_send(&r, 0, &f, 1023 * 32 - HDR + 1));
	ck_assert(counted(&stats()->dropped, 1));
	assert_rx(&r, 0, 1514, 3);
}
END_TEST

START_TEST(chains_of_several_descriptors)
{
	struct seg s[3];

	for (unsigned mrg = 0; mrg < 2; mrg++) {
		if (mrg)
			rig_stop(&r);
		rig_start(&r, mrg ? ~0ULL : ~MRG);
		for (unsigned i = 0; i < 20; i++) {
			/* A driver without MRG_RXBUF gives the header a descriptor of its own. */
			s[0] = (struct seg){ rig_alloc(&r, 64), HDR, true };
			s[1] = (struct seg){ rig_alloc(&r, 4096), 1000, true };
			s[2] = (struct seg){ rig_alloc(&r, 4096), 4000, true };
			ring_add(&r.ring[RX(0)], s, 3);
			rig_kick(&r, RX(0));
			assert_rx(&r, 0, 100 + i * 200, i);
			ck_assert_uint_eq(
				((struct virtio_net_hdr_v1 *)guest_at(&r.g, s[0].gpa))->num_buffers,
				1);
		}
	}
}
END_TEST

START_TEST(header_cut_into_bytes)
{
	const struct seg s = { rig_alloc(&r, 1100), 1000, true };
	uint64_t table = rig_alloc(&r, 16 * 1100);
	uint32_t len;

	rig_start(&r, ~MRG);
	r.area_next = r.area + 65536;
	ring_add_bytes(&r.ring[RX(0)], table, &s, 1);
	rig_kick(&r, RX(0));
	frame_make(&f, 500, 1);
	ck_assert(far_send(&r, 0, &f, 500));
	(void)rig_used(&r, RX(0), &len);
	ck_assert_uint_eq(len, HDR + 500);
	f.hdr.num_buffers = 1;
	ck_assert_mem_eq(guest_at(&r.g, s.gpa), &f, HDR + 500);
}
END_TEST

START_TEST(without_mergeable_buffers_num_buffers_is_1)
{
	rig_start(&r, ~MRG);
	rx_post(&r, 0, 8, 2048);
	frame_make(&f, 100, 1);
	f.hdr.num_buffers = 7;
	ck_assert(far_send(&r, 0, &f, 100));
	ck_assert_int_eq(rx_take(&r, 0, &got), 100);
	ck_assert_uint_eq(got.hdr.num_buffers, 1);
}
END_TEST

START_TEST(small_buffers_take_the_whole_frame_or_none)
{
	rig_start(&r, ~MRG);
	rx_post(&r, 0, 8, 1526);
	assert_rx(&r, 0, 1514, 1);
	frame_make(&f, 1515, 2);
	ck_assert(far_send(&r, 0, &f, 1515));
	frame_make(&f, 65550, 3);
	ck_assert(far_send(&r, 0, &f, 65550));
	assert_rx(&r, 0, 1514, 4);
	ck_assert_uint_eq(stat_read(&stats()->dropped), 2);
	/* The buffers that were too small were not used up. */
	for (unsigned i = 0; i < 6; i++)
		assert_rx(&r, 0, 1000, i);
	ck_assert(rig_quiet(&r, RX(0), 10));
}
END_TEST

/* --- S-04: nonsense --------------------------------------------------------------------------- */

/* It costs itself, not the frames behind it: they raise no edge of their own. */
START_TEST(message_without_bytes_does_not_stop_the_rest)
{
	rig_start(&r, ~0ULL);
	rig_stop(&r);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(send(r.far[0], "", 0, 0), 0);
	frame_make(&f, 100, 7);
	ck_assert(far_send(&r, 0, &f, 100));
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	ck_assert(rx_take(&r, 0, &got) == 100);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(send(r.far[0], "", 0, 0), 0);
	assert_rx(&r, 0, 200, 8);
}
END_TEST

START_TEST(far_end_that_is_closed_costs_no_cpu)
{
	struct timespec before, after;
	clockid_t clock;

	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	ck_assert_int_eq(pthread_getcpuclockid(r.d->queue[0].thread->thread, &clock), 0);
	close(r.far[0]);
	r.far[0] = 0;
	usleep(100000);
	clock_gettime(clock, &before);
	usleep(500000);
	clock_gettime(clock, &after);
	ck_assert_int_lt((after.tv_sec - before.tv_sec) * 1000 +
				 (after.tv_nsec - before.tv_nsec) / 1000000, 50);
}
END_TEST

/* Virtio 1.2, 5.1.4.1. */
START_TEST(frame_above_the_negotiated_mtu_is_dropped)
{
	rig_destroy(&r);
	rig_create(&r, 1, SIZE, ",offload=all,mtu=1400");
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	frame_make(&f, 1423, 1);
	ck_assert(far_send(&r, 0, &f, 1423));
	assert_rx(&r, 0, 1422, 2); /* with two VLAN tags */
	ck_assert_uint_eq(stat_read(&stats()->dropped), 1);
	restart(~BIT(VIRTIO_NET_F_MTU));
	rx_post(&r, 0, SIZE, 2048);
	assert_rx(&r, 0, 1423, 3);
}
END_TEST

START_TEST(useless_buffers_come_back_empty)
{
	static const uint32_t lens[] = { 0, 5, 12, 25 };
	uint32_t len;

	rig_start(&r, ~MRG);
	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++) {
		const struct seg s = { rig_alloc(&r, 64), lens[i], true };
		uint16_t head = ring_add(&r.ring[RX(0)], &s, 1);

		rig_kick(&r, RX(0));
		irq_signal(r.d->queue[RX(0)].kick_fd);
		ck_assert_uint_eq(rig_used(&r, RX(0), &len), head);
		ck_assert_uint_eq(len, 0);
	}
	ck_assert_uint_eq(stat_read(&stats()->bad), ARRAY_SIZE(lens));
	rx_post(&r, 0, 4, 2048);
	assert_rx(&r, 0, 1514, 1);
	ck_assert_uint_eq(virtio_status_read(r.d), 15);
}
END_TEST

START_TEST(useless_mergeable_buffers_come_back_empty)
{
	static const uint32_t lens[] = { 0, 5, 11 };
	uint32_t len;

	rig_start(&r, ~0ULL);
	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++) {
		const struct seg s = { rig_alloc(&r, 64), lens[i], true };
		uint16_t head = ring_add(&r.ring[RX(0)], &s, 1);

		irq_signal(r.d->queue[RX(0)].kick_fd);
		ck_assert_uint_eq(rig_used(&r, RX(0), &len), head);
		ck_assert_uint_eq(len, 0);
	}
	rx_post(&r, 0, 64, 2048);
	assert_rx(&r, 0, 1514, 1);
}
END_TEST

START_TEST(readable_buffers_come_back_unread)
{
	const struct seg s[] = { { r.area, 100, false }, { r.area + 4096, 2048, true } };
	uint32_t len;

	rig_start(&r, ~0ULL);
	r.area_next = r.area + 65536;
	for (unsigned n = 1; n <= 2; n++) {
		uint16_t head = ring_add(&r.ring[RX(0)], s, n);

		irq_signal(r.d->queue[RX(0)].kick_fd);
		ck_assert_uint_eq(rig_used(&r, RX(0), &len), head);
		ck_assert_uint_eq(len, 0);
	}
	rx_post(&r, 0, 64, 2048);
	assert_rx(&r, 0, 1514, 1);
}
END_TEST

START_TEST(buffer_of_more_segments_than_a_read_takes_comes_back)
{
	const struct seg s = { rig_alloc(&r, 2048), 1024, true };
	uint64_t table = rig_alloc(&r, 16 * 1100);
	uint32_t len;

	rig_start(&r, ~0ULL);
	r.area_next = r.area + 65536;
	for (unsigned k = 0; k < 2; k++) {
		/* First in hand, or behind others. */
		if (k)
			rx_post(&r, 0, 10, 2048);
		uint16_t head = ring_add_bytes(&r.ring[RX(0)], table, &s, 1);

		irq_signal(r.d->queue[RX(0)].kick_fd);
		if (k)
			for (unsigned i = 0; i < 10; i++)
				assert_rx(&r, 0, 1000, i);
		ck_assert_uint_eq(rig_used(&r, RX(0), &len), head);
		ck_assert_uint_eq(len, 0);
	}
	rx_post(&r, 0, 64, 2048);
	assert_rx(&r, 0, 1514, 1);
	ck_assert_uint_eq(virtio_status_read(r.d), 15);
}
END_TEST

/*
 * Useless buffers without end do not hold the thread: TX on the same thread, and a reset, get
 * through.
 */
START_TEST(flood_of_useless_buffers_has_an_end)
{
	struct ring *rx = &r.ring[RX(0)];
	const struct seg s = { r.area, 5, true };
	uint32_t head, len;

	rig_start(&r, ~0ULL);
	r.area_next = r.area + 65536;
	for (unsigned i = 0; i < 2000; i++) {
		while ((uint16_t)(rx->avail_idx - rx->last_used) < SIZE)
			ring_add(rx, &s, 1);
		irq_signal(r.d->queue[RX(0)].kick_fd);
		while (ring_take(rx, &head, &len))
			;
		if (i % 500 == 0)
			assert_tx(&r, 0, 100, i);
	}
	rig_stop(&r);
}
END_TEST

START_TEST(runt_frames_from_the_tap_are_dropped)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	frame_make(&f, 100, 1);
	for (size_t total = 1; total < HDR + ETH_HLEN; total++)
		ck_assert(send(r.far[0], &f, total, 0) == (ssize_t)total);
	assert_rx(&r, 0, 60, 1);
	ck_assert_uint_eq(stat_read(&stats()->bad), HDR + ETH_HLEN - 1);
}
END_TEST

/* --- headers (N-09) --------------------------------------------------------------------------- */

static void assert_header(uint8_t flags, uint8_t gso, bool passes, uint8_t flags_then)
{
	uint64_t bad = stat_read(&stats()->bad);

	frame_make(&f, 1000, 1);
	f.hdr.flags = flags;
	f.hdr.gso_type = gso;
	f.hdr.gso_size = gso ? 500 : 0;
	f.hdr.csum_start = 34;
	f.hdr.csum_offset = 16;
	ck_assert(far_send(&r, 0, &f, 1000));
	if (!passes) {
		ck_assert(counted(&stats()->bad, bad + 1));
		return;
	}
	ck_assert_int_eq(rx_take(&r, 0, &got), 1000);
	ck_assert_uint_eq(got.hdr.flags, flags_then);
	ck_assert_uint_eq(got.hdr.gso_type, gso);
	ck_assert_uint_eq(got.hdr.num_buffers, 1);
}

START_TEST(only_offloads_that_the_driver_took_come_in)
{
	const uint64_t guest = BIT(1) | BIT(7) | BIT(8) | BIT(9) | BIT(10) | BIT(54) | BIT(55);

	rig_start(&r, ~guest);
	rx_post(&r, 0, SIZE, 2048);
	assert_header(0, 0, true, 0);
	assert_header(VIRTIO_NET_HDR_F_DATA_VALID, 0, true, 0);
	assert_header(VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, false, 0);
	assert_header(0, 1, false, 0);
	assert_header(0, 4, false, 0);
	assert_header(0, 3, false, 0);
	assert_header(0, 5, false, 0);
	restart(~guest | BIT(1) | BIT(7) | BIT(54));
	rx_post(&r, 0, SIZE, 2048);
	assert_header(VIRTIO_NET_HDR_F_DATA_VALID, 0, true, VIRTIO_NET_HDR_F_DATA_VALID);
	assert_header(VIRTIO_NET_HDR_F_NEEDS_CSUM, 1, true, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	assert_header(0xfc, 0, true, 0);
	assert_header(1, 0x81, false, 0);
	assert_header(1, 4, false, 0);
	/* Half of USO is none. */
	assert_header(1, 5, false, 0);
	restart(~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	assert_header(1, 0x81, true, 1);
	assert_header(1, 0x84, true, 1);
	assert_header(1, 3, true, 1);
	assert_header(1, 5, true, 1);
	assert_header(1, 0x85, false, 0);
	assert_header(1, 2, false, 0);
	assert_header(1, 0x80, false, 0);
}
END_TEST

START_TEST(checksum_outside_the_frame_is_dropped)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	frame_make(&f, 100, 1);
	f.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	f.hdr.csum_start = 98;
	f.hdr.csum_offset = 1;
	ck_assert(far_send(&r, 0, &f, 100));
	ck_assert(counted(&stats()->bad, 1));
	assert_rx(&r, 0, 100, 1);
}
END_TEST

/* --- no buffers, few buffers (N-06, N-07) ----------------------------------------------------- */

/* So many frames into so many buffers, in whatever order the two meet; all frames arrive. */
static void run_dry(unsigned frames, unsigned buffers)
{
	unsigned taken = 0, sent = 0, seen;

	rx_post(&r, 0, buffers, 2048);
	while (taken < frames) {
		for (; sent < frames && sent - taken < 150; sent++) {
			frame_make(&f, 600, sent);
			memcpy(f.data + 20, &sent, sizeof(sent));
			if (!far_send(&r, 0, &f, 600))
				break;
		}
		if (rx_take_within(&r, 0, &got, 20) < 0) {
			rx_post(&r, 0, buffers, 2048);
			continue;
		}
		memcpy(&seen, got.data + 20, sizeof(seen));
		must(seen == taken);
		taken++;
	}
	ck_assert(rig_quiet(&r, RX(0), 10));
}

START_TEST(frames_wait_for_buffers_and_need_no_other_push)
{
	static const unsigned buffers[] = { 1, 2, 33, 64, 256 };

	for (unsigned mrg = 0; mrg < 2; mrg++) {
		for (unsigned i = 0; i < ARRAY_SIZE(buffers); i++) {
			for (int more = -1; more <= 1; more++) {
				if (mrg + i > 0 || more > -1)
					rig_stop(&r);
				rig_start(&r, mrg ? ~0ULL : ~MRG);
				run_dry((unsigned)(MIN(buffers[i], 150) + more), buffers[i]);
			}
		}
	}
	ck_assert_uint_eq(stat_read(&stats()->dropped), 0);
}
END_TEST

START_TEST(without_event_index_frames_wait_for_buffers_too)
{
	rig_start(&r, ~BIT(VIRTIO_RING_F_EVENT_IDX));
	run_dry(300, 16);
	restart(~(BIT(VIRTIO_RING_F_EVENT_IDX) | MRG));
	run_dry(300, 16);
}
END_TEST

START_TEST(no_buffers_cost_no_cpu)
{
	unsigned sent = 0;
	long before;

	rig_start(&r, ~0ULL);
	frame_make(&f, 100, 1);
	while (far_send(&r, 0, &f, 100))
		sent++;
	usleep(20000);
	before = cpu_us();
	usleep(300000);
	ck_assert_int_lt(cpu_us() - before, 30000);
	ck_assert_uint_eq(stat_read(&stats()->frames), 0);
	rx_post(&r, 0, SIZE, 2048);
	for (unsigned i = 0; i < MIN(sent, SIZE); i++)
		ck_assert_int_eq(rx_take(&r, 0, &got), 100);
}
END_TEST

/*
 * The driver is at work on a ring of frames: the next large one waits in the tap until there is
 * room.
 */
START_TEST(large_frame_waits_for_a_driver_at_work)
{
	uint32_t head, len;
	uint64_t stalls;

	rig_start(&r, ~0ULL);
	stalls = stat_read(&stats()->stalls);
	rx_post(&r, 0, 20, 4096);
	ring_want_irq(&r.ring[RX(0)]);
	frame_make(&f, 65000, 1);
	ck_assert(far_send(&r, 0, &f, 65000));
	ck_assert(counted(&stats()->frames, 1));
	/* Three buffers are left, and the driver has not looked yet: it may take its time. */
	frame_make(&f, 65000, 2);
	ck_assert(far_send(&r, 0, &f, 65000));
	usleep(50000);
	ck_assert_uint_eq(stat_read(&stats()->dropped), 0);
	ck_assert_uint_eq(stat_read(&stats()->stalls), stalls + 1);
	rx_post(&r, 0, 20, 4096);
	ck_assert(counted(&stats()->frames, 2));
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(rx_take(&r, 0, &got), 65000);
	ck_assert_mem_eq(got.data, f.data, 65000);
	ck_assert(!ring_take(&r.ring[RX(0)], &head, &len));
}
END_TEST

/*
 * It has taken all and waits for an interrupt: nothing more will come, so small frames go on at
 * once.
 */
START_TEST(driver_without_more_buffers_gets_what_fits)
{
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, 4, 2048);
	ck_assert(!ring_want_irq(&r.ring[RX(0)]));
	frame_make(&f, 65000, 1);
	ck_assert(far_send(&r, 0, &f, 65000));
	ck_assert(counted(&stats()->dropped, 1));
	for (unsigned i = 0; i < 4; i++)
		assert_rx(&r, 0, 1514, i);
}
END_TEST

/* It goes to sleep without offering more, after we have begun to wait. */
START_TEST(driver_that_falls_asleep_is_noticed)
{
	uint64_t count, stalls;

	rig_start(&r, ~0ULL);
	stalls = stat_read(&stats()->stalls);
	rx_post(&r, 0, 4, 2048);
	ring_want_irq(&r.ring[RX(0)]);
	frame_make(&f, 1514, 1);
	ck_assert(far_send(&r, 0, &f, 1514));
	ck_assert(counted(&stats()->frames, 1));
	ck_assert(far_send(&r, 0, &f, 1514));
	ck_assert(counted(&stats()->stalls, stalls + 1));
	(void)!read(r.call[RX(0)], &count, sizeof(count));
	/* From here nothing but the device's own look at the driver helps. */
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(rx_take_within(&r, 0, &got, 1000), 1514);
}
END_TEST

/* It polls and never asks for interrupts: patience has an end, and then it gets what fits. */
START_TEST(polling_driver_with_few_buffers_gets_what_fits)
{
	rig_start(&r, ~BIT(VIRTIO_RING_F_EVENT_IDX));
	ring_no_irq(&r.ring[RX(0)]);
	rx_post(&r, 0, 30, 2048);
	frame_make(&f, 1514, 1);
	ck_assert(far_send(&r, 0, &f, 1514));
	ck_assert(counted(&stats()->frames, 1));
	for (unsigned i = 0; i < 10; i++)
		ck_assert(far_send(&r, 0, &f, 1514));
	ck_assert(counted(&stats()->frames, 11));
}
END_TEST

START_TEST(reset_while_waiting_for_buffers)
{
	for (unsigned round = 0; round < 20; round++) {
		rig_start(&r, ~0ULL);
		rx_post(&r, 0, round % 4, 2048);
		frame_make(&f, 1514, round);
		while (far_send(&r, 0, &f, 1514))
			;
		if (round % 5 == 0)
			usleep(5000);
		rig_stop(&r);
	}
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	ck_assert_int_eq(rx_take(&r, 0, &got), 1514);
}
END_TEST

static int expect_short_frames(void *rx)
{
	((struct net_rx *)rx)->need = 1600;
	return 0;
}

/* A tap may have its MTU raised under a driver that has no use for large frames otherwise. */
START_TEST(longer_frames_than_expected_cost_one)
{
	const uint64_t guest = BIT(1) | BIT(7) | BIT(8) | BIT(9) | BIT(10) | BIT(54) | BIT(55);

	rig_start(&r, ~guest);
	iothread_call(r.d->thread, expect_short_frames, &r.net->rx[0]);
	rx_post(&r, 0, SIZE, 1600);
	assert_rx(&r, 0, 1514, 0);
	frame_make(&f, 9014, 1);
	ck_assert(far_send(&r, 0, &f, 9014));
	ck_assert(counted(&stats()->dropped, 1));
	assert_rx(&r, 0, 9014, 2);
}
END_TEST

/* --- batches ---------------------------------------------------------------------------------- */

START_TEST(index_wrap_with_batches_of_all_sizes)
{
	unsigned posted = 0;

	rig_start(&r, ~MRG);
	for (unsigned i = 0; posted < 70000; i++) {
		unsigned n = 1 + i % 40;

		rx_post(&r, 0, n, 128);
		posted += n;
		frame_make(&f, 100, i);
		for (unsigned k = 0; k < n; k++)
			must(far_send(&r, 0, &f, 100));
		for (unsigned k = 0; k < n; k++)
			must(rx_take(&r, 0, &got) == 100);
	}
}
END_TEST

START_TEST(one_interrupt_for_a_burst)
{
	struct virtio_queue *q = &r.d->queue[RX(0)];
	uint64_t before;

	rig_start(&r, ~0ULL);
	/* All there before there are buffers: one pass. */
	frame_make(&f, 60, 1);
	for (unsigned i = 0; i < 30; i++)
		ck_assert(far_send(&r, 0, &f, 60));
	usleep(10000);
	before = stat_read(&q->stats.batches);
	rx_post(&r, 0, SIZE, 2048);
	ck_assert(counted(&stats()->frames, 30));
	usleep(10000);
	ck_assert_uint_eq(stat_read(&q->stats.batches), before + 1);
	ck_assert_uint_le(stat_read(&q->stats.interrupts), 1);
}
END_TEST

SUITE_MAIN_FIXTURE(
	"net_rx", 60, setup, teardown, frames_of_all_sizes_come_in_with_mergeable_buffers,
	number_of_buffers_and_used_lengths_add_up, frame_that_fills_its_buffers_exactly,
	many_small_mergeable_buffers, buffers_just_long_enough_for_the_header,
	more_small_buffers_than_one_read_takes, chains_of_several_descriptors,
	header_cut_into_bytes, without_mergeable_buffers_num_buffers_is_1,
	small_buffers_take_the_whole_frame_or_none, message_without_bytes_does_not_stop_the_rest,
	far_end_that_is_closed_costs_no_cpu, frame_above_the_negotiated_mtu_is_dropped,
	useless_buffers_come_back_empty,
	useless_mergeable_buffers_come_back_empty, readable_buffers_come_back_unread,
	buffer_of_more_segments_than_a_read_takes_comes_back, flood_of_useless_buffers_has_an_end,
	runt_frames_from_the_tap_are_dropped, only_offloads_that_the_driver_took_come_in,
	checksum_outside_the_frame_is_dropped, frames_wait_for_buffers_and_need_no_other_push,
	without_event_index_frames_wait_for_buffers_too, no_buffers_cost_no_cpu,
	large_frame_waits_for_a_driver_at_work, driver_without_more_buffers_gets_what_fits,
	driver_that_falls_asleep_is_noticed, polling_driver_with_few_buffers_gets_what_fits,
	reset_while_waiting_for_buffers, longer_frames_than_expected_cost_one,
	index_wrap_with_batches_of_all_sizes, one_interrupt_for_a_burst)
