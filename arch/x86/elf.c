/*
 * ELF kernels: a vmlinux, or any program that carries a PVH entry note.
 *
 * Segments go to their physical addresses.  The entry is the one of the note XEN_ELFNOTE_PHYS32_ENTRY
 * (Xen, docs/misc/pvh.pandoc; 32-bit mode, hvm_start_info) if there is one; else e_entry, entered
 * like the 64-bit Linux boot protocol.  e_entry may be virtual: it is looked up in the segments.
 *
 * Guest RAM is zero at this point, so the part of a segment beyond its file bytes is left untouched.
 *
 * Refused, each with one line: more than 32 program headers, tables or segments past the end of the
 * file, segments outside RAM or over each other, an entry outside every segment.
 */
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "arch/x86/boot.h"
#include "vmm/base.h"
#include "vmm/kernel.h"
#include "vmm/log.h"

#define PHDRS_MAX 32
#define NOTES_MAX 65536 /* bytes of one note segment that are looked through */

#define XEN_ELFNOTE_PHYS32_ENTRY 18

/* COMMAND_LINE_SIZE of x86 kernels, less the NUL; a vmlinux does not say. */
#define CMDLINE_MAX 2047

/* The program headers: the loadable ones checked, the notes as they are. */
struct segments {
	Elf64_Phdr ph[PHDRS_MAX];
	unsigned n;
};

uint16_t arch_elf_machine(void)
{
	return EM_X86_64;
}

static int damaged(const struct file *f, const char *what)
{
	log_error("%s: the ELF kernel is damaged: %s", f->path, what);
	return -EINVAL;
}

static int read_phdrs(const struct file *f, const Elf64_Ehdr *e, struct segments *s)
{
	if (e->e_phentsize != sizeof(s->ph[0]))
		return damaged(f, "program headers of a wrong size");
	if (e->e_phnum == 0 || e->e_phnum > PHDRS_MAX) {
		log_error("%s: an ELF file with %u program headers; a kernel has 1 to %u", f->path,
			  e->e_phnum, PHDRS_MAX);
		return -EINVAL;
	}
	s->n = e->e_phnum;
	if (file_read(f, e->e_phoff, s->ph, s->n * sizeof(s->ph[0])))
		return damaged(f, "program headers past the end of the file");
	return 0;
}

static bool overlap(const Elf64_Phdr *a, const Elf64_Phdr *b)
{
	return a->p_paddr < b->p_paddr + b->p_memsz && b->p_paddr < a->p_paddr + a->p_memsz;
}

static bool is_loaded(const Elf64_Phdr *p)
{
	return p->p_type == PT_LOAD && p->p_memsz > 0;
}

static int check_segment(const struct mem *m, const struct file *f, const struct segments *s,
			 unsigned i)
{
	const Elf64_Phdr *p = &s->ph[i];

	if (p->p_filesz > p->p_memsz)
		return damaged(f, "a segment with more bytes in the file than in memory");
	if (p->p_offset > f->size || p->p_filesz > f->size - p->p_offset)
		return damaged(f, "a segment past the end of the file (cut off?)");
	if (!boot_range_ok(m, p->p_paddr, p->p_memsz)) {
		log_error("%s: the ELF segment at 0x%" PRIx64 ", %" PRIu64
			  " bytes, does not fit the guest's %" PRIu64 " MiB of memory",
			  f->path, p->p_paddr, p->p_memsz, m->region[0].len >> 20);
		return -EINVAL;
	}
	for (unsigned j = 0; j < i; j++)
		if (is_loaded(&s->ph[j]) && overlap(p, &s->ph[j]))
			return damaged(f, "segments over each other");
	return 0;
}

static int load_segments(const struct mem *m, const struct file *f, const struct segments *s,
			 struct loaded *k)
{
	int err = 0;

	k->start = UINT64_MAX;
	for (unsigned i = 0; i < s->n && !err; i++) {
		if (!is_loaded(&s->ph[i]))
			continue;
		err = check_segment(m, f, s, i);
		if (err)
			return err;
		k->start = MIN(k->start, s->ph[i].p_paddr);
		k->end = MAX(k->end, s->ph[i].p_paddr + s->ph[i].p_memsz);
	}
	for (unsigned i = 0; i < s->n && !err; i++)
		if (is_loaded(&s->ph[i]))
			err = boot_read(m, f, s->ph[i].p_offset, s->ph[i].p_paddr, s->ph[i].p_filesz);
	return err;
}

/* Physical address of the entry at, physical or virtual.  0 if it is in no segment. */
static uint64_t find_entry(const struct segments *s, uint64_t at)
{
	for (unsigned i = 0; i < s->n; i++)
		if (is_loaded(&s->ph[i]) && at >= s->ph[i].p_paddr &&
		    at - s->ph[i].p_paddr < s->ph[i].p_memsz)
			return at;
	for (unsigned i = 0; i < s->n; i++)
		if (is_loaded(&s->ph[i]) && at >= s->ph[i].p_vaddr &&
		    at - s->ph[i].p_vaddr < s->ph[i].p_memsz)
			return s->ph[i].p_paddr + (at - s->ph[i].p_vaddr);
	return 0;
}

/* One note segment: the PVH entry, or 0.  Notes are 4-byte aligned (ELF specification, "Note Section"). */
static uint64_t find_pvh_note(const struct file *f, const Elf64_Phdr *p)
{
	uint64_t left = MIN(p->p_filesz, (uint64_t)NOTES_MAX), off = p->p_offset;
	struct {
		Elf64_Nhdr h;
		char name[4];
		uint8_t desc[8];
	} note;

	while (left >= sizeof(note.h) + 8) {
		size_t len = (size_t)MIN(left, (uint64_t)sizeof(note));
		uint64_t step, entry = 0;

		if (file_read(f, off, &note, len))
			return 0;
		if (note.h.n_type == XEN_ELFNOTE_PHYS32_ENTRY && note.h.n_namesz == 4 &&
		    memcmp(note.name, "Xen", 4) == 0 && note.h.n_descsz >= 4) {
			memcpy(&entry, note.desc, note.h.n_descsz >= 8 && len == sizeof(note) ? 8 : 4);
			return entry;
		}
		step = sizeof(note.h) + ALIGN_UP((uint64_t)note.h.n_namesz, 4) +
		       ALIGN_UP((uint64_t)note.h.n_descsz, 4);
		if (step > left)
			return 0;
		off += step;
		left -= step;
	}
	return 0;
}

static int choose_entry(const struct file *f, const Elf64_Ehdr *e, const struct segments *s,
			struct loaded *k)
{
	uint64_t entry = e->e_entry;

	for (unsigned i = 0; i < s->n && !k->pvh; i++) {
		uint64_t pvh = s->ph[i].p_type == PT_NOTE ? find_pvh_note(f, &s->ph[i]) : 0;

		if (pvh) {
			k->pvh = true;
			entry = pvh;
		}
	}
	k->pc = find_entry(s, entry);
	if (k->pc == 0 || k->pc > UINT32_MAX)
		return damaged(f, "the entry point is in no segment");
	return 0;
}

int elf_load(const struct mem *m, const struct file *f, struct loaded *k)
{
	struct segments s = { .n = 0 };
	Elf64_Ehdr e;
	int err;

	if (file_read(f, 0, &e, sizeof(e)))
		return damaged(f, "no ELF header");
	err = read_phdrs(f, &e, &s);
	if (!err)
		err = load_segments(m, f, &s, k);
	if (!err && k->end == 0)
		err = damaged(f, "no segment to load");
	if (!err)
		err = choose_entry(f, &e, &s, k);
	if (err)
		return err;
	/* A Linux entered by PVH keeps 32 bits of these addresses. */
	k->initrd_max = UINT32_MAX;
	k->initrd_anywhere = !k->pvh;
	k->cmdline_max = CMDLINE_MAX;
	k->hdr = (struct setup_header){ .boot_flag = 0xaa55, .header = 0x53726448, .version = 0x20c };
	return 0;
}
