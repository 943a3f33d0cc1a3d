/*
 * The file server behind the virtio-fs device: see fs_server.h.
 *
 * 1. serve: FUSE_SLOW becomes FS_LATER; the unique of the request is noted.
 * 2. kept: the request has its own memory now, and goes to the pool as a job.
 * 3. done, on a helper: the job enters the lane's list, an eventfd tells the lane.
 * 4. lane_done, on the lane: completes what is in the list.
 */
#include "devices/fuse/fs_server.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "devices/fs.h"
#include "devices/fuse/pool.h"
#include "devices/fuse/session.h"
#include "devices/fuse/wire.h"
#include "vmm/base.h"

struct fuse_lane {
	struct fuse_worker *worker;
	struct loop *loop;
	struct watch watch;  /* something is done */
	uint64_t unique;     /* of the request that serve has just put off */
	pthread_mutex_t lock;
	struct fs_job *done; /* under the lock; newest first */
};

struct fuse_lanes {
	unsigned n;
	struct fuse_lane lane[];
};

/* A kept request on its way through the pool. */
struct fs_job {
	struct fuse_job job;
	struct fuse_lane *lane;
	struct fs_request *r;
	struct fs_job *next;
	ssize_t len;
};

static int thread_start(void *server)
{
	return fuse_thread_init(server);
}

static int helper_start(void *server, unsigned i, struct loop *loop)
{
	return fuse_helper_start(server, i, loop);
}

/* --- on the lane ------------------------------------------------------------------------------ */

static ssize_t serve(void *server, void *worker, struct fs_request *r, struct cursor *in,
		     struct cursor *out)
{
	struct fuse_lane *lane = worker;
	struct fuse_in_header h;
	struct cursor peek = *in;
	ssize_t len = fuse_serve(server, lane->worker, in, out);

	(void)r;
	if (len != FUSE_SLOW)
		return len;
	/* There is a header: it was read a moment ago.  The number serves INTERRUPT only. */
	lane->unique = cursor_read(&peek, &h, sizeof(h)) ? h.unique : 0;
	return FS_LATER;
}

static bool quick(void *server, void *worker, const struct cursor *in)
{
	struct fuse_lane *lane = worker;

	(void)server;
	return fuse_is_quick(lane->worker, in);
}

static void job_cursors(struct fuse_job *j, struct cursor *in, struct cursor *out)
{
	fs_request_cursors(container_of(j, struct fs_job, job)->r, in, out);
}

/* On a helper. */
static void job_done(struct fuse_job *j, ssize_t len)
{
	struct fs_job *job = container_of(j, struct fs_job, job);
	struct fuse_lane *lane = job->lane;
	const uint64_t one = 1;

	job->len = len;
	pthread_mutex_lock(&lane->lock);
	job->next = lane->done;
	lane->done = job;
	pthread_mutex_unlock(&lane->lock);
	(void)!write(lane->watch.fd, &one, sizeof(one));
}

/* What is done, oldest first. */
static struct fs_job *lane_take_done(struct fuse_lane *lane)
{
	struct fs_job *j, *next, *all = NULL;

	pthread_mutex_lock(&lane->lock);
	j = lane->done;
	lane->done = NULL;
	pthread_mutex_unlock(&lane->lock);
	for (; j; j = next) {
		next = j->next;
		j->next = all;
		all = j;
	}
	return all;
}

static void lane_done(struct watch *w, uint32_t events)
{
	struct fuse_lane *lane = container_of(w, struct fuse_lane, watch);
	struct fs_job *j, *next;
	uint64_t count;

	(void)events;
	(void)!read(w->fd, &count, sizeof(count));
	for (j = lane_take_done(lane); j; j = next) {
		next = j->next;
		fs_complete(j->r, j->len);
		free(j);
	}
}

static void kept(void *server, void *worker, struct fs_request *r)
{
	struct fuse_lane *lane = worker;
	struct fs_job *j = calloc(1, sizeof(*j));

	/* Any answer is better than none, and ENOMEM is not one that FUSE clients know to repeat. */
	if (!j) {
		struct cursor in, out;

		fs_request_cursors(r, &in, &out);
		fs_complete(r, fuse_serve_waiting(server, lane->worker, &in, &out));
		return;
	}
	j->lane = lane;
	j->r = r;
	j->job.lane = lane;
	j->job.cursors = job_cursors;
	j->job.done = job_done;
	fuse_submit(server, lane->worker, &j->job, lane->unique);
}

static int worker_begin(void *server, void *worker, struct loop *loop)
{
	struct fuse_lane *lane = worker;

	(void)server;
	lane->loop = loop;
	return loop_watch(loop, &lane->watch, EPOLLIN);
}

static void worker_end(void *server, void *worker)
{
	struct fuse_lane *lane = worker;
	struct fuse_job *job, *next_job;
	struct fs_job *j, *next;

	fuse_withdraw(server, lane, &job);
	for (; job; job = next_job) {
		next_job = job->next;
		free(container_of(job, struct fs_job, job));
	}
	for (j = lane_take_done(lane); j; j = next) {
		next = j->next;
		free(j);
	}
	loop_watch(lane->loop, &lane->watch, 0);
}

static void reset(void *server)
{
	fuse_session_reset(server);
}

const struct fs_server fuse_fs_server = {
	.thread_start = thread_start,
	.helper_start = helper_start,
	.serve = serve,
	.quick = quick,
	.kept = kept,
	.worker_begin = worker_begin,
	.worker_end = worker_end,
	.reset = reset,
};

/* --- life ------------------------------------------------------------------------------------- */

int fuse_lanes_create(struct fuse_session *s, unsigned n, struct fuse_lanes **out)
{
	struct fuse_lanes *l = calloc(1, sizeof(*l) + n * sizeof(l->lane[0]));

	if (!l)
		return -ENOMEM;
	for (; l->n < n; l->n++) {
		struct fuse_lane *lane = &l->lane[l->n];

		lane->worker = fuse_session_worker(s, l->n);
		lane->watch.ready = lane_done;
		lane->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (lane->watch.fd < 0) {
			int rc = -errno;

			fuse_lanes_destroy(l);
			return rc;
		}
		pthread_mutex_init(&lane->lock, NULL);
	}
	*out = l;
	return 0;
}

void fuse_lanes_destroy(struct fuse_lanes *l)
{
	for (unsigned i = 0; l && i < l->n; i++) {
		close(l->lane[i].watch.fd);
		pthread_mutex_destroy(&l->lane[i].lock);
	}
	free(l);
}

void *fuse_lane(struct fuse_lanes *l, unsigned i)
{
	return &l->lane[i];
}
