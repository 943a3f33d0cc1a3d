/* Fuzzer input, taken from the front.  When it has run out, everything is 0. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct input {
	const uint8_t *p;
	size_t left;
};

static inline uint64_t take(struct input *in, size_t len)
{
	size_t n = len < in->left ? len : in->left;
	uint64_t v = 0;

	if (n > 0)
		memcpy(&v, in->p, n);
	in->p += n;
	in->left -= n;
	return v;
}

/* An invariant of ours: a fuzzer that breaks it has found a bug. */
#define require(x) ((x) ? (void)0 : abort())

#endif
