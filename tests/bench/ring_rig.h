/*
 * What bench-ring measures: the network device on a real tap, driven by a fake guest, and beside it
 * a bare loop of writev or readv on a queue of the same tap.
 *
 * Both move the same frames between the same tap and the same places in the guest's RAM, cut into
 * the same segments; what differs is the virtqueue.  A sample is one direction, one frame size, all
 * queues at a time.
 *
 * Sending: the fake guest (the caller's thread) keeps the rings full.  Every descriptor stays as it
 * is, so recycling costs it a look at the used entries and one store per half ring; then it sleeps
 * until the device has used the next half.  The host drops the frames at the first look, since they
 * are for another station.
 *
 * Receiving: the queues of the tap are filled while nobody reads, then drained: who fills them is
 * not measured.
 */
#ifndef TESTS_BENCH_RING_RIG_H
#define TESTS_BENCH_RING_RIG_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_QUEUES_MAX 32

/* How one size of frame is moved. */
struct frame_kind {
	const char *name;
	uint32_t len;       /* from the Ethernet header on; over 1514: segmented TCP */
	uint32_t piece;     /* segments of large frames sent, and receive buffers */
	unsigned tx_frames; /* of one sample, on each queue */
	unsigned rx_frames; /* and what waits in each queue of the tap before it is drained */
};

struct sample {
	double frames, wall_ns;
	double cpu_ns; /* of the threads that moved the frames, together */
};

/* A tap in a network namespace of its own, with this many queues, and the device on it. */
void rig_open(unsigned queues);
void rig_close(void);
/* Start the device for frames of this kind: rings and buffers are laid out and offered. */
void rig_set_frames(const struct frame_kind *kind);

/* So many frames on each queue, moved by the device, or by the bare loop. */
struct sample rig_send(unsigned frames);
struct sample rig_send_bare(unsigned frames);
struct sample rig_receive(unsigned frames);
struct sample rig_receive_bare(unsigned frames);
/* As rig_receive, but nobody stops the device while its tap is filled. */
void rig_receive_live(unsigned frames);

#endif
