/*
 * Event loop and I/O thread.
 *
 * A loop belongs to the thread that runs it: loop_watch() is called on that thread, or before it
 * starts.  An I/O thread is a loop with a mailbox: other threads hand it a function with
 * iothread_call(), wait for it to have run there, and get its result.  That call is the only way in
 * which ownership moves between threads.
 */
#ifndef VMM_LOOP_H
#define VMM_LOOP_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct watch {
	int fd;
	void (*ready)(struct watch *w, uint32_t events); /* on the loop's thread; EPOLL* bits */
	uint32_t events; /* what is watched now; kept by loop_watch */
};

struct loop {
	int epoll_fd;
	bool stopped;
};

int loop_init(struct loop *l); /* 0 or -errno */
void loop_destroy(struct loop *l);

/*
 * Watch w->fd for events (EPOLLIN, EPOLLOUT, EPOLLET...); 0 stops watching.  w stays the caller's
 * and must outlive its watch.  A handler may add, change and remove any watch, also its own; a
 * removed watch is not called again, not even for events already collected.  0 or -errno.
 */
int loop_watch(struct loop *l, struct watch *w, uint32_t events);

void loop_run(struct loop *l);  /* until loop_stop() */
void loop_stop(struct loop *l); /* from a handler */

#define IOTHREAD_NAME_MAX 16

struct iothread {
	struct loop loop;
	pthread_t thread;
	bool started;
	char name[IOTHREAD_NAME_MAX]; /* shown by top -H, e.g. "fs0-rq2" */

	/* Run on the new thread before it parks: credentials, affinity, seccomp.  May be NULL. */
	int (*on_start)(struct iothread *t);
	void *ctx; /* for on_start */

	/* mailbox */
	struct watch mail;
	pthread_mutex_t call_lock; /* one caller at a time; never taken by the I/O thread */
	int (*fn)(void *arg);
	void *arg;
	int result;
	sem_t done;
};

/*
 * Start the thread: it runs on_start and parks in its loop.  In two steps, so that many threads start
 * at a time: iothread_begin does not wait for the thread; iothread_begun does, once, and returns
 * on_start's error (the thread is gone then).  Harmless where nothing began.  0 or -errno.
 */
int iothread_begin(struct iothread *t, const char *name);
int iothread_begun(struct iothread *t);

/* Run fn(arg) on t, wait, return its result.  Not from t itself.  Before start or after stop: runs
 * fn in the caller. */
int iothread_call(struct iothread *t, int (*fn)(void *arg), void *arg);

/* End the loop and join.  Harmless when never started. */
void iothread_stop(struct iothread *t);

#endif
