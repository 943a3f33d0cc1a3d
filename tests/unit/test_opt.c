/* Option tables (vmm/opt.h). */
#include <check.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "vmm/log.h"
#include "vmm/opt.h"

struct got {
	bool flag;
	const char *text;
	unsigned number;
	uint64_t size;
	int choice;
	unsigned calls;
};

static int refuse(void *ctx, const char *value)
{
	struct got *g = ctx;

	g->calls++;
	return strcmp(value, "bad") == 0 ? -1 : 0;
}

static const char *const names[] = { "auto", "none", NULL };

#define TABLE(g)                                                                              \
	{                                                                                     \
		{ "flag", 'f', OPT_FLAG, &(g)->flag, NULL, "" },                              \
		{ "text", 't', OPT_STRING, &(g)->text, "TEXT", "" },                          \
		{ "number", 'n', OPT_UINT, &(g)->number, "N", "", .min = 2, .max = 64 },      \
		{ "size", 's', OPT_SIZE, &(g)->size, "SIZE", "", .min = 1 << 20,              \
		  .max = 1ULL << 40 },                                                        \
		{ "choice", 0, OPT_ENUM, &(g)->choice, "C", "", .names = names },             \
		{ "call", 0, OPT_CALL, (g), "X", "", .fn = refuse },                          \
		{ 0 },                                                                        \
	}

static int parse(struct got *g, int *i, int argc, char **argv)
{
	const struct opt table[] = TABLE(g);

	memset(g, 0, sizeof(*g));
	*i = 0;
	return opt_parse(table, argc, argv, i);
}

#define ARGS(...) (int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)), (char *[]){ __VA_ARGS__ }

START_TEST(long_short_joined_and_separate_forms_are_the_same)
{
	struct got g;
	int i;

	ck_assert_int_eq(parse(&g, &i, ARGS("--number", "7", "--text=a=b", "-f", "-s2G")), 0);
	ck_assert_uint_eq(g.number, 7);
	ck_assert_str_eq(g.text, "a=b");
	ck_assert(g.flag);
	ck_assert_uint_eq(g.size, 2ULL << 30);
	ck_assert_int_eq(i, 5);
}
END_TEST

START_TEST(parsing_stops_at_the_command_and_eats_one_double_dash)
{
	struct got g;
	int i;

	ck_assert_int_eq(parse(&g, &i, ARGS("-f", "--", "--", "-n")), 0);
	ck_assert_int_eq(i, 2);
	ck_assert_int_eq(parse(&g, &i, ARGS("-f", "make", "-f")), 0);
	ck_assert_int_eq(i, 1);
	ck_assert_int_eq(parse(&g, &i, ARGS("-", "x")), 0);
	ck_assert_int_eq(i, 0);
}
END_TEST

START_TEST(numbers_outside_their_range_or_with_a_tail_are_refused)
{
	static const char *const bad[] = { "1", "65", "", "-3", "7x", "99999999999999999999", " 7" };
	struct got g;
	int i;

	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		ck_assert_int_ne(parse(&g, &i, ARGS("-n", (char *)(uintptr_t)bad[k])), 0);
}
END_TEST

START_TEST(sizes_take_suffixes_and_default_to_mebibytes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = { { "512", 512ULL << 20 }, { "1024K", 1 << 20 },    { "3g", 3ULL << 30 },
		     { "1T", 1ULL << 40 },    { "2GiB", 2ULL << 30 } };
	static const char *const bad[] = { "1K", "2T", "G", "5Q", "1GB", "17179869184G", "1.5G" };
	struct got g;
	int i;

	for (size_t k = 0; k < sizeof(good) / sizeof(*good); k++) {
		ck_assert_int_eq(parse(&g, &i, ARGS("-s", (char *)(uintptr_t)good[k].text)), 0);
		ck_assert_uint_eq(g.size, good[k].bytes);
	}
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		ck_assert_int_ne(parse(&g, &i, ARGS("-s", (char *)(uintptr_t)bad[k])), 0);
}
END_TEST

START_TEST(unknown_missing_and_superfluous_are_refused)
{
	struct got g;
	int i;

	ck_assert_int_ne(parse(&g, &i, ARGS("--nothing")), 0);
	ck_assert_int_ne(parse(&g, &i, ARGS("-x")), 0);
	ck_assert_int_ne(parse(&g, &i, ARGS("--text")), 0);
	ck_assert_int_ne(parse(&g, &i, ARGS("--flag=1")), 0);
	ck_assert_int_ne(parse(&g, &i, ARGS("--choice", "some")), 0);
	ck_assert_int_ne(parse(&g, &i, ARGS("--call", "bad")), 0);
	ck_assert_uint_eq(g.calls, 1);
	/* A prefix of a name is not the name. */
	ck_assert_int_ne(parse(&g, &i, ARGS("--num", "7")), 0);
}
END_TEST

START_TEST(lists_set_flags_values_and_undouble_commas)
{
	struct got g = { 0 };
	const struct opt table[] = TABLE(&g);
	char list[] = "text=/a,,b,,,flag,choice=none";

	/* "/a,,b,,,flag" is the value "/a,b," and then flag. */
	ck_assert_int_eq(opt_parse_list(table, "--fs", list), 0);
	ck_assert_str_eq(g.text, "/a,b,");
	ck_assert(g.flag);
	ck_assert_int_eq(g.choice, 1);
}
END_TEST

START_TEST(lists_refuse_what_they_do_not_know)
{
	static const char *const bad[] = { "nothing", "flag=1", "text", "number=1", "choice=", "=x" };
	struct got g = { 0 };
	const struct opt table[] = TABLE(&g);

	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		char list[32];

		strcpy(list, bad[k]);
		ck_assert_int_ne(opt_parse_list(table, "--fs", list), 0);
	}
	char empty[] = "";

	ck_assert_int_eq(opt_parse_list(table, "--fs", empty), 0);
}
END_TEST

SUITE_MAIN("opt", 10,
	   long_short_joined_and_separate_forms_are_the_same,
	   parsing_stops_at_the_command_and_eats_one_double_dash,
	   numbers_outside_their_range_or_with_a_tail_are_refused,
	   sizes_take_suffixes_and_default_to_mebibytes,
	   unknown_missing_and_superfluous_are_refused,
	   lists_set_flags_values_and_undouble_commas,
	   lists_refuse_what_they_do_not_know)
