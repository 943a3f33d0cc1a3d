/*
 * virtio-fs device (virtio 1.2, "File System Device"): queue 0 is hiprio, queues 1..n carry
 * requests.  It moves requests between rings and a file server, and knows nothing of FUSE but the
 * header length; the server knows nothing of rings.
 */
#ifndef DEVICES_FS_H
#define DEVICES_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "devices/virtio.h"
#include "vmm/iov.h"

struct fs_request;

/*
 * What serves the requests of a device.  Functions run on the thread of the queue that the request
 * came from; worker is that queue's own state from worker_create.
 */
struct fs_server {
	/* Once on each new I/O thread, before it parks: credentials, cwd, umask.  0 or -errno.
	 * NULL ok. */
	int (*thread_start)(void *server);
	/* The same on a helper thread i of fs_opts.helpers, which then runs loop.  NULL: no helpers. */
	int (*helper_start)(void *server, unsigned i, struct loop *loop);
	/*
	 * Serve one request: read it from in, write the reply (fuse_out_header first) to out.
	 * Returns the reply's length, 0 for a request without reply (FORGET), FS_LATER when the
	 * server keeps r and will call fs_complete(r, len) later on the same thread, or -EPROTO
	 * when the request is too short to be answered at all (its head goes back with length 0).
	 */
	ssize_t (*serve)(void *server, void *worker, struct fs_request *r, struct cursor *in,
			 struct cursor *out);
	/*
	 * Will this request be answered, or put off, within microseconds, whatever it turns out to
	 * be?  A hint: the guest is then told of earlier replies a little later.  NULL: none will.
	 */
	bool (*quick)(void *server, void *worker, const struct cursor *in);
	/* After FS_LATER: r has memory of its own from here on, and other threads may read and write
	 * what its cursors name.  NULL ok. */
	void (*kept)(void *server, void *worker, struct fs_request *r);
	/* On the queue's thread when the device starts; loop is the thread's.  NULL worker is
	 * allowed. */
	int (*worker_begin)(void *server, void *worker, struct loop *loop);
	/* On the queue's thread when the device stops: give up every kept request (the ring goes
	 * away; do not complete them; nothing may touch their buffers after this), unwatch
	 * everything. */
	void (*worker_end)(void *server, void *worker);
	/* All queues parked (driver reset, umount by reset): forget all nodes and handles. */
	void (*reset)(void *server);
};

#define FS_LATER (-(ssize_t)4095)

/* Complete a kept request.  On the thread that served it.  len as serve would have returned. */
void fs_complete(struct fs_request *r, ssize_t len);
/* Any thread: cursors of a kept request, as they stood when serve was called.  After serve has returned
 * FS_LATER the cursors it was given are void: their segments have moved here. */
void fs_request_cursors(const struct fs_request *r, struct cursor *in, struct cursor *out);

struct fs_opts {
	const char *name;       /* "fs0" */
	const char *tag;        /* 1..36 bytes */
	unsigned queues;        /* request queues, 1..64 */
	uint16_t ring;          /* 0 = 1024 */
	bool one_thread;        /* all queues on one I/O thread */
	unsigned helpers;       /* threads of the server's own use */
	const struct fs_server *ops;
	void *server;           /* not owned */
	void **workers;         /* queues + 1 entries, [0] = hiprio; not owned */
};

/* *out: ready for virtio_dev_launch.  0 or -errno. */
int fs_create(const struct fs_opts *o, const struct mem *mem, struct virtio_dev **out);

/* For virtio_dev_launch of such a device: lets the server prepare the thread (thread_start). */
int fs_thread_start(struct iothread *t);

#endif
