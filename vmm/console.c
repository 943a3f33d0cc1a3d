/* Kernel console sink: see console.h. */
#include "vmm/console.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/irq.h"
#include "vmm/log.h"

#define FLUSH_TIME_MS 1000

enum step { STEP_DONE, STEP_EMPTY, STEP_MUST_WAIT };

/* --- vCPU threads, under the lock ---------------------------------------------------------------- */

/* The reason is kept by itself: the trace that follows it is longer than the tail. */
static void console_keep_panic(struct console *c, const char *line)
{
	size_t len = 0;

	for (; *line && len < sizeof(c->panic) - 1; line++)
		if (log_may_print(*line))
			c->panic[len++] = *line;
	c->panic[len] = '\0';
}

/* A finished line, by the strings of Linux' kernel/panic.c and kernel/reboot.c. */
static void console_classify(struct console *c)
{
	const char *panic;

	c->line[c->line_len] = '\0';
	panic = strstr(c->line, "Kernel panic - not syncing");
	if (panic && !c->panic[0])
		console_keep_panic(c, panic);
	if (!panic && strstr(c->line, "reboot: "))
		c->panic[0] = '\0';
	if (strstr(c->line, "---[ end Kernel panic - not syncing"))
		c->word = CONSOLE_PANICKED;
	else if (strstr(c->line, "reboot: System halted"))
		c->word = CONSOLE_HALTED;
}

/* Remember a byte, and look at each finished line. */
static void console_watch(struct console *c, uint8_t byte)
{
	c->last[c->last_len++ % CONSOLE_TAIL] = (char)byte;
	c->word = CONSOLE_ALIVE;
	if (c->returned && byte != '\n')
		c->line_len = 0; /* over what was there: a progress bar */
	c->returned = byte == '\r';
	if (byte == '\n') {
		console_classify(c);
		c->line_len = 0;
	} else if (c->line_len < sizeof(c->line) - 1) {
		c->line[c->line_len++] = (char)byte;
	}
}

static void console_keep(struct console *c, uint8_t byte)
{
	if (c->stream.kind == STREAM_CLOSED)
		return;
	if (c->head - c->tail == CONSOLE_RING)
		c->lost++;
	else
		c->ring[c->head++ % CONSOLE_RING] = byte;
}

void console_push(void *console, const void *p, size_t len)
{
	struct console *c = console;
	const uint8_t *from = p;
	bool news, was_empty;

	pthread_mutex_lock(&c->lock);
	was_empty = c->head == c->tail;
	for (size_t i = 0; i < len; i++) {
		console_watch(c, from[i]);
		console_keep(c, from[i]);
	}
	news = c->word != CONSOLE_ALIVE || (was_empty && c->head != c->tail);
	pthread_mutex_unlock(&c->lock);
	if (news)
		irq_signal(c->wake.fd);
}

/* --- words --------------------------------------------------------------------------------------- */

enum console_word console_last_word(struct console *c)
{
	enum console_word word;

	pthread_mutex_lock(&c->lock);
	word = c->word;
	pthread_mutex_unlock(&c->lock);
	return word;
}

const char *console_panic(const struct console *c)
{
	return c->panic[0] ? c->panic : NULL;
}

void console_forget(struct console *c)
{
	pthread_mutex_lock(&c->lock);
	c->word = CONSOLE_ALIVE;
	c->panic[0] = '\0';
	c->line_len = 0;
	pthread_mutex_unlock(&c->lock);
}

/* --- the sink, on main --------------------------------------------------------------------------- */

/* Contiguous waiting bytes; they stay in the ring until console_consume. */
static struct iovec console_peek(struct console *c)
{
	struct iovec v;
	uint32_t at;

	pthread_mutex_lock(&c->lock);
	at = c->tail % CONSOLE_RING;
	v.iov_base = c->ring + at;
	v.iov_len = MIN(c->head - c->tail, CONSOLE_RING - at);
	pthread_mutex_unlock(&c->lock);
	return v;
}

static void console_consume(struct console *c, size_t n)
{
	pthread_mutex_lock(&c->lock);
	c->tail += (uint32_t)n;
	pthread_mutex_unlock(&c->lock);
}

static bool console_can_wait(const struct console *c)
{
	return c->stream.kind != STREAM_FILE && c->stream.kind != STREAM_CLOSED;
}

/* One write. */
static enum step console_step(struct console *c)
{
	struct iovec v = console_peek(c);
	size_t n = v.iov_len;
	ssize_t done;

	if (n == 0)
		return STEP_EMPTY;
	done = stream_writev(&c->stream, &v, 1);
	if (done == -EAGAIN && console_can_wait(c))
		return STEP_MUST_WAIT;
	/* A sink that is gone (EPIPE, ENOSPC) must not hold up the guest: go on without it. */
	if (done < 0) {
		log_limited(LOG_LEVEL_WARN, "console output is lost: %s", strerror((int)-done));
		done = (ssize_t)n;
	}
	console_consume(c, (size_t)done);
	return STEP_DONE;
}

static void console_woken(struct watch *w, uint32_t events)
{
	struct console *c = container_of(w, struct console, wake);
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	if (console_can_wait(c))
		(void)loop_watch(c->loop, &c->sink, EPOLLOUT);
	else
		while (console_step(c) == STEP_DONE)
			;
	if (c->last_word && console_last_word(c) != CONSOLE_ALIVE)
		c->last_word(c->ctx);
}

static void console_sink_ready(struct watch *w, uint32_t events)
{
	struct console *c = container_of(w, struct console, sink);

	if (console_step(c) == STEP_EMPTY)
		(void)loop_watch(c->loop, w, 0);
}

int console_init(struct console *c, struct loop *loop, int fd)
{
	int err;

	*c = (struct console){ .loop = loop };
	pthread_mutex_init(&c->lock, NULL);
	err = stream_open(&c->stream, fd, true);
	if (err)
		return err;
	c->sink = (struct watch){ .fd = c->stream.fd, .ready = console_sink_ready };
	c->wake = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
				  .ready = console_woken };
	err = c->wake.fd < 0 ? -errno : loop_watch(loop, &c->wake, EPOLLIN);
	if (err)
		console_destroy(c);
	return err;
}

void console_destroy(struct console *c)
{
	(void)loop_watch(c->loop, &c->sink, 0);
	(void)loop_watch(c->loop, &c->wake, 0);
	stream_close(&c->stream);
	if (c->wake.fd >= 0)
		close(c->wake.fd);
	pthread_mutex_destroy(&c->lock);
}

void console_flush(struct console *c)
{
	struct pollfd p = { .fd = c->stream.fd, .events = POLLOUT };
	enum step step;

	for (int left = FLUSH_TIME_MS; left > 0 && (step = console_step(c)) != STEP_EMPTY;) {
		if (step == STEP_DONE)
			continue;
		(void)poll(&p, 1, 10);
		left -= 10;
	}
	c->lost += c->head - c->tail;
	c->tail = c->head;
	if (c->lost)
		log_warn("%llu bytes of console output are lost: nobody took them in time",
			 (unsigned long long)c->lost);
}

/* --- the tail ------------------------------------------------------------------------------------ */

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
		} else if (log_may_print(ch)) {
			text[len++] = ch;
		}
	}
	text[len] = '\0';
	if (len)
		log_error("console: %s", text);
}
