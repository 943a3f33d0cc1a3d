/*
 * Where the kernel's console goes: to a file, to standard error, to a terminal, or nowhere; and what it
 * said last.  vCPU threads push bytes and never wait; main's loop writes them out when the sink takes
 * them.  When a slow sink leaves no room the newest bytes are lost (and counted).
 *
 * The kernel's last words decide how a run without a status ended: "Kernel panic - not syncing" and
 * "System halted" are looked for in the stream, since neither stops the vCPUs in a way KVM reports.
 */
#ifndef VMM_CONSOLE_H
#define VMM_CONSOLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/loop.h"

#define CONSOLE_RING 65536 /* power of two: a fast guest against a sink that pauses */
#define CONSOLE_TAIL 4096  /* what console_show_tail can show: a panic with its trace */

enum console_event { CONSOLE_PANIC, CONSOLE_HALT };

struct console {
	int fd;      /* sink; -1 = none.  Not owned. */
	void (*event)(void *ctx, enum console_event e); /* on main */
	void *ctx;

	pthread_mutex_t lock; /* guards ring and lost */
	uint8_t ring[CONSOLE_RING];
	uint32_t head, tail; /* free-running: written at head by vCPUs, read at tail by main */
	uint64_t lost;
	struct watch wake; /* eventfd: ring was empty and no longer is */

	/* main only */
	struct loop *loop;
	struct watch sink; /* EPOLLOUT on fd while bytes wait */
	bool sink_polls;   /* epoll takes fd (pipes, terminals); regular files do not */
	char last[CONSOLE_TAIL];
	uint32_t last_len; /* free-running count of bytes seen */
	char line[160];
	unsigned line_len;
};

int console_init(struct console *c, struct loop *loop, int fd);
void console_destroy(struct console *c);

/* Bytes from the guest's UART.  vCPU threads; never blocks on the sink. */
void console_push(void *console, const void *p, size_t len);

/* Write out what waits, for at most about a second.  main, after the VM ended. */
void console_flush(struct console *c);

/* The last n lines to standard error, each prefixed.  main. */
void console_show_tail(const struct console *c, unsigned n);

#endif
