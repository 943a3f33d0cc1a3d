/* The network device on a real tap: what only the kernel's side can show. */
#include "tests/unit/net_rig.h"
#include "tests/unit/netns.h"

#include <linux/udp.h>
#include <linux/if_arp.h>
#include <netinet/ip.h>

#define SIZE  256
#define PAIRS 4

#define UDP_FRONT (ETH_HLEN + 20 + 8)

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static struct rig r;
static struct frame f, got;
static int packet; /* the host's side of the tap */

static void create(const char *spec, unsigned n_vcpus)
{
	rig_guest(&r);
	ck_assert_int_eq(rig_launch(&r, spec, n_vcpus, SIZE), 0);
	packet = netns_packet("t0");
}

static void setup(void)
{
	ck_assert(netns_enter());
	/* No router solicitations and the like of the host between our frames. */
	FILE *no6 = fopen("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w");

	if (no6) {
		fputs("1", no6);
		fclose(no6);
	}
	create("tap=t0,queues=4", PAIRS);
}

static void teardown(void)
{
	close(packet);
	rig_destroy(&r);
}

static bool link_is(bool up)
{
	uint16_t status;

	for (unsigned i = 0; i < 2000; i++) {
		virtio_config_read(r.d, offsetof(struct virtio_net_config, status), &status, 2);
		if (up == (status & VIRTIO_NET_S_LINK_UP))
			return true;
		usleep(1000);
	}
	return false;
}

static void start(uint64_t features)
{
	ck_assert(link_is(true));
	rig_start(&r, features);
	for (unsigned i = 0; i < r.pairs; i++)
		if (i == 0 || features & BIT(VIRTIO_NET_F_MQ))
			rx_post(&r, i, SIZE, 2048);
}

/* A UDP frame of flow n with len bytes of payload; reply: the other way round. */
static size_t udp_frame_of(unsigned n, bool reply, size_t len)
{
	const uint32_t a = htonl(0xc0000202), b = htonl(0xc0000201);
	const uint16_t p = htons((uint16_t)(10000 + n)), q = htons(20000);
	const struct udphdr udp = { .source = reply ? q : p,
				    .dest = reply ? p : q,
				    .len = htons((uint16_t)(sizeof(udp) + len)) };
	const struct iphdr ip = { .version = 4,
				  .ihl = 5,
				  .ttl = 64,
				  .protocol = IPPROTO_UDP,
				  .tot_len = htons((uint16_t)(sizeof(ip) + sizeof(udp) + len)),
				  .saddr = reply ? b : a,
				  .daddr = reply ? a : b };

	frame_make(&f, UDP_FRONT + len, n);
	f.data[12] = ETH_P_IP >> 8;
	f.data[13] = ETH_P_IP & 0xff;
	memcpy(f.data + ETH_HLEN, &ip, sizeof(ip));
	memcpy(f.data + ETH_HLEN + sizeof(ip), &udp, sizeof(udp));
	return UDP_FRONT + len;
}

static size_t udp_frame(unsigned n, bool reply)
{
	return udp_frame_of(n, reply, 20);
}

static void host_sends(unsigned flow)
{
	ssize_t len = (ssize_t)udp_frame(flow, true), n = send(packet, f.data, (size_t)len, 0);

	/* It remembers once that its interface was down. */
	if (n < 0 && errno == ENETDOWN)
		n = send(packet, f.data, (size_t)len, 0);
	ck_assert_int_eq(n, len);
}

static void guest_sends(unsigned pair, unsigned flow)
{
	size_t len = udp_frame(flow, false);
	uint32_t used;

	(void)tx_put(&r, pair, &f, HDR + len);
	rig_kick(&r, TX(pair));
	(void)rig_used(&r, TX(pair), &used);
}

/* On which pair a frame comes in; the first one to have one. */
static int comes_in_on(void)
{
	for (unsigned ms = 0; ms < 2000; ms++) {
		for (unsigned i = 0; i < r.pairs; i++)
			if (r.d->queue[RX(i)].running && rx_take_within(&r, i, &got, 0) >= 0)
				return (int)i;
		usleep(1000);
	}
	return -1;
}

/* --- pairs in use (N-01) ---------------------------------------------------------------------- */

START_TEST(default_number_of_pairs_is_that_of_vcpus)
{
	close(packet);
	rig_destroy(&r);
	create("tap=t0", 3);
	ck_assert_uint_eq(r.pairs, 3);
	ck_assert_uint_eq(r.net->config.max_virtqueue_pairs, 3);
	ck_assert(r.net->tap.made);
}
END_TEST

START_TEST(until_the_driver_asks_all_flows_are_on_pair_0)
{
	start(~0ULL);
	ck_assert_int_eq(netns_attached("t0"), 1);
	for (unsigned i = 0; i < 64; i++)
		host_sends(i);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(comes_in_on(), 0);
}
END_TEST

START_TEST(driver_without_mq_loses_nothing)
{
	start(~BIT(VIRTIO_NET_F_MQ));
	ck_assert_uint_eq(r.ctrl, 2);
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 64; i++)
			host_sends(i);
		for (unsigned i = 0; i < 64; i++)
			ck_assert_int_eq(comes_in_on(), 0);
		rx_post(&r, 0, 64, 2048);
	}
	/* Its control queue is queue 2, on the control thread. */
	ck_assert_int_eq(ctrl_mode(&r, VIRTIO_NET_CTRL_RX_ALLMULTI, 1), VIRTIO_NET_OK);
	ck_assert_int_eq(ctrl_pairs(&r, 1), VIRTIO_NET_ERR);
}
END_TEST

START_TEST(pairs_follow_the_driver_and_go_back_to_one_at_reset)
{
	static const uint16_t steps[] = { 4, 2, 2, 3, 1, 4 };

	for (unsigned round = 0; round < 3; round++) {
		start(~0ULL);
		for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
			ck_assert_int_eq(ctrl_pairs(&r, steps[i]), VIRTIO_NET_OK);
			ck_assert_int_eq(netns_attached("t0"), steps[i]);
		}
		ck_assert_int_eq(ctrl_pairs(&r, 0), VIRTIO_NET_ERR);
		ck_assert_int_eq(ctrl_pairs(&r, 5), VIRTIO_NET_ERR);
		ck_assert_int_eq(ctrl_pairs(&r, 65535), VIRTIO_NET_ERR);
		ck_assert_int_eq(netns_attached("t0"), 4);
		rig_stop(&r);
		ck_assert_int_eq(netns_attached("t0"), 1);
	}
}
END_TEST

START_TEST(flows_use_all_pairs_that_were_asked_for_and_no_other)
{
	unsigned seen[PAIRS] = { 0 };

	start(~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, 3), VIRTIO_NET_OK);
	for (unsigned i = 0; i < 120; i++)
		host_sends(i);
	for (unsigned i = 0; i < 120; i++) {
		int pair = comes_in_on();

		ck_assert_int_ge(pair, 0);
		seen[pair]++;
	}
	ck_assert(seen[0] && seen[1] && seen[2] && !seen[3]);
}
END_TEST

/* Seed 3: the guest's choice of a TX queue decides where the flow comes in. */
START_TEST(flow_comes_in_on_the_pair_it_goes_out_on)
{
	start(~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
	for (unsigned round = 0; round < 2; round++) {
		/* The second round moves each flow to another pair. */
		for (unsigned i = 0; i < 40; i++)
			guest_sends((i + round) % PAIRS, i);
		for (unsigned i = 0; i < 40; i++) {
			host_sends(i);
			ck_assert_int_eq(comes_in_on(), (int)((i + round) % PAIRS));
		}
	}
}
END_TEST

/* ethtool -L under load: nothing is lost but what was queued on a pair that goes. */
START_TEST(change_of_pairs_under_load_keeps_the_rest)
{
	unsigned taken = 0;

	start(~0ULL);
	for (unsigned round = 0; round < 30; round++) {
		ck_assert_int_eq(ctrl_pairs(&r, (uint16_t)(1 + round * 7 % PAIRS)), VIRTIO_NET_OK);
		for (unsigned i = 0; i < 20; i++)
			host_sends(round * 20 + i);
		for (unsigned i = 0; i < 20; i++) {
			int pair = comes_in_on();

			ck_assert_int_ge(pair, 0);
			rx_post(&r, (unsigned)pair, 1, 2048);
			taken++;
		}
	}
	ck_assert_uint_eq(taken, 600);
}
END_TEST

/* --- the link (N-05) -------------------------------------------------------------------------- */

START_TEST(status_follows_the_link_and_asks_for_an_announcement)
{
	uint16_t status;
	uint64_t count;

	start(~0ULL);
	for (unsigned i = 0; i < 3; i++) {
		struct pollfd p = { .fd = r.config_call, .events = POLLIN };

		netns_up("t0", false);
		ck_assert(link_is(false));
		ck_assert_int_eq(poll(&p, 1, 2000), 1);
		(void)!read(r.config_call, &count, sizeof(count));
		netns_up("t0", true);
		ck_assert(link_is(true));
		ck_assert_int_eq(poll(&p, 1, 2000), 1);
		(void)!read(r.config_call, &count, sizeof(count));
		/* First the link; only a guest that has taken notice of that can announce itself. */
		virtio_config_read(r.d, 6, &status, 2);
		ck_assert_uint_eq(status, VIRTIO_NET_S_LINK_UP);
		ck_assert_int_eq(poll(&p, 1, 3000), 1);
		(void)!read(r.config_call, &count, sizeof(count));
		virtio_config_read(r.d, 6, &status, 2);
		ck_assert_uint_eq(status, VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
		ck_assert_int_eq(ctrl(&r, VIRTIO_NET_CTRL_ANNOUNCE, 0, NULL, 0), VIRTIO_NET_OK);
		virtio_config_read(r.d, 6, &status, 2);
		ck_assert_uint_eq(status, VIRTIO_NET_S_LINK_UP);
	}
}
END_TEST

START_TEST(nothing_is_announced_to_a_driver_that_starts)
{
	uint16_t status;

	netns_up("t0", false);
	ck_assert(link_is(false));
	rig_start(&r, ~0ULL);
	netns_up("t0", true);
	ck_assert(link_is(true));
	rig_stop(&r);
	rig_start(&r, ~0ULL);
	usleep(1200000);
	virtio_config_read(r.d, 6, &status, 2);
	ck_assert_uint_eq(status, VIRTIO_NET_S_LINK_UP);
}
END_TEST

/* --- settings of the tap ---------------------------------------------------------------------- */

START_TEST(made_up_mac_stays_the_same)
{
	uint8_t mac[6];

	memcpy(mac, r.net->mac, 6);
	ck_assert_uint_eq(mac[0] & 3, 2);
	teardown();
	create("tap=t0,queues=2", PAIRS);
	ck_assert_mem_eq(mac, r.net->mac, 6);
}
END_TEST

/* What rests on a feature that the driver has not taken would be refused by the kernel. */
START_TEST(offloads_without_what_they_rest_on_are_none)
{
	start(BIT(VIRTIO_NET_F_GUEST_TSO4) | BIT(VIRTIO_NET_F_GUEST_ECN));
	ck_assert_uint_eq(r.net->rx[0].offloads, 0);
	ck_assert_uint_eq(r.net->tap.offloads_now, 0);
	rig_stop(&r);
	start(BIT(VIRTIO_NET_F_GUEST_CSUM) | BIT(VIRTIO_NET_F_GUEST_ECN));
	ck_assert_uint_eq(r.net->rx[0].offloads, TUN_F_CSUM);
	ck_assert_uint_eq(r.net->tap.offloads_now, TUN_F_CSUM);
}
END_TEST

/* Each change takes a lock of the host that all its network set-up needs. */
START_TEST(flood_of_changes_is_slowed_down)
{
	struct timespec a, b;

	start(~0ULL);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < 40; i++) {
		const uint16_t n = i % 2 ? 1 : PAIRS;

		ck_assert_int_eq(ctrl(&r, VIRTIO_NET_CTRL_MQ, 0, &n, 2), VIRTIO_NET_OK);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_ge((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000, 900);
}
END_TEST

START_TEST(link_is_down_for_a_guest_that_starts_on_a_tap_that_is)
{
	netns_up("t0", false);
	ck_assert(link_is(false));
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, SIZE, 2048);
	guest_sends(0, 1);
	ck_assert_uint_eq(stat_read(&r.net->tx[0].stats.dropped), 1);
	netns_up("t0", true);
	ck_assert(link_is(true));
	guest_sends(0, 1);
	host_sends(1);
	ck_assert_int_eq(comes_in_on(), 0);
}
END_TEST

START_TEST(frames_to_a_tap_that_is_down_are_dropped_and_counted)
{
	struct net_stats *s = &r.net->tx[0].stats;

	start(~0ULL);
	for (unsigned i = 1; i <= 20; i++) {
		netns_up("t0", false);
		for (unsigned k = 0; k < 50; k++)
			guest_sends(0, k);
		ck_assert_uint_eq(stat_read(&s->dropped), 50 * i);
		netns_up("t0", true);
		guest_sends(0, 1);
		ck_assert_uint_eq(stat_read(&s->frames), i);
		host_sends(1);
		ck_assert_int_eq(comes_in_on(), 0);
	}
}
END_TEST

START_TEST(deleted_tap_costs_no_cpu_and_no_guest)
{
	long before;

	start(~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
	netns_delete("t0");
	ck_assert(link_is(false));
	guest_sends(0, 1);
	guest_sends(3, 1);
	ck_assert_uint_eq(stat_read(&r.net->tx[3].stats.dropped), 1);
	before = cpu_us();
	usleep(300000);
	ck_assert_int_lt(cpu_us() - before, 30000);
	(void)ctrl_pairs(&r, 1);
	rig_stop(&r);
	rig_start(&r, ~0ULL);
	guest_sends(0, 1);
}
END_TEST

/* --- offloads (N-09) -------------------------------------------------------------------------- */

/* The frame that comes in next and is UDP to the guest; everything else (ARP) is passed over. */
static ssize_t next_udp(void)
{
	for (;;) {
		ssize_t n = rx_take_within(&r, 0, &got, 500);

		if (n < 0 || (n > 34 && got.data[12] == 8 && got.data[13] == 0 &&
			      got.data[23] == IPPROTO_UDP))
			return n;
	}
}

static uint16_t sum16(const uint8_t *p, size_t len, uint32_t sum)
{
	for (; len > 1; p += 2, len -= 2)
		sum += (uint32_t)p[0] << 8 | p[1];
	if (len)
		sum += (uint32_t)p[0] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static bool udp_checksum_good(size_t len)
{
	size_t udp = len - ETH_HLEN - 20;

	return sum16(got.data + ETH_HLEN + 20, udp,
		     sum16(got.data + 26, 8, IPPROTO_UDP + (uint32_t)udp)) == 0xffff;
}

/* A host socket that sends to the guest's 192.0.2.2, with no need for ARP. */
static int host_socket(int segment)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(5000) };
	struct arpreq arp = { .arp_flags = ATF_PERM | ATF_COM, .arp_dev = "t0" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	netns_set_address("t0", "192.0.2.1");
	inet_pton(AF_INET, "192.0.2.2", &to.sin_addr);
	memcpy(&arp.arp_pa, &to, sizeof(to));
	arp.arp_ha.sa_family = ARPHRD_ETHER;
	memcpy(arp.arp_ha.sa_data, r.net->mac, 6);
	ck_assert_int_eq(ioctl(fd, SIOCSARP, &arp), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	if (segment)
		ck_assert_int_eq(
			setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)), 0);
	return fd;
}

#define GUEST_OFFLOADS (BIT(1) | BIT(7) | BIT(8) | BIT(9) | BIT(10) | BIT(54) | BIT(55))

START_TEST(checksums_are_complete_unless_the_driver_takes_them_partial)
{
	static const char text[] = "sent through a socket of the host";
	ssize_t n;

	for (unsigned partial = 0; partial < 2; partial++) {
		int fd;

		start(partial ? ~0ULL : ~GUEST_OFFLOADS);
		fd = host_socket(0);
		ck_assert_int_eq(send(fd, text, sizeof(text), 0), sizeof(text));
		n = next_udp();
		ck_assert_int_eq(n, (ssize_t)(42 + sizeof(text)));
		ck_assert_uint_eq(got.hdr.flags, partial ? VIRTIO_NET_HDR_F_NEEDS_CSUM : 0);
		ck_assert(udp_checksum_good((size_t)n) != partial);
		/* Taken back while running: complete from then on. */
		if (partial) {
			const uint64_t none = 0;

			ck_assert_int_eq(ctrl(&r, VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, &none, 8),
					 VIRTIO_NET_OK);
			ck_assert_int_eq(send(fd, text, sizeof(text), 0), sizeof(text));
			n = next_udp();
			ck_assert(n > 0 && got.hdr.flags == 0 && udp_checksum_good((size_t)n));
		}
		close(fd);
		rig_stop(&r);
	}
}
END_TEST

START_TEST(segments_are_cut_unless_the_driver_takes_them_whole)
{
	static char big[20000];
	unsigned n = 0;
	int fd;

	if (!(r.net->tap.offloads & TUN_F_USO4)) {
		fprintf(stderr, "this kernel's taps know no USO: not tested\n");
		return;
	}
	start(~0ULL);
	fd = host_socket(1000);
	ck_assert_int_eq(send(fd, big, sizeof(big), 0), sizeof(big));
	ck_assert_int_eq(next_udp(), 42 + (int)sizeof(big));
	ck_assert_uint_eq(got.hdr.gso_type, 5);
	ck_assert_uint_eq(got.hdr.gso_size, 1000);
	ck_assert_uint_eq(got.hdr.num_buffers, (42 + sizeof(big) + HDR + 2047) / 2048);
	close(fd);
	rig_stop(&r);
	start(~(BIT(54) | BIT(55)));
	fd = host_socket(1000);
	ck_assert_int_eq(send(fd, big, sizeof(big), 0), sizeof(big));
	while (n < 20 && next_udp() == 42 + 1000) {
		ck_assert_uint_eq(got.hdr.gso_type, 0);
		n++;
	}
	ck_assert_uint_eq(n, 20);
	close(fd);
}
END_TEST

START_TEST(segmented_frames_of_the_guest_are_taken)
{
	struct net_stats *s = &r.net->tx[0].stats;
	size_t len;
	uint32_t used;

	start(~0ULL);
	if (!virtio_has(r.d, 56))
		return;
	len = udp_frame_of(1, false, 20000);
	f.hdr = (struct virtio_net_hdr_v1){ .flags = 1,
					    .gso_type = 5,
					    .hdr_len = 42,
					    .gso_size = 1000,
					    .csum_start = 34,
					    .csum_offset = 6 };
	(void)tx_put(&r, 0, &f, HDR + len);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &used);
	ck_assert_uint_eq(stat_read(&s->frames), 1);
	/* The kernel looks closer than we do: this is not what its header calls it. */
	f.hdr.gso_type = 4;
	(void)tx_put(&r, 0, &f, HDR + len);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &used);
	f.hdr.gso_type = 1;
	f.hdr.gso_size = 65535;
	(void)tx_put(&r, 0, &f, HDR + len);
	rig_kick(&r, TX(0));
	(void)rig_used(&r, TX(0), &used);
	ck_assert_uint_eq(stat_read(&s->frames) + stat_read(&s->dropped), 3);
	guest_sends(0, 1);
	ck_assert_uint_ge(stat_read(&s->frames), 2);
	ck_assert_uint_eq(virtio_status_read(r.d), 15);
}
END_TEST

/* Frames that were queued while another driver was at it may not be what this one takes. */
START_TEST(frames_left_from_an_earlier_driver_do_no_harm)
{
	static char big[20000];
	int fd;

	start(~0ULL);
	fd = host_socket(1000);
	rig_stop(&r);
	ck_assert_int_eq(send(fd, big, sizeof(big), 0), sizeof(big));
	start(~(GUEST_OFFLOADS | BIT(VIRTIO_NET_F_MRG_RXBUF)));
	while (next_udp() >= 0)
		ck_assert(got.hdr.gso_type == 0 && got.hdr.flags == 0);
	ck_assert_int_eq(send(fd, big, 100, 0), 100);
	ck_assert_int_eq(next_udp(), 142);
	close(fd);
}
END_TEST

/* --- buffers ---------------------------------------------------------------------------------- */

START_TEST(frame_longer_than_its_buffer_is_dropped_not_cut)
{
	start(~(GUEST_OFFLOADS | BIT(VIRTIO_NET_F_MRG_RXBUF)));
	rig_stop(&r);
	rig_start(&r, ~(GUEST_OFFLOADS | BIT(VIRTIO_NET_F_MRG_RXBUF)));
	rx_post(&r, 0, 8, 500);
	frame_make(&f, 1000, 1);
	ck_assert_int_eq(send(packet, f.data, 1000, 0), 1000);
	ck_assert(counted(&r.net->rx[0].stats.dropped, 1));
	host_sends(1);
	ck_assert_int_eq(comes_in_on(), 0);
}
END_TEST

/* N-07: an idle guest whose interface is down, with a busy network around it. */
START_TEST(no_buffers_and_a_full_tap_cost_no_cpu)
{
	long before;

	ck_assert(link_is(true));
	rig_start(&r, ~0ULL);
	for (unsigned i = 0; i < 2000; i++)
		host_sends(i);
	usleep(20000);
	before = cpu_us();
	for (unsigned i = 0; i < 30; i++) {
		host_sends(i);
		usleep(10000);
	}
	ck_assert_int_lt(cpu_us() - before, 30000);
	/* What the tap has kept comes in when there are buffers at last. */
	for (unsigned taken = 0; taken < 400; taken += 100) {
		rx_post(&r, 0, 100, 2048);
		for (unsigned i = 0; i < 100; i++)
			ck_assert_int_eq(comes_in_on(), 0);
	}
}
END_TEST

/* --- reset under traffic (N-11) --------------------------------------------------------------- */

static _Atomic bool flood_stop;

/* The host's side of a busy network: many flows, so that every pair has some. */
static void *flood_main(void *arg)
{
	static uint8_t frames[64][100];
	const int fd = *(const int *)arg;

	for (unsigned i = 0; i < 64; i++)
		memcpy(frames[i], f.data, 62);
	for (unsigned i = 0; i < 64; i++)
		frames[i][36] = (uint8_t)i;
	for (unsigned i = 0; !flood_stop; i++)
		(void)send(fd, frames[i % 64], 62, MSG_DONTWAIT);
	return NULL;
}

START_TEST(rebinding_under_a_flood_on_eight_pairs)
{
	static struct frame out;
	pthread_t thread;
	uint64_t moved = 0;

	close(packet);
	rig_destroy(&r);
	create("tap=t0,queues=8", 8);
	ck_assert(link_is(true));
	(void)udp_frame(1, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, flood_main, &packet), 0);
	frame_make(&out, 1000, 2);
	for (unsigned round = 0; round < 20; round++) {
		uint8_t *ram = guest_at(&r.g, r.area);

		rig_start(&r, ~0ULL);
		ck_assert_int_eq(ctrl_pairs(&r, (uint16_t)(1 + round % 8)), VIRTIO_NET_OK);
		for (unsigned i = 0; i < 8; i++) {
			rx_post(&r, i, 64, 2048);
			for (unsigned k = 0; k < 64; k++)
				(void)tx_put(&r, i, &out, HDR + 1000);
			rig_kick(&r, TX(i));
		}
		usleep(2000 + round % 5 * 1000);
		rig_stop(&r);
		ck_assert_int_eq(netns_attached("t0"), 1);
		for (unsigned i = 0; i < 8; i++)
			moved += r.ring[RX(i)].used->idx + r.ring[TX(i)].used->idx;
		memset(ram, 0x77, 1u << 20);
		usleep(3000);
		for (unsigned k = 0; k < 1u << 20; k++)
			must(ram[k] == 0x77);
	}
	flood_stop = true;
	pthread_join(thread, NULL);
	ck_assert_uint_gt(moved, 1000);
}
END_TEST

NETNS_MAIN("net_tap", 60, setup, teardown, default_number_of_pairs_is_that_of_vcpus,
	   until_the_driver_asks_all_flows_are_on_pair_0, driver_without_mq_loses_nothing,
	   pairs_follow_the_driver_and_go_back_to_one_at_reset,
	   flows_use_all_pairs_that_were_asked_for_and_no_other,
	   flow_comes_in_on_the_pair_it_goes_out_on, change_of_pairs_under_load_keeps_the_rest,
	   status_follows_the_link_and_asks_for_an_announcement,
	   nothing_is_announced_to_a_driver_that_starts, made_up_mac_stays_the_same,
	   offloads_without_what_they_rest_on_are_none, flood_of_changes_is_slowed_down,
	   link_is_down_for_a_guest_that_starts_on_a_tap_that_is,
	   frames_to_a_tap_that_is_down_are_dropped_and_counted,
	   deleted_tap_costs_no_cpu_and_no_guest,
	   checksums_are_complete_unless_the_driver_takes_them_partial,
	   segments_are_cut_unless_the_driver_takes_them_whole,
	   segmented_frames_of_the_guest_are_taken, frames_left_from_an_earlier_driver_do_no_harm,
	   frame_longer_than_its_buffer_is_dropped_not_cut, no_buffers_and_a_full_tap_cost_no_cpu,
	   rebinding_under_a_flood_on_eight_pairs)
