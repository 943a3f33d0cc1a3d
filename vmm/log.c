/* Messages: see log.h. */
#include "vmm/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_LEN    1024
#define SITE_BURST      10
#define SITE_PERIOD_NS  1000000000LL

static enum log_level max_level = LOG_LEVEL_WARN;

void log_set_level(enum log_level level)
{
	max_level = level;
}

bool log_site_open(struct log_site *site)
{
	struct timespec ts;
	int64_t now, due;

	if (atomic_fetch_add_explicit(&site->n, 1, memory_order_relaxed) < SITE_BURST)
		return true;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = ts.tv_sec * 1000000000LL + ts.tv_nsec;
	due = atomic_load_explicit(&site->next_ns, memory_order_relaxed);
	/* Keep the count from wrapping back into the burst. */
	atomic_store_explicit(&site->n, SITE_BURST, memory_order_relaxed);
	return now >= due && atomic_compare_exchange_strong_explicit(
				     &site->next_ns, &due, now + SITE_PERIOD_NS,
				     memory_order_relaxed, memory_order_relaxed);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	static const char *const prefix[] = { "", "warning: ", "debug: " };
	char line[LINE_MAX_LEN];
	int saved_errno = errno;
	int head, body;
	va_list ap;

	if (level > max_level)
		return;
	head = snprintf(line, sizeof(line), "heddle: %s", prefix[level]);
	va_start(ap, fmt);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head, fmt, ap);
	va_end(ap);
	if (body < 0)
		body = 0;
	head += body;
	if (head > LINE_MAX_LEN - 1)
		head = LINE_MAX_LEN - 1;
	line[head++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)head);
	errno = saved_errno;
}

void log_line(const char *line)
{
	char newline[] = "\n";
	struct iovec v[2] = { { strdup(line), strlen(line) }, { newline, 1 } };

	if (v[0].iov_base)
		(void)!writev(STDERR_FILENO, v, 2);
	free(v[0].iov_base);
}
