/*
 * vCPU state: from nothing, or from whatever a guest left behind, to where the kernel's entry
 * protocol wants vCPU 0, and to "waiting for INIT" for all others.
 *
 *  1. CPUID (always the same: KVM wants it constant after the first KVM_RUN); out of nested guests.
 *  2. Segment and control registers: 64-bit mode on the page tables of boot.c, or PVH's flat 32-bit.
 *  3. Local APIC, MSRs, pending events, FPU: as after power-on.
 *  4. General registers with the entry point.
 *  5. Run state last.
 *
 * Processors other than 0 stay in the "uninitialized" state; the kernel wakes them by INIT and SIPI,
 * which KVM's local APIC does on its own.
 */
#include <asm/msr.h>
#include <asm/kvm_para.h>
#include <asm/processor-flags.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>

#include "arch/x86/layout.h"
#include "arch/x86/x86.h"
#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/vcpu.h"
#include "vmm/vm.h"

#define EFER_LME (1u << 8)
#define EFER_LMA (1u << 10)

#define APIC_BASE_ENABLE (1u << 11)
#define APIC_BASE_BSP    (1u << 8)

/* Local APIC registers (Intel SDM volume 3, "Local APIC Register Address Map"). */
#define APIC_ID    0x020
#define APIC_LVR   0x030
#define APIC_DFR   0x0e0
#define APIC_SPIV  0x0f0
#define APIC_LVT   0x320 /* timer, thermal, performance counter, LINT0, LINT1, error */
#define APIC_LVTS  6
#define APIC_LINT0 0x350
#define APIC_LINT1 0x360
#define LVT_MASKED 0x10000
#define LVT_NMI    0x00400
#define LVT_EXTINT 0x00700

#define MISC_ENABLE_FAST_STRING 1u
#define MTRR_ENABLE             (1u << 11)
#define MTRR_WRITE_BACK         6u
#define PAT_RESET               0x0007040600070406ull

/* MSR numbers: Intel SDM volume 4; KVM's own: asm/kvm_para.h. */
#define MSR_SPEC_CTRL      0x048
#define MSR_MISC_ENABLE    0x1a0
#define MSR_DEBUGCTL       0x1d9
#define MSR_SYSENTER_CS    0x174
#define MSR_SYSENTER_ESP   0x175
#define MSR_SYSENTER_EIP   0x176
#define MSR_PAT            0x277
#define MSR_MTRR_DEF_TYPE  0x2ff
#define MSR_TSC_DEADLINE   0x6e0
#define MSR_XSS            0xda0
#define MSR_PERF_GLOBAL_CTRL 0x38f
#define MSR_STAR           0xc0000081
#define MSR_LSTAR          0xc0000082
#define MSR_CSTAR          0xc0000083
#define MSR_SYSCALL_MASK   0xc0000084
#define MSR_KERNEL_GS_BASE 0xc0000102

#define CPUID_SIZE \
	(sizeof(struct kvm_cpuid2) + CPUID_ENTRIES_MAX * sizeof(struct kvm_cpuid_entry2))

int x86_cpuid_init(struct x86_vm *x, int kvm_fd, unsigned n_vcpus)
{
	int err;

	/* Room for the vCPUs is made here: malloc on their threads would give each a heap of its own. */
	x->cpuid = calloc(1 + n_vcpus, CPUID_SIZE);
	if (!x->cpuid)
		return -ENOMEM;
	x->cpuid->nent = CPUID_ENTRIES_MAX;
	err = x86_ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, x->cpuid);
	if (err < 0)
		return err;
	x->tsc_deadline = ioctl(kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
	return 0;
}

static int set_cpuid(struct vcpu *v)
{
	const struct x86_vm *x = v->vm->arch;
	struct kvm_cpuid2 *c = (void *)((uint8_t *)x->cpuid + (1 + v->index) * CPUID_SIZE);
	int khz = x86_ioctl(v->fd, KVM_GET_TSC_KHZ, NULL);
	const struct cpuid_opts o = {
		.index = v->index,
		.n_vcpus = v->vm->n_vcpus,
		.tsc_deadline = x->tsc_deadline,
		.tsc_khz = khz > 0 ? (uint32_t)khz : 0,
	};
	int err;

	memcpy(c, x->cpuid, CPUID_SIZE);
	err = cpuid_patch(c, &o);
	return err ? err : x86_ioctl(v->fd, KVM_SET_CPUID2, c);
}

/* KVM stops at the first one it does not know; that is no reason to lose those behind it. */
static void give_msrs(struct vcpu *v, struct kvm_msrs *m)
{
	while (m->nmsrs > 0) {
		int taken = x86_ioctl(v->fd, KVM_SET_MSRS, m);
		uint32_t done = taken > 0 ? (uint32_t)taken : 0;

		if (done == m->nmsrs)
			return;
		log_debug("vcpu%u: KVM did not take MSR 0x%" PRIx32, v->index,
			  m->entries[done].index);
		m->nmsrs -= done + 1;
		memmove(m->entries, m->entries + done + 1, m->nmsrs * sizeof(m->entries[0]));
	}
}

/*
 * What only a guest that has run can have left: guests of its own, more of the FPU than a kernel begins
 * with, and MSRs that a KVM may not know, and then tells the host's log of.  Which form of the nested
 * state KVM takes is the processor's; without nesting it takes neither, and without XSAVE no XCR: then
 * there is nothing to reset.
 */
static void forget_guest(struct vcpu *v)
{
	static const uint32_t left[] = { MSR_SPEC_CTRL,		MSR_DEBUGCTL,	      MSR_XSS,
					 MSR_PERF_GLOBAL_CTRL, MSR_KVM_ASYNC_PF_INT };
	union {
		struct kvm_msrs list;
		uint8_t room[sizeof(struct kvm_msrs) + ARRAY_SIZE(left) * sizeof(struct kvm_msr_entry)];
	} m = { .list.nmsrs = ARRAY_SIZE(left) };

	const struct kvm_nested_state vmx = {
		.format = KVM_STATE_NESTED_FORMAT_VMX, .size = sizeof(vmx),
		.hdr.vmx = { .vmxon_pa = ~0ull, .vmcs12_pa = ~0ull },
	};
	const struct kvm_nested_state svm = {
		.format = KVM_STATE_NESTED_FORMAT_SVM, .size = sizeof(svm),
		.flags = KVM_STATE_NESTED_GIF_SET,
	};
	const struct kvm_xcrs xcrs = { .nr_xcrs = 1, .xcrs[0] = { .xcr = 0, .value = 1 } };

	if (x86_ioctl(v->fd, KVM_SET_NESTED_STATE, &vmx) < 0)
		(void)x86_ioctl(v->fd, KVM_SET_NESTED_STATE, &svm);
	(void)x86_ioctl(v->fd, KVM_SET_XCRS, &xcrs);
	for (unsigned i = 0; i < ARRAY_SIZE(left); i++)
		m.list.entries[i].index = left[i];
	give_msrs(v, &m.list);
}

/* Segments as the entry protocols want them; type 11 = code, read, accessed; 3 = data, write, accessed. */
static struct kvm_segment flat_segment(uint16_t selector, uint8_t type, bool code64)
{
	return (struct kvm_segment){
		.limit = 0xffffffff, .selector = selector, .type = type, .present = 1, .s = 1, .g = 1,
		.db = !code64, .l = code64,
	};
}

static void set_segments(struct kvm_sregs *s, bool long_mode)
{
	const struct kvm_segment data = flat_segment(0x18, 3, false);

	s->cs = flat_segment(0x10, 11, long_mode);
	s->ds = s->es = s->fs = s->gs = s->ss = data;
	s->tr = (struct kvm_segment){ .limit = 0x67, .type = 11, .present = 1 };
	s->ldt = (struct kvm_segment){ .unusable = 1 };
	s->gdt = (struct kvm_dtable){ .base = LAYOUT_GDT_GPA, .limit = 4 * 8 - 1 };
	s->idt = (struct kvm_dtable){ 0 };
}

/*
 * Linux, Documentation/arch/x86/boot.rst, "64-bit Boot Protocol": paging on, identity mapped.
 * Xen, docs/misc/pvh.pandoc: protected mode, paging off.
 */
static int set_sregs(struct vcpu *v, const struct boot_entry *e)
{
	struct kvm_sregs s;
	int err = x86_ioctl(v->fd, KVM_GET_SREGS, &s);

	if (err < 0)
		return err;
	s.apic_base = LAYOUT_LAPIC_GPA | APIC_BASE_ENABLE | (v->index == 0 ? APIC_BASE_BSP : 0);
	/*
	 * Others wait for INIT, which sets all of it.  Yet what one has that has run may be refused:
	 * under SVM the control registers of a nested guest with the segments of its host.
	 */
	if (v->index == 0 || v->has_run) {
		bool long_mode = v->index == 0 && e->kind == BOOT_LINUX64;

		set_segments(&s, long_mode);
		s.cr0 = X86_CR0_PE | X86_CR0_ET | (long_mode ? X86_CR0_PG : 0);
		s.cr3 = long_mode ? LAYOUT_PAGE_TABLES_GPA : 0;
		s.cr4 = long_mode ? X86_CR4_PAE : 0;
		s.efer = long_mode ? EFER_LME | EFER_LMA : 0;
		s.cr2 = s.cr8 = 0;
		memset(s.interrupt_bitmap, 0, sizeof(s.interrupt_bitmap));
	}
	return x86_ioctl(v->fd, KVM_SET_SREGS, &s);
}

static void apic_set(struct kvm_lapic_state *l, unsigned reg, uint32_t value)
{
	memcpy(l->regs + reg, &value, sizeof(value));
}

/* Reset values; then LINT0 and LINT1 of the first processor as a PC's firmware leaves them. */
static int set_lapic(struct vcpu *v)
{
	struct kvm_lapic_state l;
	uint32_t version;
	int err = x86_ioctl(v->fd, KVM_GET_LAPIC, &l);

	if (err < 0)
		return err;
	memcpy(&version, l.regs + APIC_LVR, sizeof(version));
	memset(&l, 0, sizeof(l));
	/* Not as read: before Linux 6.3 KVM leaves it in x2APIC's form when that is switched off. */
	apic_set(&l, APIC_ID, v->index << 24);
	apic_set(&l, APIC_LVR, version);
	apic_set(&l, APIC_DFR, 0xffffffff);
	apic_set(&l, APIC_SPIV, 0xff);
	for (unsigned i = 0; i < APIC_LVTS; i++)
		apic_set(&l, APIC_LVT + 16 * i, LVT_MASKED);
	if (v->index == 0)
		apic_set(&l, APIC_LINT0, LVT_EXTINT);
	apic_set(&l, APIC_LINT1, LVT_NMI);
	return x86_ioctl(v->fd, KVM_SET_LAPIC, &l);
}

/* The bits KVM itself wants set (no PEBS, no BTS) are kept. */
static uint64_t misc_enable(struct vcpu *v)
{
	union {
		struct kvm_msrs list;
		uint8_t room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)];
	} m = { .list = { .nmsrs = 1 } };

	m.list.entries[0].index = MSR_MISC_ENABLE;
	if (x86_ioctl(v->fd, KVM_GET_MSRS, &m) != 1)
		return MISC_ENABLE_FAST_STRING;
	return m.list.entries[0].data | MISC_ENABLE_FAST_STRING;
}

/*
 * What firmware would have set, and no trace of a kernel that ran before.
 */
static void set_msrs(struct vcpu *v)
{
	const struct kvm_msr_entry want[] = {
		{ .index = MSR_SYSENTER_CS },
		{ .index = MSR_SYSENTER_ESP },
		{ .index = MSR_SYSENTER_EIP },
		{ .index = MSR_STAR },
		{ .index = MSR_LSTAR },
		{ .index = MSR_CSTAR },
		{ .index = MSR_SYSCALL_MASK },
		{ .index = MSR_KERNEL_GS_BASE },
		{ .index = MSR_TSC_DEADLINE },
		{ .index = MSR_KVM_SYSTEM_TIME_NEW },
		{ .index = MSR_KVM_WALL_CLOCK_NEW },
		{ .index = MSR_KVM_ASYNC_PF_EN },
		{ .index = MSR_KVM_STEAL_TIME },
		{ .index = MSR_KVM_PV_EOI_EN },
		{ .index = MSR_MISC_ENABLE, .data = misc_enable(v) },
		{ .index = MSR_PAT, .data = PAT_RESET },
		/* All memory write-back; device areas get their type from page attributes. */
		{ .index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLE | MTRR_WRITE_BACK },
	};
	union {
		struct kvm_msrs list;
		uint8_t room[sizeof(struct kvm_msrs) + sizeof(want)];
	} m = { .list = { 0 } };

	m.list.nmsrs = ARRAY_SIZE(want);
	memcpy(m.list.entries, want, sizeof(want));
	give_msrs(v, &m.list);
}

static int set_rest(struct vcpu *v)
{
	const struct kvm_fpu fpu = { .fcw = 0x37f, .mxcsr = 0x1f80 };
	/* All zero; the flags say that the zeroes of these two are meant. */
	const struct kvm_vcpu_events events = {
		.flags = KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW,
	};
	const struct kvm_debugregs debug = { .dr6 = 0xffff0ff0, .dr7 = 0x400 };
	int err = x86_ioctl(v->fd, KVM_SET_FPU, &fpu);

	if (err >= 0)
		err = x86_ioctl(v->fd, KVM_SET_VCPU_EVENTS, &events);
	if (err >= 0)
		err = x86_ioctl(v->fd, KVM_SET_DEBUGREGS, &debug);
	return err;
}

static int set_regs(struct vcpu *v, const struct boot_entry *e)
{
	struct kvm_regs r = { .rflags = X86_EFLAGS_FIXED };

	if (v->index == 0) {
		r.rip = e->pc;
		r.rsi = e->kind == BOOT_LINUX64 ? e->arg : 0;
		r.rbx = e->kind == BOOT_PVH ? e->arg : 0;
	}
	return x86_ioctl(v->fd, KVM_SET_REGS, &r);
}

static int set_run_state(struct vcpu *v)
{
	const struct kvm_mp_state state = {
		.mp_state = v->index == 0 ? KVM_MP_STATE_RUNNABLE : KVM_MP_STATE_UNINITIALIZED,
	};

	return x86_ioctl(v->fd, KVM_SET_MP_STATE, &state);
}

static int reset_steps(struct vcpu *v, const struct boot_entry *e, const char **step)
{
	int err;

	*step = "CPUID";
	err = set_cpuid(v);
	if (err < 0)
		return err;
	if (v->has_run)
		forget_guest(v);
	*step = "segment and control registers";
	err = set_sregs(v, e);
	if (err < 0)
		return err;
	*step = "the local APIC";
	err = set_lapic(v);
	if (err < 0)
		return err;
	set_msrs(v);
	*step = "FPU and events";
	err = set_rest(v);
	if (err < 0)
		return err;
	*step = "general registers";
	err = set_regs(v, e);
	if (err < 0)
		return err;
	*step = "the run state";
	return set_run_state(v);
}

int arch_vcpu_reset(struct vcpu *v, const struct boot_entry *e)
{
	const char *step;
	int err = reset_steps(v, e, &step);

	if (err < 0) {
		log_error("vcpu%u: KVM did not take %s: %s", v->index, step, strerror(-err));
		return err;
	}
	v->has_run = true;
	return 0;
}

int arch_vcpu_exit(struct vcpu *v)
{
	switch (v->run->exit_reason) {
	case KVM_EXIT_SET_TPR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		return 0; /* only with an APIC outside KVM; harmless */
	default:
		log_error("vcpu%u: KVM exit %u is not handled", v->index, v->run->exit_reason);
		return -ENOSYS;
	}
}

void arch_vcpu_dump(struct vcpu *v)
{
	struct kvm_sregs s;
	struct kvm_regs r;

	if (x86_ioctl(v->fd, KVM_GET_REGS, &r) < 0 || x86_ioctl(v->fd, KVM_GET_SREGS, &s) < 0)
		return;
	log_error("vcpu%u: rip %#llx rsp %#llx rflags %#llx rax %#llx rbx %#llx rcx %#llx rdx %#llx "
		  "rsi %#llx rdi %#llx cs %#x cpl %u cr0 %#llx cr2 %#llx cr3 %#llx cr4 %#llx "
		  "efer %#llx", v->index, r.rip, r.rsp, r.rflags, r.rax, r.rbx, r.rcx, r.rdx, r.rsi,
		  r.rdi, s.cs.selector, s.ss.dpl, s.cr0, s.cr2, s.cr3, s.cr4, s.efer);
}
