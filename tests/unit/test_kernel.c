/* Kernel files: opening, bounds, recognition, release (vmm/kernel.h). */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/unit/kernel_files.h"
#include "tests/unit/suite.h"
#include "vmm/kernel.h"

static void refused(const char *path, int err, const char *say)
{
	struct kf_capture c;
	struct file f;

	kf_capture_begin(&c);
	ck_assert_int_eq(file_open(&f, path), err);
	kf_capture_end(&c);
	ck_assert_uint_eq(kf_lines(c.text), 1);
	ck_assert_ptr_nonnull(strstr(c.text, path));
	ck_assert_ptr_nonnull(strstr(c.text, say));
	ck_assert_int_eq(f.fd, -1);
	file_close(&f);
}

START_TEST(only_regular_files_are_opened_and_a_fifo_does_not_wait)
{
	char dir[] = "/tmp/heddle-test-XXXXXX", fifo[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	refused(fifo, -EINVAL, "is a FIFO");
	refused("/dev/null", -EINVAL, "is a device");
	refused(dir, -EINVAL, "is a directory");
	unlink(fifo);
	refused(fifo, -ENOENT, "No such file");
	rmdir(dir);
}
END_TEST

START_TEST(reads_are_whole_or_refused)
{
	struct file f = kf_make("0123456789", 10);
	char buf[16] = "";

	ck_assert_int_eq(file_read(&f, 0, buf, 10), 0);
	ck_assert_str_eq(buf, "0123456789");
	ck_assert_int_eq(file_read(&f, 10, buf, 0), 0);
	ck_assert_int_eq(file_read(&f, 10, buf, 1), -ENODATA);
	ck_assert_int_eq(file_read(&f, 5, buf, 6), -ENODATA);
	ck_assert_int_eq(file_read(&f, UINT64_MAX, buf, 2), -ENODATA);
	ck_assert_int_eq(file_read(&f, 5, buf, SIZE_MAX), -ENODATA);
	file_close(&f);
}
END_TEST

START_TEST(a_file_that_shrank_gives_an_error)
{
	struct file f = kf_make("0123456789", 10);
	char buf[16];

	ck_assert_int_eq(ftruncate(f.fd, 4), 0);
	ck_assert_int_eq(file_read(&f, 0, buf, 10), -ENODATA);
	ck_assert_int_eq(kernel_detect(&f), KERNEL_UNKNOWN);
	file_close(&f);
}
END_TEST

static enum kernel_format detect(const void *bytes, size_t len)
{
	struct file f = kf_make(bytes, len);
	enum kernel_format format = kernel_detect(&f);

	file_close(&f);
	return format;
}

START_TEST(formats_are_told_apart)
{
	static uint8_t bz[KF_BZ_LEN];
	uint8_t b[256] = { 0 };
	struct kf_elf elf;

	ck_assert_int_eq(detect("", 0), KERNEL_EMPTY);
	ck_assert_int_eq(detect("#!/bin/sh\n", 10), KERNEL_TEXT);
	ck_assert_int_eq(detect("\x1f\x8b\x08", 3), KERNEL_GZIP);
	ck_assert_int_eq(detect("\x28\xb5\x2f\xfd....", 8), KERNEL_COMPRESSED);
	ck_assert_int_eq(detect("\0\1\2\3", 4), KERNEL_UNKNOWN);
	ck_assert_int_eq(detect("\x7f" "ELF", 4), KERNEL_ELF_OTHER);
	kf_elf(&elf, false);
	ck_assert_int_eq(detect(&elf, sizeof(elf)), KERNEL_ELF);
	elf.e.e_machine = EM_PPC64;
	ck_assert_int_eq(detect(&elf, sizeof(elf)), KERNEL_ELF_OTHER);
	kf_bzimage(bz);
	memcpy(bz, "MZ", 2);
	ck_assert_int_eq(detect(bz, sizeof(bz)), KERNEL_BZIMAGE);
	ck_assert_int_eq(detect(bz, 0x205), KERNEL_PE);
	memcpy(b, "MZ\0\0zimg", 8);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_ARM64_ZBOOT);
	memcpy(b + 0x38, "ARM\x64", 4);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_ARM64_IMAGE);
}
END_TEST

/* A PE file: header at 0x80, n sections of which the last is called .linux. */
static void make_uki(uint8_t *b, uint32_t pe_off, uint16_t n, uint16_t n_said)
{
	const uint16_t opt_len = 0x70;

	memset(b, 0, 8192);
	memcpy(b, "MZ", 2);
	memcpy(b + 0x3c, &pe_off, 4);
	if (pe_off > 256)
		return;
	memcpy(b + pe_off, "PE\0\0", 4);
	memcpy(b + pe_off + 6, &n_said, 2);
	memcpy(b + pe_off + 20, &opt_len, 2);
	memcpy(b + pe_off + 24 + opt_len + 40 * (n - 1), ".linux\0\0", 8);
}

START_TEST(a_uki_is_found_by_its_section_table_within_bounds)
{
	static uint8_t b[8192];

	make_uki(b, 0x80, 7, 7);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_UKI);
	ck_assert_int_eq(detect(b, 0x80 + 24 + 0x70 + 40 * 6), KERNEL_PE);
	make_uki(b, 0x80, 7, 6);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_PE);
	make_uki(b, 0x80, 120, 65535);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_PE);
	make_uki(b, 0xffffffff, 1, 1);
	ck_assert_int_eq(detect(b, sizeof(b)), KERNEL_PE);
}
END_TEST

static int release(const void *bytes, size_t len, char *out, size_t out_len)
{
	struct file f = kf_make(bytes, len);
	int err = kernel_release(&f, out, out_len);

	file_close(&f);
	return err;
}

START_TEST(a_bzimage_names_its_release)
{
	static uint8_t bz[KF_BZ_LEN];
	struct setup_header *h = kf_bzimage(bz);
	char r[65];

	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), 0);
	ck_assert_str_eq(r, KF_RELEASE);
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(KF_RELEASE) - 1), -ENOENT);
	ck_assert_int_eq(release(bz, 0x508, r, sizeof(r)), -ENOENT);
	h->kernel_version = 0;
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), -ENOENT);
	h->kernel_version = 0xffff;
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), -ENOENT);
	h->kernel_version = 0x301; /* into the middle: no digit is first */
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), -ENOENT);
	h->kernel_version = 0x300;
	memset(bz + 0x500, '6', 256);
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), -ENOENT);
	memcpy(bz + 0x500, "6../etc/x ", 10);
	ck_assert_int_eq(release(bz, sizeof(bz), r, sizeof(r)), -ENOENT);
}
END_TEST

START_TEST(a_vmlinux_names_its_release_wherever_its_banner_lies)
{
	static uint8_t big[3 << 20];
	struct kf_elf elf;
	char r[65];

	kf_elf(&elf, false);
	ck_assert_int_eq(release(&elf, sizeof(elf), r, sizeof(r)), 0);
	ck_assert_str_eq(r, KF_RELEASE);
	/* Also where two pieces of the search meet. */
	for (unsigned off = (1 << 20) - 300; off < (1 << 20) + 10; off += 7) {
		memcpy(big, &elf, sizeof(elf.e));
		memset(big + (1 << 20) - 1024, 0, 4096);
		strcpy((char *)big + off, "Linux version 5.10.0 x");
		ck_assert_int_eq(release(big, sizeof(big), r, sizeof(r)), 0);
		ck_assert_str_eq(r, "5.10.0");
	}
	memset(big + (1 << 20) - 1024, 0, 4096);
	ck_assert_int_eq(release(big, sizeof(big), r, sizeof(r)), -ENOENT);
}
END_TEST

START_TEST(every_format_has_a_name)
{
	for (int i = KERNEL_UNKNOWN; i <= KERNEL_EMPTY; i++)
		ck_assert_ptr_nonnull(kernel_format_name((enum kernel_format)i));
	ck_assert_ptr_nonnull(kernel_format_name((enum kernel_format)1000));
}
END_TEST

SUITE_MAIN("kernel", 30,
	   only_regular_files_are_opened_and_a_fifo_does_not_wait,
	   reads_are_whole_or_refused,
	   a_file_that_shrank_gives_an_error,
	   formats_are_told_apart,
	   a_uki_is_found_by_its_section_table_within_bounds,
	   a_bzimage_names_its_release,
	   a_vmlinux_names_its_release_wherever_its_banner_lies,
	   every_format_has_a_name)
