/* Cursor over iovecs (vmm/iov.h). */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "vmm/base.h"
#include "vmm/iov.h"

static char a[4] = "abc", b[1], c[8] = "defghij";

static const struct iovec three[] = {
	{ a, 3 }, { b, 0 }, { c, 7 },
};

START_TEST(left_counts_what_is_not_consumed)
{
	struct cursor k = cursor_of(three, 3);

	ck_assert_uint_eq(cursor_left(&k), 10);
	ck_assert(cursor_skip(&k, 4));
	ck_assert_uint_eq(cursor_left(&k), 6);
	ck_assert(cursor_skip(&k, 6));
	ck_assert_uint_eq(cursor_left(&k), 0);
	k = cursor_of(NULL, 0);
	ck_assert_uint_eq(cursor_left(&k), 0);
}
END_TEST

START_TEST(left_saturates)
{
	const struct iovec huge[] = { { a, SIZE_MAX }, { b, 2 } };
	struct cursor k = cursor_of(huge, 2);

	ck_assert_uint_eq(cursor_left(&k), SIZE_MAX);
}
END_TEST

START_TEST(read_crosses_segments)
{
	struct cursor k = cursor_of(three, 3);
	char got[16] = "";

	ck_assert(cursor_read(&k, got, 2));
	ck_assert(cursor_read(&k, got + 2, 5));
	ck_assert_str_eq(got, "abcdefg");
	ck_assert(cursor_read(&k, got + 7, 3));
	ck_assert_str_eq(got, "abcdefghij");
}
END_TEST

START_TEST(too_long_a_read_moves_and_touches_nothing)
{
	struct cursor k = cursor_of(three, 3), before;
	char got[16] = "x";

	ck_assert(cursor_skip(&k, 3));
	before = k;
	ck_assert(!cursor_read(&k, got, 8));
	ck_assert_mem_eq(&k, &before, sizeof(k));
	ck_assert_str_eq(got, "x");
	ck_assert(!cursor_skip(&k, 8));
	ck_assert_mem_eq(&k, &before, sizeof(k));
	ck_assert(cursor_read(&k, got, 7));
	ck_assert(!cursor_read(&k, got, 1));
	ck_assert(!cursor_skip(&k, SIZE_MAX));
}
END_TEST

START_TEST(nothing_can_be_read_anywhere)
{
	struct cursor k = cursor_of(NULL, 0);
	char got;

	ck_assert(cursor_read(&k, &got, 0));
	ck_assert(cursor_write(&k, &got, 0));
	ck_assert(cursor_skip(&k, 0));
	ck_assert(!cursor_read(&k, &got, 1));
	ck_assert(!cursor_write(&k, &got, 1));
}
END_TEST

START_TEST(write_crosses_segments_or_does_nothing)
{
	char x[2] = { 0 }, y[3] = { 0 };
	const struct iovec v[] = { { x, 2 }, { NULL, 0 }, { y, 3 } };
	struct cursor k = cursor_of(v, 3);

	ck_assert(!cursor_write(&k, "123456", 6));
	ck_assert_int_eq(x[0], 0);
	ck_assert(cursor_write(&k, "1", 1));
	ck_assert(cursor_write(&k, "2345", 4));
	ck_assert_mem_eq(x, "12", 2);
	ck_assert_mem_eq(y, "345", 3);
	ck_assert(!cursor_write(&k, "6", 1));
}
END_TEST

START_TEST(slice_describes_without_moving)
{
	struct cursor k = cursor_of(three, 3), before;
	struct iovec out[3];
	size_t got;

	ck_assert(cursor_skip(&k, 1));
	before = k;
	ck_assert_uint_eq(cursor_slice(&k, 4, out, 3, &got), 2);
	ck_assert_uint_eq(got, 4);
	ck_assert_ptr_eq(out[0].iov_base, a + 1);
	ck_assert_uint_eq(out[0].iov_len, 2);
	ck_assert_ptr_eq(out[1].iov_base, c);
	ck_assert_uint_eq(out[1].iov_len, 2);
	ck_assert_mem_eq(&k, &before, sizeof(k));
}
END_TEST

START_TEST(slice_stops_at_the_end_and_at_max)
{
	struct cursor k = cursor_of(three, 3);
	struct iovec out[3];
	size_t got;

	ck_assert_uint_eq(cursor_slice(&k, 100, out, 3, &got), 2);
	ck_assert_uint_eq(got, 10);
	ck_assert_uint_eq(cursor_slice(&k, 100, out, 1, &got), 1);
	ck_assert_uint_eq(got, 3);
	ck_assert_uint_eq(cursor_slice(&k, 0, out, 3, &got), 0);
	ck_assert_uint_eq(got, 0);
	ck_assert_uint_eq(cursor_slice(&k, 3, out, 3, NULL), 1);
	ck_assert(cursor_skip(&k, 10));
	ck_assert_uint_eq(cursor_slice(&k, 1, out, 3, &got), 0);
}
END_TEST

/* Random cuts against a flat copy. */
START_TEST(any_cut_gives_the_same_bytes)
{
	unsigned seed = 5;

	for (unsigned round = 0; round < 2000; round++) {
		char flat[64], got[64];
		struct iovec v[12];
		struct cursor k = cursor_of(v, 12);
		size_t at = 0, pos = 0;

		for (unsigned i = 0; i < sizeof(flat); i++)
			flat[i] = (char)rand_r(&seed);
		for (unsigned i = 0; i < 12; i++) {
			size_t len = (size_t)rand_r(&seed) % 7;

			len = MIN(len, sizeof(flat) - at);
			v[i] = (struct iovec){ flat + at, len };
			at += len;
		}
		while (pos < at) {
			size_t len = (size_t)rand_r(&seed) % 9;
			bool fits = len <= at - pos,
			     ok = cursor_read(&k, got + pos, fits ? len : 60);

			if (ok != (fits ? true : 60 <= at - pos))
				ck_abort_msg("round %u", round);
			if (fits)
				pos += len;
			else
				len = at - pos;
			if (!fits && cursor_read(&k, got + pos, len))
				pos += len;
			if (cursor_left(&k) != at - pos)
				ck_abort_msg("round %u: %zu left", round, cursor_left(&k));
		}
		if (memcmp(got, flat, at) != 0)
			ck_abort_msg("round %u: bytes differ", round);
	}
}
END_TEST

SUITE_MAIN("iov", 10, left_counts_what_is_not_consumed, left_saturates, read_crosses_segments,
	   too_long_a_read_moves_and_touches_nothing, nothing_can_be_read_anywhere,
	   write_crosses_segments_or_does_nothing, slice_describes_without_moving,
	   slice_stops_at_the_end_and_at_max, any_cut_gives_the_same_bytes)
