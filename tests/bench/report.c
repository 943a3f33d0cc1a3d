/* Benchmark results as JSON and as a Markdown table: see report.h. */
#include "tests/bench/report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *value, size_t n)
{
	qsort(value, n, sizeof(*value), compare);
	return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static double ratio(const struct bench_row *r)
{
	return r->reference > 0 ? r->heddle / r->reference : 0;
}

static void write_json(FILE *f, const struct bench_row *row, size_t n)
{
	fprintf(f, "[\n");
	for (size_t i = 0; i < n; i++) {
		const struct bench_row *r = &row[i];

		fprintf(f, "{\"bench\": \"%s\", \"case\": \"%s\", \"metric\": \"%s\", ", r->bench,
			r->what, r->metric);
		fprintf(f, "\"unit\": \"%s\", ", r->unit);
		fprintf(f, "\"heddle\": %.3f, \"reference\": %.3f, \"reference_name\": \"%s\", ",
			r->heddle, r->reference, r->reference_name);
		fprintf(f, "\"ratio\": %.3f, \"runs\": %u}%s\n", ratio(r), r->runs,
			i + 1 < n ? "," : "");
	}
	fprintf(f, "]\n");
}

/* What was not measured meets no aim, though a ratio of 0 is below any. */
static bool meets(const struct bench_row *r)
{
	bool by_ratio = strcmp(r->aim_of, "ratio") == 0;
	double value = by_ratio ? ratio(r) : r->heddle;

	if (r->runs == 0 || (by_ratio && value <= 0))
		return false;
	return r->at_least ? value >= r->aim : value <= r->aim;
}

static void write_aim(FILE *f, const struct bench_row *r)
{
	if (r->aim > 0 || r->none)
		fprintf(f, "%s %s %.10g: %s", r->aim_of, r->at_least ? ">=" : "<=", r->aim,
			meets(r) ? "met" : "missed");
}

static void write_table(FILE *f, const char *title, const struct bench_row *row, size_t n)
{
	fprintf(f, "%s\n\n", title);
	fprintf(f, "| case | metric | heddle | reference | | ratio | aim | runs |\n");
	fprintf(f, "| --- | --- | ---: | ---: | --- | ---: | --- | ---: |\n");
	for (size_t i = 0; i < n; i++) {
		const struct bench_row *r = &row[i];

		fprintf(f, "| %s | %s | %.1f %s | ", r->what, r->metric, r->heddle, r->unit);
		fprintf(f, "%.1f %s | %s | %.2f | ", r->reference, r->unit, r->reference_name,
			ratio(r));
		write_aim(f, r);
		fprintf(f, " | %u |\n", r->runs);
	}
}

static bool read_row(FILE *f, struct bench_row *r)
{
	char what[80], metric[80], unit[40], name[80], aim_of[20];
	double heddle, reference, aim;
	unsigned runs;

	if (fscanf(f, " %79[^|]|%79[^|]|%39[^|]|%lf|%lf|%79[^|]|%lf|%19[^|]|%u", what, metric, unit,
		   &heddle, &reference, name, &aim, aim_of, &runs) != 9)
		return false;
	r->what = strdup(what);
	r->metric = strdup(metric);
	r->unit = strdup(unit);
	r->reference_name = strdup(name);
	r->heddle = heddle;
	r->reference = reference;
	r->runs = runs;
	r->at_least = strstr(aim_of, ">=") != NULL;
	aim_of[strcspn(aim_of, " >")] = '\0';
	r->aim_of = strdup(aim_of);
	r->aim = aim;
	r->none = aim == 0 && *aim_of != '-';
	return true;
}

size_t bench_read_rows(const char *path, const char *bench, struct bench_row *row, size_t max)
{
	FILE *f = fopen(path, "re");
	struct bench_row r = { .bench = bench };
	size_t n = 0;

	if (!f) {
		perror(path);
		exit(1);
	}
	for (; read_row(f, &r); row[n++] = r)
		if (n == max)
			break;
	if (!feof(f)) {
		fprintf(stderr, "%s: a row is not complete, or there are too many\n", path);
		exit(1);
	}
	fclose(f);
	return n;
}

static FILE *create(const char *dir, const char *name, const char *suffix)
{
	char *path;
	FILE *f;

	if (asprintf(&path, "%s/%s.%s", dir, name, suffix) < 0)
		return NULL;
	f = fopen(path, "we");
	if (!f)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	free(path);
	return f;
}

int bench_report(const char *dir, const char *name, const char *title, const struct bench_row *row,
		 size_t n)
{
	FILE *json = create(dir, name, "json"), *table = create(dir, name, "md");
	int err = json && table ? 0 : -EIO;

	if (json) {
		write_json(json, row, n);
		if (fclose(json))
			err = -errno;
	}
	if (table) {
		write_table(table, title, row, n);
		if (fclose(table))
			err = -errno;
	}
	write_table(stdout, title, row, n);
	return err;
}
