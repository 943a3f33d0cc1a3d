/* What the files of arch/x86 share; nothing outside includes this. */
#ifndef ARCH_X86_X86_H
#define ARCH_X86_X86_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "vmm/arch.h"

struct kvm_cpuid2;

/* vm->arch: made by arch_vm_init, read by all vCPU threads. */
struct x86_vm {
	struct kvm_cpuid2 *cpuid;  /* what KVM supports: template; behind it one for each vCPU */
	bool tsc_deadline;
};

/* 0 or a positive result, else -errno. */
static inline int x86_ioctl(int fd, unsigned long request, const void *arg)
{
	int r = ioctl(fd, request, arg);

	return r < 0 ? -errno : r;
}

/* --- cpuid.c: pure, no KVM needed --- */

/* KVM takes no more (KVM_MAX_CPUID_ENTRIES); the struct is allocated with this much room. */
#define CPUID_ENTRIES_MAX 256

struct cpuid_opts {
	unsigned index;     /* of this vCPU: also its APIC id */
	unsigned n_vcpus;   /* 1.. 255: one package, one thread per core */
	bool tsc_deadline;
	uint32_t tsc_khz;   /* 0: not known */
};

/*
 * Turn what KVM supports into what vCPU index is told.  c has room for CPUID_ENTRIES_MAX entries.
 * 0, or -ENOSPC.
 */
int cpuid_patch(struct kvm_cpuid2 *c, const struct cpuid_opts *o);

/* --- acpi.c: pure --- */

/*
 * All tables into buf, which the guest sees at gpa: the RSDP comes first.  The length used, or
 * -ENOSPC.
 */
int acpi_build(uint8_t *buf, uint32_t len, uint64_t gpa, const struct platform *p);

/* --- cpu.c --- */

/* For x86_vm_init: what the vCPUs need to know of this KVM.  0 or -errno. */
int x86_cpuid_init(struct x86_vm *x, int kvm_fd, unsigned n_vcpus);

#endif
