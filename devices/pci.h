/*
 * PCI host bridge and functions (PCI Local Bus 3.0; PCI Express Base, "Enhanced Configuration
 * Access Mechanism"): one bus, config space by ECAM and by ports 0xcf8/0xcfc, memory BARs with
 * addresses given by heddle (there is no firmware) that the guest may move, MSI-X table and pending
 * bits, INTx.
 *
 * Everything here runs on vCPU threads (creation and destruction on main).  One lock guards config
 * spaces, BAR addresses and MSI-X tables; the handlers of a function's BARs run without it.  I/O
 * threads never come here.  Under it: the irq lock, and a device's wires_lock; its cfg_lock only in
 * pci_host_reset.
 */
#ifndef DEVICES_PCI_H
#define DEVICES_PCI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/bus.h"
#include "vmm/irq.h"

#define PCI_SLOTS       32
#define PCI_CONFIG_SIZE 256 /* conventional functions; what ECAM shows above reads as all ones */
#define PCI_BARS        6
#define PCI_MSIX_MAX    256 /* vectors of one function: 64 net pairs = 130, 64 fs queues = 66 */

struct pci_function;

struct pci_bar {
	uint32_t size; /* power of two >= 4096; 0 = no BAR.  32-bit memory, not prefetchable */
	uint64_t addr; /* where it answers now; 0 = decode off, or outside the window */
	/* off from the BAR's start; len 1, 2, 4, 8, any alignment, all of it inside; vCPU thread,
	 * pci lock not held.  read fills all bytes. */
	void (*read)(struct pci_function *f, uint64_t off, void *p, uint32_t len);
	void (*write)(struct pci_function *f, uint64_t off, const void *p, uint32_t len);
	/*
	 * The BAR now answers at addr (0: no more).  Pci lock held.  For doorbells.  May be NULL.
	 */
	void (*moved)(struct pci_function *f, uint64_t addr);
};

struct pci_msix {
	unsigned n;              /* vectors; 0 = no MSI-X */
	uint8_t cap;             /* config offset */
	bool enabled, masked;    /* message control bits 15 and 14 */
	struct msi_line line[PCI_MSIX_MAX];
	uint32_t table[PCI_MSIX_MAX][4]; /* addr lo, addr hi, data, control */
};

struct pci_function {
	struct pci_host *host; /* NULL while not attached */
	uint8_t slot;
	uint8_t last_cap, next_cap;        /* end of the capability list, first free byte */
	uint8_t config[PCI_CONFIG_SIZE];
	uint8_t writable[PCI_CONFIG_SIZE]; /* mask of the bits a guest may change */
	uint8_t initial[PCI_CONFIG_SIZE];  /* config as attached, for pci_host_reset */
	struct pci_bar bar[PCI_BARS];
	struct pci_msix msix;
	struct irq_line intx;              /* created by pci_attach */
	/* After a guest's config write was applied; pci lock not held.  May be NULL. */
	void (*config_written)(struct pci_function *f, uint32_t off, uint32_t len);
	/* Before a config read; may fill in config, under the pci lock, which is not held.  May be
	 * NULL. */
	void (*config_reading)(struct pci_function *f, uint32_t off, uint32_t len);
	/* MSI-X or INTx was enabled or disabled; pci lock held: may not wait.  May be NULL. */
	void (*wires_changed)(struct pci_function *f);
	/* From pci_host_reset, before config is restored; pci lock held, vCPUs stopped.  May be
	 * NULL. */
	void (*reset)(struct pci_function *f);
};

struct pci_host {
	pthread_mutex_t lock;
	struct irq *irq;
	uint64_t window_gpa, window_len; /* for BARs, below 4 GiB */
	uint64_t window_used;
	uint32_t intx_gsi[4];            /* INTA of slot s raises intx_gsi[s % 4] */
	uint32_t port_address;           /* 0xcf8 */
	struct pci_function *slot[PCI_SLOTS];
	struct pci_function bridge;      /* slot 0 */
};

struct pci_host_opts {
	uint64_t ecam_gpa;   /* 1 MiB per bus; one bus */
	uint64_t window_gpa, window_len;
	uint32_t intx_gsi[4];
	bool ports;          /* x86: also 0xcf8/0xcfc on pio */
};

/* Claims its ranges on the buses and plugs in the bridge.  irq must be ready.  0 or -errno. */
int pci_host_create(struct pci_host *h, const struct pci_host_opts *o, struct bus *mmio,
		    struct bus *pio, struct irq *irq);
/* All other functions are detached already. */
void pci_host_destroy(struct pci_host *h);

/* Clear f and fill its header. */
void pci_function_init(struct pci_function *f, uint16_t vendor, uint16_t device,
		       uint32_t class_code, uint16_t sub_vendor, uint16_t sub_device);
/* Reserve a capability of len bytes (id and next included); returns its config offset.  Read-only
 * for the guest unless the caller sets writable bits. */
unsigned pci_add_capability(struct pci_function *f, uint8_t id, unsigned len);
/* BAR i of size bytes; *bar is copied. */
void pci_add_bar(struct pci_function *f, unsigned i, const struct pci_bar *bar);
/* MSI-X with n vectors in BAR i, which is created for it.  The lines come with pci_attach. */
void pci_add_msix(struct pci_function *f, unsigned i, unsigned n);

/* Plug into the next free slot: assigns BAR addresses (decode is off until the guest turns it on),
 * interrupt lines.  0, or -ENOSPC (slots, window), or -errno with nothing left behind. */
int pci_attach(struct pci_host *h, struct pci_function *f);
/* vCPUs are gone.  Closes the interrupt lines: nobody may signal them any more. */
void pci_detach(struct pci_function *f);

/* INTx is the function's interrupt now: MSI-X is off and the guest did not disable the pin.  Pci
 * lock held, or from wires_changed. */
bool pci_intx_enabled(const struct pci_function *f);

/* Guest reset: config space back to its state after attach, MSI-X table cleared.  vCPUs stopped. */
void pci_host_reset(struct pci_host *h);

#endif
