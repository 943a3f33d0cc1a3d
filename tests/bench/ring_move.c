/* Samples of bench-ring: the fake guest's part in them, and the bare loop; see ring_rig.h. */
#include "tests/bench/ring_internal.h"

#include <sys/prctl.h>

static uint64_t io_cpu_ns(unsigned i)
{
	clockid_t clock;

	need(pthread_getcpuclockid(rig.d->thread[i].thread, &clock) == 0, "thread clock");
	return clock_ns(clock);
}

/* --- the guest -------------------------------------------------------------------------------- */

/*
 * Take what was used and offer as much again.  Chains are used in order here, so the entries and
 * their place in line stay what they are.
 */
static void recycle(unsigned queue, struct lane *l)
{
	struct ring *r = &rig.ring[queue];
	uint32_t head, len;
	unsigned n = 0;

	for (; ring_take(r, &head, &len); n++) {
		need(head == ((r->last_used - 1u) & (RING - 1)), "used out of order");
		l->used_bytes += len;
	}
	l->left -= n;
	n = MIN(n, l->todo);
	l->todo -= n;
	if (n > 0)
		offer(queue, n);
}

/* Ask for an interrupt when half the ring was used, or all; true: it was already. */
static bool ask(unsigned queue, const struct lane *l)
{
	struct ring *r = &rig.ring[queue];
	uint16_t n = (uint16_t)MIN(l->left, RING / 2);

	__atomic_store_n(ring_used_event(r), (uint16_t)(r->last_used + n - 1), __ATOMIC_RELAXED);
	/* Full barrier: pairs with the device's in virtq_publish. */
	__sync_synchronize();
	return (uint16_t)(__atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) - r->last_used) >= n;
}

/* Until all that is left on queue `first` of each pair has been used. */
static void serve(unsigned first)
{
	struct pollfd p[BENCH_QUEUES_MAX];
	unsigned busy;
	uint64_t count;

	do {
		busy = 0;
		for (unsigned i = 0; i < rig.pairs; i++) {
			unsigned queue = first + RX(i);

			while (lane[i].left > 0 && ask(queue, &lane[i]))
				recycle(queue, &lane[i]);
			p[busy] = (struct pollfd){ .fd = rig.call[queue], .events = POLLIN };
			busy += lane[i].left > 0;
		}
		need(busy == 0 || poll(p, busy, 10000) > 0, "the device stands still");
		for (unsigned i = 0; i < busy; i++)
			if (p[i].revents)
				(void)!read(p[i].fd, &count, sizeof(count));
	} while (busy > 0);
}

struct sample rig_send(unsigned frames)
{
	struct sample s = { .frames = (double)frames * rig.pairs };
	uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC), sent = 0;

	for (unsigned i = 0; i < rig.pairs; i++) {
		s.cpu_ns -= (double)io_cpu_ns(i);
		sent -= stat_read(&rig.net->tx[i].stats.frames);
		lane[i].left = frames;
		lane[i].todo = frames - MIN(frames, RING);
		offer(TX(i), MIN(frames, RING));
	}
	serve(TX(0));
	s.wall_ns = (double)(clock_ns(CLOCK_MONOTONIC) - begin_ns);
	for (unsigned i = 0; i < rig.pairs; i++) {
		s.cpu_ns += (double)io_cpu_ns(i);
		sent += stat_read(&rig.net->tx[i].stats.frames);
	}
	need(sent == (uint64_t)frames * rig.pairs, "frames were not sent");
	return s;
}

static void expect_frames(unsigned frames)
{
	for (unsigned i = 0; i < rig.pairs; i++) {
		lane[i].left = frames * n_buffers;
		lane[i].todo = UINT32_MAX;
		lane[i].used_bytes = 0;
	}
}

static void fill_all(unsigned frames)
{
	for (unsigned i = 0; i < rig.pairs; i++)
		fill_tap(i, frames);
}

static void check_frames(unsigned frames)
{
	for (unsigned i = 0; i < rig.pairs; i++)
		need(lane[i].used_bytes == (uint64_t)frames * (HDR + kind->len),
		     "frames were lost");
}

struct sample rig_receive(unsigned frames)
{
	struct sample s = { .frames = (double)frames * rig.pairs };
	uint64_t begin_ns = UINT64_MAX;

	expect_frames(frames);
	hold_all();
	fill_all(frames);
	let_go();
	serve(RX(0));
	s.wall_ns = (double)clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < rig.pairs; i++) {
		s.cpu_ns += (double)(io_cpu_ns(i) - hold[i].cpu_ns);
		begin_ns = MIN(begin_ns, hold[i].wall_ns);
	}
	s.wall_ns -= (double)begin_ns;
	check_frames(frames);
	return s;
}

void rig_receive_live(unsigned frames)
{
	expect_frames(frames);
	fill_all(frames);
	serve(RX(0));
	check_frames(frames);
}

/* --- the bare loop ---------------------------------------------------------------------------- */

static void bare_tx(struct lane *l)
{
	const ssize_t len = HDR + kind->len;

	for (unsigned i = 0; i < l->frames; i++)
		need(writev(l->fd, l->tx[i % TX_BUFFERS], (int)n_pieces + 1) == len, "writev");
}

static void bare_rx(struct lane *l)
{
	const ssize_t len = HDR + kind->len;
	unsigned at = 0;

	for (unsigned i = 0; i < l->frames; i++) {
		need(readv(l->fd, l->rx + at, (int)n_buffers) == len, "readv");
		at = at + 2 * n_buffers > RING ? 0 : at + n_buffers;
	}
}

static void *bare_thread(void *arg)
{
	struct lane *l = arg;
	uint64_t cpu_ns;

	prctl(PR_SET_NAME, "bare");
	cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	l->begin_ns = clock_ns(CLOCK_MONOTONIC);
	l->loop(l);
	l->end_ns = clock_ns(CLOCK_MONOTONIC);
	l->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	return NULL;
}

static struct sample run_bare(void (*loop)(struct lane *l), unsigned frames)
{
	struct sample s = { .frames = (double)frames * rig.pairs };
	uint64_t begin_ns = UINT64_MAX, end_ns = 0;

	for (unsigned i = 0; i < rig.pairs; i++) {
		lane[i].loop = loop;
		lane[i].frames = frames;
		need(!pthread_create(&lane[i].thread, NULL, bare_thread, &lane[i]), "thread");
	}
	for (unsigned i = 0; i < rig.pairs; i++) {
		pthread_join(lane[i].thread, NULL);
		begin_ns = MIN(begin_ns, lane[i].begin_ns);
		end_ns = MAX(end_ns, lane[i].end_ns);
		s.cpu_ns += (double)lane[i].cpu_ns;
	}
	s.wall_ns = (double)(end_ns - begin_ns);
	return s;
}

struct sample rig_send_bare(unsigned frames)
{
	return run_bare(bare_tx, frames);
}

struct sample rig_receive_bare(unsigned frames)
{
	struct sample s;

	hold_all();
	fill_all(frames);
	s = run_bare(bare_rx, frames);
	let_go();
	return s;
}
