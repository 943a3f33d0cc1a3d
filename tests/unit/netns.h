/*
 * Tests with real taps, each in a network namespace of its own: nothing of the machine is touched,
 * and all of it is gone with the test.
 */
#ifndef TESTS_UNIT_NETNS_H
#define TESTS_UNIT_NETNS_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "devices/tap_info.h"

#define TAP_FLAGS (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)

/* A namespace where we may make taps; unprivileged users get one with a user namespace. */
static inline bool netns_enter(void)
{
	return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

static inline int netns_tun(const char *name, int flags)
{
	struct ifreq r = { .ifr_flags = (short)flags };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	strcpy(r.ifr_name, name);
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &r)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Whether taps can be had here; in a child, so that the caller stays where it is. */
static inline bool netns_works(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(netns_enter() && netns_tun("probe", TAP_FLAGS) >= 0 ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* main() of a program of such tests; n of them. */
#define NETNS_MAIN(suite, seconds, setup, teardown, ...)                                         \
	int main(void)                                                                           \
	{                                                                                        \
		const TTest *const tests[] = { __VA_ARGS__ };                                    \
		const unsigned n = sizeof(tests) / sizeof(*tests);                               \
		TCase *tcase = tcase_create(suite);                                              \
		Suite *s = suite_create(suite);                                                  \
		SRunner *runner;                                                                 \
		int failed;                                                                      \
                                                                                                 \
		if (!netns_works()) {                                                            \
			printf("skipped: %u, no taps here (/dev/net/tun, network namespaces)\n", \
			       n);                                                               \
			return 77;                                                               \
		}                                                                                \
		tcase_set_timeout(tcase, seconds);                                               \
		tcase_add_checked_fixture(tcase, setup, teardown);                               \
		for (unsigned i = 0; i < n; i++)                                                 \
			tcase_add_test(tcase, tests[i]);                                         \
		suite_add_tcase(s, tcase);                                                       \
		runner = srunner_create(s);                                                      \
		srunner_run_all(runner, CK_ENV);                                                 \
		failed = srunner_ntests_failed(runner);                                          \
		srunner_free(runner);                                                            \
		return failed != 0;                                                              \
	}

/* A tap (or tun) that stays, nobody's queue on it; owner -1 = none. */
static inline void netns_persist(const char *name, int flags, int owner)
{
	int fd = netns_tun(name, flags);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ioctl(fd, TUNSETPERSIST, 1), 0);
	if (owner >= 0)
		ck_assert_int_eq(ioctl(fd, TUNSETOWNER, owner), 0);
	close(fd);
}

static inline void netns_unpersist(const char *name, int flags)
{
	int fd = netns_tun(name, flags);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ioctl(fd, TUNSETPERSIST, 0), 0);
	close(fd);
}

static inline int netns_ioctl(unsigned long what, struct ifreq *r)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = ioctl(fd, what, r);

	close(fd);
	return ret;
}

static inline void netns_up(const char *name, bool up)
{
	struct ifreq r = { 0 };

	strcpy(r.ifr_name, name);
	ck_assert_int_eq(netns_ioctl(SIOCGIFFLAGS, &r), 0);
	r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
	ck_assert_int_eq(netns_ioctl(SIOCSIFFLAGS, &r), 0);
}

static inline bool netns_is_up(const char *name)
{
	struct ifreq r = { 0 };

	strcpy(r.ifr_name, name);
	return netns_ioctl(SIOCGIFFLAGS, &r) == 0 && (r.ifr_flags & IFF_UP);
}

static inline bool netns_exists(const char *name)
{
	return if_nametoindex(name) > 0;
}

static inline int netns_mtu(const char *name)
{
	struct ifreq r = { 0 };

	strcpy(r.ifr_name, name);
	return netns_ioctl(SIOCGIFMTU, &r) ? -1 : r.ifr_mtu;
}

static inline void netns_set_mtu(const char *name, int mtu)
{
	struct ifreq r = { .ifr_mtu = mtu };

	strcpy(r.ifr_name, name);
	ck_assert_int_eq(netns_ioctl(SIOCSIFMTU, &r), 0);
}

/* 192.0.2.1/24 for the host's side of name. */
static inline void netns_set_address(const char *name, const char *address)
{
	struct ifreq r = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET };

	strcpy(r.ifr_name, name);
	inet_pton(AF_INET, address, &a.sin_addr);
	memcpy(&r.ifr_addr, &a, sizeof(a));
	ck_assert_int_eq(netns_ioctl(SIOCSIFADDR, &r), 0);
	inet_pton(AF_INET, "255.255.255.0", &a.sin_addr);
	memcpy(&r.ifr_netmask, &a, sizeof(a));
	ck_assert_int_eq(netns_ioctl(SIOCSIFNETMASK, &r), 0);
}

static inline void netns_delete(const char *name)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} q = {
		.head = { .nlmsg_len = sizeof(q),
			  .nlmsg_type = RTM_DELLINK,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.link = { .ifi_index = (int)if_nametoindex(name) },
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	ck_assert_int_eq(send(fd, &q, sizeof(q), 0), sizeof(q));
	ck_assert_int_gt(recv(fd, &q, sizeof(q), 0), 0);
	close(fd);
	ck_assert(!netns_exists(name));
}

/* Queues that take part now; -1 when there is no such tap. */
static inline int netns_attached(const char *name)
{
	struct tap_info info;

	return tap_info_get(name, &info) ? -1 : (int)info.attached;
}

/* A raw socket on the host's side of name: what is sent there the guest receives, and back. */
static inline int netns_packet(const char *name)
{
	struct sockaddr_ll a = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(name),
	};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* We stay user 0 here, but may not configure networks any more. */
static inline void netns_drop_admin(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	ck_assert_int_eq(syscall(SYS_capget, &h, d), 0);
	d[0].effective &= ~(1u << CAP_NET_ADMIN);
	d[0].permitted &= ~(1u << CAP_NET_ADMIN);
	ck_assert_int_eq(syscall(SYS_capset, &h, d), 0);
}

/* --- what was said ---------------------------------------------------------------------------- */

static char said_text[8192];
static int said_fd = -1, said_old = -1;

/* From here on, what is written to standard error is kept. */
static inline void said_begin(void)
{
	said_fd = memfd_create("said", MFD_CLOEXEC);
	said_old = dup(2);
	ck_assert_int_ge(dup2(said_fd, 2), 0);
}

/* The text since said_begin; standard error is itself again. */
static inline const char *said_end(void)
{
	ssize_t n = pread(said_fd, said_text, sizeof(said_text) - 1, 0);

	said_text[n > 0 ? n : 0] = '\0';
	dup2(said_old, 2);
	close(said_old);
	close(said_fd);
	return said_text;
}

static inline bool said_one_line(const char *text)
{
	const char *end = strchr(text, '\n');

	return end && end[1] == '\0';
}

/* One line was said, with these words in it. */
#define assert_said(...)                                                                       \
	do {                                                                                   \
		const char *const words_[] = { __VA_ARGS__ };                                  \
		const char *text_ = said_end();                                                \
                                                                                               \
		ck_assert_msg(said_one_line(text_), "not one line: %s", text_);                \
		for (unsigned w_ = 0; w_ < sizeof(words_) / sizeof(*words_); w_++)             \
			ck_assert_msg(strstr(text_, words_[w_]), "no '%s' in: %s", words_[w_], \
				      text_);                                                  \
	} while (0)

#endif
