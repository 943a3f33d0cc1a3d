/*
 * noise BYTES: random bytes to standard output, the same in each run.  They stand for a compressed
 * kernel: no file system, hypervisor or page merger can make them smaller.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Marsaglia, "Xorshift RNGs", 64 bits. */
static uint64_t next(uint64_t x)
{
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

int main(int argc, char **argv)
{
	uint64_t block[256], x = 88172645463325252u;
	long left = argc == 2 ? atol(argv[1]) : 0;

	if (left <= 0) {
		fprintf(stderr, "usage: noise BYTES\n");
		return 2;
	}
	while (left > 0) {
		size_t len = left < (long)sizeof(block) ? (size_t)left : sizeof(block);

		for (unsigned i = 0; i < sizeof(block) / sizeof(block[0]); i++)
			block[i] = x = next(x);
		if (fwrite(block, 1, len, stdout) != len)
			return 1;
		left -= (long)len;
	}
	return fflush(stdout) ? 1 : 0;
}
