/*
 * Kernel and initrd files on disk: bounds-checked reading and the recognition of formats.  Where a
 * format is loaded (bzImage, ELF, Image) is arch code.
 *
 * Files are read with pread, never mapped: a file that shrinks meanwhile gives an error and no SIGBUS.
 */
#ifndef VMM_KERNEL_H
#define VMM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

struct file {
	int fd;
	uint64_t size;
	const char *path; /* for messages; not owned */
};

enum kernel_format {
	KERNEL_UNKNOWN, /* none of the below */
	KERNEL_BZIMAGE, /* x86 setup header "HdrS" */
	KERNEL_ELF,     /* 64-bit little-endian ELF of this machine's architecture */
	KERNEL_ELF_OTHER,
	KERNEL_ARM64_IMAGE,
	KERNEL_ARM64_ZBOOT,
	KERNEL_UKI,     /* PE with .linux section */
	KERNEL_PE,      /* any other EFI or Windows program */
	KERNEL_GZIP,
	KERNEL_COMPRESSED, /* xz, zstd, bzip2, lz4 */
	KERNEL_TEXT,
	KERNEL_EMPTY,
};

/* Regular files only, opened without blocking: -EINVAL for anything else (one line is logged). */
int file_open(struct file *f, const char *path);
void file_close(struct file *f);
/* All len bytes at off or nothing: -ENODATA past the end, -errno. */
int file_read(const struct file *f, uint64_t off, void *dst, size_t len);

/* Look at the first bytes.  Never fails: KERNEL_UNKNOWN for what cannot be read. */
enum kernel_format kernel_detect(const struct file *f);
/* For messages: "a bzImage", "an arm64 Image", "a text file"... */
const char *kernel_format_name(enum kernel_format format);
/* The release ("6.12.9+deb12-cloud-amd64") a kernel file names in itself, NUL-terminated.  -ENOENT if it
 * does not say.  For finding its modules. */
int kernel_release(const struct file *f, char *release, size_t len);

#endif
