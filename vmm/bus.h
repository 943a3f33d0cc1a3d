/*
 * Address ranges -> handlers, for MMIO and for ports, and the doorbells (ioeventfds) that KVM
 * answers without leaving the kernel.
 *
 * Ranges are added before vCPUs run and frozen then; dispatch takes no lock.  Doorbells may come and
 * go while vCPUs run (a BAR moves): callers serialize them (PCI does, under its own lock).
 *
 * With vm_fd < 0 there is no KVM (unit tests, fuzzers): doorbells are then matched in bus_write()
 * and the eventfd is written from there, so the same devices run without a VM.
 */
#ifndef VMM_BUS_H
#define VMM_BUS_H

#include <stdbool.h>
#include <stdint.h>

#define BUS_RANGES_MAX    24
#define BUS_DOORBELLS_MAX 4096

struct bus_range {
	uint64_t base, len;
	void *ctx;
	/* off: from base; len: 1 to 8 (a guest's access that crosses a page arrives as two, of any
	 * length), and the access lies inside the range.  On a vCPU thread.  read must fill all len
	 * bytes.  Values are little-endian byte arrays. */
	void (*read)(void *ctx, uint64_t off, void *p, uint32_t len);
	void (*write)(void *ctx, uint64_t off, const void *p, uint32_t len);
};

struct bus_doorbell {
	uint64_t addr;
	int fd;
};

struct bus {
	int vm_fd; /* -1: no KVM */
	bool ports;
	struct bus_range range[BUS_RANGES_MAX];
	unsigned n;
	struct bus_doorbell *soft; /* only without KVM */
	unsigned n_soft;
};

void bus_init(struct bus *b, int vm_fd, bool ports);
void bus_destroy(struct bus *b);

/* Before vCPUs run.  -EINVAL for an overlap or a wrap, -ENOSPC when full. */
int bus_add(struct bus *b, const struct bus_range *r);

/* One guest access.  False if nothing is there: reads then give all ones.  vCPU threads. */
bool bus_read(const struct bus *b, uint64_t addr, void *p, uint32_t len);
bool bus_write(const struct bus *b, uint64_t addr, const void *p, uint32_t len);

/* A guest write of any value and width to addr signals eventfd fd.  0 or -errno. */
int bus_doorbell_add(struct bus *b, uint64_t addr, int fd);
int bus_doorbell_del(struct bus *b, uint64_t addr, int fd);

#endif
