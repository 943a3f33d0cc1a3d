/*
 * The end of the command, and of the machine.
 *
 * While the command runs this thread is PID 1 to everything: it reaps whatever ends.  When the
 * command has ended, what it left running gets a moment to end by itself (the `tee` of a shell's
 * process substitution is only then about to see its end of file), and is killed after that.  Then
 * the output in the pipes is final, is drained, file systems are synced, and the status goes to
 * heddle: for heddle that is the end, so nothing may come after it that matters.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS 300  /* for what the command left running: a few forks on a slow machine */
#define KILL_MS	 1000 /* a process stuck in the kernel does not keep the machine up */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Reap until no child is left (true) or the time is over.  SIGCHLD is blocked and so stays pending.
 */
static bool reap_all(int ms)
{
	const int64_t end = now_ms() + ms;
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	for (;;) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);
		int64_t left = end - now_ms();

		if (pid < 0)
			return true;
		if (left <= 0)
			return false;
		if (pid == 0)
			sigtimedwait(&chld, NULL,
				     &(struct timespec){ .tv_nsec = left % 1000 * 1000000,
							 .tv_sec = left / 1000 });
	}
}

static void status_from_wait(struct channel_status *s, int wait_status)
{
	*s = (struct channel_status){ .kind = CHANNEL_EXITED, .code = WEXITSTATUS(wait_status) };
	if (WIFSIGNALED(wait_status)) {
		s->kind = CHANNEL_SIGNALLED;
		s->code = WTERMSIG(wait_status);
	}
}

void command_wait(struct agent *a, const struct command *c, struct pumps *p)
{
	int wait_status = 0;
	pid_t pid;

	do
		pid = waitpid(-1, &wait_status, 0);
	while (pid != c->pid && (pid >= 0 || errno == EINTR));
	status_from_wait(&a->status, wait_status);
	if (!reap_all(GRACE_MS)) {
		kill(-1, SIGKILL);
		reap_all(KILL_MS);
	}
	pumps_drain(p);
}

void agent_report(const struct agent *a)
{
	const struct channel_status *s = &a->status;

	if (s->kind == CHANNEL_SETUP_FAILED)
		agent_err("%s", s->text);
	if (a->ch.status >= 0 && write(a->ch.status, s, sizeof(*s)) < 0)
		agent_err("cannot report to heddle: %s", strerror(errno));
}

void agent_end(struct agent *a)
{
	sync();
	unmount_shares(&a->spec);
	mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	agent_report(a);
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
