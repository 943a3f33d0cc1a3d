/*
 * Boot: files on disk -> guest RAM -> the state in which vCPU 0 enters the kernel.  There is no
 * firmware; this leaves behind what a boot loader would (Linux, Documentation/arch/x86/boot.rst; Xen,
 * docs/misc/pvh.pandoc).
 *
 *  1. The kernel, by its format (bzimage.c, elf.c): where it lies, its entry, its limits.
 *  2. The command line: refused if longer than the kernel's limit, never cut.
 *  3. The initrd: below 4 GiB and the kernel's own limit if it fits there, else above 4 GiB for
 *     kernels that can.  Never in the hole, for that is not RAM.
 *  4. boot_params with an e820 map and a fresh random seed; or hvm_start_info with the same map.
 *  5. Page tables (the first 4 GiB, as they are) and a GDT for the 64-bit entry.
 *  6. Nine bytes where a BIOS would start: a Linux on hardware-reduced ACPI without EFI reboots by
 *     jumping there, whatever the reset register says.
 *
 * Everything is written through mem_at(), so a number a file gives can at worst be refused.  RAM must
 * be zero before arch_load(); it runs on main, before any vCPU.
 */
#include "arch/x86/boot.h"

#include <asm/e820.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "arch/x86/layout.h"
#include "arch/x86/x86.h"
#include "vmm/base.h"
#include "vmm/kernel.h"
#include "vmm/log.h"
#include "vmm/vm.h"

#define PAGE_SIZE        4096ull
#define SEED_LEN         64
#define LOADER_UNDEFINED 0xff

#define PTE_PRESENT  0x01
#define PTE_WRITABLE 0x02
#define PTE_LARGE    0x80

/* Xen, xen/include/public/arch-x86/hvm/start_info.h, version 1. */
#define HVM_START_MAGIC 0x336ec578
struct hvm_start_info {
	uint32_t magic, version, flags, n_modules;
	uint64_t modules_gpa, cmdline_gpa, rsdp_gpa;
	uint64_t memmap_gpa;
	uint32_t n_memmap, reserved;
};
struct hvm_module {
	uint64_t gpa, size, cmdline_gpa, reserved;
};
struct hvm_memmap {
	uint64_t addr, size;
	uint32_t type, reserved;
};

struct start_page {
	struct hvm_start_info info;
	struct hvm_module initrd;
	struct hvm_memmap map[16];
};

_Static_assert(sizeof(struct boot_params) == PAGE_SIZE, "boot_params is one page");
_Static_assert(sizeof(struct start_page) <= PAGE_SIZE, "LAYOUT_START_INFO_GPA is one page");

struct initrd {
	uint64_t gpa, len; /* len 0: none */
};

bool boot_range_ok(const struct mem *m, uint64_t start, uint64_t len)
{
	return start >= LAYOUT_HIGH_RAM && start < LAYOUT_HOLE_END && len > 0 && mem_at(m, start, len);
}

int boot_read(const struct mem *m, const struct file *f, uint64_t off, uint64_t gpa, uint64_t len)
{
	void *to = mem_at(m, gpa, len);
	int err = to ? file_read(f, off, to, len) : -EFAULT;

	if (err)
		log_error("%s: cannot read %" PRIu64 " bytes at %" PRIu64 ": %s", f->path, len, off,
			  err == -ENODATA ? "the file is too short" : strerror(-err));
	return err;
}

/* The highest page-aligned place for len bytes inside [from, to), or 0. */
static uint64_t place_high(uint64_t from, uint64_t to, uint64_t len)
{
	uint64_t at;

	if (to <= from || len > to - from)
		return 0;
	at = ALIGN_DOWN(to - len, PAGE_SIZE);
	return at >= from ? at : 0;
}

/* In one region and below end: above the kernel, else beneath it. */
static uint64_t place_in(const struct mem_region *r, const struct loaded *k, uint64_t end,
			 uint64_t len)
{
	uint64_t from = MAX(r->gpa, (uint64_t)LAYOUT_HIGH_RAM), to = MIN(r->gpa + r->len, end);
	uint64_t at = place_high(MAX(from, k->end), to, len);

	return at ? at : place_high(from, MIN(to, k->start), len);
}

uint64_t boot_place_initrd(const struct mem *m, const struct loaded *k, uint64_t len)
{
	uint64_t at = place_in(&m->region[0], k, k->initrd_max + 1ull, len);

	for (unsigned i = 0; i < m->n && !at && k->initrd_anywhere; i++)
		at = place_in(&m->region[i], k, UINT64_MAX, len);
	return at;
}

static int load_kernel(const struct mem *m, const struct file *f, struct loaded *k)
{
	enum kernel_format format = kernel_detect(f);

	switch (format) {
	case KERNEL_BZIMAGE:
		return bzimage_load(m, f, k);
	case KERNEL_ELF:
		return elf_load(m, f, k);
	case KERNEL_UKI:
		log_error("%s: is %s; extract its .linux and .initrd sections (objcopy) and give those",
			  f->path, kernel_format_name(format));
		return -EINVAL;
	default:
		log_error("%s: is %s; an x86-64 kernel is a bzImage or an ELF vmlinux", f->path,
			  kernel_format_name(format));
		return -EINVAL;
	}
}

static int load_cmdline(const struct mem *m, const struct boot_files *f, const struct loaded *k)
{
	size_t len = strlen(f->cmdline), max = MIN(k->cmdline_max, LAYOUT_CMDLINE_LEN - 1u);
	char *to = mem_at(m, LAYOUT_CMDLINE_GPA, LAYOUT_CMDLINE_LEN);

	if (len > max) {
		log_error("the kernel command line is %zu bytes long; %s takes at most %zu", len,
			  f->kernel->path, max);
		return -E2BIG;
	}
	if (!to)
		return -EFAULT;
	memcpy(to, f->cmdline, len + 1);
	return 0;
}

/* Total length of the pieces, each padded to 4 bytes.  False if that is no 64-bit number. */
static bool initrd_len(const struct boot_files *f, uint64_t *total)
{
	*total = 0;
	for (unsigned i = 0; i < f->n_initrd; i++) {
		uint64_t len = f->initrd[i].len;

		if (len > UINT64_MAX - 3 ||
		    __builtin_add_overflow(*total, ALIGN_UP(len, (uint64_t)4), total))
			return false;
	}
	return true;
}

static int load_initrd(const struct mem *m, const struct boot_files *f, const struct loaded *k,
		       struct initrd *rd)
{
	uint64_t at;

	if (!initrd_len(f, &rd->len))
		return -E2BIG;
	if (rd->len == 0)
		return 0;
	rd->gpa = at = boot_place_initrd(m, k, rd->len);
	if (at == 0) {
		log_error("the initrd (%" PRIu64 " MiB) does not fit the guest's %" PRIu64
			  " MiB of memory beside the kernel, which takes 0x%" PRIx64 "-0x%" PRIx64,
			  (rd->len + 0xfffff) >> 20, (uint64_t)m->map_len >> 20, k->start, k->end);
		return -E2BIG;
	}
	for (unsigned i = 0; i < f->n_initrd; i++) {
		const struct initrd_part *p = &f->initrd[i];
		int err = 0;

		if (p->file)
			err = boot_read(m, p->file, 0, at, p->len);
		else
			memcpy(mem_at(m, at, p->len), p->data, p->len);
		if (err)
			return err;
		at += ALIGN_UP(p->len, (uint64_t)4);
	}
	return 0;
}

/* The memory map in e820 form; both protocols use its type numbers. */
static unsigned memory_map(const struct mem *m, struct boot_e820_entry map[], unsigned max)
{
	const struct mem_region *low = &m->region[0];
	const struct boot_e820_entry fixed[] = {
		{ 0, LAYOUT_LOW_RAM_END, E820_RAM },
		{ LAYOUT_ACPI_GPA, LAYOUT_ACPI_LEN, E820_ACPI },
		{ LAYOUT_BIOS_GPA, LAYOUT_BIOS_LEN, E820_RESERVED },
		{ LAYOUT_HIGH_RAM, low->len - LAYOUT_HIGH_RAM, E820_RAM },
		{ LAYOUT_ECAM_GPA, LAYOUT_ECAM_LEN, E820_RESERVED },
		{ LAYOUT_KVM_GPA, LAYOUT_KVM_LEN, E820_RESERVED },
	};
	unsigned n = 0;

	for (; n < ARRAY_SIZE(fixed) && n < max; n++)
		map[n] = fixed[n];
	for (unsigned i = 1; i < m->n && n < max; i++)
		map[n++] = (struct boot_e820_entry){ m->region[i].gpa, m->region[i].len, E820_RAM };
	return n;
}

/* Fresh random bytes: the kernel credits them, then wipes them (setup_data type 9). */
static uint64_t write_seed(const struct mem *m)
{
	struct setup_data *d = mem_at(m, LAYOUT_SETUP_DATA_GPA, sizeof(*d) + SEED_LEN);

	if (!d || getrandom(d->data, SEED_LEN, GRND_NONBLOCK) != SEED_LEN)
		return 0;
	d->next = 0;
	d->type = SETUP_RNG_SEED;
	d->len = SEED_LEN;
	return LAYOUT_SETUP_DATA_GPA;
}

static int write_boot_params(const struct mem *m, const struct loaded *k, const struct initrd *rd)
{
	struct boot_params *bp = mem_at(m, LAYOUT_BOOT_PARAMS_GPA, sizeof(*bp));

	if (!bp)
		return -EFAULT;
	memset(bp, 0, sizeof(*bp));
	bp->hdr = k->hdr;
	bp->hdr.type_of_loader = LOADER_UNDEFINED;
	bp->hdr.cmd_line_ptr = LAYOUT_CMDLINE_GPA;
	bp->hdr.ramdisk_image = (uint32_t)rd->gpa;
	bp->hdr.ramdisk_size = (uint32_t)rd->len;
	bp->ext_ramdisk_image = (uint32_t)(rd->gpa >> 32);
	bp->ext_ramdisk_size = (uint32_t)(rd->len >> 32);
	bp->hdr.setup_data = write_seed(m);
	bp->acpi_rsdp_addr = LAYOUT_ACPI_GPA;
	bp->e820_entries = (uint8_t)memory_map(m, bp->e820_table, ARRAY_SIZE(bp->e820_table));
	return 0;
}

static int write_start_info(const struct mem *m, const struct initrd *rd)
{
	struct start_page *p = mem_at(m, LAYOUT_START_INFO_GPA, sizeof(*p));
	struct boot_e820_entry map[ARRAY_SIZE(p->map)];
	unsigned n = memory_map(m, map, ARRAY_SIZE(map));

	if (!p)
		return -EFAULT;
	memset(p, 0, sizeof(*p));
	p->info = (struct hvm_start_info){
		.magic = HVM_START_MAGIC,
		.version = 1,
		.n_modules = rd->len > 0,
		.modules_gpa = rd->len > 0 ?
			LAYOUT_START_INFO_GPA + offsetof(struct start_page, initrd) : 0,
		.cmdline_gpa = LAYOUT_CMDLINE_GPA,
		.rsdp_gpa = LAYOUT_ACPI_GPA,
		.memmap_gpa = LAYOUT_START_INFO_GPA + offsetof(struct start_page, map),
		.n_memmap = n,
	};
	p->initrd = (struct hvm_module){ .gpa = rd->gpa, .size = rd->len };
	for (unsigned i = 0; i < n; i++)
		p->map[i] = (struct hvm_memmap){ map[i].addr, map[i].size, map[i].type, 0 };
	return 0;
}

/* One PML4, one page of pointers, four page directories of 2 MiB pages: the first 4 GiB. */
static int write_page_tables(const struct mem *m)
{
	const uint64_t table = PTE_PRESENT | PTE_WRITABLE, first = LAYOUT_PAGE_TABLES_GPA;
	uint64_t *t = mem_at(m, first, 6 * PAGE_SIZE);
	const size_t n = PAGE_SIZE / sizeof(*t);

	if (!t)
		return -EFAULT;
	memset(t, 0, 6 * PAGE_SIZE);
	t[0] = (first + PAGE_SIZE) | table;
	for (size_t i = 0; i < 4; i++)
		t[n + i] = (first + (2 + i) * PAGE_SIZE) | table;
	for (size_t i = 0; i < 4 * n; i++)
		t[2 * n + i] = i << 21 | table | PTE_LARGE;
	return 0;
}

/* Null, unused, 0x10: flat 64-bit code, 0x18: flat data (__BOOT_CS and __BOOT_DS of the protocol). */
static int write_gdt(const struct mem *m, bool pvh)
{
	const uint64_t gdt[4] = {
		0, 0, pvh ? 0x00cf9b000000ffff : 0x00af9b000000ffff, 0x00cf93000000ffff,
	};
	void *to = mem_at(m, LAYOUT_GDT_GPA, sizeof(gdt));

	if (!to)
		return -EFAULT;
	memcpy(to, gdt, sizeof(gdt));
	return 0;
}

/* At f000:fff0, in real mode: mov dx, reset port; mov al, reset value; out dx, al; hlt; jmp to hlt. */
static int write_reset_vector(const struct mem *m)
{
	static const uint8_t code[] = {
		0xba, LAYOUT_PORT_RESET & 0xff, LAYOUT_PORT_RESET >> 8, 0xb0, LAYOUT_RESET_VALUE,
		0xee, 0xf4, 0xeb, 0xfd,
	};
	void *to = mem_at(m, LAYOUT_BIOS_GPA + 0xfff0, sizeof(code));

	if (!to)
		return -EFAULT;
	memcpy(to, code, sizeof(code));
	return 0;
}

int arch_load(struct vm *vm, const struct boot_files *f, struct boot_entry *e)
{
	const struct mem *m = &vm->mem;
	struct loaded k = { 0 };
	struct initrd rd = { 0 };
	int err = load_kernel(m, f->kernel, &k);

	if (!err)
		err = load_cmdline(m, f, &k);
	if (!err)
		err = load_initrd(m, f, &k, &rd);
	if (!err)
		err = k.pvh ? write_start_info(m, &rd) : write_boot_params(m, &k, &rd);
	if (!err)
		err = write_page_tables(m);
	if (!err)
		err = write_gdt(m, k.pvh);
	if (!err)
		err = write_reset_vector(m);
	if (err)
		return err;
	*e = (struct boot_entry){
		.kind = k.pvh ? BOOT_PVH : BOOT_LINUX64,
		.pc = k.pc,
		.arg = k.pvh ? LAYOUT_START_INFO_GPA : LAYOUT_BOOT_PARAMS_GPA,
	};
	return 0;
}
