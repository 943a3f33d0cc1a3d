/*
 * Kernel files: see kernel.h.
 *
 * A file is recognized by magic numbers alone, most telling first: a bzImage, an arm64 Image and a
 * unified kernel image all start with the "MZ" of an EFI program, so those come before "some EFI
 * program", and "text" is only what nothing else claimed.  Nothing read here is trusted: every offset
 * a file gives goes through file_read(), which refuses what lies past the end.
 */
#include "vmm/kernel.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/arch.h"
#include "vmm/base.h"
#include "vmm/log.h"

/* Enough for every magic number but that of a PE section, which is looked up by its own offset. */
#define HEAD_LEN 0x210

/* x86 boot protocol, "The Real-Mode Kernel Header". */
#define BZ_BOOT_FLAG_OFF      0x1fe
#define BZ_MAGIC_OFF          0x202
#define BZ_KERNEL_VERSION_OFF 0x20e

#define PE_SECTIONS_MAX 96 /* what the Windows loader takes */

#define RELEASE_MAX    128
#define SEARCH_MAX     (64ull << 20) /* a vmlinux has its read-only data well before that */
#define SEARCH_STEP    (1u << 20)

static const char *file_kind(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFBLK:
	case S_IFCHR:
		return "a device";
	default:
		return "something else";
	}
}

int file_open(struct file *f, const char *path)
{
	struct stat st;
	int err;

	*f = (struct file){ .path = path };
	/* Without O_NONBLOCK a FIFO would wait here for its writer. */
	f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (f->fd < 0 || fstat(f->fd, &st)) {
		err = -errno;
		log_error("%s: %s", path, strerror(-err));
		file_close(f);
		return err;
	}
	if (!S_ISREG(st.st_mode)) {
		log_error("%s: is %s, not a file", path, file_kind(st.st_mode));
		file_close(f);
		return -EINVAL;
	}
	f->size = (uint64_t)st.st_size;
	return 0;
}

void file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

int file_read(const struct file *f, uint64_t off, void *dst, size_t len)
{
	uint8_t *to = dst;

	if (off > f->size || len > f->size - off)
		return -ENODATA;
	while (len > 0) {
		ssize_t n = pread(f->fd, to, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA; /* it has shrunk since it was opened */
		to += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* Microsoft PE format, "COFF File Header", "Section Table". */
static bool pe_has_section(const struct file *f, uint32_t pe_off, const char name[8])
{
	uint16_t n_sections, opt_len;
	uint8_t coff[24], sec[8];
	uint64_t off;

	if (file_read(f, pe_off, coff, sizeof(coff)) || memcmp(coff, "PE\0", 4) != 0)
		return false;
	memcpy(&n_sections, coff + 6, 2);
	memcpy(&opt_len, coff + 20, 2);
	off = (uint64_t)pe_off + sizeof(coff) + opt_len;
	for (unsigned i = 0; i < n_sections && i < PE_SECTIONS_MAX; i++, off += 40) {
		if (file_read(f, off, sec, sizeof(sec)))
			return false;
		if (memcmp(sec, name, 8) == 0)
			return true;
	}
	return false;
}

static enum kernel_format detect_mz(const struct file *f, const uint8_t *head)
{
	static const char linux_section[8] = ".linux";
	uint32_t pe_off;

	if (memcmp(head + 0x38, "ARM\x64", 4) == 0)
		return KERNEL_ARM64_IMAGE;
	if (memcmp(head + 4, "zimg", 4) == 0)
		return KERNEL_ARM64_ZBOOT;
	memcpy(&pe_off, head + 0x3c, sizeof(pe_off));
	return pe_has_section(f, pe_off, linux_section) ? KERNEL_UKI : KERNEL_PE;
}

static enum kernel_format detect_elf(const uint8_t *head)
{
	Elf64_Ehdr e;

	memcpy(&e, head, sizeof(e));
	if (e.e_ident[EI_CLASS] == ELFCLASS64 && e.e_ident[EI_DATA] == ELFDATA2LSB &&
	    e.e_machine == arch_elf_machine())
		return KERNEL_ELF;
	return KERNEL_ELF_OTHER;
}

static enum kernel_format detect_packed(const uint8_t *head)
{
	static const struct {
		const char *magic;
		size_t len;
	} packed[] = {
		{ "\xfd" "7zXZ", 5 }, { "\x28\xb5\x2f\xfd", 4 }, { "BZh", 3 },
		{ "\x02\x21\x4c\x18", 4 }, { "\x04\x22\x4d\x18", 4 },
	};

	if (memcmp(head, "\x1f\x8b", 2) == 0)
		return KERNEL_GZIP;
	for (unsigned i = 0; i < ARRAY_SIZE(packed); i++)
		if (memcmp(head, packed[i].magic, packed[i].len) == 0)
			return KERNEL_COMPRESSED;
	return KERNEL_UNKNOWN;
}

static bool is_text(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((p[i] < ' ' && !(p[i] >= '\t' && p[i] <= '\r')) || p[i] == 0x7f)
			return false;
	return true;
}

enum kernel_format kernel_detect(const struct file *f)
{
	uint8_t head[HEAD_LEN] = { 0 };
	size_t len = f->size < sizeof(head) ? (size_t)f->size : sizeof(head);
	enum kernel_format packed;

	if (len == 0)
		return KERNEL_EMPTY;
	if (file_read(f, 0, head, len))
		return KERNEL_UNKNOWN;
	/* What a short file lacks is zero in head, and no magic number has zeroes there. */
	if (memcmp(head + BZ_MAGIC_OFF, "HdrS", 4) == 0 &&
	    memcmp(head + BZ_BOOT_FLAG_OFF, "\x55\xaa", 2) == 0)
		return KERNEL_BZIMAGE;
	if (memcmp(head, ELFMAG, SELFMAG) == 0)
		return detect_elf(head);
	if (memcmp(head + 0x38, "ARM\x64", 4) == 0)
		return KERNEL_ARM64_IMAGE; /* built without an EFI stub */
	if (memcmp(head, "MZ", 2) == 0)
		return detect_mz(f, head);
	packed = detect_packed(head);
	if (packed == KERNEL_UNKNOWN && is_text(head, len))
		return KERNEL_TEXT;
	return packed;
}

const char *kernel_format_name(enum kernel_format format)
{
	static const char *const names[] = {
		[KERNEL_UNKNOWN] = "an unknown kind of file",
		[KERNEL_BZIMAGE] = "a bzImage",
		[KERNEL_ELF] = "an ELF file",
		[KERNEL_ELF_OTHER] = "an ELF file for another machine",
		[KERNEL_ARM64_IMAGE] = "an arm64 Image",
		[KERNEL_ARM64_ZBOOT] = "an EFI zboot image",
		[KERNEL_UKI] = "a unified kernel image (UKI)",
		[KERNEL_PE] = "an EFI program",
		[KERNEL_GZIP] = "a gzip file",
		[KERNEL_COMPRESSED] = "a compressed file",
		[KERNEL_TEXT] = "a text file",
		[KERNEL_EMPTY] = "an empty file",
	};

	return (unsigned)format < ARRAY_SIZE(names) ? names[format] : names[KERNEL_UNKNOWN];
}

static bool release_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr(".-+_~", c) != NULL);
}

/* Take the release at the start of text: it starts with a digit, and a space or NUL ends it. */
static int release_take(const char *text, size_t text_len, char *release, size_t len)
{
	size_t n = 0;

	while (n < text_len && release_char(text[n]))
		n++;
	if (n == 0 || n == text_len || (text[n] != ' ' && text[n] != '\0'))
		return -ENOENT;
	if (text[0] < '0' || text[0] > '9' || n >= len)
		return -ENOENT;
	memcpy(release, text, n);
	release[n] = '\0';
	return 0;
}

/* The header points to a string among the real-mode sectors (kernel_version, offset from 0x200). */
static int release_bzimage(const struct file *f, char *release, size_t len)
{
	char text[RELEASE_MAX] = { 0 };
	uint16_t at;
	uint64_t off;
	size_t n;

	if (file_read(f, BZ_KERNEL_VERSION_OFF, &at, sizeof(at)) || at == 0)
		return -ENOENT;
	off = 0x200u + at;
	if (off >= f->size)
		return -ENOENT;
	n = MIN(sizeof(text), f->size - off);
	if (file_read(f, off, text, n))
		return -ENOENT;
	return release_take(text, n, release, len);
}

static int release_find(const char *buf, size_t n, char *release, size_t len)
{
	static const char banner[] = "Linux version ";
	const char *end = buf + n, *p = buf;

	while ((p = memmem(p, (size_t)(end - p), banner, sizeof(banner) - 1)) != NULL) {
		p += sizeof(banner) - 1;
		if (release_take(p, (size_t)(end - p), release, len) == 0)
			return 0;
	}
	return -ENOENT;
}

/* An uncompressed kernel says it in its banner.  Pieces overlap, so that none is cut in two. */
static int release_search(const struct file *f, char *release, size_t len)
{
	uint64_t end = MIN(f->size, SEARCH_MAX);
	char *buf = malloc((size_t)MIN(end, (uint64_t)SEARCH_STEP));
	int err = -ENOENT;

	if (!buf)
		return -ENOMEM;
	for (uint64_t off = 0; off < end && err; off += SEARCH_STEP - 2 * RELEASE_MAX) {
		size_t n = (size_t)MIN((uint64_t)SEARCH_STEP, end - off);

		if (file_read(f, off, buf, n))
			break;
		err = release_find(buf, n, release, len);
	}
	free(buf);
	return err;
}

int kernel_release(const struct file *f, char *release, size_t len)
{
	switch (kernel_detect(f)) {
	case KERNEL_BZIMAGE:
		return release_bzimage(f, release, len);
	case KERNEL_ELF:
	case KERNEL_ARM64_IMAGE:
		return release_search(f, release, len);
	default:
		return -ENOENT;
	}
}
