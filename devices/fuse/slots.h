/*
 * Tables of objects that a guest names by number: nodes and open files.
 *
 * An id is (generation << 32 | index).  An object lives in a slot; slots are never freed before the
 * table is, so any number a guest invents leads to a slot or to nothing, and a number whose object
 * is gone fails the generation test.  Looking an id up takes no lock: slot->state holds the
 * generation and the pins in one word, and a pin is one compare-and-swap on it.
 *
 * Life of a slot: free -> slots_new (generation raised, no pins: ids of it still fail) ->
 * slot_publish (one pin, the base pin) -> pinned and unpinned by requests -> the base pin is
 * dropped by whoever ends the object -> the last unpin returns true, that caller tears the object
 * down -> slots_free.
 *
 * Slots belong to shards, so that threads that open and close do not meet on one lock.  The shard
 * lock is a leaf; no file system call is made under it.
 */
#ifndef DEVICES_FUSE_SLOTS_H
#define DEVICES_FUSE_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOT_SHARDS     64 /* power of two; low bits of an index */
#define SLOTS_PER_CHUNK 64 /* in a shard's first; each further one is twice as long */
#define SLOT_CHUNKS     13 /* per shard; 33 million objects in all */

struct slot {
	_Atomic uint64_t state; /* generation << 32 | owned << 31 | pins */
	uint32_t index;
	uint32_t next_free; /* number of the shard's next free slot + 1; under its lock */
};

struct slot_shard {
	pthread_mutex_t lock;
	uint32_t made;                      /* slots that exist */
	uint32_t free;                      /* number of the first free slot + 1, or 0 */
	_Atomic(char *) chunk[SLOT_CHUNKS]; /* set once, never changed */
};

struct slots {
	size_t size; /* of an object; its first member is struct slot */
	struct slot_shard *shard;
};

int slots_init(struct slots *t, size_t size); /* 0 or -ENOMEM */
void slots_destroy(struct slots *t);          /* objects are the caller's to tear down first */

static inline unsigned slot_shard_of(uint32_t index)
{
	return index % SLOT_SHARDS;
}

static inline uint64_t slot_id(const struct slot *slot)
{
	uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);

	return (state & ~(uint64_t)UINT32_MAX) | slot->index;
}

/* A free slot of the shard, or NULL (memory, or table full).  Under the shard lock. */
struct slot *slots_new(struct slots *t, unsigned shard);

/* From here on the id finds the object. */
void slot_publish(struct slot *slot);

/* The object, pinned, or NULL. */
struct slot *slots_pin(struct slots *t, uint64_t id);

/* True for the last pin: the caller owns the object now and ends with slots_free. */
bool slot_unpin(struct slot *slot);

void slots_free(struct slots *t, struct slot *slot);        /* takes the shard lock */
void slots_free_locked(struct slots *t, struct slot *slot); /* under the shard lock */

/*
 * An object can be owned for a moment by one that has pinned it, while nobody else but the base pin
 * is there; to take from it what others use while they have it pinned.  Who pins it meanwhile sees
 * that it is owned, and leaves that alone.
 *
 * slot_own: with the caller's pin and the base pin, which the caller makes sure cannot be dropped
 * just now.  False: others are there.
 */
bool slot_own(struct slot *slot);
void slot_disown(struct slot *slot);

#define SLOT_OWNED ((uint64_t)1 << 31)

/* After pinning it.  False: nobody owns it until the caller unpins it. */
static inline bool slot_is_owned(const struct slot *slot)
{
	/* Pairs with slot_disown: what the owner has taken is seen to be gone. */
	return atomic_load_explicit(&slot->state, memory_order_acquire) & SLOT_OWNED;
}

/* The index-th object whatever its generation, pinned, or NULL.  For walks over all. */
struct slot *slots_pin_index(struct slots *t, uint32_t index);

/* One more than the highest slot number in use in a shard; index = number * SLOT_SHARDS + shard. */
uint32_t slots_made(struct slots *t, unsigned shard);

#endif
