/*
 * The queues of a tap: opened by name or taken over as descriptors, attached and detached, told
 * which offloads to use.  Frames on a descriptor carry a virtio_net_hdr_v1 of TAP_HDR_LEN bytes in
 * front.
 *
 * Kinds: a tap with IFF_MULTI_QUEUE, a tap without (one queue), and instead of a tap sockets that
 * keep packets apart (SOCK_SEQPACKET or SOCK_DGRAM, one for each queue): a cable to another heddle,
 * or a test.
 *
 * tap_open and tap_adopt run on main.  Afterwards descriptor i belongs to whoever moves frames of
 * queue i; everything else in here to one thread at a time.
 */
#ifndef DEVICES_TAP_H
#define DEVICES_TAP_H

#include <linux/if_tun.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#define TAP_QUEUES_MAX 64
#define TAP_HDR_LEN    12 /* struct virtio_net_hdr_v1 */

/* Offloads are named by their TUNSETOFFLOAD bits. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#define TAP_USO (TUN_F_USO4 | TUN_F_USO6)
#define TAP_OFFLOADS_ALL \
	(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN | TUN_F_UFO | TAP_USO)

struct tap {
	char name[IFNAMSIZ];    /* of the interface; "" for sockets */
	int fd[TAP_QUEUES_MAX]; /* non-blocking */
	unsigned n;             /* descriptors */
	unsigned attached;      /* fd[0..attached) are the interface's queues 0..attached-1 */
	unsigned offloads;      /* TUN_F_* that can be asked for */
	unsigned offloads_now;  /* as they were last set */
	int found_hdr_len;      /* what tap_close puts back; 0 = nothing */
	int link_fd;            /* readable when some link changed; -1 = not to be had */
	bool kernel;            /* an interface; else sockets */
	bool multi;             /* IFF_MULTI_QUEUE */
	bool made;              /* by tap_open: gone with its last descriptor */
};

/*
 * Open queues of the tap called name, made when there is none.  exact = false: a tap that can have
 * only one queue gets one (n says so) instead of a complaint.  A tap that was there keeps its
 * settings.  Queue 0 is attached.  0, or -errno having logged a line that says what would make it
 * right.
 */
int tap_open(struct tap *t, const char *name, unsigned queues, bool exact);

/* Take over descriptors.  0, or -errno having logged one line; then they are the caller's still. */
int tap_adopt(struct tap *t, const int *fd, unsigned n);

/* Close all; the tap is as it was found. */
void tap_close(struct tap *t);

/*
 * Make exactly queues 0..want-1 take part: attach upwards, detach from the top, since the kernel
 * fills the place of a detached queue with its last one.  0 or -errno; t->attached is always the
 * truth.
 */
int tap_attach(struct tap *t, unsigned want);

/* Say which offloads frames to us may use.  0 or -errno. */
int tap_set_offloads(struct tap *t, unsigned offloads);

/*
 * An interface that we made: set its MTU (0 = as it is) and bring it up.  0, or -errno having
 * logged.
 */
int tap_bring_up(struct tap *t, unsigned mtu);

/* 0 = not known. */
unsigned tap_mtu(const struct tap *t);

/* Up and running, as far as it can be known: a tap in another network namespace counts as up. */
bool tap_link_up(const struct tap *t);
/* After link_fd was readable: empty it, then ask tap_link_up(). */
void tap_link_drain(const struct tap *t);

#endif
