/* The parts of ring_rig.h, for ring_rig.c (device, tap, rings) and ring_move.c (samples) only. */
#ifndef TESTS_BENCH_RING_INTERNAL_H
#define TESTS_BENCH_RING_INTERNAL_H

#include "tests/bench/harness.h"
#include "tests/bench/ring_rig.h"
#include "tests/unit/net_rig.h"

#define RING       1024 /* entries; the device's default is less, what it can do is more */
#define TX_BUFFERS 64   /* different ones: 4 MB of large frames */
#define PIECES_MAX 32

/* One pair of queues, as seen by the guest and by the bare loop. */
struct lane {
	int fd;        /* the tap's queue */
	uint16_t port; /* frames from this port go to this queue */
	struct iovec tx[TX_BUFFERS][PIECES_MAX], rx[RING];

	/* The guest's count of ring entries: to be offered yet, and to be used yet. */
	unsigned todo, left;
	uint64_t used_bytes;

	/* The bare loop's. */
	struct virtio_net_hdr_v1 hdr;
	void (*loop)(struct lane *l);
	unsigned frames;
	pthread_t thread;
	uint64_t begin_ns, end_ns, cpu_ns;
};

/* An I/O thread that is kept from its work. */
struct hold {
	sem_t held;
	int gate[2];
	uint64_t wall_ns, cpu_ns; /* when it was let go */
};

extern struct rig rig;
extern struct lane lane[BENCH_QUEUES_MAX];
extern struct hold hold[BENCH_QUEUES_MAX];
extern const struct frame_kind *kind;
extern unsigned n_pieces;  /* of a frame as sent, the bare loop's header not counted */
extern unsigned n_buffers; /* of a frame as received */

/* Keep the device's threads from their work; they have stopped when this returns.  And back. */
void hold_all(void);
void let_go(void);
/* Frames for the device's queue of this pair. */
void fill_tap(unsigned pair, unsigned frames);
/* The next n entries of a ring are on offer. */
void offer(unsigned queue, unsigned n);

#endif
