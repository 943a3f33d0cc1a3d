/*
 * What an architecture supplies.  Functions, not pointers: the Makefile links exactly one arch directory.
 * Arch code knows of devices only what the plain-data platform list says.
 */
#ifndef VMM_ARCH_H
#define VMM_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/kernel.h"
#include "vmm/mem.h"

struct vm;
struct vcpu;

/* One initrd piece: a file, or bytes in memory.  Pieces are laid one after another, each starting at a
 * multiple of 4 bytes (the kernel unpacks archives that follow each other). */
struct initrd_part {
	const struct file *file; /* NULL: data */
	const void *data;
	uint64_t len;
};

struct boot_files {
	const struct file *kernel;
	const struct initrd_part *initrd;
	unsigned n_initrd;
	const char *cmdline;
};

/* Where vCPU 0 starts.  Filled by arch_load, arch-specific meaning of kind and arg. */
struct boot_entry {
	enum { BOOT_LINUX64, BOOT_PVH, BOOT_ARM64 } kind;
	uint64_t pc;
	uint64_t arg; /* boot_params, hvm_start_info or device tree, guest-physical */
};

/* Devices outside PCI, and where PCI is: what ACPI or the device tree has to describe. */
struct platform {
	uint64_t ecam_gpa;                 /* one bus, 1 MiB */
	uint64_t pci_window_gpa, pci_window_len;
	uint32_t intx_gsi[4];
	bool pci_ports;                    /* config space also through ports 0xcf8/0xcfc */
	uint64_t serial_base;              /* port or MMIO address */
	bool serial_mmio;
	uint32_t serial_gsi;
	uint32_t power_gsi;                /* edge: power button */
	unsigned n_vcpus;
};

/* Fixed facts of the memory map for ram bytes (a multiple of 2 MiB): regions, platform addresses.
 * Returns the number of regions or -errno. */
int arch_memory_map(uint64_t ram, struct mem_region out[], unsigned max);
void arch_platform(struct platform *p);

/* Interrupt controller, timers; calls irq_init and routes the pins.  Before vCPUs are created. */
int arch_vm_init(struct vm *vm);
/* Ports or MMIO ranges of the platform itself: reset, power off, RTC, keyboard-controller reset. */
int arch_platform_init(struct vm *vm);
/* Interrupt controller and platform back to their first state.  vCPUs are paused; each gets its own
 * arch_vcpu_reset when it is resumed.  0 or -errno. */
int arch_vm_reset(struct vm *vm);
void arch_vm_destroy(struct vm *vm);

/* Load kernel, initrd and command line into guest RAM, which must read as zero.  One line is logged on
 * failure (naming the file, the found format, both numbers of a limit).  0 or -errno. */
int arch_load(struct vm *vm, const struct boot_files *f, struct boot_entry *e);
/* ACPI tables or device tree into guest RAM, from the platform list; completes e. */
int arch_describe(struct vm *vm, const struct platform *p, struct boot_entry *e);

/* On the vCPU's thread before its first KVM_RUN, and again after a VM reset: CPUID, registers. */
int arch_vcpu_reset(struct vcpu *v, const struct boot_entry *e);
/* An exit the common table does not know.  0 = go on, else -errno: the VM has crashed (logged). */
int arch_vcpu_exit(struct vcpu *v);
/* One diagnostic line of vCPU state for a crash. */
void arch_vcpu_dump(struct vcpu *v);

/* Time a loop of guest kernel code in a VM of its own: loops a second.  0 or -errno. */
int arch_probe(double *loops_per_s);

/* Largest number of vCPUs this architecture's description can hold. */
unsigned arch_max_vcpus(void);
/* Kernel parameters heddle puts in front of the user's: console and so on. */
const char *arch_cmdline(void);
/* "x86-64", "arm64" */
const char *arch_name(void);
/* e_machine of an ELF kernel that runs here (EM_X86_64, EM_AARCH64). */
uint16_t arch_elf_machine(void);

#endif
