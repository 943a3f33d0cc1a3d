/*
 * Credentials of a serving thread.
 *
 * The guest's kernel has checked permissions before a request is sent (virtiofs mounts imply
 * default_permissions), so the server does not check again: it has to give new files the owner,
 * group and mode they would have on a local file system, and to let the host drop set-id bits when
 * and only when the guest's kernel would.  Both depend on the credentials of the calling thread,
 * which Linux keeps per thread (libc's wrappers change all threads; only raw system calls are used
 * here).
 *
 * Between requests a thread has the server's own user and group.  Its umask, its CAP_FSETID and its group for changes stay
 * as the last request needed them, so that a run of like requests pays nothing.
 */
#ifndef DEVICES_FUSE_CRED_H
#define DEVICES_FUSE_CRED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Who asks, from the request header. */
struct cred {
	uint32_t uid, gid; /* in the host's numbers; UINT32_MAX: he has none here */
	bool root;         /* to the guest's kernel */
	bool exact;        /* what cannot be made his may not be made */
	bool has_group;    /* a further group: the parent directory's, when he is in it */
	uint32_t group;
};

/*
 * Once on each serving thread, before the first request; again is harmless.  For good: the thread
 * keeps only the capabilities that serving takes, and its group is 0 when it can become other
 * users.  0 or -errno.
 */
int cred_thread_init(void);

/*
 * Create as this caller: user, group, umask, no CAP_FSETID unless he is root.  Without the right to
 * change users (server not run by root) files belong to the server's user, and an exact caller must be
 * that.  0, -EPERM for ids that do not exist here, or other -errno; pair with cred_leave() only
 * after 0.
 */
int cred_enter(const struct cred *c, uint32_t mask);
void cred_leave(const struct cred *c);

/* Does this thread keep set-id bits when it changes modes and owners? */
void cred_keep_setid(bool keep);

/*
 * The same for what changes a file's bytes or length.  by_group: the host may keep a set-group-id bit
 * without execution by the group, as it does for those who are in the file's group; of the caller's
 * groups only his first is known.
 */
void cred_change(const struct cred *c, bool keep, bool by_group);

#endif
