/*
 * Pumps: threads that carry the command's input and output between its pipes or terminal and
 * heddle's files on the channel, and one that turns heddle's events into signals and window sizes.
 *
 *	input   channel -> command.  End of file closes the command's input (on a terminal: types
 *	        ^D).
 *	output  command -> channel, one thread each for output and error.
 *	events  channel -> kill, TIOCSWINSZ.
 *
 * A read of the channel cannot be interrupted, so input and events are never waited for: they end
 * with the machine.  Output threads wait for data and for the finish descriptor, and after that has
 * spoken end as soon as nothing is left.  They do not wait for end of file: a background process
 * may hold the other end.
 *
 * When heddle cannot deliver output any more (its reader has gone), the command's pipe is closed,
 * so that the command gets the SIGPIPE or EPIPE it would have got from the real reader.  A terminal
 * instead hangs up, as terminals do; what is written to it afterwards is dropped.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* One FUSE request carries at most this much; smaller would only mean more of them. */
#define PUMP_LEN (1 << 20)

/* How often a terminal that nobody has open is looked at again. */
#define HANGUP_POLL_MS 100

struct pump {
	struct pumps *all;
	int from, to;
	char *buf;
	pthread_t thread;
};

struct pumps {
	const struct command *c;
	int events;
	int finish; /* eventfd, never read: once written, every poll sees it */
	struct pump in, out, err;
};

static bool write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= n;
	}
	return true;
}

static ssize_t read_some(int fd, void *buf, size_t len)
{
	ssize_t n;

	do
		n = read(fd, buf, len);
	while (n < 0 && errno == EINTR);
	return n;
}

static void *input_main(void *arg)
{
	struct pump *p = arg;
	ssize_t n;

	while ((n = read_some(p->from, p->buf, PUMP_LEN)) > 0)
		if (!write_all(p->to, p->buf, n))
			break;
	if (p->all->c->tty)
		write_all(p->to, "\004", 1);
	else
		close(p->to);
	return NULL;
}

/*
 * True: there is something to read, or an end to find out about.  False: finished and nothing left.
 */
static bool output_wait(struct pump *p, bool *finished)
{
	struct pollfd fd[] = {
		{ .fd = p->from, .events = POLLIN },
		{ .fd = p->all->finish, .events = POLLIN },
	};

	while (poll(fd, 2, -1) < 0)
		;
	*finished = fd[1].revents != 0;
	return fd[0].revents != 0;
}

/* Nobody has the terminal open now, but somebody may open it again. */
static void hangup_wait(struct pump *p)
{
	struct pollfd fd = { .fd = p->all->finish, .events = POLLIN };

	poll(&fd, 1, HANGUP_POLL_MS);
}

static void output_lost(struct pump *p)
{
	if (p->all->c->tty)
		kill(-p->all->c->pid, SIGHUP);
	else
		close(p->from);
}

/* An end is the end on a pipe.  On a terminal only if the command was over before it was read. */
static void *output_main(void *arg)
{
	struct pump *p = arg;
	const bool tty = p->all->c->tty;
	bool lost = false, finished;

	while (output_wait(p, &finished)) {
		ssize_t n = read_some(p->from, p->buf, PUMP_LEN);

		if (n <= 0 && (!tty || finished))
			break;
		if (n <= 0)
			hangup_wait(p);
		else if (!lost && !write_all(p->to, p->buf, n)) {
			lost = true;
			output_lost(p);
			if (!tty)
				break;
		}
	}
	return NULL;
}

static void event_act(const struct command *c, const struct channel_event *e)
{
	const struct winsize ws = { .ws_row = e->a, .ws_col = e->b };

	if (e->kind == CHANNEL_EVENT_SIGNAL && e->a > 0 && e->a < NSIG)
		kill(-c->pid, e->a);
	else if (e->kind == CHANNEL_EVENT_WINSIZE && c->tty)
		ioctl(c->out, TIOCSWINSZ, &ws);
}

static void *events_main(void *arg)
{
	struct pumps *p = arg;
	struct channel_event e;

	while (read_some(p->events, &e, sizeof(e)) == sizeof(e))
		event_act(p->c, &e);
	return NULL;
}

static int pump_start(struct pumps *all, struct pump *p, int from, int to, void *(*fn)(void *))
{
	*p = (struct pump){ .all = all, .from = from, .to = to, .buf = malloc(PUMP_LEN) };
	if (!p->buf)
		return ENOMEM;
	return pthread_create(&p->thread, NULL, fn, p);
}

int pumps_start(struct agent *a, const struct command *c, struct pumps **out)
{
	struct pumps *p = calloc(1, sizeof(*p));
	pthread_t events;
	int err = 0;

	if (!p)
		return agent_fail(a, ENOMEM, "pumps");
	p->c = c;
	p->events = a->ch.events;
	p->finish = eventfd(0, EFD_CLOEXEC);
	if (p->finish < 0)
		err = errno;
	if (!err)
		err = pump_start(p, &p->out, c->out, a->ch.out, output_main);
	if (!err && !c->tty)
		err = pump_start(p, &p->err, c->err, a->ch.err, output_main);
	if (!err)
		err = pump_start(p, &p->in, a->ch.in, c->in, input_main);
	if (!err)
		err = pthread_create(&events, NULL, events_main, p);
	if (err) { /* those that have started keep p; the machine ends */
		*out = p;
		return agent_fail(a, err, "pumps");
	}
	pthread_detach(p->in.thread);
	pthread_detach(events);
	*out = p;
	return 0;
}

void pumps_drain(struct pumps *p)
{
	const uint64_t one = 1;

	(void)!write(p->finish, &one, sizeof(one));
	pthread_join(p->out.thread, NULL);
	if (!p->c->tty)
		pthread_join(p->err.thread, NULL);
}
