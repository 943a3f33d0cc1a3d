/*
 * vCPU threads: KVM_RUN and the exits common to all architectures (MMIO, ports, shutdown).
 */
#ifndef VMM_VCPU_H
#define VMM_VCPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvm_run; /* linux/kvm.h */
struct vm;
struct boot_entry;

struct vcpu {
	struct vm *vm;
	unsigned index;
	int fd;
	struct kvm_run *run; /* mapped, run_len bytes */
	size_t run_len;
	pthread_t thread;
	bool started;
	const struct boot_entry *entry;
	_Atomic bool stop;
};

/* Create the KVM vCPUs of vm (n_vcpus set).  On main, before the sandbox.  0 or -errno. */
int vcpus_create(struct vm *vm);
/* Start one thread each: arch_vcpu_reset, then KVM_RUN until the VM ends. */
int vcpus_start(struct vm *vm, const struct boot_entry *entry);
/* Kick all out of KVM_RUN and join.  Harmless when not started. */
void vcpus_stop(struct vm *vm);
void vcpus_destroy(struct vm *vm);

#endif
