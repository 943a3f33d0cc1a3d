/*
 * Frames from the guest to the tap.
 *
 * Theory of operation.  At the kick, on the queue's thread:
 *	1. Pop a chain.  Its first 12 bytes, however they are cut, are copied once and checked
 *	   (net_hdr.c); the rest goes to the kernel unread, by one writev from guest RAM with our
 *	   copy in front.
 *	2. Push the head, whatever became of the frame: sent, or dropped and counted.  Published in
 *	   small batches, so that the driver finds room again long before its ring is full.
 *	3. The tap says "try again": unpop, publish what was done, and wait for EPOLLOUT.  Kicks
 *	   stay muted meanwhile.  A tap that calls itself writable and then has no memory for a
 *	   frame (ENOBUFS) costs that frame, or we would go round in a circle.
 *	4. The ring is empty: ask for kicks and look once more.  The budget is spent: come back
 *	   after the thread's other queues.
 *
 * No timer, no lock, no allocation; one system call a frame.
 *
 * EPOLLOUT is watched through a descriptor of its own, since RX watches the tap's first one, maybe
 * on the same loop, and a loop knows a descriptor once.
 */
#include "devices/net_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/log.h"

enum tx_step { TX_DONE, TX_EMPTY, TX_BLOCKED, TX_BROKEN };

/* A frame as writev takes it. */
struct tx_frame {
	struct iovec *v;
	unsigned n;
	size_t len; /* without the virtio header */
};

static void tx_flush(struct net_tx *tx)
{
	virtio_queue_flush(tx->q);
	tx->batch = (struct net_batch){ 0 };
}

/* The head goes back; len counts towards the batch and the budget. */
static void tx_finish(struct net_tx *tx, uint16_t head, size_t len)
{
	virtq_push(&tx->q->vq, head, 0);
	stat_add(&tx->q->stats.requests, 1);
	tx->woken = false;
	tx->frames_left--;
	tx->bytes_left -= (int64_t)len;
	tx->batch.frames++;
	tx->batch.bytes += len;
	if (tx->batch.frames >= NET_BATCH_FRAMES || tx->batch.bytes >= NET_BATCH_BYTES)
		tx_flush(tx);
}

/*
 * Take the header off the chain: copied once, its segments cut, and our copy put in front.  The
 * slot before iov[1] makes room for it when the header shares its segment with the frame.
 */
static void split_header(struct net_tx *tx, const struct chain *c, struct tx_frame *f)
{
	struct iovec *v = tx->iov + 1;
	unsigned n = c->n_out;
	size_t need = TAP_HDR_LEN;
	uint8_t *to = (uint8_t *)&tx->hdr;

	for (;;) {
		size_t step = MIN(need, v->iov_len);

		memcpy(to, v->iov_base, step);
		to += step;
		need -= step;
		v->iov_base = (uint8_t *)v->iov_base + step;
		v->iov_len -= step;
		if (v->iov_len > 0)
			break;
		v++;
		n--;
	}
	/* One copy, not a second look at memory that the guest can change. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	v[-1] = (struct iovec){ .iov_base = &tx->hdr, .iov_len = TAP_HDR_LEN };
	f->v = v - 1;
	f->n = n + 1;
	f->len = c->out_len - TAP_HDR_LEN;
}

static bool make_frame(struct net_tx *tx, const struct chain *c, struct tx_frame *f)
{
	if (c->out_len < TAP_HDR_LEN + ETH_HLEN || c->out_len > NET_TX_MAX)
		return false;
	split_header(tx, c, f);
	/* What one writev takes. */
	return f->n <= VIRTQ_IOV_MAX && net_hdr_fit_tx(&tx->hdr, f->len, tx->offloads);
}

/* The tap would not take it: is it to be tried again? */
static bool tx_refused(struct net_tx *tx, int err)
{
	if (err == EAGAIN || (err == ENOBUFS && !tx->woken))
		return true;
	/* EIO: down; EBADFD: deleted.  Anything else: a frame the kernel finds fault with. */
	if ((err == EIO || err == EBADFD) && !tx->down) {
		tx->down = true;
		log_limited(LOG_LEVEL_WARN, "%s: %s is %s, frames are dropped", tx->q->name,
			    *tx->net->tap.name ? tx->net->tap.name : "the other end",
			    err == EIO ? "down" : "gone");
	}
	stat_add(&tx->stats.dropped, 1);
	return false;
}

static enum tx_step tx_send(struct net_tx *tx, const struct tx_frame *f)
{
	if (writev(tx->fd, f->v, (int)f->n) < 0)
		return tx_refused(tx, errno) ? TX_BLOCKED : TX_DONE;
	tx->down = false;
	stat_add(&tx->stats.frames, 1);
	stat_add(&tx->stats.bytes, f->len);
	return TX_DONE;
}

static enum tx_step tx_one(struct net_tx *tx)
{
	struct virtq *vq = &tx->q->vq;
	enum tx_step step = TX_DONE;
	struct tx_frame f = { 0 };
	struct chain c;
	int ret = virtq_pop(vq, tx->iov + 1, VIRTQ_IOV_MAX, &c);

	if (ret == 0)
		return TX_EMPTY;
	if (ret < 0) {
		virtio_fail(tx->q, NULL);
		return TX_BROKEN;
	}
	if (make_frame(tx, &c, &f))
		step = tx_send(tx, &f);
	else
		stat_add(&tx->stats.bad, 1);
	if (step == TX_BLOCKED)
		virtq_unpop(vq, 1);
	else
		tx_finish(tx, c.head, f.len);
	return step;
}

static void tx_wait(struct net_tx *tx)
{
	stat_add(&tx->stats.stalls, 1);
	if (loop_watch(&tx->q->thread->loop, &tx->out, EPOLLOUT))
		virtio_fail(tx->q, "host cannot watch the tap");
}

void net_tx_pass(struct net_tx *tx)
{
	struct virtio_queue *q = tx->q;
	enum tx_step step;

	tx->frames_left = NET_BUDGET_FRAMES;
	tx->bytes_left = NET_BUDGET_BYTES;
	do {
		virtq_mute(&q->vq);
		do
			step = tx_one(tx);
		while (step == TX_DONE && tx->frames_left > 0 && tx->bytes_left > 0);
		tx_flush(tx);
		if (step == TX_DONE)
			virtio_queue_again(q);
		else if (step == TX_BLOCKED)
			tx_wait(tx);
	} while (step == TX_EMPTY && virtq_unmute(&q->vq));
}

static void tx_writable(struct watch *w, uint32_t events)
{
	struct net_tx *tx = container_of(w, struct net_tx, out);

	(void)events;
	(void)loop_watch(&tx->q->thread->loop, w, 0);
	if (tx->q->vq.broken)
		return;
	tx->woken = true;
	net_tx_pass(tx);
	tx->woken = false;
}

/* --- life ------------------------------------------------------------------------------------- */

void net_tx_begin(struct net_tx *tx)
{
	tx->offloads = net_offloads_tx(tx->q->dev->driver_features);
	tx->woken = tx->down = false;
	tx->batch = (struct net_batch){ 0 };
}

void net_tx_end(struct net_tx *tx)
{
	(void)loop_watch(&tx->q->thread->loop, &tx->out, 0);
}

int net_tx_init(struct net_tx *tx, struct net *net, unsigned pair)
{
	tx->q = &net->dev.queue[(size_t)pair * 2 + 1];
	tx->net = net;
	tx->fd = net->tap.fd[pair];
	tx->out = (struct watch){ .fd = fcntl(tx->fd, F_DUPFD_CLOEXEC, 0), .ready = tx_writable };
	if (tx->out.fd < 0)
		return -errno;
	tx->iov = calloc(VIRTQ_IOV_MAX + 1, sizeof(*tx->iov));
	return tx->iov ? 0 : -ENOMEM;
}

void net_tx_destroy(struct net_tx *tx)
{
	if (tx->out.ready && tx->out.fd >= 0)
		close(tx->out.fd);
	free(tx->iov);
}
