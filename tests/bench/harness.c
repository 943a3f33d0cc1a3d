/* See harness.h. */
#include "tests/bench/harness.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* --- who allocates ---------------------------------------------------------------------------- */

static _Atomic uint64_t n_allocations;
static _Thread_local bool not_counted;

void *__libc_malloc(size_t len);
void *__libc_calloc(size_t n, size_t len);
void *__libc_realloc(void *p, size_t len);
void *__libc_memalign(size_t align, size_t len);

static void count_allocation(void)
{
	if (!not_counted)
		atomic_fetch_add(&n_allocations, 1);
}

void *malloc(size_t len)
{
	count_allocation();
	return __libc_malloc(len);
}

void *calloc(size_t n, size_t len)
{
	count_allocation();
	return __libc_calloc(n, len);
}

void *realloc(void *p, size_t len)
{
	count_allocation();
	return __libc_realloc(p, len);
}

void *aligned_alloc(size_t align, size_t len)
{
	count_allocation();
	return __libc_memalign(align, len);
}

uint64_t allocations(void)
{
	return atomic_load(&n_allocations);
}

void allocations_mine(void)
{
	not_counted = true;
}
