/*
 * A virtio device's life (virtio 1.2, "Basic Facilities of a Virtio Device"): features, status,
 * config space, and the I/O threads of its queues.  Knows no registers: a transport (virtio_pci)
 * calls in from vCPU threads; device classes (net, fs) are called out to.
 *
 * Life of a queue: parked (the transport owns it) -> begin on DRIVER_OK, by iothread_call to its
 * own thread -> running (its thread owns it) -> end on reset, again by iothread_call -> parked.
 */
#ifndef DEVICES_VIRTIO_H
#define DEVICES_VIRTIO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/virtq.h"
#include "vmm/loop.h"
#include "vmm/mem.h"

/* Why the pin was raised (virtio 1.2, "ISR status capability"). */
#define VIRTIO_ISR_QUEUE  1u
#define VIRTIO_ISR_CONFIG 2u

struct virtio_dev;
struct virtio_queue;

/* What a device is.  Classes are const.  "on q" = on that queue's own thread. */
struct virtio_class {
	const char *name; /* "fs", "net" */
	uint16_t id;      /* virtio device id */
	uint32_t pci_class; /* 24-bit class code: 0x020000 net, 0x018000 fs */
	int (*start)(struct virtio_dev *d);         /* DRIVER_OK seen, queues parked; may be NULL */
	int (*queue_begin)(struct virtio_queue *q); /* on q: watch extra descriptors; may be NULL */
	void (*queue_kick)(struct virtio_queue *q); /* on q: guest kicked, or the first pass */
	/* Inside the config space; may be NULL. */
	void (*config_write)(struct virtio_dev *d, uint32_t off, const void *p, uint32_t len);
	void (*queue_end)(struct virtio_queue *q);  /* on q: unwatch, finish; may be NULL */
	void (*stop)(struct virtio_dev *d);         /* all queues parked again; may be NULL */
	/* More counters of q, as ",\"name\":1,..."; returns what snprintf would.  Any thread; NULL
	 * ok. */
	int (*queue_stats)(const struct virtio_queue *q, char *buf, size_t size);
	void (*destroy)(struct virtio_dev *d);      /* threads are gone; frees d */
};

/* Per queue, written by its thread only, read by anyone (relaxed). */
struct virtio_queue_stats {
	_Atomic uint64_t kicks;      /* times the thread woke for a kick */
	_Atomic uint64_t requests;   /* chains popped */
	_Atomic uint64_t batches;    /* publishes that had something to tell of */
	_Atomic uint64_t interrupts; /* eventfd writes */
};

static inline void stat_add(_Atomic uint64_t *counter, uint64_t n)
{
	/* One writer: a relaxed load and store, no locked instruction. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t stat_read(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

struct virtio_queue {
	/* Fixed at creation by the device. */
	struct virtio_dev *dev;
	unsigned index;
	uint16_t size_max;
	char name[IOTHREAD_NAME_MAX]; /* "fs0-rq2" */
	struct iothread *thread;      /* several queues may share one */
	void *priv;                   /* the device's own per-queue state */

	/* Transport registers; written by vCPUs under cfg_lock while parked. */
	uint16_t size;
	bool enabled; /* freezes size and addresses until reset */
	uint64_t desc_gpa, avail_gpa, used_gpa;

	/* Wires.  kick_fd is an eventfd made by virtio_dev_launch; call_fd is chosen by the
	 * transport (MSI-X vector's or INTx eventfd; -1 = no interrupt) and may change while
	 * running. */
	int kick_fd;
	_Atomic int call_fd;

	/* The queue's thread, while running. */
	bool running;
	bool again; /* its own kick is on the way */
	struct virtq vq;
	struct watch kick;
	struct virtio_queue_stats stats;

	/* Queues lie in an array: what one thread writes must not share a cache line with what the
	 * next queue's thread reads. */
	char pad[64];
};

struct virtio_dev {
	const struct virtio_class *class;
	char name[12];          /* "fs0", "net1": for logs and threads */
	const struct mem *mem;
	uint64_t features;      /* offered; VIRTIO_F_VERSION_1 is added by virtio_dev_launch */
	struct virtio_queue *queue;
	unsigned n_queues;
	struct iothread *thread; /* started parked by virtio_dev_launch, one or more queues each */
	unsigned n_threads;
	unsigned n_late; /* of these, the last ones: not before virtio_dev_launch_late */
	int (*on_start)(struct iothread *t); /* kept by virtio_dev_launch */
	const void *config;     /* config space bytes; owned by the device */
	uint32_t config_len;

	/* Status and features: vCPU threads under cfg_lock.  I/O threads only or in NEEDS_RESET. */
	pthread_mutex_t cfg_lock;
	uint64_t driver_features;
	_Atomic uint8_t status;
	_Atomic uint8_t config_generation;
	bool started; /* queues began */

	/* Interrupts.  config_call_fd is what call_fd is for queues.  A call_fd that equals intx_fd
	 * (fixed by the transport at attach; -1 = none) stands for the shared pin: isr then says
	 * why. */
	_Atomic int config_call_fd;
	int intx_fd;
	_Atomic uint32_t isr; /* VIRTIO_ISR_* */
};

/*
 * After the device filled the "fixed" fields: make kick eventfds and start the I/O threads
 * (parked).  A thread is named by its name field, or else by the first queue it serves.  on_start
 * (may be NULL) runs on each new thread before it parks; its ctx is d.  0 or -errno with nothing
 * left running.
 */
int virtio_dev_launch(struct virtio_dev *d, int (*on_start)(struct iothread *t));

/*
 * Start the threads that no queue needs at its first request.  The guest runs already: so they do not
 * delay it.  main thread, once.  0 or -errno.
 */
int virtio_dev_launch_late(struct virtio_dev *d);

/* Stop queues, join threads, close eventfds; only after a successful launch.  Then the owner
 * destroys the transport and calls class->destroy. */
void virtio_dev_shutdown(struct virtio_dev *d);

/* Register-level operations; vCPU threads (the transport takes cfg_lock around all but these, which
 * take it themselves). */
uint8_t virtio_status_read(struct virtio_dev *d);
/* Write status: 0 resets and returns only when all queue threads have left the rings; FEATURES_OK
 * is refused (bit stays clear) for features not offered or without VERSION_1; DRIVER_OK starts
 * enabled queues; a start that fails sets NEEDS_RESET. */
void virtio_status_write(struct virtio_dev *d, uint8_t status);
void virtio_driver_features_write(struct virtio_dev *d, unsigned word, uint32_t value);
/* Config space; out-of-range bytes read as 0.  len is any. */
void virtio_config_read(struct virtio_dev *d, uint32_t off, void *p, uint32_t len);
void virtio_config_write(struct virtio_dev *d, uint32_t off, const void *p, uint32_t len);

/* Queue i while the guest may still set its size and addresses: not enabled, no DRIVER_OK.  NULL
 * when there is no such queue or it is too late.  cfg_lock held. */
struct virtio_queue *virtio_queue_settable(struct virtio_dev *d, unsigned i);

/* On q: tell the guest about published entries.  Counts it. */
void virtio_queue_interrupt(struct virtio_queue *q);
/* On q: publish what was pushed, and interrupt if the guest wants it. */
void virtio_queue_flush(struct virtio_queue *q);
/* On q: the pass used up its budget; queue_kick is called again after the thread's other watches
 * had their turn. */
void virtio_queue_again(struct virtio_queue *q);
/* On any I/O thread of the device: change bytes of config space, which a vCPU may be reading. */
void virtio_config_store(void *at, const void *from, size_t len);
/* On q, or any I/O thread of the device: config bytes changed, or status did by itself. */
void virtio_config_interrupt(struct virtio_dev *d);

/* On q: the guest broke the protocol; what = NULL: the ring says how (vq.fault).  NEEDS_RESET, one
 * log line, this queue ignores kicks until reset. */
void virtio_fail(struct virtio_queue *q, const char *what);

/* {"device":"fs0","queues":[{"name":"fs0-rq1","kicks":1,...},...]} into buf, always terminated.
 * Returns the length it has, or would have had (as snprintf).  Any thread. */
size_t virtio_dev_stats_json(const struct virtio_dev *d, char *buf, size_t size);

static inline bool virtio_has(const struct virtio_dev *d, unsigned bit)
{
	return (d->driver_features >> bit) & 1;
}

#endif
