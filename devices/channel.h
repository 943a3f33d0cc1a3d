/*
 * heddle's end of the channel to its guest agent (guest-images/init/channel.h says what the files
 * mean): a file server for a virtio-fs device with the tag CHANNEL_TAG, one request queue and one
 * I/O thread.
 *
 * Threads: created and destroyed by main; served on the device's I/O thread; channel_signal(),
 * channel_winsize() and channel_connected() may be called from any thread and from signal handlers.
 */
#ifndef DEVICES_CHANNEL_H
#define DEVICES_CHANNEL_H

#include <stdbool.h>

#include "devices/fs.h"
#include "guest-images/init/channel.h"

struct channel;

struct channel_opts {
	/* Stay the caller's, who leaves their flags alone; -1 or not open: end of file, EBADF. */
	int stdin_fd, stdout_fd, stderr_fd;
	/*
	 * On the I/O thread.  on_ready (may be NULL): the command runs, channel_connected() is
	 * true.
	 */
	void (*on_ready)(void *ctx);
	/*
	 * The agent's last word, once; kind is valid, text printable and terminated.  All output
	 * the command wrote has been written before.
	 */
	void (*on_status)(void *ctx, const struct channel_status *s);
	void *ctx;
};

#define CHANNEL_WORKERS 2 /* hiprio, one request queue */

/* 0 or -errno. */
int channel_create(const struct channel_opts *o, struct channel **out);
/* With the device gone.  NULL is fine. */
void channel_destroy(struct channel *c);

/* For struct fs_opts: .ops = &channel_fs_server, .server = c, .workers filled by channel_workers(),
 * .queues = 1, .one_thread = true. */
extern const struct fs_server channel_fs_server;
void channel_workers(struct channel *c, void *workers[CHANNEL_WORKERS]);

/* A guest has mounted the share: it has an agent, which will report. */
bool channel_mounted(const struct channel *c);
/* The agent waits for events: it has started the command and will pass signals on. */
bool channel_connected(const struct channel *c);

/*
 * Pass a signal (1..64) or the terminal's size to the command.  Both coalesce until the agent takes
 * them: a signal is pending once, the last size counts; stop signals and SIGCONT cancel each other,
 * as in the kernel.  The signal with the lowest number goes first.
 */
void channel_signal(struct channel *c, int sig);
void channel_winsize(struct channel *c, unsigned rows, unsigned columns);

#endif
