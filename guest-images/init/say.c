/*
 * What the agent has to say: lines in the kernel's log, and the one line about a step that failed.
 */
#include "guest-images/init/agent.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The kernel's log is the one place that is there at every step and comes out on the console in
 * order; without it (no /dev/kmsg) our standard error, which is the console.  Opened anew each
 * time: the path changes its meaning when the root does, and lines are rare.
 */
static void agent_log(int level, const char *fmt, va_list ap)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "<%d>heddle-agent: ", level);
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	n += vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (fd < 0 || write(fd, line, n) < 0)
		(void)!write(2, line + 3, n - 3); /* without the level */
	if (fd >= 0)
		close(fd);
}

void agent_err(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	agent_log(3, fmt, ap); /* KERN_ERR: shown even with "quiet" */
	va_end(ap);
}

void agent_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	agent_log(5, fmt, ap); /* KERN_NOTICE */
	va_end(ap);
}

int agent_fail(struct agent *a, int err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	a->status = (struct channel_status){ .kind = CHANNEL_SETUP_FAILED, .code = err };
	va_start(ap, fmt);
	vsnprintf(a->status.text, sizeof(a->status.text), fmt, ap);
	va_end(ap);
	n = strlen(a->status.text);
	snprintf(a->status.text + n, sizeof(a->status.text) - n, ": %s", strerror(err));
	return -err;
}
