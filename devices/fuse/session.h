/*
 * The file server: FUSE requests in, replies out, on a directory of the host (kernel FUSE protocol
 * 7.x, linux/fuse.h).  Knows nothing of rings or of a VM: the same code answers a virtqueue, a real
 * /dev/fuse mount in tests, and a fuzzer.
 *
 * A session is device-wide: a node id or handle from one queue is valid on all.  Each queue has a
 * worker of its own, used by that queue's thread only.
 */
#ifndef DEVICES_FUSE_SESSION_H
#define DEVICES_FUSE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "devices/fuse/choices.h"
#include "vmm/iov.h"

struct fuse_session;
struct fuse_worker;

enum fuse_cache { FUSE_CACHE_AUTO, FUSE_CACHE_NONE, FUSE_CACHE_ALWAYS };
enum fuse_locks { FUSE_LOCKS_LOCAL, FUSE_LOCKS_HOST };

struct fuse_opts {
	const char *path; /* directory that is shared; opened at creation */
	bool readonly;    /* every change answers EROFS */
	enum fuse_cache cache;
	enum fuse_locks locks; /* local: the guest's kernel keeps them to itself */
	struct fuse_choices choices; /* that go together: fuse_choices_check() */
	unsigned workers; /* lanes */
	unsigned helpers; /* see pool.h; 0: every request is served where it comes in */
	uint32_t max_write; /* bytes; 0 = 1 MiB */
	/*
	 * Mounts below the path are mounts in the guest, too.  Each stays busy on the host for as
	 * long as the guest has it mounted.
	 */
	bool submounts;
	bool by_name;       /* no file handles, as on a host without; for tests */
};

/*
 * What fuse_serve() says beside -errno, both with nothing done.  On a lane of a session with helpers:
 * serving would take long, hand it on (pool.h).  On a helper: not now, ask again in a while.
 */
#define FUSE_SLOW  (-(ssize_t)4094)
#define FUSE_AGAIN (-(ssize_t)4093)

/*
 * 0 or -errno (-ENOTDIR for a path that is no directory); *out is the caller's to destroy.  In the
 * process that will serve, after the limit on descriptors is set.  SIGXFSZ must be ignored there,
 * or a guest that writes beyond RLIMIT_FSIZE ends it.
 */
int fuse_session_create(const struct fuse_opts *o, struct fuse_session **out);
void fuse_session_destroy(struct fuse_session *s);

/* Worker i of 0..workers-1, and that of helper i of 0..helpers-1.  Owned by the session. */
struct fuse_worker *fuse_session_worker(struct fuse_session *s, unsigned i);
struct fuse_worker *fuse_session_helper(struct fuse_session *s, unsigned i);

/*
 * Prepare the calling thread to serve: umask and working directory of its own (CLONE_FS; the
 * directory becomes /proc/self/fd), no supplementary groups, few capabilities (cred.h).  Once on
 * every thread that serves, before the first request; again is harmless.  0 or -errno.
 */
int fuse_thread_init(struct fuse_session *s);

/*
 * Serve one request from in, reply to out (struct fuse_out_header first); the caller's cursors do
 * not move.  Returns the length of the reply, 0 for requests without one (FORGET...), or -EPROTO
 * for a request too short to be answered, or with no room for an answer.  A host error becomes a
 * FUSE error reply, never a negative return.  Or FUSE_SLOW or FUSE_AGAIN, which are no errors.
 */
ssize_t fuse_serve(struct fuse_session *s, struct fuse_worker *w, struct cursor *in,
		   struct cursor *out);

/*
 * Will fuse_serve() be done with this request within microseconds?  Only a hint: the guest may
 * change the request meanwhile.
 */
bool fuse_is_quick(const struct fuse_worker *w, const struct cursor *in);

/* The same on a lane, but wait as a helper would, and for a lock not at all. */
ssize_t fuse_serve_waiting(struct fuse_session *s, struct fuse_worker *w, struct cursor *in,
			   struct cursor *out);

/*
 * Forget every node and handle but the root, as after an unmount; nothing is served until the next
 * INIT.  Requests in hand on other threads finish on what they hold.
 */
void fuse_session_reset(struct fuse_session *s);

#endif
