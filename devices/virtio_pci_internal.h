/*
 * Inside of the virtio-pci transport: what virtio_pci.c (areas, doorbells, capabilities) and
 * virtio_pci_common.c (common config, wires) share.
 */
#ifndef DEVICES_VIRTIO_PCI_INTERNAL_H
#define DEVICES_VIRTIO_PCI_INTERNAL_H

#include <linux/virtio_pci.h>

#include "devices/virtio_pci.h"
#include "vmm/base.h"

struct wire {
	uint16_t vector; /* as the guest wrote it: VIRTIO_MSI_NO_VECTOR = none; under wires_lock */
	int doorbell_fd; /* eventfd at doorbell_gpa, -1 = none; under the pci lock */
};

struct virtio_pci {
	struct pci_function f;
	struct virtio_dev *dev;
	struct bus *mmio;
	struct loop *main;
	struct watch resample;
	uint64_t doorbell_gpa; /* of queue 0; under the pci lock */
	uint8_t cfg_cap;       /* config offset of the PCI_CFG window */

	/* Under the device's cfg_lock. */
	uint32_t device_select, driver_select; /* feature words */
	uint16_t queue_select;

	/*
	 * A leaf, never held while somebody waits, as cfg_lock is during a reset: config space,
	 * where MSI-X and the pin go on and off, must answer then.
	 */
	pthread_mutex_t wires_lock;
	bool msix_on, intx_on;
	uint16_t config_vector;
	struct wire wire[]; /* one per queue */
};

static inline struct virtio_pci *vpci(struct pci_function *f)
{
	return container_of(f, struct virtio_pci, f);
}

/* Common config, off from its start; an access that does not fit is ignored.  vCPU threads. */
void vpci_common_read(struct virtio_pci *p, uint32_t off, void *to, uint32_t len);
void vpci_common_write(struct virtio_pci *p, uint32_t off, const void *from, uint32_t len);

/* MSI-X or the pin went on or off; pci lock held. */
void vpci_wires_changed(struct pci_function *f);

/* The transport's own part of a device reset. */
void vpci_reset(struct virtio_pci *p);

#endif
