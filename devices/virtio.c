/*
 * Device life: see virtio.h and virtio 1.2, "Device Status Field", "Device Initialization".
 *
 * Who runs here.  vCPU threads come through the transport for registers, under cfg_lock; they hold
 * it also while they wait for I/O threads, which therefore never take it.  I/O threads run the
 * queues and touch of the device only status (or-in of NEEDS_RESET), isr and their own counters.
 *
 * Start (DRIVER_OK):
 *   1. The status bit is set, so that a failure from now on can be told by an interrupt.
 *   2. class->start on the vCPU, all queues parked.
 *   3. For each enabled queue, on its own thread: check the ring, drain the kick eventfd, class's
 *      queue_begin, watch the kick, first pass.  A kick before the drain is served by the first
 *      pass, a later one by the watch.
 *   One failure undoes it all and sets NEEDS_RESET.
 * Reset (status 0) is the reverse, queue by queue, each on its own thread: when the status write
 * returns nobody reads or writes guest RAM for this device.
 *
 * The kick watch is edge-triggered: every write to an eventfd is an edge, whatever its counter
 * holds, so no read(2) is spent per kick.  The counter is emptied only when a queue begins.
 */
#include "devices/virtio.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/virtio_config.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/irq.h"
#include "vmm/log.h"

/* --- on the queue's own thread ---------------------------------------------------------------- */

static void queue_kicked(struct watch *w, uint32_t events)
{
	struct virtio_queue *q = container_of(w, struct virtio_queue, kick);

	(void)events;
	if (!q->running || q->vq.broken)
		return;
	if (!q->again)
		stat_add(&q->stats.kicks, 1);
	q->again = false;
	q->dev->class->queue_kick(q);
}

static int queue_begin(void *arg)
{
	struct virtio_queue *q = arg;
	const struct virtio_class *class = q->dev->class;
	uint64_t count;
	int err;

	err = virtq_start(&q->vq, q->dev->mem, q->size, q->desc_gpa, q->avail_gpa, q->used_gpa,
			  q->dev->driver_features);
	if (err) {
		log_limited(LOG_LEVEL_WARN, "%s: guest gave a ring of bad size or address",
			    q->name);
		return err;
	}
	(void)!read(q->kick_fd, &count, sizeof(count));
	err = class->queue_begin ? class->queue_begin(q) : 0;
	if (err)
		goto stop_ring;
	q->kick = (struct watch){ .fd = q->kick_fd, .ready = queue_kicked };
	err = loop_watch(&q->thread->loop, &q->kick, EPOLLIN | EPOLLET);
	if (err)
		goto end_queue;
	q->running = true;
	q->again = false;
	class->queue_kick(q);
	return 0;
end_queue:
	if (class->queue_end)
		class->queue_end(q);
stop_ring:
	virtq_stop(&q->vq);
	return err;
}

static int queue_end(void *arg)
{
	struct virtio_queue *q = arg;

	(void)loop_watch(&q->thread->loop, &q->kick, 0);
	if (q->dev->class->queue_end)
		q->dev->class->queue_end(q);
	virtq_stop(&q->vq);
	q->running = false;
	return 0;
}

void virtio_queue_interrupt(struct virtio_queue *q)
{
	int fd = atomic_load_explicit(&q->call_fd, memory_order_relaxed);

	if (fd < 0)
		return;
	if (fd == q->dev->intx_fd)
		atomic_fetch_or_explicit(&q->dev->isr, VIRTIO_ISR_QUEUE, memory_order_release);
	irq_signal(fd);
	stat_add(&q->stats.interrupts, 1);
}

void virtio_queue_flush(struct virtio_queue *q)
{
	bool visible = q->vq.next_used != q->vq.signalled;
	bool wants_irq = virtq_publish(&q->vq);

	if (visible)
		stat_add(&q->stats.batches, 1);
	if (wants_irq)
		virtio_queue_interrupt(q);
}

void virtio_queue_again(struct virtio_queue *q)
{
	q->again = true;
	irq_signal(q->kick_fd);
}

void virtio_config_store(void *at, const void *from, size_t len)
{
	const uint8_t *src = from;
	uint8_t *dst = at;

	for (size_t i = 0; i < len; i++)
		__atomic_store_n(&dst[i], src[i], __ATOMIC_RELAXED);
}

void virtio_config_interrupt(struct virtio_dev *d)
{
	int fd = atomic_load_explicit(&d->config_call_fd, memory_order_relaxed);

	atomic_fetch_add_explicit(&d->config_generation, 1, memory_order_release);
	if (fd < 0)
		return;
	if (fd == d->intx_fd)
		atomic_fetch_or_explicit(&d->isr, VIRTIO_ISR_CONFIG,
					 memory_order_release);
	irq_signal(fd);
}

static void dev_needs_reset(struct virtio_dev *d)
{
	uint8_t old = atomic_fetch_or(&d->status, VIRTIO_CONFIG_S_NEEDS_RESET);

	if ((old & VIRTIO_CONFIG_S_DRIVER_OK) && !(old & VIRTIO_CONFIG_S_NEEDS_RESET))
		virtio_config_interrupt(d);
}

void virtio_fail(struct virtio_queue *q, const char *what)
{
	if (!what)
		what = q->vq.fault ? q->vq.fault : "broken ring";
	q->vq.broken = true;
	q->vq.fault = what;
	log_limited(LOG_LEVEL_WARN, "%s: guest error: %s; the device needs a reset", q->name, what);
	dev_needs_reset(q->dev);
}

/* --- on vCPU threads, cfg_lock held ----------------------------------------------------------- */

static void queues_end(struct virtio_dev *d)
{
	for (unsigned i = d->n_queues; i-- > 0;)
		if (d->queue[i].running)
			iothread_call(d->queue[i].thread, queue_end, &d->queue[i]);
	if (d->started && d->class->stop)
		d->class->stop(d);
	d->started = false;
}

static int queues_begin(struct virtio_dev *d)
{
	int err = d->class->start ? d->class->start(d) : 0;

	if (err)
		return err;
	d->started = true;
	for (unsigned i = 0; i < d->n_queues && !err; i++)
		if (d->queue[i].enabled)
			err = iothread_call(d->queue[i].thread, queue_begin, &d->queue[i]);
	if (err)
		queues_end(d);
	return err;
}

static void dev_reset(struct virtio_dev *d)
{
	queues_end(d);
	for (unsigned i = 0; i < d->n_queues; i++) {
		struct virtio_queue *q = &d->queue[i];

		q->size = q->size_max;
		q->enabled = false;
		q->desc_gpa = q->avail_gpa = q->used_gpa = 0;
	}
	d->driver_features = 0;
	atomic_store(&d->isr, 0);
	atomic_store(&d->status, 0);
}

static bool dev_features_ok(const struct virtio_dev *d)
{
	return !(d->driver_features & ~d->features) && virtio_has(d, VIRTIO_F_VERSION_1);
}

/* Bits only ever get set: the way back is a reset. */
static void dev_status_set(struct virtio_dev *d, uint8_t status)
{
	uint8_t old = atomic_load(&d->status), set = status & (uint8_t)~old;

	set &= (uint8_t)~VIRTIO_CONFIG_S_NEEDS_RESET;
	if ((set & VIRTIO_CONFIG_S_FEATURES_OK) && !dev_features_ok(d))
		set &= (uint8_t)~VIRTIO_CONFIG_S_FEATURES_OK;
	if (!((old | set) & VIRTIO_CONFIG_S_FEATURES_OK))
		set &= (uint8_t)~VIRTIO_CONFIG_S_DRIVER_OK;
	atomic_fetch_or(&d->status, set);
	if ((set & VIRTIO_CONFIG_S_DRIVER_OK) && queues_begin(d))
		dev_needs_reset(d);
}

uint8_t virtio_status_read(struct virtio_dev *d)
{
	return atomic_load(&d->status);
}

void virtio_status_write(struct virtio_dev *d, uint8_t status)
{
	pthread_mutex_lock(&d->cfg_lock);
	if (status == 0)
		dev_reset(d);
	else
		dev_status_set(d, status);
	pthread_mutex_unlock(&d->cfg_lock);
}

void virtio_driver_features_write(struct virtio_dev *d, unsigned word, uint32_t value)
{
	unsigned shift = word * 32;

	if (word > 1)
		return;
	pthread_mutex_lock(&d->cfg_lock);
	if (!(atomic_load(&d->status) & VIRTIO_CONFIG_S_FEATURES_OK)) {
		d->driver_features &= ~((uint64_t)UINT32_MAX << shift);
		d->driver_features |= (uint64_t)value << shift;
	}
	pthread_mutex_unlock(&d->cfg_lock);
}

struct virtio_queue *virtio_queue_settable(struct virtio_dev *d, unsigned i)
{
	if (i >= d->n_queues || d->queue[i].enabled ||
	    (atomic_load(&d->status) & VIRTIO_CONFIG_S_DRIVER_OK))
		return NULL;
	return &d->queue[i];
}

void virtio_config_read(struct virtio_dev *d, uint32_t off, void *p, uint32_t len)
{
	const uint8_t *from = d->config;
	uint8_t *to = p;

	memset(p, 0, len);
	if (off >= d->config_len)
		return;
	/* Byte by byte: an I/O thread may be at virtio_config_store(). */
	pthread_mutex_lock(&d->cfg_lock);
	for (uint32_t i = 0; i < MIN(len, d->config_len - off); i++)
		to[i] = __atomic_load_n(&from[off + i], __ATOMIC_RELAXED);
	pthread_mutex_unlock(&d->cfg_lock);
}

void virtio_config_write(struct virtio_dev *d, uint32_t off, const void *p, uint32_t len)
{
	if (!d->class->config_write || off >= d->config_len || len > d->config_len - off)
		return;
	pthread_mutex_lock(&d->cfg_lock);
	d->class->config_write(d, off, p, len);
	pthread_mutex_unlock(&d->cfg_lock);
}

/* --- on main ---------------------------------------------------------------------------------- */

static int dev_start_thread(struct virtio_dev *d, struct iothread *t,
			    int (*on_start)(struct iothread *t))
{
	char name[IOTHREAD_NAME_MAX];

	for (unsigned i = 0; i < d->n_queues && !t->name[0]; i++)
		if (d->queue[i].thread == t)
			memcpy(t->name, d->queue[i].name, sizeof(t->name));
	memcpy(name, t->name, sizeof(name));
	t->on_start = on_start;
	t->ctx = d;
	return iothread_begin(t, name);
}

static int dev_start_threads(struct virtio_dev *d, unsigned from, unsigned to)
{
	int err = 0;

	for (unsigned i = from; i < to && !err; i++)
		err = dev_start_thread(d, &d->thread[i], d->on_start);
	for (unsigned i = from; i < to; i++) {
		int failed = iothread_begun(&d->thread[i]);

		err = err ? err : failed;
	}
	return err;
}

int virtio_dev_launch_late(struct virtio_dev *d)
{
	return dev_start_threads(d, d->n_threads - d->n_late, d->n_threads);
}

int virtio_dev_launch(struct virtio_dev *d, int (*on_start)(struct iothread *t))
{
	int err = 0;

	d->on_start = on_start;
	d->features |= 1ULL << VIRTIO_F_VERSION_1;
	d->intx_fd = -1;
	atomic_store(&d->config_call_fd, -1);
	pthread_mutex_init(&d->cfg_lock, NULL);
	for (unsigned i = 0; i < d->n_queues; i++) {
		struct virtio_queue *q = &d->queue[i];

		q->size = q->size_max;
		atomic_store(&q->call_fd, -1);
		virtq_stop(&q->vq);
		q->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (q->kick_fd < 0 && !err)
			err = -errno;
	}
	if (!err)
		err = dev_start_threads(d, 0, d->n_threads - d->n_late);
	if (err)
		virtio_dev_shutdown(d);
	return err;
}

void virtio_dev_shutdown(struct virtio_dev *d)
{
	virtio_status_write(d, 0);
	for (unsigned i = 0; i < d->n_threads; i++)
		iothread_stop(&d->thread[i]);
	for (unsigned i = 0; i < d->n_queues; i++) {
		if (d->queue[i].kick_fd >= 0)
			close(d->queue[i].kick_fd);
		d->queue[i].kick_fd = -1;
	}
	pthread_mutex_destroy(&d->cfg_lock);
}

/* Where the next text goes in buf[0..size), and how much room is left. */
struct text {
	char *buf;
	size_t size, len; /* len as snprintf counts: it may exceed size */
};

static char *text_at(const struct text *t, size_t *room)
{
	size_t at = MIN(t->len, t->size);

	*room = t->size - at;
	return t->buf + at;
}

static void text_add(struct text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void text_add(struct text *t, const char *fmt, ...)
{
	size_t room;
	char *at = text_at(t, &room);
	va_list ap;

	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(at, room, fmt, ap);
	va_end(ap);
}

static void queue_stats_json(const struct virtio_queue *q, struct text *t)
{
	const struct virtio_queue_stats *s = &q->stats;
	uint64_t kicks = stat_read(&s->kicks), requests = stat_read(&s->requests);
	size_t room;
	char *at;

	text_add(t, "%s{\"name\":\"%s\"", q->index ? "," : "", q->name);
	text_add(t, ",\"kicks\":%" PRIu64, kicks);
	text_add(t, ",\"requests\":%" PRIu64, requests);
	/* Heads that were taken without a kick of their own. */
	text_add(t, ",\"suppressed\":%" PRIu64, requests > kicks ? requests - kicks : 0);
	text_add(t, ",\"batches\":%" PRIu64, stat_read(&s->batches));
	text_add(t, ",\"interrupts\":%" PRIu64, stat_read(&s->interrupts));
	at = text_at(t, &room);
	if (q->dev->class->queue_stats)
		t->len += (size_t)q->dev->class->queue_stats(q, at, room);
	text_add(t, "}");
}

size_t virtio_dev_stats_json(const struct virtio_dev *d, char *buf, size_t size)
{
	char nowhere[1];
	struct text t = { .buf = size ? buf : nowhere, .size = size };

	text_add(&t, "{\"device\":\"%s\",\"queues\":[", d->name);
	for (unsigned i = 0; i < d->n_queues; i++)
		queue_stats_json(&d->queue[i], &t);
	text_add(&t, "]}");
	return t.len;
}
