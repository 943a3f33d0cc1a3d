/*
 * virtio-net device on a tap (virtio 1.2, "Network Device"): one tap queue, one RX and one TX
 * virtqueue and, unless told otherwise, one thread make a pair; pairs share nothing but the guest's
 * choice of how many of them are in use.
 */
#ifndef DEVICES_NET_H
#define DEVICES_NET_H

#include "devices/device.h"

/*
 * spec: "tap=NAME,KEY=VALUE,..."; modified.  Lists are separated by colons.
 *	tap=NAME     made when there is none of that name, and gone afterwards then
 *	fds=A:B:...  open descriptors instead: taps, or sockets of packets; each a queue
 *	queues=N     pairs; default: vCPUs, or as many as there are descriptors
 *	mac= mtu= ring=
 *	split        RX and TX of a pair on threads of their own
 *	iothreads=N  fold all pairs (with split: queues) onto so many threads
 *	pin=LIST     host CPUs, "0-3:8", one for each of these threads in turn
 *	offload=LIST "none", "csum:tso4" (only these), "-uso:-mrg" (all but these), "all"
 *	ip= gw= dns= for the agent: see net_guest_of()
 * 0 or -errno, having logged one line.
 */
int net_create(char *spec, const struct device_env *env, struct device *out);

/* What the guest's side of the link is to be set to: text, checked; "" = not given. */
struct net_guest {
	char ip[64]; /* "ADDR/LEN" */
	char gw[48];
	char dns[48];
};

/* From the same spec, which stays as it is; opens nothing.  0 or -errno, having logged one line. */
int net_guest_of(const char *spec, struct net_guest *g);

#endif
