/* Terminal: see term.h. */
#include "vmm/term.h"

#include <errno.h>
#include <sys/ioctl.h>

int term_raw(struct term *t, int fd)
{
	struct termios raw;

	t->fd = fd;
	if (tcgetattr(fd, &t->saved))
		return -errno;
	raw = t->saved;
	cfmakeraw(&raw);
	/* TCSADRAIN: what was printed before still goes out as it was meant. */
	if (tcsetattr(fd, TCSADRAIN, &raw))
		return -errno;
	t->raw = true;
	return 0;
}

void term_restore(struct term *t)
{
	if (t->raw)
		tcsetattr(t->fd, TCSADRAIN, &t->saved);
	t->raw = false;
}

bool term_size(int fd, unsigned *rows, unsigned *cols)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size))
		return false;
	*rows = size.ws_row;
	*cols = size.ws_col;
	return true;
}
