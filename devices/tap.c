/*
 * Tap queues: see tap.h and the kernel's Documentation/networking/tuntap.rst.
 *
 * Theory of operation.
 *   1. tap_open() first asks what there is (tap_info.h): whether the name is free decides whether
 *      we make the tap, its flags decide with which flags it can be opened, and together they
 *      explain a refusal.
 *   2. Each queue is one descriptor of /dev/net/tun, given to the interface with TUNSETIFF; the
 *      order of opening is the kernel's numbering.
 *   3. Header length and offloads are properties of the interface: what it was found with is put
 *      back.
 *   4. Of several queues all but the first are detached at once: the kernel spreads frames over
 *      every attached queue, and the guest starts with one.
 *   5. Attaching adds at the end of the kernel's table, detaching moves its last entry into the
 *      gap.  So queue i stays descriptor i only if we do both at the end.  Doing either twice is
 *      EINVAL.
 *
 * A tap that we made is not persistent: the kernel removes it with its last descriptor, also if we
 * crash.
 */
#include "devices/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "devices/tap_say.h"
#include "vmm/base.h"
#include "vmm/log.h"

/* The kernel lets go of the queues of a killed process a moment after kill(1) has returned. */
#define BUSY_TRIES   20
#define BUSY_WAIT_NS 20000000

/* --- opening by name -------------------------------------------------------------------------- */

static void tap_init(struct tap *t)
{
	*t = (struct tap){ .link_fd = -1 };
	for (unsigned i = 0; i < TAP_QUEUES_MAX; i++)
		t->fd[i] = -1;
}

/* -errno of one TUNSETIFF; the name may be a pattern that the kernel completes. */
static int set_iff(int fd, char name[IFNAMSIZ], bool multi)
{
	struct ifreq r = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR |
						(multi ? IFF_MULTI_QUEUE : 0)) };

	memcpy(r.ifr_name, name, IFNAMSIZ);
	if (ioctl(fd, TUNSETIFF, &r))
		return -errno;
	memcpy(name, r.ifr_name, IFNAMSIZ);
	return 0;
}

static int set_iff_patiently(int fd, char name[IFNAMSIZ], bool multi)
{
	const struct timespec wait = { .tv_nsec = BUSY_WAIT_NS };
	int err = set_iff(fd, name, multi);

	for (unsigned i = 0; i < BUSY_TRIES && err == -EBUSY; i++) {
		nanosleep(&wait, NULL);
		err = set_iff(fd, name, multi);
	}
	return err;
}

static int open_queue(struct tap *t, const struct tap_info *info, bool found)
{
	int fd = open(TUN_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC), err;

	if (fd < 0)
		return tap_say_open(t->name, -errno);
	t->fd[t->n++] = fd;
	err = set_iff_patiently(fd, t->name, t->multi);
	return err ? tap_say_refused(t->name, info, found, err) : 0;
}

/* Somebody else's queues would take their share of the frames; wait as for EBUSY. */
static int check_unused(const char *name, struct tap_info *info)
{
	const struct timespec wait = { .tv_nsec = BUSY_WAIT_NS };

	for (unsigned i = 0; i < BUSY_TRIES && info->attached + info->detached > 0; i++) {
		nanosleep(&wait, NULL);
		if (tap_info_get(name, info))
			return 0; /* gone meanwhile: it is ours to make */
	}
	return info->attached + info->detached > 0 ? tap_say_busy(name) : 0;
}

static int check_found(const char *name, struct tap_info *info, unsigned *queues, bool exact)
{
	if (strcmp(info->kind, "tun") != 0 || (info->told && !info->tap))
		return tap_say_kind(name, info);
	if (!info->told)
		info->multi = *queues > 1;
	if (!info->multi && *queues > 1) {
		if (exact)
			return tap_say_one_queue(name, *queues);
		*queues = 1;
	}
	return check_unused(name, info);
}

/* --- descriptors, whoever opened them --------------------------------------------------------- */

/* What the kernel takes depends on its age: ask for everything, then for less. */
static unsigned probe_offloads(int fd)
{
	const unsigned tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
	const unsigned sets[] = {
		TAP_OFFLOADS_ALL,
		tcp | TUN_F_TSO_ECN | TAP_USO,
		tcp | TUN_F_TSO_ECN | TUN_F_UFO,
		tcp | TUN_F_TSO_ECN,
		tcp,
		TUN_F_CSUM,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(sets); i++) {
		if (ioctl(fd, TUNSETOFFLOAD, sets[i]) == 0) {
			(void)ioctl(fd, TUNSETOFFLOAD, 0);
			return sets[i];
		}
	}
	return 0;
}

static int set_header(struct tap *t)
{
	int len = TAP_HDR_LEN;

	if (!t->made && ioctl(t->fd[0], TUNGETVNETHDRSZ, &t->found_hdr_len))
		t->found_hdr_len = 0;
	for (unsigned i = 0; i < t->n; i++) {
		if (ioctl(t->fd[i], TUNSETVNETHDRSZ, &len)) {
			log_error("--net: tap %s takes no header of %d bytes (TUNSETVNETHDRSZ): %s",
				  t->name, len, strerror(errno));
			return -ENOTSUP;
		}
	}
	return 0;
}

static int set_queue(struct tap *t, unsigned i, short what)
{
	struct ifreq r = { .ifr_flags = what };

	return ioctl(t->fd[i], TUNSETQUEUE, &r) ? -errno : 0;
}

/* Only queue 0, whatever was attached, in whatever order. */
static int attach_first(struct tap *t)
{
	int err;

	t->attached = t->n;
	if (!t->kernel || !t->multi || t->n == 1) {
		t->attached = 1;
		return 0;
	}
	for (unsigned i = t->n; i-- > 0;)
		(void)set_queue(t, i, IFF_DETACH_QUEUE);
	t->attached = 0;
	err = tap_attach(t, 1);
	if (err)
		log_error("--net: tap %s: cannot attach its first queue (TUNSETQUEUE): %s", t->name,
			  strerror(-err));
	return err;
}

static bool same_mac(int a_fd, int b_fd, const char *name)
{
	struct ifreq a = { 0 }, b = { 0 };

	memcpy(a.ifr_name, name, IFNAMSIZ);
	memcpy(b.ifr_name, name, IFNAMSIZ);
	return ioctl(a_fd, SIOCGIFHWADDR, &a) == 0 && ioctl(b_fd, SIOCGIFHWADDR, &b) == 0 &&
	       memcmp(a.ifr_hwaddr.sa_data, b.ifr_hwaddr.sa_data, 6) == 0;
}

/*
 * A socket that hears of link changes, and of which interface flags can be asked.  A descriptor may
 * come from another network namespace, where another interface of ours has the same name: the tap
 * answers for itself which address it has.
 */
static void open_link_socket(struct tap *t)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&to, sizeof(to)) || !same_mac(t->fd[0], fd, t->name))
		close(fd);
	else
		t->link_fd = fd;
}

static int finish(struct tap *t)
{
	int err = set_header(t);

	if (err)
		return err;
	t->offloads = probe_offloads(t->fd[0]);
	err = attach_first(t);
	if (err)
		return err;
	open_link_socket(t);
	return 0;
}

int tap_open(struct tap *t, const char *name, unsigned queues, bool exact)
{
	struct tap_info info;
	bool found;
	int err;

	tap_init(t);
	if (*name == '\0' || strlen(name) >= IFNAMSIZ || strchr(name, '/')) {
		log_error("--net: tap takes an interface name of 1 to %d characters: %s",
			  IFNAMSIZ - 1, name);
		return -EINVAL;
	}
	memcpy(t->name, name, strlen(name) + 1);
	err = tap_info_get(name, &info);
	found = err != -ENODEV;
	if (!err) {
		err = check_found(name, &info, &queues, exact);
	} else {
		/* Nothing there, or nothing told: the kernel will say no to what is wrong. */
		info.multi = queues > 1;
		err = 0;
	}
	t->kernel = true;
	t->multi = info.multi;
	t->made = !found;
	for (unsigned i = 0; i < queues && !err; i++)
		err = open_queue(t, &info, found);
	if (!err)
		err = finish(t);
	if (err)
		tap_close(t);
	return err;
}

/* --- descriptors given to us ------------------------------------------------------------------ */

static int check_tap_fd(int fd, bool several, const struct ifreq *r)
{
	unsigned flags = (unsigned short)r->ifr_flags;

	if (!(flags & IFF_TAP))
		return tap_say_flag(fd, r->ifr_name, "IFF_TAP", several);
	if (!(flags & IFF_VNET_HDR))
		return tap_say_flag(fd, r->ifr_name, "IFF_VNET_HDR", several);
	if (several && !(flags & IFF_MULTI_QUEUE))
		return tap_say_flag(fd, r->ifr_name, "IFF_MULTI_QUEUE", several);
	return 0;
}

/*
 * TUNGETIFF does not tell IFF_NO_PI (its bit says something else there), netlink does if it is
 * near.
 */
static int check_no_pi(const struct tap *t)
{
	struct tap_info info;

	if (t->link_fd >= 0 && tap_info_get(t->name, &info) == 0 && info.pi)
		return tap_say_flag(t->fd[0], t->name, "IFF_NO_PI", t->n > 1);
	return 0;
}

static bool is_packet_socket(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       (type == SOCK_SEQPACKET || type == SOCK_DGRAM);
}

static int complain_mixed(const struct tap *t, int fd)
{
	log_error("--net: descriptor %d is not a queue of %s as the first one is", fd,
		  t->kernel ? t->name : "sockets");
	return -EINVAL;
}

static int adopt_one(struct tap *t, int fd, bool several)
{
	struct ifreq r = { 0 };
	int flags = fcntl(fd, F_GETFL);
	bool kernel, first = t->n == 0;

	if (flags < 0) {
		log_error("--net: descriptor %d is not open (fds=)", fd);
		return -EBADF;
	}
	kernel = ioctl(fd, TUNGETIFF, &r) == 0;
	if (!kernel && !is_packet_socket(fd)) {
		log_error("--net: descriptor %d is neither a tap nor a socket of packets (fds=)",
			  fd);
		return -EINVAL;
	}
	if (kernel && check_tap_fd(fd, several, &r))
		return -EINVAL;
	if (!first && (kernel != t->kernel || memcmp(t->name, r.ifr_name, IFNAMSIZ) != 0))
		return complain_mixed(t, fd);
	t->kernel = kernel;
	t->multi = kernel && ((unsigned short)r.ifr_flags & IFF_MULTI_QUEUE);
	memcpy(t->name, r.ifr_name, IFNAMSIZ);
	(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	t->fd[t->n++] = fd;
	return 0;
}

int tap_adopt(struct tap *t, const int *fd, unsigned n)
{
	int err = n >= 1 && n <= TAP_QUEUES_MAX ? 0 : -EINVAL;

	tap_init(t);
	for (unsigned i = 0; i < n && !err; i++)
		err = adopt_one(t, fd[i], n > 1);
	if (!err)
		err = t->kernel ? finish(t) : attach_first(t);
	if (!err)
		err = check_no_pi(t);
	if (err) {
		t->n = 0;
		tap_close(t);
	}
	return err;
}

void tap_close(struct tap *t)
{
	if (t->kernel && t->n > 0 && !t->made) {
		(void)ioctl(t->fd[0], TUNSETOFFLOAD, 0);
		if (t->found_hdr_len > 0)
			(void)ioctl(t->fd[0], TUNSETVNETHDRSZ, &t->found_hdr_len);
	}
	while (t->n > 0)
		close(t->fd[--t->n]);
	if (t->link_fd >= 0)
		close(t->link_fd);
	t->link_fd = -1;
}

/* --- while it is in use ----------------------------------------------------------------------- */

int tap_attach(struct tap *t, unsigned want)
{
	bool kernel = t->kernel && t->multi && t->n > 1;
	int err = 0;

	if (want > t->n)
		return -EINVAL;
	while (t->attached < want && !err) {
		err = kernel ? set_queue(t, t->attached, IFF_ATTACH_QUEUE) : 0;
		t->attached += !err;
	}
	while (t->attached > want && !err) {
		err = kernel ? set_queue(t, t->attached - 1, IFF_DETACH_QUEUE) : 0;
		t->attached -= !err;
	}
	return err;
}

int tap_set_offloads(struct tap *t, unsigned offloads)
{
	/* Kernels so far know USO for both IP versions or not at all. */
	if ((offloads & TAP_USO) != TAP_USO)
		offloads &= ~(unsigned)TAP_USO;
	if (!t->kernel || offloads == t->offloads_now)
		return 0;
	/* A property of the interface: one descriptor speaks for all. */
	if (ioctl(t->fd[0], TUNSETOFFLOAD, offloads))
		return -errno;
	t->offloads_now = offloads;
	return 0;
}

int tap_bring_up(struct tap *t, unsigned mtu)
{
	struct ifreq r = { .ifr_mtu = (int)mtu };

	if (!t->made || t->link_fd < 0)
		return 0;
	memcpy(r.ifr_name, t->name, IFNAMSIZ);
	if (mtu && ioctl(t->link_fd, SIOCSIFMTU, &r)) {
		log_error("--net: tap %s takes no MTU of %u: %s", t->name, mtu, strerror(errno));
		return -EINVAL;
	}
	if (ioctl(t->link_fd, SIOCGIFFLAGS, &r) == 0) {
		r.ifr_flags |= IFF_UP;
		if (ioctl(t->link_fd, SIOCSIFFLAGS, &r) == 0)
			return 0;
	}
	log_error("--net: tap %s cannot be brought up: %s (sudo ip link set %s up)", t->name,
		  strerror(errno), t->name);
	return -EIO;
}

unsigned tap_mtu(const struct tap *t)
{
	struct ifreq r = { 0 };

	memcpy(r.ifr_name, t->name, IFNAMSIZ);
	if (t->link_fd < 0 || ioctl(t->link_fd, SIOCGIFMTU, &r) || r.ifr_mtu < 0)
		return 0;
	return (unsigned)r.ifr_mtu;
}

/*
 * The descriptor knows its interface's name of today, and is dead (EBADFD) when that was deleted.
 */
bool tap_link_up(const struct tap *t)
{
	struct ifreq r = { 0 };

	if (!t->kernel)
		return true;
	if (ioctl(t->fd[0], TUNGETIFF, &r))
		return false;
	if (t->link_fd < 0 || ioctl(t->link_fd, SIOCGIFFLAGS, &r))
		return true;
	return (r.ifr_flags & IFF_UP) && (r.ifr_flags & IFF_RUNNING);
}

void tap_link_drain(const struct tap *t)
{
	struct nlmsghdr unread;

	/* ENOBUFS: more happened than there was room for; that too is news. */
	while (recv(t->link_fd, &unread, sizeof(unread), 0) >= 0 || errno == ENOBUFS)
		;
}
