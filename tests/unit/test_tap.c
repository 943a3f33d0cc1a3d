/* Taps as they are on this kernel (devices/tap.h). */
#include "tests/unit/netns.h"

#include <time.h>

#include "devices/tap.h"
#include "vmm/base.h"

static struct tap t;

static void setup(void)
{
	ck_assert(netns_enter());
}

static void teardown(void)
{
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* --- made by us ------------------------------------------------------------------------------- */

START_TEST(tap_that_was_made_is_gone_afterwards)
{
	for (unsigned queues = 1; queues <= 8; queues *= 2) {
		ck_assert_int_eq(tap_open(&t, "t0", queues, true), 0);
		ck_assert(t.made && t.kernel);
		ck_assert_uint_eq(t.n, queues);
		ck_assert_str_eq(t.name, "t0");
		/* Taps with one queue do not count it. */
		ck_assert_int_eq(netns_attached("t0"), queues > 1);
		tap_close(&t);
		ck_assert(!netns_exists("t0"));
	}
}
END_TEST

START_TEST(name_may_be_a_pattern)
{
	ck_assert_int_eq(tap_open(&t, "vm%d", 2, true), 0);
	ck_assert_str_eq(t.name, "vm0");
	ck_assert(netns_exists("vm0"));
	tap_close(&t);
	ck_assert(!netns_exists("vm0"));
}
END_TEST

START_TEST(made_tap_is_brought_up_with_its_mtu)
{
	ck_assert_int_eq(tap_open(&t, "t0", 1, true), 0);
	ck_assert(!netns_is_up("t0") && !tap_link_up(&t));
	ck_assert_int_eq(tap_bring_up(&t, 9000), 0);
	ck_assert(netns_is_up("t0"));
	ck_assert_int_eq(netns_mtu("t0"), 9000);
	ck_assert_uint_eq(tap_mtu(&t), 9000);
	tap_close(&t);
}
END_TEST

START_TEST(offloads_of_this_kernel_are_found_and_can_be_set)
{
	ck_assert_int_eq(tap_open(&t, "t0", 2, true), 0);
	ck_assert((t.offloads & (TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) ==
		  (TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6));
	ck_assert_int_eq(tap_set_offloads(&t, t.offloads), 0);
	ck_assert_int_eq(tap_set_offloads(&t, TUN_F_CSUM | TUN_F_USO4), 0);
	ck_assert_int_eq(tap_set_offloads(&t, 0), 0);
	tap_close(&t);
}
END_TEST

/* --- found (N-02) ----------------------------------------------------------------------------- */

START_TEST(found_taps_of_both_kinds_are_opened_where_it_works)
{
	static const struct {
		bool multi, exact;
		unsigned want, get; /* get 0: refused */
	} cases[] = {
		{ false, true, 1, 1 }, { false, false, 1, 1 }, { false, false, 4, 1 },
		{ false, true, 4, 0 }, { true, true, 1, 1 },   { true, false, 1, 1 },
		{ true, true, 4, 4 },  { true, false, 4, 4 },
	};

	netns_persist("single", TAP_FLAGS, -1);
	netns_persist("multi", TAP_FLAGS | IFF_MULTI_QUEUE, -1);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *name = cases[i].multi ? "multi" : "single";

		said_begin();
		ck_assert_int_eq(tap_open(&t, name, cases[i].want, cases[i].exact),
				 cases[i].get ? 0 : -EINVAL);
		if (!cases[i].get) {
			assert_said(name, "IFF_MULTI_QUEUE", "queues=1",
				    "ip tuntap add dev single mode tap");
			continue;
		}
		ck_assert_str_eq(said_end(), "");
		ck_assert_uint_eq(t.n, cases[i].get);
		ck_assert(!t.made);
		ck_assert_int_eq(netns_attached(name), cases[i].multi);
		tap_close(&t);
		ck_assert(netns_exists(name));
	}
}
END_TEST

START_TEST(found_tap_stays_as_it_was)
{
	struct tap_info info;
	int fd, len;

	netns_persist("t0", TAP_FLAGS | IFF_MULTI_QUEUE, 12345);
	ck_assert_int_eq(tap_open(&t, "t0", 4, true), 0);
	ck_assert_int_eq(tap_bring_up(&t, 9000), 0);
	ck_assert(!netns_is_up("t0"));
	ck_assert_int_eq(netns_mtu("t0"), 1500);
	ck_assert_int_eq(tap_set_offloads(&t, t.offloads), 0);
	tap_close(&t);
	ck_assert_int_eq(tap_info_get("t0", &info), 0);
	ck_assert(info.persist && info.multi && info.tap);
	ck_assert_uint_eq(info.owner, 12345);
	ck_assert_uint_eq(info.attached + info.detached, 0);
	fd = netns_tun("t0", TAP_FLAGS | IFF_MULTI_QUEUE);
	ck_assert_int_eq(ioctl(fd, TUNGETVNETHDRSZ, &len), 0);
	ck_assert_int_eq(len, 10);
	close(fd);
}
END_TEST

START_TEST(tun_and_other_kinds_are_refused_by_name)
{
	netns_persist("tun7", IFF_TUN | IFF_NO_PI, -1);
	said_begin();
	ck_assert_int_eq(tap_open(&t, "tun7", 1, true), -EINVAL);
	assert_said("tun7", "IFF_TAP", "ip tuntap add dev tun7 mode tap");
	said_begin();
	ck_assert_int_eq(tap_open(&t, "lo", 1, true), -EINVAL);
	assert_said("lo is no tap", "IFF_TAP", "ip tuntap add");
	ck_assert(netns_exists("tun7"));
}
END_TEST

START_TEST(impossible_names_are_refused)
{
	static const char *const names[] = { "", "a-name-of-sixteen", "a/b" };

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		said_begin();
		ck_assert_int_eq(tap_open(&t, names[i], 1, true), -EINVAL);
		assert_said("--net", "tap");
	}
}
END_TEST

START_TEST(missing_tap_without_privilege_says_how_to_make_it)
{
	netns_drop_admin();
	said_begin();
	ck_assert_int_eq(tap_open(&t, "t9", 4, true), -EPERM);
	assert_said("no tap t9", "CAP_NET_ADMIN", "IFF_TAP",
		    "ip tuntap add dev t9 mode tap multi_queue");
	ck_assert(!netns_exists("t9"));
}
END_TEST

START_TEST(owner_needs_no_privilege_and_others_are_told)
{
	netns_persist("mine", TAP_FLAGS | IFF_MULTI_QUEUE, (int)geteuid());
	netns_persist("theirs", TAP_FLAGS | IFF_MULTI_QUEUE, 4242);
	netns_drop_admin();
	ck_assert_int_eq(tap_open(&t, "mine", 4, true), 0);
	ck_assert_int_eq(tap_attach(&t, 4), 0);
	ck_assert_int_eq(netns_attached("mine"), 4);
	ck_assert_int_eq(tap_attach(&t, 1), 0);
	ck_assert_int_eq(tap_set_offloads(&t, t.offloads), 0);
	tap_close(&t);
	said_begin();
	ck_assert_int_eq(tap_open(&t, "theirs", 4, true), -EPERM);
	assert_said("theirs", "4242", "IFF_TAP", "ip tuntap add dev theirs");
}
END_TEST

/* --- busy (N-03) ------------------------------------------------------------------------------ */

START_TEST(tap_in_use_is_called_busy_within_a_second)
{
	struct tap other;
	double before;

	for (unsigned queues = 1; queues <= 4; queues += 3) {
		ck_assert_int_eq(tap_open(&other, "t0", queues, true), 0);
		before = now_s();
		said_begin();
		ck_assert_int_eq(tap_open(&t, "t0", queues, true), -EBUSY);
		assert_said("t0", "in use");
		ck_assert(now_s() - before < 1);
		tap_close(&other);
		ck_assert_int_eq(tap_open(&t, "t0", queues, true), 0);
		tap_close(&t);
	}
}
END_TEST

/* The queues of a process that was killed go a moment after it. */
START_TEST(tap_that_is_just_being_closed_is_waited_for)
{
	for (unsigned queues = 1; queues <= 4; queues += 3) {
		int hold[2];
		char c;
		pid_t pid;

		netns_persist(queues > 1 ? "m0" : "s0",
			      TAP_FLAGS | (queues > 1 ? IFF_MULTI_QUEUE : 0), -1);
		ck_assert_int_eq(pipe(hold), 0);
		pid = fork();
		if (pid == 0) {
			if (tap_open(&t, queues > 1 ? "m0" : "s0", queues, true))
				_exit(1);
			(void)!write(hold[1], "x", 1);
			usleep(150000);
			_exit(0);
		}
		ck_assert_int_eq(read(hold[0], &c, 1), 1);
		ck_assert_int_eq(tap_open(&t, queues > 1 ? "m0" : "s0", queues, true), 0);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		tap_close(&t);
	}
}
END_TEST

/* --- attaching -------------------------------------------------------------------------------- */

START_TEST(queues_are_attached_upwards_and_detached_from_the_top)
{
	static const unsigned steps[] = { 4, 8, 8, 2, 5, 1, 1, 8, 7, 6, 1 };

	ck_assert_int_eq(tap_open(&t, "t0", 8, true), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		ck_assert_int_eq(tap_attach(&t, steps[i]), 0);
		ck_assert_uint_eq(t.attached, steps[i]);
		ck_assert_int_eq(netns_attached("t0"), (int)steps[i]);
	}
	ck_assert_int_eq(tap_attach(&t, 9), -EINVAL);
	ck_assert_uint_eq(t.attached, 1);
	tap_close(&t);
}
END_TEST

START_TEST(sixty_four_queues)
{
	ck_assert_int_eq(tap_open(&t, "t0", 64, true), 0);
	ck_assert_int_eq(tap_attach(&t, 64), 0);
	ck_assert_int_eq(netns_attached("t0"), 64);
	tap_close(&t);
}
END_TEST

/* --- descriptors ------------------------------------------------------------------------------ */

START_TEST(descriptors_are_taken_over_in_the_order_given)
{
	int fd[4], order[4];
	struct frame_bytes {
		uint8_t b[TAP_HDR_LEN + 60];
	} f;
	int packet;

	for (unsigned i = 0; i < 4; i++) {
		fd[i] = netns_tun("t0", TAP_FLAGS | IFF_MULTI_QUEUE);
		ck_assert_int_ge(fd[i], 0);
		order[3 - i] = fd[i];
	}
	ck_assert_int_eq(tap_adopt(&t, order, 4), 0);
	ck_assert(!t.made && t.kernel && t.multi);
	ck_assert_int_eq(netns_attached("t0"), 1);
	/* The one queue that is left is the first of the list. */
	netns_up("t0", true);
	packet = netns_packet("t0");
	usleep(50000);
	while (read(order[0], &f, sizeof(f)) > 0)
		;
	memset(&f, 0xff, sizeof(f));
	ck_assert_int_eq(send(packet, &f, 60, 0), 60);
	ck_assert_int_eq(read(order[0], &f, sizeof(f)), sizeof(f));
	close(packet);
	tap_close(&t);
	ck_assert(!netns_exists("t0"));
}
END_TEST

static void assert_refused(const int *fd, unsigned n, const char *a, const char *b)
{
	said_begin();
	ck_assert_int_lt(tap_adopt(&t, fd, n), 0);
	assert_said(a, b);
}

START_TEST(descriptors_that_will_not_do_are_named)
{
	int pair[2], fd[2];

	fd[0] = netns_tun("a0", IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE);
	assert_refused(fd, 1, "a0", "without IFF_VNET_HDR");
	fd[0] = netns_tun("b0", IFF_TAP | IFF_VNET_HDR);
	assert_refused(fd, 1, "b0", "without IFF_NO_PI");
	fd[0] = netns_tun("c0", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR);
	assert_refused(fd, 1, "c0", "without IFF_TAP");
	fd[0] = netns_tun("d0", TAP_FLAGS);
	fd[1] = netns_tun("e0", TAP_FLAGS | IFF_MULTI_QUEUE);
	assert_refused(fd, 2, "d0", "without IFF_MULTI_QUEUE");
	fd[0] = netns_tun("f0", TAP_FLAGS | IFF_MULTI_QUEUE);
	assert_refused(fd, 2, "not a queue of f0", "descriptor");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_refused(pair, 1, "neither a tap nor a socket of packets", "fds=");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	fd[1] = pair[0];
	assert_refused(fd, 2, "not a queue of f0", "descriptor");
	/* They stay open. */
	ck_assert_int_ge(fcntl(fd[0], F_GETFD), 0);
	fd[0] = 999;
	assert_refused(fd, 1, "999", "not open");
}
END_TEST

START_TEST(sockets_of_packets_are_taken)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	ck_assert_int_eq(tap_adopt(&t, pair, 2), 0);
	ck_assert(!t.kernel && t.offloads == 0 && tap_link_up(&t) && tap_mtu(&t) == 0);
	ck_assert_int_eq(tap_attach(&t, 2), 0);
	ck_assert_int_eq(tap_set_offloads(&t, TUN_F_CSUM), 0);
	ck_assert(fcntl(pair[0], F_GETFL) & O_NONBLOCK);
	tap_close(&t);
}
END_TEST

/* --- the link --------------------------------------------------------------------------------- */

START_TEST(link_follows_the_interface)
{
	ck_assert_int_eq(tap_open(&t, "t0", 2, true), 0);
	ck_assert_int_ge(t.link_fd, 0);
	ck_assert(!tap_link_up(&t));
	for (unsigned i = 0; i < 3; i++) {
		netns_up("t0", true);
		for (unsigned k = 0; k < 1000 && !tap_link_up(&t); k++)
			usleep(1000);
		ck_assert(tap_link_up(&t));
		netns_up("t0", false);
		ck_assert(!tap_link_up(&t));
	}
	tap_link_drain(&t);
	tap_close(&t);
}
END_TEST

START_TEST(link_of_a_deleted_tap_is_down)
{
	struct ifreq r = { 0 };

	ck_assert_int_eq(tap_open(&t, "t0", 2, true), 0);
	netns_up("t0", true);
	netns_delete("t0");
	ck_assert(!tap_link_up(&t));
	ck_assert_int_lt(ioctl(t.fd[0], TUNGETIFF, &r), 0);
	tap_close(&t);
}
END_TEST

START_TEST(tap_of_another_namespace_counts_as_up)
{
	int fd = netns_tun("t0", TAP_FLAGS);

	ck_assert(netns_enter());
	/* Here is another t0, which is down. */
	netns_persist("t0", TAP_FLAGS, -1);
	ck_assert_int_eq(tap_adopt(&t, &fd, 1), 0);
	ck_assert_int_lt(t.link_fd, 0);
	ck_assert(tap_link_up(&t));
	ck_assert_uint_eq(tap_mtu(&t), 0);
	tap_close(&t);
}
END_TEST

NETNS_MAIN("tap", 30, setup, teardown, tap_that_was_made_is_gone_afterwards, name_may_be_a_pattern,
	   made_tap_is_brought_up_with_its_mtu, offloads_of_this_kernel_are_found_and_can_be_set,
	   found_taps_of_both_kinds_are_opened_where_it_works, found_tap_stays_as_it_was,
	   tun_and_other_kinds_are_refused_by_name, impossible_names_are_refused,
	   missing_tap_without_privilege_says_how_to_make_it,
	   owner_needs_no_privilege_and_others_are_told, tap_in_use_is_called_busy_within_a_second,
	   tap_that_is_just_being_closed_is_waited_for,
	   queues_are_attached_upwards_and_detached_from_the_top, sixty_four_queues,
	   descriptors_are_taken_over_in_the_order_given, descriptors_that_will_not_do_are_named,
	   sockets_of_packets_are_taken, link_follows_the_interface, link_of_a_deleted_tap_is_down,
	   tap_of_another_namespace_counts_as_up)
