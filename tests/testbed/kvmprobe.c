/*
 * Can this machine's /dev/kvm run stock kernels, and how fast?
 *
 * Runs a counted loop at CPL 0 in real mode, then a HLT, and prints the iterations per second.  A
 * KVM that interprets kernel code (a software KVM in a VM) shows about 1 million, the emulated test
 * host a few hundred, hardware thousands.  Exit status: 0 when it ran, 1 when not.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define LOOPS 20000000u

static const uint8_t code[] = {
	0x66, 0x49,			/* again: dec %ecx */
	0x75, 0xfc,			/* jnz again */
	0xf4,				/* hlt */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = 0x1000,
		.memory_size = 0x1000,
	};
	struct kvm_regs regs = { .rip = 0x1000, .rflags = 2, .rcx = LOOPS };
	struct kvm_sregs sregs;
	struct kvm_run *run;
	uint8_t *page;
	double start, seconds;
	int kvm, vm, vcpu, size;

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		return fail("/dev/kvm");
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		return fail("KVM_CREATE_VM");
	page = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return fail("mmap");
	memcpy(page, code, sizeof(code));
	region.userspace_addr = (uintptr_t)page;
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return fail("KVM_SET_USER_MEMORY_REGION");
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	if (vcpu < 0)
		return fail("KVM_CREATE_VCPU");
	size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED || ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
		return fail("vCPU");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	if (ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0)
		return fail("registers");
	start = now();
	if (ioctl(vcpu, KVM_RUN, 0) < 0)
		return fail("KVM_RUN");
	seconds = now() - start;
	if (run->exit_reason != KVM_EXIT_HLT) {
		fprintf(stderr, "KVM_RUN: exit reason %u\n", run->exit_reason);
		return 1;
	}
	printf("%.1f million iterations/s at CPL 0\n", LOOPS / seconds / 1e6);
	return 0;
}
