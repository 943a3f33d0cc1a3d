/*
 * The guest's console input, from our own standard input: a terminal, a pipe or a file.
 *
 * The UART takes bytes when its driver asks for some.  From a pipe or a file no more is read than it can
 * take; a terminal in raw mode is read on for the way out, Ctrl-A x, and what there is no room for is lost.
 * All on main but run_input_room.
 */
#ifndef VMM_RUN_INPUT_H
#define VMM_RUN_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/loop.h"
#include "vmm/stream.h"

struct run_input {
	size_t (*type)(void *ctx, const void *p, size_t len); /* returns the bytes the UART took */
	void (*quit)(void *ctx);                              /* Ctrl-A x */
	void *ctx;

	struct loop *loop;
	struct stream stream;
	struct watch typed, room;
	bool raw, escape, ended;
	char buf[256]; /* what the UART did not take yet */
	size_t len;
};

/* in holds zeroes and the callbacks; fd stays the caller's.  0 or -errno. */
int run_input_open(struct run_input *in, struct loop *loop, int fd);
/* Begin to read.  raw: the terminal's keys come as they are, Ctrl-A among them. */
void run_input_start(struct run_input *in, bool raw);
/* The UART has room again.  Any thread. */
void run_input_room(struct run_input *in);
/* Harmless when never opened. */
void run_input_close(struct run_input *in);

#endif
