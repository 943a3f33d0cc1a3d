/*
 * vCPU threads: see vcpu.h.
 *
 * Coming out of KVM_RUN: main sets run->immediate_exit and sends VCPU_SIGNAL, whose handler does
 * nothing.  If the signal comes before the ioctl is entered, immediate_exit makes it return at once; if
 * it comes inside, the ioctl is interrupted.  No window is left between the two.
 */
#include "vmm/vcpu.h"

#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "vmm/arch.h"
#include "vmm/base.h"
#include "vmm/kvm.h"
#include "vmm/log.h"
#include "vmm/vm.h"

#define VCPU_SIGNAL SIGRTMIN
#define VCPU_STACK  (256UL * 1024)

enum { GATE_PAUSE, GATE_RUN, GATE_EXIT };

static int exit_mmio(struct vcpu *v)
{
	struct kvm_run *run = v->run;
	uint32_t len = MIN(run->mmio.len, (uint32_t)sizeof(run->mmio.data));

	if (run->mmio.is_write)
		(void)bus_write(&v->vm->mmio, run->mmio.phys_addr, run->mmio.data, len);
	else
		(void)bus_read(&v->vm->mmio, run->mmio.phys_addr, run->mmio.data, len);
	return 0;
}

/* A port access may be a string instruction: count items of size bytes, in the run page. */
static int exit_port(struct vcpu *v)
{
	struct kvm_run *run = v->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
		if (run->io.direction == KVM_EXIT_IO_OUT)
			(void)bus_write(&v->vm->ports, run->io.port, data, run->io.size);
		else
			(void)bus_read(&v->vm->ports, run->io.port, data, run->io.size);
	}
	return 0;
}

static int exit_shutdown(struct vcpu *v)
{
	vm_end(v->vm, VM_RESET);
	return 0;
}

static int exit_event(struct vcpu *v)
{
	switch (v->run->system_event.type) {
	case KVM_SYSTEM_EVENT_SHUTDOWN:
		vm_end(v->vm, VM_POWEROFF);
		return 0;
	case KVM_SYSTEM_EVENT_RESET:
		vm_end(v->vm, VM_RESET);
		return 0;
	default:
		log_error("vCPU %u: the guest reports that it crashed (KVM system event %u)", v->index,
			  v->run->system_event.type);
		return -EIO;
	}
}

static int exit_fail_entry(struct vcpu *v)
{
	log_error("vCPU %u: KVM could not enter the guest (hardware reason 0x%llx); nested "
		  "virtualization or a CPU feature the host lacks",
		  v->index, v->run->fail_entry.hardware_entry_failure_reason);
	return -EIO;
}

static int exit_internal(struct vcpu *v)
{
	log_error("vCPU %u: KVM gave up (internal error %u); on a KVM that interprets kernel code "
		  "this is an instruction it does not know: see heddle check",
		  v->index, v->run->internal.suberror);
	return -EIO;
}

/* 0 = go on, else -errno: the VM has crashed (logged). */
static int (*const exit_handlers[])(struct vcpu *v) = {
	[KVM_EXIT_MMIO] = exit_mmio,
	[KVM_EXIT_IO] = exit_port,
	[KVM_EXIT_SHUTDOWN] = exit_shutdown,
	[KVM_EXIT_SYSTEM_EVENT] = exit_event,
	[KVM_EXIT_FAIL_ENTRY] = exit_fail_entry,
	[KVM_EXIT_INTERNAL_ERROR] = exit_internal,
};

static int vcpu_exit(struct vcpu *v)
{
	uint32_t reason = v->run->exit_reason;

	if (reason < ARRAY_SIZE(exit_handlers) && exit_handlers[reason])
		return exit_handlers[reason](v);
	return arch_vcpu_exit(v);
}

/* Run the guest until the gate closes, or until this vCPU can run no more. */
static void vcpu_run(struct vcpu *v)
{
	struct vcpu_gate *gate = &v->vm->gate;
	int err = arch_vcpu_reset(v, gate->entry), ret = -1;

	/* Not after the end: what a processor does behind a triple fault is anybody's guess. */
	while (!err && atomic_load(&gate->want) == GATE_RUN &&
	       atomic_load(&v->vm->end) == VM_RUNNING) {
		ret = ioctl(v->fd, KVM_RUN, 0);
		if (ret == 0) {
			err = vcpu_exit(v);
		} else if (errno != EINTR && errno != EAGAIN) {
			err = -errno;
			log_error("vCPU %u stopped: %s", v->index, strerror(-err));
		}
	}
	/* KVM finishes a read that left it when it is entered again; not into the next guest's registers. */
	if (ret == 0) {
		__atomic_store_n(&v->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
		(void)ioctl(v->fd, KVM_RUN, 0);
	}
	if (err) {
		arch_vcpu_dump(v);
		vm_end(v->vm, VM_CRASHED);
	}
}

/*
 * Wait at the gate.  Returns what main wants; GATE_PAUSE when it was opened and closed again before
 * this thread woke.
 */
static int vcpu_wait(struct vcpu *v)
{
	struct vcpu_gate *gate = &v->vm->gate;
	unsigned turn;
	int want;

	pthread_mutex_lock(&gate->lock);
	turn = gate->turn;
	gate->paused++;
	pthread_cond_broadcast(&gate->changed);
	while (gate->turn == turn)
		pthread_cond_wait(&gate->changed, &gate->lock);
	want = atomic_load(&gate->want);
	pthread_mutex_unlock(&gate->lock);
	return want;
}

static void *vcpu_main(void *arg)
{
	struct vcpu *v = arg;
	char name[16];
	sigset_t set;
	int want;

	snprintf(name, sizeof(name), "vcpu%u", v->index);
	prctl(PR_SET_NAME, name);
	sigemptyset(&set);
	sigaddset(&set, VCPU_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	while ((want = vcpu_wait(v)) != GATE_EXIT)
		if (want == GATE_RUN)
			vcpu_run(v);
	return NULL;
}

static void vcpu_signal(int sig)
{
	(void)sig;
}

static unsigned vcpus_started(const struct vm *vm)
{
	unsigned n = 0;

	for (unsigned i = 0; i < vm->n_vcpus; i++)
		n += vm->vcpu[i].started;
	return n;
}

/* Until every thread stands at the gate: only then has each seen the turn it waits to see changed. */
static void gate_gather(struct vm *vm)
{
	struct vcpu_gate *gate = &vm->gate;

	while (gate->paused < vcpus_started(vm))
		pthread_cond_wait(&gate->changed, &gate->lock);
}

static void gate_open(struct vm *vm, int want, const struct boot_entry *e)
{
	struct vcpu_gate *gate = &vm->gate;

	pthread_mutex_lock(&gate->lock);
	gate_gather(vm);
	for (unsigned i = 0; i < vm->n_vcpus; i++)
		if (vm->vcpu[i].started)
			vm->vcpu[i].run->immediate_exit = 0;
	gate->entry = e;
	gate->paused = 0;
	gate->turn++;
	atomic_store(&gate->want, want);
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

void vcpus_resume(struct vm *vm, const struct boot_entry *e)
{
	gate_open(vm, GATE_RUN, e);
}

void vcpus_pause(struct vm *vm)
{
	struct vcpu_gate *gate = &vm->gate;

	atomic_store(&gate->want, GATE_PAUSE);
	for (unsigned i = 0; i < vm->n_vcpus; i++) {
		if (!vm->vcpu[i].started)
			continue;
		__atomic_store_n(&vm->vcpu[i].run->immediate_exit, 1, __ATOMIC_SEQ_CST);
		pthread_kill(vm->vcpu[i].thread, VCPU_SIGNAL);
	}
	pthread_mutex_lock(&gate->lock);
	gate_gather(vm);
	pthread_mutex_unlock(&gate->lock);
}

static int vcpu_create(struct vm *vm, struct vcpu *v, size_t run_len)
{
	v->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, v->index);
	if (v->fd < 0)
		return -errno;
	v->run = mmap(NULL, run_len, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	if (v->run == MAP_FAILED) {
		v->run = NULL;
		return -errno;
	}
	v->run_len = run_len;
	return 0;
}

int vcpus_create(struct vm *vm)
{
	int size = kvm_run_size(vm->kvm_fd), err = size < 0 ? size : 0;

	pthread_mutex_init(&vm->gate.lock, NULL);
	pthread_cond_init(&vm->gate.changed, NULL);
	vm->vcpu = calloc(vm->n_vcpus, sizeof(*vm->vcpu));
	if (!vm->vcpu)
		err = -ENOMEM;
	for (unsigned i = 0; i < vm->n_vcpus && vm->vcpu; i++)
		vm->vcpu[i] = (struct vcpu){ .vm = vm, .index = i, .fd = -1 };
	for (unsigned i = 0; i < vm->n_vcpus && !err; i++)
		err = vcpu_create(vm, &vm->vcpu[i], (size_t)size);
	if (err)
		log_error("no %u vCPUs: %s (see -c, ulimit -n)", vm->n_vcpus, strerror(-err));
	return err;
}

int vcpus_start(struct vm *vm)
{
	struct sigaction sa = { .sa_handler = vcpu_signal };
	sigset_t all, old;
	pthread_attr_t attr;
	int err = 0;

	sigaction(VCPU_SIGNAL, &sa, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, VCPU_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < vm->n_vcpus && !err; i++) {
		err = -pthread_create(&vm->vcpu[i].thread, &attr, vcpu_main, &vm->vcpu[i]);
		vm->vcpu[i].started = !err;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		log_error("no thread for a vCPU: %s (see ulimit -u)", strerror(-err));
	return err;
}

void vcpus_destroy(struct vm *vm)
{
	if (!vm->vcpu)
		return;
	vcpus_pause(vm);
	gate_open(vm, GATE_EXIT, NULL);
	for (unsigned i = 0; i < vm->n_vcpus; i++) {
		struct vcpu *v = &vm->vcpu[i];

		if (v->started)
			pthread_join(v->thread, NULL);
		if (v->run)
			munmap(v->run, v->run_len);
		if (v->fd >= 0)
			close(v->fd);
	}
	free(vm->vcpu);
	vm->vcpu = NULL;
}
