/* A PCI host without a VM, and the guest's way to it. */
#ifndef TESTS_UNIT_PCI_H
#define TESTS_UNIT_PCI_H

#include <linux/pci_regs.h>
#include <string.h>

#include "devices/pci.h"

#define ECAM       0xb0000000u
#define WINDOW     0xc0000000u
#define WINDOW_LEN 0x00100000u

struct board {
	struct bus mmio, ports;
	struct irq irq;
	struct pci_host pci;
};

static inline int board_create(struct board *b)
{
	const struct pci_host_opts o = {
		.ecam_gpa = ECAM,
		.window_gpa = WINDOW,
		.window_len = WINDOW_LEN,
		.intx_gsi = { 16, 17, 18, 19 },
		.ports = true,
	};
	int err;

	bus_init(&b->mmio, -1, false);
	bus_init(&b->ports, -1, true);
	err = irq_init(&b->irq, -1, 24);
	return err ? err : pci_host_create(&b->pci, &o, &b->mmio, &b->ports, &b->irq);
}

static inline void board_destroy(struct board *b)
{
	pci_host_destroy(&b->pci);
	irq_destroy(&b->irq);
	bus_destroy(&b->mmio);
	bus_destroy(&b->ports);
}

static inline uint64_t mmio_read(struct board *b, uint64_t addr, uint32_t len)
{
	uint64_t v = 0;

	bus_read(&b->mmio, addr, &v, len);
	return v;
}

static inline void mmio_write(struct board *b, uint64_t addr, uint64_t v, uint32_t len)
{
	bus_write(&b->mmio, addr, &v, len);
}

static inline uint64_t ecam_addr(unsigned slot, unsigned reg)
{
	return ECAM + (slot << 15) + reg;
}

static inline uint32_t cfg_read(struct board *b, unsigned slot, unsigned reg, uint32_t len)
{
	return (uint32_t)mmio_read(b, ecam_addr(slot, reg), len);
}

static inline void cfg_write(struct board *b, unsigned slot, unsigned reg, uint32_t v, uint32_t len)
{
	mmio_write(b, ecam_addr(slot, reg), v, len);
}

/* The capability of this id behind `after` (0: from the start), 0 when there is none. */
static inline unsigned cfg_find_cap(struct board *b, unsigned slot, uint8_t id, unsigned after)
{
	unsigned at = cfg_read(b, slot, after ? after + 1 : PCI_CAPABILITY_LIST, 1);

	for (unsigned i = 0; at && i < 64; i++) {
		if (cfg_read(b, slot, at, 1) == id)
			return at;
		at = cfg_read(b, slot, at + 1, 1);
	}
	return 0;
}

#endif
