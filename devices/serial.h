/*
 * One 16550A UART (National Semiconductor PC16550D), by port or MMIO.
 *
 * Threads: register accesses come from vCPU threads, serial_input() and serial_room() from the thread
 * that reads the host's side; one mutex inside.  The out callback runs on a vCPU thread with that
 * mutex held: it must not block and must not call back into the UART.
 */
#ifndef DEVICES_SERIAL_H
#define DEVICES_SERIAL_H

#include <stddef.h>
#include <stdint.h>

struct bus;
struct serial;

struct serial_opts {
	struct bus *bus;  /* the ports or MMIO bus; needed until the bus is destroyed */
	uint64_t base;
	unsigned shift;   /* registers are 1 << shift bytes apart */
	int irq_fd;       /* eventfd, written for each interrupt (edge); not owned */
	/* The guest sent len bytes. */
	void (*out)(void *out_ctx, const void *p, size_t len);
	void *out_ctx;
	/* There is room again after serial_input() took less than it was given, or serial_room() was 0.
	 * On a vCPU thread, no lock held.  May be NULL. */
	void (*room)(void *room_ctx);
	void *room_ctx;
};

/* 0, -ENOMEM, or bus_add()'s error. */
int serial_create(const struct serial_opts *o, struct serial **out);
/* vCPUs stopped.  NULL is fine. */
void serial_destroy(struct serial *s);
/* Back to power-on: for a guest reset.  vCPUs stopped. */
void serial_reset(struct serial *s);

/*
 * Bytes from the host for the guest; how many were taken.  None are while the guest does not ask for
 * any (RTS off: no driver has opened the line), so what is typed early waits at the host.
 */
size_t serial_input(struct serial *s, const void *p, size_t len);
size_t serial_room(struct serial *s);

#endif
