/* Console input: see run_input.h. */
#include "vmm/run_input.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/irq.h"

#define ESCAPE_KEY 0x01 /* Ctrl-A */

/* Ctrl-A x ends, Ctrl-A Ctrl-A is Ctrl-A.  Returns the bytes that are for the guest, in place. */
static size_t input_filter(struct run_input *in, char *p, size_t len)
{
	size_t kept = 0;

	for (size_t i = 0; i < len; i++) {
		if (in->escape) {
			in->escape = false;
			if (p[i] == 'x') {
				in->quit(in->ctx);
				return 0;
			}
			if (p[i] != ESCAPE_KEY)
				continue;
		} else if (p[i] == ESCAPE_KEY) {
			in->escape = true;
			continue;
		}
		p[kept++] = p[i];
	}
	return kept;
}

static void input_push(struct run_input *in)
{
	size_t taken = in->len ? in->type(in->ctx, in->buf, in->len) : 0;

	in->len -= taken;
	memmove(in->buf, in->buf + taken, in->len);
}

/* False: nothing was there. */
static bool input_read(struct run_input *in)
{
	char got[sizeof(in->buf)];
	size_t room = sizeof(in->buf) - in->len;
	struct iovec v = { got, in->raw ? sizeof(got) : room };
	ssize_t n = stream_readv(&in->stream, &v, 1);
	size_t kept;

	if (n <= 0) {
		in->ended = n != -EAGAIN;
		return false;
	}
	kept = in->raw ? input_filter(in, got, (size_t)n) : (size_t)n;
	kept = MIN(kept, room);
	memcpy(in->buf + in->len, got, kept);
	in->len += kept;
	return true;
}

/* Move what can be moved; what cannot waits for room.  Files are always ready, and epoll takes none. */
static void input_turn(struct run_input *in)
{
	bool wanted;

	input_push(in);
	if (in->stream.kind == STREAM_FILE)
		while (!in->ended && in->len < sizeof(in->buf) && input_read(in))
			input_push(in);
	wanted = !in->ended && (in->raw || in->len < sizeof(in->buf));
	if (in->stream.kind != STREAM_FILE)
		(void)loop_watch(in->loop, &in->typed, wanted ? EPOLLIN : 0);
}

static void typed_ready(struct watch *w, uint32_t events)
{
	struct run_input *in = container_of(w, struct run_input, typed);

	(void)input_read(in);
	input_turn(in);
}

static void room_ready(struct watch *w, uint32_t events)
{
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	input_turn(container_of(w, struct run_input, room));
}

void run_input_room(struct run_input *in)
{
	irq_signal(in->room.fd);
}

int run_input_open(struct run_input *in, struct loop *loop, int fd)
{
	int err = stream_open(&in->stream, fd, false);

	if (err)
		return err;
	in->loop = loop;
	in->typed = (struct watch){ .fd = in->stream.fd, .ready = typed_ready };
	in->ended = in->stream.kind == STREAM_CLOSED;
	in->room = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = room_ready };
	return in->room.fd < 0 ? -errno : loop_watch(loop, &in->room, EPOLLIN);
}

void run_input_start(struct run_input *in, bool raw)
{
	in->raw = raw;
	input_turn(in);
}

void run_input_close(struct run_input *in)
{
	if (!in->loop)
		return;
	(void)loop_watch(in->loop, &in->typed, 0);
	(void)loop_watch(in->loop, &in->room, 0);
	stream_close(&in->stream);
	if (in->room.fd >= 0)
		close(in->room.fd);
}
