/*
 * Makes bench-fs-guest's report of what its guests printed (fs_vm.sh): lines on standard input
 *	VARIANT QUEUES VCPUS NAME JOBS ops N ns N
 * where the variant is heddle, or poolN for QEMU with virtiofsd and a pool of N threads.
 * usage: fs-vm DIR HOST
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/report.h"

#define LINES_MAX 4096
#define ROWS_MAX  256
#define RUNS_MAX  64
#define AIM	  1.5

struct line {
	char variant[16], name[16];
	unsigned queues, vcpus, jobs;
	double ops, ns;
};

static struct line line[LINES_MAX];
static struct bench_row row[ROWS_MAX];
static unsigned n_lines, n_rows;

/* What a case is called in the table. */
static const char *const titles[][2] = {
	{ "seqread", "256 KiB sequential read" },
	{ "seqwrite", "256 KiB sequential write" },
	{ "randread", "4 KiB random read, guest's O_DIRECT" },
	{ "randwrite", "4 KiB random write" },
	{ "untar", "unpack a tree" },
	{ "find", "find over a tree" },
	{ "status", "git status of a tree" },
	{ "remove", "rm -rf of a tree" },
};

static bool read_line(struct line *l)
{
	return scanf("%15s %u %u %15s %u ops %lf ns %lf", l->variant, &l->queues, &l->vcpus, l->name,
		     &l->jobs, &l->ops, &l->ns) == 7;
}

static const char *title_of(const char *name)
{
	for (unsigned i = 0; i < sizeof(titles) / sizeof(*titles); i++)
		if (strcmp(titles[i][0], name) == 0)
			return titles[i][1];
	return name;
}

static bool same_case(const struct line *a, const struct line *b)
{
	return a->jobs == b->jobs && a->vcpus == b->vcpus && strcmp(a->name, b->name) == 0;
}

/* Median over the runs of one case, in operations per second; 0 when there were none. */
static double median(const struct line *c, const char *variant, unsigned queues, unsigned *runs)
{
	double v[RUNS_MAX];
	size_t n = 0;

	for (unsigned i = 0; i < n_lines && n < RUNS_MAX; i++)
		if (same_case(&line[i], c) && line[i].queues == queues &&
		    strcmp(line[i].variant, variant) == 0 && line[i].ops > 0)
			v[n++] = line[i].ops / line[i].ns * 1e9;
	*runs = (unsigned)n;
	return n ? bench_median(v, n) : 0;
}

/* The better of virtiofsd's two settings. */
static double reference(const struct line *c, const char **name, unsigned *runs)
{
	unsigned runs_pool;
	double plain = median(c, "pool0", 1, runs), pool = median(c, "pool64", 1, &runs_pool);

	*name = "virtiofsd, no pool";
	if (pool <= plain)
		return plain;
	*name = "virtiofsd, 64 threads";
	*runs = runs_pool;
	return pool;
}

/* c: of heddle. */
static void add(const struct line *c)
{
	unsigned runs, reference_runs;
	struct bench_row *r;
	char *what;

	if (n_rows == ROWS_MAX ||
	    asprintf(&what, "%s, %u job%s, %u queue%s, %u vCPUs", title_of(c->name), c->jobs,
		     c->jobs > 1 ? "s" : "", c->queues, c->queues > 1 ? "s" : "", c->vcpus) < 0)
		exit(1);
	r = &row[n_rows++];
	*r = (struct bench_row){ .bench = "fs-guest", .what = what, .metric = "per s", .unit = "/s" };
	r->heddle = median(c, "heddle", c->queues, &runs);
	r->reference = reference(c, &r->reference_name, &reference_runs);
	r->runs = runs < reference_runs ? runs : reference_runs;
	r->aim = AIM;
	r->aim_of = "ratio";
	r->at_least = true;
}

static bool seen_before(unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (strcmp(line[k].variant, "heddle") == 0 && line[k].queues == line[i].queues &&
		    same_case(&line[k], &line[i]))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	char title[160];

	if (argc != 3)
		return 1;
	while (n_lines < LINES_MAX && read_line(&line[n_lines]))
		n_lines++;
	for (unsigned i = 0; i < n_lines; i++)
		if (strcmp(line[i].variant, "heddle") == 0 && !seen_before(i))
			add(&line[i]);
	snprintf(title, sizeof(title), "virtio-fs against QEMU and virtiofsd, on %s", argv[2]);
	return n_rows == 0 || bench_report(argv[1], "fs-guest", title, row, n_rows);
}
