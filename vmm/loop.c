/*
 * Event loop and I/O thread: see loop.h.
 *
 * epoll events carry the watch pointer.  A handler may remove a watch whose event is already in the
 * batch being worked through, so every event is checked against w->events, which loop_watch() keeps
 * up to date: a removed watch has none.  This is safe because a watch outlives the batch: owners free
 * watches only with the loop's thread parked or gone.
 */
#include "vmm/base.h"
#include "vmm/loop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EVENTS_PER_WAIT 16
#define THREAD_STACK    ((size_t)256 * 1024)

int loop_init(struct loop *l)
{
	l->stopped = false;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return l->epoll_fd < 0 ? -errno : 0;
}

void loop_destroy(struct loop *l)
{
	if (l->epoll_fd >= 0)
		close(l->epoll_fd);
	l->epoll_fd = -1;
}

int loop_watch(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };
	int op;

	if (events == w->events)
		return 0;
	if (events == 0)
		op = EPOLL_CTL_DEL;
	else
		op = w->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (epoll_ctl(l->epoll_fd, op, w->fd, &ev))
		return -errno;
	w->events = events;
	return 0;
}

void loop_run(struct loop *l)
{
	struct epoll_event ev[EVENTS_PER_WAIT];

	while (!l->stopped) {
		int n = epoll_wait(l->epoll_fd, ev, EVENTS_PER_WAIT, -1);

		for (int i = 0; i < n && !l->stopped; i++) {
			struct watch *w = ev[i].data.ptr;

			if (w->events)
				w->ready(w, ev[i].events);
		}
	}
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
}

static void iothread_mail(struct watch *w, uint32_t events)
{
	struct iothread *t = container_of(w, struct iothread, mail);
	uint64_t count;

	(void)events;
	(void)!read(w->fd, &count, sizeof(count));
	t->result = t->fn(t->arg);
	sem_post(&t->done);
}

static void *iothread_main(void *arg)
{
	struct iothread *t = arg;
	int err = 0;

	prctl(PR_SET_NAME, t->name);
	if (t->on_start)
		err = t->on_start(t);
	t->result = err;
	sem_post(&t->done);
	if (!err)
		loop_run(&t->loop);
	return NULL;
}

static void iothread_wait(struct iothread *t)
{
	while (sem_wait(&t->done) && errno == EINTR)
		;
}

/* All signals are main's business: threads start with everything blocked. */
static int iothread_spawn(struct iothread *t)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->thread, &attr, iothread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static void iothread_free(struct iothread *t)
{
	t->started = false;
	sem_destroy(&t->done);
	pthread_mutex_destroy(&t->call_lock);
	close(t->mail.fd);
	loop_destroy(&t->loop);
}

int iothread_begin(struct iothread *t, const char *name)
{
	int err;

	strncpy(t->name, name, sizeof(t->name) - 1);
	t->name[sizeof(t->name) - 1] = '\0';
	err = loop_init(&t->loop);
	if (err)
		return err;
	t->mail = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC), .ready = iothread_mail };
	if (t->mail.fd < 0) {
		err = -errno;
		loop_destroy(&t->loop);
		return err;
	}
	sem_init(&t->done, 0, 0);
	pthread_mutex_init(&t->call_lock, NULL);
	err = loop_watch(&t->loop, &t->mail, EPOLLIN);
	if (!err)
		err = iothread_spawn(t);
	if (err)
		iothread_free(t);
	t->started = !err;
	return err;
}

int iothread_begun(struct iothread *t)
{
	if (!t->started)
		return 0;
	iothread_wait(t);
	if (t->result) {
		pthread_join(t->thread, NULL);
		iothread_free(t);
	}
	return t->result;
}

int iothread_call(struct iothread *t, int (*fn)(void *arg), void *arg)
{
	const uint64_t one = 1;
	int result;

	if (!t->started)
		return fn(arg);
	pthread_mutex_lock(&t->call_lock);
	t->fn = fn;
	t->arg = arg;
	(void)!write(t->mail.fd, &one, sizeof(one));
	iothread_wait(t);
	result = t->result;
	pthread_mutex_unlock(&t->call_lock);
	return result;
}

static int iothread_end(void *arg)
{
	struct iothread *t = arg;

	loop_stop(&t->loop);
	return 0;
}

void iothread_stop(struct iothread *t)
{
	if (!t->started)
		return;
	iothread_call(t, iothread_end, t);
	pthread_join(t->thread, NULL);
	iothread_free(t);
}
