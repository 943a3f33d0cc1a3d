/* Table-driven options: see opt.h. */
#include "vmm/opt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/log.h"

/* "--memory" or, in a list, "--fs: queues". */
struct opt_where {
	const char *list; /* NULL on the command line */
	const char *name;
};

static void opt_complain(const struct opt_where *w, const char *what, const char *value)
{
	const char *dashes = w->list ? "" : "--";

	if (w->list)
		log_error("%s: %s%s %s%s%s", w->list, dashes, w->name, what, value ? ": " : "",
			  value ? value : "");
	else
		log_error("%s%s %s%s%s", dashes, w->name, what, value ? ": " : "", value ? value : "");
}

/* A decimal number, all of the text up to *end.  False on overflow or no digits. */
static bool opt_number(const char *text, uint64_t *n, const char **end)
{
	char *stop;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*n = strtoull(text, &stop, 10);
	*end = stop;
	return errno == 0;
}

static int opt_set_uint(const struct opt *o, const struct opt_where *w, const char *value)
{
	char what[96];
	const char *end;
	uint64_t n;

	if (!opt_number(value, &n, &end) || *end || n < o->min || n > o->max) {
		snprintf(what, sizeof(what), "takes a number from %" PRIu64 " to %" PRIu64, o->min,
			 o->max);
		opt_complain(w, what, value);
		return -EINVAL;
	}
	*(unsigned *)o->dst = (unsigned)n;
	return 0;
}

/* Shift of a size suffix; no suffix means MiB; -1 if unknown. */
static int opt_size_shift(const char *suffix)
{
	static const char letters[] = "KMGT";
	const char *at;

	if (*suffix == '\0')
		return 20;
	if (suffix[1] != '\0' && strcmp(suffix + 1, "iB") != 0)
		return -1;
	at = strchr(letters, *suffix & ~0x20);
	return at && *at ? 10 * (int)(at - letters + 1) : -1;
}

static int opt_set_size(const struct opt *o, const struct opt_where *w, const char *value)
{
	char what[96];
	const char *end;
	uint64_t n;
	int shift;

	if (opt_number(value, &n, &end)) {
		shift = opt_size_shift(end);
		if (shift >= 0 && n <= UINT64_MAX >> shift && n << shift >= o->min &&
		    n << shift <= o->max) {
			*(uint64_t *)o->dst = n << shift;
			return 0;
		}
	}
	snprintf(what, sizeof(what), "takes a size from %" PRIu64 "M to %" PRIu64 "M (K, M, G)",
		 o->min >> 20, o->max >> 20);
	opt_complain(w, what, value);
	return -EINVAL;
}

static int opt_set_enum(const struct opt *o, const struct opt_where *w, const char *value)
{
	char what[160] = "is one of";

	for (int i = 0; o->names[i]; i++) {
		size_t used = strlen(what);

		if (strcmp(value, o->names[i]) == 0) {
			*(int *)o->dst = i;
			return 0;
		}
		snprintf(what + used, sizeof(what) - used, "%s %s", i ? "," : "", o->names[i]);
	}
	opt_complain(w, what, value);
	return -EINVAL;
}

static int opt_set(const struct opt *o, const struct opt_where *w, const char *value)
{
	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->dst = true;
		return 0;
	case OPT_STRING:
		*(const char **)o->dst = value;
		return 0;
	case OPT_UINT:
		return opt_set_uint(o, w, value);
	case OPT_SIZE:
		return opt_set_size(o, w, value);
	case OPT_ENUM:
		return opt_set_enum(o, w, value);
	case OPT_CALL:
		return o->fn(o->dst, value);
	}
	return -EINVAL;
}

static const struct opt *opt_find(const struct opt *table, const char *name, size_t len)
{
	for (const struct opt *o = table; o->name; o++)
		if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
			return o;
	return NULL;
}

static const struct opt *opt_find_letter(const struct opt *table, char letter)
{
	for (const struct opt *o = table; o->name; o++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

/* One argument of argv, whose value may be part of it ("--a=v", "-cv") or the next one. */
static int opt_parse_one(const struct opt *table, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *value = NULL;
	const struct opt *o;
	struct opt_where w;

	if (arg[1] == '-') {
		size_t len = strcspn(arg + 2, "=");

		o = opt_find(table, arg + 2, len);
		if (arg[2 + len] == '=')
			value = arg + 2 + len + 1;
	} else {
		o = opt_find_letter(table, arg[1]);
		if (o && arg[2])
			value = arg + 2;
	}
	if (!o) {
		log_error("unknown option %s (see heddle --help)", arg);
		return -EINVAL;
	}
	w = (struct opt_where){ .name = o->name };
	++*i;
	if (o->kind == OPT_FLAG) {
		if (value) {
			opt_complain(&w, "takes no value", value);
			return -EINVAL;
		}
	} else if (!value) {
		if (*i >= argc) {
			opt_complain(&w, "needs a value", o->arg);
			return -EINVAL;
		}
		value = argv[(*i)++];
	}
	return opt_set(o, &w, value);
}

int opt_parse(const struct opt *table, int argc, char **argv, int *i)
{
	int err;

	while (*i < argc && argv[*i][0] == '-' && argv[*i][1]) {
		if (strcmp(argv[*i], "--") == 0) {
			++*i;
			return 0;
		}
		err = opt_parse_one(table, argc, argv, i);
		if (err)
			return err;
	}
	return 0;
}

/* Cut the next "key[=value]" off *list, undoubling commas; *list is NULL after the last. */
static char *opt_cut(char **list)
{
	char *item = *list, *from = item, *to = item;

	for (; *from; from++) {
		if (*from == ',' && from[1] != ',')
			break;
		if (*from == ',')
			from++;
		*to++ = *from;
	}
	*list = *from ? from + 1 : NULL;
	*to = '\0';
	return item;
}

int opt_parse_list(const struct opt *table, const char *what, char *list)
{
	while (list && *list) {
		char *item = opt_cut(&list);
		char *value = strchr(item, '=');
		struct opt_where w = { .list = what, .name = item };
		const struct opt *o;
		int err;

		if (value)
			*value++ = '\0';
		o = opt_find(table, item, strlen(item));
		if (!o) {
			opt_complain(&w, "is not known here", NULL);
			return -EINVAL;
		}
		if ((o->kind == OPT_FLAG) != (value == NULL)) {
			opt_complain(&w, value ? "takes no value" : "needs a value", o->arg);
			return -EINVAL;
		}
		err = opt_set(o, &w, value);
		if (err)
			return err;
	}
	return 0;
}

void opt_print(const struct opt *table)
{
	for (const struct opt *o = table; o->name; o++) {
		char left[64];

		snprintf(left, sizeof(left), "%c%c%s --%s %s", o->letter ? '-' : ' ',
			 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
			 o->arg ? o->arg : "");
		printf("  %-34s %s\n", left, o->help);
	}
}
