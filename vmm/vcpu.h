/*
 * vCPU threads: KVM_RUN and the exits common to all architectures (MMIO, ports, shutdown).
 *
 * A vCPU thread lives from vcpus_start to vcpus_end.  In between it runs the guest or is paused: a VM
 * reset pauses all, loads the kernel anew, and resumes them without making a thread.
 */
#ifndef VMM_VCPU_H
#define VMM_VCPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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
	bool has_run; /* since it was created: not as it came from KVM */
};

/* What all vCPU threads share: a gate that main opens and closes. */
struct vcpu_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic int want;  /* GATE_* ; read without the lock between two KVM_RUNs */
	unsigned paused;   /* threads waiting at the gate */
	unsigned turn;     /* counts resumes, so that a slow thread cannot be counted twice */
	const struct boot_entry *entry;
};

/* Create the KVM vCPUs of vm (n_vcpus set).  On main, before the sandbox.  0 or -errno, logged. */
int vcpus_create(struct vm *vm);
/* Make one thread each, waiting at the gate.  0 or -errno, logged. */
int vcpus_start(struct vm *vm);
/* Run the guest from e (kept by reference): arch_vcpu_reset, then KVM_RUN. */
void vcpus_resume(struct vm *vm, const struct boot_entry *e);
/* Bring all threads out of the guest and back to the gate; returns when all are there. */
void vcpus_pause(struct vm *vm);
/* Pause, end and join the threads, close the vCPUs.  Harmless when half built. */
void vcpus_destroy(struct vm *vm);

#endif
