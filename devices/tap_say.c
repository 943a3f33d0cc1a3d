/* What to say when a tap cannot be had: see tap_say.h. */
#include "devices/tap_say.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "vmm/log.h"

/* The commands that make a tap as we like it. */
#define MAKE_TAP       "sudo ip tuntap add dev %s mode tap multi_queue vnet_hdr user %u"
#define MAKE_TAP_AGAIN "sudo ip tuntap del dev %s mode %s && " MAKE_TAP

int tap_say_open(const char *name, int err)
{
	if (err == -ENOENT || err == -ENODEV || err == -ENXIO)
		log_error("--net: tap %s: no %s here (sudo modprobe tun)", name, TUN_DEVICE);
	else
		log_error("--net: tap %s: cannot open %s: %s (sudo chmod 666 %s)", name, TUN_DEVICE,
			  strerror(-err), TUN_DEVICE);
	return err;
}

int tap_say_kind(const char *name, const struct tap_info *info)
{
	unsigned user = geteuid();

	if (strcmp(info->kind, "tun") != 0)
		log_error("--net: %s is no tap but another kind of interface (IFF_TAP); take a "
			  "free name: " MAKE_TAP,
			  name, "tap0", user);
	else
		log_error("--net: %s is a tun, not a tap (IFF_TAP): " MAKE_TAP_AGAIN, name, name,
			  "tun", name, user);
	return -EINVAL;
}

int tap_say_one_queue(const char *name, unsigned queues)
{
	log_error("--net: tap %s has a single queue (no IFF_MULTI_QUEUE), not %u; use queues=1, "
		  "or: " MAKE_TAP_AGAIN,
		  name, queues, name, "tap", name, (unsigned)geteuid());
	return -EINVAL;
}

int tap_say_busy(const char *name)
{
	log_error("--net: tap %s is in use by another process (which: sudo grep -ls 'iff:.*%s$' "
		  "/proc/[0-9]*/fdinfo/*)",
		  name, name);
	return -EBUSY;
}

int tap_say_refused(const char *name, const struct tap_info *info, bool found, int err)
{
	unsigned user = geteuid();

	if (err == -EBUSY)
		return tap_say_busy(name);
	if (err == -EPERM && !found)
		log_error("--net: there is no tap %s, and making one (IFF_TAP) needs "
			  "CAP_NET_ADMIN: " MAKE_TAP,
			  name, name, user);
	else if (err == -EPERM)
		log_error("--net: tap %s belongs to user %u (IFF_TAP), we are %u: " MAKE_TAP_AGAIN,
			  name, info->owner == UINT32_MAX ? 0 : info->owner, user, name, "tap",
			  name, user);
	else if (err == -E2BIG)
		log_error("--net: tap %s takes no more queues (IFF_MULTI_QUEUE); use fewer: "
			  "queues=N",
			  name);
	else
		log_error("--net: tap %s cannot be opened as IFF_TAP | IFF_NO_PI | "
			  "IFF_VNET_HDR%s: %s; " MAKE_TAP_AGAIN,
			  name, info->multi ? " | IFF_MULTI_QUEUE" : "", strerror(-err), name,
			  "tap", name, user);
	return err;
}

int tap_say_flag(int fd, const char *name, const char *flag, bool several)
{
	log_error("--net: descriptor %d (%.16s) was opened without %s; open it with IFF_TAP | "
		  "IFF_NO_PI | IFF_VNET_HDR%s",
		  fd, name, flag, several ? " | IFF_MULTI_QUEUE" : "");
	return -EINVAL;
}
