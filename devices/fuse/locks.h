/*
 * Locks that the guest holds on the host's files: the table behind ops_lock.c (locks=host).
 *
 * An entry is an owner's locks of one kind on one node, and the descriptor that holds them for him:
 * POSIX locks as OFD locks, flock as flock.  Such locks end with their descriptor, and exclude
 * between descriptors; so owners, sessions and processes of the host exclude each other.
 */
#ifndef DEVICES_FUSE_LOCKS_H
#define DEVICES_FUSE_LOCKS_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fuse_session;
struct lock_entry;

#define LOCK_BUCKETS 256

struct locks {
	_Atomic uint32_t n_entries, bounds; /* bounds: sum of those of entries */
	struct lock_bucket {
		pthread_mutex_t lock;
		struct lock_entry *first;
	} bucket[LOCK_BUCKETS]; /* by node */
};

/* Whose.  The owner is a number of the guest's: a process, or for flock an open file. */
struct lock_key {
	uint64_t node; /* id, pinned by the caller while he adds an entry */
	uint64_t owner;
	bool flock;
};

/* An entry in use by a request. */
struct lock_use {
	struct lock_entry *e;
	int fd;
	uint32_t added; /* to the bound on its locks, by this use */
	bool alone;     /* no other request had it */
	uint64_t n_uses;
};

/* How a use ended: what is known of the entry's locks now.  Or a number: they are so many. */
#define LOCKS_UNKNOWN (-1)
#define LOCKS_AS_WERE (-2)
#define LOCKS_AWAITED (-3) /* as they were, and the owner will ask again: keep the descriptor */

int locks_create(struct fuse_session *s); /* 0 or -ENOMEM */
void locks_destroy(struct fuse_session *s);

/* The entry, for a request that may add as many locks to it; false: there is none. */
bool lock_get(struct fuse_session *s, const struct lock_key *key, uint32_t add, struct lock_use *u);
/* The same with a new one, on fd (of fd_taken), which is given away.  0 or -ENOLCK. */
int lock_enter(struct fuse_session *s, const struct lock_key *key, uint32_t add, int fd,
	       struct lock_use *u);
/* An entry without locks goes. */
void lock_put(struct fuse_session *s, struct lock_use *u, int known);
/* Note who asked for a lock, through which handle. */
void lock_note(struct fuse_session *s, struct lock_use *u, uint32_t pid, uint64_t fh);

/* 0, or -ENOLCK: the entry or the session has as many as may be.  Counts where that is in doubt. */
int lock_room(struct fuse_session *s, struct lock_use *u, bool unlocks, int *known);
/* Which process of the guest has this POSIX lock on the node; 0 when that is not known. */
uint32_t lock_pid(struct fuse_session *s, uint64_t node, const struct flock *lock);

/* All locks of the key; those taken through a handle; on a node; all.  Cheap when there are none. */
void locks_end(struct fuse_session *s, const struct lock_key *key);
void locks_end_handle(struct fuse_session *s, uint64_t node, uint64_t fh);
void locks_end_node(struct fuse_session *s, uint64_t node);
void locks_end_all(struct fuse_session *s);

#endif
