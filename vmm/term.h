/*
 * The terminal heddle runs in: raw while a guest has it, put back in every way heddle ends.
 * main thread only.
 */
#ifndef VMM_TERM_H
#define VMM_TERM_H

#include <stdbool.h>
#include <termios.h>

struct term {
	int fd;
	bool raw;
	struct termios saved;
};

/* Make fd (a terminal) raw.  0 or -errno. */
int term_raw(struct term *t, int fd);
/* Put it back; harmless when it is not raw. */
void term_restore(struct term *t);
/* Rows and columns; false when fd is no terminal. */
bool term_size(int fd, unsigned *rows, unsigned *cols);

#endif
