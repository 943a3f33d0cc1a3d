/*
 * virtio over PCI: see virtio_pci.h and virtio 1.2, "Virtio Over PCI Bus".
 *
 * Who runs here.  Register handlers run on vCPU threads and take the device's cfg_lock; config
 * space callbacks run there too, with the pci lock held (order: pci lock, cfg_lock).
 * intx_resampled runs on main.  I/O threads are not here: they see call_fd, an atomic, and write
 * the eventfd it names.
 *
 * Registers.  Common config is read as a whole: common_load fills the spec's struct and the wanted
 * bytes are copied from it, so every width and alignment is served.  A write puts its bytes into
 * such a struct, then each writable field it touched is set, in register order.
 *
 * Doorbells.  KVM signals a queue's eventfd without leaving the kernel.  notify_write is what is
 * left when it does not (no KVM, the PCI_CFG window, two BARs on one address).
 *
 * Wires.  MSI-X on: call_fd is the eventfd of the vector the guest chose, or none.  Off: the pin,
 * with the cause in isr; the pin is level-triggered, so when the guest has acknowledged it at the
 * interrupt controller and isr was not read empty, main raises it again.
 */
#include "devices/virtio_pci.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/irq.h"
#include "vmm/log.h"

#define VENDOR          0x1af4
#define DEVICE_BASE     0x1040 /* plus the virtio device id */
#define SUBSYSTEM       0x1100 /* above 0x40: not a transitional device */
#define REVISION        1

/* BAR 0: a page for each area. */
#define BAR_LEN         0x4000
#define AREA_LEN        0x1000
#define COMMON_OFF      0x0000
#define ISR_OFF         0x1000
#define DEVICE_OFF      0x2000
#define NOTIFY_OFF      0x3000
#define NOTIFY_STEP     4 /* notify_off_multiplier */

_Static_assert(VIRTIO_PCI_QUEUES_MAX * NOTIFY_STEP <= AREA_LEN, "doorbells fill the notify area");

struct wire {
	uint16_t vector; /* as the guest wrote it: VIRTIO_MSI_NO_VECTOR = none */
	int doorbell_fd; /* eventfd at doorbell_gpa, -1 = none */
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
	bool msix_on, intx_on;
	uint32_t device_select, driver_select; /* feature words */
	uint16_t queue_select;
	uint16_t config_vector;
	struct wire wire[]; /* one per queue */
};

static struct virtio_pci *vpci(struct pci_function *f)
{
	return container_of(f, struct virtio_pci, f);
}

/* --- wires ------------------------------------------------------------------------------------ */

static int wire_fd(const struct virtio_pci *p, uint16_t vector)
{
	if (!p->msix_on)
		return p->intx_on ? p->f.intx.trigger_fd : -1;
	return vector == VIRTIO_MSI_NO_VECTOR ? -1 : p->f.msix.line[vector].fd;
}

/* cfg_lock held. */
static void wires_update(struct virtio_pci *p)
{
	struct virtio_dev *d = p->dev;

	atomic_store(&d->config_call_fd, wire_fd(p, p->config_vector));
	for (unsigned i = 0; i < d->n_queues; i++)
		atomic_store(&d->queue[i].call_fd, wire_fd(p, p->wire[i].vector));
}

/* MSI-X or the pin went on or off; pci lock held. */
static void wires_changed(struct pci_function *f)
{
	struct virtio_pci *p = vpci(f);
	struct virtio_dev *d = p->dev;
	bool intx_was_on;

	pthread_mutex_lock(&d->cfg_lock);
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
	pthread_mutex_unlock(&d->cfg_lock);
}

static void intx_resampled(struct watch *w, uint32_t events)
{
	struct virtio_pci *p = container_of(w, struct virtio_pci, resample);
	uint64_t count;

	(void)events;
	(void)!read(w->fd, &count, sizeof(count));
	if (atomic_load(&p->dev->isr))
		irq_signal(p->f.intx.trigger_fd);
}

/* --- common config ---------------------------------------------------------------------------- */

static uint32_t feature_word(uint64_t features, uint32_t select)
{
	return select > 1 ? 0 : (uint32_t)(features >> (32 * select));
}

static void common_load_queue(const struct virtio_pci *p, struct virtio_pci_common_cfg *c)
{
	const struct virtio_queue *q;

	if (p->queue_select >= p->dev->n_queues) {
		c->queue_msix_vector = VIRTIO_MSI_NO_VECTOR;
		return;
	}
	q = &p->dev->queue[p->queue_select];
	c->queue_size = q->size;
	c->queue_msix_vector = p->wire[p->queue_select].vector;
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
		.msix_config = p->config_vector,
		.num_queues = (uint16_t)d->n_queues,
		.device_status = virtio_status_read(d),
		.config_generation = atomic_load(&d->config_generation),
		.queue_select = p->queue_select,
	};
	common_load_queue(p, c);
	pthread_mutex_unlock(&d->cfg_lock);
}

static uint16_t vector_checked(const struct virtio_pci *p, uint16_t vector)
{
	return vector < p->f.msix.n ? vector : VIRTIO_MSI_NO_VECTOR;
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
		p->config_vector = vector_checked(p, c->msix_config);
		wires_update(p);
		break;
	case VIRTIO_PCI_COMMON_Q_MSIX:
		if (p->queue_select < p->dev->n_queues)
			p->wire[p->queue_select].vector = vector_checked(p, c->queue_msix_vector);
		wires_update(p);
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

/* The transport's own part of a device reset.  cfg_lock held. */
static void wires_reset(struct virtio_pci *p)
{
	p->device_select = p->driver_select = 0;
	p->queue_select = 0;
	p->config_vector = VIRTIO_MSI_NO_VECTOR;
	for (unsigned i = 0; i < p->dev->n_queues; i++)
		p->wire[i].vector = VIRTIO_MSI_NO_VECTOR;
	wires_update(p);
}

/* These take cfg_lock themselves. */
static void set_device(struct virtio_pci *p, const struct virtio_pci_common_cfg *c, unsigned reg)
{
	if (reg == VIRTIO_PCI_COMMON_GF) {
		virtio_driver_features_write(p->dev, p->driver_select, c->guest_feature);
		return;
	}
	virtio_status_write(p->dev, c->device_status);
	if (c->device_status == 0) {
		pthread_mutex_lock(&p->dev->cfg_lock);
		wires_reset(p);
		pthread_mutex_unlock(&p->dev->cfg_lock);
	}
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

static void common_write(struct virtio_pci *p, uint32_t off, const void *from, uint32_t len)
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

static void common_read(struct virtio_pci *p, uint32_t off, void *to, uint32_t len)
{
	struct virtio_pci_common_cfg c;

	if (off + len > sizeof(c))
		return;
	common_load(p, &c);
	memcpy(to, (const uint8_t *)&c + off, len);
}

/* --- the other areas -------------------------------------------------------------------------- */

/* Reading takes the causes away: what is set after this raises the pin anew. */
static void isr_read(struct virtio_pci *p, uint32_t off, void *to)
{
	if (off == 0)
		*(uint8_t *)to = (uint8_t)atomic_exchange(&p->dev->isr, 0);
}

static void notify_write(struct virtio_pci *p, uint32_t off)
{
	if (off % NOTIFY_STEP == 0 && off / NOTIFY_STEP < p->dev->n_queues)
		irq_signal(p->dev->queue[off / NOTIFY_STEP].kick_fd);
}

/* An access that runs from one area into the next belongs to neither. */
static bool area_holds(uint64_t off, uint32_t len)
{
	return off % AREA_LEN + len <= AREA_LEN;
}

static void bar_read(struct pci_function *f, uint64_t off, void *to, uint32_t len)
{
	struct virtio_pci *p = vpci(f);

	memset(to, 0, len);
	if (!area_holds(off, len))
		return;
	switch (ALIGN_DOWN(off, AREA_LEN)) {
	case COMMON_OFF:
		common_read(p, (uint32_t)off, to, len);
		break;
	case ISR_OFF:
		isr_read(p, (uint32_t)off - ISR_OFF, to);
		break;
	case DEVICE_OFF:
		virtio_config_read(p->dev, (uint32_t)off - DEVICE_OFF, to, len);
		break;
	}
}

static void bar_write(struct pci_function *f, uint64_t off, const void *from, uint32_t len)
{
	struct virtio_pci *p = vpci(f);

	if (!area_holds(off, len))
		return;
	switch (ALIGN_DOWN(off, AREA_LEN)) {
	case COMMON_OFF:
		common_write(p, (uint32_t)off, from, len);
		break;
	case DEVICE_OFF:
		virtio_config_write(p->dev, (uint32_t)off - DEVICE_OFF, from, len);
		break;
	case NOTIFY_OFF:
		notify_write(p, (uint32_t)off - NOTIFY_OFF);
		break;
	}
}

/* --- doorbells -------------------------------------------------------------------------------- */

static uint64_t doorbell_addr(const struct virtio_pci *p, unsigned i)
{
	return p->doorbell_gpa + (uint64_t)i * NOTIFY_STEP;
}

static void doorbells_remove(struct virtio_pci *p)
{
	for (unsigned i = 0; i < p->dev->n_queues; i++) {
		struct wire *w = &p->wire[i];

		if (w->doorbell_fd >= 0)
			(void)bus_doorbell_del(p->mmio, doorbell_addr(p, i), w->doorbell_fd);
		w->doorbell_fd = -1;
	}
}

static void bar_moved(struct pci_function *f, uint64_t addr)
{
	struct virtio_pci *p = vpci(f);

	doorbells_remove(p);
	if (!addr)
		return;
	p->doorbell_gpa = addr + NOTIFY_OFF;
	for (unsigned i = 0; i < p->dev->n_queues; i++) {
		int fd = p->dev->queue[i].kick_fd;
		int err = bus_doorbell_add(p->mmio, doorbell_addr(p, i), fd);

		if (!err)
			p->wire[i].doorbell_fd = fd;
		else
			log_limited(LOG_LEVEL_WARN, "%s: no doorbell, kicks will be slow: %s",
				    p->dev->queue[i].name, strerror(-err));
	}
}

/* --- the PCI_CFG window: BAR 0 through config space ------------------------------------------- */

static uint8_t *window_data(struct virtio_pci *p)
{
	return p->f.config + p->cfg_cap + sizeof(struct virtio_pci_cap);
}

/* The access the guest has set up, or false. */
static bool window_access(const struct virtio_pci *p, uint32_t *off, uint32_t *len)
{
	struct virtio_pci_cap cap;

	memcpy(&cap, p->f.config + p->cfg_cap, sizeof(cap));
	*off = cap.offset;
	*len = cap.length;
	return cap.bar == 0 && (*len == 1 || *len == 2 || *len == 4) && *off % *len == 0 &&
	       *off < BAR_LEN;
}

static bool touches_window(const struct virtio_pci *p, uint32_t off, uint32_t len)
{
	uint32_t data = p->cfg_cap + (uint32_t)sizeof(struct virtio_pci_cap);

	return off < data + 4 && data < off + len;
}

static void window_read(struct pci_function *f, uint32_t off, uint32_t len)
{
	struct virtio_pci *p = vpci(f);
	uint32_t bar_off, bar_len;

	if (touches_window(p, off, len) && window_access(p, &bar_off, &bar_len))
		bar_read(f, bar_off, window_data(p), bar_len);
}

static void window_written(struct pci_function *f, uint32_t off, uint32_t len)
{
	struct virtio_pci *p = vpci(f);
	uint32_t bar_off, bar_len;

	/* len: not when all of config is restored by a reset. */
	if (len <= 8 && touches_window(p, off, len) && window_access(p, &bar_off, &bar_len))
		bar_write(f, bar_off, window_data(p), bar_len);
}

/* --- capabilities, life ----------------------------------------------------------------------- */

static unsigned add_cap(struct pci_function *f, uint8_t type, uint32_t off, uint32_t len,
			uint32_t extra)
{
	struct virtio_pci_notify_cap cap = {
		.cap.cfg_type = type,
		.cap.offset = off,
		.cap.length = len,
		.notify_off_multiplier = extra,
	};
	bool is_long = type == VIRTIO_PCI_CAP_NOTIFY_CFG || type == VIRTIO_PCI_CAP_PCI_CFG;
	unsigned size = is_long ? sizeof(cap) : sizeof(cap.cap);
	unsigned at = pci_add_capability(f, PCI_CAP_ID_VNDR, size);

	cap.cap.cap_len = (uint8_t)size;
	/* Id and link are there already. */
	memcpy(f->config + at + 2, (const uint8_t *)&cap + 2, size - 2);
	return at;
}

static void add_caps(struct virtio_pci *p)
{
	struct pci_function *f = &p->f;
	unsigned at;

	pci_add_msix(f, 1, p->dev->n_queues + 1);
	add_cap(f, VIRTIO_PCI_CAP_COMMON_CFG, COMMON_OFF, sizeof(struct virtio_pci_common_cfg), 0);
	add_cap(f, VIRTIO_PCI_CAP_ISR_CFG, ISR_OFF, 1, 0);
	if (p->dev->config_len)
		add_cap(f, VIRTIO_PCI_CAP_DEVICE_CFG, DEVICE_OFF, p->dev->config_len, 0);
	add_cap(f, VIRTIO_PCI_CAP_NOTIFY_CFG, NOTIFY_OFF, p->dev->n_queues * NOTIFY_STEP,
		NOTIFY_STEP);
	at = add_cap(f, VIRTIO_PCI_CAP_PCI_CFG, 0, 0, 0);
	p->cfg_cap = (uint8_t)at;
	f->writable[at + offsetof(struct virtio_pci_cap, bar)] = 0xff;
	memset(f->writable + at + offsetof(struct virtio_pci_cap, offset), 0xff, 4 + 4 + 4);
}

static void function_reset(struct pci_function *f)
{
	struct virtio_pci *p = vpci(f);

	virtio_status_write(p->dev, 0);
	pthread_mutex_lock(&p->dev->cfg_lock);
	wires_reset(p);
	pthread_mutex_unlock(&p->dev->cfg_lock);
}

static void function_init(struct virtio_pci *p)
{
	const struct virtio_class *class = p->dev->class;
	struct pci_function *f = &p->f;

	pci_function_init(f, VENDOR, (uint16_t)(DEVICE_BASE + class->id), class->pci_class, VENDOR,
			  SUBSYSTEM);
	f->config[PCI_REVISION_ID] = REVISION;
	pci_add_bar(f, 0, &(struct pci_bar){ .size = BAR_LEN, .read = bar_read, .write = bar_write,
					     .moved = bar_moved });
	add_caps(p);
	f->config_reading = window_read;
	f->config_written = window_written;
	f->wires_changed = wires_changed;
	f->reset = function_reset;
}

/* The pin as it is after attach: MSI-X off, INTx on. */
static int connect_wires(struct virtio_pci *p)
{
	p->intx_on = true;
	p->dev->intx_fd = p->f.intx.trigger_fd;
	for (unsigned i = 0; i < p->dev->n_queues; i++)
		p->wire[i].doorbell_fd = -1;
	wires_reset(p);
	p->resample = (struct watch){ .fd = p->f.intx.resample_fd, .ready = intx_resampled };
	return p->main ? loop_watch(p->main, &p->resample, EPOLLIN) : 0;
}

int virtio_pci_create(struct pci_host *h, struct virtio_dev *d, struct bus *mmio, struct loop *main,
		      struct virtio_pci **out)
{
	struct virtio_pci *p;
	int err;

	if (d->n_queues > VIRTIO_PCI_QUEUES_MAX)
		return -E2BIG;
	p = calloc(1, sizeof(*p) + d->n_queues * sizeof(p->wire[0]));
	if (!p)
		return -ENOMEM;
	p->dev = d;
	p->mmio = mmio;
	p->main = main;
	function_init(p);
	err = pci_attach(h, &p->f);
	if (err)
		goto free_it;
	err = connect_wires(p);
	if (err)
		goto detach;
	*out = p;
	return 0;
detach:
	pci_detach(&p->f);
free_it:
	free(p);
	return err;
}

void virtio_pci_destroy(struct virtio_pci *p)
{
	if (p->main)
		(void)loop_watch(p->main, &p->resample, 0);
	pci_detach(&p->f);
	free(p);
}
