/* What the native benchmarks share: an end with a reason, clocks, and who allocates. */
#ifndef TESTS_BENCH_HARNESS_H
#define TESTS_BENCH_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Or the program ends, and says what went wrong. */
void need(bool ok, const char *what);
uint64_t clock_ns(clockid_t clock);

/* Calls of malloc and its like until now, but for those of threads that called allocations_mine. */
uint64_t allocations(void);
void allocations_mine(void);

#endif
