/*
 * Helpers: threads that serve the requests which would hold up a lane.
 *
 * A lane serves what it can at once.  Of a request that would wait, fuse_serve() says FUSE_SLOW there,
 * with nothing done, and the lane hands it to the pool as a job: a helper serves it from the start,
 * and waits where the host does.  One that only has to be tried again (FUSE_AGAIN: a lock that
 * somebody holds) waits in a list and takes no helper meanwhile.  Jobs end in any order.
 *
 * The helpers' threads are the caller's; each enters with fuse_helper_start().  One lock guards the
 * lists; it is a leaf, and no request is served under it.
 */
#ifndef DEVICES_FUSE_POOL_H
#define DEVICES_FUSE_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/iov.h"
#include "vmm/loop.h"

struct fuse_pool;
struct fuse_session;
struct fuse_worker;

/* A request handed on.  The owner's memory until done() or fuse_withdraw(). */
struct fuse_job {
	/* Of the owner, who sets them: */
	const void *lane; /* whose job it is, for fuse_withdraw() */
	/* On a helper's thread, perhaps several times: where request and reply lie. */
	void (*cursors)(struct fuse_job *j, struct cursor *in, struct cursor *out);
	/* On a helper's thread, once: served; len as of fuse_serve(). */
	void (*done)(struct fuse_job *j, ssize_t len);

	/* Of the pool: */
	struct fuse_job *next;
	bool remote;       /* for a server that may never answer */
	uint64_t unique;   /* of the request */
	bool interrupted;  /* by FUSE_INTERRUPT */
	unsigned delay_ms; /* before it is tried again */
	uint64_t at_ns;    /* when it is tried again; CLOCK_MONOTONIC */
};

/* For n helpers; 0 or -errno. */
int fuse_pool_create(struct fuse_session *s, unsigned n, struct fuse_pool **out);
void fuse_pool_destroy(struct fuse_pool *p); /* all helpers are gone; NULL is harmless */

/*
 * On the thread that is to be helper i, before or in its loop: what fuse_thread_init() does, and from
 * now on jobs are served in the loop.  0 or -errno.
 */
int fuse_helper_start(struct fuse_session *s, unsigned i, struct loop *loop);

/*
 * Any thread.  w: the lane's, which has just said FUSE_SLOW; unique: from the request's header, as the
 * lane has seen it.
 */
void fuse_submit(struct fuse_session *s, const struct fuse_worker *w, struct fuse_job *j,
		 uint64_t unique);

/*
 * Take all jobs of the lane back: when it returns, done() has returned for those that a helper had in
 * hand, and is not called for the others; *withdrawn are those, as a chain.  Waits for the host.
 */
void fuse_withdraw(struct fuse_session *s, const void *lane, struct fuse_job **withdrawn);

/* The client no longer waits for this request. */
void fuse_pool_interrupt(struct fuse_pool *p, uint64_t unique);

/* A new client, whose requests are numbered anew. */
void fuse_pool_reset(struct fuse_pool *p);

#endif
