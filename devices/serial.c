/*
 * 16550A UART: see serial.h.
 *
 * Sending is instant: a byte written to THR has left when the write returns, so LSR always says
 * "empty" and the THRE interrupt is pending at once.
 *
 * Receiving goes through a ring.  Its first 16 bytes (1 without FIFO) stand for the chip's FIFO, the
 * rest for bytes still on the wire: clearing the FIFO loses only the former.  The ring never
 * overflows, for serial_input() takes what fits and only while the guest holds RTS: that is hardware
 * flow control towards the host, and the bound on memory.
 *
 * Interrupts: the chip's level is turned into edges.  The eventfd is written whenever something
 * happened that may be news (new byte, THR emptied, IER or MCR written) and a cause is pending; Linux
 * reads IIR until it says "none", so one edge too many costs a glance and a missing one would hang.
 *
 * Invariants, under lock: n <= RING_LEN; starved only while a room callback is owed.
 */
#include "devices/serial.h"

#include <linux/serial_reg.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "vmm/base.h"
#include "vmm/bus.h"
#include "vmm/irq.h"

#define RING_LEN 1024
#define FIFO_LEN 16
#define N_REGS   8

/* A terminal is there and ready. */
#define MSR_PEER (UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS)

struct serial {
	struct serial_opts o;
	pthread_mutex_t lock; /* guards everything below */
	uint8_t ier, lcr, mcr, scr, dll, dlm;
	uint8_t msr_delta;
	bool fifo;
	unsigned trigger;     /* receive FIFO level: 1, 4, 8, 14 */
	bool thre_pending;
	bool overrun;
	bool starved;
	unsigned head, n;     /* ring: oldest byte, how many */
	uint8_t ring[RING_LEN];
};

static unsigned serial_depth(const struct serial *s)
{
	return s->fifo ? FIFO_LEN : 1;
}

/* What the host may still put in. */
static size_t serial_free(const struct serial *s)
{
	if (!(s->mcr & UART_MCR_RTS) || (s->mcr & UART_MCR_LOOP))
		return 0;
	return RING_LEN - s->n;
}

static void serial_put(struct serial *s, uint8_t byte)
{
	s->ring[(s->head + s->n++) % RING_LEN] = byte;
}

static uint8_t serial_get(struct serial *s)
{
	uint8_t byte;

	if (s->n == 0)
		return 0;
	byte = s->ring[s->head];
	s->head = (s->head + 1) % RING_LEN;
	s->n--;
	return byte;
}

/* The pending cause of highest priority, as IIR shows it (PC16550D, "Interrupt Identification"). */
static uint8_t serial_cause(const struct serial *s)
{
	if ((s->ier & UART_IER_RLSI) && s->overrun)
		return UART_IIR_RLSI;
	if ((s->ier & UART_IER_RDI) && s->n > 0)
		return s->fifo && s->n < s->trigger ? UART_IIR_RX_TIMEOUT : UART_IIR_RDI;
	if ((s->ier & UART_IER_THRI) && s->thre_pending)
		return UART_IIR_THRI;
	if ((s->ier & UART_IER_MSI) && s->msr_delta)
		return UART_IIR_MSI;
	return UART_IIR_NO_INT;
}

static void serial_raise(const struct serial *s)
{
	if (serial_cause(s) != UART_IIR_NO_INT)
		irq_signal(s->o.irq_fd);
}

/* Modem inputs: the terminal's, or in loopback the chip's own outputs. */
static uint8_t serial_modem(const struct serial *s)
{
	uint8_t msr = 0;

	if (!(s->mcr & UART_MCR_LOOP))
		return MSR_PEER;
	if (s->mcr & UART_MCR_RTS)
		msr |= UART_MSR_CTS;
	if (s->mcr & UART_MCR_DTR)
		msr |= UART_MSR_DSR;
	if (s->mcr & UART_MCR_OUT1)
		msr |= UART_MSR_RI;
	if (s->mcr & UART_MCR_OUT2)
		msr |= UART_MSR_DCD;
	return msr;
}

static void serial_set_mcr(struct serial *s, uint8_t value)
{
	uint8_t before = serial_modem(s), changed;

	s->mcr = value & (UART_MCR_DTR | UART_MCR_RTS | UART_MCR_OUT1 | UART_MCR_OUT2 |
			  UART_MCR_LOOP);
	changed = before ^ serial_modem(s);
	/* RI counts only when it ends; the others on every change.  Delta bits sit 4 below. */
	if (!(before & UART_MSR_RI))
		changed &= (uint8_t)~UART_MSR_RI;
	s->msr_delta |= changed >> 4;
}

static void serial_send(struct serial *s, uint8_t byte)
{
	s->thre_pending = true;
	if (!(s->mcr & UART_MCR_LOOP))
		s->o.out(s->o.out_ctx, &byte, 1);
	else if (s->n < serial_depth(s))
		serial_put(s, byte);
	else
		s->overrun = true;
}

static void serial_set_fcr(struct serial *s, uint8_t value)
{
	static const uint8_t level[] = { 1, 4, 8, 14 };
	bool fifo = value & UART_FCR_ENABLE_FIFO;

	/* Switching the FIFOs on or off clears them too. */
	if ((value & UART_FCR_CLEAR_RCVR) || fifo != s->fifo)
		for (unsigned i = serial_depth(s); i > 0; i--)
			(void)serial_get(s);
	s->fifo = fifo;
	s->trigger = fifo ? level[value >> 6] : 1;
}

static uint8_t serial_read_iir(struct serial *s)
{
	uint8_t iir = serial_cause(s);

	if (iir == UART_IIR_THRI)
		s->thre_pending = false; /* reading it is how a driver acknowledges it */
	if (s->fifo)
		iir |= 0xc0;
	return iir;
}

static uint8_t serial_read_lsr(struct serial *s)
{
	uint8_t lsr = UART_LSR_TEMT | UART_LSR_THRE;

	if (s->n > 0)
		lsr |= UART_LSR_DR;
	if (s->overrun)
		lsr |= UART_LSR_OE;
	s->overrun = false;
	return lsr;
}

static uint8_t serial_read_msr(struct serial *s)
{
	uint8_t msr = serial_modem(s) | s->msr_delta;

	s->msr_delta = 0;
	return msr;
}

/* Another FIFO's worth has come off the wire: news, should the driver have given up on the last. */
static uint8_t serial_read_rbr(struct serial *s)
{
	uint8_t byte = serial_get(s);

	if (s->n % FIFO_LEN == 0)
		serial_raise(s);
	return byte;
}

static uint8_t serial_read_reg(struct serial *s, unsigned reg)
{
	bool dlab = s->lcr & UART_LCR_DLAB;

	switch (reg) {
	case UART_RX:
		return dlab ? s->dll : serial_read_rbr(s);
	case UART_IER:
		return dlab ? s->dlm : s->ier;
	case UART_IIR:
		return serial_read_iir(s);
	case UART_LCR:
		return s->lcr;
	case UART_MCR:
		return s->mcr;
	case UART_LSR:
		return serial_read_lsr(s);
	case UART_MSR:
		return serial_read_msr(s);
	default:
		return s->scr;
	}
}

static void serial_set_ier(struct serial *s, uint8_t value)
{
	value &= UART_IER_MSI | UART_IER_RLSI | UART_IER_THRI | UART_IER_RDI;
	/* Drivers count on this edge: THR is empty, so enabling the cause makes it pending. */
	if ((value & UART_IER_THRI) && !(s->ier & UART_IER_THRI))
		s->thre_pending = true;
	s->ier = value;
}

static void serial_write_reg(struct serial *s, unsigned reg, uint8_t value)
{
	bool dlab = s->lcr & UART_LCR_DLAB;

	switch (reg) {
	case UART_TX:
		if (dlab)
			s->dll = value;
		else
			serial_send(s, value);
		break;
	case UART_IER:
		if (dlab)
			s->dlm = value;
		else
			serial_set_ier(s, value);
		break;
	case UART_FCR:
		serial_set_fcr(s, value);
		break;
	case UART_LCR:
		s->lcr = value;
		break;
	case UART_MCR:
		serial_set_mcr(s, value);
		break;
	case UART_SCR:
		s->scr = value;
		break;
	default:
		break; /* LSR and MSR are read-only */
	}
}

/* Is the room callback due?  Half the ring is waited for, so that a slow reader is not woken per byte. */
static bool serial_take_owed(struct serial *s)
{
	if (!s->starved || serial_free(s) < RING_LEN / 2)
		return false;
	s->starved = false;
	return s->o.room != NULL;
}

/* A wide access covers the neighbouring registers, as on an 8-bit bus; gaps read as 0. */
static void serial_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	struct serial *s = ctx;
	uint8_t *to = p;
	bool owed;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < len; i++, off++) {
		bool gap = off & ((1u << s->o.shift) - 1);

		to[i] = gap ? 0 : serial_read_reg(s, (unsigned)(off >> s->o.shift));
	}
	owed = serial_take_owed(s);
	pthread_mutex_unlock(&s->lock);
	if (owed)
		s->o.room(s->o.room_ctx);
}

static void serial_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	const uint8_t *from = p;
	struct serial *s = ctx;
	bool owed;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < len; i++, off++)
		if (!(off & ((1u << s->o.shift) - 1)))
			serial_write_reg(s, (unsigned)(off >> s->o.shift), from[i]);
	serial_raise(s);
	owed = serial_take_owed(s);
	pthread_mutex_unlock(&s->lock);
	if (owed)
		s->o.room(s->o.room_ctx);
}

void serial_reset(struct serial *s)
{
	s->ier = s->lcr = s->mcr = s->scr = s->dlm = s->msr_delta = 0;
	s->dll = 12; /* 9600 */
	s->fifo = s->thre_pending = s->overrun = false;
	s->trigger = 1;
	s->head = s->n = 0;
}

int serial_create(const struct serial_opts *o, struct serial **out)
{
	struct bus_range range = {
		.base = o->base, .len = (uint64_t)N_REGS << o->shift,
		.read = serial_read, .write = serial_write,
	};
	struct serial *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->o = *o;
	pthread_mutex_init(&s->lock, NULL);
	serial_reset(s);
	range.ctx = s;
	err = bus_add(o->bus, &range);
	if (err) {
		serial_destroy(s);
		return err;
	}
	*out = s;
	return 0;
}

void serial_destroy(struct serial *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	free(s);
}

size_t serial_input(struct serial *s, const void *p, size_t len)
{
	const uint8_t *from = p;
	size_t n;

	pthread_mutex_lock(&s->lock);
	n = MIN(len, serial_free(s));
	for (size_t i = 0; i < n; i++)
		serial_put(s, from[i]);
	if (n < len)
		s->starved = true;
	if (n > 0)
		serial_raise(s);
	pthread_mutex_unlock(&s->lock);
	return n;
}

size_t serial_room(struct serial *s)
{
	size_t room;

	pthread_mutex_lock(&s->lock);
	room = serial_free(s);
	if (room == 0)
		s->starved = true;
	pthread_mutex_unlock(&s->lock);
	return room;
}
