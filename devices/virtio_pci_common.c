/*
 * Common config and the wires of interrupts: see virtio_pci.h and virtio 1.2, "Common configuration
 * structure layout".
 *
 * Registers.  Common config is read as a whole: common_load fills the spec's struct and the wanted
 * bytes are copied from it, so every width and alignment is served.  A write puts its bytes into
 * such a struct, then each writable field it touched is set, in register order.
 *
 * Wires.  MSI-X on: call_fd is the eventfd of the vector the guest chose, or none.  Off: the pin,
 * with the cause in isr.  The choices have a lock of their own: cfg_lock is held while a reset
 * waits for I/O threads, and config space has a say in the wires.
 */
#include <linux/virtio_config.h>
#include <string.h>

#include "devices/virtio_pci_internal.h"
#include "vmm/irq.h"

/* --- wires ------------------------------------------------------------------------------------ */

static int wire_fd(const struct virtio_pci *p, uint16_t vector)
{
	if (!p->msix_on)
		return p->intx_on ? p->f.intx.trigger_fd : -1;
	return vector == VIRTIO_MSI_NO_VECTOR ? -1 : p->f.msix.line[vector].fd;
}

/* wires_lock held. */
static void wires_update(struct virtio_pci *p)
{
	struct virtio_dev *d = p->dev;

	atomic_store(&d->config_call_fd, wire_fd(p, p->config_vector));
	for (unsigned i = 0; i < d->n_queues; i++)
		atomic_store(&d->queue[i].call_fd, wire_fd(p, p->wire[i].vector));
}

void vpci_wires_changed(struct pci_function *f)
{
	struct virtio_pci *p = vpci(f);
	struct virtio_dev *d = p->dev;
	bool intx_was_on;

	pthread_mutex_lock(&p->wires_lock);
	intx_was_on = p->intx_on;
	p->msix_on = f->msix.enabled;
	p->intx_on = pci_intx_enabled(f);
	wires_update(p);
	/* What was signalled while the pin was off is not recorded: a spurious interrupt in its
	 * place. */
	if (p->intx_on && !intx_was_on && (atomic_load(&d->status) & VIRTIO_CONFIG_S_DRIVER_OK)) {
		atomic_fetch_or(&d->isr, VIRTIO_ISR_QUEUE);
		irq_signal(f->intx.trigger_fd);
	}
	pthread_mutex_unlock(&p->wires_lock);
}

static uint16_t vector_get(struct virtio_pci *p, const uint16_t *vector)
{
	uint16_t v;

	pthread_mutex_lock(&p->wires_lock);
	v = *vector;
	pthread_mutex_unlock(&p->wires_lock);
	return v;
}

static void vector_set(struct virtio_pci *p, uint16_t *vector, uint16_t v)
{
	pthread_mutex_lock(&p->wires_lock);
	*vector = v < p->f.msix.n ? v : VIRTIO_MSI_NO_VECTOR;
	wires_update(p);
	pthread_mutex_unlock(&p->wires_lock);
}

/* --- common config ---------------------------------------------------------------------------- */

static uint32_t feature_word(uint64_t features, uint32_t select)
{
	return select > 1 ? 0 : (uint32_t)(features >> (32 * select));
}

static void common_load_queue(struct virtio_pci *p, struct virtio_pci_common_cfg *c)
{
	const struct virtio_queue *q;

	if (p->queue_select >= p->dev->n_queues) {
		c->queue_msix_vector = VIRTIO_MSI_NO_VECTOR;
		return;
	}
	q = &p->dev->queue[p->queue_select];
	c->queue_size = q->size;
	c->queue_msix_vector = vector_get(p, &p->wire[p->queue_select].vector);
	c->queue_enable = q->enabled;
	c->queue_notify_off = p->queue_select;
	c->queue_desc_lo = (uint32_t)q->desc_gpa;
	c->queue_desc_hi = (uint32_t)(q->desc_gpa >> 32);
	c->queue_avail_lo = (uint32_t)q->avail_gpa;
	c->queue_avail_hi = (uint32_t)(q->avail_gpa >> 32);
	c->queue_used_lo = (uint32_t)q->used_gpa;
	c->queue_used_hi = (uint32_t)(q->used_gpa >> 32);
}

static void common_load(struct virtio_pci *p, struct virtio_pci_common_cfg *c)
{
	struct virtio_dev *d = p->dev;

	pthread_mutex_lock(&d->cfg_lock);
	*c = (struct virtio_pci_common_cfg){
		.device_feature_select = p->device_select,
		.device_feature = feature_word(d->features, p->device_select),
		.guest_feature_select = p->driver_select,
		.guest_feature = feature_word(d->driver_features, p->driver_select),
		.msix_config = vector_get(p, &p->config_vector),
		.num_queues = (uint16_t)d->n_queues,
		.device_status = virtio_status_read(d),
		.config_generation = atomic_load(&d->config_generation),
		.queue_select = p->queue_select,
	};
	common_load_queue(p, c);
	pthread_mutex_unlock(&d->cfg_lock);
}

/* Select registers, and vectors, which a driver may change at any time. */
static void set_select(struct virtio_pci *p, const struct virtio_pci_common_cfg *c, unsigned reg)
{
	switch (reg) {
	case VIRTIO_PCI_COMMON_DFSELECT:
		p->device_select = c->device_feature_select;
		break;
	case VIRTIO_PCI_COMMON_GFSELECT:
		p->driver_select = c->guest_feature_select;
		break;
	case VIRTIO_PCI_COMMON_Q_SELECT:
		p->queue_select = c->queue_select;
		break;
	case VIRTIO_PCI_COMMON_MSIX:
		vector_set(p, &p->config_vector, c->msix_config);
		break;
	case VIRTIO_PCI_COMMON_Q_MSIX:
		if (p->queue_select < p->dev->n_queues)
			vector_set(p, &p->wire[p->queue_select].vector, c->queue_msix_vector);
		break;
	}
}

static void set_low(uint64_t *gpa, uint32_t v)
{
	*gpa = (*gpa & ~(uint64_t)UINT32_MAX) | v;
}

static void set_high(uint64_t *gpa, uint32_t v)
{
	*gpa = (*gpa & UINT32_MAX) | (uint64_t)v << 32;
}

/* Registers of the selected queue, frozen once it is enabled. */
static void set_queue(struct virtio_pci *p, const struct virtio_pci_common_cfg *c, unsigned reg)
{
	struct virtio_queue *q = virtio_queue_settable(p->dev, p->queue_select);
	uint16_t size = c->queue_size;

	if (!q)
		return;
	switch (reg) {
	case VIRTIO_PCI_COMMON_Q_SIZE:
		if (size > 0 && size <= q->size_max && (size & (size - 1)) == 0)
			q->size = size;
		break;
	case VIRTIO_PCI_COMMON_Q_ENABLE:
		q->enabled = c->queue_enable == 1;
		break;
	case VIRTIO_PCI_COMMON_Q_DESCLO:
		set_low(&q->desc_gpa, c->queue_desc_lo);
		break;
	case VIRTIO_PCI_COMMON_Q_DESCHI:
		set_high(&q->desc_gpa, c->queue_desc_hi);
		break;
	case VIRTIO_PCI_COMMON_Q_AVAILLO:
		set_low(&q->avail_gpa, c->queue_avail_lo);
		break;
	case VIRTIO_PCI_COMMON_Q_AVAILHI:
		set_high(&q->avail_gpa, c->queue_avail_hi);
		break;
	case VIRTIO_PCI_COMMON_Q_USEDLO:
		set_low(&q->used_gpa, c->queue_used_lo);
		break;
	case VIRTIO_PCI_COMMON_Q_USEDHI:
		set_high(&q->used_gpa, c->queue_used_hi);
		break;
	}
}

static void wires_reset(struct virtio_pci *p)
{
	pthread_mutex_lock(&p->wires_lock);
	p->config_vector = VIRTIO_MSI_NO_VECTOR;
	for (unsigned i = 0; i < p->dev->n_queues; i++)
		p->wire[i].vector = VIRTIO_MSI_NO_VECTOR;
	wires_update(p);
	pthread_mutex_unlock(&p->wires_lock);
}

void vpci_reset(struct virtio_pci *p)
{
	pthread_mutex_lock(&p->dev->cfg_lock);
	p->device_select = p->driver_select = 0;
	p->queue_select = 0;
	pthread_mutex_unlock(&p->dev->cfg_lock);
	wires_reset(p);
}

/* These take cfg_lock themselves. */
static void set_device(struct virtio_pci *p, const struct virtio_pci_common_cfg *c, unsigned reg)
{
	if (reg == VIRTIO_PCI_COMMON_GF) {
		virtio_driver_features_write(p->dev, p->driver_select, c->guest_feature);
		return;
	}
	virtio_status_write(p->dev, c->device_status);
	if (c->device_status == 0)
		vpci_reset(p);
}

struct common_field {
	uint8_t off, len;
	bool locks; /* set takes cfg_lock itself */
	void (*set)(struct virtio_pci *p, const struct virtio_pci_common_cfg *c, unsigned reg);
};

/* Writable registers in ascending order; all others are read-only. */
static const struct common_field common_fields[] = {
	{ VIRTIO_PCI_COMMON_DFSELECT, 4, false, set_select },
	{ VIRTIO_PCI_COMMON_GFSELECT, 4, false, set_select },
	{ VIRTIO_PCI_COMMON_GF, 4, true, set_device },
	{ VIRTIO_PCI_COMMON_MSIX, 2, false, set_select },
	{ VIRTIO_PCI_COMMON_STATUS, 1, true, set_device },
	{ VIRTIO_PCI_COMMON_Q_SELECT, 2, false, set_select },
	{ VIRTIO_PCI_COMMON_Q_SIZE, 2, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_MSIX, 2, false, set_select },
	{ VIRTIO_PCI_COMMON_Q_ENABLE, 2, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_DESCLO, 4, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_DESCHI, 4, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_AVAILLO, 4, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_AVAILHI, 4, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_USEDLO, 4, false, set_queue },
	{ VIRTIO_PCI_COMMON_Q_USEDHI, 4, false, set_queue },
};

void vpci_common_write(struct virtio_pci *p, uint32_t off, const void *from, uint32_t len)
{
	struct virtio_pci_common_cfg c;

	if (off + len > sizeof(c))
		return;
	common_load(p, &c);
	memcpy((uint8_t *)&c + off, from, len);
	for (unsigned i = 0; i < ARRAY_SIZE(common_fields); i++) {
		const struct common_field *f = &common_fields[i];

		if (off >= f->off + (uint32_t)f->len || f->off >= off + len)
			continue;
		if (!f->locks)
			pthread_mutex_lock(&p->dev->cfg_lock);
		f->set(p, &c, f->off);
		if (!f->locks)
			pthread_mutex_unlock(&p->dev->cfg_lock);
	}
}

void vpci_common_read(struct virtio_pci *p, uint32_t off, void *to, uint32_t len)
{
	struct virtio_pci_common_cfg c;

	if (off + len > sizeof(c))
		return;
	common_load(p, &c);
	memcpy(to, (const uint8_t *)&c + off, len);
}
