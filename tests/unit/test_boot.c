/* Loading kernels, initrds and command lines on x86-64 (arch/x86/boot.c, bzimage.c, elf.c). */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "arch/x86/boot.h"
#include "arch/x86/layout.h"
#include "tests/unit/kernel_files.h"
#include "tests/unit/suite.h"
#include "vmm/base.h"
#include "vmm/vm.h"

#define MIB ((uint64_t)1 << 20)

static struct vm vm;
static uint8_t bz[KF_BZ_LEN];

static void ram(uint64_t bytes)
{
	struct mem_region layout[MEM_REGIONS_MAX];
	int n = arch_memory_map(bytes, layout, MEM_REGIONS_MAX);

	mem_destroy(&vm.mem);
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(mem_create(&vm.mem, layout, (unsigned)n), 0);
}

static const void *guest(uint64_t gpa, uint64_t len)
{
	const void *p = mem_at(&vm.mem, gpa, len);

	ck_assert_ptr_nonnull(p);
	return p;
}

static int load(const void *bytes, size_t len, const char *cmdline, struct boot_entry *e)
{
	struct file f = kf_make(bytes, len);
	const struct boot_files files = { .kernel = &f, .cmdline = cmdline };
	int err = arch_load(&vm, &files, e);

	file_close(&f);
	return err;
}

/* arch_load() fails with one line that says say. */
static void refused(const void *bytes, size_t len, const char *cmdline, const char *say)
{
	struct kf_capture c;
	struct boot_entry e;
	int err;

	kf_capture_begin(&c);
	err = load(bytes, len, cmdline, &e);
	kf_capture_end(&c);
	ck_assert_int_lt(err, 0);
	ck_assert_msg(strstr(c.text, say) != NULL, "\"%s\" lacks \"%s\"", c.text, say);
	ck_assert_uint_eq(kf_lines(c.text), 1);
}

START_TEST(the_memory_map_leaves_the_hole_free)
{
	static const unsigned mib[] = { 2, 512, 3070, 3072, 3074, 4096, 8192 };
	struct mem_region r[MEM_REGIONS_MAX];

	for (unsigned i = 0; i < ARRAY_SIZE(mib); i++) {
		int n = arch_memory_map(mib[i] * MIB, r, MEM_REGIONS_MAX);

		ck_assert_int_eq(n, mib[i] > 3072 ? 2 : 1);
		ck_assert_uint_eq(r[0].gpa, 0);
		ck_assert_uint_le(r[0].len, LAYOUT_HOLE_GPA);
		ck_assert_uint_eq(r[0].len + (n == 2 ? r[1].len : 0), mib[i] * MIB);
		if (n == 2)
			ck_assert_uint_eq(r[1].gpa, LAYOUT_HOLE_END);
	}
	ck_assert_int_eq(arch_memory_map(0, r, MEM_REGIONS_MAX), -EINVAL);
	ck_assert_int_eq(arch_memory_map(UINT64_MAX, r, MEM_REGIONS_MAX), -EINVAL);
}
END_TEST

START_TEST(a_bzimage_is_loaded_with_boot_params)
{
	const struct boot_params *bp;
	const struct setup_data *seed;
	struct boot_entry e;
	uint8_t first[64];

	ram(256 * MIB);
	kf_bzimage(bz);
	ck_assert_int_eq(load(bz, sizeof(bz), "console=ttyS0 a b", &e), 0);
	ck_assert_int_eq(e.kind, BOOT_LINUX64);
	ck_assert_uint_eq(e.pc, KF_PREF + 0x200);
	ck_assert_uint_eq(e.arg, LAYOUT_BOOT_PARAMS_GPA);
	ck_assert_mem_eq(guest(KF_PREF, KF_KERNEL_LEN), bz + KF_SETUP_LEN, KF_KERNEL_LEN);
	bp = guest(e.arg, sizeof(*bp));
	ck_assert_uint_eq(bp->hdr.header, 0x53726448);
	ck_assert_uint_eq(bp->hdr.init_size, KF_INIT_SIZE);
	ck_assert_uint_eq(bp->hdr.type_of_loader, 0xff);
	ck_assert_uint_eq(bp->sentinel, 0);
	ck_assert_uint_eq(bp->hdr.ramdisk_size, 0);
	ck_assert_uint_eq(bp->acpi_rsdp_addr, LAYOUT_ACPI_GPA);
	ck_assert_str_eq(guest(bp->hdr.cmd_line_ptr, 64), "console=ttyS0 a b");
	seed = guest(bp->hdr.setup_data, sizeof(*seed) + 64);
	ck_assert_uint_eq(seed->type, SETUP_RNG_SEED);
	ck_assert_uint_eq(seed->len, 64);
	ck_assert_uint_eq(seed->next, 0);
	memcpy(first, seed->data, sizeof(first));
	ck_assert_int_eq(load(bz, sizeof(bz), "", &e), 0);
	ck_assert_mem_ne(first, seed->data, sizeof(first));
}
END_TEST

START_TEST(the_bios_entry_resets_the_machine)
{
	struct boot_entry e;
	const uint8_t *code;

	ram(64 * MIB);
	kf_bzimage(bz);
	ck_assert_int_eq(load(bz, sizeof(bz), "", &e), 0);
	code = guest(0xffff0, 16);
	ck_assert_uint_eq(code[0], 0xba); /* mov dx, imm16 */
	ck_assert_uint_eq(code[1] | code[2] << 8, LAYOUT_PORT_RESET);
	ck_assert_uint_eq(code[3], 0xb0); /* mov al, imm8 */
	ck_assert_uint_eq(code[4], LAYOUT_RESET_VALUE);
	ck_assert_uint_eq(code[5], 0xee); /* out dx, al */
}
END_TEST

/* The e820 map: sorted, without overlap, and RAM is exactly what mem has (bar the low megabyte). */
static void check_e820(uint64_t bytes)
{
	const struct boot_params *bp = guest(LAYOUT_BOOT_PARAMS_GPA, sizeof(*bp));
	uint64_t end = 0, sum = 0;

	ck_assert_uint_ge(bp->e820_entries, 4);
	for (unsigned i = 0; i < bp->e820_entries; i++) {
		struct boot_e820_entry r = bp->e820_table[i];
		bool isram = r.type == 1;

		ck_assert_uint_ge(r.addr, end);
		end = r.addr + r.size;
		if (isram) {
			guest(r.addr, r.size);
			sum += r.size;
		}
	}
	ck_assert_uint_eq(sum, bytes - (LAYOUT_HIGH_RAM - LAYOUT_LOW_RAM_END));
}

START_TEST(the_e820_map_is_the_ram_there_is)
{
	static const unsigned mib[] = { 64, 3072, 3074, 5120 };
	struct boot_entry e;

	kf_bzimage(bz);
	for (unsigned i = 0; i < ARRAY_SIZE(mib); i++) {
		ram(mib[i] * MIB);
		ck_assert_int_eq(load(bz, sizeof(bz), "", &e), 0);
		check_e820(mib[i] * MIB);
	}
}
END_TEST

START_TEST(page_tables_map_four_gib_to_themselves)
{
	const uint64_t *pml4, *pdpt, *pd, *gdt;
	struct boot_entry e;

	ram(256 * MIB);
	kf_bzimage(bz);
	ck_assert_int_eq(load(bz, sizeof(bz), "", &e), 0);
	pml4 = guest(LAYOUT_PAGE_TABLES_GPA, 4096);
	for (uint64_t at = 0; at < 4096 * MIB; at += 0x12345000) {
		pdpt = guest(pml4[at >> 39] & ~0xfffull, 4096);
		pd = guest(pdpt[at >> 30 & 511] & ~0xfffull, 4096);
		ck_assert_uint_eq(pd[at >> 21 & 511] & 0x83, 0x83);
		ck_assert_uint_eq(pd[at >> 21 & 511] & ~0xfffull, at & ~0x1fffffull);
	}
	gdt = guest(LAYOUT_GDT_GPA, 32);
	ck_assert_uint_eq(gdt[2] >> 53 & 1, 1); /* L: 64-bit code */
}
END_TEST

START_TEST(the_command_line_limit_is_the_headers)
{
	char *line = malloc(70000);
	struct boot_entry e;

	ram(256 * MIB);
	kf_bzimage(bz)->cmdline_size = 2047;
	memset(line, 'x', 70000);
	line[2047] = '\0';
	ck_assert_int_eq(load(bz, sizeof(bz), line, &e), 0);
	ck_assert_str_eq(guest(LAYOUT_CMDLINE_GPA, 4096), line);
	line[2047] = 'x';
	line[2048] = '\0';
	refused(bz, sizeof(bz), line, "2048 bytes long; KERNEL takes at most 2047");
	/* A header that promises the moon still gets no more than the place there is. */
	kf_bzimage(bz)->cmdline_size = UINT32_MAX;
	line[2048] = 'x';
	line[65535] = '\0';
	ck_assert_int_eq(load(bz, sizeof(bz), line, &e), 0);
	line[65535] = 'x';
	line[65536] = '\0';
	refused(bz, sizeof(bz), line, "65536 bytes long; KERNEL takes at most 65535");
	free(line);
}
END_TEST

/* All that must hold for any place an initrd is given. */
static void check_place(const struct loaded *k, uint64_t at, uint64_t len)
{
	guest(at, len);
	ck_assert_uint_eq(at % 4096, 0);
	ck_assert_uint_ge(at, LAYOUT_HIGH_RAM);
	ck_assert(at + len <= k->start || at >= k->end);
	if (!k->initrd_anywhere)
		ck_assert_uint_le(at + len - 1, k->initrd_max);
}

START_TEST(initrds_find_a_place_in_every_size_of_memory)
{
	static const unsigned mib[] = { 128, 512, 3071, 3072, 3073, 3329, 3330, 4096, 5120, 8192 };
	static const unsigned len[] = { 1, 60, 400 };

	for (unsigned i = 0; i < ARRAY_SIZE(mib); i++) {
		ram(mib[i] * MIB);
		for (unsigned j = 0; j < ARRAY_SIZE(len); j++) {
			for (unsigned any = 0; any < 2; any++) {
				const struct loaded k = { .start = KF_PREF, .end = KF_PREF + 59 * MIB,
							  .initrd_max = 0x7fffffff,
							  .initrd_anywhere = any };
				uint64_t at = boot_place_initrd(&vm.mem, &k, len[j] * MIB);

				/* 75 MiB of the 128 are the kernel's and what lies below it. */
				ck_assert_int_eq(at != 0, mib[i] > 128 || len[j] == 1);
				if (at)
					check_place(&k, at, len[j] * MIB);
			}
		}
	}
}
END_TEST

START_TEST(initrds_prefer_the_kernels_limit_and_go_beyond_only_if_it_can)
{
	struct loaded k = { .start = KF_PREF, .end = KF_PREF + 59 * MIB, .initrd_max = 0x7fffffff };

	ram(8192 * MIB);
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 400 * MIB), 2048 * MIB - 400 * MIB);
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 2000 * MIB), 0);
	k.initrd_anywhere = true;
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 2000 * MIB), 3072 * MIB - 2000 * MIB);
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 4000 * MIB), 9216 * MIB - 4000 * MIB);
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 6000 * MIB), 0);
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, UINT64_MAX), 0);
	/* Beneath a kernel that lies high. */
	k = (struct loaded){ .start = 1024 * MIB, .end = 2040 * MIB, .initrd_max = 0x7fffffff };
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 100 * MIB), 924 * MIB);
	k.initrd_max = 0;
	ck_assert_uint_eq(boot_place_initrd(&vm.mem, &k, 1), 0);
}
END_TEST

START_TEST(initrd_pieces_are_joined_at_multiples_of_four)
{
	struct file kernel, a = kf_make("0123456", 7);
	const struct initrd_part part[] = {
		{ .file = &a, .len = 7 }, { .data = "ABCDE", .len = 5 }, { .data = "xyz!", .len = 4 },
	};
	const struct boot_files files = { .kernel = &kernel, .initrd = part, .n_initrd = 3,
					  .cmdline = "" };
	const struct boot_params *bp;
	struct boot_entry e;

	ram(5120 * MIB);
	kf_bzimage(bz);
	kernel = kf_make(bz, sizeof(bz));
	ck_assert_int_eq(arch_load(&vm, &files, &e), 0);
	bp = guest(LAYOUT_BOOT_PARAMS_GPA, sizeof(*bp));
	ck_assert_uint_eq(bp->hdr.ramdisk_size, 20);
	ck_assert_uint_eq(bp->ext_ramdisk_size | bp->ext_ramdisk_image, 0);
	ck_assert_mem_eq(guest(bp->hdr.ramdisk_image, 20), "0123456\0ABCDE\0\0\0xyz!", 20);
	file_close(&kernel);
	file_close(&a);
}
END_TEST

START_TEST(an_initrd_above_four_gib_keeps_its_upper_half)
{
	struct file kernel, sparse = kf_make("head", 4);
	struct initrd_part part = { .file = &sparse, .len = 1100 * MIB };
	const struct boot_files files = { .kernel = &kernel, .initrd = &part, .n_initrd = 1,
					  .cmdline = "" };
	const struct boot_params *bp;
	struct boot_entry e;

	/* A kernel that claims most of the low region leaves 15 MiB beneath it. */
	ram(5120 * MIB);
	kf_bzimage(bz)->init_size = 0xb0000000;
	kernel = kf_make(bz, sizeof(bz));
	ck_assert_int_eq(ftruncate(sparse.fd, 4096), 0);
	sparse.size = part.len = 4096;
	ck_assert_int_eq(arch_load(&vm, &files, &e), 0);
	bp = guest(LAYOUT_BOOT_PARAMS_GPA, sizeof(*bp));
	ck_assert_uint_eq(bp->hdr.ramdisk_image, KF_PREF - 4096);
	part.len = sparse.size = 300 * MIB;
	ck_assert_int_eq(ftruncate(sparse.fd, (off_t)part.len), 0);
	ck_assert_int_eq(arch_load(&vm, &files, &e), 0);
	ck_assert_uint_eq(bp->ext_ramdisk_image, 1);
	ck_assert_uint_eq(bp->hdr.ramdisk_image, 2048 * MIB - 300 * MIB);
	file_close(&kernel);
	file_close(&sparse);
}
END_TEST

START_TEST(an_initrd_that_does_not_fit_or_shrank_is_refused)
{
	struct file kernel, rd = kf_make("x", 1);
	struct initrd_part part = { .file = &rd, .len = 60 * MIB };
	const struct boot_files files = { .kernel = &kernel, .initrd = &part, .n_initrd = 1,
					  .cmdline = "" };
	struct kf_capture c;
	struct boot_entry e;

	ram(64 * MIB);
	kf_bzimage(bz);
	kernel = kf_make(bz, sizeof(bz));
	kf_capture_begin(&c);
	ck_assert_int_eq(arch_load(&vm, &files, &e), -E2BIG);
	ck_assert_ptr_nonnull(strstr(kf_capture_end(&c), "initrd (60 MiB) does not fit the guest's 64 MiB"));
	part.len = rd.size = 8192;
	kf_capture_begin(&c);
	ck_assert_int_eq(arch_load(&vm, &files, &e), -ENODATA);
	ck_assert_ptr_nonnull(strstr(kf_capture_end(&c), "too short"));
	part.len = UINT64_MAX;
	ck_assert_int_eq(arch_load(&vm, &files, &e), -E2BIG);
	file_close(&kernel);
	file_close(&rd);
}
END_TEST

START_TEST(bzimages_with_impossible_headers_are_refused)
{
	ram(256 * MIB);
	kf_bzimage(bz)->version = 0x20a;
	refused(bz, sizeof(bz), "", "boot protocol 2.10");
	kf_bzimage(bz)->xloadflags = 0;
	refused(bz, sizeof(bz), "", "64-bit entry");
	kf_bzimage(bz)->loadflags = 0;
	refused(bz, sizeof(bz), "", "64-bit entry");
	kf_bzimage(bz)->setup_sects = 255;
	refused(bz, sizeof(bz), "", "cut off");
	kf_bzimage(bz)->setup_sects = 0; /* stands for 4: one sector more than there is */
	refused(bz, sizeof(bz), "", "cut off");
	kf_bzimage(bz)->syssize = UINT32_MAX;
	refused(bz, sizeof(bz), "", "cut off");
	kf_bzimage(bz)->syssize = 0;
	refused(bz, sizeof(bz), "", "damaged");
	kf_bzimage(bz)->payload_offset = UINT32_MAX;
	refused(bz, sizeof(bz), "", "damaged");
	kf_bzimage(bz)->init_size = 100;
	refused(bz, sizeof(bz), "", "damaged");
	kf_bzimage(bz)->init_size = UINT32_MAX;
	refused(bz, sizeof(bz), "", "needs memory up to 4112 MiB");
	kf_bzimage(bz)->pref_address = 0x1000;
	refused(bz, sizeof(bz), "", "load address 0x1000");
	kf_bzimage(bz)->pref_address = 0xc0000000;
	refused(bz, sizeof(bz), "", "load address 0xc0000000");
	kf_bzimage(bz)->pref_address = UINT64_MAX - 100;
	refused(bz, sizeof(bz), "", "load address");
	kf_bzimage(bz);
	bz[0x201] = 4; /* the header ends before it says anything */
	refused(bz, sizeof(bz), "", "boot protocol");
}
END_TEST

START_TEST(files_of_other_kinds_are_named)
{
	struct kf_elf elf;

	ram(64 * MIB);
	refused("#!/bin/sh\n", 10, "", "a text file");
	refused("", 0, "", "an empty file");
	refused("\x1f\x8b\x08\0", 4, "", "a gzip file");
	kf_elf(&elf, false);
	elf.e.e_machine = EM_AARCH64;
	refused(&elf, sizeof(elf), "", "another machine");
	memset(&elf, 0, 512);
	memcpy((char *)&elf + 0x38, "ARM\x64", 4);
	refused(&elf, sizeof(elf), "", "an arm64 Image");
}
END_TEST

START_TEST(an_elf_kernel_is_entered_like_linux)
{
	struct boot_entry e;
	struct kf_elf elf;

	ram(256 * MIB);
	kf_elf(&elf, false);
	ck_assert_int_eq(load(&elf, sizeof(elf), "quiet", &e), 0);
	ck_assert_int_eq(e.kind, BOOT_LINUX64);
	ck_assert_uint_eq(e.pc, 0x1000100);
	ck_assert_mem_eq(guest(0x1000000, sizeof(elf.text)), elf.text, sizeof(elf.text));
	ck_assert_mem_eq(guest(0x2000000, 512), elf.data, 512);
	ck_assert_str_eq(guest(LAYOUT_CMDLINE_GPA, 64), "quiet");
	elf.e.e_entry = 0xffffffff81000100; /* virtual */
	ck_assert_int_eq(load(&elf, sizeof(elf), "", &e), 0);
	ck_assert_uint_eq(e.pc, 0x1000100);
}
END_TEST

START_TEST(a_pvh_note_wins_and_gets_start_info_with_the_initrd)
{
	struct { uint32_t magic, version, flags, n; uint64_t mods, cmdline, rsdp, map; uint32_t n_map; } si;
	const struct initrd_part part = { .data = "initrd!", .len = 7 };
	struct boot_files files = { .initrd = &part, .n_initrd = 1, .cmdline = "hello" };
	struct boot_entry e;
	struct kf_elf elf;
	struct file f;
	const uint64_t *mod;

	ram(5120 * MIB);
	kf_elf(&elf, true);
	f = kf_make(&elf, sizeof(elf));
	files.kernel = &f;
	ck_assert_int_eq(arch_load(&vm, &files, &e), 0);
	ck_assert_int_eq(e.kind, BOOT_PVH);
	ck_assert_uint_eq(e.pc, 0x1000200);
	ck_assert_uint_eq(e.arg, LAYOUT_START_INFO_GPA);
	memcpy(&si, guest(e.arg, sizeof(si)), sizeof(si));
	ck_assert_uint_eq(si.magic, 0x336ec578);
	ck_assert_uint_eq(si.version, 1);
	ck_assert_uint_eq(si.n, 1);
	ck_assert_str_eq(guest(si.cmdline, 8), "hello");
	ck_assert_uint_eq(si.rsdp, LAYOUT_ACPI_GPA);
	mod = guest(si.mods, 32);
	ck_assert_uint_eq(mod[1], 8);
	ck_assert_uint_le(mod[0], UINT32_MAX);
	ck_assert_mem_eq(guest(mod[0], 8), "initrd!\0", 8);
	ck_assert_uint_eq(si.n_map, 7);
	file_close(&f);
}
END_TEST

START_TEST(damaged_elf_kernels_are_refused)
{
	struct kf_elf good, elf;

	ram(256 * MIB);
	kf_elf(&good, true);
#define BREAK(change, say)                               \
	do {                                             \
		elf = good;                              \
		change;                                  \
		refused(&elf, sizeof(elf), "", say);     \
	} while (0)
	BREAK(elf.e.e_phnum = 65535, "65535 program headers");
	BREAK(elf.e.e_phnum = 0, "0 program headers");
	BREAK(elf.e.e_phentsize = 32, "wrong size");
	BREAK(elf.e.e_phoff = UINT64_MAX - 8, "past the end");
	BREAK(elf.e.e_phoff = sizeof(elf) - 8, "past the end");
	BREAK(elf.ph[0].p_offset = UINT64_MAX, "past the end");
	BREAK(elf.ph[0].p_offset = sizeof(elf) - 100, "past the end");
	BREAK(elf.ph[0].p_filesz = UINT64_MAX, "more bytes in the file");
	BREAK(elf.ph[1].p_memsz = UINT64_MAX, "does not fit");
	BREAK(elf.ph[1].p_memsz = 1 << 30, "does not fit");
	BREAK(elf.ph[0].p_paddr = LAYOUT_ECAM_GPA, "does not fit");
	BREAK(elf.ph[0].p_paddr = LAYOUT_CMDLINE_GPA, "does not fit");
	BREAK(elf.ph[1].p_paddr = elf.ph[0].p_paddr + sizeof(elf.text) - 1, "over each other");
	BREAK(elf.ph[0].p_type = elf.ph[1].p_type = PT_NULL, "no segment to load");
	BREAK(elf.note.desc2 = 0x3000000, "entry point");
	BREAK(elf.note.desc2 = UINT64_MAX, "entry point");
	BREAK(elf.note.h2.n_type = 1; elf.e.e_entry = 0, "entry point");
#undef BREAK
	/* Notes that lie about their sizes end the search, and e_entry is used. */
	good.note.h.n_namesz = UINT32_MAX;
	good.note.h.n_descsz = UINT32_MAX;
	{
		struct boot_entry e;

		ck_assert_int_eq(load(&good, sizeof(good), "", &e), 0);
		ck_assert_int_eq(e.kind, BOOT_LINUX64);
	}
}
END_TEST

/* Whatever happens to the file, arch_load() returns: each damaged copy loads or is refused. */
static void maul(const uint8_t *good, size_t len, unsigned rounds)
{
	uint8_t *copy = malloc(len);
	struct kf_capture c;
	struct boot_entry e;

	kf_capture_begin(&c);
	for (unsigned i = 0; i < rounds; i++) {
		memcpy(copy, good, len);
		for (unsigned n = 1 + (unsigned)rand() % 4; n > 0; n--)
			copy[(unsigned)rand() % MIN(len, 4096u)] ^= (uint8_t)(1 + rand() % 255);
		(void)load(copy, len, "", &e);
		(void)!ftruncate(c.fd, 0);
		lseek(c.fd, 0, SEEK_SET);
	}
	for (size_t cut = 0; cut < len; cut += 1 + len / 50)
		ck_assert_int_lt(load(good, cut, "", &e), 0);
	kf_capture_end(&c);
	free(copy);
}

START_TEST(flipped_and_cut_kernels_never_crash)
{
	struct kf_elf elf;

	srand(1);
	ram(64 * MIB);
	kf_bzimage(bz);
	maul(bz, sizeof(bz), 5000);
	kf_elf(&elf, true);
	maul((const uint8_t *)&elf, sizeof(elf), 5000);
}
END_TEST

SUITE_MAIN("boot", 60,
	   the_memory_map_leaves_the_hole_free,
	   a_bzimage_is_loaded_with_boot_params,
	   the_bios_entry_resets_the_machine,
	   the_e820_map_is_the_ram_there_is,
	   page_tables_map_four_gib_to_themselves,
	   the_command_line_limit_is_the_headers,
	   initrds_find_a_place_in_every_size_of_memory,
	   initrds_prefer_the_kernels_limit_and_go_beyond_only_if_it_can,
	   initrd_pieces_are_joined_at_multiples_of_four,
	   an_initrd_above_four_gib_keeps_its_upper_half,
	   an_initrd_that_does_not_fit_or_shrank_is_refused,
	   bzimages_with_impossible_headers_are_refused,
	   files_of_other_kinds_are_named,
	   an_elf_kernel_is_entered_like_linux,
	   a_pvh_note_wins_and_gets_start_info_with_the_initrd,
	   damaged_elf_kernels_are_refused,
	   flipped_and_cut_kernels_never_crash)
