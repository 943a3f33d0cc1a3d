/* Kernel console sink: see console.h. */
#include "vmm/console.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/irq.h"
#include "vmm/log.h"

/* poll says "writable" for a pipe when PIPE_BUF bytes fit: a write of that much does not block. */
#define CONSOLE_STEP  4096
#define FLUSH_TIME_MS 1000

static void console_classify(struct console *c)
{
	c->line[c->line_len] = '\0';
	if (!c->event)
		return;
	if (strstr(c->line, "Kernel panic - not syncing"))
		c->event(c->ctx, CONSOLE_PANIC);
	else if (strstr(c->line, "reboot: System halted"))
		c->event(c->ctx, CONSOLE_HALT);
}

/* Remember the bytes and look at each finished line. */
static void console_watch(struct console *c, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		c->last[c->last_len++ % CONSOLE_TAIL] = (char)p[i];
		if (p[i] == '\n') {
			console_classify(c);
			c->line_len = 0;
		} else if (c->line_len < sizeof(c->line) - 1) {
			c->line[c->line_len++] = (char)p[i];
		}
	}
}

/* Up to CONSOLE_STEP contiguous waiting bytes; they stay in the ring until console_consume. */
static size_t console_peek(struct console *c, const uint8_t **p)
{
	uint32_t at, n;

	pthread_mutex_lock(&c->lock);
	at = c->tail % CONSOLE_RING;
	n = MIN(c->head - c->tail, CONSOLE_RING - at);
	pthread_mutex_unlock(&c->lock);
	*p = c->ring + at;
	return MIN(n, CONSOLE_STEP);
}

static void console_consume(struct console *c, const uint8_t *p, size_t n)
{
	console_watch(c, p, n);
	pthread_mutex_lock(&c->lock);
	c->tail += (uint32_t)n;
	pthread_mutex_unlock(&c->lock);
}

/* One write.  False when nothing waits or the sink must be waited for. */
static bool console_step(struct console *c)
{
	const uint8_t *p;
	size_t n = console_peek(c, &p);
	ssize_t done;

	if (n == 0)
		return false;
	if (c->fd < 0) {
		console_consume(c, p, n);
		return true;
	}
	done = write(c->fd, p, n);
	if (done < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* A sink that is gone (EPIPE, ENOSPC) must not hold up the guest: go on without it. */
	if (done < 0) {
		log_limited(LOG_LEVEL_WARN, "console output is lost: %s", strerror(errno));
		done = (ssize_t)n;
	}
	console_consume(c, p, (size_t)done);
	return true;
}

static void console_drain(struct console *c)
{
	if (!c->sink_polls)
		while (console_step(c))
			;
	else
		(void)loop_watch(c->loop, &c->sink, EPOLLOUT);
}

static void console_woken(struct watch *w, uint32_t events)
{
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	console_drain(container_of(w, struct console, wake));
}

static void console_sink_ready(struct watch *w, uint32_t events)
{
	struct console *c = container_of(w, struct console, sink);

	if (!console_step(c))
		(void)loop_watch(c->loop, w, 0);
}

int console_init(struct console *c, struct loop *loop, int fd)
{
	*c = (struct console){ .fd = fd, .loop = loop };
	pthread_mutex_init(&c->lock, NULL);
	c->wake = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
				  .ready = console_woken };
	if (c->wake.fd < 0)
		return -errno;
	c->sink = (struct watch){ .fd = fd, .ready = console_sink_ready };
	if (fd >= 0 && loop_watch(loop, &c->sink, EPOLLOUT) == 0) {
		c->sink_polls = true;
		(void)loop_watch(loop, &c->sink, 0);
	}
	return loop_watch(loop, &c->wake, EPOLLIN);
}

void console_destroy(struct console *c)
{
	if (c->wake.fd <= 0)
		return;
	(void)loop_watch(c->loop, &c->wake, 0);
	close(c->wake.fd);
	c->wake.fd = -1;
	pthread_mutex_destroy(&c->lock);
}

void console_push(void *console, const void *p, size_t len)
{
	struct console *c = console;
	const uint8_t *from = p;
	bool was_empty;

	pthread_mutex_lock(&c->lock);
	was_empty = c->head == c->tail;
	for (size_t i = 0; i < len; i++) {
		if (c->head - c->tail == CONSOLE_RING) {
			c->lost += len - i;
			break;
		}
		c->ring[c->head++ % CONSOLE_RING] = from[i];
	}
	pthread_mutex_unlock(&c->lock);
	if (was_empty)
		irq_signal(c->wake.fd);
}

void console_flush(struct console *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLOUT };
	int left = FLUSH_TIME_MS;

	while (left > 0) {
		if (c->sink_polls && poll(&p, 1, 10) != 1) {
			left -= 10;
			continue;
		}
		if (!console_step(c))
			break;
	}
}

/* Where the last n lines start, as an index of the free-running count. */
static uint32_t console_tail_start(const struct console *c, unsigned n)
{
	uint32_t oldest = c->last_len > CONSOLE_TAIL ? c->last_len - CONSOLE_TAIL : 0;
	uint32_t at = c->last_len;

	while (at > oldest) {
		if (c->last[(at - 1) % CONSOLE_TAIL] == '\n' && at != c->last_len && --n == 0)
			break;
		at--;
	}
	return at;
}

void console_show_tail(const struct console *c, unsigned n)
{
	char text[200];
	size_t len = 0;

	for (uint32_t at = console_tail_start(c, n); at < c->last_len; at++) {
		char ch = c->last[at % CONSOLE_TAIL];

		if (ch == '\n' || len == sizeof(text) - 1) {
			text[len] = '\0';
			log_error("console: %s", text);
			len = 0;
		} else if ((unsigned char)ch >= ' ' || ch == '\t') {
			text[len++] = ch;
		}
	}
	text[len] = '\0';
	if (len)
		log_error("console: %s", text);
}
