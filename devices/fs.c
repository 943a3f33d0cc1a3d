/*
 * virtio-fs device: see fs.h and virtio 1.2, "File System Device".
 *
 * Theory of operation.  A pass over a queue, on its own thread:
 *   1. Pop a chain into the queue's scratch array of segments; readable ones are the request,
 *      writable ones take the reply.
 *   2. Hand both to the server as cursors.  It answers at once, or keeps the request (FS_LATER):
 *      then the scratch array, cut to size, goes with the request and the queue gets a new one at
 *      the next pop.  So only kept requests cost memory, and an honest serve costs no allocation.
 *   3. Push and publish, then the next chain.
 *
 * Each reply is shown to the guest by itself, not with the batch: the request behind it may be a
 * slow one, and a finished reply must not wait for it.  Whether the guest wants an interrupt is
 * asked when the ring is empty, before a request that may be slow, and when as many replies are
 * owed as requests wait: a guest that works as fast as we do has always just asked for the next
 * one, and an interrupt for each reply costs us as much as serving it, and the guest more.
 *
 * Kept requests are bounded by the ring: virtq_pop refuses to have more chains in hand than the
 * ring has descriptors.  Their objects are allocated at creation, and touched as they are first
 * needed.
 *
 * A pass ends after FS_BUDGET requests, so that queues that share a thread, and its mailbox, have
 * their turn.
 */
#include "devices/fs.h"

#include <errno.h>
#include <linux/virtio_fs.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtq.h"
#include "vmm/base.h"

#define FS_BUDGET       128
#define FS_OWED_MAX     16    /* replies; a few microseconds each */
#define FS_OWED_LEN     65536 /* bytes of them: as long as 16 of a page take */
#define FS_RING_DEFAULT 1024 /* holds a request of 1 MiB (256 pages and headers) a few times over */
#define FS_RING_MIN     16
#define FS_QUEUES_MAX   64
#define PCI_CLASS_FS    0x018000 /* mass storage, other */

struct fs_queue;

struct fs_request {
	struct fs_queue *fq;
	struct iovec *iov; /* own array while kept, else NULL */
	struct fs_request *next_free;
	uint16_t head, n_out, n_in;
	uint32_t in_len;
};

/* Of the queue's thread while it runs. */
struct fs_queue {
	struct virtio_queue *q;
	void *worker;
	struct iovec *scratch;      /* VIRTQ_IOV_MAX segments; NULL after it went with a request */
	struct fs_request *request; /* one per descriptor of the largest ring */
	struct fs_request *free;    /* given back */
	unsigned n_fresh;           /* request[n_fresh..] were never used */
	unsigned owed;              /* replies shown since the guest was last told */
	uint32_t owed_len;          /* bytes of them */
	char pad[64];               /* of the next queue's cache line, as in struct virtio_queue */
};

struct fs {
	struct virtio_dev dev;
	struct virtio_fs_config config;
	const struct fs_server *ops;
	void *server;
	struct fs_queue *fq; /* n_queues */
	unsigned n_lanes;    /* threads that serve queues; helpers follow them */
};

static struct fs *fs_of(struct virtio_dev *d)
{
	return container_of(d, struct fs, dev);
}

/* --- requests --------------------------------------------------------------------------------- */

/* Never runs out: in_flight is bounded by the ring's size. */
static struct fs_request *request_get(struct fs_queue *fq)
{
	struct fs_request *r = fq->free;

	if (r)
		fq->free = r->next_free;
	else
		r = &fq->request[fq->n_fresh++];
	r->fq = fq;
	return r;
}

static void request_put(struct fs_request *r)
{
	free(r->iov);
	r->iov = NULL;
	r->next_free = r->fq->free;
	r->fq->free = r;
}

/* The scratch array goes with r.  Cutting it may fail; then r keeps it as it is. */
static void request_keep(struct fs_request *r)
{
	struct fs_queue *fq = r->fq;
	size_t size = ((size_t)r->n_out + r->n_in) * sizeof(struct iovec);
	struct iovec *cut = realloc(fq->scratch, size ? size : sizeof(struct iovec));

	r->iov = cut ? cut : fq->scratch;
	fq->scratch = NULL;
}

/*
 * Give the head back and show it to the guest.  No length we report exceeds what the guest offered.
 */
static void request_finish(struct fs_request *r, ssize_t len)
{
	struct fs_queue *fq = r->fq;
	uint32_t written = len > 0 ? (uint32_t)MIN((size_t)len, r->in_len) : 0;

	virtq_push(&fq->q->vq, r->head, written);
	virtq_show(&fq->q->vq);
	fq->owed++;
	fq->owed_len += MIN(written, FS_OWED_LEN);
	request_put(r);
}

/* Wake the guest for what it was shown, if it sleeps. */
static void tell_guest(struct fs_queue *fq)
{
	fq->owed = fq->owed_len = 0;
	virtio_queue_flush(fq->q);
}

static bool owes_enough(const struct fs_queue *fq)
{
	return fq->owed >= MIN(virtq_waiting(&fq->q->vq), FS_OWED_MAX) ||
	       fq->owed_len >= FS_OWED_LEN;
}

void fs_complete(struct fs_request *r, ssize_t len)
{
	struct fs_queue *fq = r->fq;

	request_finish(r, len);
	tell_guest(fq);
}

static void set_cursors(const struct fs_request *r, const struct iovec *iov, struct cursor *in,
			struct cursor *out)
{
	*in = cursor_of(iov, r->n_out);
	*out = cursor_of(iov + r->n_out, r->n_in);
}

void fs_request_cursors(const struct fs_request *r, struct cursor *in, struct cursor *out)
{
	set_cursors(r, r->iov ? r->iov : r->fq->scratch, in, out);
}

/* --- a queue, on its thread ------------------------------------------------------------------- */

static void serve(struct fs_queue *fq, const struct chain *c)
{
	struct fs *fs = fs_of(fq->q->dev);
	struct fs_request *r = request_get(fq);
	struct cursor in, out;
	ssize_t len;

	r->head = c->head;
	r->n_out = c->n_out;
	r->n_in = c->n_in;
	r->in_len = c->in_len;
	set_cursors(r, fq->scratch, &in, &out);
	if (fq->owed > 0 && !(fs->ops->quick && fs->ops->quick(fs->server, fq->worker, &in)))
		tell_guest(fq);
	len = fs->ops->serve(fs->server, fq->worker, r, &in, &out);
	if (len != FS_LATER) {
		request_finish(r, len);
		if (owes_enough(fq))
			tell_guest(fq);
		return;
	}
	request_keep(r);
	if (fs->ops->kept)
		fs->ops->kept(fs->server, fq->worker, r);
}

/* 1 = served one, 0 = ring empty, -1 = the queue is out of order. */
static int serve_next(struct virtio_queue *q)
{
	struct fs_queue *fq = q->priv;
	struct chain c;
	int ret;

	if (!fq->scratch)
		fq->scratch = malloc(VIRTQ_IOV_MAX * sizeof(struct iovec));
	if (!fq->scratch) {
		virtio_fail(q, "host is out of memory");
		return -1;
	}
	ret = virtq_pop(&q->vq, fq->scratch, VIRTQ_IOV_MAX, &c);
	if (ret < 0) {
		virtio_fail(q, NULL);
		return -1;
	}
	if (ret == 0)
		return 0;
	stat_add(&q->stats.requests, 1);
	serve(fq, &c);
	return 1;
}

static void fs_queue_kick(struct virtio_queue *q)
{
	struct fs_queue *fq = q->priv;
	unsigned budget = FS_BUDGET;
	int ret;

	do {
		virtq_mute(&q->vq);
		while (budget > 0 && (ret = serve_next(q)) == 1)
			budget--;
		if (fq->owed > 0)
			tell_guest(fq);
		if (budget == 0) {
			virtio_queue_again(q);
			return;
		}
	} while (ret == 0 && virtq_unmute(&q->vq));
}

int fs_thread_start(struct iothread *t)
{
	struct fs *fs = fs_of(t->ctx);
	unsigned i = (unsigned)(t - fs->dev.thread);

	if (i >= fs->n_lanes)
		return fs->ops->helper_start(fs->server, i - fs->n_lanes, &t->loop);
	return fs->ops->thread_start ? fs->ops->thread_start(fs->server) : 0;
}

static int fs_queue_begin(struct virtio_queue *q)
{
	struct fs_queue *fq = q->priv;
	struct fs *fs = fs_of(q->dev);

	if (!fs->ops->worker_begin)
		return 0;
	return fs->ops->worker_begin(fs->server, fq->worker, &q->thread->loop);
}

/* The server has given up what it kept: all requests are ours again. */
static void fs_queue_end(struct virtio_queue *q)
{
	struct fs_queue *fq = q->priv;
	struct fs *fs = fs_of(q->dev);

	if (fs->ops->worker_end)
		fs->ops->worker_end(fs->server, fq->worker);
	for (unsigned i = 0; i < fq->n_fresh; i++) {
		free(fq->request[i].iov);
		fq->request[i].iov = NULL;
	}
	fq->free = NULL;
	fq->n_fresh = 0;
	fq->owed = fq->owed_len = 0;
}

static void fs_stop(struct virtio_dev *d)
{
	struct fs *fs = fs_of(d);

	if (fs->ops->reset)
		fs->ops->reset(fs->server);
}

/* --- life ------------------------------------------------------------------------------------- */

static void fs_destroy(struct virtio_dev *d)
{
	struct fs *fs = fs_of(d);

	for (unsigned i = 0; i < d->n_queues && fs->fq; i++) {
		free(fs->fq[i].scratch);
		free(fs->fq[i].request);
	}
	free(fs->fq);
	free(d->queue);
	free(d->thread);
	free(fs);
}

static const struct virtio_class fs_class = {
	.name = "fs",
	.id = VIRTIO_ID_FS,
	.pci_class = PCI_CLASS_FS,
	.queue_begin = fs_queue_begin,
	.queue_kick = fs_queue_kick,
	.queue_end = fs_queue_end,
	.stop = fs_stop,
	.destroy = fs_destroy,
};

static int init_queue(struct fs *fs, const struct fs_opts *o, unsigned i)
{
	struct virtio_queue *q = &fs->dev.queue[i];
	struct fs_queue *fq = &fs->fq[i];

	q->dev = &fs->dev;
	q->index = i;
	q->size_max = o->ring ? o->ring : FS_RING_DEFAULT;
	q->thread = &fs->dev.thread[o->one_thread ? 0 : i];
	q->priv = fq;
	q->kick_fd = -1;
	if (i == 0)
		snprintf(q->name, sizeof(q->name), "%.8s-hiprio", o->name);
	else
		snprintf(q->name, sizeof(q->name), "%.8s-rq%u", o->name, (uint8_t)i);
	fq->q = q;
	fq->worker = o->workers[i];
	fq->request = calloc(q->size_max, sizeof(*fq->request));
	return fq->request ? 0 : -ENOMEM;
}

static int init_queues(struct fs *fs, const struct fs_opts *o)
{
	unsigned n = o->queues + 1;
	int err = 0;

	fs->dev.n_queues = n;
	fs->n_lanes = o->one_thread ? 1 : n;
	fs->dev.n_threads = fs->n_lanes + o->helpers;
	fs->dev.n_late = o->helpers;
	fs->dev.queue = calloc(n, sizeof(*fs->dev.queue));
	fs->dev.thread = calloc(fs->dev.n_threads, sizeof(*fs->dev.thread));
	fs->fq = calloc(n, sizeof(*fs->fq));
	if (!fs->dev.queue || !fs->dev.thread || !fs->fq)
		return -ENOMEM;
	for (unsigned i = 0; i < n && !err; i++)
		err = init_queue(fs, o, i);
	for (unsigned i = 0; i < o->helpers; i++)
		snprintf(fs->dev.thread[fs->n_lanes + i].name, IOTHREAD_NAME_MAX, "%.7s-help%u",
			 o->name, (uint8_t)i);
	return err;
}

static bool opts_valid(const struct fs_opts *o)
{
	size_t tag_len = strlen(o->tag);

	return o->queues >= 1 && o->queues <= FS_QUEUES_MAX && tag_len >= 1 &&
	       (o->helpers == 0 || o->ops->helper_start) &&
	       tag_len <= sizeof(((struct virtio_fs_config *)NULL)->tag) &&
	       (o->ring == 0 || (o->ring >= FS_RING_MIN && o->ring <= VIRTQ_SIZE_MAX &&
				 (o->ring & (o->ring - 1)) == 0));
}

int fs_create(const struct fs_opts *o, const struct mem *mem, struct virtio_dev **out)
{
	struct fs *fs;
	int err;

	if (!opts_valid(o))
		return -EINVAL;
	fs = calloc(1, sizeof(*fs));
	if (!fs)
		return -ENOMEM;
	fs->ops = o->ops;
	fs->server = o->server;
	/* Padded with NUL, not terminated by it. */
	memcpy(fs->config.tag, o->tag, strlen(o->tag));
	fs->config.num_request_queues = o->queues;
	fs->dev.class = &fs_class;
	fs->dev.mem = mem;
	fs->dev.config = &fs->config;
	fs->dev.config_len = sizeof(fs->config);
	fs->dev.features = 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_RING_F_INDIRECT_DESC;
	snprintf(fs->dev.name, sizeof(fs->dev.name), "%.11s", o->name);
	err = init_queues(fs, o);
	if (err) {
		fs_destroy(&fs->dev);
		return err;
	}
	*out = &fs->dev;
	return 0;
}
