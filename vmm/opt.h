/*
 * Table-driven options: "--long VALUE", "--long=VALUE", "-s VALUE", and "key=value,key" lists for device
 * options.  Every error is one logged line that names the option and what it takes.
 */
#ifndef VMM_OPT_H
#define VMM_OPT_H

#include <stdbool.h>
#include <stdint.h>

enum opt_kind {
	OPT_FLAG,   /* no value; dst is bool * */
	OPT_STRING, /* dst is const char **; points into argv or the list's copy */
	OPT_UINT,   /* decimal; dst is unsigned *; min..max checked */
	OPT_SIZE,   /* bytes with K, M, G suffix (default unit M); dst is uint64_t * */
	OPT_ENUM,   /* one of names[]; dst is int * : index */
	OPT_CALL,   /* fn(ctx, value) decides; 0 or -errno, having logged */
};

struct opt {
	const char *name;  /* "memory" */
	char letter;       /* 'm' or 0 */
	enum opt_kind kind;
	void *dst;
	const char *arg;   /* name of the value in --help: "SIZE" */
	const char *help;  /* one line */
	uint64_t min, max; /* OPT_UINT, OPT_SIZE */
	const char *const *names; /* OPT_ENUM: NULL-terminated */
	int (*fn)(void *ctx, const char *value); /* OPT_CALL; dst is ctx */
};

/* A table ends with name == NULL. */

/*
 * Parse argv[*i...] until "--" or the first non-option; *i then indexes what follows ("--" consumed).
 * 0 or -EINVAL, having logged.
 */
int opt_parse(const struct opt *table, int argc, char **argv, int *i);

/*
 * Parse "key=value,key,..." in place (list is modified; strings point into it).  what names it in
 * messages: "--fs".  A doubled comma is a comma in a value.  0 or -EINVAL, having logged.
 */
int opt_parse_list(const struct opt *table, const char *what, char *list);

/* Print the table for --help on standard output. */
void opt_print(const struct opt *table);

#endif
