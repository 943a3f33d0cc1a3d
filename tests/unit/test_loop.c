/* Event loop and I/O thread (vmm/loop.h). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/iothread.h"
#include "tests/unit/suite.h"
#include "vmm/base.h"
#include "vmm/loop.h"

static struct loop l;

/* A watch that notes its calls, and may act on others. */
struct probe {
	struct watch w;
	unsigned calls;
	uint32_t events;
	struct probe *remove; /* from the loop when called */
	bool stop;
};

static void probed(struct watch *w, uint32_t events)
{
	struct probe *p = container_of(w, struct probe, w);

	p->calls++;
	p->events = events;
	if (p->remove)
		ck_assert_int_eq(loop_watch(&l, &p->remove->w, 0), 0);
	if (p->stop)
		loop_stop(&l);
}

static void ring(const struct probe *p)
{
	const uint64_t one = 1;

	ck_assert_int_eq(write(p->w.fd, &one, sizeof(one)), sizeof(one));
}

static struct probe probe(void)
{
	return (struct probe){ .w = { .fd = eventfd(0, EFD_NONBLOCK), .ready = probed } };
}

static void watch(struct probe *p, uint32_t events)
{
	ck_assert_int_eq(loop_watch(&l, &p->w, events), 0);
}

START_TEST(ready_watch_is_called_and_others_are_not)
{
	struct probe a = probe(), b = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	a.stop = true;
	watch(&a, EPOLLIN);
	watch(&b, EPOLLIN);
	ring(&a);
	loop_run(&l);
	ck_assert_uint_eq(a.calls, 1);
	ck_assert_uint_eq(a.events, EPOLLIN);
	ck_assert_uint_eq(b.calls, 0);
	loop_destroy(&l);
}
END_TEST

START_TEST(watch_removed_in_the_same_batch_is_not_called)
{
	struct probe a = probe(), b = probe(), last = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	/* Whichever comes first removes the other. */
	a.remove = &b;
	b.remove = &a;
	last.stop = true;
	watch(&a, EPOLLIN | EPOLLET);
	watch(&b, EPOLLIN | EPOLLET);
	watch(&last, EPOLLIN);
	ring(&a);
	ring(&b);
	ring(&last);
	loop_run(&l);
	ck_assert_uint_eq(a.calls + b.calls, 1);
	loop_destroy(&l);
}
END_TEST

START_TEST(handler_may_remove_itself)
{
	struct probe a = probe(), last = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	a.remove = &a;
	last.stop = true;
	watch(&a, EPOLLIN);
	ring(&a);
	watch(&last, EPOLLIN);
	ring(&last);
	loop_run(&l);
	ck_assert_uint_le(a.calls, 1);
	ck_assert(a.w.events == 0 || a.calls == 0);
	/* And come back later. */
	watch(&a, EPOLLIN);
	a.remove = NULL;
	a.stop = true;
	loop_watch(&l, &last.w, 0);
	l.stopped = false;
	loop_run(&l);
	ck_assert_uint_ge(a.calls, 1);
	loop_destroy(&l);
}
END_TEST

START_TEST(interest_can_change)
{
	struct probe a = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	a.stop = true;
	watch(&a, EPOLLIN);
	watch(&a, EPOLLOUT);
	ck_assert_uint_eq(a.w.events, EPOLLOUT);
	loop_run(&l);
	ck_assert_uint_eq(a.events, EPOLLOUT);
	watch(&a, 0);
	watch(&a, 0);
	ck_assert_uint_eq(a.w.events, 0);
	loop_destroy(&l);
}
END_TEST

START_TEST(descriptor_that_cannot_be_watched_is_an_error)
{
	struct probe a = { .w = { .fd = -1, .ready = probed } };

	ck_assert_int_eq(loop_init(&l), 0);
	ck_assert_int_eq(loop_watch(&l, &a.w, EPOLLIN), -EBADF);
	ck_assert_uint_eq(a.w.events, 0);
	loop_destroy(&l);
}
END_TEST

/* What kicks rely on: every write is an edge, though nobody reads the counter. */
START_TEST(each_write_to_an_edge_triggered_eventfd_is_an_event)
{
	struct probe a = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	a.stop = true;
	watch(&a, EPOLLIN | EPOLLET);
	for (unsigned i = 1; i <= 100; i++) {
		struct pollfd p = { .fd = l.epoll_fd, .events = POLLIN };

		ring(&a);
		l.stopped = false;
		loop_run(&l);
		ck_assert_uint_eq(a.calls, i);
		/* And no more than one. */
		ck_assert_int_eq(poll(&p, 1, 0), 0);
	}
	loop_destroy(&l);
}
END_TEST

START_TEST(edge_watch_on_a_signalled_eventfd_fires_at_once)
{
	struct probe a = probe();

	ck_assert_int_eq(loop_init(&l), 0);
	a.stop = true;
	ring(&a);
	watch(&a, EPOLLIN | EPOLLET);
	loop_run(&l);
	ck_assert_uint_eq(a.calls, 1);
	loop_destroy(&l);
}
END_TEST

/* --- I/O threads ------------------------------------------------------------------------------ */

static struct iothread t;
static pthread_t ran_on;

static int note_thread(void *arg)
{
	ran_on = pthread_self();
	return *(int *)arg;
}

START_TEST(call_runs_on_the_thread_and_returns_its_result)
{
	int value = 42;

	ck_assert_int_eq(iothread_start(&t, "heddle-test"), 0);
	ck_assert_int_eq(iothread_call(&t, note_thread, &value), 42);
	ck_assert(pthread_equal(ran_on, t.thread));
	ck_assert(!pthread_equal(ran_on, pthread_self()));
	iothread_stop(&t);
	/* Without a thread the caller runs it. */
	value = -5;
	ck_assert_int_eq(iothread_call(&t, note_thread, &value), -5);
	ck_assert(pthread_equal(ran_on, pthread_self()));
	iothread_stop(&t);
}
END_TEST

static int check_name(void *arg)
{
	char name[16];

	return pthread_getname_np(pthread_self(), name, sizeof(name)) || strcmp(name, arg) != 0;
}

START_TEST(thread_carries_its_name_cut_to_15_bytes)
{
	char cut[] = "a-rather-long-n";

	ck_assert_int_eq(iothread_start(&t, "a-rather-long-name"), 0);
	ck_assert_str_eq(t.name, cut);
	ck_assert_int_eq(iothread_call(&t, check_name, cut), 0);
	iothread_stop(&t);
}
END_TEST

static int check_signals(void *arg)
{
	sigset_t set;

	(void)arg;
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	return sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) &&
	       sigismember(&set, SIGUSR1);
}

START_TEST(threads_take_no_signals_and_the_caller_still_does)
{
	sigset_t set;

	ck_assert_int_eq(iothread_start(&t, "x"), 0);
	ck_assert_int_eq(iothread_call(&t, check_signals, NULL), 1);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	ck_assert(!sigismember(&set, SIGTERM));
	iothread_stop(&t);
}
END_TEST

static int refuse(struct iothread *thread)
{
	return thread->ctx == &t ? -EPERM : -EINVAL;
}

START_TEST(thread_whose_start_fails_is_gone)
{
	t = (struct iothread){ .on_start = refuse, .ctx = &t };
	ck_assert_int_eq(iothread_start(&t, "x"), -EPERM);
	ck_assert(!t.started);
	iothread_stop(&t);
	t.on_start = NULL;
	ck_assert_int_eq(iothread_start(&t, "x"), 0);
	iothread_stop(&t);
}
END_TEST

static int count_up(void *arg)
{
	++*(unsigned *)arg;
	return 0;
}

static unsigned total;

static void *caller_main(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 2000; i++)
		iothread_call(&t, count_up, &total);
	return NULL;
}

START_TEST(calls_from_many_threads_take_turns)
{
	pthread_t caller[4];

	ck_assert_int_eq(iothread_start(&t, "x"), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&caller[i], NULL, caller_main, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(caller[i], NULL);
	ck_assert_uint_eq(total, 8000);
	iothread_stop(&t);
}
END_TEST

START_TEST(threads_can_be_started_and_stopped_again_and_again)
{
	for (unsigned i = 0; i < 200; i++) {
		t = (struct iothread){ 0 };
		ck_assert_int_eq(iothread_start(&t, "x"), 0);
		iothread_stop(&t);
	}
	/* No descriptor was left behind. */
	ck_assert_int_lt(eventfd(0, 0), 20);
}
END_TEST

SUITE_MAIN("loop", 20, ready_watch_is_called_and_others_are_not,
	   watch_removed_in_the_same_batch_is_not_called, handler_may_remove_itself,
	   interest_can_change, descriptor_that_cannot_be_watched_is_an_error,
	   each_write_to_an_edge_triggered_eventfd_is_an_event,
	   edge_watch_on_a_signalled_eventfd_fires_at_once,
	   call_runs_on_the_thread_and_returns_its_result, thread_carries_its_name_cut_to_15_bytes,
	   threads_take_no_signals_and_the_caller_still_does, thread_whose_start_fails_is_gone,
	   calls_from_many_threads_take_turns, threads_can_be_started_and_stopped_again_and_again)
