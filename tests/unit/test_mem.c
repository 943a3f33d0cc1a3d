/* Guest RAM (vmm/mem.h). */
#include <errno.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "vmm/base.h"
#include "vmm/mem.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Two neighbours, a hole, one above 4 GiB. */
static const struct mem_region layout[] = {
	{ .gpa = 0, .len = MIB },
	{ .gpa = MIB, .len = 2 * MIB },
	{ .gpa = 4 * GIB, .len = MIB },
};

static struct mem m;

static void create(void)
{
	ck_assert_int_eq(mem_create(&m, layout, 3), 0);
}

START_TEST(regions_lie_back_to_back_in_one_mapping)
{
	create();
	ck_assert_uint_eq(m.map_len, 4 * MIB);
	ck_assert_ptr_eq(mem_at(&m, 0, 1), m.map);
	ck_assert_ptr_eq(mem_at(&m, MIB + 5, 1), m.map + MIB + 5);
	ck_assert_ptr_eq(mem_at(&m, 4 * GIB, MIB), m.map + 3 * MIB);
	mem_destroy(&m);
	ck_assert_uint_eq(m.n, 0);
}
END_TEST

START_TEST(bad_layouts_are_refused)
{
	static const struct mem_region empty = { .gpa = 0, .len = 0 };
	static const struct mem_region odd = { .gpa = 0, .len = 5000 };
	static const struct mem_region unaligned = { .gpa = 100, .len = 4096 };
	static const struct mem_region wrap = { .gpa = UINT64_MAX - 4095, .len = 8192 };
	static const struct mem_region twice[] = { { .gpa = 0, .len = 8192 },
						   { .gpa = 4096, .len = 4096 } };

	ck_assert_int_eq(mem_create(&m, layout, 0), -EINVAL);
	ck_assert_int_eq(mem_create(&m, layout, MEM_REGIONS_MAX + 1), -EINVAL);
	ck_assert_int_eq(mem_create(&m, &empty, 1), -EINVAL);
	ck_assert_int_eq(mem_create(&m, &odd, 1), -EINVAL);
	ck_assert_int_eq(mem_create(&m, &unaligned, 1), -EINVAL);
	ck_assert_int_eq(mem_create(&m, &wrap, 1), -EINVAL);
	ck_assert_int_eq(mem_create(&m, twice, 2), -EINVAL);
	mem_destroy(&m);
}
END_TEST

START_TEST(more_than_the_host_can_map_is_no_memory)
{
	static const struct mem_region huge = { .gpa = 0, .len = 1ull << 60 };

	ck_assert_int_eq(mem_create(&m, &huge, 1), -ENOMEM);
	mem_destroy(&m);
}
END_TEST

START_TEST(address_is_given_only_when_every_byte_is_ram_of_one_region)
{
	create();
	ck_assert_ptr_nonnull(mem_at(&m, 0, MIB));
	ck_assert_ptr_null(mem_at(&m, 0, MIB + 1));
	ck_assert_ptr_null(mem_at(&m, MIB - 1, 2));
	ck_assert_ptr_nonnull(mem_at(&m, 3 * MIB - 1, 1));
	ck_assert_ptr_null(mem_at(&m, 3 * MIB - 1, 2));
	ck_assert_ptr_null(mem_at(&m, 3 * MIB, 1));
	ck_assert_ptr_null(mem_at(&m, 4 * GIB - 1, 2));
	ck_assert_ptr_null(mem_at(&m, 4 * GIB + MIB, 1));
	ck_assert_ptr_null(mem_at(&m, UINT64_MAX, 1));
	ck_assert_ptr_null(mem_at(&m, 5, UINT64_MAX));
	ck_assert_ptr_null(mem_at(&m, UINT64_MAX, UINT64_MAX));
	/* Nothing at the end of a region is still there. */
	ck_assert_ptr_nonnull(mem_at(&m, 3 * MIB, 0));
	ck_assert_ptr_null(mem_at(&m, 3 * MIB + 1, 0));
	mem_destroy(&m);
}
END_TEST

START_TEST(run_is_cut_at_the_end_of_its_region)
{
	uint64_t len = 100;

	create();
	ck_assert_ptr_eq(mem_run(&m, 10, &len), m.map + 10);
	ck_assert_uint_eq(len, 100);
	len = 4 * MIB;
	ck_assert_ptr_eq(mem_run(&m, MIB - 10, &len), m.map + MIB - 10);
	ck_assert_uint_eq(len, 10);
	len = UINT64_MAX;
	ck_assert_ptr_nonnull(mem_run(&m, 4 * GIB, &len));
	ck_assert_uint_eq(len, MIB);
	len = 1;
	ck_assert_ptr_null(mem_run(&m, 3 * MIB, &len));
	ck_assert_ptr_null(mem_run(&m, 4 * GIB - 1, &len));
	ck_assert_ptr_null(mem_run(&m, UINT64_MAX, &len));
	mem_destroy(&m);
}
END_TEST

START_TEST(cleared_memory_reads_as_zero)
{
	create();
	memset(m.map, 0xaa, m.map_len);
	ck_assert_int_eq(mem_clear(&m), 0);
	for (size_t i = 0; i < m.map_len; i += 997)
		if (m.map[i] != 0)
			ck_abort_msg("byte %zu", i);
	mem_destroy(&m);
}
END_TEST

SUITE_MAIN("mem", 10, regions_lie_back_to_back_in_one_mapping, bad_layouts_are_refused,
	   more_than_the_host_can_map_is_no_memory,
	   address_is_given_only_when_every_byte_is_ram_of_one_region,
	   run_is_cut_at_the_end_of_its_region, cleared_memory_reads_as_zero)
