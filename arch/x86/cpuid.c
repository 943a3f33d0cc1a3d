/*
 * CPUID: what KVM supports on this host, made into the answer for one vCPU.
 *
 * The host's leaves describe the host's processor: its APIC ids, its cores and which of them share a
 * cache.  All of that is rewritten for one package of N single-threaded cores, where the vCPU's index
 * is its APIC id and the last-level cache is shared by all.  N need not be a power of two: ids are
 * dense, and the id field is as wide as the largest id needs.
 *
 * References: Intel SDM volume 2, "CPUID", and volume 3, "Hierarchical Mapping of Shared Resources";
 * AMD APM volume 3, appendix E.  Linux, Documentation/virt/kvm/x86/cpuid.rst, for 0x4000_00xx.
 */
#include <linux/kvm.h>
#include <asm/kvm_para.h>
#include <string.h>

#include "arch/x86/x86.h"
#include "vmm/base.h"

#define ECX1_MONITOR      (1u << 3)
#define ECX1_X2APIC       (1u << 21)
#define ECX1_TSC_DEADLINE (1u << 24)
#define ECX1_HYPERVISOR   (1u << 31)
#define EDX1_HTT          (1u << 28)
#define EAX6_ARAT         (1u << 2)
#define ECX81_CMP_LEGACY  (1u << 1)

/* Timing leaf that other hypervisors introduced and kernels read: TSC and APIC timer in kHz. */
#define LEAF_TIMING  0x40000010u
#define APIC_BUS_KHZ 1000000u /* KVM's APIC timer counts nanoseconds */

static struct kvm_cpuid_entry2 *cpuid_find(struct kvm_cpuid2 *c, uint32_t leaf)
{
	for (uint32_t i = 0; i < c->nent; i++)
		if (c->entries[i].function == leaf)
			return &c->entries[i];
	return NULL;
}

static void cpuid_remove(struct kvm_cpuid2 *c, uint32_t leaf)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->nent; i++)
		if (c->entries[i].function != leaf)
			c->entries[kept++] = c->entries[i];
	c->nent = kept;
}

static int cpuid_add(struct kvm_cpuid2 *c, const struct kvm_cpuid_entry2 *e)
{
	if (c->nent >= CPUID_ENTRIES_MAX)
		return -ENOSPC;
	c->entries[c->nent++] = *e;
	return 0;
}

/* The leaf 0 signature is of AMD or one of its licensees. */
static bool cpuid_is_amd(struct kvm_cpuid2 *c)
{
	const struct kvm_cpuid_entry2 *e = cpuid_find(c, 0);
	char id[12];

	if (!e)
		return false;
	memcpy(id, &e->ebx, 4);
	memcpy(id + 4, &e->edx, 4);
	memcpy(id + 8, &e->ecx, 4);
	return memcmp(id, "AuthenticAMD", 12) == 0 || memcmp(id, "HygonGenuine", 12) == 0;
}

/* Bits an APIC id below n takes. */
static uint32_t id_bits(unsigned n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

/* Leaf 1: initial APIC id, number of ids in the package, flags. */
static void patch_features(struct kvm_cpuid_entry2 *e, const struct cpuid_opts *o)
{
	e->ebx &= 0xffff;
	e->ebx |= o->index << 24 | MIN(o->n_vcpus, 255u) << 16;
	e->ecx &= ~(ECX1_MONITOR | ECX1_TSC_DEADLINE);
	e->ecx |= ECX1_X2APIC | ECX1_HYPERVISOR | (o->tsc_deadline ? ECX1_TSC_DEADLINE : 0);
	e->edx &= ~EDX1_HTT;
	if (o->n_vcpus > 1)
		e->edx |= EDX1_HTT;
}

/* Leaves 4 and 0x8000001d share a layout: type in eax[4:0], level in [7:5], ids that share it in [25:14]. */
static void patch_cache(struct kvm_cpuid_entry2 *e, const struct cpuid_opts *o)
{
	uint32_t level = e->eax >> 5 & 7, ids = (1u << id_bits(o->n_vcpus)) - 1;

	if ((e->eax & 0x1f) == 0)
		return; /* end of the list */
	e->eax &= 0x3fff;
	if (level >= 3)
		e->eax |= ids << 14;
	if (e->function == 4)
		e->eax |= MIN(ids, 63u) << 26; /* core ids in the package; 6 bits */
}

/* AMD: core count and id width; "extended APIC id, core id, node id". */
static void patch_amd(struct kvm_cpuid_entry2 *e, const struct cpuid_opts *o)
{
	switch (e->function) {
	case 0x80000001:
		e->ecx &= ~ECX81_CMP_LEGACY;
		if (o->n_vcpus > 1)
			e->ecx |= ECX81_CMP_LEGACY;
		break;
	case 0x80000008:
		e->ecx &= ~0xf0ffu;
		e->ecx |= id_bits(o->n_vcpus) << 12 | (o->n_vcpus - 1);
		break;
	case 0x8000001e:
		e->eax = o->index;
		e->ebx = o->index & 0xff; /* core id; threads per core - 1 in [15:8] */
		e->ecx = 0;               /* node 0, one node per package */
		break;
	default:
		break;
	}
}

static void patch_entry(struct kvm_cpuid_entry2 *e, const struct cpuid_opts *o, bool amd)
{
	switch (e->function) {
	case 1:
		patch_features(e, o);
		break;
	case 4:
	case 0x8000001d:
		patch_cache(e, o);
		break;
	case 5: /* MWAIT */
		e->eax = e->ebx = e->ecx = e->edx = 0;
		break;
	case 6: /* the emulated APIC timer never stops; nothing else of power management is there */
		e->eax = EAX6_ARAT;
		e->ebx = e->ecx = e->edx = 0;
		break;
	default:
		if (amd)
			patch_amd(e, o);
	}
}

/* Leaf 0xb or 0x1f: threads of a core (1), cores of the package (N), end.  edx is the x2APIC id. */
static int add_topology(struct kvm_cpuid2 *c, uint32_t leaf, const struct cpuid_opts *o)
{
	const struct kvm_cpuid_entry2 level[] = {
		{ .index = 0, .eax = 0, .ebx = 1, .ecx = 0 | 1 << 8, .edx = o->index },
		{ .index = 1, .eax = id_bits(o->n_vcpus), .ebx = o->n_vcpus, .ecx = 1 | 2 << 8,
		  .edx = o->index },
		{ .index = 2, .ecx = 2, .edx = o->index },
	};
	int err = 0;

	cpuid_remove(c, leaf);
	for (unsigned i = 0; i < ARRAY_SIZE(level) && !err; i++) {
		struct kvm_cpuid_entry2 e = level[i];

		e.function = leaf;
		e.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
		err = cpuid_add(c, &e);
	}
	return err;
}

static int patch_topology(struct kvm_cpuid2 *c, const struct cpuid_opts *o)
{
	struct kvm_cpuid_entry2 *max = cpuid_find(c, 0);
	int err;

	cpuid_remove(c, 0x80000026); /* AMD's own form of the same; optional */
	if (max && max->eax < 0xb)
		max->eax = 0xb;
	err = add_topology(c, 0xb, o);
	if (!err && cpuid_find(c, 0x1f))
		err = add_topology(c, 0x1f, o);
	return err;
}

/* Without it a kernel that does not use kvm-clock would look for a PIT to calibrate with. */
static int add_timing(struct kvm_cpuid2 *c, const struct cpuid_opts *o)
{
	const struct kvm_cpuid_entry2 timing = {
		.function = LEAF_TIMING, .eax = o->tsc_khz, .ebx = APIC_BUS_KHZ,
	};
	struct kvm_cpuid_entry2 *base = cpuid_find(c, KVM_CPUID_SIGNATURE);

	if (!base || o->tsc_khz == 0)
		return 0;
	base->eax = MAX(base->eax, LEAF_TIMING);
	cpuid_remove(c, LEAF_TIMING);
	return cpuid_add(c, &timing);
}

int cpuid_patch(struct kvm_cpuid2 *c, const struct cpuid_opts *o)
{
	bool amd = cpuid_is_amd(c);
	int err;

	for (uint32_t i = 0; i < c->nent; i++)
		patch_entry(&c->entries[i], o, amd);
	err = patch_topology(c, o);
	return err ? err : add_timing(c, o);
}
