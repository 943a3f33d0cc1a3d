/* The guest's console input (vmm/run_input.h). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/run_input.h"

/* A UART with room for so many more bytes. */
struct uart {
	char got[4096];
	size_t n, room;
	unsigned quits;
};

static size_t type(void *ctx, const void *p, size_t len)
{
	struct uart *u = ctx;
	size_t n = len < u->room ? len : u->room;

	memcpy(u->got + u->n, p, n);
	u->n += n;
	u->room -= n;
	return n;
}

static void quit(void *ctx)
{
	((struct uart *)ctx)->quits++;
}

static struct run_input *input(struct loop *l, struct uart *u, int fd, bool raw)
{
	static struct run_input in;

	in = (struct run_input){ .type = type, .quit = quit, .ctx = u };
	ck_assert_int_eq(loop_init(l), 0);
	ck_assert_int_eq(run_input_open(&in, l, fd), 0);
	run_input_start(&in, raw);
	return &in;
}

static void turns(struct loop *l)
{
	struct epoll_event ev[8];
	int n;

	for (int i = 0; i < 50 && (n = epoll_wait(l->epoll_fd, ev, 8, 0)) > 0; i++) {
		for (int k = 0; k < n; k++) {
			struct watch *w = ev[k].data.ptr;

			if (w->events)
				w->ready(w, ev[k].events);
		}
	}
}

static void give(struct run_input *in, struct loop *l, struct uart *u, size_t room)
{
	u->room = room;
	run_input_room(in);
	turns(l);
}

/* A byte sequence with a period of 251. */
static void pattern(char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (char)(i % 251 + 2);
}

START_TEST(ctrl_a_x_works_while_the_guest_takes_nothing)
{
	struct uart u = { 0 };
	static char many[3000];
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	struct run_input *in = input(&l, &u, p[0], true);

	memset(many, 'k', sizeof(many));
	ck_assert_int_eq(write(p[1], many, sizeof(many)), sizeof(many));
	turns(&l);
	ck_assert_uint_eq(u.quits, 0);
	ck_assert_int_eq(write(p[1], "\001", 1), 1);
	turns(&l);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	turns(&l);
	ck_assert_uint_eq(u.quits, 1);
	run_input_close(in);
}
END_TEST

START_TEST(ctrl_a_twice_is_ctrl_a_and_before_others_nothing)
{
	struct uart u = { .room = 100 };
	struct loop l;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	struct run_input *in = input(&l, &u, p[0], true);

	ck_assert_int_eq(write(p[1], "a\001\001b\001cd", 7), 7);
	turns(&l);
	ck_assert_uint_eq(u.quits, 0);
	ck_assert_uint_eq(u.n, 4);
	ck_assert_mem_eq(u.got, "a\001bd", 4);
	run_input_close(in);
}
END_TEST

/* Every byte arrives, in order, however little the UART takes at a time. */
static void check_all(int fd, int fill)
{
	struct uart u = { .room = 10 };
	static char want[3000];
	struct loop l;

	pattern(want, sizeof(want));
	want[7] = 1; /* Ctrl-A has no meaning here */
	want[8] = 'x';
	if (fill >= 0)
		ck_assert_int_eq(write(fill, want, sizeof(want)), sizeof(want));
	struct run_input *in = input(&l, &u, fd, false);

	turns(&l);
	for (int i = 0; i < 100 && u.n < sizeof(want); i++)
		give(in, &l, &u, 37 + i);
	ck_assert_uint_eq(u.n, sizeof(want));
	ck_assert_mem_eq(u.got, want, sizeof(want));
	ck_assert_uint_eq(u.quits, 0);
	run_input_close(in);
}

START_TEST(a_pipe_is_read_no_faster_than_the_guest_takes_it)
{
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	check_all(p[0], p[1]);
}
END_TEST

START_TEST(a_file_is_input_too)
{
	char path[] = "/tmp/run-input-XXXXXX";
	int write_fd = mkstemp(path), fd = open(path, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	unlink(path);
	check_all(fd, write_fd);
}
END_TEST

START_TEST(input_that_is_none_or_ends_is_left_alone)
{
	struct uart u = { .room = 100 };
	struct loop l;
	int p[2];

	run_input_close(input(&l, &u, -1, false));
	run_input_close(input(&l, &u, open("/dev/null", O_RDONLY), false));
	ck_assert_int_eq(pipe(p), 0);
	struct run_input *in = input(&l, &u, p[0], true);

	ck_assert_int_eq(write(p[1], "end", 3), 3);
	close(p[1]);
	turns(&l);
	ck_assert_uint_eq(u.n, 3);
	ck_assert_uint_eq(in->typed.events, 0);
	give(in, &l, &u, 100);
	ck_assert_uint_eq(in->typed.events, 0);
	run_input_close(in);
}
END_TEST

SUITE_MAIN("run_input", 10, ctrl_a_x_works_while_the_guest_takes_nothing,
	   ctrl_a_twice_is_ctrl_a_and_before_others_nothing,
	   a_pipe_is_read_no_faster_than_the_guest_takes_it, a_file_is_input_too,
	   input_that_is_none_or_ends_is_left_alone)
