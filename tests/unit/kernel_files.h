/*
 * Kernel files made to order, as anonymous files, and the message a refusal logs.
 */
#ifndef TESTS_UNIT_KERNEL_FILES_H
#define TESTS_UNIT_KERNEL_FILES_H

#include <asm/bootparam.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/kernel.h"

/* An anonymous file of len bytes; the caller closes it. */
static inline struct file kf_make(const void *bytes, size_t len)
{
	struct file f = { .fd = memfd_create("kernel", MFD_CLOEXEC), .size = len, .path = "KERNEL" };

	if (f.fd < 0 || (len > 0 && pwrite(f.fd, bytes, len, 0) != (ssize_t)len))
		abort();
	return f;
}

#define KF_SETUP_LEN  (4 * 512) /* setup_sects 3 */
#define KF_KERNEL_LEN 8192
#define KF_BZ_LEN     (KF_SETUP_LEN + KF_KERNEL_LEN)
#define KF_INIT_SIZE  (4u << 20)
#define KF_PREF       0x1000000
#define KF_RELEASE    "6.12.9-test+1"

/* A bzImage as Linux 6 makes them, in KF_BZ_LEN bytes of buf; the kernel's bytes count up. */
static inline struct setup_header *kf_bzimage(uint8_t *buf)
{
	struct setup_header *h = (struct setup_header *)(void *)(buf + 0x1f1);

	memset(buf, 0, KF_BZ_LEN);
	*h = (struct setup_header){
		.setup_sects = 3, .syssize = KF_KERNEL_LEN / 16, .boot_flag = 0xaa55, .jump = 0x6aeb,
		.header = 0x53726448, .version = 0x20f, .kernel_version = 0x300, .loadflags = LOADED_HIGH,
		.initrd_addr_max = 0x7fffffff, .kernel_alignment = 0x200000, .relocatable_kernel = 1,
		.xloadflags = XLF_KERNEL_64 | XLF_CAN_BE_LOADED_ABOVE_4G, .cmdline_size = 2047,
		.payload_offset = 0x300, .payload_length = 0x1000, .pref_address = KF_PREF,
		.init_size = KF_INIT_SIZE,
	};
	strcpy((char *)buf + 0x500, KF_RELEASE " (someone@somewhere) #1 SMP");
	for (unsigned i = 0; i < KF_KERNEL_LEN; i++)
		buf[KF_SETUP_LEN + i] = (uint8_t)i;
	return h;
}

struct kf_elf {
	Elf64_Ehdr e;
	Elf64_Phdr ph[4]; /* text, data with bss, note, unused */
	struct {
		Elf64_Nhdr h;
		char name[4];
		uint32_t desc[2];
		Elf64_Nhdr h2;
		char name2[4];
		uint64_t desc2;
	} note;
	uint8_t text[1024], data[512];
};

/* A vmlinux: entry 0x100 into its text at 16 MiB; a PVH note for 0x200 into it on request. */
static inline void kf_elf(struct kf_elf *k, bool pvh)
{
	memset(k, 0, sizeof(*k));
	memcpy(k->e.e_ident, ELFMAG, SELFMAG);
	k->e.e_ident[EI_CLASS] = ELFCLASS64;
	k->e.e_ident[EI_DATA] = ELFDATA2LSB;
	k->e.e_machine = EM_X86_64;
	k->e.e_type = ET_EXEC;
	k->e.e_entry = 0x1000100;
	k->e.e_phoff = offsetof(struct kf_elf, ph);
	k->e.e_phentsize = sizeof(Elf64_Phdr);
	k->e.e_phnum = 3;
	k->ph[0] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_offset = offsetof(struct kf_elf, text),
				 .p_vaddr = 0xffffffff81000000, .p_paddr = 0x1000000,
				 .p_filesz = sizeof(k->text), .p_memsz = sizeof(k->text) };
	k->ph[1] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_offset = offsetof(struct kf_elf, data),
				 .p_vaddr = 0xffffffff82000000, .p_paddr = 0x2000000,
				 .p_filesz = sizeof(k->data), .p_memsz = 0x100000 };
	k->ph[2] = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = offsetof(struct kf_elf, note),
				 .p_filesz = sizeof(k->note), .p_memsz = sizeof(k->note) };
	k->note.h = (Elf64_Nhdr){ .n_namesz = 4, .n_descsz = 8, .n_type = 6 };
	memcpy(k->note.name, "Xen", 4);
	k->note.h2 = (Elf64_Nhdr){ .n_namesz = 4, .n_descsz = 8, .n_type = pvh ? 18 : 7 };
	memcpy(k->note.name2, "Xen", 4);
	k->note.desc2 = 0x1000200;
	for (unsigned i = 0; i < sizeof(k->text); i++)
		k->text[i] = (uint8_t)(i * 7);
	strcpy((char *)k->data, "Linux version %s; Linux version " KF_RELEASE " (someone) #2");
}

/* Standard error into a file from begin to end; what was written, as a string. */
struct kf_capture {
	int saved_fd, fd;
	char text[1024];
};

static inline void kf_capture_begin(struct kf_capture *c)
{
	fflush(stderr);
	c->fd = memfd_create("stderr", MFD_CLOEXEC);
	c->saved_fd = dup(STDERR_FILENO);
	dup2(c->fd, STDERR_FILENO);
}

static inline const char *kf_capture_end(struct kf_capture *c)
{
	ssize_t n;

	dup2(c->saved_fd, STDERR_FILENO);
	close(c->saved_fd);
	n = pread(c->fd, c->text, sizeof(c->text) - 1, 0);
	close(c->fd);
	c->text[n > 0 ? n : 0] = '\0';
	return c->text;
}

static inline unsigned kf_lines(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

#endif
