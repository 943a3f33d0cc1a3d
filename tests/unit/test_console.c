/* Kernel console sink (vmm/console.h). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/console.h"

static void count(void *ctx)
{
	++*(unsigned *)ctx;
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

static struct console *console(struct loop *l, int fd, unsigned *words)
{
	static struct console c;

	ck_assert_int_eq(loop_init(l), 0);
	ck_assert_int_eq(console_init(&c, l, fd), 0);
	c.last_word = count;
	c.ctx = words;
	return &c;
}

#define END_PANIC "[ 2.0] ---[ end Kernel panic - not syncing: x ]---\r\n"

START_TEST(a_dead_kernels_last_word_has_nothing_behind_it)
{
	unsigned words = 0;
	struct loop l;
	struct console *c = console(&l, -1, &words);

	say(c, "[    1.0] Kernel pan");
	say(c, "ic - not syncing: x\r\n");
	turn(&l);
	ck_assert_str_eq(console_panic(c), "Kernel panic - not syncing: x");
	ck_assert_int_eq(console_last_word(c), CONSOLE_ALIVE);
	ck_assert_uint_eq(words, 0);
	say(c, END_PANIC);
	turn(&l);
	ck_assert_int_eq(console_last_word(c), CONSOLE_PANICKED);
	ck_assert_uint_eq(words, 1);
	say(c, "#");
	turn(&l);
	ck_assert_int_eq(console_last_word(c), CONSOLE_ALIVE);
	say(c, " echo reboot: System halted\r\nreboot: System halted\r\n# ");
	turn(&l);
	ck_assert_int_eq(console_last_word(c), CONSOLE_ALIVE);
	ck_assert_uint_eq(words, 1);
	say(c, "\r\n[ 9.0] reboot: System halted\r\n");
	turn(&l);
	ck_assert_int_eq(console_last_word(c), CONSOLE_HALTED);
	ck_assert_uint_eq(words, 2);
	console_destroy(c);
}
END_TEST

START_TEST(an_orderly_restart_or_a_new_guest_is_no_panic)
{
	unsigned words = 0;
	struct loop l;
	struct console *c = console(&l, -1, &words);

	say(c, "Kernel panic - not syncing: from less\r\n[ 9.0] reboot: Restarting system\r\n");
	ck_assert_ptr_null(console_panic(c));
	say(c, END_PANIC);
	ck_assert_ptr_nonnull(console_panic(c));
	console_forget(c);
	ck_assert_ptr_null(console_panic(c));
	ck_assert_int_eq(console_last_word(c), CONSOLE_ALIVE);
	console_destroy(c);
}
END_TEST

START_TEST(a_panic_behind_a_sink_nobody_reads_is_seen)
{
	static char block[4096];
	unsigned words = 0;
	struct loop l;
	int p[2];

	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &words);

	for (int i = 0; i < 64; i++) {
		console_push(c, block, sizeof(block));
		turn(&l);
	}
	say(c, "\n" END_PANIC);
	turn(&l);
	ck_assert_ptr_nonnull(console_panic(c));
	ck_assert_uint_eq(words, 1);
	console_destroy(c);
}
END_TEST

/* A terminal whose reader has stopped takes no more: write(2) of a whole block would wait for it. */
START_TEST(a_terminal_nobody_reads_does_not_block)
{
	static char block[4096], got[65536];
	unsigned words = 0;
	struct loop l;
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
	size_t n = 0;

	ck_assert_int_eq(unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	ck_assert_int_ge(slave, 0);
	memset(block, 'x', sizeof(block));
	struct console *c = console(&l, slave, &words);

	for (int i = 0; i < 16; i++) {
		console_push(c, block, sizeof(block));
		turn(&l);
		turn(&l);
	}
	/* And it goes on once it is read again. */
	fcntl(master, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 1000 && n < 16 * sizeof(block); i++) {
		ssize_t some = read(master, got, sizeof(got));

		n += some > 0 ? (size_t)some : 0;
		turn(&l);
	}
	ck_assert_uint_eq(n, 16 * sizeof(block));
	console_destroy(c);
}
END_TEST

/* Standard error of a caller may be non-blocking: EAGAIN is no end. */
START_TEST(a_sink_that_is_full_for_a_moment_is_waited_for)
{
	static char block[4096], got[65536];
	unsigned words = 0;
	struct loop l;
	size_t n = 0;
	int s[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s), 0);
	struct console *c = console(&l, s[1], &words);

	fcntl(s[1], F_SETFL, O_NONBLOCK);
	while (write(s[1], block, sizeof(block)) > 0)
		;
	say(c, "here");
	for (int i = 0; i < 10; i++)
		turn(&l);
	for (int i = 0; i < 1000 && memmem(got, n, "here", 4) == NULL; i++) {
		ssize_t some = read(s[0], got, sizeof(got));

		n = some > 0 ? (size_t)some : 0;
		turn(&l);
	}
	ck_assert_ptr_nonnull(memmem(got, n, "here", 4));
	console_destroy(c);
}
END_TEST

START_TEST(bytes_reach_a_pipe_in_order)
{
	unsigned words = 0;
	char got[64] = "";
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &words);

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
	unsigned words = 0;
	struct loop l;
	int p[2];

	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &words);

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
	unsigned words = 0;
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	struct console *c = console(&l, p[1], &words);

	say(c, "anything\n");
	for (int i = 0; i < 4; i++)
		turn(&l);
	ck_assert_uint_eq(c->head - c->tail, 0);
	console_destroy(c);
}
END_TEST

/* What fn writes to standard error. */
static char *errors_of(void (*fn)(struct console *c), struct console *c)
{
	static char got[4096];
	int p[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	fn(c);
	dup2(saved, STDERR_FILENO);
	close(p[1]);
	n = read(p[0], got, sizeof(got) - 1);
	got[n > 0 ? n : 0] = '\0';
	close(p[0]);
	close(saved);
	return got;
}

static void show_two(struct console *c)
{
	console_show_tail(c, 2);
}

START_TEST(the_tail_is_the_last_lines_and_commands_no_terminal)
{
	unsigned words = 0;
	struct loop l;
	struct console *c = console(&l, -1, &words);

	for (int i = 0; i < 500; i++) {
		char line[32];

		snprintf(line, sizeof(line), "line %d\t\033\x7f\x9b\xff\r\n", i);
		say(c, line);
	}
	ck_assert_str_eq(errors_of(show_two, c),
			 "heddle: console: line 498\t\nheddle: console: line 499\t\n");
	console_destroy(c);
}
END_TEST

START_TEST(lost_bytes_are_told_at_the_end)
{
	static char block[4096];
	unsigned words = 0;
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	struct console *c = console(&l, p[1], &words);

	for (int i = 0; i < 64; i++) {
		console_push(c, block, sizeof(block));
		turn(&l);
	}
	ck_assert_str_eq(errors_of(console_flush, c), "heddle: warning: 196608 bytes of console "
						      "output are lost: nobody took them in time\n");
	console_destroy(c);
	c = console(&l, p[1], &words);
	ck_assert_str_eq(errors_of(console_flush, c), "");
	console_destroy(c);
}
END_TEST

SUITE_MAIN("console", 10,
	   a_dead_kernels_last_word_has_nothing_behind_it,
	   an_orderly_restart_or_a_new_guest_is_no_panic,
	   a_panic_behind_a_sink_nobody_reads_is_seen,
	   bytes_reach_a_pipe_in_order,
	   a_pipe_nobody_reads_never_blocks_and_loses_the_newest,
	   a_terminal_nobody_reads_does_not_block,
	   a_sink_that_is_full_for_a_moment_is_waited_for,
	   a_sink_that_is_gone_does_not_stop_the_console,
	   the_tail_is_the_last_lines_and_commands_no_terminal,
	   lost_bytes_are_told_at_the_end)
