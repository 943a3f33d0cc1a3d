/*
 * How fast does this KVM run kernel code?  A VM of one page with a counting loop in real mode, which is
 * kernel mode (CPL 0), ended by HLT.  Without an in-kernel interrupt controller HLT comes back to us.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vmm/arch.h"
#include "vmm/kvm.h"

#define PROBE_PAGE  4096
#define PROBE_FIRST 50000      /* loops; 0.05 s when interpreted */
#define PROBE_LONG  20000000   /* when the first round was fast: enough to drown the entry's cost */
#define PROBE_FAST_NS 10000000 /* 10 ms */

/* dec ecx; jnz -4; hlt: 32-bit count in 16-bit mode */
static const uint8_t loop_code[] = { 0x66, 0x49, 0x75, 0xfc, 0xf4 };

struct probe {
	int kvm_fd, vm_fd, vcpu_fd;
	struct kvm_run *run;
	size_t run_len;
	void *page;
};

static int probe_vcpu(struct probe *p)
{
	struct kvm_sregs sregs;

	p->vcpu_fd = ioctl(p->vm_fd, KVM_CREATE_VCPU, 0);
	if (p->vcpu_fd < 0)
		return -errno;
	p->run_len = (size_t)kvm_run_size(p->kvm_fd);
	p->run = mmap(NULL, p->run_len, PROT_READ | PROT_WRITE, MAP_SHARED, p->vcpu_fd, 0);
	if (p->run == MAP_FAILED)
		return -errno;
	if (ioctl(p->vcpu_fd, KVM_GET_SREGS, &sregs))
		return -errno;
	sregs.cs.base = sregs.cs.selector = 0;
	return ioctl(p->vcpu_fd, KVM_SET_SREGS, &sregs) ? -errno : 0;
}

static int probe_open(struct probe *p)
{
	struct kvm_userspace_memory_region slot = { .memory_size = PROBE_PAGE };

	p->kvm_fd = kvm_open(NULL);
	if (p->kvm_fd < 0)
		return p->kvm_fd;
	p->vm_fd = kvm_create_vm(p->kvm_fd);
	if (p->vm_fd < 0)
		return p->vm_fd;
	p->page = mmap(NULL, PROBE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->page == MAP_FAILED)
		return -errno;
	memcpy(p->page, loop_code, sizeof(loop_code));
	slot.userspace_addr = (uintptr_t)p->page;
	if (ioctl(p->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot))
		return -errno;
	return probe_vcpu(p);
}

static void probe_close(struct probe *p)
{
	if (p->run != MAP_FAILED)
		munmap(p->run, p->run_len);
	if (p->vcpu_fd >= 0)
		close(p->vcpu_fd);
	if (p->vm_fd >= 0)
		close(p->vm_fd);
	if (p->page != MAP_FAILED)
		munmap(p->page, PROBE_PAGE);
	if (p->kvm_fd >= 0)
		close(p->kvm_fd);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* Nanoseconds that n loops take, or -errno. */
static int64_t probe_run(struct probe *p, uint32_t n)
{
	struct kvm_regs regs = { .rip = 0, .rcx = n, .rflags = 2 };
	int64_t start;

	if (ioctl(p->vcpu_fd, KVM_SET_REGS, &regs))
		return -errno;
	start = now_ns();
	do {
		if (ioctl(p->vcpu_fd, KVM_RUN, 0) && errno != EINTR)
			return -errno;
	} while (p->run->exit_reason == KVM_EXIT_INTR);
	return p->run->exit_reason == KVM_EXIT_HLT ? now_ns() - start + 1 : -EIO;
}

int arch_probe(double *loops_per_s)
{
	struct probe p = { .kvm_fd = -1, .vm_fd = -1, .vcpu_fd = -1, .run = MAP_FAILED,
			   .page = MAP_FAILED };
	int64_t ns = probe_open(&p);
	uint32_t n = PROBE_FIRST;

	if (ns == 0)
		ns = probe_run(&p, n);
	if (ns > 0 && ns < PROBE_FAST_NS) {
		n = PROBE_LONG;
		ns = probe_run(&p, n);
	}
	probe_close(&p);
	if (ns < 0)
		return (int)ns;
	*loops_per_s = n * 1e9 / (double)ns;
	return 0;
}
