/*
 * What channel.c (requests, life) and channel_port.c (the files behind them) share.  See channel.c.
 */
#ifndef DEVICES_CHANNEL_INTERNAL_H
#define DEVICES_CHANNEL_INTERNAL_H

#include <limits.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdint.h>

#include "devices/channel.h"
#include "vmm/stream.h"

/* A real agent has one request per file in hand. */
#define CHANNEL_PORT_QUEUE 4

enum { PORT_STDIN, PORT_STDOUT, PORT_STDERR, PORT_EVENTS, PORT_STATUS, N_PORTS };

/* A kept request. */
struct channel_waiting {
	struct fs_request *r;
	uint64_t unique;
	size_t len;  /* bytes asked for, or to be written */
	size_t done; /* of a write */
};

struct channel_port {
	struct channel *c;
	unsigned index;
	struct stream stream; /* not for events and status */
	struct watch watch;
	struct channel_waiting queue[CHANNEL_PORT_QUEUE];
	unsigned n; /* queued; [0] is the oldest */
	bool complained;
};

struct channel {
	struct channel_opts opts;
	struct channel_port port[N_PORTS];
	struct loop *loop;	      /* while the device runs */
	struct watch timer;	      /* looks at a terminal that another job has */
	char worker[CHANNEL_WORKERS]; /* their addresses tell the queues apart */
	bool has_status;
	struct iovec iov[IOV_MAX]; /* scratch; readv and writev take no more */

	/* Shared with other threads. */
	_Atomic uint64_t signals; /* bit sig - 1 */
	_Atomic uint32_t winsize; /* rows << 16 | columns */
	atomic_bool has_winsize;
	atomic_bool mounted, connected;
	int wake_fd;
};

/* "stdin", "events"... */
extern const char *const channel_port_name[N_PORTS];

/* Write a reply.  Its length, or -EPROTO when there is no room. */
ssize_t channel_reply(struct cursor *out, uint64_t unique, int err, const void *body, size_t len);

/*
 * Answer a READ or WRITE of len bytes now, or keep it: FS_LATER.  in: after the request's headers.
 */
ssize_t channel_port_request(struct channel_port *p, const struct channel_waiting *request,
			     const struct cursor *in, struct cursor *out);
/* Answer the kept request with this id EINTR; false if p has none. */
bool channel_port_interrupt(struct channel_port *p, uint64_t unique);

/* Watches of a new channel; its descriptors are open. */
void channel_ports_init(struct channel *c);
/* The device starts and stops; kept requests are forgotten. */
int channel_ports_begin(struct channel *c, struct loop *loop);
void channel_ports_end(struct channel *c);

#endif
