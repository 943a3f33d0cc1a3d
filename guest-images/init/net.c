/*
 * Addresses of the network devices that the spec names, by rtnetlink.
 *
 * The spec counts heddle's network devices in the order of their PCI slots; ethtool says which
 * interface sits in which, so that no name has to be guessed and no sysfs is needed.
 *
 * The name server goes into a file of our own, mounted over the root's /etc/resolv.conf: a root that
 * is shared with the host must not be written to.
 */
#include "guest-images/init/agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRIVER		"virtio_net"
#define INTERFACES_MAX	64
#define DEVICE_WAIT_MS	1000
#define CARRIER_WAIT_MS 500
#define RESOLV_CONF	"/etc/resolv.conf"
#define OUR_RESOLV_CONF "/run/heddle-resolv.conf"

struct interface {
	char slot[ETHTOOL_BUSINFO_LEN];
	unsigned index;
};

struct address {
	uint8_t family;
	uint8_t len; /* bytes */
	uint8_t bytes[16];
};

/* --- which interface ------------------------------------------------------------------------ */

static int by_slot(const void *a, const void *b)
{
	return strcmp(((const struct interface *)a)->slot, ((const struct interface *)b)->slot);
}

/* All of the driver's interfaces, by slot; how many. */
static unsigned find_interfaces(int fd, struct interface *found)
{
	struct if_nameindex *all = if_nameindex();
	unsigned n = 0;

	for (struct if_nameindex *i = all; i && i->if_index && n < INTERFACES_MAX; i++) {
		struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
		struct ifreq ifr = { .ifr_data = (char *)&info };

		snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", i->if_name);
		if (ioctl(fd, SIOCETHTOOL, &ifr) || strcmp(info.driver, DRIVER) != 0)
			continue;
		memcpy(found[n].slot, info.bus_info, sizeof(found[n].slot));
		found[n++].index = i->if_index;
	}
	if_freenameindex(all);
	qsort(found, n, sizeof(*found), by_slot);
	return n;
}

/* 0: there is none, also not after a while. */
static unsigned find_interface(unsigned number)
{
	struct interface found[INTERFACES_MAX];
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned n = 0;

	for (int ms = 0; fd >= 0 && ms < DEVICE_WAIT_MS; ms += 10) {
		n = find_interfaces(fd, found);
		if (n > number)
			break;
		sleep_ms(10);
	}
	if (fd >= 0)
		close(fd);
	return n > number ? found[number].index : 0;
}

/* --- rtnetlink ------------------------------------------------------------------------------ */

struct request {
	struct nlmsghdr h;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg addr;
		struct rtmsg route;
		char room[128]; /* with the attributes behind */
	};
};

static void request_init(struct request *r, uint16_t type, uint16_t flags, size_t len)
{
	*r = (struct request){ 0 };
	r->h.nlmsg_len = NLMSG_LENGTH(len);
	r->h.nlmsg_type = type;
	r->h.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
}

static void request_add(struct request *r, uint16_t type, const void *data, size_t len)
{
	struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	r->h.nlmsg_len = NLMSG_ALIGN(r->h.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static int request_do(int fd, const struct request *r)
{
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char rest[512];
	} answer;
	ssize_t n = send(fd, r, r->h.nlmsg_len, 0);

	if (n >= 0)
		n = recv(fd, &answer, sizeof(answer), 0);
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(answer.h) + sizeof(answer.e) || answer.h.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return answer.e.error;
}

static int link_up(int fd, unsigned index)
{
	struct request r;

	request_init(&r, RTM_NEWLINK, 0, sizeof(r.link));
	r.link.ifi_index = (int)index;
	r.link.ifi_flags = r.link.ifi_change = IFF_UP;
	return request_do(fd, &r);
}

/*
 * A command may send at once: the kernel drops what it is given before it has noticed the carrier,
 * which it does on a worker.  A tap whose link is down only costs the time.
 */
static void wait_running(unsigned index)
{
	struct ifreq ifr = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (int ms = 0; fd >= 0 && ms < CARRIER_WAIT_MS; ms += 2) {
		if (!if_indextoname(index, ifr.ifr_name) || ioctl(fd, SIOCGIFFLAGS, &ifr) ||
		    (ifr.ifr_flags & IFF_RUNNING))
			break;
		sleep_ms(2);
	}
	if (fd >= 0)
		close(fd);
}

/* heddle gave the address away: nobody has to be asked whether it is taken. */
static int add_address(int fd, unsigned index, const struct address *a, unsigned prefix)
{
	struct request r;

	request_init(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, sizeof(r.addr));
	r.addr.ifa_family = a->family;
	r.addr.ifa_prefixlen = (uint8_t)prefix;
	r.addr.ifa_flags = a->family == AF_INET6 ? IFA_F_NODAD : 0;
	r.addr.ifa_index = index;
	request_add(&r, IFA_LOCAL, a->bytes, a->len);
	request_add(&r, IFA_ADDRESS, a->bytes, a->len);
	return request_do(fd, &r);
}

/* "On link": the gateway of a /32 lies in no network of its own. */
static int add_default_route(int fd, unsigned index, const struct address *gw)
{
	struct request r;

	request_init(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof(r.route));
	r.route.rtm_family = gw->family;
	r.route.rtm_table = RT_TABLE_MAIN;
	r.route.rtm_protocol = RTPROT_BOOT;
	r.route.rtm_scope = RT_SCOPE_UNIVERSE;
	r.route.rtm_type = RTN_UNICAST;
	r.route.rtm_flags = RTNH_F_ONLINK;
	request_add(&r, RTA_GATEWAY, gw->bytes, gw->len);
	request_add(&r, RTA_OIF, &index, sizeof(index));
	return request_do(fd, &r);
}

/* --- the name server ------------------------------------------------------------------------- */

static int write_resolv_conf(const char *path, int how, const char *dns)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | how, 0644), err = 0;

	if (fd < 0)
		return -errno;
	if (dprintf(fd, "nameserver %s\n", dns) < 0)
		err = -errno;
	close(fd);
	return err;
}

/*
 * Where the root's file is a link to nowhere (into the host's /run, most often), the place it points to
 * is made to be, if that lies in our own /run.
 */
static int follow_to_run(const char *dns)
{
	char target[512], *path = target, *slash;
	ssize_t n = readlink(RESOLV_CONF, target, sizeof(target) - 1);
	int err;

	if (n <= 0)
		return -ENOENT;
	target[n] = '\0';
	if (strncmp(path, "../run/", 7) == 0) /* from /etc */
		path += 2;
	if (strncmp(path, "/run/", 5) != 0 || strstr(path, "/.."))
		return -ENOENT;
	slash = strrchr(path, '/');
	*slash = '\0';
	err = make_dirs(path);
	*slash = '/';
	return err ? err : write_resolv_conf(path, O_CREAT | O_TRUNC, dns);
}

/* more: after another one. */
static int set_name_server(const struct spec *s, const char *dns, bool more)
{
	struct stat st;
	int err;

	if (more)
		return write_resolv_conf(RESOLV_CONF, O_APPEND, dns);
	if (stat(RESOLV_CONF, &st)) {
		err = follow_to_run(dns);
		if (err && s->root_mode == ROOT_OVERLAY)
			err = write_resolv_conf(RESOLV_CONF, O_CREAT | O_TRUNC, dns);
		return err;
	}
	err = write_resolv_conf(OUR_RESOLV_CONF, O_CREAT | O_TRUNC, dns);
	if (!err && mount(OUR_RESOLV_CONF, RESOLV_CONF, NULL, MS_BIND, NULL))
		err = -errno;
	return err;
}

/* --- together -------------------------------------------------------------------------------- */

static int read_address(const char *text, struct address *a)
{
	*a = (struct address){ .family = strchr(text, ':') ? AF_INET6 : AF_INET };
	a->len = a->family == AF_INET6 ? 16 : 4;
	return inet_pton(a->family, text, a->bytes) == 1 ? 0 : -EINVAL;
}

static int net_set(struct agent *a, int fd, const struct spec_net *net)
{
	unsigned index = find_interface(net->number);
	struct address address, gw;
	int err;

	if (!index)
		return agent_fail(a, ENODEV, "network device %u", net->number);
	err = read_address(net->address, &address);
	if (!err)
		err = link_up(fd, index);
	if (!err)
		err = add_address(fd, index, &address, net->prefix);
	if (err)
		return agent_fail(a, -err, "address %s of network device %u", net->address,
				  net->number);
	if (*net->gw) {
		err = read_address(net->gw, &gw);
		if (!err)
			err = add_default_route(fd, index, &gw);
		if (err)
			return agent_fail(a, -err, "route by %s", net->gw);
	}
	wait_running(index);
	return 0;
}

static int net_set_dns(struct agent *a, const struct spec_net *net, bool more)
{
	int err = set_name_server(&a->spec, net->dns, more);

	return err ? agent_fail(a, -err, "name server %s: " RESOLV_CONF, net->dns) : 0;
}

int net_setup(struct agent *a)
{
	bool named = false;
	int fd, err = 0;

	if (!a->spec.n_nets)
		return 0;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return agent_fail(a, errno, "rtnetlink");
	for (unsigned i = 0; i < a->spec.n_nets && !err; i++) {
		const struct spec_net *net = &a->spec.net[i];

		err = net_set(a, fd, net);
		if (err || !*net->dns)
			continue;
		err = net_set_dns(a, net, named);
		named = true;
	}
	close(fd);
	return err;
}
