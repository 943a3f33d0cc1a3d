/* The options of one network device as a plain struct. */
#ifndef DEVICES_NET_OPTS_H
#define DEVICES_NET_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/net.h"
#include "devices/tap.h"

/* Beside TUN_F_*: what else offload= switches. */
#define NET_OPT_MRG      (1u << 16)
#define NET_OPT_INDIRECT (1u << 17)
#define NET_OPT_EVENT    (1u << 18)

#define NET_CPUS_MAX 256

struct net_opts {
	const char *tap;
	int fd[TAP_QUEUES_MAX];
	unsigned n_fds;
	unsigned queues;               /* 0 = not given */
	unsigned ring, mtu, iothreads; /* mtu, iothreads: 0 = not given */
	bool split;
	bool has_mac;
	uint8_t mac[6];
	uint16_t cpu[NET_CPUS_MAX];
	unsigned n_cpus;
	bool has_offload; /* offload= was given: sockets get what it says */
	unsigned offload; /* TUN_F_* and NET_OPT_* that may be used */
	struct net_guest guest;
};

/* spec is modified and must outlive o.  0 or -EINVAL, having logged one line. */
int net_opts_parse(char *spec, struct net_opts *o);

#endif
