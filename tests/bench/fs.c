/*
 * fs: what the virtio-fs device and its file server cost beside plain system calls on the same
 * directory; see fs_rig.h.
 *
 *	fs measure OUT ROWS DIR [CASE]  the benchmark, or the cases with this text in their names;
 *	                        ROWS are lines of more rows for the table (fs.sh)
 *	fs move read|write QUEUES DIR  move blocks, for something that counts instructions
 *	fs trace DIR            the same, and the plain loop, to be watched by strace: the main
 *	                        thread's name says what is going on
 *	fs mount DIR MNT        rows on standard output: plain system calls on MNT, where the same
 *	                        server is mounted through /dev/fuse, beside those on DIR
 *
 * Two figures for each case.  Requests per second of CPU time: only the threads that serve count,
 * so neither the guest's thread nor other work on this machine makes a difference.  Requests per
 * second of wall time: they need a machine with a CPU for each thread, the guest's too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/bench/fs_rig.h"
#include "tests/bench/harness.h"
#include "tests/bench/report.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RUNS       5
#define TURNS      4
#define ROWS_MAX   160
#define AIM_SMALL  0.6
#define AIM_LARGE  0.8
#define MOVE_OPS   1024
#define MOVE_DEPTH 64

static const struct move_kind kinds[] = {
	{ .name = "4 KiB random read", .len = 4096, .random = true, .ops = 4096 },
	{ .name = "4 KiB random write", .len = 4096, .random = true, .write = true, .ops = 4096 },
	{ .name = "256 KiB sequential read", .len = 262144, .ops = 256 },
	{ .name = "256 KiB sequential write", .len = 262144, .write = true, .ops = 256 },
};

/* A disk's time is the same for all: fewer. */
static const struct move_kind direct_kinds[] = {
	{ .name = "4 KiB random read, O_DIRECT",
	  .len = 4096,
	  .random = true,
	  .direct = true,
	  .ops = 512 },
	{ .name = "4 KiB random write, O_DIRECT",
	  .len = 4096,
	  .random = true,
	  .write = true,
	  .direct = true,
	  .ops = 512 },
	{ .name = "256 KiB sequential read, O_DIRECT", .len = 262144, .direct = true, .ops = 64 },
	{ .name = "256 KiB sequential write, O_DIRECT",
	  .len = 262144,
	  .write = true,
	  .direct = true,
	  .ops = 64 },
};

struct figure {
	double cpu[RUNS], wall[RUNS]; /* thousands per second */
};

static struct bench_row row[ROWS_MAX];
static size_t n_rows, n_measured;
static const char *only = ""; /* cases with this in their names */
static const char *dir;
static uint64_t allocated; /* while the device moved bytes */

static bool wanted(const char *what)
{
	return strstr(what, only) != NULL;
}

static struct bench_row *add_row(const char *what, const char *metric, const char *unit)
{
	struct bench_row *r = &row[n_rows++];

	need(n_rows <= ROWS_MAX, "too many rows");
	*r = (struct bench_row){ .bench = "fs", .what = strdup(what), .aim_of = "" };
	r->metric = metric;
	r->unit = unit;
	r->reference_name = "plain calls";
	return r;
}

static void add_figure(const char *what, const char *metric, double f[2][RUNS], double aim)
{
	struct bench_row *r = add_row(what, metric, "k/s");

	r->heddle = bench_median(f[0], RUNS);
	r->reference = bench_median(f[1], RUNS);
	r->runs = RUNS;
	r->at_least = true;
	r->aim_of = "ratio";
	r->aim = aim;
	n_measured++;
}

static void add_rows(const char *what, struct figure f[2], double aim)
{
	double v[2][RUNS];

	for (unsigned i = 0; i < 2; i++)
		memcpy(v[i], f[i].cpu, sizeof(v[i]));
	add_figure(what, "per s of CPU time", v, aim);
	for (unsigned i = 0; i < 2; i++)
		memcpy(v[i], f[i].wall, sizeof(v[i]));
	add_figure(what, "per s", v, aim);
}

static void keep_best(double *best, double ops, double ns)
{
	*best = ops / ns * 1e6 > *best ? ops / ns * 1e6 : *best;
}

static void keep(struct figure *f, unsigned run, struct sample s)
{
	keep_best(&f->cpu[run], s.ops, s.cpu_ns);
	keep_best(&f->wall[run], s.ops, s.wall_ns);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static struct sample take_move(const struct move_kind *k, unsigned queues, bool plain)
{
	uint64_t before = allocations();
	struct sample s;

	if (plain)
		return plain_move(dir, k, queues, rig_data);
	s = rig_move(k);
	allocated += allocations() - before;
	return s;
}

/*
 * The two take turns every few milliseconds, so that both meet what else goes on here; of its turns
 * each keeps the fastest, for what a hypervisor takes from a thread counts as the thread's time.
 */
static void take_run(const struct move_kind *k, unsigned queues, struct figure f[2], unsigned run)
{
	unsigned turns = k->direct ? 1 : TURNS;

	for (unsigned i = 0; i < 2; i++)
		f[i].cpu[run] = f[i].wall[run] = 0;
	for (unsigned i = 0; i < 2 * turns; i++) {
		bool plain = (i + i / 2 + run) % 2;

		keep(&f[plain], run, take_move(k, queues, plain));
	}
}

static double aim_of(const struct move_kind *k, unsigned depth)
{
	if (k->direct || depth < 8)
		return 0;
	return k->len > 4096 ? AIM_LARGE : depth == 32 ? AIM_SMALL : 0;
}

static void measure_move(const struct move_kind *k, unsigned queues, unsigned depth)
{
	static struct figure f[2];
	char what[80];

	snprintf(what, sizeof(what), "%s, depth %u, %u queue%s", k->name, depth, queues,
		 queues > 1 ? "s" : "");
	if (!wanted(what))
		return;
	(void)rig_move(k);
	(void)plain_move(dir, k, queues, rig_data);
	for (unsigned i = 0; i < RUNS; i++)
		take_run(k, queues, f, i);
	add_rows(what, f, aim_of(k, depth));
}

static void measure_direct(unsigned queues, unsigned depth)
{
	if (!plain_can_direct(dir) || !rig_can_direct()) {
		fprintf(stderr, "bench-fs: O_DIRECT is not measured: %s\n",
			plain_can_direct(dir) ? "the server does not pass it on"
					      : "this file system does not take it");
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(direct_kinds); i++)
		measure_move(&direct_kinds[i], queues, depth);
}

static void measure_moves(unsigned queues, unsigned depth)
{
	rig_open(dir, queues, depth);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		measure_move(&kinds[i], queues, depth);
	if (queues == 1 && depth == 32)
		measure_direct(queues, depth);
	rig_close();
}

/* --- names ------------------------------------------------------------------------------------ */

static void measure_small(void)
{
	static struct figure create[2], stat[2], unlink[2];

	if (!wanted("small files"))
		return;
	for (unsigned i = 0; i < RUNS; i++) {
		keep(&create[0], i, rig_create());
		keep(&stat[0], i, rig_stat());
		keep(&unlink[0], i, rig_unlink());
		keep(&create[1], i, plain_create(dir, FS_FILES));
		keep(&stat[1], i, plain_stat(dir, FS_FILES));
		keep(&unlink[1], i, plain_unlink(dir, FS_FILES));
	}
	add_rows("create 10k small files, depth 32, 1 queue", create, 0);
	add_rows("stat 10k small files, depth 32, 1 queue", stat, 0);
	add_rows("unlink 10k small files, depth 32, 1 queue", unlink, 0);
}

static void measure_list(void)
{
	static struct figure bare[2], plus[2];

	if (!wanted("entries"))
		return;
	plain_many(dir);
	for (unsigned i = 0; i < RUNS; i++) {
		keep(&bare[0], i, rig_list(false));
		keep(&bare[1], i, plain_list(dir, false));
		keep(&plus[0], i, rig_list(true));
		keep(&plus[1], i, plain_list(dir, true));
	}
	add_rows("list 100k entries", bare, 0);
	add_rows("list and stat 100k entries", plus, 0);
}

/* --- all -------------------------------------------------------------------------------------- */

static void add_allocations(void)
{
	struct bench_row *r = add_row("all reads and writes", "allocations by the I/O threads", "");

	r->heddle = (double)allocated;
	r->runs = 1;
	r->aim_of = "heddle";
	r->none = true;
}

static int measure(const char *out, const char *rows)
{
	static const unsigned depths[] = { 1, 8, 32 };

	plain_files(dir, 2);
	for (unsigned i = 0; i < ARRAY_SIZE(depths); i++)
		measure_moves(1, depths[i]);
	measure_moves(2, 32);
	rig_open(dir, 1, 32);
	measure_small();
	measure_list();
	rig_close();
	add_allocations();
	n_rows += bench_read_rows(rows, "fs", row + n_rows, ROWS_MAX - n_rows);
	plain_clean(dir);
	if (n_measured == 0) {
		fprintf(stderr, "bench-fs: nothing was measured\n");
		return 1;
	}
	return bench_report(
		out, "fs",
		"virtio-fs device and file server beside plain system calls on the same directory: "
		"medians of runs, each the fastest of its turns.  Wall time also shows the guest's "
		"thread, and what else this machine did",
		row, n_rows);
}

static int count_moves(bool write, unsigned queues)
{
	struct move_kind k = kinds[write];

	k.ops = MOVE_OPS;
	plain_files(dir, queues);
	rig_open(dir, queues, MOVE_DEPTH);
	rig_few_interrupts();
	(void)rig_move(&k);
	rig_close();
	printf("%u\n", k.ops * queues);
	return 0;
}

static int trace(void)
{
	struct move_kind k = kinds[0];

	k.ops = MOVE_OPS;
	plain_files(dir, 2);
	rig_open(dir, 2, 32);
	(void)rig_move(&k);
	prctl(PR_SET_NAME, "phase read");
	(void)rig_move(&k);
	prctl(PR_SET_NAME, "phase readp");
	(void)plain_move(dir, &k, 2, rig_data);
	k.write = true;
	prctl(PR_SET_NAME, "phase write");
	(void)rig_move(&k);
	prctl(PR_SET_NAME, "phase writep");
	(void)plain_move(dir, &k, 2, rig_data);
	prctl(PR_SET_NAME, "phase end");
	rig_close();
	printf("%u\n", k.ops * 2);
	return 0;
}

/* --- the same server behind /dev/fuse --------------------------------------------------------- */

static void *own_data(unsigned thread, unsigned i)
{
	static _Alignas(4096) char data[2][1 << 18];

	return data[thread];
}

static void print_rows(const char *what, struct figure f[2])
{
	printf("%s|per s, /dev/fuse mount (cache=none)|k/s|%.3f|%.3f|plain calls|0|-|%u\n", what,
	       bench_median(f[0].wall, RUNS), bench_median(f[1].wall, RUNS), RUNS);
}

static void mount_move(const char *mnt, struct move_kind k, unsigned threads)
{
	struct figure f[2] = { 0 };
	char what[80];

	k.ops /= 4;
	for (unsigned i = 0; i < RUNS; i++)
		for (unsigned turn = 0; turn < 4; turn++)
			keep(&f[turn % 2], i,
			     plain_move(turn % 2 ? dir : mnt, &k, threads, own_data));
	snprintf(what, sizeof(what), "%s, %u thread%s", k.name, threads, threads > 1 ? "s" : "");
	print_rows(what, f);
}

static int mounted(const char *mnt)
{
	static struct figure create[2], stat[2], unlink[2];

	plain_files(dir, 2);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		mount_move(mnt, kinds[i], 1);
		mount_move(mnt, kinds[i], 2);
	}
	for (unsigned i = 0; i < 2 * RUNS; i++) {
		const char *at = i % 2 ? dir : mnt;

		keep(&create[i % 2], i / 2, plain_create(at, FS_FILES_MOUNT));
		keep(&stat[i % 2], i / 2, plain_stat(at, FS_FILES_MOUNT));
		keep(&unlink[i % 2], i / 2, plain_unlink(at, FS_FILES_MOUNT));
	}
	print_rows("create 1k small files, 1 thread", create);
	print_rows("stat 1k small files, 1 thread", stat);
	print_rows("unlink 1k small files, 1 thread", unlink);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "measure") == 0)
		only = argv[5];
	dir = argc > 2 ? argv[argc - 1] : "";
	if (argc >= 5 && strcmp(argv[1], "measure") == 0) {
		dir = argv[4];
		return measure(argv[2], argv[3]) ? 1 : 0;
	}
	if (argc == 5 && strcmp(argv[1], "move") == 0)
		return count_moves(strcmp(argv[2], "write") == 0, (unsigned)atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "trace") == 0)
		return trace();
	if (argc == 4 && strcmp(argv[1], "mount") == 0) {
		dir = argv[2];
		return mounted(argv[3]);
	}
	fprintf(stderr, "usage: fs measure OUT ROWS DIR [CASE] | move read|write QUEUES DIR | "
			"trace DIR | mount DIR MNT\n");
	return 2;
}
