/*
 * What every benchmark leaves behind: build/bench/NAME.json, an array of rows, and NAME.md, a
 * table of the same rows.  A row compares one figure of heddle with the same figure of a
 * reference, both measured in the same run; the figures are medians.
 */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Texts hold no '"', '\' or '|'. */
struct bench_row {
	const char *bench, *what; /* "case" in the file */
	const char *metric, *unit;
	double heddle, reference;
	const char *reference_name;
	unsigned runs;      /* of each */
	double aim;         /* 0: none, unless that is the aim ("none") */
	const char *aim_of; /* what is to be at most aim: "ratio" or "heddle".  Only in the table */
	bool at_least;      /* and not at most */
	bool none;          /* aim_of is to be 0 */
};

/* Median of n > 0 values; sorts them. */
double bench_median(double *value, size_t n);

/*
 * More rows from a file of lines
 *	case|metric|unit|heddle|reference|name of the reference|aim|what of|runs
 * "What of" is "ratio" or "heddle", with " >=" behind it when that is to be at least the aim; "-" is
 * for no aim.  An aim of 0 is "none at all".  How many; a file that is not complete, or holds more than max, ends the
 * program.
 */
size_t bench_read_rows(const char *path, const char *bench, struct bench_row *row, size_t max);

/* Write DIR/NAME.json and DIR/NAME.md, and the table to standard output.  0, or -errno. */
int bench_report(const char *dir, const char *name, const char *title, const struct bench_row *row,
		 size_t n);

#endif
