/* The UART (devices/serial.h), driven through its registers as a driver would. */
#include <check.h>
#include <errno.h>
#include <linux/serial_reg.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "devices/serial.h"
#include "tests/unit/suite.h"
#include "vmm/bus.h"

#define BASE 0x3f8

static struct bus bus;
static struct serial *uart;
static int irq_fd;
static char sent[8192];
static size_t n_sent;
static unsigned rooms;

static void out(void *ctx, const void *p, size_t len)
{
	ck_assert_ptr_eq(ctx, &bus);
	if (n_sent + len <= sizeof(sent))
		memcpy(sent + n_sent, p, len);
	n_sent += len;
}

static void room(void *ctx)
{
	ck_assert_ptr_eq(ctx, &irq_fd);
	rooms++;
}

static void make(unsigned shift)
{
	const struct serial_opts o = { .bus = &bus, .base = BASE, .shift = shift,
				       .irq_fd = irq_fd = eventfd(0, EFD_NONBLOCK),
				       .out = out, .out_ctx = &bus, .room = room, .room_ctx = &irq_fd };

	bus_init(&bus, -1, true);
	ck_assert_int_eq(serial_create(&o, &uart), 0);
}

static void drop(void)
{
	serial_destroy(uart);
	bus_destroy(&bus);
	close(irq_fd);
}

static uint8_t in(unsigned reg)
{
	uint8_t v = 0xee;

	ck_assert(bus_read(&bus, BASE + reg, &v, 1));
	return v;
}

static void put(unsigned reg, uint8_t v)
{
	ck_assert(bus_write(&bus, BASE + reg, &v, 1));
}

/* Interrupts since the last call. */
static unsigned interrupts(void)
{
	uint64_t n = 0;

	(void)!read(irq_fd, &n, sizeof(n));
	return (unsigned)n;
}

/* What a driver does on open. */
static void open_line(void)
{
	put(UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR | UART_FCR_CLEAR_XMIT |
			      UART_FCR_R_TRIG_10);
	put(UART_LCR, UART_LCR_WLEN8);
	put(UART_IER, UART_IER_RDI | UART_IER_RLSI);
	put(UART_MCR, UART_MCR_DTR | UART_MCR_RTS | UART_MCR_OUT2);
	interrupts();
}

START_TEST(a_driver_recognizes_a_16550a)
{
	make(0);
	/* The steps of Linux's autoconfig: scratch, IER, loopback modem lines, FIFO bits. */
	put(UART_SCR, 0xa5);
	ck_assert_uint_eq(in(UART_SCR), 0xa5);
	put(UART_IER, 0);
	ck_assert_uint_eq(in(UART_IER) & 0x0f, 0);
	put(UART_IER, 0x0f);
	ck_assert_uint_eq(in(UART_IER) & 0x0f, 0x0f);
	put(UART_IER, 0);
	put(UART_MCR, UART_MCR_LOOP | UART_MCR_OUT2 | UART_MCR_RTS);
	ck_assert_uint_eq(in(UART_MSR) & 0xf0, UART_MSR_DCD | UART_MSR_CTS);
	put(UART_MCR, 0);
	ck_assert_uint_eq(in(UART_MSR) & 0xf0, UART_MSR_DCD | UART_MSR_CTS | UART_MSR_DSR);
	put(UART_FCR, UART_FCR_ENABLE_FIFO);
	ck_assert_uint_eq(in(UART_IIR) >> 6, 3);
	put(UART_FCR, 0);
	ck_assert_uint_eq(in(UART_IIR) >> 6, 0);
	drop();
}
END_TEST

START_TEST(the_divisor_hides_behind_dlab)
{
	make(0);
	put(UART_IER, UART_IER_RDI);
	put(UART_LCR, UART_LCR_DLAB | UART_LCR_WLEN8);
	put(UART_DLL, 0x34);
	put(UART_DLM, 0x12);
	ck_assert_uint_eq(in(UART_DLL), 0x34);
	ck_assert_uint_eq(in(UART_DLM), 0x12);
	put(UART_LCR, UART_LCR_WLEN8);
	ck_assert_uint_eq(in(UART_IER), UART_IER_RDI);
	ck_assert_uint_eq(n_sent, 0);
	drop();
}
END_TEST

START_TEST(sending_is_instant_and_raises_thre)
{
	make(0);
	open_line();
	put(UART_TX, 'h');
	put(UART_TX, 'i');
	ck_assert_uint_eq(n_sent, 2);
	ck_assert_mem_eq(sent, "hi", 2);
	ck_assert_uint_eq(in(UART_LSR), UART_LSR_TEMT | UART_LSR_THRE);
	ck_assert_uint_eq(interrupts(), 0);
	put(UART_IER, UART_IER_THRI);
	ck_assert_uint_ge(interrupts(), 1);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_THRI);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_NO_INT);
	/* Switching it off and on asks again: Linux tests chips for this. */
	put(UART_IER, 0);
	put(UART_IER, UART_IER_THRI);
	ck_assert_uint_ge(interrupts(), 1);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_THRI);
	put(UART_TX, 'x');
	ck_assert_uint_ge(interrupts(), 1);
	drop();
}
END_TEST

START_TEST(received_bytes_come_in_order_with_an_interrupt)
{
	make(0);
	open_line();
	ck_assert_uint_eq(serial_input(uart, "abc", 3), 3);
	ck_assert_uint_ge(interrupts(), 1);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_RX_TIMEOUT);
	ck_assert_uint_eq(serial_input(uart, "defgh", 5), 5);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_RDI);
	for (char c = 'a'; c <= 'h'; c++) {
		ck_assert_uint_eq(in(UART_LSR) & UART_LSR_DR, UART_LSR_DR);
		ck_assert_uint_eq(in(UART_RX), c);
	}
	ck_assert_uint_eq(in(UART_LSR) & UART_LSR_DR, 0);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_NO_INT);
	ck_assert_uint_eq(in(UART_RX), 0);
	drop();
}
END_TEST

START_TEST(nothing_is_taken_before_the_guest_listens)
{
	make(0);
	ck_assert_uint_eq(serial_input(uart, "early", 5), 0);
	ck_assert_uint_eq(serial_room(uart), 0);
	ck_assert_uint_eq(rooms, 0);
	open_line();
	ck_assert_uint_eq(rooms, 1);
	ck_assert_uint_eq(serial_input(uart, "early", 5), 5);
	put(UART_MCR, 0); /* the line is closed */
	ck_assert_uint_eq(serial_input(uart, "late", 4), 0);
	open_line();
	ck_assert_uint_eq(rooms, 2);
	drop();
}
END_TEST

START_TEST(input_is_bounded_and_none_is_lost)
{
	static uint8_t in_bytes[65536], got[65536];
	size_t given = 0, taken = 0;

	make(0);
	open_line();
	for (size_t i = 0; i < sizeof(in_bytes); i++)
		in_bytes[i] = (uint8_t)(i * 31 >> 3);
	while (taken < sizeof(got)) {
		unsigned before = rooms;
		size_t n = serial_input(uart, in_bytes + given, sizeof(in_bytes) - given);

		given += n;
		ck_assert_uint_le(given - taken, 1024);
		interrupts();
		while (taken < given && (given == sizeof(got) || rooms == before))
			got[taken++] = in(UART_RX);
	}
	ck_assert_mem_eq(got, in_bytes, sizeof(got));
	ck_assert_uint_gt(rooms, 32);
	drop();
}
END_TEST

START_TEST(a_driver_that_stops_reading_is_called_again)
{
	char bytes[256] = "";

	make(0);
	open_line();
	ck_assert_uint_eq(serial_input(uart, bytes, sizeof(bytes)), sizeof(bytes));
	interrupts();
	for (unsigned i = 0; i < 32; i++)
		in(UART_RX);
	ck_assert_uint_ge(interrupts(), 1);
	drop();
}
END_TEST

START_TEST(clearing_the_fifo_drops_no_more_than_it_holds)
{
	char bytes[100];

	make(0);
	open_line();
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)i;
	serial_input(uart, bytes, sizeof(bytes));
	put(UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR);
	ck_assert_uint_eq(in(UART_RX), 16);
	put(UART_FCR, UART_FCR_ENABLE_FIFO); /* nothing asked for */
	ck_assert_uint_eq(in(UART_RX), 17);
	drop();
}
END_TEST

START_TEST(loopback_receives_what_is_sent_and_overruns)
{
	make(0);
	open_line();
	put(UART_MCR, UART_MCR_LOOP | UART_MCR_RTS);
	for (unsigned i = 0; i < 17; i++)
		put(UART_TX, (uint8_t)('a' + i));
	ck_assert_uint_eq(n_sent, 0);
	ck_assert_uint_eq(serial_input(uart, "x", 1), 0);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_RLSI);
	ck_assert_uint_eq(in(UART_LSR) & (UART_LSR_OE | UART_LSR_DR), UART_LSR_OE | UART_LSR_DR);
	ck_assert_uint_eq(in(UART_LSR) & UART_LSR_OE, 0);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_uint_eq(in(UART_RX), 'a' + i);
	ck_assert_uint_eq(in(UART_LSR) & UART_LSR_DR, 0);
	drop();
}
END_TEST

START_TEST(modem_changes_are_reported_once)
{
	make(0);
	put(UART_MCR, UART_MCR_LOOP);
	in(UART_MSR);
	put(UART_IER, UART_IER_MSI);
	interrupts();
	put(UART_MCR, UART_MCR_LOOP | UART_MCR_DTR | UART_MCR_OUT1);
	ck_assert_uint_ge(interrupts(), 1);
	ck_assert_uint_eq(in(UART_IIR) & 0xf, UART_IIR_MSI);
	ck_assert_uint_eq(in(UART_MSR), UART_MSR_DSR | UART_MSR_RI | UART_MSR_DDSR);
	ck_assert_uint_eq(in(UART_MSR) & UART_MSR_ANY_DELTA, 0);
	put(UART_MCR, UART_MCR_LOOP | UART_MCR_DTR); /* RI counts when it ends */
	ck_assert_uint_eq(in(UART_MSR) & UART_MSR_ANY_DELTA, UART_MSR_TERI);
	drop();
}
END_TEST

START_TEST(registers_can_be_wide_apart_and_accesses_wide)
{
	uint32_t word = 0x11223344;

	make(2);
	ck_assert(bus_write(&bus, BASE + (UART_SCR << 2), &word, 4));
	word = 0;
	ck_assert(bus_read(&bus, BASE + (UART_SCR << 2), &word, 4));
	ck_assert_uint_eq(word, 0x44);
	ck_assert(!bus_read(&bus, BASE + 32, &word, 4));
	drop();
	make(0);
	word = 0x0000000b | UART_LCR_WLEN8 << 24; /* THR, IER = 0, FCR = 0, LCR in one */
	ck_assert(bus_write(&bus, BASE, &word, 4));
	ck_assert_uint_eq(in(UART_LCR), UART_LCR_WLEN8);
	ck_assert_uint_eq(sent[0], 0x0b);
	drop();
}
END_TEST

START_TEST(reset_is_power_on)
{
	make(0);
	open_line();
	serial_input(uart, "abc", 3);
	put(UART_SCR, 1);
	serial_reset(uart);
	ck_assert_uint_eq(in(UART_SCR), 0);
	ck_assert_uint_eq(in(UART_IER), 0);
	ck_assert_uint_eq(in(UART_LSR), UART_LSR_TEMT | UART_LSR_THRE);
	ck_assert_uint_eq(in(UART_IIR), UART_IIR_NO_INT);
	ck_assert_uint_eq(serial_room(uart), 0);
	drop();
}
END_TEST

START_TEST(a_taken_address_is_refused)
{
	const struct serial_opts o = { .bus = &bus, .base = BASE + 4, .irq_fd = -1, .out = out };
	struct serial *second = NULL;

	make(0);
	ck_assert_int_eq(serial_create(&o, &second), -EINVAL);
	ck_assert_ptr_null(second);
	serial_destroy(NULL);
	drop();
}
END_TEST

static void *type(void *arg)
{
	const uint8_t *bytes = arg;

	for (size_t given = 0; given < 65536;)
		given += serial_input(uart, bytes + given, 65536 - given);
	return NULL;
}

START_TEST(typing_while_the_guest_reads_and_writes_keeps_every_byte)
{
	static uint8_t in_bytes[65536], got[65536];
	pthread_t thread;

	make(0);
	open_line();
	for (size_t i = 0; i < sizeof(in_bytes); i++)
		in_bytes[i] = (uint8_t)(i ^ i >> 8);
	ck_assert_int_eq(pthread_create(&thread, NULL, type, in_bytes), 0);
	for (size_t n = 0; n < sizeof(got);) {
		if (in(UART_LSR) & UART_LSR_DR)
			got[n++] = in(UART_RX);
		else
			put(UART_TX, '.');
	}
	pthread_join(thread, NULL);
	ck_assert_mem_eq(got, in_bytes, sizeof(got));
	drop();
}
END_TEST

SUITE_MAIN("serial", 20,
	   a_driver_recognizes_a_16550a,
	   the_divisor_hides_behind_dlab,
	   sending_is_instant_and_raises_thre,
	   received_bytes_come_in_order_with_an_interrupt,
	   nothing_is_taken_before_the_guest_listens,
	   input_is_bounded_and_none_is_lost,
	   a_driver_that_stops_reading_is_called_again,
	   clearing_the_fifo_drops_no_more_than_it_holds,
	   loopback_receives_what_is_sent_and_overruns,
	   modem_changes_are_reported_once,
	   registers_can_be_wide_apart_and_accesses_wide,
	   reset_is_power_on,
	   a_taken_address_is_refused,
	   typing_while_the_guest_reads_and_writes_keeps_every_byte)
