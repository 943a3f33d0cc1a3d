/*
 * Fuzzer for heddle's end of the channel: a guest that sends any requests in any state, while the
 * program at heddle's standard input and output is slow, fast or gone.
 *
 * Input: a byte that chooses what standard input and output are, then steps.  Each step's first
 * byte chooses what happens, the next ones are its parameters.  Checked: each request is completed
 * once or forgotten by a reset, and no reply is longer than its room or says so.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tests/fuzz/input.h"
#include "tests/unit/channel_guest.h"
#include "vmm/log.h"

#define REQUESTS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz {
	struct guest g;
	struct fs_request *r[REQUESTS_MAX];
	unsigned n;
	int feed, drain; /* the other ends of stdin and stdout; -1 when gone */
	unsigned n_status;
};

static void on_status(void *ctx, const struct channel_status *s)
{
	struct fuzz *f = ctx;

	require(++f->n_status == 1);
	require(s->kind >= CHANNEL_EXITED && s->kind <= CHANNEL_SETUP_FAILED);
	require(strnlen(s->text, sizeof(s->text)) < sizeof(s->text));
}

static void check_request(const struct fs_request *r)
{
	struct fuse_out_header h;

	require(r->completed <= 1);
	if (!r->completed || r->result <= 0)
		return;
	require((size_t)r->result <= r->out_len);
	memcpy(&h, r->out, sizeof(h));
	require(h.len == (size_t)r->result && h.error <= 0 && h.error > -1000);
}

static void forget_requests(struct fuzz *f)
{
	for (unsigned i = 0; i < f->n; i++) {
		check_request(f->r[i]);
		request_free(f->r[i]);
	}
	f->n = 0;
}

static void keep(struct fuzz *f, struct fs_request *r)
{
	f->r[f->n++] = r;
	check_request(r);
}

/* Bytes as they come, on any queue. */
static void step_raw(struct fuzz *f, struct input *in)
{
	const unsigned worker = take(in, 1) & 1;
	const size_t out_len = take(in, 1), piece = 1 + take(in, 1);
	const size_t len = take(in, 1);
	uint8_t buf[256];

	for (size_t i = 0; i < len; i++)
		buf[i] = take(in, 1);
	keep(f, request_new(buf, len, out_len, piece));
	guest_serve(&f->g, f->r[f->n - 1], worker);
	check_request(f->r[f->n - 1]);
}

/* A request whose header makes sense; lengths need not. */
static void step_request(struct fuzz *f, struct input *in)
{
	static const uint8_t opcodes[] = {
		FUSE_INIT, FUSE_LOOKUP, FUSE_GETATTR,	FUSE_OPEN,    FUSE_READ,   FUSE_WRITE,
		FUSE_READ, FUSE_WRITE,	FUSE_INTERRUPT, FUSE_RELEASE, FUSE_STATFS, FUSE_FORGET
	};
	const uint32_t opcode = opcodes[take(in, 1) % sizeof(opcodes)];
	struct fuse_write_in w = { .size = take(in, 2) };
	const uint64_t node = take(in, 1) % 9;
	const size_t body = take(in, 1) % (sizeof(w) + 1);
	const size_t data_len = take(in, 2), out_len = take(in, 2), piece = 1 + take(in, 2);
	static uint8_t data[65536];

	if (opcode == FUSE_INTERRUPT)
		w.fh = 101 + take(in, 1) % 64;
	memset(data, (int)take(in, 1), 512);
	keep(f, guest_send(&f->g, opcode, node, &w, body, data, data_len, out_len, piece));
}

static void step_status(struct fuzz *f, struct input *in)
{
	struct channel_status s = { .kind = take(in, 1), .code = take(in, 4) };

	memset(s.text, (int)take(in, 1), sizeof(s.text));
	keep(f, guest_write(&f->g, NODE_STATUS, &s, sizeof(s) - take(in, 1) % 2));
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* What others do: the program before and behind us, main, a reset. */
static void step_world(struct fuzz *f, struct input *in)
{
	static char buf[8192];

	switch (take(in, 1) % 8) {
	case 0:
		(void)!write(f->feed, buf, take(in, 2) % sizeof(buf));
		break;
	case 1:
		(void)!read(f->drain, buf, take(in, 2) % sizeof(buf));
		break;
	case 2:
		close_end(&f->feed);
		break;
	case 3:
		close_end(&f->drain);
		break;
	case 4:
		channel_signal(f->g.c, (int)take(in, 1));
		break;
	case 5:
		channel_winsize(f->g.c, (unsigned)take(in, 3), (unsigned)take(in, 3));
		break;
	case 6:
		guest_end(&f->g);
		forget_requests(f);
		require(guest_begin(&f->g, f->g.c) == 0);
		break;
	default:
		guest_turn(&f->g, 0);
	}
}

static void step(struct fuzz *f, struct input *in)
{
	switch (take(in, 1) % 8) {
	case 0:
		step_raw(f, in);
		break;
	case 1:
		step_status(f, in);
		break;
	case 2:
	case 3:
		step_world(f, in);
		break;
	default:
		step_request(f, in);
	}
	guest_turn(&f->g, 0);
}

/* Our ends, and the channel's in far[2].  The fuzzer's own descriptors never wait. */
static void make_wires(struct fuzz *f, unsigned kind, int far[2])
{
	int p[2][2];

	require(pipe2(p[0], O_CLOEXEC | O_NONBLOCK) == 0 &&
		pipe2(p[1], O_CLOEXEC | O_NONBLOCK) == 0);
	f->feed = p[0][1];
	f->drain = p[1][0];
	far[0] = p[0][0];
	far[1] = p[1][1];
	if (kind & 1)
		far[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (kind & 2)
		far[1] = open("/dev/full", O_WRONLY | O_CLOEXEC);
	if (kind & 1)
		close(p[0][0]);
	if (kind & 2)
		close(p[1][1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	static struct fuzz f;
	struct channel_opts o = { .on_status = on_status, .ctx = &f };
	struct channel *c;
	int far[2];

	log_set_level(LOG_LEVEL_ERROR);
	signal(SIGPIPE, SIG_IGN);
	f = (struct fuzz){ 0 };
	make_wires(&f, (unsigned)take(&in, 1), far);
	o.stdin_fd = far[0];
	o.stdout_fd = far[1];
	o.stderr_fd = -1;
	require(channel_create(&o, &c) == 0 && guest_begin(&f.g, c) == 0);
	while (in.left > 0 && f.n < REQUESTS_MAX)
		step(&f, &in);
	guest_end(&f.g);
	forget_requests(&f);
	channel_destroy(c);
	close_end(&f.feed);
	close_end(&f.drain);
	close(far[0]);
	close(far[1]);
	return 0;
}
