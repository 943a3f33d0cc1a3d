/*
 * Fuzzer of the virtio-pci transport, with config space, MSI-X and the echo device behind it.  The
 * input is a program for a hostile guest: accesses of any width to every area, helpers that bring
 * the device up so that the deeper states are reached, ring entries, and kicks.
 *
 * No threads: the device is launched with none, so that iothread_call() runs in the caller, and
 * kicks are served from here.  A run is then the same every time.
 */
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <sys/epoll.h>

#include "devices/virtio_pci.h"
#include "tests/fuzz/input.h"
#include "tests/unit/echo.h"
#include "tests/unit/pci.h"
#include "vmm/log.h"

#define QUEUES 3
#define SIZE   16
#define SLOT   1

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct board board;
static struct guest g;
static struct echo *e;
static struct virtio_dev *d;
static struct virtio_pci *vp;
static struct loop main_loop;
static struct ring ring[QUEUES];

static void create(void)
{
	/* What a guest does wrong is logged, and every run does much wrong. */
	log_set_level(LOG_LEVEL_ERROR);
	guest_create_default(&g);
	require(board_create(&board) == 0 && loop_init(&main_loop) == 0);
	e = echo_create(&g.mem, QUEUES, 1, SIZE);
	d = &e->dev;
	d->n_threads = 0;
	require(loop_init(&e->thread[0].loop) == 0);
	require(virtio_dev_launch(d, NULL) == 0);
	require(virtio_pci_create(&board.pci, d, &board.mmio, &main_loop, &vp) == 0);
	for (unsigned i = 0; i < QUEUES; i++)
		ring_init(&ring[i], &g, SIZE, true);
}

static uint64_t bar(unsigned i)
{
	return cfg_read(&board, SLOT, PCI_BASE_ADDRESS_0 + 4 * i, 4) & ~0xfu;
}

static void set(unsigned reg, uint64_t v, uint32_t len)
{
	mmio_write(&board, bar(0) + reg, v, len);
}

/* As an honest driver would, but for the bits of x. */
static void bring_up(uint8_t x)
{
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);

	cfg_write(&board, SLOT, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2);
	cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, x & 1 ? PCI_MSIX_FLAGS_ENABLE : 0, 2);
	set(VIRTIO_PCI_COMMON_STATUS, 0, 1);
	set(VIRTIO_PCI_COMMON_GFSELECT, 0, 4);
	set(VIRTIO_PCI_COMMON_GF, x & 2 ? (uint32_t)d->features : 0, 4);
	set(VIRTIO_PCI_COMMON_GFSELECT, 1, 4);
	set(VIRTIO_PCI_COMMON_GF, 1, 4);
	set(VIRTIO_PCI_COMMON_STATUS, 11, 1);
	for (unsigned i = 0; i < QUEUES; i++) {
		ring_reset(&ring[i]);
		set(VIRTIO_PCI_COMMON_Q_SELECT, i, 2);
		set(VIRTIO_PCI_COMMON_Q_DESCLO, ring[i].desc_gpa, 8);
		set(VIRTIO_PCI_COMMON_Q_AVAILLO, ring[i].avail_gpa, 8);
		set(VIRTIO_PCI_COMMON_Q_USEDLO, ring[i].used_gpa, 8);
		set(VIRTIO_PCI_COMMON_Q_MSIX, i + 1, 2);
		set(VIRTIO_PCI_COMMON_Q_ENABLE, !(x & 4 << i), 2);
	}
	if (x & 128)
		set(VIRTIO_PCI_COMMON_STATUS, 15, 1);
}

static void add_chain(struct input *in)
{
	struct ring *r = &ring[take(in, 1) % QUEUES];
	uint8_t x = (uint8_t)take(in, 1);
	const struct seg s[] = {
		{ 0x200000 + (x & 3), x, false },
		{ x & 4 ? take(in, 8) : 0x201000, (uint32_t)take(in, 2), true },
	};

	ring_add(r, s, 2);
}

/*
 * What the I/O thread would do; a few passes, since a queue that used up its budget kicks itself.
 */
static void serve_loop(const struct loop *l)
{
	struct epoll_event ev[4];

	for (unsigned pass = 0; pass < 4; pass++) {
		int n = epoll_wait(l->epoll_fd, ev, ARRAY_SIZE(ev), 0);

		for (int i = 0; i < n; i++) {
			struct watch *w = ev[i].data.ptr;

			if (w->events)
				w->ready(w, ev[i].events);
		}
	}
}

static void access_mmio(uint64_t addr, struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);
	uint32_t len = 1u << (x & 3);

	if (x & 4)
		(void)mmio_read(&board, addr, len);
	else
		mmio_write(&board, addr, take(in, len), len);
}

static void access_port(struct input *in)
{
	uint8_t x = (uint8_t)take(in, 1);
	uint64_t port = 0xcf8 + (x & 7);
	uint32_t len = 1u << (x >> 3 & 3) % 3;
	uint64_t v = take(in, len);

	/* Mostly our slot, enabled. */
	if (port == 0xcf8 && len == 4 && x & 32)
		v = 0x80000000 | SLOT << 11 | (v & 0xff);
	if (x & 64)
		bus_read(&board.ports, port, &v, len);
	else
		bus_write(&board.ports, port, &v, len);
}

/* BAR 0 through the PCI_CFG capability, which pci_add_capability put last. */
static void access_window(struct input *in)
{
	unsigned cap = board.pci.slot[SLOT]->last_cap;
	uint8_t x = (uint8_t)take(in, 1);
	uint32_t len = x & 8 ? (uint32_t)take(in, 4) : 1u << (x & 3);

	cfg_write(&board, SLOT, cap + offsetof(struct virtio_pci_cap, bar), x >> 4 & x >> 5 & 1, 1);
	cfg_write(&board, SLOT, cap + offsetof(struct virtio_pci_cap, offset),
		  (uint32_t)take(in, 2), 4);
	cfg_write(&board, SLOT, cap + offsetof(struct virtio_pci_cap, length), len, 4);
	access_mmio(ecam_addr(SLOT, cap + sizeof(struct virtio_pci_cap)), in);
}

static void step(struct input *in)
{
	switch (take(in, 1) % 14) {
	case 0:
		bring_up((uint8_t)take(in, 1));
		break;
	case 1:
	case 2:
		access_mmio(bar(0) + take(in, 1) % 64, in);
		break;
	case 3:
		access_mmio(bar(0) + (take(in, 2) & 0x3fff), in);
		break;
	case 4:
		access_mmio(bar(1) + (take(in, 2) & 0xfff), in);
		break;
	case 5:
	case 6:
		access_mmio(ecam_addr(SLOT, (unsigned)take(in, 1)), in);
		break;
	case 7:
		access_mmio(ECAM + (take(in, 3) & 0xfffff), in);
		break;
	case 8:
		access_port(in);
		break;
	case 9:
		add_chain(in);
		break;
	case 10:
		set(0x3000 + (unsigned)take(in, 1) % 16, 0, 2);
		serve_loop(&e->thread[0].loop);
		break;
	case 11:
		access_window(in);
		break;
	case 12:
		/* The guest acknowledged the pin: main's part. */
		irq_signal(board.pci.slot[SLOT]->intx.resample_fd);
		serve_loop(&main_loop);
		break;
	default:
		if (take(in, 1) & 1)
			virtio_config_interrupt(d);
		else
			pci_host_reset(&board.pci);
	}
}

static void check(void)
{
	uint8_t status = virtio_status_read(d);

	require(!(status & VIRTIO_CONFIG_S_DRIVER_OK) || status & VIRTIO_CONFIG_S_FEATURES_OK);
	require(!(status & VIRTIO_CONFIG_S_FEATURES_OK) || !(d->driver_features & ~d->features));
	require(board.mmio.n_soft == 0 || board.mmio.n_soft == QUEUES);
	require(d->isr <= 3);
	for (unsigned i = 0; i < QUEUES; i++) {
		const struct virtio_queue *q = &d->queue[i];

		require(q->size >= 1 && q->size <= SIZE && !(q->size & (q->size - 1)));
		require(!q->running || (q->enabled && status & VIRTIO_CONFIG_S_DRIVER_OK));
		require(!q->running || q->vq.broken || q->vq.size == q->size);
	}
	for (unsigned i = 0; i < 2; i++) {
		uint64_t addr = board.pci.slot[SLOT]->bar[i].addr;

		require(addr == 0 || (addr >= WINDOW && addr + 4096 <= WINDOW + WINDOW_LEN));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!d)
		create();
	pci_host_reset(&board.pci);
	memset(g.ram, 0, 0x10000);
	bring_up((uint8_t)take(&in, 1));
	while (in.left > 0) {
		step(&in);
		check();
	}
	return 0;
}
