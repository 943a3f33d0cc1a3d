/*
 * The parts of the network device, for devices/net*.c only.
 *
 * Whose is what: a struct net_rx or net_tx belongs to the thread of its queue while that runs, and
 * shares no cache line with another; struct net is frozen at creation, but for what is marked as
 * the control thread's.  The control thread reaches into an RX queue only by a call to that queue's
 * thread.
 */
#ifndef DEVICES_NET_INTERNAL_H
#define DEVICES_NET_INTERNAL_H

#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <stdint.h>
#include <sys/uio.h>

#include "devices/net_opts.h"
#include "devices/tap.h"
#include "devices/virtio.h"

/*
 * The largest frame: 64 KiB of segmented TCP behind an Ethernet header (virtio 1.2, "Setting Up
 * Receive Buffers", has 65562 with the virtio header), and a VLAN tag or two.  From the guest we
 * take an IPv6 packet of full length as well.
 */
#define NET_RX_MAX (TAP_HDR_LEN + 65550)
#define NET_TX_MAX (TAP_HDR_LEN + 65535 + 40 + ETH_HLEN + 8)

/*
 * One pass of a queue, after which its thread looks what else there is to do, by two system calls:
 * a fraction of a millisecond of small frames as of large ones.
 */
#define NET_BUDGET_FRAMES 256
#define NET_BUDGET_BYTES  2097152

/*
 * How much a batch may hold back from the driver: a few microseconds of small frames, one of large.
 */
#define NET_BATCH_FRAMES 32
#define NET_BATCH_BYTES  65536

#define NET_MACS_MAX 64 /* of each kind, before "all of them" */
#define NET_VLANS    4096

#define CACHE_LINE 64

/* Counters beside those of every queue; written by the queue's thread. */
struct net_stats {
	_Atomic uint64_t frames;   /* moved */
	_Atomic uint64_t bytes;    /* of these, without the virtio header */
	_Atomic uint64_t stalls;   /* RX: no buffers; TX: the tap said try again */
	_Atomic uint64_t dropped;  /* RX: did not fit; TX: the tap would not have it, or is down */
	_Atomic uint64_t bad;      /* nonsense: impossible headers, useless buffers */
	_Atomic uint64_t filtered; /* RX: not for this guest */
};

/* What receivers let through.  Never changes once a receiver has it. */
struct net_filter {
	bool mode[VIRTIO_NET_CTRL_RX_NOBCAST + 1]; /* by command */
	bool too_many[2];                          /* [is multicast]: not all fitted */
	bool check_vlan;
	unsigned n_macs;
	uint64_t own; /* addresses as the first 6 bytes of a number */
	uint64_t mac[2 * NET_MACS_MAX];
	uint64_t vlan[NET_VLANS / 64];
};

struct rx_chain {
	uint16_t head, n_seg;
	uint32_t len;
};

struct net_batch {
	unsigned frames;
	size_t bytes;
};

/* The front of a frame, as far as it is looked at. */
struct net_rx_front {
	struct virtio_net_hdr_v1 hdr;
	uint8_t eth[ETH_HLEN + 2]; /* with the number of a VLAN, if there is one */
};

struct net_rx {
	_Alignas(CACHE_LINE) struct virtio_queue *q;
	struct net *net;
	int fd;
	bool active;                     /* one of the pairs in use */
	bool mrg;
	bool starved;                    /* stalled, and counted */
	bool waiting, patience_over;     /* see net_rx.c */
	bool timer_set;
	unsigned ticks;
	unsigned offloads;               /* TUN_F_* the driver takes */
	uint32_t need;                   /* bytes of buffers to hold any frame */
	uint32_t longest;                /* of frames that are not segmented */
	unsigned strikes;                /* reads in a row that brought nothing */
	const struct net_filter *filter;
	struct watch tap, timer;

	/* Buffers in hand, oldest first. */
	struct iovec *iov;               /* their segments: iov[first_seg..first_seg + n_seg) */
	struct rx_chain *chain;          /* a ring */
	unsigned first_seg, n_seg, first_chain, n_chains;
	uint64_t room;                   /* their bytes */
	uint8_t *bounce;                 /* takes what the segments of a read cannot */
	size_t likely;                   /* bytes of the next frame */
	struct net_rx_front front;       /* of the frame that was read last */

	int frames_left;                 /* of this pass */
	int64_t bytes_left;
	struct net_batch batch;
	struct net_stats stats;
};

struct net_tx {
	_Alignas(CACHE_LINE) struct virtio_queue *q;
	struct net *net;
	int fd;
	bool woken;                      /* the tap has just said that it takes more */
	bool down;                       /* frames are being dropped, and it was said */
	unsigned offloads;               /* TUN_F_* the driver may use */
	struct watch out;                /* a descriptor of its own for the same tap */
	struct iovec *iov;               /* VIRTQ_IOV_MAX, and one in front for the header */
	struct virtio_net_hdr_v1 hdr;
	int frames_left;
	int64_t bytes_left;
	struct net_batch batch;
	struct net_stats stats;
};

struct net {
	struct virtio_dev dev;
	struct virtio_net_config config; /* status and mac: stored by the control thread */
	struct tap tap;
	unsigned n_pairs;
	unsigned run_pairs, ctrl_index;  /* of this run (0 = no control queue); set while parked */
	struct net_rx *rx;               /* n_pairs */
	struct net_tx *tx;
	uint16_t *thread_of;             /* by queue, when each is what its number says */
	struct iothread *ctrl_thread;    /* the last of the device's threads */
	uint8_t mac[ETH_ALEN];           /* as created */
	uint16_t cpu[NET_CPUS_MAX];
	unsigned n_cpus;

	/* The control thread's. */
	struct watch link, announce_timer;
	bool link_up, announce;          /* announce: the guest was asked to */
	unsigned offloads;               /* TUN_F_* that the receivers may get now */
	int64_t paced_ns;                /* CLOCK_MONOTONIC up to which changes were granted */
	unsigned tap_mtu;                /* at the start of the run; 0 = not known */
	uint64_t features;               /* negotiated, while running; else 0 */
	struct net_filter filter[2];     /* the receivers' one, and the next */
	unsigned filter_now;
	struct iovec *ctrl_iov;          /* VIRTQ_IOV_MAX */
};

/* --- net_hdr.c: headers, either way ----------------------------------------------------------- */

/* Offloads behind the feature bits of one direction: VIRTIO_NET_F_GUEST_* or _HOST_*. */
unsigned net_offloads_rx(uint64_t features);
unsigned net_offloads_tx(uint64_t features);
/* The feature bits that offer these offloads (TUN_F_*). */
uint64_t net_features_rx(unsigned offloads);
uint64_t net_features_tx(unsigned offloads);

/*
 * Make a header from the guest fit for a tap, and one from a tap (or from another VM) fit for a
 * driver that takes these offloads.  len: bytes of the frame.  False: the frame is to be dropped.
 */
bool net_hdr_fit_tx(struct virtio_net_hdr_v1 *h, size_t len, unsigned offloads);
bool net_hdr_fit_rx(struct virtio_net_hdr_v1 *h, size_t len, unsigned offloads);

/* --- net_filter.c ----------------------------------------------------------------------------- */

uint64_t net_mac_number(const uint8_t mac[ETH_ALEN]);
/* As after a reset: everything passes until the driver has set a mode. */
void net_filter_init(struct net_filter *f, const uint8_t mac[ETH_ALEN], bool check_vlan);
/* eth: the frame's first len bytes, at most an Ethernet header and a VLAN tag. */
bool net_filter_passes(const struct net_filter *f, const uint8_t *eth, size_t len);

/* --- net_rx.c, net_tx.c: on the queue's thread ------------------------------------------------ */

int net_rx_init(struct net_rx *rx, struct net *net, unsigned pair);
void net_rx_destroy(struct net_rx *rx);
int net_rx_begin(struct net_rx *rx);
void net_rx_end(struct net_rx *rx);
void net_rx_pass(struct net_rx *rx);

int net_tx_init(struct net_tx *tx, struct net *net, unsigned pair);
void net_tx_destroy(struct net_tx *tx);
void net_tx_begin(struct net_tx *tx);
void net_tx_end(struct net_tx *tx);
void net_tx_pass(struct net_tx *tx);

/* --- net_ctrl.c: on the control thread -------------------------------------------------------- */

/* The run begins, before any queue, and ends, after all queues. */
int net_ctrl_start(void *net);
int net_ctrl_stop(void *net);
void net_ctrl_pass(struct net *net, struct virtio_queue *q);
/* Follow the tap's link; once, before the thread parks.  0 or -errno. */
int net_link_watch(struct net *net);
/* What it needs; on main. */
int net_link_init(struct net *net);
void net_link_destroy(struct net *net);

#endif
