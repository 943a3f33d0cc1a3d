/* Loading a kernel: what boot.c, bzimage.c and elf.c pass between them. */
#ifndef ARCH_X86_BOOT_H
#define ARCH_X86_BOOT_H

#include <asm/bootparam.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/arch.h"
#include "vmm/mem.h"

/* What the loader of a format finds out about a kernel, having put it into guest RAM. */
struct loaded {
	uint64_t start, end;    /* guest-physical: all the kernel needs before it has its own allocator */
	uint64_t pc;
	bool pvh;               /* entry by hvm_start_info, else by boot_params */
	uint32_t initrd_max;    /* last address an initrd may occupy, if it can be helped */
	bool initrd_anywhere;   /* ... or else anywhere in RAM */
	uint32_t cmdline_max;   /* bytes without the NUL */
	struct setup_header hdr; /* of the bzImage, or as little as an ELF kernel wants */
};

/* bzimage.c, elf.c: 0, or -errno with one line logged. */
int bzimage_load(const struct mem *m, const struct file *f, struct loaded *k);
int elf_load(const struct mem *m, const struct file *f, struct loaded *k);

/* boot.c */

/* Is [start, start + len) RAM above the low megabyte, in one piece?  Any value is safe. */
bool boot_range_ok(const struct mem *m, uint64_t start, uint64_t len);
/* Read len bytes at off of f into guest RAM.  0, or -errno with one line logged. */
int boot_read(const struct mem *m, const struct file *f, uint64_t off, uint64_t gpa, uint64_t len);
/*
 * Where len bytes of initrd go: as high as the limit lets them, page-aligned, clear of the kernel and
 * of the low megabyte.  0 means nowhere.
 */
uint64_t boot_place_initrd(const struct mem *m, const struct loaded *k, uint64_t len);

#endif
