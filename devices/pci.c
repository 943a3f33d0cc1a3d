/*
 * PCI host bridge and config space: see pci.h.
 *
 * Theory of operation.
 *   1. A guest reaches config space by ECAM (one 4 KiB page per function, of which the first 256
 *      bytes exist) or by address and data port.  Both end in config_read/config_write.
 *   2. Config space is a byte array with a mask of writable bits beside it.  That alone gives the
 *      BAR sizing protocol: the size bits of a BAR are not writable, so all ones read back as the
 *      size.
 *   3. After a write, whatever depends on config is worked out again: where BARs answer
 *      (bars_update) and how interrupts travel (msix_config_written).
 *   4. The whole BAR window is one range of the MMIO bus; window_find looks up the BAR under the
 *      lock, and the handler runs without it: a device reset waits for I/O threads, which must not
 *      stop the other vCPUs' config accesses.  config_reading and config_written, by which a BAR
 *      may be reached through config space, run without it for the same reason.  Functions stay
 *      until the vCPUs are gone, so the pointer lasts.
 *
 * A BAR answers only with memory decode on and only inside the window, so that a guest cannot move
 * one (with its doorbells) over RAM or another device.  Two BARs at one address: the lower slot
 * answers. Bus numbers, functions and registers that do not exist read as all ones and ignore
 * writes.
 */
#include "devices/pci.h"

#include <assert.h>
#include <errno.h>
#include <linux/pci_regs.h>
#include <string.h>

#include "devices/pci_msix.h"
#include "vmm/base.h"

#define ECAM_LEN         (1u << 20)
#define PORT_ADDRESS     0xcf8 /* PCI Local Bus 3.0, "Configuration Mechanism" */
#define PORT_ADDRESS_LEN 8     /* address, then data at 0xcfc */
#define ADDRESS_ENABLE   0x80000000u

/* A bridge id Linux and others know for "generic host bridge, nothing to program". */
#define BRIDGE_VENDOR 0x1b36
#define BRIDGE_DEVICE 0x0008
#define BRIDGE_CLASS  0x060000

#define COMMAND_WRITABLE (PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | \
			  PCI_COMMAND_SERR | PCI_COMMAND_INTX_DISABLE)

static void put16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Config offset of BAR i. */
static unsigned bar_reg(unsigned i)
{
	return PCI_BASE_ADDRESS_0 + 4 * i;
}

static bool overlaps(uint32_t off, uint32_t len, uint32_t reg, uint32_t reg_len)
{
	return off < reg + reg_len && reg < off + len;
}

/* --- what depends on config ------------------------------------------------------------------- */

static uint64_t bar_decode(const struct pci_function *f, unsigned i)
{
	const struct pci_host *h = f->host;
	uint64_t addr = get32(f->config + bar_reg(i)) & ~0xfu;

	if (!(get16(f->config + PCI_COMMAND) & PCI_COMMAND_MEMORY) || addr < h->window_gpa ||
	    addr + f->bar[i].size > h->window_gpa + h->window_len)
		return 0;
	return addr;
}

static void bars_update(struct pci_function *f)
{
	for (unsigned i = 0; i < PCI_BARS; i++) {
		struct pci_bar *b = &f->bar[i];
		uint64_t addr = b->size ? bar_decode(f, i) : 0;

		if (addr == b->addr)
			continue;
		b->addr = addr;
		if (b->moved)
			b->moved(f, addr);
	}
}

bool pci_intx_enabled(const struct pci_function *f)
{
	return !f->msix.enabled &&
	       !(get16(f->config + PCI_COMMAND) & PCI_COMMAND_INTX_DISABLE);
}

static void config_changed(struct pci_function *f, uint32_t off, uint32_t len)
{
	const struct pci_msix *m = &f->msix;
	bool command = overlaps(off, len, PCI_COMMAND, 2);
	bool msix = m->n && overlaps(off, len, m->cap + PCI_MSIX_FLAGS, 2);

	if (command || overlaps(off, len, PCI_BASE_ADDRESS_0, 4 * PCI_BARS))
		bars_update(f);
	if (msix)
		msix_config_written(f, get16(f->config + m->cap + PCI_MSIX_FLAGS));
	if ((command || msix) && f->wires_changed)
		f->wires_changed(f);
}

/* --- config accesses -------------------------------------------------------------------------- */

static void config_read(struct pci_host *h, unsigned devfn, uint32_t off, void *p, uint32_t len)
{
	struct pci_function *f = devfn & 7 ? NULL : h->slot[devfn >> 3];

	memset(p, 0xff, len);
	if (!f || off + len > PCI_CONFIG_SIZE)
		return;
	if (f->config_reading)
		f->config_reading(f, off, len);
	pthread_mutex_lock(&h->lock);
	memcpy(p, f->config + off, len);
	pthread_mutex_unlock(&h->lock);
}

static void config_write(struct pci_host *h, unsigned devfn, uint32_t off, const void *p,
			 uint32_t len)
{
	struct pci_function *f = devfn & 7 ? NULL : h->slot[devfn >> 3];
	const uint8_t *from = p;

	if (!f || off + len > PCI_CONFIG_SIZE)
		return;
	pthread_mutex_lock(&h->lock);
	for (uint32_t i = 0; i < len; i++) {
		uint8_t mask = f->writable[off + i];

		f->config[off + i] = (uint8_t)((f->config[off + i] & ~mask) | (from[i] & mask));
	}
	config_changed(f, off, len);
	pthread_mutex_unlock(&h->lock);
	if (f->config_written)
		f->config_written(f, off, len);
}

static void ecam_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	config_read(ctx, (unsigned)(off >> 12), off & 0xfff, p, len);
}

static void ecam_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	config_write(ctx, (unsigned)(off >> 12), off & 0xfff, p, len);
}

/* The selected function and register, or false: disabled, or a bus that does not exist. */
static bool port_target(struct pci_host *h, uint64_t off, uint32_t len, unsigned *devfn,
			uint32_t *reg)
{
	uint32_t a;

	pthread_mutex_lock(&h->lock);
	a = h->port_address;
	pthread_mutex_unlock(&h->lock);
	*devfn = (a >> 8) & 0xff;
	*reg = (a & 0xfc) + (uint32_t)(off - 4);
	return (a & ADDRESS_ENABLE) && ((a >> 16) & 0xff) == 0 && off >= 4 && off + len <= 8;
}

/* The address register answers to 4-byte accesses only: others belong to the ISA world. */
static void port_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	struct pci_host *h = ctx;
	unsigned devfn;
	uint32_t reg;

	memset(p, 0xff, len);
	if (off == 0 && len == 4) {
		pthread_mutex_lock(&h->lock);
		memcpy(p, &h->port_address, 4);
		pthread_mutex_unlock(&h->lock);
	} else if (port_target(h, off, len, &devfn, &reg)) {
		config_read(h, devfn, reg, p, len);
	}
}

static void port_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	struct pci_host *h = ctx;
	unsigned devfn;
	uint32_t reg;

	if (off == 0 && len == 4) {
		pthread_mutex_lock(&h->lock);
		memcpy(&h->port_address, p, 4);
		pthread_mutex_unlock(&h->lock);
	} else if (port_target(h, off, len, &devfn, &reg)) {
		config_write(h, devfn, reg, p, len);
	}
}

/* --- BAR accesses ----------------------------------------------------------------------------- */

/* *off: from the window's start; becomes the offset in the BAR. */
static struct pci_bar *window_find(struct pci_host *h, uint64_t *off, uint32_t len,
				   struct pci_function **f)
{
	uint64_t addr = h->window_gpa + *off;
	struct pci_bar *found = NULL;

	pthread_mutex_lock(&h->lock);
	for (unsigned i = 0; i < PCI_SLOTS * PCI_BARS && !found; i++) {
		struct pci_bar *b;

		*f = h->slot[i / PCI_BARS];
		if (!*f)
			continue;
		b = &(*f)->bar[i % PCI_BARS];
		if (b->addr && addr >= b->addr && addr - b->addr + len <= b->size) {
			*off = addr - b->addr;
			found = b;
		}
	}
	pthread_mutex_unlock(&h->lock);
	return found;
}

static void window_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	struct pci_function *f;
	struct pci_bar *b = window_find(ctx, &off, len, &f);

	memset(p, 0xff, len);
	if (b)
		b->read(f, off, p, len);
}

static void window_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	struct pci_function *f;
	struct pci_bar *b = window_find(ctx, &off, len, &f);

	if (b)
		b->write(f, off, p, len);
}

/* --- building a function ---------------------------------------------------------------------- */

void pci_function_init(struct pci_function *f, uint16_t vendor, uint16_t device,
		       uint32_t class_code, uint16_t sub_vendor, uint16_t sub_device)
{
	memset(f, 0, sizeof(*f));
	f->intx = (struct irq_line){ .trigger_fd = -1, .resample_fd = -1 };
	f->next_cap = PCI_STD_HEADER_SIZEOF;
	put16(f->config + PCI_VENDOR_ID, vendor);
	put16(f->config + PCI_DEVICE_ID, device);
	put32(f->config + PCI_CLASS_REVISION, class_code << 8);
	put16(f->config + PCI_SUBSYSTEM_VENDOR_ID, sub_vendor);
	put16(f->config + PCI_SUBSYSTEM_ID, sub_device);
	put16(f->writable + PCI_COMMAND, COMMAND_WRITABLE);
	f->writable[PCI_CACHE_LINE_SIZE] = 0xff;
	f->writable[PCI_LATENCY_TIMER] = 0xff;
	f->writable[PCI_INTERRUPT_LINE] = 0xff;
}

unsigned pci_add_capability(struct pci_function *f, uint8_t id, unsigned len)
{
	uint8_t at = f->next_cap;

	assert(at + len <= PCI_CONFIG_SIZE && len >= 2);
	f->config[f->last_cap ? f->last_cap + PCI_CAP_LIST_NEXT : PCI_CAPABILITY_LIST] = at;
	f->config[PCI_STATUS] |= PCI_STATUS_CAP_LIST;
	f->config[at] = id;
	f->last_cap = at;
	f->next_cap = (uint8_t)ALIGN_UP(at + len, 4u);
	return at;
}

void pci_add_bar(struct pci_function *f, unsigned i, const struct pci_bar *bar)
{
	assert(i < PCI_BARS && bar->size >= 4096 && !(bar->size & (bar->size - 1)));
	f->bar[i] = *bar;
	f->bar[i].addr = 0;
	put32(f->writable + bar_reg(i), ~(bar->size - 1));
}

/* --- attach, detach, reset -------------------------------------------------------------------- */

static int attach_bars(struct pci_host *h, struct pci_function *f)
{
	uint64_t used = h->window_used;

	for (unsigned i = 0; i < PCI_BARS; i++) {
		uint64_t addr;

		if (!f->bar[i].size)
			continue;
		addr = ALIGN_UP(h->window_gpa + used, (uint64_t)f->bar[i].size);
		used = addr + f->bar[i].size - h->window_gpa;
		if (used > h->window_len)
			return -ENOSPC;
		put32(f->config + bar_reg(i), (uint32_t)addr);
	}
	h->window_used = used;
	return 0;
}

static int attach_intx(struct pci_host *h, struct pci_function *f)
{
	uint32_t gsi = h->intx_gsi[f->slot % 4];

	f->config[PCI_INTERRUPT_PIN] = 1;
	f->config[PCI_INTERRUPT_LINE] = (uint8_t)gsi;
	return irq_line_create(h->irq, &f->intx, gsi, true);
}

int pci_attach(struct pci_host *h, struct pci_function *f)
{
	uint64_t used = h->window_used;
	unsigned slot = 0;
	int err;

	while (slot < PCI_SLOTS && h->slot[slot])
		slot++;
	if (slot == PCI_SLOTS)
		return -ENOSPC;
	f->slot = (uint8_t)slot;
	err = attach_bars(h, f);
	if (!err && f != &h->bridge)
		err = attach_intx(h, f);
	if (err)
		goto give_back;
	err = msix_create_lines(f, h->irq);
	if (err)
		goto destroy_intx;
	memcpy(f->initial, f->config, sizeof(f->initial));
	f->host = h;
	h->slot[slot] = f;
	return 0;
destroy_intx:
	irq_line_destroy(h->irq, &f->intx);
give_back:
	h->window_used = used;
	return err;
}

void pci_detach(struct pci_function *f)
{
	struct pci_host *h = f->host;

	if (!h)
		return;
	memcpy(f->config, f->initial, sizeof(f->config));
	bars_update(f);
	h->slot[f->slot] = NULL;
	msix_destroy_lines(f, h->irq);
	irq_line_destroy(h->irq, &f->intx);
	f->host = NULL;
}

void pci_host_reset(struct pci_host *h)
{
	pthread_mutex_lock(&h->lock);
	h->port_address = 0;
	for (unsigned i = 0; i < PCI_SLOTS; i++) {
		struct pci_function *f = h->slot[i];

		if (!f)
			continue;
		if (f->reset)
			f->reset(f);
		memcpy(f->config, f->initial, sizeof(f->config));
		msix_reset(f);
		config_changed(f, 0, PCI_CONFIG_SIZE);
	}
	pthread_mutex_unlock(&h->lock);
}

static int host_claim(struct pci_host *h, const struct pci_host_opts *o, struct bus *mmio,
		      struct bus *pio)
{
	const struct bus_range ecam = { .base = o->ecam_gpa, .len = ECAM_LEN, .ctx = h,
					.read = ecam_read, .write = ecam_write };
	const struct bus_range window = { .base = o->window_gpa, .len = o->window_len, .ctx = h,
					  .read = window_read, .write = window_write };
	const struct bus_range ports = { .base = PORT_ADDRESS, .len = PORT_ADDRESS_LEN, .ctx = h,
					 .read = port_read, .write = port_write };
	int err = bus_add(mmio, &ecam);

	if (!err)
		err = bus_add(mmio, &window);
	if (!err && o->ports)
		err = bus_add(pio, &ports);
	return err;
}

int pci_host_create(struct pci_host *h, const struct pci_host_opts *o, struct bus *mmio,
		    struct bus *pio, struct irq *irq)
{
	int err;

	memset(h, 0, sizeof(*h));
	if (o->window_len > UINT32_MAX || o->window_gpa > UINT32_MAX - o->window_len)
		return -EINVAL;
	h->irq = irq;
	h->window_gpa = o->window_gpa;
	h->window_len = o->window_len;
	memcpy(h->intx_gsi, o->intx_gsi, sizeof(h->intx_gsi));
	pthread_mutex_init(&h->lock, NULL);
	pci_function_init(&h->bridge, BRIDGE_VENDOR, BRIDGE_DEVICE, BRIDGE_CLASS, 0, 0);
	err = host_claim(h, o, mmio, pio);
	if (!err)
		err = pci_attach(h, &h->bridge);
	if (err)
		pthread_mutex_destroy(&h->lock);
	return err;
}

void pci_host_destroy(struct pci_host *h)
{
	pci_detach(&h->bridge);
	pthread_mutex_destroy(&h->lock);
}
