/* Kernel console sink (vmm/console.h). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/console.h"

struct seen {
	unsigned panics, halts;
};

static void count(void *ctx, enum console_event e)
{
	struct seen *s = ctx;

	if (e == CONSOLE_PANIC)
		s->panics++;
	else
		s->halts++;
}

/* Let the loop handle what is ready, without waiting. */
static void turn(struct loop *l)
{
	struct epoll_event ev[8];
	int n = epoll_wait(l->epoll_fd, ev, 8, 0);

	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (w->events)
			w->ready(w, ev[i].events);
	}
}

static void say(struct console *c, const char *text)
{
	console_push(c, text, strlen(text));
}

static struct console *console(struct loop *l, int fd, struct seen *s)
{
	static struct console c;

	ck_assert_int_eq(loop_init(l), 0);
	ck_assert_int_eq(console_init(&c, l, fd), 0);
	c.event = count;
	c.ctx = s;
	return &c;
}

START_TEST(panic_and_halt_are_seen_even_when_nobody_reads_the_console)
{
	struct seen s = { 0 };
	struct loop l;
	struct console *c = console(&l, -1, &s);

	say(c, "[    1.0] Kernel pan");
	turn(&l);
	ck_assert_uint_eq(s.panics, 0);
	say(c, "ic - not syncing: x\r\n[ 2.0] reboot: System halted\n");
	turn(&l);
	ck_assert_uint_eq(s.panics, 1);
	ck_assert_uint_eq(s.halts, 1);
	console_destroy(c);
}
END_TEST

START_TEST(bytes_reach_a_pipe_in_order)
{
	struct seen s = { 0 };
	char got[64] = "";
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &s);

	say(c, "one ");
	say(c, "two");
	for (int i = 0; i < 4; i++)
		turn(&l);
	ck_assert_int_eq(read(p[0], got, sizeof(got)), 7);
	ck_assert_str_eq(got, "one two");
	console_destroy(c);
}
END_TEST

START_TEST(a_pipe_nobody_reads_never_blocks_and_loses_the_newest)
{
	static char block[4096];
	struct seen s = { 0 };
	struct loop l;
	int p[2];

	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &s);

	/* 64 KiB fit into the pipe, 64 KiB into the ring. */
	for (int i = 0; i < 64; i++) {
		console_push(c, block, sizeof(block));
		turn(&l);
		turn(&l);
	}
	ck_assert_uint_ge(c->lost, 64 * 4096 - 2 * 65536 - 4096);
	ck_assert_uint_eq(c->head - c->tail, CONSOLE_RING);
	console_destroy(c);
}
END_TEST

START_TEST(a_sink_that_is_gone_does_not_stop_the_console)
{
	struct seen s = { 0 };
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	struct console *c = console(&l, p[1], &s);

	say(c, "Kernel panic - not syncing\n");
	for (int i = 0; i < 4; i++)
		turn(&l);
	ck_assert_uint_eq(s.panics, 1);
	ck_assert_uint_eq(c->head - c->tail, 0);
	console_destroy(c);
}
END_TEST

START_TEST(the_tail_is_the_last_lines)
{
	struct seen s = { 0 };
	char got[4096] = "";
	struct loop l;
	struct console *c = console(&l, -1, &s);
	int p[2], saved = dup(STDERR_FILENO);

	for (int i = 0; i < 500; i++) {
		char line[32];

		snprintf(line, sizeof(line), "line %d\r\n", i);
		say(c, line);
		turn(&l);
	}
	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	console_show_tail(c, 2);
	dup2(saved, STDERR_FILENO);
	ck_assert_int_gt(read(p[0], got, sizeof(got) - 1), 0);
	ck_assert_str_eq(got, "heddle: console: line 498\nheddle: console: line 499\n");
	console_destroy(c);
}
END_TEST

SUITE_MAIN("console", 10,
	   panic_and_halt_are_seen_even_when_nobody_reads_the_console,
	   bytes_reach_a_pipe_in_order,
	   a_pipe_nobody_reads_never_blocks_and_loses_the_newest,
	   a_sink_that_is_gone_does_not_stop_the_console,
	   the_tail_is_the_last_lines)
