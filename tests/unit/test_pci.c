/* PCI host bridge, config space, BARs, MSI-X (devices/pci.h), without a VM. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/fixture.h"
#include "tests/unit/pci.h"
#include "tests/unit/ring.h"

#define VECTORS 70
#define SLOT    1 /* the first behind the bridge */
#define COMMAND_ON (PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER)

/* A function with two BARs of its own and MSI-X in a third. */
struct card {
	struct pci_function f;
	uint8_t regs[8192];
	uint64_t moved_to;
	unsigned moves, wires, resets, written;
	bool lock_free; /* the pci lock was free while a BAR handler ran */
};

static struct board board;
static struct card card;

static struct card *card_of(struct pci_function *f)
{
	return container_of(f, struct card, f);
}

static void card_read(struct pci_function *f, uint64_t off, void *p, uint32_t len)
{
	memcpy(p, card_of(f)->regs + off, len);
}

static void card_write(struct pci_function *f, uint64_t off, const void *p, uint32_t len)
{
	memcpy(card_of(f)->regs + off, p, len);
	card_of(f)->lock_free = pthread_mutex_trylock(&f->host->lock) == 0;
	if (card_of(f)->lock_free)
		pthread_mutex_unlock(&f->host->lock);
}

static void card_moved(struct pci_function *f, uint64_t addr)
{
	card_of(f)->moved_to = addr;
	card_of(f)->moves++;
}

static void card_wires(struct pci_function *f)
{
	card_of(f)->wires++;
}

static void card_reset(struct pci_function *f)
{
	card_of(f)->resets++;
}

static void card_written(struct pci_function *f, uint32_t off, uint32_t len)
{
	card_of(f)->written = off;
}

static void card_init(struct card *c)
{
	memset(c, 0, sizeof(*c));
	pci_function_init(&c->f, 0x1234, 0x5678, 0x020000, 0xaaaa, 0xbbbb);
	pci_add_bar(&c->f, 0,
		    &(struct pci_bar){ .size = 8192,
				       .read = card_read,
				       .write = card_write,
				       .moved = card_moved });
	pci_add_bar(&c->f, 2,
		    &(struct pci_bar){ .size = 4096, .read = card_read, .write = card_write });
	pci_add_msix(&c->f, 1, VECTORS);
	c->f.wires_changed = card_wires;
	c->f.reset = card_reset;
	c->f.config_written = card_written;
}

static void setup(void)
{
	ck_assert_int_eq(board_create(&board), 0);
	card_init(&card);
	ck_assert_int_eq(pci_attach(&board.pci, &card.f), 0);
}

static void teardown(void)
{
	pci_detach(&card.f);
	board_destroy(&board);
}

static uint32_t bar_addr(unsigned i)
{
	return cfg_read(&board, SLOT, PCI_BASE_ADDRESS_0 + 4 * i, 4) & ~0xfu;
}

static void decode_on(void)
{
	cfg_write(&board, SLOT, PCI_COMMAND, COMMAND_ON, 2);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* --- config space ----------------------------------------------------------------------------- */

START_TEST(bridge_is_in_slot_0)
{
	ck_assert_uint_eq(cfg_read(&board, 0, PCI_VENDOR_ID, 4), 0x00081b36);
	ck_assert_uint_eq(cfg_read(&board, 0, PCI_CLASS_REVISION, 4) >> 8, 0x060000);
	ck_assert_uint_eq(cfg_read(&board, 0, PCI_HEADER_TYPE, 1), 0);
	ck_assert_uint_eq(cfg_read(&board, 0, PCI_INTERRUPT_PIN, 1), 0);
	for (unsigned i = 0; i < PCI_BARS; i++)
		ck_assert_uint_eq(cfg_read(&board, 0, PCI_BASE_ADDRESS_0 + 4 * i, 4), 0);
}
END_TEST

START_TEST(header_shows_ids_class_and_interrupt)
{
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_VENDOR_ID, 2), 0x1234);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_DEVICE_ID, 2), 0x5678);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_CLASS_DEVICE, 2), 0x0200);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_SUBSYSTEM_VENDOR_ID, 4), 0xbbbbaaaa);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_INTERRUPT_PIN, 1), 1);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_INTERRUPT_LINE, 1), 17);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_STATUS, 2), PCI_STATUS_CAP_LIST);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_COMMAND, 2), 0);
}
END_TEST

START_TEST(what_does_not_exist_reads_as_ones_and_ignores_writes)
{
	ck_assert_uint_eq(cfg_read(&board, 2, PCI_VENDOR_ID, 4), 0xffffffff);
	ck_assert_uint_eq(cfg_read(&board, 31, PCI_VENDOR_ID, 2), 0xffff);
	/* Functions 1 to 7, and the extended space of a conventional device. */
	for (unsigned fn = 1; fn < 8; fn++)
		ck_assert_uint_eq(cfg_read(&board, SLOT, fn << 12, 4), 0xffffffff);
	ck_assert_uint_eq(cfg_read(&board, SLOT, 0x100, 4), 0xffffffff);
	ck_assert_uint_eq(cfg_read(&board, SLOT, 0xffc, 4), 0xffffffff);
	ck_assert_uint_eq(cfg_read(&board, SLOT, 0xfd, 4), 0xffffffff);
	cfg_write(&board, 2, PCI_COMMAND, 0xffff, 2);
	cfg_write(&board, SLOT, 0x100, 0, 4);
	cfg_write(&board, SLOT, 0xfd, 0, 4);
}
END_TEST

START_TEST(config_answers_every_width_and_alignment)
{
	for (unsigned off = 0; off < 64; off++) {
		for (uint32_t len = 1; len <= 8; len *= 2) {
			uint64_t v = mmio_read(&board, ecam_addr(SLOT, off), len);

			must(memcmp(&v, card.f.config + off, len) == 0);
		}
	}
}
END_TEST

START_TEST(read_only_registers_stay)
{
	uint8_t before[PCI_CONFIG_SIZE];

	memcpy(before, card.f.config, sizeof(before));
	for (unsigned off = 0; off < PCI_CONFIG_SIZE; off++)
		cfg_write(&board, SLOT, off, ~before[off], 1);
	for (unsigned off = 0; off < PCI_CONFIG_SIZE; off++)
		must((uint8_t)((card.f.config[off] ^ before[off]) & ~card.f.writable[off]) == 0);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_VENDOR_ID, 4), 0x56781234);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_CAPABILITY_LIST, 1), 0x40);
	ck_assert_uint_eq(card.written, PCI_CONFIG_SIZE - 1);
}
END_TEST

START_TEST(capabilities_form_a_list)
{
	static struct card other;
	unsigned a, b, c;

	card_init(&other);
	a = other.f.msix.cap;
	b = pci_add_capability(&other.f, PCI_CAP_ID_VNDR, 17);
	c = pci_add_capability(&other.f, PCI_CAP_ID_VNDR, 4);
	ck_assert_int_eq(pci_attach(&board.pci, &other.f), 0);
	ck_assert_uint_eq(cfg_find_cap(&board, 2, PCI_CAP_ID_MSIX, 0), a);
	ck_assert_uint_eq(cfg_find_cap(&board, 2, PCI_CAP_ID_VNDR, 0), b);
	ck_assert_uint_eq(cfg_find_cap(&board, 2, PCI_CAP_ID_VNDR, b), c);
	ck_assert_uint_eq(cfg_find_cap(&board, 2, PCI_CAP_ID_VNDR, c), 0);
	ck_assert_uint_eq(b % 4 + c % 4, 0);
	pci_detach(&other.f);
}
END_TEST

/* --- ports ------------------------------------------------------------------------------------ */

static uint32_t port_in(uint64_t port, uint32_t len)
{
	uint32_t v = 0;

	bus_read(&board.ports, port, &v, len);
	return v;
}

static void port_out(uint64_t port, uint32_t v, uint32_t len)
{
	bus_write(&board.ports, port, &v, len);
}

START_TEST(ports_reach_the_same_config)
{
	port_out(0xcf8, 0x80000000 | SLOT << 11 | PCI_VENDOR_ID, 4);
	ck_assert_uint_eq(port_in(0xcfc, 4), 0x56781234);
	ck_assert_uint_eq(port_in(0xcfe, 2), 0x5678);
	ck_assert_uint_eq(port_in(0xcfd, 1), 0x12);
	port_out(0xcf8, 0x80000000 | SLOT << 11 | PCI_COMMAND, 4);
	port_out(0xcfc, COMMAND_ON, 2);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_COMMAND, 2), COMMAND_ON);
}
END_TEST

START_TEST(address_port_answers_to_four_bytes_only)
{
	/* How Linux finds out about mechanism 1: a byte to 0xcfb must not disturb. */
	port_out(0xcf8, 0x80000000, 4);
	port_out(0xcfb, 0x01, 1);
	ck_assert_uint_eq(port_in(0xcf8, 4), 0x80000000);
	ck_assert_uint_eq(port_in(0xcf9, 1), 0xff);
	ck_assert_uint_eq(port_in(0xcfa, 4), 0xffffffff);
}
END_TEST

START_TEST(data_port_needs_enable_and_an_existing_bus)
{
	port_out(0xcf8, SLOT << 11, 4);
	ck_assert_uint_eq(port_in(0xcfc, 4), 0xffffffff);
	port_out(0xcf8, 0x80000000 | 1 << 16 | SLOT << 11, 4);
	ck_assert_uint_eq(port_in(0xcfc, 4), 0xffffffff);
	port_out(0xcf8, 0x80000000 | 5 << 11, 4);
	ck_assert_uint_eq(port_in(0xcfc, 4), 0xffffffff);
	port_out(0xcfc, 0, 4);
}
END_TEST

/* --- BARs ------------------------------------------------------------------------------------- */

START_TEST(bars_show_their_size_and_keep_their_address)
{
	static const uint32_t size[] = { 8192, 4096, 4096, 0, 0, 0 };

	for (unsigned i = 0; i < PCI_BARS; i++) {
		unsigned reg = PCI_BASE_ADDRESS_0 + 4 * i;
		uint32_t old = cfg_read(&board, SLOT, reg, 4);

		cfg_write(&board, SLOT, reg, 0xffffffff, 4);
		ck_assert_uint_eq(cfg_read(&board, SLOT, reg, 4), size[i] ? ~(size[i] - 1) : 0);
		cfg_write(&board, SLOT, reg, old, 4);
		ck_assert_uint_eq(cfg_read(&board, SLOT, reg, 4), old);
	}
	/* No ROM. */
	cfg_write(&board, SLOT, PCI_ROM_ADDRESS, 0xffffffff, 4);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_ROM_ADDRESS, 4), 0);
}
END_TEST

START_TEST(bars_get_addresses_inside_the_window_aligned_and_apart)
{
	for (unsigned i = 0; i < 3; i++) {
		uint32_t size = card.f.bar[i].size;

		ck_assert_uint_ge(bar_addr(i), WINDOW);
		ck_assert_uint_le(bar_addr(i) + size, WINDOW + WINDOW_LEN);
		ck_assert_uint_eq(bar_addr(i) % size, 0);
		for (unsigned k = 0; k < i; k++)
			ck_assert(bar_addr(i) >= bar_addr(k) + card.f.bar[k].size ||
				  bar_addr(k) >= bar_addr(i) + size);
	}
}
END_TEST

START_TEST(bar_answers_only_with_memory_decode_on)
{
	uint32_t addr = bar_addr(0);

	card.regs[4] = 0x77;
	ck_assert_uint_eq(mmio_read(&board, addr + 4, 1), 0xff);
	decode_on();
	ck_assert_uint_eq(mmio_read(&board, addr + 4, 1), 0x77);
	ck_assert_uint_eq(card.moved_to, addr);
	mmio_write(&board, addr + 8191, 0x55, 1);
	ck_assert_uint_eq(card.regs[8191], 0x55);
	cfg_write(&board, SLOT, PCI_COMMAND, PCI_COMMAND_MASTER, 2);
	ck_assert_uint_eq(mmio_read(&board, addr + 4, 1), 0xff);
	ck_assert_uint_eq(card.moved_to, 0);
	ck_assert_uint_eq(card.moves, 2);
}
END_TEST

START_TEST(bar_handlers_run_without_the_pci_lock)
{
	decode_on();
	mmio_write(&board, bar_addr(0), 1, 4);
	ck_assert(card.lock_free);
}
END_TEST

START_TEST(moved_bar_answers_at_its_new_place)
{
	uint32_t old = bar_addr(0), new = WINDOW + 0x80000;

	decode_on();
	card.regs[0] = 0x42;
	cfg_write(&board, SLOT, PCI_BASE_ADDRESS_0, new, 4);
	ck_assert_uint_eq(mmio_read(&board, new, 1), 0x42);
	ck_assert_uint_eq(mmio_read(&board, old, 1), 0xff);
	ck_assert_uint_eq(card.moved_to, new);
}
END_TEST

START_TEST(bar_outside_the_window_answers_nowhere)
{
	static const uint32_t bad[] = { 0,   0x1000, 0xffffe000, WINDOW - 8192, WINDOW + WINDOW_LEN,
					ECAM };

	decode_on();
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		cfg_write(&board, SLOT, PCI_BASE_ADDRESS_0, bad[i], 4);
		ck_assert_uint_eq(card.moved_to, 0);
		ck_assert_uint_eq(card.f.bar[0].addr, 0);
	}
	cfg_write(&board, SLOT, PCI_BASE_ADDRESS_0, WINDOW + WINDOW_LEN - 8192, 4);
	ck_assert_uint_eq(card.moved_to, WINDOW + WINDOW_LEN - 8192);
}
END_TEST

START_TEST(access_across_the_end_of_a_bar_is_nobodys)
{
	decode_on();
	ck_assert_uint_eq(mmio_read(&board, bar_addr(2) + 4094, 4), 0xffffffff);
	mmio_write(&board, bar_addr(2) + 4094, 0, 4);
}
END_TEST

START_TEST(slots_run_out_cleanly)
{
	static struct card many[PCI_SLOTS];
	unsigned n = 0;
	int err;

	do {
		card_init(&many[n]);
		err = pci_attach(&board.pci, &many[n].f);
		n += !err;
	} while (!err && n < PCI_SLOTS);
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_uint_eq(n, PCI_SLOTS - 2);
	while (n-- > 0)
		pci_detach(&many[n].f);
}
END_TEST

START_TEST(window_runs_out_cleanly)
{
	static struct card big;
	uint64_t used = board.pci.window_used;

	memset(&big, 0, sizeof(big));
	pci_function_init(&big.f, 1, 1, 0, 0, 0);
	pci_add_bar(&big.f, 0, &(struct pci_bar){ .size = WINDOW_LEN, .read = card_read,
						  .write = card_write });
	ck_assert_int_eq(pci_attach(&board.pci, &big.f), -ENOSPC);
	ck_assert_uint_eq(board.pci.window_used, used);
	ck_assert_ptr_null(board.pci.slot[2]);
}
END_TEST

/* --- MSI-X ------------------------------------------------------------------------------------ */

static unsigned msix_flags(void)
{
	return card.f.msix.cap + PCI_MSIX_FLAGS;
}

static void msix_enable(uint16_t extra)
{
	decode_on();
	cfg_write(&board, SLOT, msix_flags(), PCI_MSIX_FLAGS_ENABLE | extra, 2);
}

static uint64_t entry(unsigned i)
{
	return bar_addr(1) + i * PCI_MSIX_ENTRY_SIZE;
}

static void program(unsigned i, uint32_t control)
{
	mmio_write(&board, entry(i), 0xfee01000, 4);
	mmio_write(&board, entry(i) + 4, 0, 4);
	mmio_write(&board, entry(i) + 8, 0x4000 + i, 4);
	mmio_write(&board, entry(i) + 12, control, 4);
}

static bool pending(unsigned i)
{
	uint32_t pba = cfg_read(&board, SLOT, card.f.msix.cap + PCI_MSIX_PBA, 4);

	return mmio_read(&board, bar_addr(pba & 7) + (pba & ~7u) + i / 8, 1) >> (i % 8) & 1;
}

START_TEST(msix_capability_says_where_and_how_many)
{
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);
	uint32_t table = cfg_read(&board, SLOT, cap + PCI_MSIX_TABLE, 4);
	uint32_t pba = cfg_read(&board, SLOT, cap + PCI_MSIX_PBA, 4);

	ck_assert_uint_eq(cap, card.f.msix.cap);
	ck_assert_uint_eq((cfg_read(&board, SLOT, cap + PCI_MSIX_FLAGS, 2) & PCI_MSIX_FLAGS_QSIZE) +
				  1,
			  VECTORS);
	ck_assert_uint_eq(table, 1);
	ck_assert_uint_eq(pba & 7, 1);
	ck_assert_uint_ge(pba & ~7u, VECTORS * 16);
}
END_TEST

START_TEST(vectors_are_masked_after_power_on)
{
	msix_enable(0);
	for (unsigned i = 0; i < VECTORS; i++)
		ck_assert_uint_eq(mmio_read(&board, entry(i) + 12, 4), PCI_MSIX_ENTRY_CTRL_MASKBIT);
	ck_assert(!card.f.msix.line[0].attached);
}
END_TEST

START_TEST(vector_is_attached_only_when_nothing_masks_it)
{
	struct msi_line *l = &card.f.msix.line[3];

	decode_on();
	program(3, 0);
	ck_assert(!l->attached);
	msix_enable(0);
	ck_assert(l->attached);
	ck_assert_uint_eq(l->addr, 0xfee01000);
	ck_assert_uint_eq(l->data, 0x4003);
	msix_enable(PCI_MSIX_FLAGS_MASKALL);
	ck_assert(!l->attached);
	msix_enable(0);
	ck_assert(l->attached);
	mmio_write(&board, entry(3) + 12, 1, 4);
	ck_assert(!l->attached);
	mmio_write(&board, entry(3) + 12, 0, 4);
	ck_assert(l->attached);
	cfg_write(&board, SLOT, msix_flags(), 0, 2);
	ck_assert(!l->attached);
	/* Others never were. */
	ck_assert(!card.f.msix.line[2].attached);
}
END_TEST

START_TEST(masked_vector_keeps_its_pending_bit)
{
	struct msi_line *l = &card.f.msix.line[11];

	msix_enable(0);
	program(11, 1);
	ck_assert(!pending(11));
	irq_signal(l->fd);
	irq_signal(l->fd);
	ck_assert(pending(11));
	ck_assert(!pending(10) && !pending(12));
	/* Looking does not take it away. */
	ck_assert(pending(11));
	/* Unmasked, it is delivered: the line is attached with the signal still in it. */
	mmio_write(&board, entry(11) + 12, 0, 4);
	ck_assert(!pending(11));
	ck_assert(l->attached);
	ck_assert(readable(l->fd));
}
END_TEST

START_TEST(function_mask_keeps_pending_bits_too)
{
	msix_enable(PCI_MSIX_FLAGS_MASKALL);
	program(64, 0);
	irq_signal(card.f.msix.line[64].fd);
	ck_assert(pending(64));
	msix_enable(0);
	ck_assert(!pending(64));
	ck_assert(readable(card.f.msix.line[64].fd));
}
END_TEST

START_TEST(table_takes_wide_and_narrow_accesses)
{
	msix_enable(0);
	mmio_write(&board, entry(5), 0x00000001fee02000, 8);
	mmio_write(&board, entry(5) + 8, 0x1234, 8);
	ck_assert(card.f.msix.line[5].attached);
	ck_assert_uint_eq(card.f.msix.line[5].addr, 0x1fee02000);
	ck_assert_uint_eq(card.f.msix.line[5].data, 0x1234);
	ck_assert_uint_eq(mmio_read(&board, entry(5), 8), 0x00000001fee02000);
	mmio_write(&board, entry(5) + 12, 1, 1);
	ck_assert(!card.f.msix.line[5].attached);
	/* Control of one entry and address of the next. */
	mmio_write(&board, entry(5) + 12, 0xfee0300000000000, 8);
	ck_assert(card.f.msix.line[5].attached);
	ck_assert_uint_eq(mmio_read(&board, entry(6), 4), 0xfee03000);
	/* Reserved control bits are not kept. */
	mmio_write(&board, entry(5) + 12, 0xfffffffe, 4);
	ck_assert_uint_eq(mmio_read(&board, entry(5) + 12, 4), 0);
}
END_TEST

START_TEST(every_access_to_the_msix_bar_is_safe)
{
	msix_enable(0);
	for (uint32_t len = 1; len <= 8; len *= 2) {
		for (uint32_t off = 0; off + len <= card.f.bar[1].size; off++) {
			(void)mmio_read(&board, bar_addr(1) + off, len);
			mmio_write(&board, bar_addr(1) + off, 0x0101010101010101, len);
		}
	}
	/* Between table and PBA, and the PBA itself, nothing is stored. */
	ck_assert_uint_eq(mmio_read(&board, bar_addr(1) + VECTORS * 16, 8), 0);
	ck_assert_uint_eq(mmio_read(&board, bar_addr(1) + 4088, 8), 0);
}
END_TEST

START_TEST(largest_table_and_its_pending_bits_have_room)
{
	static struct card other;
	uint32_t pba;

	memset(&other, 0, sizeof(other));
	pci_function_init(&other.f, 1, 1, 0, 0, 0);
	pci_add_msix(&other.f, 0, PCI_MSIX_MAX);
	ck_assert_int_eq(pci_attach(&board.pci, &other.f), 0);
	cfg_write(&board, 2, PCI_COMMAND, COMMAND_ON, 2);
	pba = cfg_read(&board, 2, other.f.msix.cap + PCI_MSIX_PBA, 4);
	ck_assert_uint_eq(pba, PCI_MSIX_MAX * PCI_MSIX_ENTRY_SIZE);
	ck_assert_uint_ge(other.f.bar[0].size, pba + PCI_MSIX_MAX / 8);
	irq_signal(other.f.msix.line[255].fd);
	ck_assert_uint_eq(mmio_read(&board, other.f.bar[0].addr + pba + 24, 8), 1ull << 63);
	ck_assert_uint_eq(mmio_read(&board, other.f.bar[0].addr + pba + 31, 1), 0x80);
	pci_detach(&other.f);
}
END_TEST

START_TEST(wires_are_told_about_msix_and_the_pin)
{
	ck_assert(pci_intx_enabled(&card.f));
	msix_enable(0);
	ck_assert(!pci_intx_enabled(&card.f));
	cfg_write(&board, SLOT, msix_flags(), 0, 2);
	ck_assert(pci_intx_enabled(&card.f));
	card.wires = 0;
	cfg_write(&board, SLOT, PCI_COMMAND, COMMAND_ON | PCI_COMMAND_INTX_DISABLE, 2);
	ck_assert(!pci_intx_enabled(&card.f));
	ck_assert_uint_eq(card.wires, 1);
}
END_TEST

START_TEST(reset_restores_config_and_msix)
{
	uint32_t addr = bar_addr(0);

	msix_enable(0);
	program(4, 0);
	irq_signal(card.f.msix.line[7].fd);
	cfg_write(&board, SLOT, PCI_BASE_ADDRESS_0, WINDOW + 0x40000, 4);
	pci_host_reset(&board.pci);
	ck_assert_uint_eq(card.resets, 1);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_COMMAND, 2), 0);
	ck_assert_uint_eq(bar_addr(0), addr);
	ck_assert_uint_eq(card.moved_to, 0);
	ck_assert(!card.f.msix.enabled && !card.f.msix.line[4].attached);
	decode_on();
	ck_assert(!pending(7));
	ck_assert_uint_eq(mmio_read(&board, entry(4) + 12, 4), 1);
	ck_assert_uint_eq(mmio_read(&board, entry(4), 8), 0);
}
END_TEST

START_TEST(detached_function_is_gone)
{
	static struct card other;

	card_init(&other);
	ck_assert_int_eq(pci_attach(&board.pci, &other.f), 0);
	cfg_write(&board, 2, PCI_COMMAND, COMMAND_ON, 2);
	ck_assert_uint_ne(other.moved_to, 0);
	pci_detach(&other.f);
	ck_assert_uint_eq(other.moved_to, 0);
	ck_assert_int_eq(other.f.msix.line[0].fd, -1);
	ck_assert_uint_eq(cfg_read(&board, 2, 0, 4), 0xffffffff);
	pci_detach(&other.f);
}
END_TEST

SUITE_MAIN_FIXTURE("pci", 30, setup, teardown, bridge_is_in_slot_0,
		   header_shows_ids_class_and_interrupt,
		   what_does_not_exist_reads_as_ones_and_ignores_writes,
		   config_answers_every_width_and_alignment, read_only_registers_stay,
		   capabilities_form_a_list, ports_reach_the_same_config,
		   address_port_answers_to_four_bytes_only,
		   data_port_needs_enable_and_an_existing_bus,
		   bars_show_their_size_and_keep_their_address,
		   bars_get_addresses_inside_the_window_aligned_and_apart,
		   bar_answers_only_with_memory_decode_on, bar_handlers_run_without_the_pci_lock,
		   moved_bar_answers_at_its_new_place, bar_outside_the_window_answers_nowhere,
		   access_across_the_end_of_a_bar_is_nobodys, slots_run_out_cleanly,
		   window_runs_out_cleanly, msix_capability_says_where_and_how_many,
		   vectors_are_masked_after_power_on,
		   vector_is_attached_only_when_nothing_masks_it,
		   masked_vector_keeps_its_pending_bit, function_mask_keeps_pending_bits_too,
		   table_takes_wide_and_narrow_accesses, every_access_to_the_msix_bar_is_safe,
		   largest_table_and_its_pending_bits_have_room,
		   wires_are_told_about_msix_and_the_pin, reset_restores_config_and_msix,
		   detached_function_is_gone)
