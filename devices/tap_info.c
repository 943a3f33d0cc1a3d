/* Ask rtnetlink about one interface: see tap_info.h. */
#include "devices/tap_info.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_MAX 16384 /* an interface with all its statistics takes a tenth of that */

struct question {
	struct nlmsghdr head;
	struct ifinfomsg link;
	struct rtattr attr;
	char name[16];
};

static int ask(int fd, const char *name)
{
	struct question q = {
		.head = { .nlmsg_len = sizeof(q),
			  .nlmsg_type = RTM_GETLINK,
			  .nlmsg_flags = NLM_F_REQUEST },
		.link = { .ifi_family = AF_UNSPEC },
		.attr = { .rta_type = IFLA_IFNAME },
	};
	size_t len = strlen(name) + 1;

	if (len > sizeof(q.name))
		return -ENODEV;
	memcpy(q.name, name, len);
	q.attr.rta_len = (unsigned short)RTA_LENGTH(len);
	return send(fd, &q, sizeof(q), 0) < 0 ? -errno : 0;
}

static const void *attr_data(const struct rtattr *a)
{
	return (const uint8_t *)a + RTA_LENGTH(0);
}

static uint32_t attr_number(const struct rtattr *a)
{
	uint32_t v = 0;

	memcpy(&v, attr_data(a), RTA_PAYLOAD(a) < sizeof(v) ? RTA_PAYLOAD(a) : sizeof(v));
	return v;
}

/* Call fn for each attribute in len bytes at first; the kernel's own, yet never past the end. */
static void each_attr(const void *first, size_t len,
		      void (*fn)(const struct rtattr *a, struct tap_info *info),
		      struct tap_info *info)
{
	const uint8_t *p = first;
	struct rtattr a;

	while (len >= sizeof(a)) {
		memcpy(&a, p, sizeof(a));
		if (a.rta_len < sizeof(a) || a.rta_len > len)
			return;
		fn((const struct rtattr *)(const void *)p, info);
		if (RTA_ALIGN(a.rta_len) >= len)
			return;
		p += RTA_ALIGN(a.rta_len);
		len -= RTA_ALIGN(a.rta_len);
	}
}

static void tun_attr(const struct rtattr *a, struct tap_info *info)
{
	info->told = true;
	switch (a->rta_type) {
	case IFLA_TUN_OWNER:
		info->owner = attr_number(a);
		break;
	case IFLA_TUN_TYPE:
		info->tap = attr_number(a) == IFF_TAP;
		break;
	case IFLA_TUN_PI:
		info->pi = attr_number(a) != 0;
		break;
	case IFLA_TUN_PERSIST:
		info->persist = attr_number(a) != 0;
		break;
	case IFLA_TUN_MULTI_QUEUE:
		info->multi = attr_number(a) != 0;
		break;
	case IFLA_TUN_NUM_QUEUES:
		info->attached = attr_number(a);
		break;
	case IFLA_TUN_NUM_DISABLED_QUEUES:
		info->detached = attr_number(a);
		break;
	}
}

static void kind_attr(const struct rtattr *a, struct tap_info *info)
{
	size_t len = RTA_PAYLOAD(a);

	if (a->rta_type == IFLA_INFO_KIND && len > 0 && len <= sizeof(info->kind)) {
		memcpy(info->kind, attr_data(a), len);
		info->kind[len - 1] = '\0';
	} else if (a->rta_type == IFLA_INFO_DATA && strcmp(info->kind, "tun") == 0) {
		each_attr(attr_data(a), len, tun_attr, info);
	}
}

static void link_attr(const struct rtattr *a, struct tap_info *info)
{
	if ((a->rta_type & NLA_TYPE_MASK) == IFLA_LINKINFO)
		each_attr(attr_data(a), RTA_PAYLOAD(a), kind_attr, info);
}

static int parse(const uint8_t *answer, size_t len, struct tap_info *info)
{
	const size_t attrs = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(struct ifinfomsg)));
	const struct nlmsghdr *h = (const void *)answer;
	const struct nlmsgerr *e = (const void *)(answer + NLMSG_HDRLEN);

	if (len < NLMSG_LENGTH(sizeof(int)) || h->nlmsg_len > len)
		return -EIO;
	if (h->nlmsg_type == NLMSG_ERROR)
		return e->error ? e->error : -EIO;
	if (h->nlmsg_type != RTM_NEWLINK || h->nlmsg_len < attrs)
		return -EIO;
	each_attr(answer + attrs, h->nlmsg_len - attrs, link_attr, info);
	return 0;
}

int tap_info_get(const char *name, struct tap_info *info)
{
	const struct timeval patience = { .tv_sec = 1 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err;
	uint8_t *answer = malloc(ANSWER_MAX);
	ssize_t len;

	*info = (struct tap_info){ .owner = UINT32_MAX };
	err = fd < 0 ? -errno : answer ? 0 : -ENOMEM;
	if (!err) {
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		err = ask(fd, name);
	}
	if (!err) {
		len = recv(fd, answer, ANSWER_MAX, 0);
		err = len < 0 ? -errno : parse(answer, (size_t)len, info);
	}
	free(answer);
	if (fd >= 0)
		close(fd);
	return err;
}
