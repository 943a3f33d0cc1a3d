/*
 * The guest's side of heddle's channel, by hand: FUSE requests built in memory, for the unit test
 * and the fuzzer.  Its fs_complete() takes the place of the device's.
 */
#ifndef TESTS_UNIT_CHANNEL_GUEST_H
#define TESTS_UNIT_CHANNEL_GUEST_H

#include <linux/fuse.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "devices/channel.h"
#include "vmm/base.h"
#include "vmm/loop.h"

#define PIECES_MAX 64

enum { NODE_ROOT = 1, NODE_STDIN, NODE_STDOUT, NODE_STDERR, NODE_EVENTS, NODE_STATUS };

struct fs_request {
	uint8_t *in, *out;
	size_t in_len, out_len;
	struct iovec v[2 * PIECES_MAX];
	unsigned n_in, n_out;
	unsigned completed; /* times; must end as 1 */
	ssize_t result;	    /* of serve or fs_complete */
};

void fs_complete(struct fs_request *r, ssize_t len)
{
	r->completed++;
	r->result = len;
}

void fs_request_cursors(const struct fs_request *r, struct cursor *in, struct cursor *out)
{
	*in = cursor_of(r->v, r->n_in);
	*out = cursor_of(r->v + r->n_in, r->n_out);
}

/* Describe len bytes as pieces of at most `piece` bytes; the last one takes what is left. */
static inline unsigned pieces(struct iovec *v, uint8_t *p, size_t len, size_t piece)
{
	unsigned n = 0;

	while (len > 0) {
		size_t here = n == PIECES_MAX - 1 ? len : MIN(piece, len);

		v[n++] = (struct iovec){ p, here };
		p += here;
		len -= here;
	}
	return n;
}

/* A request of exactly these bytes, with room for a reply of out_len, both cut into pieces. */
static inline struct fs_request *request_new(const void *in, size_t in_len, size_t out_len,
					     size_t piece)
{
	struct fs_request *r = calloc(1, sizeof(*r));

	r->in = malloc(in_len ? in_len : 1);
	r->out = malloc(out_len ? out_len : 1);
	memcpy(r->in, in, in_len);
	memset(r->out, 0xee, out_len);
	r->in_len = in_len;
	r->out_len = out_len;
	r->n_in = pieces(r->v, r->in, in_len, piece);
	r->n_out = pieces(r->v + r->n_in, r->out, out_len, piece);
	return r;
}

static inline void request_free(struct fs_request *r)
{
	free(r->in);
	free(r->out);
	free(r);
}

struct guest {
	struct channel *c;
	void *worker[CHANNEL_WORKERS];
	struct loop loop;
	uint64_t unique;
};

static inline int guest_begin(struct guest *g, struct channel *c)
{
	int err = loop_init(&g->loop);

	g->c = c;
	g->unique = 100;
	channel_workers(c, g->worker);
	for (int i = 0; i < CHANNEL_WORKERS && !err; i++)
		err = channel_fs_server.worker_begin(c, g->worker[i], &g->loop);
	return err;
}

static inline void guest_end(struct guest *g)
{
	for (int i = 0; i < CHANNEL_WORKERS; i++)
		channel_fs_server.worker_end(g->c, g->worker[i]);
	channel_fs_server.reset(g->c);
	loop_destroy(&g->loop);
}

static inline void guest_serve(struct guest *g, struct fs_request *r, unsigned worker)
{
	struct cursor in, out;
	ssize_t ret;

	fs_request_cursors(r, &in, &out);
	ret = channel_fs_server.serve(g->c, g->worker[worker], r, &in, &out);
	if (ret != FS_LATER)
		fs_complete(r, ret);
}

/* Send: header, two parts of a body. */
static inline struct fs_request *guest_send(struct guest *g, uint32_t opcode, uint64_t node,
					    const void *a, size_t a_len, const void *b,
					    size_t b_len, size_t out_len, size_t piece)
{
	struct fuse_in_header h = { .len = sizeof(h) + a_len + b_len,
				    .opcode = opcode,
				    .unique = ++g->unique,
				    .nodeid = node };
	uint8_t *buf = malloc(h.len);
	struct fs_request *r;

	memcpy(buf, &h, sizeof(h));
	if (a_len)
		memcpy(buf + sizeof(h), a, a_len);
	if (b_len)
		memcpy(buf + sizeof(h) + a_len, b, b_len);
	r = request_new(buf, h.len, out_len, piece);
	free(buf);
	guest_serve(g, r, 1);
	return r;
}

static inline struct fs_request *guest_read(struct guest *g, uint64_t node, uint32_t len)
{
	const struct fuse_read_in in = { .size = len };

	return guest_send(g, FUSE_READ, node, &in, sizeof(in), NULL, 0,
			  sizeof(struct fuse_out_header) + len, 4096);
}

static inline struct fs_request *guest_write(struct guest *g, uint64_t node, const void *data,
					     uint32_t len)
{
	const struct fuse_write_in in = { .size = len };

	return guest_send(g, FUSE_WRITE, node, &in, sizeof(in), data, len,
			  sizeof(struct fuse_out_header) + sizeof(struct fuse_write_out), 65536);
}

/* Handle what is ready, waiting at most ms for the first of it. */
static inline void guest_turn(struct guest *g, int ms)
{
	struct epoll_event ev[8];
	int n = epoll_wait(g->loop.epoll_fd, ev, 8, ms);

	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (w->events)
			w->ready(w, ev[i].events);
	}
}

static inline int reply_error_of(const struct fs_request *r)
{
	struct fuse_out_header h;

	memcpy(&h, r->out, sizeof(h));
	return h.error;
}

static inline const uint8_t *reply_body_of(const struct fs_request *r)
{
	return r->out + sizeof(struct fuse_out_header);
}

#endif
