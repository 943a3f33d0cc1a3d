/* Address ranges and doorbells (vmm/bus.h); KVM is replaced by this file's ioctl(). */
#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/bus.h"

#define FAKE_VM 1000000 /* no descriptor has this number */

static struct bus b;
static struct kvm_ioeventfd last_io;
static int io_errno;
static uint64_t seen_off;
static uint32_t seen_len;
static uint8_t cell[0x100];

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	ck_assert_int_eq(fd, FAKE_VM);
	ck_assert_uint_eq(request, KVM_IOEVENTFD);
	last_io = *va_arg(ap, struct kvm_ioeventfd *);
	va_end(ap);
	errno = io_errno;
	return io_errno ? -1 : 0;
}

static void cell_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	seen_off = off;
	seen_len = len;
	memcpy(p, (uint8_t *)ctx + off, len);
}

static void cell_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	seen_off = off;
	seen_len = len;
	memcpy((uint8_t *)ctx + off, p, len);
}

static int add(uint64_t base, uint64_t len)
{
	const struct bus_range r = { .base = base, .len = len, .ctx = cell, .read = cell_read,
				     .write = cell_write };

	return bus_add(&b, &r);
}

START_TEST(access_reaches_its_range_with_its_offset)
{
	uint32_t v = 0x11223344;

	bus_init(&b, -1, false);
	ck_assert_int_eq(add(0x1000, 0x100), 0);
	ck_assert_int_eq(add(0x2000, 0x10), 0);
	ck_assert(bus_write(&b, 0x1010, &v, 4));
	ck_assert_uint_eq(seen_off, 0x10);
	ck_assert_uint_eq(seen_len, 4);
	v = 0;
	ck_assert(bus_read(&b, 0x1012, &v, 2));
	ck_assert_uint_eq(v, 0x1122);
	ck_assert(bus_read(&b, 0x200f, &v, 1));
	ck_assert_uint_eq(seen_off, 0xf);
	bus_destroy(&b);
}
END_TEST

START_TEST(nothing_there_reads_as_ones)
{
	static const uint64_t miss[] = { 0, 0xfff, 0x1100, UINT64_MAX };
	uint64_t v;

	bus_init(&b, -1, false);
	ck_assert_int_eq(add(0x1000, 0x100), 0);
	for (unsigned i = 0; i < sizeof(miss) / sizeof(*miss); i++) {
		v = 0;
		ck_assert(!bus_read(&b, miss[i], &v, 8));
		ck_assert_uint_eq(v, UINT64_MAX);
		ck_assert(!bus_write(&b, miss[i], &v, 8));
	}
	bus_destroy(&b);
}
END_TEST

START_TEST(access_across_the_end_of_a_range_is_nobodys)
{
	uint32_t v = 0;

	bus_init(&b, -1, false);
	ck_assert_int_eq(add(0x1000, 0x100), 0);
	ck_assert_int_eq(add(0x1100, 0x100), 0);
	ck_assert(!bus_read(&b, 0x10fe, &v, 4));
	ck_assert_uint_eq(v, UINT32_MAX);
	ck_assert(bus_read(&b, 0x10fc, &v, 4));
	bus_destroy(&b);
}
END_TEST

START_TEST(overlaps_wraps_and_empty_ranges_are_refused)
{
	bus_init(&b, -1, false);
	ck_assert_int_eq(add(0x1000, 0x100), 0);
	ck_assert_int_eq(add(0x1000, 0x100), -EINVAL);
	ck_assert_int_eq(add(0x10ff, 1), -EINVAL);
	ck_assert_int_eq(add(0xfff, 2), -EINVAL);
	ck_assert_int_eq(add(0, UINT64_MAX), -EINVAL);
	ck_assert_int_eq(add(UINT64_MAX, 2), -EINVAL);
	ck_assert_int_eq(add(0x5000, 0), -EINVAL);
	ck_assert_int_eq(add(0xfff, 1), 0);
	ck_assert_int_eq(add(0x1100, 1), 0);
	bus_destroy(&b);
}
END_TEST

START_TEST(full_bus_refuses_more)
{
	bus_init(&b, -1, false);
	for (unsigned i = 0; i < BUS_RANGES_MAX; i++)
		ck_assert_int_eq(add(i * 0x1000, 0x100), 0);
	ck_assert_int_eq(add(0x100000, 1), -ENOSPC);
	bus_destroy(&b);
}
END_TEST

static uint64_t drain(int fd)
{
	uint64_t v = 0;

	(void)!read(fd, &v, sizeof(v));
	return v;
}

START_TEST(doorbell_without_kvm_catches_the_write)
{
	int one = eventfd(0, EFD_NONBLOCK), two = eventfd(0, EFD_NONBLOCK);
	uint16_t v = 7;

	bus_init(&b, -1, false);
	ck_assert_int_eq(add(0, 0x100), 0);
	ck_assert_int_eq(bus_doorbell_add(&b, 0x10, one), 0);
	ck_assert_int_eq(bus_doorbell_add(&b, 0x14, two), 0);
	ck_assert(bus_write(&b, 0x10, &v, 2));
	ck_assert(bus_write(&b, 0x10, &v, 1));
	ck_assert_uint_eq(drain(one), 2);
	ck_assert_uint_eq(drain(two), 0);
	ck_assert_uint_eq(cell[0x10], 0);
	ck_assert_int_eq(bus_doorbell_del(&b, 0x10, two), -ENOENT);
	ck_assert_int_eq(bus_doorbell_del(&b, 0x10, one), 0);
	ck_assert_int_eq(bus_doorbell_del(&b, 0x10, one), -ENOENT);
	ck_assert(bus_write(&b, 0x10, &v, 2));
	ck_assert_uint_eq(cell[0x10], 7);
	ck_assert(bus_write(&b, 0x14, &v, 2));
	ck_assert_uint_eq(drain(two), 1);
	bus_destroy(&b);
	close(one);
	close(two);
}
END_TEST

START_TEST(doorbell_with_kvm_is_an_ioeventfd_of_any_length)
{
	bus_init(&b, FAKE_VM, false);
	ck_assert_int_eq(bus_doorbell_add(&b, 0xc0003004, 9), 0);
	ck_assert_uint_eq(last_io.addr, 0xc0003004);
	ck_assert_int_eq(last_io.fd, 9);
	ck_assert_uint_eq(last_io.len, 0);
	ck_assert_uint_eq(last_io.flags, 0);
	ck_assert_int_eq(bus_doorbell_del(&b, 0xc0003004, 9), 0);
	ck_assert_uint_eq(last_io.flags, KVM_IOEVENTFD_FLAG_DEASSIGN);
	io_errno = EEXIST;
	ck_assert_int_eq(bus_doorbell_add(&b, 0xc0003004, 9), -EEXIST);
	bus_init(&b, FAKE_VM, true);
	io_errno = 0;
	ck_assert_int_eq(bus_doorbell_add(&b, 0x100, 9), 0);
	ck_assert_uint_eq(last_io.flags, KVM_IOEVENTFD_FLAG_PIO);
	bus_destroy(&b);
}
END_TEST

SUITE_MAIN("bus", 10, access_reaches_its_range_with_its_offset, nothing_there_reads_as_ones,
	   access_across_the_end_of_a_range_is_nobodys, overlaps_wraps_and_empty_ranges_are_refused,
	   full_bus_refuses_more, doorbell_without_kvm_catches_the_write,
	   doorbell_with_kvm_is_an_ioeventfd_of_any_length)
