/* The network device as a whole (devices/net.h): options, threads, life; with sockets for a tap. */
#include "tests/unit/net_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include "tests/unit/fixture.h"

#define SIZE 256

static struct rig r;

/* --- options ---------------------------------------------------------------------------------- */

static struct net_opts o;
static char spec_text[4096];

static int parse(const char *spec)
{
	snprintf(spec_text, sizeof(spec_text), "%s", spec);
	return net_opts_parse(spec_text, &o);
}

/* One line was logged by the call before, with this in it. */
static char said[4096];

static int parse_said(const char *spec)
{
	int fd = memfd_create("said", MFD_CLOEXEC), old = dup(2), err;
	ssize_t n;

	dup2(fd, 2);
	err = parse(spec);
	dup2(old, 2);
	n = pread(fd, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(fd);
	close(old);
	return err;
}

START_TEST(options_and_their_defaults)
{
	ck_assert_int_eq(parse("tap=t0"), 0);
	ck_assert_str_eq(o.tap, "t0");
	ck_assert(o.queues == 0 && o.ring == 256 && o.mtu == 0 && o.iothreads == 0 && !o.split);
	ck_assert(!o.has_mac && !o.has_offload && o.n_cpus == 0 && o.n_fds == 0);
	ck_assert_int_eq(
		parse("tap=t0,queues=4,mac=52:54:00:aB:cD:eF,mtu=9000,ring=1024,iothreads=2,split,"
		      "pin=0-3:8,ip=192.0.2.2/24,gw=192.0.2.1,dns=192.0.2.53"),
		0);
	ck_assert(o.queues == 4 && o.ring == 1024 && o.mtu == 9000 && o.iothreads == 2 && o.split);
	ck_assert_mem_eq(o.mac, "\x52\x54\x00\xab\xcd\xef", 6);
	ck_assert_uint_eq(o.n_cpus, 5);
	ck_assert(o.cpu[0] == 0 && o.cpu[3] == 3 && o.cpu[4] == 8);
	ck_assert_str_eq(o.guest.ip, "192.0.2.2/24");
	ck_assert_str_eq(o.guest.gw, "192.0.2.1");
	ck_assert_str_eq(o.guest.dns, "192.0.2.53");
	ck_assert_int_eq(parse("fds=10:11:12"), 0);
	ck_assert(o.n_fds == 3 && o.fd[0] == 10 && o.fd[2] == 12);
	ck_assert_int_eq(parse("tap=t0,ip=2001:db8::2/64,gw=2001:db8::1"), 0);
}
END_TEST

START_TEST(wrong_options_are_told_in_one_line)
{
	static const char *const wrong[] = {
		"",
		"queues=2",
		"tap=t0,fds=5",
		"tap=t0,queues=0",
		"tap=t0,queues=65",
		"tap=t0,ring=100",
		"tap=t0,ring=16",
		"tap=t0,ring=8192",
		"tap=t0,mtu=67",
		"tap=t0,mtu=65536",
		"tap=t0,mac=1",
		"tap=t0,mac=53:54:00:00:00:01",
		"tap=t0,mac=00:00:00:00:00:00",
		"tap=t0,mac=52:54:00:00:00:0g",
		"tap=t0,mac=52:54:00:00:00:010",
		"tap=t0,mac= 2: 4: 0: 0: 0: 1",
		"fds=2",
		"fds=x",
		"fds=5:5",
		"fds=",
		"fds=5:",
		"fds=5,queues=2",
		"fds=99999999999",
		"tap=t0,pin=",
		"tap=t0,pin=3-1",
		"tap=t0,pin=1024",
		"tap=t0,pin=a",
		"tap=t0,pin=1:",
		"tap=t0,offload=foo",
		"tap=t0,offload=",
		"tap=t0,offload=csum:-bar",
		"tap=t0,ip=1.2.3.4",
		"tap=t0,ip=1.2.3.4/33",
		"tap=t0,ip=1.2.3/24",
		"tap=t0,ip=1.2.3.4/",
		"tap=t0,ip=1.2.3.4/0",
		"tap=t0,ip=::1/129",
		"tap=t0,gw=1.2.3.4",
		"tap=t0,ip=1.2.3.4/24,gw=1.2.3",
		"tap=t0,ip=1.2.3.4/24,gw=::1",
		"tap=t0,dns=1.1.1.1",
		"tap=t0,iothreads=0",
		"tap=t0,poll=1",
		"tap=t0,split=1",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		const char *end;

		ck_assert_msg(parse_said(wrong[i]) == -EINVAL, "%s", wrong[i]);
		end = strchr(said, '\n');
		ck_assert_msg(end && !end[1] && strstr(said, "--net"), "%s: %s", wrong[i], said);
	}
}
END_TEST

START_TEST(lists_of_any_length_are_parsed_or_refused)
{
	static char text[4096];

	strcpy(text, "fds=");
	for (unsigned i = 0; i < 70; i++)
		snprintf(text + strlen(text), 8, "%s%u", i ? ":" : "", 100 + i);
	ck_assert_int_eq(parse(text), -EINVAL);
	memset(text, '1', 2000);
	memcpy(text, "tap=t,pin=", 10);
	ck_assert_int_eq(parse(text), -EINVAL);
	ck_assert_int_eq(parse("tap=t0,pin=0-1023"), -EINVAL);
}
END_TEST

START_TEST(offload_words)
{
	static const struct {
		const char *list;
		unsigned bits;
	} cases[] = {
		{ "none", 0 },
		{ "all", TAP_OFFLOADS_ALL | NET_OPT_MRG },
		{ "csum", TUN_F_CSUM },
		{ "csum:tso4", TUN_F_CSUM | TUN_F_TSO4 },
		{ "tso4", 0 }, /* no TSO without checksums */
		{ "mrg", NET_OPT_MRG },
		{ "-uso", (TAP_OFFLOADS_ALL & ~TAP_USO) | NET_OPT_MRG },
		{ "-mrg:-ufo", TAP_OFFLOADS_ALL & ~(unsigned)TUN_F_UFO },
		{ "-csum", NET_OPT_MRG },
		{ "-tso4:-tso6", (TUN_F_CSUM | TUN_F_UFO | TAP_USO) | NET_OPT_MRG },
		{ "all:-mrg:none:csum", TUN_F_CSUM },
	};
	char text[64];

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "tap=t,offload=%s", cases[i].list);
		ck_assert_int_eq(parse(text), 0);
		ck_assert_msg(o.offload == (cases[i].bits | NET_OPT_INDIRECT | NET_OPT_EVENT),
			      "%s: %x", cases[i].list, o.offload);
	}
	ck_assert_int_eq(parse("tap=t,offload=-event_idx:-indirect"), 0);
	ck_assert_uint_eq(o.offload, TAP_OFFLOADS_ALL | NET_OPT_MRG);
}
END_TEST

START_TEST(guest_settings_are_read_from_the_spec)
{
	const char *spec = "tap=t0,ip=192.0.2.2/24,gw=192.0.2.1";
	struct net_guest g;

	ck_assert_int_eq(net_guest_of(spec, &g), 0);
	ck_assert_str_eq(g.ip, "192.0.2.2/24");
	ck_assert_str_eq(g.gw, "192.0.2.1");
	ck_assert_str_eq(g.dns, "");
	ck_assert_int_eq(net_guest_of("tap=t0,ip=x", &g), -EINVAL);
}
END_TEST

/* --- what is offered -------------------------------------------------------------------------- */

START_TEST(config_space_holds_mac_status_pairs_and_mtu)
{
	struct virtio_net_config c;

	rig_create(&r, 4, SIZE, ",mac=02:00:00:00:00:07,mtu=9000");
	virtio_config_read(r.d, 0, &c, sizeof(c));
	ck_assert_mem_eq(c.mac, "\2\0\0\0\0\7", 6);
	ck_assert_uint_eq(c.status, VIRTIO_NET_S_LINK_UP);
	ck_assert_uint_eq(c.max_virtqueue_pairs, 4);
	ck_assert_uint_eq(c.mtu, 9000);
	ck_assert_uint_eq(c.speed, 0);
	ck_assert_uint_eq(r.d->config_len, 12);
	ck_assert_uint_eq(r.d->n_queues, 9);
	ck_assert_uint_eq(r.d->class->id, 1);
	rig_destroy(&r);
}
END_TEST

START_TEST(features_are_those_that_are_there)
{
	const uint64_t sure = BIT(5) | BIT(16) | BIT(17) | BIT(18) | BIT(19) | BIT(20) | BIT(21) |
			      BIT(23) | BIT(28) | BIT(29) | BIT(32);
	const uint64_t offloads = BIT(0) | BIT(1) | BIT(2) | BIT(7) | BIT(8) | BIT(9) | BIT(10) |
				  BIT(11) | BIT(12) | BIT(13) | BIT(14) | BIT(54) | BIT(55) |
				  BIT(56);

	rig_create(&r, 1, SIZE, "");
	ck_assert_uint_eq(r.d->features, sure | BIT(15));
	rig_destroy(&r);
	rig_create(&r, 2, SIZE, ",offload=all");
	ck_assert_uint_eq(r.d->features, sure | BIT(15) | BIT(22) | offloads);
	rig_destroy(&r);
	rig_create(&r, 2, SIZE, ",offload=csum:uso,mtu=1400");
	ck_assert_uint_eq(r.d->features, sure | BIT(22) | BIT(3) | BIT(0) | BIT(1) | BIT(2) |
						 BIT(54) | BIT(55) | BIT(56));
	rig_destroy(&r);
	rig_create(&r, 1, SIZE, ",offload=none:-event_idx:-indirect");
	ck_assert_uint_eq(r.d->features, sure & ~(BIT(28) | BIT(29)));
	rig_destroy(&r);
}
END_TEST

START_TEST(two_ends_of_a_cable_have_macs_of_their_own)
{
	struct rig other;
	char spec[32];

	rig_create(&r, 1, SIZE, "");
	rig_guest(&other);
	other.far[0] = 0;
	snprintf(spec, sizeof(spec), "fds=%d", dup(r.far[0]));
	ck_assert_int_eq(rig_launch(&other, spec, 1, SIZE), 0);
	ck_assert_uint_eq(r.net->mac[0] & 3, 2);
	ck_assert_uint_eq(other.net->mac[0] & 3, 2);
	ck_assert_mem_ne(other.net->mac, r.net->mac, 6);
	rig_destroy(&other);
	rig_destroy(&r);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

static const char *thread_of(unsigned q)
{
	return r.d->queue[q].thread->name;
}

START_TEST(one_thread_a_pair)
{
	rig_create(&r, 3, SIZE, "");
	ck_assert_uint_eq(r.d->n_threads, 4);
	for (unsigned i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "net0-q%u", (uint8_t)i);
		ck_assert_str_eq(thread_of(RX(i)), name);
		ck_assert_str_eq(thread_of(TX(i)), name);
	}
	ck_assert_str_eq(thread_of(6), "net0-ctrl");
	ck_assert_str_eq(r.d->queue[RX(2)].name, "net0-rx2");
	ck_assert_str_eq(r.d->queue[TX(2)].name, "net0-tx2");
	ck_assert_str_eq(r.d->queue[6].name, "net0-ctrl");
	rig_destroy(&r);
}
END_TEST

START_TEST(split_gives_each_queue_a_thread)
{
	rig_create(&r, 2, SIZE, ",split,offload=all");
	ck_assert_uint_eq(r.d->n_threads, 5);
	ck_assert_str_eq(thread_of(RX(1)), "net0-rx1");
	ck_assert_str_eq(thread_of(TX(1)), "net0-tx1");
	rig_start(&r, ~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, 2), VIRTIO_NET_OK);
	for (unsigned i = 0; i < 2; i++) {
		rx_post(&r, i, 64, 2048);
		assert_rx(&r, i, 1000, i);
		assert_tx(&r, i, 1000, i);
	}
	rig_destroy(&r);
}
END_TEST

START_TEST(queues_are_folded_onto_few_threads)
{
	for (unsigned n = 1; n <= 9; n += 2) {
		char more[64];

		snprintf(more, sizeof(more), ",offload=all,iothreads=%u%s", n,
			 n == 9 ? ",split" : "");
		rig_create(&r, 8, SIZE, more);
		ck_assert_uint_eq(r.d->n_threads, MIN(n, n == 9 ? 9 : 8) + 1);
		ck_assert_str_eq(thread_of(0), "net0-io0");
		rig_start(&r, ~0ULL);
		ck_assert_int_eq(ctrl_pairs(&r, 8), VIRTIO_NET_OK);
		for (unsigned i = 0; i < 8; i++) {
			rx_post(&r, i, 64, 2048);
			assert_rx(&r, i, 1000, i);
			assert_tx(&r, i, 1000, i);
		}
		rig_destroy(&r);
	}
}
END_TEST

static int get_cpus(void *arg)
{
	return sched_getaffinity(0, sizeof(cpu_set_t), arg) ? -errno : 0;
}

START_TEST(threads_are_pinned)
{
	cpu_set_t set, all;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	rig_create(&r, 2, SIZE, ",pin=0");
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(iothread_call(&r.d->thread[i], get_cpus, &set), 0);
		ck_assert_int_eq(CPU_COUNT(&set), 1);
		ck_assert(CPU_ISSET(0, &set));
	}
	ck_assert_int_eq(iothread_call(r.net->ctrl_thread, get_cpus, &set), 0);
	ck_assert(CPU_EQUAL(&set, &all));
	rig_destroy(&r);
	/* We ourselves are where we were. */
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert(CPU_EQUAL(&set, &all));
}
END_TEST

START_TEST(cpu_that_is_not_there_is_refused)
{
	const struct device_env env = { .name = "net0", .n_vcpus = 1 };
	char spec[] = "fds=900,pin=1000";
	struct device d;

	ck_assert_int_eq(net_create(spec, &env, &d), -EINVAL);
}
END_TEST

/* --- life (N-11, N-12) ------------------------------------------------------------------------ */

START_TEST(sixty_four_pairs)
{
	rig_create(&r, 64, 64, "");
	ck_assert_uint_eq(r.d->n_queues, 129);
	rig_start(&r, ~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, 64), VIRTIO_NET_OK);
	for (unsigned i = 0; i < 64; i++) {
		rx_post(&r, i, 4, 2048);
		assert_rx(&r, i, 100, i);
		assert_tx(&r, i, 100, i);
	}
	rig_destroy(&r);
}
END_TEST

START_TEST(ends_at_any_moment_of_a_drivers_life)
{
	for (unsigned stage = 0; stage < 6; stage++) {
		rig_create(&r, 8, 64, "");
		if (stage >= 1)
			virtio_status_write(r.d, 3);
		if (stage == 2) {
			virtio_driver_features_write(r.d, 1, 1);
			virtio_status_write(r.d, 11);
		}
		if (stage == 3)
			rig_start_some(&r, ~0ULL, 0);
		if (stage == 4)
			rig_start_some(&r, ~0ULL, 1);
		if (stage == 5)
			rig_start(&r, ~0ULL);
		if (stage % 2)
			virtio_status_write(r.d, 0);
		rig_destroy(&r);
	}
}
END_TEST

START_TEST(queues_a_driver_has_no_use_for_do_nothing)
{
	/* Without MQ, queue 2 is the control queue and the rest is nothing. */
	rig_create(&r, 4, 64, "");
	rig_start(&r, ~(BIT(VIRTIO_NET_F_MQ)));
	for (unsigned i = 0; i < r.d->n_queues; i++)
		irq_signal(r.d->queue[i].kick_fd);
	rx_post(&r, 0, 4, 2048);
	assert_rx(&r, 0, 100, 1);
	ck_assert_int_eq(ctrl_mode(&r, 0, 0), VIRTIO_NET_OK);
	rig_stop(&r);
	/* Without the control queue either. */
	rig_start(&r, ~(BIT(VIRTIO_NET_F_MQ) | BIT(VIRTIO_NET_F_CTRL_VQ)));
	irq_signal(r.d->queue[2].kick_fd);
	rx_post(&r, 0, 4, 2048);
	assert_rx(&r, 0, 100, 1);
	rig_stop(&r);
	rig_start(&r, ~0ULL);
	ck_assert_int_eq(ctrl_pairs(&r, 4), VIRTIO_NET_OK);
	rig_destroy(&r);
}
END_TEST

/* Outside: a flood on all sockets, and what comes out is thrown away. */
struct flood {
	pthread_t thread;
	_Atomic bool stop;
	unsigned pairs;
};

static void *flood_main(void *arg)
{
	struct flood *fl = arg;
	static struct frame out, in;

	frame_make(&out, 1000, 1);
	while (!fl->stop) {
		for (unsigned i = 0; i < fl->pairs; i++) {
			(void)far_send(&r, i, &out, 1000);
			while (recv(r.far[i], &in, sizeof(in), MSG_DONTWAIT) > 0)
				;
		}
	}
	return NULL;
}

#define PAIRS 8

/*
 * Reset, and start anew, with traffic both ways on all pairs: no stray write once the reset is
 * done.
 */
START_TEST(reset_under_traffic_leaves_memory_alone)
{
	struct flood fl = { .pairs = PAIRS };
	static struct frame out;
	uint64_t moved = 0;

	rig_create(&r, PAIRS, 64, ",iothreads=3");
	ck_assert_int_eq(pthread_create(&fl.thread, NULL, flood_main, &fl), 0);
	frame_make(&out, 1000, 2);
	for (unsigned round = 0; round < 25; round++) {
		uint8_t *ram = guest_at(&r.g, r.area);

		rig_start(&r, ~0ULL);
		ck_assert_int_eq(ctrl_pairs(&r, PAIRS), VIRTIO_NET_OK);
		for (unsigned i = 0; i < PAIRS; i++) {
			rx_post(&r, i, 64, 2048);
			for (unsigned k = 0; k < 64; k++)
				(void)tx_put(&r, i, &out, HDR + 1000);
			rig_kick(&r, TX(i));
		}
		usleep(round % 5 * 1000);
		rig_stop(&r);
		for (unsigned i = 0; i < PAIRS; i++)
			moved += r.ring[RX(i)].used->idx + r.ring[TX(i)].used->idx;
		memset(ram, 0x77, 2u << 20);
		for (unsigned i = 0; i < r.d->n_queues; i++)
			irq_signal(r.d->queue[i].kick_fd);
		usleep(3000);
		for (unsigned k = 0; k < 2u << 20; k++)
			must(ram[k] == 0x77);
	}
	fl.stop = true;
	pthread_join(fl.thread, NULL);
	ck_assert_uint_gt(moved, 1000);
	rig_destroy(&r);
}
END_TEST

/* S-05: a second CPU of the guest rewrites descriptors and headers while the device reads them. */
static void *scribble_main(void *arg)
{
	struct flood *fl = arg;
	unsigned x = 1;

	while (!fl->stop) {
		struct ring *ring = &r.ring[x % 2 ? TX(0) : RX(0)];
		volatile struct vring_desc *d = &ring->desc[x / 2 % r.size];

		x = x * 1103515245 + 12345;
		switch (x >> 16 & 3) {
		case 0:
			d->len = x >> 8 & 0xffff;
			break;
		case 1:
			d->addr = r.area + (x >> 4 & 0xffff);
			break;
		default:
			/* Where headers lie. */
			((volatile uint8_t *)guest_at(&r.g, r.area))[x >> 4 & 0xffff] = (uint8_t)x;
		}
	}
	return NULL;
}

#ifdef __SANITIZE_THREAD__
#define RACES_ON_PURPOSE 0 /* which is all that TSan would report */
#else
#define RACES_ON_PURPOSE 1
#endif

START_TEST(guest_that_changes_what_it_has_given_hurts_itself_only)
{
	struct flood fl = { .pairs = 1 }, scribble = { 0 };
	static struct frame out;

	if (!RACES_ON_PURPOSE)
		return;
	rig_create(&r, 1, 64, ",offload=all");
	rig_start(&r, ~0ULL);
	ck_assert_int_eq(pthread_create(&fl.thread, NULL, flood_main, &fl), 0);
	ck_assert_int_eq(pthread_create(&scribble.thread, NULL, scribble_main, &scribble), 0);
	frame_make(&out, 1000, 2);
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t head, len;

		while (ring_take(&r.ring[TX(0)], &head, &len))
			;
		while (ring_take(&r.ring[RX(0)], &head, &len))
			;
		if ((uint16_t)(r.ring[TX(0)].avail_idx - r.ring[TX(0)].last_used) < 64)
			(void)tx_put(&r, 0, &out, HDR + 1000);
		if ((uint16_t)(r.ring[RX(0)].avail_idx - r.ring[RX(0)].last_used) < 64) {
			const struct seg s = { rig_alloc(&r, 2048), 2048, true };

			ring_add(&r.ring[RX(0)], &s, 1);
		}
		irq_signal(r.d->queue[RX(0)].kick_fd);
		irq_signal(r.d->queue[TX(0)].kick_fd);
		r.area_next = r.area;
		if (i % 100 == 99) {
			rig_stop(&r);
			rig_start(&r, ~0ULL);
		}
	}
	scribble.stop = fl.stop = true;
	pthread_join(scribble.thread, NULL);
	pthread_join(fl.thread, NULL);
	rig_stop(&r);
	while (far_recv(&r, 0, &out, 0) >= 0)
		;
	rig_start(&r, ~0ULL);
	assert_tx(&r, 0, 100, 1);
	rig_destroy(&r);
}
END_TEST

/* --- counters --------------------------------------------------------------------------------- */

START_TEST(counters_are_json)
{
	static char json[8192], small[64];
	size_t len;

	rig_create(&r, 2, SIZE, "");
	rig_start(&r, ~0ULL);
	rx_post(&r, 0, 64, 2048);
	for (unsigned i = 0; i < 5; i++)
		assert_rx(&r, 0, 100, i);
	for (unsigned i = 0; i < 7; i++)
		assert_tx(&r, 0, 200, i);
	len = virtio_dev_stats_json(r.d, json, sizeof(json));
	ck_assert_uint_eq(len, strlen(json));
	ck_assert_ptr_nonnull(
		strstr(json, "{\"device\":\"net0\",\"queues\":[{\"name\":\"net0-rx0\",\"kicks\":"));
	ck_assert_ptr_nonnull(strstr(json, "\"frames\":5,\"bytes\":500,\"stalls\":"));
	ck_assert_ptr_nonnull(
		strstr(json, "\"frames\":7,\"bytes\":1400,\"stalls\":0,\"dropped\":0,\"bad\":0,"
			     "\"filtered\":0}"));
	ck_assert_ptr_nonnull(strstr(json, "{\"name\":\"net0-ctrl\""));
	ck_assert_uint_eq(virtio_dev_stats_json(r.d, small, sizeof(small)), len);
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
	rig_destroy(&r);
}
END_TEST

SUITE_MAIN_FIXTURE("net", 60, NULL, NULL, options_and_their_defaults,
		   wrong_options_are_told_in_one_line, lists_of_any_length_are_parsed_or_refused,
		   offload_words, guest_settings_are_read_from_the_spec,
		   config_space_holds_mac_status_pairs_and_mtu, features_are_those_that_are_there,
		   two_ends_of_a_cable_have_macs_of_their_own, one_thread_a_pair,
		   split_gives_each_queue_a_thread, queues_are_folded_onto_few_threads,
		   threads_are_pinned, cpu_that_is_not_there_is_refused, sixty_four_pairs,
		   ends_at_any_moment_of_a_drivers_life, queues_a_driver_has_no_use_for_do_nothing,
		   reset_under_traffic_leaves_memory_alone,
		   guest_that_changes_what_it_has_given_hurts_itself_only, counters_are_json)
