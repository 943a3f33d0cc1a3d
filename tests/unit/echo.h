/*
 * A virtio device for tests: each chain's readable bytes come back in its writable part.  It counts
 * what is called, and on which thread.
 */
#ifndef TESTS_UNIT_ECHO_H
#define TESTS_UNIT_ECHO_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio.h"
#include "tests/unit/ring.h"
#include "vmm/iov.h"

#define ECHO_QUEUES_MAX 64
#define ECHO_BUDGET     8

struct echo {
	struct virtio_dev dev;
	struct virtio_queue queue[ECHO_QUEUES_MAX];
	struct iothread thread[ECHO_QUEUES_MAX];
	uint8_t config[16];
	_Atomic unsigned starts, begins, ends, stops, passes;
	_Atomic unsigned in_handler;  /* queues inside queue_kick now */
	_Atomic unsigned wrong_thread;
	_Atomic unsigned handler_us;  /* make a pass take this long */
	int start_result, begin_result; /* what the hooks return; begin: for the last queue */
};

static inline struct echo *echo_of(struct virtio_dev *d)
{
	return container_of(d, struct echo, dev);
}

static inline void echo_check_thread(struct virtio_queue *q)
{
	if (!pthread_equal(pthread_self(), q->thread->thread))
		echo_of(q->dev)->wrong_thread++;
}

static inline int echo_start(struct virtio_dev *d)
{
	echo_of(d)->starts++;
	return echo_of(d)->start_result;
}

static inline int echo_begin(struct virtio_queue *q)
{
	struct echo *e = echo_of(q->dev);

	echo_check_thread(q);
	e->begins++;
	return q->index == q->dev->n_queues - 1 ? e->begin_result : 0;
}

static inline void echo_end(struct virtio_queue *q)
{
	echo_check_thread(q);
	echo_of(q->dev)->ends++;
}

static inline void echo_stop(struct virtio_dev *d)
{
	echo_of(d)->stops++;
}

static inline void echo_destroy(struct virtio_dev *d)
{
	free(echo_of(d));
}

static inline void echo_config_write(struct virtio_dev *d, uint32_t off, const void *p,
				     uint32_t len)
{
	memcpy(echo_of(d)->config + off, p, len);
}

static inline void echo_serve(struct virtio_queue *q, struct iovec *iov, const struct chain *c)
{
	struct cursor in = cursor_of(iov, c->n_out), out = cursor_of(iov + c->n_out, c->n_in);
	uint32_t len = MIN(MIN(c->out_len, c->in_len), 2048u);
	uint8_t data[2048];

	if (cursor_read(&in, data, len))
		(void)cursor_write(&out, data, len);
	virtq_push(&q->vq, c->head, len);
	stat_add(&q->stats.requests, 1);
}

static inline void echo_pass(struct virtio_queue *q)
{
	unsigned budget = ECHO_BUDGET;
	struct iovec iov[64];
	struct chain c;
	int ret = 0;

	do {
		virtq_mute(&q->vq);
		for (; budget > 0 && (ret = virtq_pop(&q->vq, iov, ARRAY_SIZE(iov), &c)) == 1;
		     budget--)
			echo_serve(q, iov, &c);
		virtio_queue_flush(q);
		if (ret < 0) {
			virtio_fail(q, ret == -ENOBUFS ? "too long for an echo" : NULL);
			return;
		}
		if (budget == 0) {
			virtio_queue_again(q);
			return;
		}
	} while (virtq_unmute(&q->vq));
}

static inline void echo_kick(struct virtio_queue *q)
{
	struct echo *e = echo_of(q->dev);

	echo_check_thread(q);
	e->in_handler++;
	e->passes++;
	if (e->handler_us)
		usleep(e->handler_us);
	echo_pass(q);
	e->in_handler--;
}

static const struct virtio_class echo_class = {
	.name = "echo",
	.id = 42,
	.pci_class = 0xff0000,
	.start = echo_start,
	.queue_begin = echo_begin,
	.queue_kick = echo_kick,
	.config_write = echo_config_write,
	.queue_end = echo_end,
	.stop = echo_stop,
	.destroy = echo_destroy,
};

/* n queues of at most size descriptors, folded onto n_threads.  Not launched. */
static inline struct echo *echo_create(const struct mem *mem, unsigned n, unsigned n_threads,
				       uint16_t size)
{
	struct echo *e = calloc(1, sizeof(*e));

	assert(e && n <= ECHO_QUEUES_MAX && n_threads <= n);
	e->dev = (struct virtio_dev){
		.class = &echo_class,
		.name = "echo0",
		.mem = mem,
		.features = 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_RING_F_INDIRECT_DESC,
		.queue = e->queue,
		.n_queues = n,
		.thread = e->thread,
		.n_threads = n_threads,
		.config = e->config,
		.config_len = sizeof(e->config),
	};
	for (unsigned i = 0; i < n; i++) {
		struct virtio_queue *q = &e->queue[i];

		q->dev = &e->dev;
		q->index = i;
		q->size_max = size;
		q->thread = &e->thread[i % n_threads];
		snprintf(q->name, sizeof(q->name), "echo0-q%u", (uint8_t)i);
	}
	for (unsigned i = 0; i < sizeof(e->config); i++)
		e->config[i] = (uint8_t)(0xa0 + i);
	return e;
}

#endif
