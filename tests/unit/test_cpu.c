/* CPUID as each vCPU sees it (arch/x86/cpuid.c), read the way kernels read it. */
#include <asm/kvm_para.h>
#include <check.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arch/x86/x86.h"
#include "tests/unit/suite.h"

static const unsigned counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 12, 63, 64, 65, 128, 129, 254, 255 };

#define N_COUNTS (sizeof(counts) / sizeof(*counts))

struct table {
	struct kvm_cpuid2 *c;
};

static void add(struct table *t, uint32_t leaf, uint32_t index, uint32_t eax, uint32_t ebx,
		uint32_t ecx, uint32_t edx)
{
	t->c->entries[t->c->nent++] = (struct kvm_cpuid_entry2){
		.function = leaf, .index = index, .eax = eax, .ebx = ebx, .ecx = ecx, .edx = edx,
	};
}

/* A host with 16 cores of 2 threads, vCPU 5 of which asked, as KVM_GET_SUPPORTED_CPUID would say. */
static struct table host(bool amd)
{
	struct table t = { calloc(1, sizeof(*t.c) + CPUID_ENTRIES_MAX * sizeof(t.c->entries[0])) };

	if (amd)
		add(&t, 0, 0, 0x10, 0x68747541, 0x444d4163, 0x69746e65);
	else
		add(&t, 0, 0, 0x1f, 0x756e6547, 0x6c65746e, 0x49656e69);
	add(&t, 1, 0, 0x000906ea, 0x0b200800, 0x76fa320b, 0x178bfbff);
	if (!amd) {
		add(&t, 4, 0, 0x3c004121, 0x01c0003f, 0x3f, 0);
		add(&t, 4, 1, 0x3c004122, 0x01c0003f, 0x3f, 0);
		add(&t, 4, 2, 0x3c004143, 0x00c0003f, 0x3ff, 0);
		add(&t, 4, 3, 0x3c07c163, 0x03c0003f, 0x5fff, 6);
		add(&t, 4, 4, 0, 0, 0, 0);
		add(&t, 0x1f, 0, 1, 2, 0x100, 11);
	}
	add(&t, 5, 0, 64, 64, 3, 0);
	add(&t, 6, 0, 0x77, 2, 9, 0);
	add(&t, 0xb, 0, 1, 2, 0x100, 11);
	add(&t, 0xb, 1, 5, 32, 0x201, 11);
	add(&t, 0x40000000, 0, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d);
	add(&t, 0x40000001, 0, 0x01007efb, 0, 0, 0);
	add(&t, 0x80000000, 0, 0x8000001f, 0, 0, 0);
	add(&t, 0x80000001, 0, 0, 0, 0x00400121, 0x2c100800);
	add(&t, 0x80000008, 0, 0x3028, 0x1234, amd ? 0x501f : 0, 7);
	if (amd) {
		add(&t, 0x8000001d, 0, 0x4121, 0x01c0003f, 0x3f, 0);
		add(&t, 0x8000001d, 3, 0x3c163, 0x03c0003f, 0x3fff, 1);
		add(&t, 0x8000001d, 4, 0, 0, 0, 0);
		add(&t, 0x8000001e, 0, 11, 0x105, 0x300, 0);
		add(&t, 0x80000026, 0, 1, 2, 0x100, 11);
	}
	return t;
}

static struct table patched(bool amd, unsigned index, unsigned n)
{
	const struct cpuid_opts o = { .index = index, .n_vcpus = n, .tsc_deadline = true,
				      .tsc_khz = 2500000 };
	struct table t = host(amd);

	ck_assert_int_eq(cpuid_patch(t.c, &o), 0);
	return t;
}

static const struct kvm_cpuid_entry2 *find(const struct table *t, uint32_t leaf, uint32_t index)
{
	for (uint32_t i = 0; i < t->c->nent; i++)
		if (t->c->entries[i].function == leaf && t->c->entries[i].index == index)
			return &t->c->entries[i];
	return NULL;
}

static const struct kvm_cpuid_entry2 *must(const struct table *t, uint32_t leaf, uint32_t index)
{
	const struct kvm_cpuid_entry2 *e = find(t, leaf, index);

	ck_assert_ptr_nonnull(e);
	return e;
}

/* Leaf 0xb or 0x1f: one thread per core, n cores in package 0. */
static void check_extended(const struct table *t, uint32_t leaf, unsigned index, unsigned n)
{
	const struct kvm_cpuid_entry2 *smt = must(t, leaf, 0), *core = must(t, leaf, 1);

	ck_assert_uint_eq(smt->eax, 0);
	ck_assert_uint_eq(smt->ebx, 1);
	ck_assert_uint_eq(smt->ecx, 0x100);
	ck_assert_uint_eq(core->ebx, n);
	ck_assert_uint_eq(core->ecx, 0x201);
	ck_assert_uint_eq(must(t, leaf, 2)->ecx >> 8, 0);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(must(t, leaf, i)->edx, index);
		ck_assert_uint_eq(must(t, leaf, i)->flags, KVM_CPUID_FLAG_SIGNIFCANT_INDEX);
	}
	ck_assert_uint_eq((n - 1) >> core->eax, 0); /* all in one package */
	ck_assert(core->eax == 0 || (n - 1) >> (core->eax - 1) == 1); /* no wider than needed */
}

START_TEST(any_number_of_vcpus_is_one_package_of_single_cores)
{
	for (unsigned i = 0; i < N_COUNTS; i++) {
		for (unsigned amd = 0; amd < 2; amd++) {
			unsigned n = counts[i], index = n - 1;
			struct table t = patched(amd, index, n);
			const struct kvm_cpuid_entry2 *one = must(&t, 1, 0);

			check_extended(&t, 0xb, index, n);
			ck_assert_uint_eq(one->ebx >> 24, index);
			ck_assert_uint_eq(one->ebx >> 16 & 0xff, n);
			ck_assert_uint_eq(one->ebx & 0xffff, 0x0800);
			ck_assert_uint_eq(one->edx >> 28 & 1, n > 1);
			ck_assert_uint_eq(one->eax, 0x000906ea);
			free(t.c);
		}
	}
}
END_TEST

START_TEST(intel_caches_are_private_but_the_last)
{
	for (unsigned i = 0; i < N_COUNTS; i++) {
		unsigned n = counts[i];
		struct table t = patched(false, 0, n);

		check_extended(&t, 0x1f, 0, n);
		for (uint32_t level = 0; level < 4; level++) {
			const struct kvm_cpuid_entry2 *e = must(&t, 4, level);
			uint32_t sharing = (e->eax >> 14 & 0xfff) + 1;

			if (level < 3)
				ck_assert_uint_eq(sharing, 1);
			else
				ck_assert(sharing >= n && sharing < 2 * n);
			ck_assert_uint_ge((e->eax >> 26) + 1, n < 64 ? n : 64);
			ck_assert_uint_eq(e->ebx & 0xfff, 0x3f);
		}
		ck_assert_uint_eq(must(&t, 4, 4)->eax, 0);
		free(t.c);
	}
}
END_TEST

START_TEST(amd_has_its_own_leaves)
{
	for (unsigned i = 0; i < N_COUNTS; i++) {
		unsigned n = counts[i], index = n / 2;
		struct table t = patched(true, index, n);
		const struct kvm_cpuid_entry2 *size = must(&t, 0x80000008, 0);
		uint32_t sharing = (must(&t, 0x8000001d, 3)->eax >> 14 & 0xfff) + 1;

		ck_assert_uint_eq((size->ecx & 0xff) + 1, n);
		ck_assert_uint_eq((n - 1) >> (size->ecx >> 12 & 15), 0);
		ck_assert_uint_eq(must(&t, 0x80000001, 0)->ecx >> 1 & 1, n > 1);
		ck_assert_uint_eq(must(&t, 0x8000001d, 0)->eax, 0x121);
		ck_assert(sharing >= n && sharing < 2 * n);
		ck_assert_uint_eq(must(&t, 0x8000001e, 0)->eax, index);
		ck_assert_uint_eq(must(&t, 0x8000001e, 0)->ebx, index);
		ck_assert_uint_eq(must(&t, 0x8000001e, 0)->ecx, 0);
		ck_assert_ptr_null(find(&t, 0x80000026, 0));
		free(t.c);
	}
}
END_TEST

START_TEST(features_are_those_of_a_kvm_guest)
{
	struct table t = patched(false, 1, 2);
	const struct kvm_cpuid_entry2 *one = must(&t, 1, 0);

	ck_assert_uint_eq(one->ecx >> 31, 1);
	ck_assert_uint_eq(one->ecx >> 24 & 1, 1);
	ck_assert_uint_eq(one->ecx >> 21 & 1, 1);
	ck_assert_uint_eq(one->ecx >> 3 & 1, 0); /* MONITOR */
	ck_assert_uint_eq(must(&t, 5, 0)->eax, 0);
	ck_assert_uint_eq(must(&t, 6, 0)->eax, 4);
	ck_assert_uint_eq(must(&t, 0x40000001, 0)->eax, 0x01007efb);
	free(t.c);
}
END_TEST

START_TEST(the_timing_leaf_is_there_when_the_frequency_is_known)
{
	struct table t = patched(true, 0, 1);
	struct cpuid_opts o = { .n_vcpus = 1 };

	ck_assert_uint_eq(must(&t, 0x40000000, 0)->eax, 0x40000010);
	ck_assert_uint_eq(must(&t, 0x40000010, 0)->eax, 2500000);
	ck_assert_uint_eq(must(&t, 0x40000010, 0)->ebx, 1000000);
	free(t.c);
	t = host(true);
	ck_assert_int_eq(cpuid_patch(t.c, &o), 0);
	ck_assert_ptr_null(find(&t, 0x40000010, 0));
	ck_assert_uint_eq(must(&t, 0x40000000, 0)->eax, 0x40000001);
	ck_assert_uint_eq(must(&t, 1, 0)->ecx >> 24 & 1, 0); /* no deadline timer */
	free(t.c);
}
END_TEST

START_TEST(no_leaf_is_there_twice_and_a_full_table_is_refused)
{
	const struct cpuid_opts o = { .n_vcpus = 3 };
	struct table t = patched(false, 0, 3);

	for (uint32_t i = 0; i < t.c->nent; i++)
		for (uint32_t j = 0; j < i; j++)
			ck_assert(t.c->entries[i].function != t.c->entries[j].function ||
				  t.c->entries[i].index != t.c->entries[j].index);
	free(t.c);
	t = host(false);
	for (uint32_t leaf = 0x20000000; t.c->nent < CPUID_ENTRIES_MAX; leaf++)
		add(&t, leaf, 0, 0, 0, 0, 0);
	ck_assert_int_lt(cpuid_patch(t.c, &o), 0);
	ck_assert_uint_le(t.c->nent, CPUID_ENTRIES_MAX);
	free(t.c);
}
END_TEST

START_TEST(an_old_processor_gets_the_topology_leaf_too)
{
	const struct cpuid_opts o = { .index = 2, .n_vcpus = 3 };
	struct table t = host(true);

	t.c->entries[0].eax = 7;
	ck_assert_int_eq(cpuid_patch(t.c, &o), 0);
	ck_assert_uint_eq(must(&t, 0, 0)->eax, 0xb);
	check_extended(&t, 0xb, 2, 3);
	ck_assert_ptr_null(find(&t, 0x1f, 0));
	free(t.c);
}
END_TEST

SUITE_MAIN("cpu", 10,
	   any_number_of_vcpus_is_one_package_of_single_cores,
	   intel_caches_are_private_but_the_last,
	   amd_has_its_own_leaves,
	   features_are_those_of_a_kvm_guest,
	   the_timing_leaf_is_there_when_the_frequency_is_known,
	   no_leaf_is_there_twice_and_a_full_table_is_refused,
	   an_old_processor_gets_the_topology_leaf_too)
