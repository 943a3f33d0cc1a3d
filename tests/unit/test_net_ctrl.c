/* The control queue and the filters (devices/net_ctrl.c, net_filter.c), with a socket for a tap. */
#include "tests/unit/net_rig.h"

#include "tests/unit/fixture.h"

#define SIZE  256
#define PAIRS 4

static struct rig r;
static struct frame f, got;

static void setup(void)
{
	rig_create(&r, PAIRS, SIZE, ",offload=all,mac=02:00:00:00:00:01");
	rig_start(&r, ~0ULL);
	for (unsigned i = 0; i < PAIRS; i++)
		rx_post(&r, i, SIZE, 2048);
}

static void teardown(void)
{
	rig_destroy(&r);
}

static void restart(uint64_t features)
{
	rig_stop(&r);
	rig_start(&r, features);
	for (unsigned i = 0; i < (features & BIT(VIRTIO_NET_F_MQ) ? PAIRS : 1); i++)
		rx_post(&r, i, SIZE, 2048);
}

/* Whether a frame to this address (and VLAN, if not 0) comes in on pair i. */
static bool comes_in(unsigned i, const char *mac, unsigned vlan)
{
	uint64_t filtered = stat_read(&r.net->rx[i].stats.filtered);
	unsigned b[6];

	frame_make(&f, 100, vlan);
	ck_assert_int_eq(sscanf(mac, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]),
			 6);
	for (unsigned k = 0; k < 6; k++)
		f.data[k] = (uint8_t)b[k];
	if (vlan) {
		f.data[12] = 0x81;
		f.data[13] = 0;
		f.data[14] = (uint8_t)(0xe0 | vlan >> 8); /* with a priority */
		f.data[15] = (uint8_t)vlan;
	}
	ck_assert(far_send(&r, i, &f, 100));
	for (unsigned ms = 0; ms < 2000; ms++) {
		if (rx_take_within(&r, i, &got, 1) == 100) {
			ck_assert_mem_eq(got.data, f.data, 100);
			return true;
		}
		if (stat_read(&r.net->rx[i].stats.filtered) > filtered)
			return false;
	}
	ck_abort_msg("neither came in nor was filtered");
}

#define OWN       "2:0:0:0:0:1"
#define OTHER     "2:0:0:0:0:9"
#define BROADCAST "ff:ff:ff:ff:ff:ff"
#define MULTICAST "33:33:0:0:0:1"

static void assert_comes_in(bool own, bool other, bool broadcast, bool multicast)
{
	ck_assert_int_eq(comes_in(0, OWN, 0), own);
	ck_assert_int_eq(comes_in(0, OTHER, 0), other);
	ck_assert_int_eq(comes_in(0, BROADCAST, 0), broadcast);
	ck_assert_int_eq(comes_in(0, MULTICAST, 0), multicast);
}

/* --- form of commands ------------------------------------------------------------------------- */

START_TEST(unknown_commands_are_errors)
{
	static const uint8_t zero[64];

	for (unsigned class = 0; class < 256; class += class < 8 ? 1 : 31) {
		for (unsigned cmd = 0; cmd < 256; cmd += cmd < 8 ? 1 : 31) {
			bool known = (class == 0 && cmd <= 5) || (class == 1 && cmd <= 1) ||
				     (class == 2 && cmd <= 1) || (class == 3 && cmd == 0) ||
				     (class == 5 && cmd == 0);

			ck_assert_int_eq(
				ctrl(&r, (uint8_t) class, (uint8_t)cmd, zero, sizeof(zero)),
				known ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
		}
	}
}
END_TEST

START_TEST(commands_that_are_too_short_are_errors)
{
	static const struct {
		uint8_t class, cmd;
		uint32_t len;
	} full[] = {
		{ 0, 0, 1 }, { 0, 5, 1 }, { 1, 0, 8 }, { 1, 1, 6 },
		{ 2, 0, 2 }, { 4, 0, 2 }, { 5, 0, 8 },
	};
	static const uint8_t data[8] = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(full); i++)
		for (uint32_t len = 0; len < full[i].len; len++)
			ck_assert_int_eq(ctrl(&r, full[i].class, full[i].cmd, data, len),
					 VIRTIO_NET_ERR);
}
END_TEST

START_TEST(command_without_class_is_an_error_and_without_answer_not_done)
{
	const uint64_t at = rig_alloc(&r, 4096);
	const struct seg byte[] = { { at, 1, false }, { at + 64, 1, true } };
	const struct seg deaf[] = { { at + 128, 5, false } };
	uint8_t *p = guest_at(&r.g, at);
	uint32_t used;

	memset(p, 0, 200);
	ring_add(&r.ring[r.ctrl], byte, 2);
	rig_kick(&r, r.ctrl);
	(void)rig_used(&r, r.ctrl, &used);
	ck_assert_uint_eq(used, 1);
	ck_assert_uint_eq(p[64], VIRTIO_NET_ERR);
	/* PROMISC off, if it were done. */
	ring_add(&r.ring[r.ctrl], deaf, 1);
	rig_kick(&r, r.ctrl);
	(void)rig_used(&r, r.ctrl, &used);
	ck_assert_uint_eq(used, 0);
	ck_assert(comes_in(0, OTHER, 0));
	ring_add(&r.ring[r.ctrl], byte + 1, 1);
	rig_kick(&r, r.ctrl);
	(void)rig_used(&r, r.ctrl, &used);
	ck_assert_uint_eq(used, 1);
	ck_assert_uint_eq(p[64], VIRTIO_NET_ERR);
}
END_TEST

START_TEST(command_cut_into_bytes)
{
	const uint64_t at = rig_alloc(&r, 4096), table = rig_alloc(&r, 4096);
	const struct seg s[] = { { at, 3, false }, { at + 64, 1, true } };
	uint8_t *p = guest_at(&r.g, at);
	uint32_t used;

	memcpy(p, "\0\0\0", 3);
	p[64] = 0xee;
	ring_add_bytes(&r.ring[r.ctrl], table, s, 2);
	rig_kick(&r, r.ctrl);
	(void)rig_used(&r, r.ctrl, &used);
	ck_assert_uint_eq(p[64], VIRTIO_NET_OK);
	ck_assert(!comes_in(0, OTHER, 0));
}
END_TEST

START_TEST(commands_need_their_feature)
{
	static const struct {
		unsigned bit;
		uint8_t class, cmd;
	} cases[] = {
		{ VIRTIO_NET_F_CTRL_RX, 0, 0 },   { VIRTIO_NET_F_CTRL_RX_EXTRA, 0, 2 },
		{ VIRTIO_NET_F_CTRL_RX, 1, 0 },   { VIRTIO_NET_F_CTRL_MAC_ADDR, 1, 1 },
		{ VIRTIO_NET_F_CTRL_VLAN, 2, 0 }, { VIRTIO_NET_F_GUEST_ANNOUNCE, 3, 0 },
		{ VIRTIO_NET_F_MQ, 4, 0 },        { VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, 5, 0 },
	};
	static const uint8_t data[8] = { 0 }, one[8] = { 1 };

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const uint8_t *p = cases[i].class == 4 ? one : data;

		restart(~0ULL);
		ck_assert_int_eq(ctrl(&r, cases[i].class, cases[i].cmd, p, 8), VIRTIO_NET_OK);
		restart(~BIT(cases[i].bit));
		ck_assert_int_eq(ctrl(&r, cases[i].class, cases[i].cmd, p, 8), VIRTIO_NET_ERR);
	}
}
END_TEST

START_TEST(more_commands_than_a_budget_are_all_answered)
{
	const uint64_t at = rig_alloc(&r, 4096);
	const struct seg s[] = { { at, 3, false }, { at + 64, 1, true } };
	struct ring *c = &r.ring[r.ctrl];
	uint32_t used;

	memcpy(guest_at(&r.g, at), "\0\0\1", 3);
	for (unsigned i = 0; i < 100; i++)
		ring_add(c, s, 2);
	rig_kick(&r, r.ctrl);
	for (unsigned i = 0; i < 100; i++) {
		(void)rig_used(&r, r.ctrl, &used);
		ck_assert_uint_eq(used, 1);
	}
}
END_TEST

/* --- filters ---------------------------------------------------------------------------------- */

START_TEST(everything_comes_in_until_a_mode_is_set)
{
	assert_comes_in(true, true, true, true);
	ck_assert(comes_in(0, OTHER, 77));
	restart(~BIT(VIRTIO_NET_F_CTRL_RX));
	assert_comes_in(true, true, true, true);
}
END_TEST

START_TEST(receive_modes)
{
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_OK);
	assert_comes_in(true, false, true, false);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_ALLMULTI, 1), VIRTIO_NET_OK);
	assert_comes_in(true, false, true, true);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_ALLUNI, 1), VIRTIO_NET_OK);
	assert_comes_in(true, true, true, true);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_NOBCAST, 1), VIRTIO_NET_OK);
	assert_comes_in(true, true, false, true);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_NOMULTI, 1), VIRTIO_NET_OK);
	assert_comes_in(true, true, false, false);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_NOUNI, 1), VIRTIO_NET_OK);
	assert_comes_in(false, false, false, false);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 1), VIRTIO_NET_OK);
	assert_comes_in(true, true, true, true);
	/* A reset forgets. */
	restart(~0ULL);
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0), VIRTIO_NET_OK);
	assert_comes_in(true, false, true, false);
}
END_TEST

/* Tables of n unicast and m multicast addresses, the last bytes counting. */
static int set_tables(uint32_t n, uint32_t m, uint32_t cut)
{
	static uint8_t p[8192];
	uint8_t *at = p;

	memcpy(at, &n, 4);
	at += 4;
	for (uint32_t i = 0; i < n; i++, at += 6)
		memcpy(at, (uint8_t[]){ 2, 0, 0, 0, 1, (uint8_t)i }, 6);
	memcpy(at, &m, 4);
	at += 4;
	for (uint32_t i = 0; i < m; i++, at += 6)
		memcpy(at, (uint8_t[]){ 0x33, 0x33, 0, 0, 0, (uint8_t)i }, 6);
	return ctrl(&r, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, p,
		    (uint32_t)(at - p) - cut);
}

START_TEST(address_tables)
{
	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	ck_assert_int_eq(set_tables(3, 2, 0), VIRTIO_NET_OK);
	assert_comes_in(true, false, true, true);
	ck_assert(comes_in(0, "2:0:0:0:1:2", 0));
	ck_assert(!comes_in(0, "2:0:0:0:1:3", 0));
	ck_assert(!comes_in(0, "33:33:0:0:0:2", 0));
	/* A table that is cut off changes nothing. */
	ck_assert_int_eq(set_tables(1, 1, 1), VIRTIO_NET_ERR);
	ck_assert_int_eq(set_tables(1, 1, 7), VIRTIO_NET_ERR);
	ck_assert(comes_in(0, "2:0:0:0:1:2", 0));
	ck_assert_int_eq(set_tables(0, 0, 0), VIRTIO_NET_OK);
	assert_comes_in(true, false, true, false);
	/* More than there is room for: all of that kind. */
	ck_assert_int_eq(set_tables(64, 64, 0), VIRTIO_NET_OK);
	ck_assert(comes_in(0, "2:0:0:0:1:3f", 0) && comes_in(0, "33:33:0:0:0:3f", 0));
	ck_assert(!comes_in(0, OTHER, 0) && !comes_in(0, "33:33:0:0:0:40", 0));
	ck_assert_int_eq(set_tables(65, 1, 0), VIRTIO_NET_OK);
	ck_assert(comes_in(0, OTHER, 0) && !comes_in(0, "33:33:0:0:0:40", 0));
	ck_assert_int_eq(set_tables(1, 65, 0), VIRTIO_NET_OK);
	ck_assert(!comes_in(0, OTHER, 0) && comes_in(0, "33:33:0:0:0:80", 0));
}
END_TEST

START_TEST(table_that_claims_more_than_it_holds_is_an_error)
{
	static const uint32_t counts[] = {
		1, 2, 65, 0x7fffffff, 0x80000000, 0xffffffff, 0x2aaaaaab
	};
	uint8_t p[16] = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
		memcpy(p, &counts[i], 4);
		ck_assert_int_eq(ctrl(&r, 1, 0, p, 9), VIRTIO_NET_ERR);
		memset(p, 0, 4);
		memcpy(p + 4, &counts[i], 4);
		ck_assert_int_eq(ctrl(&r, 1, 0, p, 8), VIRTIO_NET_ERR);
	}
}
END_TEST

START_TEST(mac_address_can_be_set_and_comes_back_at_reset)
{
	static const uint8_t mac[] = { 2, 0, 0, 0, 0, 9 }, multi[] = { 3, 0, 0, 0, 0, 9 };
	uint8_t config[6];

	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	ck_assert_int_eq(ctrl(&r, 1, 1, multi, 6), VIRTIO_NET_ERR);
	ck_assert_int_eq(ctrl(&r, 1, 1, mac, 6), VIRTIO_NET_OK);
	assert_comes_in(false, true, true, false);
	virtio_config_read(r.d, 0, config, 6);
	ck_assert_mem_eq(config, mac, 6);
	rig_stop(&r);
	virtio_config_read(r.d, 0, config, 6);
	ck_assert_mem_eq(config, "\2\0\0\0\0\1", 6);
}
END_TEST

START_TEST(vlans)
{
	uint16_t id = 77, last = 4095, beyond = 4096;

	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	ck_assert(comes_in(0, OWN, 0) && !comes_in(0, OWN, 77));
	ck_assert_int_eq(ctrl(&r, 2, 0, &id, 2), VIRTIO_NET_OK);
	ck_assert_int_eq(ctrl(&r, 2, 0, &last, 2), VIRTIO_NET_OK);
	ck_assert_int_eq(ctrl(&r, 2, 0, &beyond, 2), VIRTIO_NET_ERR);
	ck_assert(comes_in(0, OWN, 77) && comes_in(0, OWN, 4095) && !comes_in(0, OWN, 78));
	ck_assert(!comes_in(0, OTHER, 77));
	ck_assert_int_eq(ctrl(&r, 2, 1, &id, 2), VIRTIO_NET_OK);
	ck_assert(!comes_in(0, OWN, 77) && comes_in(0, OWN, 4095));
	restart(~BIT(VIRTIO_NET_F_CTRL_VLAN));
	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	ck_assert(comes_in(0, OWN, 77));
}
END_TEST

START_TEST(filters_hold_on_every_pair)
{
	ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	for (unsigned i = 0; i < PAIRS; i++)
		ck_assert(comes_in(i, OWN, 0) && !comes_in(i, OTHER, 0));
	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_ALLUNI, 1);
	for (unsigned i = 0; i < PAIRS; i++)
		ck_assert(comes_in(i, OTHER, 0));
}
END_TEST

START_TEST(filtered_frames_use_up_no_buffers)
{
	restart(~0ULL & ~BIT(VIRTIO_NET_F_MRG_RXBUF));
	(void)ctrl_mode(&r, VIRTIO_NET_CTRL_RX_PROMISC, 0);
	for (unsigned i = 0; i < 2 * SIZE; i++)
		must(!comes_in(0, OTHER, 0));
	for (unsigned i = 0; i < SIZE; i++)
		must(comes_in(0, OWN, 0));
}
END_TEST

/* --- pairs and offloads ----------------------------------------------------------------------- */

START_TEST(pair_is_silent_until_asked_for)
{
	uint32_t head, len;

	frame_make(&f, 100, 1);
	for (unsigned i = 1; i < PAIRS; i++)
		ck_assert(far_send(&r, i, &f, 100));
	ck_assert(rig_quiet(&r, RX(1), 50));
	ck_assert(!ring_take(&r.ring[RX(2)], &head, &len) &&
		  !ring_take(&r.ring[RX(3)], &head, &len));
	ck_assert_int_eq(ctrl_pairs(&r, 2), VIRTIO_NET_OK);
	ck_assert_int_eq(rx_take(&r, 1, &got), 100);
	ck_assert(rig_quiet(&r, RX(2), 20));
	ck_assert_int_eq(ctrl_pairs(&r, 4), VIRTIO_NET_OK);
	ck_assert_int_eq(rx_take(&r, 2, &got), 100);
	ck_assert_int_eq(rx_take(&r, 3, &got), 100);
	ck_assert_int_eq(ctrl_pairs(&r, 1), VIRTIO_NET_OK);
	/* From the answer on, nothing comes in there. */
	ck_assert(far_send(&r, 3, &f, 100));
	ck_assert(rig_quiet(&r, RX(3), 20));
	assert_rx(&r, 0, 100, 1);
}
END_TEST

START_TEST(pairs_whose_queues_were_not_given_are_refused)
{
	rig_stop(&r);
	rig_start_some(&r, ~0ULL, 2);
	ck_assert_int_eq(ctrl_pairs(&r, 2), VIRTIO_NET_OK);
	ck_assert_int_eq(ctrl_pairs(&r, 3), VIRTIO_NET_ERR);
	ck_assert_int_eq(ctrl_pairs(&r, 0), VIRTIO_NET_ERR);
	rx_post(&r, 1, 16, 2048);
	rx_post(&r, 0, 16, 2048);
	assert_rx(&r, 1, 100, 1);
}
END_TEST

START_TEST(guest_offloads_rule_what_comes_in_on_every_pair)
{
	uint64_t bits = BIT(1);

	ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
	frame_make(&f, 1000, 1);
	f.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	f.hdr.gso_type = 1;
	f.hdr.gso_size = 500;
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < PAIRS; i++) {
			uint64_t bad = stat_read(&r.net->rx[i].stats.bad);

			ck_assert(far_send(&r, i, &f, 1000));
			if (round == 0)
				ck_assert_int_eq(rx_take(&r, i, &got), 1000);
			else
				ck_assert(counted(&r.net->rx[i].stats.bad, bad + 1));
		}
		ck_assert_int_eq(ctrl(&r, 5, 0, &bits, 8), VIRTIO_NET_OK);
	}
	bits = BIT(0);
	ck_assert_int_eq(ctrl(&r, 5, 0, &bits, 8), VIRTIO_NET_ERR);
	bits = BIT(63);
	ck_assert_int_eq(ctrl(&r, 5, 0, &bits, 8), VIRTIO_NET_ERR);
	restart(~BIT(VIRTIO_NET_F_GUEST_TSO4));
	bits = BIT(1) | BIT(VIRTIO_NET_F_GUEST_TSO4);
	ck_assert_int_eq(ctrl(&r, 5, 0, &bits, 8), VIRTIO_NET_ERR);
}
END_TEST

START_TEST(broken_control_queue_leaves_traffic_alone)
{
	ring_offer(&r.ring[r.ctrl], 9999);
	ring_show(&r.ring[r.ctrl]);
	irq_signal(r.d->queue[r.ctrl].kick_fd);
	for (unsigned i = 0; i < 2000 && virtio_status_read(r.d) == 15; i++)
		usleep(1000);
	ck_assert_uint_eq(virtio_status_read(r.d), 15 | 0x40);
	assert_rx(&r, 0, 100, 1);
	assert_tx(&r, 0, 100, 1);
	restart(~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, 2), VIRTIO_NET_OK);
}
END_TEST

/* Commands that reach into every receiver, while frames come in on all of them. */
START_TEST(commands_under_traffic)
{
	unsigned in = 0, out = 0;

	ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
	frame_make(&f, 300, 1);
	for (unsigned round = 0; round < 200; round++) {
		uint16_t id = (uint16_t)(round % NET_VLANS);

		for (unsigned i = 0; i < PAIRS; i++)
			for (unsigned k = 0; k < 5; k++)
				out += far_send(&r, i, &f, 300);
		ck_assert_int_eq(ctrl(&r, 2, round & 1, &id, 2), VIRTIO_NET_OK);
		ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_ALLMULTI, round & 1),
				 VIRTIO_NET_OK);
		for (unsigned i = 0; i < PAIRS; i++)
			while (rx_take_within(&r, i, &got, 0) >= 0) {
				rx_post(&r, i, 1, 2048);
				in++;
			}
	}
	for (unsigned i = 0; i < PAIRS; i++)
		while (in < out && rx_take_within(&r, i, &got, 100) >= 0)
			in++;
	ck_assert_uint_eq(in, out);
}
END_TEST

SUITE_MAIN_FIXTURE("net_ctrl", 60, setup, teardown, unknown_commands_are_errors,
		   commands_that_are_too_short_are_errors,
		   command_without_class_is_an_error_and_without_answer_not_done,
		   command_cut_into_bytes, commands_need_their_feature,
		   more_commands_than_a_budget_are_all_answered,
		   everything_comes_in_until_a_mode_is_set, receive_modes, address_tables,
		   table_that_claims_more_than_it_holds_is_an_error,
		   mac_address_can_be_set_and_comes_back_at_reset, vlans,
		   filters_hold_on_every_pair, filtered_frames_use_up_no_buffers,
		   pair_is_silent_until_asked_for, pairs_whose_queues_were_not_given_are_refused,
		   guest_offloads_rule_what_comes_in_on_every_pair,
		   broken_control_queue_leaves_traffic_alone, commands_under_traffic)
