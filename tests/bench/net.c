/*
 * Makes bench-net's report of what its guests printed (net.sh): lines on standard input
 *	VARIANT PAIRS DIRECTION SESSIONS SIZE bytes N ns N busy N
 * usage: net DIR HOST
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/report.h"

#define LINES_MAX 4096
#define ROWS_MAX  512
#define RUNS_MAX  64

struct line {
	char variant[16], direction[16];
	unsigned pairs, sessions, size;
	double bytes, ns, busy;
};

static struct line line[LINES_MAX];
static struct bench_row row[ROWS_MAX];
static unsigned n_lines, n_rows;

static bool read_line(struct line *l)
{
	return scanf("%15s %u %15s %u %u bytes %lf ns %lf busy %lf", l->variant, &l->pairs, l->direction,
		     &l->sessions, &l->size, &l->bytes, &l->ns, &l->busy) == 8;
}

static double rate(const struct line *l)
{
	return l->bytes * 8 / l->ns * 1000; /* Mbit/s */
}

/* Of all the host's CPUs, the guest's included. */
static double cost(const struct line *l)
{
	return l->busy / (double)sysconf(_SC_CLK_TCK) * 1e9 / l->bytes; /* ns a byte */
}

static double latency(const struct line *l)
{
	return l->ns / l->bytes / 1000; /* us an exchange */
}

/* Median over the runs of one case; 0 when there were none. */
static double median(const struct line *c, const char *variant, unsigned pairs,
		     double (*figure)(const struct line *l), unsigned *runs)
{
	double v[RUNS_MAX];
	size_t n = 0;

	for (unsigned i = 0; i < n_lines && n < RUNS_MAX; i++) {
		const struct line *l = &line[i];

		if (l->pairs == pairs && l->sessions == c->sessions && l->size == c->size &&
		    strcmp(l->variant, variant) == 0 && strcmp(l->direction, c->direction) == 0 &&
		    l->bytes > 0)
			v[n++] = figure(l);
	}
	*runs = (unsigned)n;
	return n ? bench_median(v, n) : 0;
}

static void add(const struct line *c, const char *metric, const char *unit,
		double (*figure)(const struct line *l), unsigned pairs, const char *reference,
		unsigned reference_pairs, double aim, bool at_least)
{
	bool rr = strcmp(c->direction, "rr") == 0;
	unsigned runs, reference_runs;
	char *what, *name;
	int n = rr ? asprintf(&what, "request and response, %u pairs", pairs)
		   : asprintf(&what, "%s, %u sessions, %u B, %u pairs", c->direction, c->sessions,
			      c->size, pairs);

	if (n < 0 || n_rows == ROWS_MAX ||
	    asprintf(&name, "%s, %u pairs", reference, reference_pairs) < 0)
		exit(1);
	row[n_rows] = (struct bench_row){
		.bench = "net",
		.what = what,
		.metric = metric,
		.unit = unit,
		.heddle = median(c, "heddle", pairs, figure, &runs),
		.reference = median(c, reference, reference_pairs, figure, &reference_runs),
		.reference_name = name,
		.aim = aim,
		.aim_of = aim ? "ratio" : NULL,
		.at_least = at_least,
	};
	row[n_rows].runs = runs < reference_runs ? runs : reference_runs;
	n_rows++;
}

static void add_case(const struct line *c)
{
	bool rr = strcmp(c->direction, "rr") == 0;

	for (unsigned pairs = 1; pairs <= 2; pairs++) {
		if (rr) {
			add(c, "time of an exchange", "us", latency, pairs, "qemu", pairs, 1, false);
			add(c, "time of an exchange", "us", latency, pairs, "vhost", pairs, 0, false);
			continue;
		}
		add(c, "throughput", "Mbit/s", rate, pairs, "qemu", pairs, 1.3, true);
		add(c, "throughput", "Mbit/s", rate, pairs, "vhost", pairs, 1.0, true);
		add(c, "host CPU", "ns/B", cost, pairs, "qemu", pairs, 0, false);
		add(c, "host CPU", "ns/B", cost, pairs, "vhost", pairs, 0, false);
	}
	if (!rr && c->sessions == 1)
		add(c, "throughput", "Mbit/s", rate, 2, "heddle", 1, 1.0, true);
}

static bool seen_before(unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (line[k].sessions == line[i].sessions && line[k].size == line[i].size &&
		    strcmp(line[k].direction, line[i].direction) == 0)
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
		if (strcmp(line[i].direction, "warm-up") != 0 && !seen_before(i))
			add_case(&line[i]);
	snprintf(title, sizeof(title), "virtio-net against QEMU and vhost-net, 2 vCPUs, on %s", argv[2]);
	return n_rows == 0 || bench_report(argv[1], "net", title, row, n_rows);
}
