/*
 * bare KERNEL: a bzImage in a VM, and nothing else.  The reference for how fast a VMM can start:
 * it asks KVM for what heddle asks it before the first KVM_RUN (1 GiB of RAM, interrupt
 * controllers and their routing, three irqfds, four vCPUs with all their state), reads the same
 * file into guest memory, and runs vCPU 0 in the calling thread.  No devices, no tables, no other
 * threads, no options.
 *
 * Where heddle's way of asking is a matter of style, the cheaper one is taken: all MSRs in one
 * call, every vCPU from one thread.  Of the guest's machine only the serial port's data register
 * is there.
 */
#include <asm/bootparam.h>
#include <asm/kvm_para.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RAM         (1ul << 30)
#define VCPUS       4
#define PAGE        4096
#define PINS        24
#define SERIAL_PORT 0x3f8

/* Guest-physical places. */
#define BOOT_PARAMS  0x2000
#define PAGE_TABLES  0x4000
#define KVM_IDENTITY 0xfffbc000ul
#define KVM_TSS      0xfffbd000ul

struct bare {
	int kvm, vm;
	uint8_t *ram;
	uint64_t entry;
	struct kvm_cpuid2 *cpuid;
	int vcpu[VCPUS];
	struct kvm_run *run[VCPUS];
};

/* ioctl that must work. */
static int kvm(int fd, unsigned long request, const void *arg, const char *name)
{
	int result = ioctl(fd, request, arg);

	if (result < 0)
		err(1, "%s", name);
	return result;
}
#define KVM(fd, request, arg) kvm(fd, request, (const void *)(uintptr_t)(arg), #request)

static void make_vm(struct bare *b)
{
	static const int needs[] = {
		KVM_CAP_USER_MEMORY,          KVM_CAP_IRQCHIP,
		KVM_CAP_IRQ_ROUTING,          KVM_CAP_IRQFD,
		KVM_CAP_IRQFD_RESAMPLE,       KVM_CAP_IOEVENTFD,
		KVM_CAP_IOEVENTFD_ANY_LENGTH, KVM_CAP_SIGNAL_MSI,
		KVM_CAP_IMMEDIATE_EXIT,       KVM_CAP_TSC_DEADLINE_TIMER,
	};

	b->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (b->kvm < 0)
		err(1, "/dev/kvm");
	KVM(b->kvm, KVM_GET_API_VERSION, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(needs); i++)
		KVM(b->kvm, KVM_CHECK_EXTENSION, needs[i]);
	b->vm = KVM(b->kvm, KVM_CREATE_VM, 0);
}

static void make_memory(struct bare *b)
{
	struct kvm_userspace_memory_region slot = { .memory_size = RAM };

	b->ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b->ram == MAP_FAILED)
		err(1, "guest memory");
	(void)madvise(b->ram, RAM, MADV_HUGEPAGE);
	(void)madvise(b->ram, RAM, MADV_DONTDUMP);
	slot.userspace_addr = (uintptr_t)b->ram;
	KVM(b->vm, KVM_SET_USER_MEMORY_REGION, &slot);
}

static void add_pin(struct kvm_irq_routing *r, uint32_t gsi, uint32_t chip, uint32_t pin)
{
	struct kvm_irq_routing_entry *e = &r->entries[r->nr++];

	*e = (struct kvm_irq_routing_entry){ .gsi = gsi, .type = KVM_IRQ_ROUTING_IRQCHIP };
	e->u.irqchip.irqchip = chip;
	e->u.irqchip.pin = pin;
}

static void add_irqfd(struct bare *b, uint32_t gsi, int resample)
{
	const int flags = EFD_CLOEXEC | EFD_NONBLOCK;
	struct kvm_irqfd fd = { .gsi = gsi, .fd = (uint32_t)eventfd(0, flags) };

	if (resample) {
		fd.resamplefd = (uint32_t)eventfd(0, flags);
		fd.flags = KVM_IRQFD_FLAG_RESAMPLE;
	}
	KVM(b->vm, KVM_IRQFD, &fd);
}

static void make_interrupts(struct bare *b)
{
	struct kvm_irq_routing *r = calloc(1, sizeof(*r) + 40 * sizeof(r->entries[0]));
	const uint64_t identity = KVM_IDENTITY;

	if (!r)
		err(1, "routing");
	KVM(b->vm, KVM_SET_IDENTITY_MAP_ADDR, &identity);
	KVM(b->vm, KVM_SET_TSS_ADDR, KVM_TSS);
	KVM(b->vm, KVM_CREATE_IRQCHIP, 0);
	for (uint32_t i = 0; i < PINS; i++)
		add_pin(r, i, KVM_IRQCHIP_IOAPIC, i);
	for (uint32_t i = 0; i < 16; i++)
		add_pin(r, i, i < 8 ? KVM_IRQCHIP_PIC_MASTER : KVM_IRQCHIP_PIC_SLAVE, i % 8);
	KVM(b->vm, KVM_SET_GSI_ROUTING, r);
	free(r);
	add_irqfd(b, 4, 0);
	add_irqfd(b, 20, 0);
	add_irqfd(b, 16, 1);
}

static void read_all(int fd, uint64_t off, void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (uint8_t *)to + done, len - done, (off_t)(off + done));

		if (n <= 0)
			err(1, "reading the kernel");
		done += (size_t)n;
	}
}

/* The 64-bit boot protocol: kernel at its place, boot_params, first 4 GiB mapped as they are. */
static void load(struct bare *b, const char *path)
{
	struct boot_params *bp = (struct boot_params *)(b->ram + BOOT_PARAMS);
	uint64_t *t = (uint64_t *)(b->ram + PAGE_TABLES);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct setup_header *h = &bp->hdr;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		err(1, "%s", path);
	read_all(fd, offsetof(struct boot_params, hdr), h, sizeof(*h));
	if (h->header != 0x53726448 || h->pref_address + h->init_size > RAM)
		errx(1, "%s: not a bzImage that fits", path);
	read_all(fd, 512 * (h->setup_sects + 1u), b->ram + h->pref_address, 16ul * h->syssize);
	b->entry = h->pref_address + 0x200;
	t[0] = (PAGE_TABLES + PAGE) | 3;
	for (unsigned i = 0; i < 4; i++)
		t[512 + i] = (PAGE_TABLES + (2 + i) * PAGE) | 3;
	for (uint64_t i = 0; i < 4 * 512; i++)
		t[1024 + i] = i << 21 | 0x83;
	close(fd);
}

static void make_vcpus(struct bare *b)
{
	size_t len = (size_t)KVM(b->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

	for (unsigned i = 0; i < VCPUS; i++) {
		b->vcpu[i] = KVM(b->vm, KVM_CREATE_VCPU, i);
		b->run[i] = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, b->vcpu[i], 0);
		if (b->run[i] == MAP_FAILED)
			err(1, "vCPU %u", i);
	}
}

static void set_cpuid(struct bare *b, unsigned i)
{
	for (uint32_t k = 0; k < b->cpuid->nent; k++) {
		struct kvm_cpuid_entry2 *e = &b->cpuid->entries[k];

		if (e->function == 1)
			e->ebx = (e->ebx & 0xffff) | i << 24 | VCPUS << 16;
		if (e->function == 0xb)
			e->edx = i;
	}
	KVM(b->vcpu[i], KVM_GET_TSC_KHZ, 0);
	KVM(b->vcpu[i], KVM_SET_CPUID2, b->cpuid);
}

static void set_sregs(struct bare *b, unsigned i)
{
	const struct kvm_segment code = { .limit = 0xffffffff,
					  .selector = 0x10,
					  .type = 11,
					  .present = 1,
					  .s = 1,
					  .g = 1,
					  .l = 1 };
	const struct kvm_segment data = { .limit = 0xffffffff,
					  .selector = 0x18,
					  .type = 3,
					  .present = 1,
					  .s = 1,
					  .g = 1,
					  .db = 1 };
	struct kvm_sregs s;

	KVM(b->vcpu[i], KVM_GET_SREGS, &s);
	if (i == 0) {
		s.cs = code;
		s.ds = s.es = s.fs = s.gs = s.ss = data;
		s.idt = (struct kvm_dtable){ 0 };
		s.cr0 = 0x80000011;
		s.cr3 = PAGE_TABLES;
		s.cr4 = 0x20;
		s.efer = 0x500;
	}
	KVM(b->vcpu[i], KVM_SET_SREGS, &s);
}

static void set_lapic(struct bare *b, unsigned i)
{
	struct kvm_lapic_state l;

	KVM(b->vcpu[i], KVM_GET_LAPIC, &l);
	KVM(b->vcpu[i], KVM_SET_LAPIC, &l);
}

/* As heddle sets them; a KVM stops at the first it does not take, and is then told the rest. */
static void set_msrs(struct bare *b, unsigned i)
{
	static const struct kvm_msr_entry msrs[] = {
		{ .index = 0x174 },
		{ .index = 0x175 },
		{ .index = 0x176 },
		{ .index = 0xc0000081 },
		{ .index = 0xc0000082 },
		{ .index = 0xc0000083 },
		{ .index = 0xc0000084 },
		{ .index = 0xc0000102 },
		{ .index = 0x6e0 },
		{ .index = MSR_KVM_SYSTEM_TIME_NEW },
		{ .index = MSR_KVM_WALL_CLOCK_NEW },
		{ .index = MSR_KVM_ASYNC_PF_EN },
		{ .index = MSR_KVM_STEAL_TIME },
		{ .index = MSR_KVM_PV_EOI_EN },
		{ .index = 0x277, .data = 0x0007040600070406 },
		{ .index = 0x2ff, .data = 0x806 },
		{ .index = 0x1a0, .data = 1 },
	};
	union {
		struct kvm_msrs list;
		uint8_t room[sizeof(struct kvm_msrs) + sizeof(msrs)];
	} m = { .list = { 0 } };

	/* + 1: past the one that was not taken, or past the end */
	for (uint32_t from = 0; from < ARRAY_SIZE(msrs); from++) {
		m.list.nmsrs = ARRAY_SIZE(msrs) - from;
		memcpy(m.list.entries, msrs + from, m.list.nmsrs * sizeof(msrs[0]));
		from += (uint32_t)KVM(b->vcpu[i], KVM_SET_MSRS, &m);
	}
}

static void set_rest(struct bare *b, unsigned i)
{
	const struct kvm_mp_state state = { i == 0 ? KVM_MP_STATE_RUNNABLE
						   : KVM_MP_STATE_UNINITIALIZED };
	const struct kvm_fpu fpu = { .fcw = 0x37f, .mxcsr = 0x1f80 };
	const struct kvm_debugregs debug = { .dr6 = 0xffff0ff0, .dr7 = 0x400 };
	const struct kvm_vcpu_events events = { 0 };
	const struct kvm_regs regs = { .rip = b->entry, .rsi = BOOT_PARAMS, .rflags = 2 };

	KVM(b->vcpu[i], KVM_SET_FPU, &fpu);
	KVM(b->vcpu[i], KVM_SET_VCPU_EVENTS, &events);
	KVM(b->vcpu[i], KVM_SET_DEBUGREGS, &debug);
	KVM(b->vcpu[i], KVM_SET_REGS, &regs);
	KVM(b->vcpu[i], KVM_SET_MP_STATE, &state);
}

static void set_state(struct bare *b)
{
	for (unsigned i = 0; i < VCPUS; i++) {
		set_cpuid(b, i);
		set_sregs(b, i);
		set_lapic(b, i);
		set_msrs(b, i);
		set_rest(b, i);
	}
}

/* Until the triple fault.  Exit status: 0 if the guest came that far. */
static int run(struct bare *b)
{
	struct kvm_run *r = b->run[0];

	for (;;) {
		if (ioctl(b->vcpu[0], KVM_RUN, 0) && errno != EINTR)
			err(1, "KVM_RUN");
		if (r->exit_reason == KVM_EXIT_SHUTDOWN)
			return 0;
		if (r->exit_reason != KVM_EXIT_IO || r->io.port != SERIAL_PORT)
			errx(1, "KVM exit %u", r->exit_reason);
		if (write(STDOUT_FILENO, (uint8_t *)r + r->io.data_offset, 1) != 1)
			err(1, "standard output");
	}
}

int main(int argc, char **argv)
{
	struct bare b = { 0 };

	if (argc != 2)
		errx(2, "usage: bare KERNEL");
	make_vm(&b);
	make_memory(&b);
	b.cpuid = calloc(1, sizeof(*b.cpuid) + 256 * sizeof(b.cpuid->entries[0]));
	if (!b.cpuid)
		err(1, "CPUID");
	b.cpuid->nent = 256;
	KVM(b.kvm, KVM_GET_SUPPORTED_CPUID, b.cpuid);
	make_interrupts(&b);
	load(&b, argv[1]);
	make_vcpus(&b);
	set_state(&b);
	return run(&b);
}
