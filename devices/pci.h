/*
 * PCI host bridge and functions (PCI Local Bus 3.0; PCI Express Base, "Enhanced Configuration Access
 * Mechanism"): one bus, config space by ECAM and by ports 0xcf8/0xcfc, memory BARs with addresses given
 * by heddle (there is no firmware) that the guest may move, MSI-X table and pending bits, INTx.
 *
 * Everything here runs on vCPU threads under one lock, held also while a function's BAR handler runs
 * only where said.  I/O threads never come here.
 */
#ifndef DEVICES_PCI_H
#define DEVICES_PCI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/bus.h"
#include "vmm/irq.h"

#define PCI_SLOTS       32
#define PCI_CONFIG_SIZE 4096
#define PCI_BARS        6
#define PCI_MSIX_MAX    256 /* vectors of one function: 64 net pairs = 129, 64 fs queues = 66 */

struct pci_function;

struct pci_bar {
	uint32_t size; /* power of two >= 4096; 0 = no BAR.  All are 32-bit memory, not prefetchable. */
	uint64_t addr; /* where it answers now; 0 = decode off */
	/* off from the BAR's start; len 1, 2, 4, 8; vCPU thread, pci lock not held. */
	void (*read)(struct pci_function *f, uint64_t off, void *p, uint32_t len);
	void (*write)(struct pci_function *f, uint64_t off, const void *p, uint32_t len);
	/* The BAR now answers at addr (0: no more).  Pci lock held.  For doorbells.  May be NULL. */
	void (*moved)(struct pci_function *f, uint64_t addr);
};

struct pci_msix {
	unsigned n;              /* vectors; 0 = no MSI-X */
	struct msi_line line[PCI_MSIX_MAX];
	uint32_t table[PCI_MSIX_MAX][4]; /* addr lo, addr hi, data, control */
	bool enabled, masked;    /* message control bits 15 and 14 */
};

struct pci_function {
	struct pci_host *host;
	uint8_t slot;
	uint8_t config[PCI_CONFIG_SIZE];
	uint8_t writable[PCI_CONFIG_SIZE]; /* mask of the bits a guest may change */
	uint8_t next_cap;                  /* where the next capability goes */
	uint8_t last_cap;
	struct pci_bar bar[PCI_BARS];
	struct pci_msix msix;
	uint8_t msix_cap, msix_bar;        /* config offset; BAR that holds table (at 0) and PBA (at half) */
	struct irq_line intx;
	/* After a config write was applied; pci lock held.  May be NULL. */
	void (*config_written)(struct pci_function *f, uint32_t off, uint32_t len);
	/* A config read of a window register (VIRTIO_PCI_CAP_PCI_CFG) is about to happen.  May be NULL. */
	void (*config_reading)(struct pci_function *f, uint32_t off, uint32_t len);
	/* MSI-X was enabled, disabled or function-masked; lock held.  May be NULL. */
	void (*msix_changed)(struct pci_function *f);
};

struct pci_host {
	pthread_mutex_t lock;
	struct bus *mmio;
	struct irq *irq;
	uint64_t window_gpa, window_len; /* for BARs */
	uint64_t window_used;
	uint32_t intx_gsi[4];            /* GSI of INTA..INTD after swizzling: pin = slot % 4 */
	uint32_t port_address;           /* 0xcf8 */
	struct pci_function *slot[PCI_SLOTS];
};

struct pci_host_opts {
	uint64_t ecam_gpa;   /* 1 MiB per bus; one bus */
	uint64_t window_gpa, window_len;
	uint32_t intx_gsi[4];
	bool ports;          /* x86: also 0xcf8/0xcfc on pio */
};

int pci_host_create(struct pci_host *h, const struct pci_host_opts *o, struct bus *mmio,
		    struct bus *pio, struct irq *irq);
void pci_host_destroy(struct pci_host *h);

/* Fill the header, set the ids. */
void pci_function_init(struct pci_function *f, uint16_t vendor, uint16_t device, uint32_t class_code,
		       uint16_t sub_vendor, uint16_t sub_device);
/* Reserve a capability of len bytes (id and next included); returns its config offset. */
unsigned pci_add_capability(struct pci_function *f, uint8_t id, unsigned len);
/* BAR i of size bytes. */
void pci_add_bar(struct pci_function *f, unsigned i, const struct pci_bar *bar);
/* MSI-X with n vectors in BAR i, which is created for it. */
int pci_add_msix(struct pci_function *f, unsigned i, unsigned n);
/* Plug into the next free slot: assigns BAR addresses and the INTx line.  0 or -errno. */
int pci_attach(struct pci_host *h, struct pci_function *f);
/* Guest reset: config space back to its state after attach.  vCPUs stopped. */
void pci_host_reset(struct pci_host *h);

#endif
