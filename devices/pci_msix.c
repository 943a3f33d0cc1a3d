/*
 * MSI-X: see pci_msix.h and PCI Local Bus 3.0, "MSI-X Capability and Table Structure".
 *
 * A vector is an eventfd (vmm/irq.h) which an I/O thread writes without knowing about masks.  It is
 * attached to KVM exactly while the vector may fire: MSI-X enabled, neither the function nor the
 * entry masked.  Otherwise the eventfd's counter keeps the signal: that is the pending bit, shown
 * in the PBA and delivered at unmask.
 *
 * The table answers to accesses of any width, though drivers use 4 and 8 bytes: bytes are merged
 * into the entry, then each touched entry is worked out again.
 */
#include "devices/pci_msix.h"

#include <assert.h>
#include <linux/pci_regs.h>
#include <string.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/log.h"

#define ENTRY_CONTROL 3 /* index of the control word in a table entry */

static uint32_t table_len(const struct pci_msix *m)
{
	return m->n * PCI_MSIX_ENTRY_SIZE;
}

/* Table and PBA get half of the BAR each. */
static uint32_t msix_half(const struct pci_msix *m)
{
	uint32_t half = 2048;

	while (half < table_len(m))
		half *= 2;
	return half;
}

/* Pci lock held. */
static void msix_update(struct pci_function *f, unsigned i)
{
	struct pci_msix *m = &f->msix;
	const uint32_t *e = m->table[i];
	bool masked = !m->enabled || m->masked ||
		      (e[ENTRY_CONTROL] & PCI_MSIX_ENTRY_CTRL_MASKBIT);
	int err = irq_msi_set(f->host->irq, &m->line[i], (uint64_t)e[1] << 32 | e[0], e[2],
			      (uint32_t)f->slot << 3, masked);

	if (err)
		log_limited(LOG_LEVEL_WARN, "PCI slot %u: cannot route MSI-X vector %u: %s",
			    f->slot, i, strerror(-err));
}

void msix_config_written(struct pci_function *f, uint16_t control)
{
	struct pci_msix *m = &f->msix;
	bool enabled = control & PCI_MSIX_FLAGS_ENABLE, masked = control & PCI_MSIX_FLAGS_MASKALL;

	if (enabled == m->enabled && masked == m->masked)
		return;
	m->enabled = enabled;
	m->masked = masked;
	for (unsigned i = 0; i < m->n; i++)
		msix_update(f, i);
}

static void table_write(struct pci_function *f, uint32_t off, const void *p, uint32_t len)
{
	unsigned first = off / PCI_MSIX_ENTRY_SIZE, last = (off + len - 1) / PCI_MSIX_ENTRY_SIZE;
	struct pci_msix *m = &f->msix;

	memcpy((uint8_t *)m->table + off, p, len);
	for (unsigned i = first; i <= last; i++) {
		m->table[i][ENTRY_CONTROL] &= PCI_MSIX_ENTRY_CTRL_MASKBIT;
		msix_update(f, i);
	}
}

static void msix_bar_write(struct pci_function *f, uint64_t off, const void *p, uint32_t len)
{
	if (off + len > table_len(&f->msix))
		return;
	pthread_mutex_lock(&f->host->lock);
	table_write(f, (uint32_t)off, p, len);
	pthread_mutex_unlock(&f->host->lock);
}

/* One byte of the pending bit array. */
static uint8_t pending_byte(const struct pci_msix *m, uint64_t off)
{
	uint8_t bits = 0;

	for (unsigned i = 0; i < 8 && off * 8 + i < m->n; i++)
		bits |= (uint8_t)(irq_msi_pending(&m->line[off * 8 + i]) << i);
	return bits;
}

static void msix_bar_read(struct pci_function *f, uint64_t off, void *p, uint32_t len)
{
	const struct pci_msix *m = &f->msix;
	uint32_t half = msix_half(m);
	uint8_t *to = p;

	memset(p, 0, len);
	pthread_mutex_lock(&f->host->lock);
	if (off + len <= table_len(m))
		memcpy(p, (const uint8_t *)m->table + off, len);
	else if (off >= half)
		for (uint32_t i = 0; i < len; i++)
			to[i] = pending_byte(m, off - half + i);
	pthread_mutex_unlock(&f->host->lock);
}

static void msix_clear_table(struct pci_msix *m)
{
	memset(m->table, 0, sizeof(m->table));
	for (unsigned i = 0; i < m->n; i++)
		m->table[i][ENTRY_CONTROL] = PCI_MSIX_ENTRY_CTRL_MASKBIT;
}

void pci_add_msix(struct pci_function *f, unsigned i, unsigned n)
{
	struct pci_msix *m = &f->msix;
	const uint16_t writable = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;
	const uint16_t control = (uint16_t)(n - 1);
	uint32_t table = i, pba;

	assert(n >= 1 && n <= PCI_MSIX_MAX);
	m->n = n;
	m->cap = (uint8_t)pci_add_capability(f, PCI_CAP_ID_MSIX, PCI_CAP_MSIX_SIZEOF);
	pba = msix_half(m) | i;
	memcpy(f->config + m->cap + PCI_MSIX_FLAGS, &control, 2);
	memcpy(f->config + m->cap + PCI_MSIX_TABLE, &table, 4);
	memcpy(f->config + m->cap + PCI_MSIX_PBA, &pba, 4);
	memcpy(f->writable + m->cap + PCI_MSIX_FLAGS, &writable, 2);
	pci_add_bar(f, i, &(struct pci_bar){ .size = 2 * msix_half(m), .read = msix_bar_read,
					     .write = msix_bar_write });
	msix_clear_table(m);
}

int msix_create_lines(struct pci_function *f, struct irq *irq)
{
	for (unsigned i = 0; i < f->msix.n; i++) {
		int err = irq_msi_create(irq, &f->msix.line[i]);

		if (err) {
			while (i-- > 0)
				irq_msi_destroy(irq, &f->msix.line[i]);
			return err;
		}
	}
	return 0;
}

void msix_destroy_lines(struct pci_function *f, struct irq *irq)
{
	for (unsigned i = 0; i < f->msix.n; i++)
		irq_msi_destroy(irq, &f->msix.line[i]);
}

void msix_reset(struct pci_function *f)
{
	struct pci_msix *m = &f->msix;
	uint64_t count;

	m->enabled = m->masked = false;
	msix_clear_table(m);
	for (unsigned i = 0; i < m->n; i++) {
		msix_update(f, i);
		(void)!read(m->line[i].fd, &count, sizeof(count));
	}
}
