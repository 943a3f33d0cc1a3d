/*
 * The verdict: see run_end.h.  What decides, in this order:
 *	1. the agent's status	-> the command's own code
 *	2. our own decision	-> the time limit (124) or a signal (128+n)
 *	3. the way the VM ended	-> power off (0 without a command, else 122), reset, crash (122); the
 *				   console tells a panic's reset (123) from others
 *	4. the guest's console	-> a kernel that stays as it is, panicked (123) or halted (122): it says
 *				   so, and after that nothing at all
 */
#include "vmm/run_end.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vmm/console.h"
#include "vmm/log.h"
#include "vmm/run.h"

#define TAIL_LINES 40 /* a panic with its trace */
/*
 * To put all away takes milliseconds, but for a second that a console nobody reads has (FLUSH_TIME_MS),
 * and a sync in hand.
 */
#define LEAVE_S 2

static int status_code(const struct run_end *e)
{
	const struct channel_status *s = &e->status;

	switch (s->kind) {
	case CHANNEL_EXITED:
		return (int)(s->code & 0xff);
	case CHANNEL_SIGNALLED:
		return RUN_EXIT_SIGNAL + (int)(s->code & 0x7f);
	case CHANNEL_CANNOT_EXEC:
		log_error("%s: %s", e->program, strerror((int)s->code));
		return s->code == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_CANNOT_EXEC;
	default:
		log_error("guest set-up failed: %s", s->text);
		return RUN_EXIT_SETUP;
	}
}

/* what: NULL when it is logged already. */
static int no_status(const struct run_end *e, int code, const char *what)
{
	if (what)
		log_error("%s", what);
	if (!e->console_seen)
		console_show_tail(e->console, TAIL_LINES);
	return code;
}

static int powered_off(const struct run_end *e)
{
	if (!e->command && (!e->agent || e->mounted))
		return 0;
	if (e->mounted)
		return no_status(e, RUN_EXIT_NO_STATUS, "the guest powered off without a status");
	return no_status(e, RUN_EXIT_SETUP,
			 e->modules ? "the guest's kernel did not mount virtio-fs" :
				      "the guest's kernel did not mount virtio-fs, and no modules "
				      "were found for it (see --modules)");
}

static int panicked(const struct run_end *e)
{
	log_error("the guest died: %s", console_panic(e->console));
	return no_status(e, RUN_EXIT_PANIC, NULL);
}

/* The console's last word ended it, or Ctrl-A x did. */
static int still_running(const struct run_end *e)
{
	switch (e->word) {
	case CONSOLE_PANICKED:
		return panicked(e);
	case CONSOLE_HALTED:
		return no_status(e, RUN_EXIT_NO_STATUS, "the guest halted without a status");
	default:
		return e->quit && !e->command ? 0 : no_status(e, RUN_EXIT_NO_STATUS, "ended");
	}
}

int run_end_code(const struct run_end *e)
{
	if (atomic_load(&e->has_status))
		return status_code(e);
	if (e->timed_out)
		return no_status(e, RUN_EXIT_TIMEOUT, "time limit reached, guest ended");
	switch (e->end) {
	case VM_RUNNING:
		return e->signal ? RUN_EXIT_SIGNAL + e->signal : still_running(e);
	case VM_POWEROFF:
		return powered_off(e);
	case VM_RESET:
		if (console_panic(e->console))
			return panicked(e);
		return no_status(e, RUN_EXIT_NO_STATUS, "the guest reset without a status");
	default:
		return no_status(e, RUN_EXIT_NO_STATUS, NULL);
	}
}

/* --- when something holds us ------------------------------------------------------------------ */

/* The same as run_end_code(), without a word. */
static int code_so_far(const struct run_end *e)
{
	const struct channel_status *s = &e->status;

	if (atomic_load(&e->has_status)) {
		if (s->kind == CHANNEL_EXITED || s->kind == CHANNEL_SIGNALLED)
			return status_code(e);
		if (s->kind == CHANNEL_CANNOT_EXEC)
			return s->code == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_CANNOT_EXEC;
		return RUN_EXIT_SETUP;
	}
	if (e->timed_out)
		return RUN_EXIT_TIMEOUT;
	if (e->end == VM_RUNNING && e->signal)
		return RUN_EXIT_SIGNAL + e->signal;
	if (e->end == VM_RUNNING && e->word == CONSOLE_PANICKED)
		return RUN_EXIT_PANIC;
	if (e->end == VM_RESET && console_panic(e->console))
		return RUN_EXIT_PANIC;
	if (e->end == VM_RUNNING && e->word != CONSOLE_HALTED && e->quit && !e->command)
		return 0;
	if (e->end == VM_POWEROFF && !e->command && (!e->agent || e->mounted))
		return 0;
	return e->end == VM_POWEROFF && !e->mounted ? RUN_EXIT_SETUP : RUN_EXIT_NO_STATUS;
}

/* A signal handler: nothing but system calls. */
static void leave_now(int sig, siginfo_t *info, void *context)
{
	static const char line[] =
		"heddle: ended before all was put away: a share does not answer\n";
	struct run_end *e = info->si_value.sival_ptr;

	(void)sig;
	(void)context;
	term_restore(e->term);
	(void)!write(STDERR_FILENO, line, sizeof(line) - 1);
	_exit(e->code);
}

void run_end_soon(struct run_end *e, struct term *term)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct sigaction action = { .sa_sigaction = leave_now, .sa_flags = SA_SIGINFO };
	const struct itimerspec when = { .it_value.tv_sec = LEAVE_S };
	sigset_t set;

	e->term = term;
	e->code = code_so_far(e);
	event.sigev_value.sival_ptr = e;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	/* Without a timer we may have to wait: no reason to fail. */
	e->has_timer = sigaction(SIGALRM, &action, NULL) == 0 &&
		       timer_create(CLOCK_MONOTONIC, &event, &e->timer) == 0;
	if (e->has_timer && timer_settime(e->timer, 0, &when, NULL) == 0)
		sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void run_end_done(struct run_end *e)
{
	if (e->has_timer)
		timer_delete(e->timer);
	e->has_timer = false;
}
