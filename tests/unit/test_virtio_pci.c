/* Modern virtio-pci registers (devices/virtio_pci.h), driven as a guest would, without a VM. */
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <poll.h>
#include <sys/resource.h>

#include "devices/virtio_pci.h"
#include "tests/unit/echo.h"
#include "tests/unit/fixture.h"
#include "tests/unit/pci.h"

#define QUEUES 4
#define SIZE   32
#define SLOT   1
#define STATUS_ALL 15 /* ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK */

static struct board board;
static struct guest g;
static struct echo *e;
static struct virtio_dev *d;
static struct virtio_pci *vp;
static struct loop main_loop;
static struct ring ring[QUEUES];
static uint64_t buf;
/* Where the capabilities say the areas are, as addresses. */
static uint64_t common, isr, device, notify;
static uint32_t notify_step;
static unsigned window_cap;

static uint64_t find_area(uint8_t type, unsigned *cap)
{
	unsigned at = 0;

	while ((at = cfg_find_cap(&board, SLOT, PCI_CAP_ID_VNDR, at)) != 0) {
		if (cfg_read(&board, SLOT, at + offsetof(struct virtio_pci_cap, cfg_type), 1) !=
		    type)
			continue;
		*cap = at;
		ck_assert_uint_eq(
			cfg_read(&board, SLOT, at + offsetof(struct virtio_pci_cap, bar), 1), 0);
		return (cfg_read(&board, SLOT, PCI_BASE_ADDRESS_0, 4) & ~0xfu) +
		       cfg_read(&board, SLOT, at + offsetof(struct virtio_pci_cap, offset), 4);
	}
	ck_abort_msg("no capability of type %u", type);
	return 0;
}

static void find_areas(void)
{
	unsigned cap;

	common = find_area(VIRTIO_PCI_CAP_COMMON_CFG, &cap);
	isr = find_area(VIRTIO_PCI_CAP_ISR_CFG, &cap);
	device = find_area(VIRTIO_PCI_CAP_DEVICE_CFG, &cap);
	notify = find_area(VIRTIO_PCI_CAP_NOTIFY_CFG, &cap);
	notify_step = cfg_read(&board, SLOT, cap + sizeof(struct virtio_pci_cap), 4);
	(void)find_area(VIRTIO_PCI_CAP_PCI_CFG, &window_cap);
}

static void decode_on(uint16_t extra)
{
	cfg_write(&board, SLOT, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | extra, 2);
}

static void setup(void)
{
	ck_assert_int_eq(board_create(&board), 0);
	ck_assert_int_eq(loop_init(&main_loop), 0);
	guest_create_default(&g);
	e = echo_create(&g.mem, QUEUES, QUEUES, SIZE);
	d = &e->dev;
	ck_assert_int_eq(virtio_dev_launch(d, NULL), 0);
	ck_assert_int_eq(virtio_pci_create(&board.pci, d, &board.mmio, &main_loop, &vp), 0);
	for (unsigned i = 0; i < QUEUES; i++)
		ring_init(&ring[i], &g, SIZE, true);
	buf = guest_alloc(&g, GUEST_PAGE, GUEST_PAGE);
	decode_on(0);
	find_areas();
}

static void teardown(void)
{
	virtio_dev_shutdown(d);
	ck_assert_uint_eq(e->wrong_thread, 0);
	virtio_pci_destroy(vp);
	d->class->destroy(d);
	guest_destroy(&g);
	loop_destroy(&main_loop);
	board_destroy(&board);
}

static uint64_t reg_read(unsigned reg, uint32_t len)
{
	return mmio_read(&board, common + reg, len);
}

static void reg_write(unsigned reg, uint64_t v, uint32_t len)
{
	mmio_write(&board, common + reg, v, len);
}

static void set_status(uint8_t v)
{
	reg_write(VIRTIO_PCI_COMMON_STATUS, v, 1);
}

static uint8_t status(void)
{
	return (uint8_t)reg_read(VIRTIO_PCI_COMMON_STATUS, 1);
}

static void select_queue(unsigned i)
{
	reg_write(VIRTIO_PCI_COMMON_Q_SELECT, i, 2);
}

static void negotiate(void)
{
	set_status(0);
	set_status(3);
	for (unsigned word = 0; word < 2; word++) {
		uint32_t v;

		reg_write(VIRTIO_PCI_COMMON_DFSELECT, word, 4);
		v = (uint32_t)reg_read(VIRTIO_PCI_COMMON_DF, 4);
		reg_write(VIRTIO_PCI_COMMON_GFSELECT, word, 4);
		reg_write(VIRTIO_PCI_COMMON_GF, v, 4);
	}
	set_status(11);
	ck_assert_uint_eq(status(), 11);
}

static void set_address(unsigned reg, uint64_t gpa)
{
	reg_write(reg, (uint32_t)gpa, 4);
	reg_write(reg + 4, gpa >> 32, 4);
}

static void setup_queue(unsigned i, uint16_t vector)
{
	select_queue(i);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_SIZE, 2), SIZE);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_ENABLE, 2), 0);
	reg_write(VIRTIO_PCI_COMMON_Q_MSIX, vector, 2);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_MSIX, 2), vector);
	set_address(VIRTIO_PCI_COMMON_Q_DESCLO, ring[i].desc_gpa);
	set_address(VIRTIO_PCI_COMMON_Q_AVAILLO, ring[i].avail_gpa);
	set_address(VIRTIO_PCI_COMMON_Q_USEDLO, ring[i].used_gpa);
	reg_write(VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_ENABLE, 2), 1);
}

/* MSI-X with vector 0 for config, 1 + i for queue i; or the pin. */
static void start(bool msix)
{
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);

	cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, msix ? PCI_MSIX_FLAGS_ENABLE : 0, 2);
	negotiate();
	if (msix)
		reg_write(VIRTIO_PCI_COMMON_MSIX, 0, 2);
	for (unsigned i = 0; i < QUEUES; i++) {
		ring_reset(&ring[i]);
		setup_queue(i, msix ? (uint16_t)(1 + i) : VIRTIO_MSI_NO_VECTOR);
	}
	set_status(STATUS_ALL);
	ck_assert_uint_eq(status(), STATUS_ALL);
}

static struct pci_function *function(void)
{
	return board.pci.slot[SLOT];
}

static int vector_fd(unsigned i)
{
	return function()->msix.line[i].fd;
}

static bool signalled(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t count;

	return poll(&p, 1, ms) == 1 && read(fd, &count, sizeof(count)) == sizeof(count);
}

static void submit(unsigned i)
{
	const struct seg s[] = { { buf, 5, false }, { buf + 2048 + 64 * i, 64, true } };

	memcpy(guest_at(&g, buf), "hello", 5);
	ring_add(&ring[i], s, 2);
	mmio_write(&board, notify + i * notify_step, i, 2);
}

static void assert_answered(unsigned i, int fd)
{
	uint32_t head, len;

	(void)ring_want_irq(&ring[i]);
	submit(i);
	ck_assert(signalled(fd, 2000));
	ck_assert(ring_take(&ring[i], &head, &len));
	ck_assert_uint_eq(len, 5);
}

/* --- identity --------------------------------------------------------------------------------- */

START_TEST(function_is_a_modern_virtio_device)
{
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_VENDOR_ID, 2), 0x1af4);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_DEVICE_ID, 2), 0x1040 + 42);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_CLASS_REVISION, 4), 0xff000001);
	ck_assert_uint_ge(cfg_read(&board, SLOT, PCI_SUBSYSTEM_ID, 2), 0x40);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_NUMQ, 2), QUEUES);
	ck_assert_uint_eq(notify_step, 4);
}
END_TEST

START_TEST(areas_do_not_overlap_and_fit_the_bar)
{
	struct { uint32_t off, len; } a[8];
	unsigned at = 0, n = 0;

	while ((at = cfg_find_cap(&board, SLOT, PCI_CAP_ID_VNDR, at)) != 0) {
		a[n].off = cfg_read(&board, SLOT, at + offsetof(struct virtio_pci_cap, offset), 4);
		a[n].len = cfg_read(&board, SLOT, at + offsetof(struct virtio_pci_cap, length), 4);
		ck_assert_uint_le(a[n].off + a[n].len, function()->bar[0].size);
		for (unsigned k = 0; k < n; k++)
			ck_assert(a[n].len == 0 || a[n].off >= a[k].off + a[k].len ||
				  a[k].off >= a[n].off + a[n].len);
		n++;
	}
	ck_assert_uint_eq(n, 5);
}
END_TEST

START_TEST(feature_words_beyond_the_second_are_zero)
{
	for (uint32_t word = 2; word != 0; word *= 2) {
		reg_write(VIRTIO_PCI_COMMON_DFSELECT, word, 4);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_DF, 4), 0);
		reg_write(VIRTIO_PCI_COMMON_GFSELECT, word, 4);
		reg_write(VIRTIO_PCI_COMMON_GF, 0xffffffff, 4);
	}
	ck_assert_uint_eq(d->driver_features, 0);
	reg_write(VIRTIO_PCI_COMMON_DFSELECT, 1, 4);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_DF, 4), 1);
}
END_TEST

/* --- a driver's life -------------------------------------------------------------------------- */

START_TEST(each_queue_answers_on_its_own_vector)
{
	start(true);
	for (unsigned i = 0; i < QUEUES; i++) {
		assert_answered(i, vector_fd(1 + i));
		for (unsigned k = 0; k <= QUEUES; k++)
			ck_assert(!signalled(vector_fd(k), 0));
	}
	ck_assert_uint_eq(mmio_read(&board, isr, 1), 0);
}
END_TEST

START_TEST(queues_may_share_a_vector)
{
	start(true);
	for (unsigned i = 0; i < QUEUES; i++) {
		select_queue(i);
		reg_write(VIRTIO_PCI_COMMON_Q_MSIX, 2, 2);
	}
	for (unsigned i = 0; i < QUEUES; i++)
		assert_answered(i, vector_fd(2));
}
END_TEST

START_TEST(vector_out_of_range_reads_back_as_none)
{
	static const uint16_t bad[] = { QUEUES + 1, 255, 2048, 0xfffe, 0xffff };

	start(true);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		select_queue(0);
		reg_write(VIRTIO_PCI_COMMON_Q_MSIX, bad[i], 2);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_MSIX, 2), VIRTIO_MSI_NO_VECTOR);
		ck_assert_int_eq(d->queue[0].call_fd, -1);
		reg_write(VIRTIO_PCI_COMMON_MSIX, bad[i], 2);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_MSIX, 2), VIRTIO_MSI_NO_VECTOR);
	}
	select_queue(65535);
	reg_write(VIRTIO_PCI_COMMON_Q_MSIX, 1, 2);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_MSIX, 2), VIRTIO_MSI_NO_VECTOR);
}
END_TEST

START_TEST(config_change_comes_on_its_vector)
{
	uint8_t generation;

	start(true);
	generation = (uint8_t)reg_read(VIRTIO_PCI_COMMON_CFGGENERATION, 1);
	virtio_config_interrupt(d);
	ck_assert(signalled(vector_fd(0), 0));
	ck_assert_uint_ne(reg_read(VIRTIO_PCI_COMMON_CFGGENERATION, 1), generation);
}
END_TEST

START_TEST(broken_ring_shows_in_status_and_interrupts)
{
	start(true);
	ring_offer(&ring[1], 1000);
	ring_show(&ring[1]);
	mmio_write(&board, notify + notify_step, 1, 2);
	ck_assert(signalled(vector_fd(0), 2000));
	ck_assert_uint_eq(status(), STATUS_ALL | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_answered(2, vector_fd(3));
	start(true);
	assert_answered(1, vector_fd(2));
}
END_TEST

START_TEST(reset_clears_all_registers)
{
	start(true);
	set_status(0);
	ck_assert_uint_eq(status(), 0);
	for (unsigned reg = 0; reg < sizeof(struct virtio_pci_common_cfg); reg++) {
		static const struct { uint8_t off, len; } fixed[] = {
			{ VIRTIO_PCI_COMMON_DF, 4 }, { VIRTIO_PCI_COMMON_MSIX, 2 },
			{ VIRTIO_PCI_COMMON_NUMQ, 2 }, { VIRTIO_PCI_COMMON_CFGGENERATION, 1 },
			{ VIRTIO_PCI_COMMON_Q_SIZE, 2 }, { VIRTIO_PCI_COMMON_Q_MSIX, 2 },
		};
		bool skip = false;

		for (unsigned i = 0; i < ARRAY_SIZE(fixed); i++)
			skip |= reg >= fixed[i].off && reg < (unsigned)fixed[i].off + fixed[i].len;
		if (!skip)
			ck_assert_uint_eq(reg_read(reg, 1), 0);
	}
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_MSIX, 2), VIRTIO_MSI_NO_VECTOR);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_MSIX, 2), VIRTIO_MSI_NO_VECTOR);
	for (unsigned i = 0; i < QUEUES; i++)
		ck_assert_int_eq(d->queue[i].call_fd, -1);
}
END_TEST

/* --- the pin ---------------------------------------------------------------------------------- */

START_TEST(pin_is_used_when_msix_is_off)
{
	int pin = function()->intx.trigger_fd;

	start(false);
	assert_answered(0, pin);
	/* Reading the cause takes it away. */
	ck_assert_uint_eq(mmio_read(&board, isr, 1), VIRTIO_ISR_QUEUE);
	ck_assert_uint_eq(mmio_read(&board, isr, 1), 0);
	virtio_config_interrupt(d);
	ck_assert(signalled(pin, 0));
	assert_answered(3, pin);
	ck_assert_uint_eq(mmio_read(&board, isr, 4), VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG);
}
END_TEST

static void stop_soon(struct watch *w, uint32_t events)
{
	loop_stop(&main_loop);
}

/* Let main's loop work off what is ready now. */
static void run_main(void)
{
	struct watch stop = { .fd = -1, .ready = stop_soon };
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(write(fd[1], "x", 1), 1);
	stop.fd = fd[0];
	ck_assert_int_eq(loop_watch(&main_loop, &stop, EPOLLIN), 0);
	main_loop.stopped = false;
	loop_run(&main_loop);
	ck_assert_int_eq(loop_watch(&main_loop, &stop, 0), 0);
	close(fd[0]);
	close(fd[1]);
}

START_TEST(pin_is_raised_again_while_a_cause_is_left)
{
	int pin = function()->intx.trigger_fd, resample = function()->intx.resample_fd;

	start(false);
	assert_answered(0, pin);
	/* The guest acknowledged at its interrupt controller without having read the cause. */
	irq_signal(resample);
	run_main();
	ck_assert(signalled(pin, 0));
	ck_assert_uint_eq(mmio_read(&board, isr, 1), VIRTIO_ISR_QUEUE);
	irq_signal(resample);
	run_main();
	ck_assert(!signalled(pin, 0));
}
END_TEST

START_TEST(pin_that_is_disabled_stays_silent_and_nothing_is_lost)
{
	int pin = function()->intx.trigger_fd;
	uint32_t head, len;

	start(false);
	decode_on(PCI_COMMAND_INTX_DISABLE);
	submit(0);
	for (unsigned i = 0; i < 2000 && !ring_take(&ring[0], &head, &len); i++)
		usleep(1000);
	ck_assert_uint_eq(ring[0].last_used, 1);
	ck_assert(!signalled(pin, 0));
	decode_on(0);
	ck_assert(signalled(pin, 0));
	ck_assert_uint_eq(mmio_read(&board, isr, 1), VIRTIO_ISR_QUEUE);
}
END_TEST

START_TEST(wires_follow_msix_on_and_off)
{
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);

	start(true);
	assert_answered(0, vector_fd(1));
	cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, 0, 2);
	ck_assert(signalled(function()->intx.trigger_fd, 0));
	assert_answered(0, function()->intx.trigger_fd);
	cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE, 2);
	assert_answered(0, vector_fd(1));
}
END_TEST

/* --- doorbells -------------------------------------------------------------------------------- */

START_TEST(doorbells_move_with_the_bar)
{
	uint64_t old = notify, new = WINDOW + 0x80000;

	start(true);
	ck_assert_uint_eq(board.mmio.n_soft, QUEUES);
	cfg_write(&board, SLOT, PCI_BASE_ADDRESS_0, (uint32_t)new, 4);
	ck_assert_uint_eq(board.mmio.n_soft, QUEUES);
	find_areas();
	ck_assert_uint_ne(notify, old);
	assert_answered(1, vector_fd(2));
	cfg_write(&board, SLOT, PCI_COMMAND, 0, 2);
	ck_assert_uint_eq(board.mmio.n_soft, 0);
	decode_on(0);
	assert_answered(1, vector_fd(2));
}
END_TEST

START_TEST(notify_works_without_doorbells_too)
{
	start(true);
	/* As when KVM refused them: the write reaches the BAR. */
	board.mmio.n_soft = 0;
	assert_answered(2, vector_fd(3));
}
END_TEST

START_TEST(doorbells_that_kvm_refuses_are_done_without)
{
	cfg_write(&board, SLOT, PCI_COMMAND, 0, 2);
	/* No VM there: every ioctl fails. */
	board.mmio.vm_fd = 1000000;
	decode_on(0);
	start(true);
	assert_answered(2, vector_fd(3));
	cfg_write(&board, SLOT, PCI_COMMAND, 0, 2);
	board.mmio.vm_fd = -1;
	decode_on(0);
	ck_assert_uint_eq(board.mmio.n_soft, QUEUES);
}
END_TEST

START_TEST(notify_of_queues_that_do_not_exist_is_ignored)
{
	start(true);
	for (unsigned off = 0; off < 4096; off++)
		mmio_write(&board, notify + off, off, 2);
	assert_answered(0, vector_fd(1));
}
END_TEST

/* --- hostile register accesses (S-03) --------------------------------------------------------- */

START_TEST(queue_registers_are_frozen_while_running)
{
	static const uint16_t sizes[] = { 0, 3, SIZE / 2, SIZE * 2, 65535 };
	struct virtio_queue *q = &d->queue[0];

	start(true);
	select_queue(0);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		reg_write(VIRTIO_PCI_COMMON_Q_SIZE, sizes[i], 2);
	set_address(VIRTIO_PCI_COMMON_Q_DESCLO, UINT64_MAX);
	set_address(VIRTIO_PCI_COMMON_Q_AVAILLO, 0);
	set_address(VIRTIO_PCI_COMMON_Q_USEDLO, 1);
	reg_write(VIRTIO_PCI_COMMON_Q_ENABLE, 0, 2);
	reg_write(VIRTIO_PCI_COMMON_GF, 0, 4);
	ck_assert_uint_eq(q->size, SIZE);
	ck_assert(q->enabled && q->running);
	ck_assert_uint_eq(q->desc_gpa, ring[0].desc_gpa);
	ck_assert_uint_eq(q->avail_gpa, ring[0].avail_gpa);
	ck_assert_uint_eq(q->used_gpa, ring[0].used_gpa);
	ck_assert_uint_eq(d->driver_features, d->features);
	assert_answered(0, vector_fd(1));
}
END_TEST

START_TEST(bad_queue_sizes_are_ignored)
{
	static const uint16_t bad[] = { 0, 3, 31, SIZE * 2, 4096, 65535 };

	negotiate();
	select_queue(1);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		reg_write(VIRTIO_PCI_COMMON_Q_SIZE, bad[i], 2);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_SIZE, 2), SIZE);
	}
	reg_write(VIRTIO_PCI_COMMON_Q_SIZE, 8, 2);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_SIZE, 2), 8);
}
END_TEST

START_TEST(queue_that_does_not_exist_reads_as_size_0)
{
	static const uint16_t bad[] = { QUEUES, 100, 65535 };

	negotiate();
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		select_queue(bad[i]);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_SIZE, 2), 0);
		reg_write(VIRTIO_PCI_COMMON_Q_SIZE, 8, 2);
		reg_write(VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
		set_address(VIRTIO_PCI_COMMON_Q_DESCLO, 0x1000);
		ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_ENABLE, 2), 0);
	}
}
END_TEST

START_TEST(features_not_offered_leave_features_ok_clear)
{
	set_status(3);
	for (unsigned bit = 0; bit < 64; bit++) {
		if (d->features >> bit & 1)
			continue;
		for (unsigned word = 0; word < 2; word++) {
			reg_write(VIRTIO_PCI_COMMON_GFSELECT, word, 4);
			reg_write(VIRTIO_PCI_COMMON_GF,
				  (uint32_t)((d->features | 1ULL << bit) >> (32 * word)), 4);
		}
		set_status(11);
		ck_assert_uint_eq(status(), 3);
	}
}
END_TEST

START_TEST(every_width_at_every_offset_is_safe)
{
	unsigned seed = 7;

	for (unsigned round = 0; round < 3; round++) {
		for (uint32_t len = 1; len <= 8; len *= 2) {
			for (uint32_t off = 0; off + len <= 0x4000;
			     off += off % 0x1000 < 0x80 ? 1 : 61) {
				uint64_t v =
					(uint64_t)rand_r(&seed) << 33 ^ (uint64_t)rand_r(&seed);

				(void)mmio_read(&board, common + off, len);
				mmio_write(&board, common + off, v, len);
			}
		}
	}
	start(true);
	assert_answered(0, vector_fd(1));
}
END_TEST

START_TEST(common_config_reads_alike_in_all_widths)
{
	uint8_t whole[sizeof(struct virtio_pci_common_cfg)];

	start(true);
	select_queue(2);
	for (unsigned i = 0; i < sizeof(whole); i++)
		whole[i] = (uint8_t)reg_read(i, 1);
	for (uint32_t len = 2; len <= 8; len *= 2) {
		for (unsigned off = 0; off + len <= sizeof(whole); off++) {
			uint64_t v = reg_read(off, len);

			must(memcmp(&v, whole + off, len) == 0);
		}
	}
}
END_TEST

START_TEST(eight_byte_write_sets_a_whole_address)
{
	negotiate();
	select_queue(0);
	reg_write(VIRTIO_PCI_COMMON_Q_DESCLO, 0x123456789abcdef0, 8);
	ck_assert_uint_eq(d->queue[0].desc_gpa, 0x123456789abcdef0);
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_Q_DESCLO, 8), 0x123456789abcdef0);
}
END_TEST

START_TEST(device_config_is_read_and_written_in_any_width)
{
	ck_assert_uint_eq(mmio_read(&board, device, 8), 0xa7a6a5a4a3a2a1a0);
	ck_assert_uint_eq(mmio_read(&board, device + 3, 2), 0xa4a3);
	ck_assert_uint_eq(mmio_read(&board, device + 14, 4), 0xafae);
	ck_assert_uint_eq(mmio_read(&board, device + 64, 4), 0);
	mmio_write(&board, device + 4, 0x11223344, 4);
	ck_assert_uint_eq(mmio_read(&board, device + 4, 4), 0x11223344);
	mmio_write(&board, device + 14, 0, 4);
	ck_assert_uint_eq(mmio_read(&board, device + 14, 2), 0xafae);
}
END_TEST

/* --- the PCI_CFG window ----------------------------------------------------------------------- */

static void window_set(uint32_t off, uint32_t len, uint8_t bar)
{
	cfg_write(&board, SLOT, window_cap + offsetof(struct virtio_pci_cap, bar), bar, 1);
	cfg_write(&board, SLOT, window_cap + offsetof(struct virtio_pci_cap, offset), off, 4);
	cfg_write(&board, SLOT, window_cap + offsetof(struct virtio_pci_cap, length), len, 4);
}

static unsigned window_data(void)
{
	return window_cap + (unsigned)sizeof(struct virtio_pci_cap);
}

START_TEST(config_window_reaches_the_registers)
{
	window_set(VIRTIO_PCI_COMMON_NUMQ, 2, 0);
	ck_assert_uint_eq(cfg_read(&board, SLOT, window_data(), 2), QUEUES);
	window_set(VIRTIO_PCI_COMMON_STATUS, 1, 0);
	cfg_write(&board, SLOT, window_data(), 3, 1);
	ck_assert_uint_eq(status(), 3);
	window_set((uint32_t)(device - common), 4, 0);
	ck_assert_uint_eq(cfg_read(&board, SLOT, window_data(), 4), 0xa3a2a1a0);
}
END_TEST

START_TEST(config_window_can_start_kick_and_reset_the_device)
{
	uint32_t head, len;

	start(true);
	(void)ring_want_irq(&ring[1]);
	board.mmio.n_soft = 0;
	window_set((uint32_t)(notify - common) + notify_step, 2, 0);
	ring_add(&ring[1], (const struct seg[]){ { buf, 5, false }, { buf + 64, 5, true } }, 2);
	cfg_write(&board, SLOT, window_data(), 1, 2);
	ck_assert(signalled(vector_fd(2), 2000));
	ck_assert(ring_take(&ring[1], &head, &len));
	window_set(VIRTIO_PCI_COMMON_STATUS, 1, 0);
	cfg_write(&board, SLOT, window_data(), 0, 1);
	ck_assert_uint_eq(status(), 0);
	ck_assert_uint_eq(e->stops, 1);
}
END_TEST

START_TEST(config_window_refuses_bad_lengths_offsets_and_bars)
{
	static const struct { uint32_t off, len; uint8_t bar; } bad[] = {
		{ 0, 0, 0 }, { 0, 3, 0 }, { 0, 8, 0 }, { 0, UINT32_MAX, 0 },
		{ 2, 4, 0 }, { 1, 2, 0 }, { 0x4000, 4, 0 }, { UINT32_MAX - 3, 4, 0 },
		{ 0, 4, 1 }, { 0, 4, 2 }, { 0, 4, 255 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		window_set(bad[i].off, bad[i].len, bad[i].bar);
		cfg_write(&board, SLOT, window_data(), 0x5a5a5a5a, 4);
		ck_assert_uint_eq(cfg_read(&board, SLOT, window_data(), 4), 0x5a5a5a5a);
	}
	ck_assert_uint_eq(reg_read(VIRTIO_PCI_COMMON_DFSELECT, 4), 0);
}
END_TEST

/* --- machine reset, destruction --------------------------------------------------------------- */

START_TEST(machine_reset_stops_the_device_and_unplugs_its_doorbells)
{
	start(true);
	assert_answered(0, vector_fd(1));
	pci_host_reset(&board.pci);
	ck_assert_uint_eq(e->stops, 1);
	ck_assert_uint_eq(board.mmio.n_soft, 0);
	ck_assert_uint_eq(cfg_read(&board, SLOT, PCI_COMMAND, 2), 0);
	decode_on(0);
	ck_assert_uint_eq(status(), 0);
	start(true);
	assert_answered(0, vector_fd(1));
}
END_TEST

START_TEST(too_many_queues_are_refused)
{
	struct virtio_dev big = { .class = &echo_class, .n_queues = VIRTIO_PCI_QUEUES_MAX + 1 };
	struct virtio_pci *other;

	ck_assert_int_eq(virtio_pci_create(&board.pci, &big, &board.mmio, NULL, &other), -E2BIG);
}
END_TEST

/* The lowest descriptor that is free. */
static int next_fd(void)
{
	int fd = dup(0);

	ck_assert_int_ge(fd, 0);
	close(fd);
	return fd;
}

static int plug_another(void)
{
	struct echo *other = echo_create(&g.mem, QUEUES, 2, SIZE);
	struct virtio_pci *other_vp;
	int err = virtio_dev_launch(&other->dev, NULL);

	if (!err) {
		err = virtio_pci_create(&board.pci, &other->dev, &board.mmio, &main_loop,
					&other_vp);
		virtio_dev_shutdown(&other->dev);
		if (!err)
			virtio_pci_destroy(other_vp);
	}
	echo_destroy(&other->dev);
	return err;
}

START_TEST(running_out_of_descriptors_leaves_nothing_behind)
{
	struct rlimit old, low;
	int first = next_fd(), err = -EMFILE;
	unsigned failures = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (low = old; err; failures++) {
		low.rlim_cur = (rlim_t)first + failures;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
		err = plug_another();
		ck_assert(err == 0 || err == -EMFILE);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
		ck_assert_int_eq(next_fd(), first);
		ck_assert_ptr_null(board.pci.slot[SLOT + 1]);
	}
	/* Kick eventfds, two loops with a mailbox, the pin, a vector each and one more. */
	ck_assert_uint_ge(failures, QUEUES + 4 + 2 + QUEUES + 1);
}
END_TEST

/* --- several vCPUs at once -------------------------------------------------------------------- */

static _Atomic bool vcpus_stop;

/* Registers, config space and MSI-X table at random, among them start and reset. */
static void *vcpu_main(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uint32_t msix = cfg_read(&board, SLOT, PCI_BASE_ADDRESS_1, 4) & ~0xfu;
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);

	while (!vcpus_stop) {
		uint32_t x = (uint32_t)rand_r(&seed);

		switch (x % 10) {
		case 0:
			set_status((uint8_t)(x & 256 ? 0 : 15));
			break;
		case 1:
			(void)reg_read(x / 8 % 56, 1u << (x / 1024 % 4));
			break;
		case 2:
			reg_write(16 + x / 8 % 40, x / 1024, 2);
			break;
		case 3:
			mmio_write(&board, msix + x / 8 % 128, x / 1024, 4);
			break;
		case 4:
			cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, x & 0xc000, 2);
			break;
		case 5:
			(void)mmio_read(&board, isr, 1);
			break;
		case 6:
			/* The doorbell itself is the kernel's in a VM: here only its BAR. */
			(void)mmio_read(&board, notify + x / 8 % 64, 2);
			break;
		case 7:
			window_set(x / 8 % 60 & ~3u, 4, 0);
			break;
		case 8:
			(void)cfg_read(&board, SLOT, window_data(), 4);
			break;
		default:
			(void)mmio_read(&board, device + x / 8 % 32, 4);
		}
	}
	return NULL;
}

START_TEST(vcpus_may_use_all_registers_at_once)
{
	pthread_t t[4];

	start(true);
	for (uintptr_t i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, vcpu_main, (void *)(i + 1)), 0);
	usleep(500000);
	vcpus_stop = true;
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		pthread_join(t[i], NULL);
	start(true);
	assert_answered(0, vector_fd(1));
}
END_TEST

static _Atomic bool reset_done;

static void *reset_main(void *through_window)
{
	if (through_window)
		cfg_write(&board, SLOT, window_data(), 0, 1);
	else
		set_status(0);
	reset_done = true;
	return NULL;
}

/* A queue is busy for a second, so its device's reset waits so long: the other vCPUs do not. */
static void check_config_answers(bool through_window)
{
	unsigned cap = cfg_find_cap(&board, SLOT, PCI_CAP_ID_MSIX, 0);
	pthread_t t;

	start(true);
	window_set(VIRTIO_PCI_COMMON_STATUS, 1, 0);
	e->handler_us = 1000000;
	submit(0);
	while (!e->in_handler)
		usleep(1000);
	reset_done = false;
	ck_assert_int_eq(pthread_create(&t, NULL, reset_main, through_window ? &t : NULL), 0);
	usleep(50000); /* it holds what it will hold */
	cfg_write(&board, SLOT, cap + PCI_MSIX_FLAGS, 0, 2);
	decode_on(PCI_COMMAND_INTX_DISABLE);
	decode_on(0);
	ck_assert_uint_eq(cfg_read(&board, 0, PCI_VENDOR_ID, 2), 0x1b36);
	ck_assert(!reset_done);
	pthread_join(t, NULL);
	e->handler_us = 0;
	ck_assert_uint_eq(status(), 0);
}

START_TEST(config_space_answers_while_a_reset_waits)
{
	check_config_answers(false);
	check_config_answers(true);
	start(true);
	assert_answered(0, vector_fd(1));
}
END_TEST

SUITE_MAIN_FIXTURE("virtio_pci", 30, setup, teardown, function_is_a_modern_virtio_device,
		   areas_do_not_overlap_and_fit_the_bar, feature_words_beyond_the_second_are_zero,
		   each_queue_answers_on_its_own_vector, queues_may_share_a_vector,
		   vector_out_of_range_reads_back_as_none, config_change_comes_on_its_vector,
		   broken_ring_shows_in_status_and_interrupts, reset_clears_all_registers,
		   pin_is_used_when_msix_is_off, pin_is_raised_again_while_a_cause_is_left,
		   pin_that_is_disabled_stays_silent_and_nothing_is_lost,
		   wires_follow_msix_on_and_off, doorbells_move_with_the_bar,
		   doorbells_that_kvm_refuses_are_done_without,
		   notify_works_without_doorbells_too,
		   notify_of_queues_that_do_not_exist_is_ignored,
		   queue_registers_are_frozen_while_running, bad_queue_sizes_are_ignored,
		   queue_that_does_not_exist_reads_as_size_0,
		   features_not_offered_leave_features_ok_clear,
		   every_width_at_every_offset_is_safe, common_config_reads_alike_in_all_widths,
		   eight_byte_write_sets_a_whole_address,
		   device_config_is_read_and_written_in_any_width,
		   config_window_reaches_the_registers,
		   config_window_can_start_kick_and_reset_the_device,
		   config_window_refuses_bad_lengths_offsets_and_bars,
		   machine_reset_stops_the_device_and_unplugs_its_doorbells,
		   too_many_queues_are_refused,
		   running_out_of_descriptors_leaves_nothing_behind,
		   vcpus_may_use_all_registers_at_once, config_space_answers_while_a_reset_waits)
