/*
 * The virtual machine as plain data: what machine.c builds, vcpu.c runs and arch/ describes.  Frozen
 * before vCPUs run, but for the end state, which the first thread to end the VM writes.
 */
#ifndef VMM_VM_H
#define VMM_VM_H

#include <stdatomic.h>
#include <stdint.h>

#include "vmm/bus.h"
#include "vmm/irq.h"
#include "vmm/mem.h"
#include "vmm/vcpu.h"

/* Why the guest stopped; the first cause wins. */
enum vm_end {
	VM_RUNNING,
	VM_POWEROFF,  /* ACPI S5, PSCI SYSTEM_OFF */
	VM_RESET,     /* reset register, keyboard controller, triple fault, PSCI SYSTEM_RESET */
	VM_CRASHED,   /* KVM internal error, failed entry; logged */
};

struct vm {
	int kvm_fd, vm_fd;
	struct mem mem;
	struct bus mmio, ports;
	struct irq irq;
	struct vcpu *vcpu;
	unsigned n_vcpus;
	struct vcpu_gate gate;
	_Atomic int end;  /* enum vm_end */
	int end_fd;       /* eventfd, signalled when end is set */
	void *arch;       /* arch's own state, owned by it */
};

/* Record why the VM ends and wake main.  Any thread; only the first call counts. */
void vm_end(struct vm *vm, enum vm_end why);

#endif
