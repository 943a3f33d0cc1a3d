/*
 * virtio over PCI: see virtio_pci.h and virtio 1.2, "Virtio Over PCI Bus".
 *
 * Who runs here.  Register handlers run on vCPU threads and take the device's cfg_lock, behind
 * which a reset may be waiting for I/O threads.  So nothing that holds the pci lock takes it (but a
 * machine reset, when no vCPU runs).  intx_resampled runs on main.  I/O threads are not here: they
 * see call_fd, an atomic, and write the eventfd it names.
 *
 * Doorbells.  KVM signals a queue's eventfd without leaving the kernel.  notify_write is what is
 * left when it does not (no KVM, the PCI_CFG window, two BARs on one address).
 *
 * Pin.  It is level-triggered, so when the guest has acknowledged it at the interrupt controller
 * and isr was not read empty, main raises it again.
 */
#include <errno.h>
#include <linux/pci_regs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/virtio_pci_internal.h"
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

/* --- the pin ---------------------------------------------------------------------------------- */

static void intx_resampled(struct watch *w, uint32_t events)
{
	struct virtio_pci *p = container_of(w, struct virtio_pci, resample);
	uint64_t count;

	(void)events;
	(void)!read(w->fd, &count, sizeof(count));
	if (atomic_load(&p->dev->isr))
		irq_signal(p->f.intx.trigger_fd);
}

/* --- areas ------------------------------------------------------------------------------------ */

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
		vpci_common_read(p, (uint32_t)off, to, len);
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
		vpci_common_write(p, (uint32_t)off, from, len);
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

/* The access the guest has set up. */
struct window {
	uint32_t off, len;
	uint8_t data[4];
};

static uint8_t *window_data(struct virtio_pci *p)
{
	return p->f.config + p->cfg_cap + sizeof(struct virtio_pci_cap);
}

static bool touches_window(const struct virtio_pci *p, uint32_t off, uint32_t len)
{
	uint32_t data = p->cfg_cap + (uint32_t)sizeof(struct virtio_pci_cap);

	return off < data + 4 && data < off + len;
}

/* A copy, for use without the pci lock: the access may be a reset.  False: out of order. */
static bool window_get(struct virtio_pci *p, struct window *w)
{
	struct virtio_pci_cap cap;

	pthread_mutex_lock(&p->f.host->lock);
	memcpy(&cap, p->f.config + p->cfg_cap, sizeof(cap));
	memcpy(w->data, window_data(p), sizeof(w->data));
	pthread_mutex_unlock(&p->f.host->lock);
	w->off = cap.offset;
	w->len = cap.length;
	return cap.bar == 0 && (w->len == 1 || w->len == 2 || w->len == 4) &&
	       w->off % w->len == 0 && w->off < BAR_LEN;
}

static void window_read(struct pci_function *f, uint32_t off, uint32_t len)
{
	struct virtio_pci *p = vpci(f);
	struct window w;

	if (!touches_window(p, off, len) || !window_get(p, &w))
		return;
	bar_read(f, w.off, w.data, w.len);
	pthread_mutex_lock(&f->host->lock);
	memcpy(window_data(p), w.data, w.len);
	pthread_mutex_unlock(&f->host->lock);
}

static void window_written(struct pci_function *f, uint32_t off, uint32_t len)
{
	struct virtio_pci *p = vpci(f);
	struct window w;

	if (touches_window(p, off, len) && window_get(p, &w))
		bar_write(f, w.off, w.data, w.len);
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
	vpci_reset(p);
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
	f->wires_changed = vpci_wires_changed;
	f->reset = function_reset;
}

/* The pin as it is after attach: MSI-X off, INTx on. */
static int connect_wires(struct virtio_pci *p)
{
	p->intx_on = true;
	p->dev->intx_fd = p->f.intx.trigger_fd;
	for (unsigned i = 0; i < p->dev->n_queues; i++)
		p->wire[i].doorbell_fd = -1;
	vpci_reset(p);
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
	pthread_mutex_init(&p->wires_lock, NULL);
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
	pthread_mutex_destroy(&p->wires_lock);
	free(p);
	return err;
}

void virtio_pci_destroy(struct virtio_pci *p)
{
	if (p->main)
		(void)loop_watch(p->main, &p->resample, 0);
	pci_detach(&p->f);
	pthread_mutex_destroy(&p->wires_lock);
	free(p);
}
