/*
 * Split virtqueue, device side (virtio 1.2, "Split Virtqueues").
 *
 * The transport fills and validates a virtq while its queue is parked (virtq_start); from then on
 * it belongs to one I/O thread until virtq_stop.  Everything read from the ring is copied once and
 * then checked: a bad ring costs the guest its device (-EPROTO), never more.
 *
 * One pass of a queue handler:
 * 	do {
 * 		virtq_mute(q);
 * 		while (budget && virtq_pop(q, ...) == 1) { work; virtq_push(q, head, written); }
 * 		if (virtq_publish(q)) interrupt;
 * 		if (!budget) return virtio_queue_again(q);	(muted: come back by ourselves)
 * 	} while (virtq_unmute(q));
 */
#ifndef DEVICES_VIRTQ_H
#define DEVICES_VIRTQ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "vmm/mem.h"

/* Largest ring heddle offers.  The spec allows 32768; 4096 keeps a queue's state small. */
#define VIRTQ_SIZE_MAX 4096

/* Segments a handler must have room for in one pop: IOV_MAX, what one readv/writev can take. */
#define VIRTQ_IOV_MAX 1024

struct vring_desc;  /* linux/virtio_ring.h */
struct vring_avail;
struct vring_used;

struct virtq {
	const struct mem *mem;
	const struct mem_region *ram; /* of mem: where the last buffer lay */
	struct vring_desc *desc; /* host pointers into guest RAM, checked for the whole ring */
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t size;          /* power of two, 1..VIRTQ_SIZE_MAX; 0 while stopped */
	bool event_idx;         /* VIRTIO_F_EVENT_IDX negotiated */
	bool indirect;          /* VIRTIO_F_INDIRECT_DESC negotiated */
	bool broken;            /* -EPROTO was returned: pops give -EPROTO until the next start */
	const char *fault;      /* what broke it, for virtio_fail() */
	uint16_t next_avail;    /* free-running index of the next entry to pop */
	uint16_t seen_avail;    /* driver's index as last read */
	uint16_t next_used;     /* free-running index of the next used entry to write */
	uint16_t published;     /* used index the guest can see */
	uint16_t signalled;     /* used index at the last interrupt decision */
	uint16_t in_flight;     /* popped and neither pushed nor unpopped */
};

/* One popped descriptor chain.  iov points into the caller's array. */
struct chain {
	struct iovec *iov;  /* n_out readable segments, then n_in writable ones */
	uint16_t head;      /* give back with virtq_push */
	uint16_t n_out;     /* device-readable segments */
	uint16_t n_in;      /* device-writable segments */
	uint32_t out_len;   /* bytes readable; chains of 4 GiB and more are refused */
	uint32_t in_len;    /* bytes writable */
};

/*
 * Check size and addresses (alignment, all of each ring in RAM) and make the queue ready; indices
 * start at 0 as the driver's do.  0, or -EINVAL with the queue stopped.
 */
int virtq_start(struct virtq *q, const struct mem *mem, uint16_t size, uint64_t desc_gpa,
		uint64_t avail_gpa, uint64_t used_gpa, uint64_t features);
void virtq_stop(struct virtq *q);

/*
 * Take the next available chain; its segments go to iov[0..max).  1 = got one; 0 = empty; -ENOBUFS
 * = the chain has more than max segments (nothing taken; with max >= VIRTQ_IOV_MAX this is
 * -EPROTO); -EPROTO = the guest broke the ring (index jump, head or next out of range, loop,
 * write-only before read-only, nested or malformed indirect table, buffer outside RAM, more chains
 * in hand than the ring has descriptors).  q->fault then says what.
 */
int virtq_pop(struct virtq *q, struct iovec *iov, unsigned max, struct chain *c);

/* Undo the last n pops (newest first, none of them pushed). */
void virtq_unpop(struct virtq *q, unsigned n);

/*
 * Give a head back: `written` bytes of its writable part were filled.  Not visible before publish.
 */
void virtq_push(struct virtq *q, uint16_t head, uint32_t written);

/* Make pushes visible, once per batch.  True = the guest wants an interrupt for them. */
bool virtq_publish(struct virtq *q);

/*
 * Make pushes visible without asking about an interrupt: a guest that looks finds them, one that
 * sleeps is owed a virtq_publish, soon.
 */
void virtq_show(struct virtq *q);

/* Chains that wait behind the last one popped, as far as they have been seen. */
static inline unsigned virtq_waiting(const struct virtq *q)
{
	return (uint16_t)(q->seen_avail - q->next_avail);
}

/* Ask the guest not to kick; a hint.  unmute asks for kicks again and looks once more: true =
 * entries are waiting, go round again (kicks stay asked for). */
void virtq_mute(struct virtq *q);
bool virtq_unmute(struct virtq *q);

/*
 * True when the driver has taken all that was published and waits for an interrupt: it will not
 * offer more by itself.  A hint, right or too early, for a driver that uses interrupts at all.
 */
bool virtq_driver_waits(const struct virtq *q);

#endif
