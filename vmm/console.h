/*
 * Where the kernel's console goes: to a file, to standard error, to a terminal, or nowhere; and what it
 * said last.  vCPU threads push bytes and never wait; main's loop writes them out when the sink takes
 * them.  When a slow sink leaves no room the newest bytes are lost (and counted), but all are looked at.
 *
 * The kernel's last words decide how a run without a status ended, since a kernel that has panicked or
 * halted does not stop its vCPUs in a way KVM reports.  Any program in the guest can print the same
 * words.  So the words alone end nothing: what counts is that nothing at all comes after them.
 */
#ifndef VMM_CONSOLE_H
#define VMM_CONSOLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/loop.h"
#include "vmm/stream.h"

#define CONSOLE_RING 65536 /* power of two: a fast guest against a sink that pauses */
#define CONSOLE_TAIL 4096  /* what console_show_tail can show: a panic with its trace */

/* The end of what was printed so far. */
enum console_word {
	CONSOLE_ALIVE,
	CONSOLE_PANICKED, /* "---[ end Kernel panic": the kernel stays as it is, and prints no more */
	CONSOLE_HALTED,   /* "reboot: System halted" */
};

struct console {
	void (*last_word)(void *ctx); /* on main: console_last_word may say something new */
	void *ctx;

	pthread_mutex_t lock; /* guards what follows, up to the line */
	uint8_t ring[CONSOLE_RING];
	uint32_t head, tail; /* free-running: written at head by vCPUs, read at tail by main */
	uint64_t lost;
	char last[CONSOLE_TAIL];
	uint32_t last_len; /* free-running count of bytes seen */
	char line[160];
	unsigned line_len;
	bool returned; /* the last byte was a carriage return */
	enum console_word word;
	char panic[128]; /* why the kernel panicked; "" = it has not */

	struct watch wake; /* eventfd: there is something for main */

	/* main only */
	struct loop *loop;
	struct stream stream;
	struct watch sink; /* EPOLLOUT while bytes wait */
};

/* fd stays the caller's; -1 = no sink.  0 or -errno. */
int console_init(struct console *c, struct loop *loop, int fd);
void console_destroy(struct console *c);

/* Bytes from the guest's UART.  vCPU threads; never blocks on the sink. */
void console_push(void *console, const void *p, size_t len);

/* What the guest's kernel has said with nothing behind it. */
enum console_word console_last_word(struct console *c);
/* Why the kernel panicked, if it reported that, and no orderly restart or power off after it; else NULL.
 * main, after the VM ended. */
const char *console_panic(const struct console *c);
/* The guest starts anew: its words are not those of the one before. */
void console_forget(struct console *c);

/* Write out what waits, for at most about a second; says when bytes were lost.  main, after the VM ended. */
void console_flush(struct console *c);

/* The last n lines to standard error, each prefixed.  main, after the VM ended. */
void console_show_tail(const struct console *c, unsigned n);

#endif
