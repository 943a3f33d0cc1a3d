/*
 * virtio over PCI, modern registers (virtio 1.2, "Virtio Over PCI Bus"): translates register
 * accesses into calls of virtio.h.  BAR 0 holds common config, ISR, device config and notify areas;
 * BAR 1 the MSI-X table.  One vector per queue plus one for config changes; one doorbell per queue.
 */
#ifndef DEVICES_VIRTIO_PCI_H
#define DEVICES_VIRTIO_PCI_H

#include "devices/pci.h"
#include "devices/virtio.h"
#include "vmm/loop.h"

struct virtio_pci;

/* Queues that fit: one vector each and one for config. */
#define VIRTIO_PCI_QUEUES_MAX (PCI_MSIX_MAX - 1)

/*
 * Plug device d (launched) into host h.  main is the loop on which INTx re-assertion is watched
 * (the main thread's), NULL for none.  *out is owned by the caller: virtio_pci_destroy.  0 or
 * -errno.
 */
int virtio_pci_create(struct pci_host *h, struct virtio_dev *d, struct bus *mmio, struct loop *main,
		      struct virtio_pci **out);
/* vCPUs are gone, d is shut down (its threads signal our eventfds till then) and not yet freed. */
void virtio_pci_destroy(struct virtio_pci *p);

#endif
