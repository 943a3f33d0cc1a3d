/*
 * MSI-X of a PCI function: table, pending bits, masks.  Internal to pci.c and its table BAR;
 * devices use pci_add_msix() of pci.h.
 */
#ifndef DEVICES_PCI_MSIX_H
#define DEVICES_PCI_MSIX_H

#include "devices/pci.h"

/* One eventfd and GSI per vector.  0, or -errno with none left. */
int msix_create_lines(struct pci_function *f, struct irq *irq);
void msix_destroy_lines(struct pci_function *f, struct irq *irq);

/* Message control was written.  Pci lock held. */
void msix_config_written(struct pci_function *f, uint16_t control);

/* As after power on: all vectors masked, nothing pending.  Pci lock held, nobody signals. */
void msix_reset(struct pci_function *f);

#endif
