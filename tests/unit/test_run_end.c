/* How a run ended -> exit code and message (vmm/run_end.h), and `heddle check`'s options. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/console.h"
#include "vmm/hostcheck.h"
#include "vmm/run_end.h"

static char said[4096]; /* on standard error */

/* The code, with what the guest's console printed. */
static int code(struct run_end e, const char *printed)
{
	static struct console c;
	int p[2], saved = dup(STDERR_FILENO), result;
	struct term term = { 0 };
	struct loop l;
	ssize_t n;

	ck_assert_int_eq(loop_init(&l), 0);
	ck_assert_int_eq(console_init(&c, &l, -1), 0);
	console_push(&c, printed, strlen(printed));
	e.console = &c;
	ck_assert_int_eq(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	/* What would be said if something held us is the verdict, too. */
	run_end_soon(&e, &term);
	run_end_done(&e);
	result = run_end_code(&e);
	ck_assert_int_eq(e.code, result);
	dup2(saved, STDERR_FILENO);
	close(p[1]);
	n = read(p[0], said, sizeof(said) - 1);
	said[n > 0 ? n : 0] = '\0';
	close(p[0]);
	close(saved);
	console_destroy(&c);
	loop_destroy(&l);
	return result;
}

#define PANIC  "[1.0] Kernel panic - not syncing: x\r\n"
#define END    "[1.0] ---[ end Kernel panic - not syncing: x ]---\r\n"
#define HALTED "[1.0] reboot: System halted\r\n"
#define AGENT  .agent = true, .mounted = true

START_TEST(the_agents_word_comes_first)
{
	struct run_end e = { .has_status = true, .status = { .kind = CHANNEL_EXITED, .code = 7 },
			     .timed_out = true, .signal = SIGTERM, .end = VM_RESET, AGENT,
			     .command = true, .program = "prog" };

	ck_assert_int_eq(code(e, PANIC), 7);
	ck_assert_str_eq(said, "");
	e.status.kind = CHANNEL_SIGNALLED;
	ck_assert_int_eq(code(e, ""), 135);
	e.status = (struct channel_status){ .kind = CHANNEL_CANNOT_EXEC, .code = ENOENT };
	ck_assert_int_eq(code(e, ""), 127);
	ck_assert_str_eq(said, "heddle: prog: No such file or directory\n");
	e.status.code = EACCES;
	ck_assert_int_eq(code(e, ""), 126);
	e.status.kind = CHANNEL_SETUP_FAILED;
	ck_assert_int_eq(code(e, ""), 125);
}
END_TEST

START_TEST(our_own_decision_comes_second)
{
	ck_assert_int_eq(code((struct run_end){ .timed_out = true, .signal = 15 }, END), 124);
	ck_assert_int_eq(code((struct run_end){ .signal = SIGTERM }, END), 143);
	ck_assert_int_eq(code((struct run_end){ .signal = SIGTERM, .end = VM_POWEROFF }, ""), 0);
}
END_TEST

START_TEST(a_panic_is_told_from_other_resets_by_the_console)
{
	const struct run_end reset = { .end = VM_RESET, .command = true, AGENT };

	ck_assert_int_eq(code(reset, PANIC), 123);
	ck_assert_str_eq(said, "heddle: the guest died: Kernel panic - not syncing: x\n"
			       "heddle: console: [1.0] Kernel panic - not syncing: x\n");
	ck_assert_int_eq(code(reset, ""), 122);
	ck_assert_int_eq(code(reset, PANIC "[2.0] reboot: Restarting system\r\n"), 122);
	/* Someone who reads about panics, and then leaves. */
	ck_assert_int_eq(code((struct run_end){ .quit = true }, PANIC END "# "), 0);
	ck_assert_int_eq(code((struct run_end){ .end = VM_POWEROFF, AGENT }, PANIC END "# "), 0);
	ck_assert_int_eq(code((struct run_end){ .word = CONSOLE_PANICKED }, PANIC END), 123);
	ck_assert_int_eq(code((struct run_end){ .word = CONSOLE_HALTED }, HALTED), 122);
	/* The console that made us stop has said more since: no command of a killed guest succeeds. */
	ck_assert_int_eq(code((struct run_end){ .command = true, AGENT }, "more"), 122);
}
END_TEST

START_TEST(a_guest_whose_agent_never_came_to_it_failed_to_set_up)
{
	struct run_end e = { .end = VM_POWEROFF, .agent = true, .command = true, .modules = true };

	ck_assert_int_eq(code(e, ""), 125);
	ck_assert_str_eq(said, "heddle: the guest's kernel did not mount virtio-fs\n");
	e.modules = false;
	ck_assert_int_eq(code(e, ""), 125);
	ck_assert_ptr_nonnull(strstr(said, "no modules were found"));
	e.command = false; /* --init */
	ck_assert_int_eq(code(e, ""), 125);
	e.mounted = true;
	ck_assert_int_eq(code(e, ""), 0);
	e.command = true;
	ck_assert_int_eq(code(e, ""), 122);
	ck_assert_int_eq(code((struct run_end){ .end = VM_POWEROFF }, ""), 0);
}
END_TEST

START_TEST(a_crash_is_logged_where_it_happened)
{
	ck_assert_int_eq(code((struct run_end){ .end = VM_CRASHED, .command = true, AGENT }, ""), 122);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(check_takes_its_options_and_nothing_else)
{
	char *help[] = { "check", "--help", NULL }, *stray[] = { "check", "stray", NULL };

	ck_assert_int_eq(hostcheck_main(2, help), 0);
	ck_assert_int_eq(hostcheck_main(2, stray), 125);
}
END_TEST

SUITE_MAIN("run_end", 10, the_agents_word_comes_first, our_own_decision_comes_second,
	   a_panic_is_told_from_other_resets_by_the_console,
	   a_guest_whose_agent_never_came_to_it_failed_to_set_up, a_crash_is_logged_where_it_happened,
	   check_takes_its_options_and_nothing_else)
