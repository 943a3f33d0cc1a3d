/*
 * ring: what the network device costs beside a bare loop of writev and readv; see ring_rig.h.
 *
 *	ring measure OUT ROWS [CASE]  the benchmark, or the cases with this text in their names; ROWS
 *	                        are lines of more rows for the table (ring.sh)
 *	ring move tx|rx QUEUES LEN  move frames of one kind, for something that counts instructions
 *	ring trace              the same both ways, and the bare loop, to be watched by strace: the main
 *	                        thread's name says what is going on
 *
 * Two figures for each case.  Frames per second of CPU time: only the threads that move the frames
 * count, so neither the guest's thread nor other work on this machine makes a difference; that is
 * what the aims are about.  Frames per second of wall time: they need a machine with a CPU for each
 * thread, the guest's too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/bench/harness.h"
#include "tests/bench/report.h"
#include "tests/bench/ring_rig.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RUNS        9
#define TURNS       10
#define QUEUES_MAX  2
#define ROWS_MAX    100
#define AIM_SMALL   0.85
#define AIM_LARGE   0.95
#define MOVE_FRAMES 2048 /* on each queue; twice a ring */
#define LIVE_FILL   256

/* Buffers as Linux guests offer them: of an MTU, or of a page when large frames come. */
static const struct frame_kind kinds[] = {
	{ "64 B", 64, 1526, 4096, 4096 },
	{ "1024 B", 1024, 1526, 4096, 4096 },
	{ "1500 B", 1500, 1526, 4096, 4096 },
	{ "16384 B", 16384, 4096, 2048, 1024 },
	{ "60000 B", 60000, 4096, 1024, 300 },
};

struct figure {
	double cpu[RUNS], wall[RUNS]; /* thousand frames per second */
};

static struct bench_row row[ROWS_MAX];
static size_t n_rows;
static const char *only = ""; /* cases with this in their names */
static uint64_t allocated[2]; /* while the device, the bare loop was at work */

static struct sample take(const struct frame_kind *k, bool send, bool bare)
{
	uint64_t before = allocations();
	struct sample s;

	if (send)
		s = bare ? rig_send_bare(k->tx_frames) : rig_send(k->tx_frames);
	else
		s = bare ? rig_receive_bare(k->rx_frames) : rig_receive(k->rx_frames);
	allocated[bare] += allocations() - before;
	return s;
}

static void keep_best(double *best, double frames, double ns)
{
	*best = frames / ns * 1e6 > *best ? frames / ns * 1e6 : *best;
}

/*
 * The two take turns every few milliseconds, so that both meet what else goes on here; of its turns
 * each keeps the fastest, for what a hypervisor takes from a thread counts as the thread's time.
 */
static void take_run(const struct frame_kind *k, bool send, struct figure f[2], unsigned run)
{
	for (unsigned i = 0; i < 2; i++)
		f[i].cpu[run] = f[i].wall[run] = 0;
	for (unsigned i = 0; i < 2 * TURNS; i++) {
		bool bare = (i + i / 2) % 2;
		struct sample s = take(k, send, bare);

		keep_best(&f[bare].cpu[run], s.frames, s.cpu_ns);
		keep_best(&f[bare].wall[run], s.frames, s.wall_ns);
	}
}

static struct bench_row *add_row(const char *what, const char *metric, const char *unit)
{
	struct bench_row *r = &row[n_rows++];

	if (n_rows > ROWS_MAX) {
		fprintf(stderr, "bench-ring: too many rows\n");
		exit(1);
	}
	*r = (struct bench_row){ .bench = "ring", .what = strdup(what), .aim_of = "" };
	r->metric = metric;
	r->unit = unit;
	r->reference_name = "bare loop";
	return r;
}

static void add_rows(const struct frame_kind *k, const char *what, struct figure f[2])
{
	const struct frame_kind *largest = &kinds[ARRAY_SIZE(kinds) - 1];
	struct bench_row *r;

	r = add_row(what, "frames per s of CPU time", "k/s");
	r->heddle = bench_median(f[0].cpu, RUNS);
	r->reference = bench_median(f[1].cpu, RUNS);
	r->runs = RUNS;
	r->at_least = true;
	r->aim_of = "ratio";
	r->aim = k == kinds ? AIM_SMALL : k == largest ? AIM_LARGE : 0;
	r = add_row(what, "frames per s", "k/s");
	r->heddle = bench_median(f[0].wall, RUNS);
	r->reference = bench_median(f[1].wall, RUNS);
	r->runs = RUNS;
}

static void measure_case(const struct frame_kind *k, bool send, unsigned queues)
{
	static struct figure f[2];
	char what[80];

	snprintf(what, sizeof(what), "%s %s, %u queue%s", send ? "TX" : "RX", k->name, queues,
		 queues > 1 ? "s" : "");
	if (!strstr(what, only))
		return;
	(void)take(k, send, false);
	(void)take(k, send, true);
	for (unsigned i = 0; i < RUNS; i++)
		take_run(k, send, f, i);
	add_rows(k, what, f);
}

static void measure_all(void)
{
	for (unsigned queues = 1; queues <= QUEUES_MAX; queues++) {
		rig_open(queues);
		for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
			rig_set_frames(&kinds[k]);
			measure_case(&kinds[k], true, queues);
			measure_case(&kinds[k], false, queues);
		}
		rig_close();
	}
}

static void add_allocations(void)
{
	struct bench_row *r = add_row("all of these", "allocations by the I/O threads", "");

	r->heddle = (double)allocated[0];
	r->reference = (double)allocated[1];
	r->runs = 1;
	r->aim_of = "heddle";
	r->none = true;
}

static int measure(const char *out, const char *rows)
{
	measure_all();
	add_allocations();
	n_rows += bench_read_rows(rows, "ring", row + n_rows, ROWS_MAX - n_rows);
	return bench_report(
		out, "ring",
		"Network device beside a bare loop on the same tap: medians of runs, each "
		"the fastest of its turns.  Aims are about CPU time of the threads that "
		"move the frames; wall time also shows what else this machine did",
		row, n_rows);
}

static int move(bool send, unsigned queues, unsigned len)
{
	const struct frame_kind *k = kinds;

	while (k->len != len && k < &kinds[ARRAY_SIZE(kinds) - 1])
		k++;
	rig_open(queues);
	rig_set_frames(k);
	if (send)
		(void)rig_send(MOVE_FRAMES);
	else
		(void)rig_receive(MOVE_FRAMES);
	rig_close();
	printf("%u\n", MOVE_FRAMES * queues);
	return 0;
}

static int trace(void)
{
	const struct frame_kind *k = &kinds[0];

	rig_open(QUEUES_MAX);
	rig_set_frames(k);
	prctl(PR_SET_NAME, "phase tx");
	(void)rig_send(MOVE_FRAMES);
	prctl(PR_SET_NAME, "phase txbare");
	(void)rig_send_bare(MOVE_FRAMES);
	prctl(PR_SET_NAME, "phase rx");
	for (unsigned i = 0; i < MOVE_FRAMES / LIVE_FILL; i++)
		rig_receive_live(LIVE_FILL);
	prctl(PR_SET_NAME, "phase rxbare");
	(void)rig_receive_bare(MOVE_FRAMES);
	prctl(PR_SET_NAME, "phase end");
	rig_close();
	printf("%u\n", MOVE_FRAMES * QUEUES_MAX);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "measure") == 0)
		only = argv[4];
	if (argc >= 4 && strcmp(argv[1], "measure") == 0)
		return measure(argv[2], argv[3]) ? 1 : 0;
	if (argc == 5 && strcmp(argv[1], "move") == 0)
		return move(strcmp(argv[2], "tx") == 0, (unsigned)atoi(argv[3]),
			    (unsigned)atoi(argv[4]));
	if (argc == 2 && strcmp(argv[1], "trace") == 0)
		return trace();
	fprintf(stderr, "usage: ring measure OUT ROWS [CASE] | move tx|rx QUEUES LEN | trace\n");
	return 2;
}
