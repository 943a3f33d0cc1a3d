/*
 * Helpers: see pool.h.
 *
 * Life of a job: ready -> a helper takes it (running) -> done, or waiting -> its time comes: ready.
 * An eventfd in semaphore mode counts ready jobs, so it wakes as many helpers as there is work for.  A
 * timer is set while jobs wait; whichever helper sees it first makes those that are due ready.
 *
 * INTERRUPT may overtake the request it is about, since it has a queue of its own: those that name no
 * job here are remembered for a while, the last EARLY_MAX.
 */
#include "devices/fuse/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "devices/fuse/server.h"

#define EARLY_MAX    16
#define DELAY_FIRST  1  /* ms: most locks are held for less than that */
#define DELAY_LONG   50 /* ms: what a waiter may lose at most when the lock comes free */
#define NS_PER_MS    1000000u
#define NS_PER_S     1000000000u

struct job_list {
	struct fuse_job *first, **end; /* end: where the next one is linked in */
};

struct helper {
	struct fuse_pool *pool;
	struct fuse_worker *worker;
	struct watch ready, timer;

	/* The job in hand, under the pool's lock.  By value: once done, it is no longer ours. */
	bool busy, interrupted, remote;
	const void *lane;
	uint64_t unique;
};

struct fuse_pool {
	struct fuse_session *s;
	int ready_fd; /* counts ready jobs */
	int timer_fd; /* set for the first of those that wait */

	pthread_mutex_t lock;
	pthread_cond_t idle; /* a helper has ended a job */
	struct job_list ready, waiting;
	uint64_t early[EARLY_MAX]; /* interrupts that named no job */
	unsigned n_early;

	unsigned n;
	struct helper helper[];
};

/* --- lists; under the lock -------------------------------------------------------------------- */

static void list_init(struct job_list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_add(struct job_list *l, struct fuse_job *j)
{
	j->next = NULL;
	*l->end = j;
	l->end = &j->next;
}

static struct fuse_job *list_take(struct job_list *l)
{
	struct fuse_job *j = l->first;

	if (j) {
		l->first = j->next;
		if (!l->first)
			l->end = &l->first;
	}
	return j;
}

/* Move the jobs for which wanted(j, arg) holds from one list to another. */
static unsigned list_move(struct job_list *from, struct job_list *to,
			  bool (*wanted)(const struct fuse_job *j, const void *arg), const void *arg)
{
	struct job_list all = *from;
	struct fuse_job *j, *next;
	unsigned n = 0;

	list_init(from);
	for (j = all.first; j; j = next) {
		bool moves = wanted(j, arg);

		next = j->next;
		list_add(moves ? to : from, j);
		n += moves;
	}
	return n;
}

/* --- time ------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static bool is_due(const struct fuse_job *j, const void *now)
{
	return j->at_ns <= *(const uint64_t *)now;
}

/* For the first that waits, or off. */
static void timer_set(struct fuse_pool *p)
{
	struct itimerspec t = { 0 };
	uint64_t first = UINT64_MAX;

	for (struct fuse_job *j = p->waiting.first; j; j = j->next)
		first = MIN(first, j->at_ns);
	if (p->waiting.first) {
		t.it_value.tv_sec = (time_t)(first / NS_PER_S);
		t.it_value.tv_nsec = (long)(first % NS_PER_S);
	}
	timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* One by one: a write wakes one helper, whatever it adds. */
static void wake(struct fuse_pool *p, unsigned n)
{
	const uint64_t one = 1;

	while (n-- > 0)
		(void)!write(p->ready_fd, &one, sizeof(one));
}

static void timer_fired(struct watch *w, uint32_t events)
{
	struct fuse_pool *p = container_of(w, struct helper, timer)->pool;
	uint64_t now = now_ns(), count;
	unsigned n;

	(void)events;
	(void)!read(w->fd, &count, sizeof(count));
	pthread_mutex_lock(&p->lock);
	n = list_move(&p->waiting, &p->ready, is_due, &now);
	timer_set(p);
	pthread_mutex_unlock(&p->lock);
	wake(p, n);
}

/* --- a helper --------------------------------------------------------------------------------- */

/* Once more, later: soon at first, then less and less often. */
static void wait_again(struct fuse_pool *p, struct fuse_job *j)
{
	j->delay_ms = j->delay_ms ? MIN(2 * j->delay_ms, DELAY_LONG) : DELAY_FIRST;
	j->at_ns = j->interrupted ? 1 : now_ns() + (uint64_t)j->delay_ms * NS_PER_MS;
	list_add(&p->waiting, j);
	timer_set(p);
}

static void run_job(struct helper *h, struct fuse_job *j)
{
	struct fuse_pool *p = h->pool;
	struct cursor in, out;
	ssize_t len;
	bool more;

	j->cursors(j, &in, &out);
	len = fuse_serve(p->s, h->worker, &in, &out);
	if (len != FUSE_AGAIN)
		j->done(j, len);
	pthread_mutex_lock(&p->lock);
	if (len == FUSE_AGAIN) {
		j->interrupted |= h->interrupted;
		wait_again(p, j);
	}
	h->busy = false;
	/* One that was left for its turn has no wake of its own any more. */
	more = h->remote && p->ready.first;
	pthread_cond_broadcast(&p->idle);
	pthread_mutex_unlock(&p->lock);
	wake(p, more);
}

/* Remote servers may have all helpers but one: the disk's requests go on when none of them answers. */
static bool may_be_taken(const struct fuse_pool *p, const struct fuse_job *j)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n; i++)
		n += p->helper[i].busy && p->helper[i].remote;
	return !j->remote || n == 0 || n + 1 < p->n;
}

/* The first job whose turn it is. */
static struct fuse_job *take_ready(struct fuse_pool *p)
{
	struct job_list all = p->ready;
	struct fuse_job *j, *taken = NULL, *next;

	if (!all.first || may_be_taken(p, all.first))
		return list_take(&p->ready);
	list_init(&p->ready);
	for (j = all.first; j; j = next) {
		next = j->next;
		if (!taken && may_be_taken(p, j))
			taken = j;
		else
			list_add(&p->ready, j);
	}
	return taken;
}

/* The next job, noted as ours, or NULL. */
static struct fuse_job *take_job(struct helper *h)
{
	struct fuse_job *j;

	pthread_mutex_lock(&h->pool->lock);
	j = take_ready(h->pool);
	if (j) {
		h->busy = true;
		h->interrupted = false;
		h->remote = j->remote;
		h->lane = j->lane;
		h->unique = j->unique;
		h->worker->interrupted = j->interrupted;
	}
	pthread_mutex_unlock(&h->pool->lock);
	return j;
}

static void job_ready(struct watch *w, uint32_t events)
{
	struct helper *h = container_of(w, struct helper, ready);
	struct fuse_job *j;
	uint64_t count;

	(void)events;
	/* Another helper was faster. */
	if (read(w->fd, &count, sizeof(count)) < 0)
		return;
	j = take_job(h);
	/* None: it was withdrawn. */
	if (j)
		run_job(h, j);
}

int fuse_helper_start(struct fuse_session *s, unsigned i, struct loop *loop)
{
	struct helper *h = &s->pool->helper[i];
	int rc = fuse_thread_init(s);

	if (rc == 0)
		rc = loop_watch(loop, &h->ready, EPOLLIN | EPOLLEXCLUSIVE);
	if (rc == 0)
		rc = loop_watch(loop, &h->timer, EPOLLIN | EPOLLEXCLUSIVE);
	return rc;
}

/* --- lanes ------------------------------------------------------------------------------------ */

/* Was it interrupted before it came?  Under the lock. */
static bool was_early(struct fuse_pool *p, uint64_t unique)
{
	for (unsigned i = 0; i < EARLY_MAX && unique; i++)
		if (p->early[i] == unique) {
			p->early[i] = 0;
			return true;
		}
	return false;
}

void fuse_submit(struct fuse_session *s, const struct fuse_worker *w, struct fuse_job *j,
		 uint64_t unique)
{
	struct fuse_pool *p = s->pool;

	j->remote = w->remote;
	j->unique = unique;
	j->delay_ms = 0;
	pthread_mutex_lock(&p->lock);
	j->interrupted = was_early(p, unique);
	list_add(&p->ready, j);
	pthread_mutex_unlock(&p->lock);
	wake(p, 1);
}

static bool is_of_lane(const struct fuse_job *j, const void *lane)
{
	return j->lane == lane;
}

static bool lane_is_busy(const struct fuse_pool *p, const void *lane)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->helper[i].busy && p->helper[i].lane == lane)
			return true;
	return false;
}

void fuse_withdraw(struct fuse_session *s, const void *lane, struct fuse_job **withdrawn)
{
	struct fuse_pool *p = s->pool;
	struct job_list taken;

	list_init(&taken);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		list_move(&p->ready, &taken, is_of_lane, lane);
		/* These too: they may come ready while we wait. */
		list_move(&p->waiting, &taken, is_of_lane, lane);
		if (!lane_is_busy(p, lane))
			break;
		pthread_cond_wait(&p->idle, &p->lock);
	}
	timer_set(p);
	pthread_mutex_unlock(&p->lock);
	*withdrawn = taken.first;
}

/* --- INTERRUPT -------------------------------------------------------------------------------- */

static bool is_named(const struct fuse_job *j, const void *unique)
{
	return j->unique == *(const uint64_t *)unique;
}

static bool interrupt_running(struct fuse_pool *p, uint64_t unique)
{
	for (unsigned i = 0; i < p->n; i++) {
		struct helper *h = &p->helper[i];

		if (h->busy && h->unique == unique) {
			h->interrupted = true;
			return true;
		}
	}
	return false;
}

static bool interrupt_ready(struct fuse_pool *p, uint64_t unique)
{
	for (struct fuse_job *j = p->ready.first; j; j = j->next) {
		if (j->unique == unique) {
			j->interrupted = true;
			return true;
		}
	}
	return false;
}

void fuse_pool_interrupt(struct fuse_pool *p, uint64_t unique)
{
	unsigned n;

	pthread_mutex_lock(&p->lock);
	n = list_move(&p->waiting, &p->ready, is_named, &unique);
	timer_set(p);
	if (!interrupt_ready(p, unique) && !interrupt_running(p, unique))
		p->early[p->n_early++ % EARLY_MAX] = unique;
	pthread_mutex_unlock(&p->lock);
	wake(p, n);
}

void fuse_pool_reset(struct fuse_pool *p)
{
	pthread_mutex_lock(&p->lock);
	memset(p->early, 0, sizeof(p->early));
	pthread_mutex_unlock(&p->lock);
}

/* --- life ------------------------------------------------------------------------------------- */

int fuse_pool_create(struct fuse_session *s, unsigned n, struct fuse_pool **out)
{
	struct fuse_pool *p = calloc(1, sizeof(*p) + n * sizeof(p->helper[0]));
	int rc = 0;

	if (!p)
		return -ENOMEM;
	p->s = s;
	p->n = n;
	p->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (p->ready_fd < 0)
		rc = -errno;
	p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (p->timer_fd < 0)
		rc = -errno;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->idle, NULL);
	list_init(&p->ready);
	list_init(&p->waiting);
	for (unsigned i = 0; i < n; i++)
		p->helper[i] = (struct helper){
			.pool = p,
			.worker = fuse_session_helper(s, i),
			.ready = { .fd = p->ready_fd, .ready = job_ready },
			.timer = { .fd = p->timer_fd, .ready = timer_fired },
		};
	if (rc < 0)
		fuse_pool_destroy(p);
	else
		*out = p;
	return rc;
}

void fuse_pool_destroy(struct fuse_pool *p)
{
	if (!p)
		return;
	if (p->ready_fd >= 0)
		close(p->ready_fd);
	if (p->timer_fd >= 0)
		close(p->timer_fd);
	pthread_cond_destroy(&p->idle);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
