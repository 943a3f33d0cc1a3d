/* Tables of objects that a guest names by number: see slots.h. */
#include "devices/fuse/slots.h"

#include <errno.h>
#include <stdlib.h>

#define GENERATION_ONE   ((uint64_t)1 << 32)
#define GENERATION(word) ((word) & ~(GENERATION_ONE - 1))
#define PINS(word)       ((uint32_t)(word) & ~(uint32_t)SLOT_OWNED)

int slots_init(struct slots *t, size_t size)
{
	t->size = size;
	t->shard = calloc(SLOT_SHARDS, sizeof(*t->shard));
	if (!t->shard)
		return -ENOMEM;
	for (unsigned i = 0; i < SLOT_SHARDS; i++)
		pthread_mutex_init(&t->shard[i].lock, NULL);
	return 0;
}

void slots_destroy(struct slots *t)
{
	for (unsigned i = 0; t->shard && i < SLOT_SHARDS; i++) {
		struct slot_shard *shard = &t->shard[i];

		for (unsigned k = 0; k < SLOT_CHUNKS; k++)
			free(atomic_load(&shard->chunk[k]));
		pthread_mutex_destroy(&shard->lock);
	}
	free(t->shard);
	t->shard = NULL;
}

/* Chunk k holds SLOTS_PER_CHUNK << k slots, from this number on. */
static uint32_t chunk_start(unsigned k)
{
	return SLOTS_PER_CHUNK * ((1u << k) - 1);
}

static unsigned chunk_of(uint32_t number)
{
	return 31 - (unsigned)__builtin_clz(number / SLOTS_PER_CHUNK + 1);
}

/* The slot of an index, or NULL when it was never made. */
static struct slot *slots_at(struct slots *t, uint32_t index)
{
	struct slot_shard *shard = &t->shard[slot_shard_of(index)];
	uint32_t number = index / SLOT_SHARDS;
	unsigned k = chunk_of(number);
	char *chunk;

	if (k >= SLOT_CHUNKS)
		return NULL;
	/* Pairs with the release in slots_grow: the zeroed chunk is seen before its address. */
	chunk = atomic_load_explicit(&shard->chunk[k], memory_order_acquire);
	if (!chunk)
		return NULL;
	return (struct slot *)(void *)(chunk + (size_t)(number - chunk_start(k)) * t->size);
}

static struct slot *slots_grow(struct slots *t, unsigned at)
{
	struct slot_shard *shard = &t->shard[at];
	uint32_t number = shard->made;
	unsigned k = chunk_of(number);
	struct slot *slot;

	if (k >= SLOT_CHUNKS)
		return NULL;
	if (number == chunk_start(k)) {
		char *chunk = calloc((size_t)SLOTS_PER_CHUNK << k, t->size);

		if (!chunk)
			return NULL;
		atomic_store_explicit(&shard->chunk[k], chunk, memory_order_release);
	}
	shard->made++;
	slot = slots_at(t, number * SLOT_SHARDS + at);
	slot->index = number * SLOT_SHARDS + at;
	return slot;
}

struct slot *slots_new(struct slots *t, unsigned at)
{
	struct slot_shard *shard = &t->shard[at];
	struct slot *slot;
	uint64_t word;

	if (shard->free) {
		slot = slots_at(t, (shard->free - 1) * SLOT_SHARDS + at);
		shard->free = slot->next_free;
	} else {
		slot = slots_grow(t, at);
		if (!slot)
			return NULL;
	}
	/* Generation 0 is never in use: an id of it would be a bare index, as the root's 1 is. */
	word = atomic_load_explicit(&slot->state, memory_order_relaxed);
	word = GENERATION(word) + GENERATION_ONE;
	atomic_store_explicit(&slot->state, word ? word : GENERATION_ONE, memory_order_relaxed);
	return slot;
}

void slot_publish(struct slot *slot)
{
	/* Pairs with the acquire in slots_pin: the object is seen complete by whoever pins it. */
	atomic_fetch_add_explicit(&slot->state, 1, memory_order_release);
}

/* Pin slot if it is alive and, when check is set, of the given generation. */
static struct slot *slot_pin(struct slot *slot, bool check, uint64_t generation)
{
	uint64_t word;

	if (!slot)
		return NULL;
	word = atomic_load_explicit(&slot->state, memory_order_relaxed);
	do {
		if (PINS(word) == 0 || (check && GENERATION(word) != generation))
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(
		&slot->state, &word, word + 1, memory_order_acquire, memory_order_relaxed));
	return slot;
}

struct slot *slots_pin(struct slots *t, uint64_t id)
{
	return slot_pin(slots_at(t, (uint32_t)id), true, GENERATION(id));
}

struct slot *slots_pin_index(struct slots *t, uint32_t index)
{
	return slot_pin(slots_at(t, index), false, 0);
}

bool slot_unpin(struct slot *slot)
{
	/* Release: our use ends before the teardown; acquire: the teardown sees everyone's use. */
	return PINS(atomic_fetch_sub_explicit(&slot->state, 1, memory_order_acq_rel)) == 1;
}

bool slot_own(struct slot *slot)
{
	uint64_t word = atomic_load_explicit(&slot->state, memory_order_relaxed);

	/* Acquire: pairs with the release in slot_unpin, all that others did is seen. */
	return !(word & SLOT_OWNED) && PINS(word) == 2 &&
	       atomic_compare_exchange_strong_explicit(&slot->state, &word, word | SLOT_OWNED,
						       memory_order_acquire, memory_order_relaxed);
}

void slot_disown(struct slot *slot)
{
	/* Pairs with slot_is_owned. */
	atomic_fetch_and_explicit(&slot->state, ~SLOT_OWNED, memory_order_release);
}

void slots_free_locked(struct slots *t, struct slot *slot)
{
	struct slot_shard *shard = &t->shard[slot_shard_of(slot->index)];

	slot->next_free = shard->free;
	shard->free = slot->index / SLOT_SHARDS + 1;
}

void slots_free(struct slots *t, struct slot *slot)
{
	pthread_mutex_t *lock = &t->shard[slot_shard_of(slot->index)].lock;

	pthread_mutex_lock(lock);
	slots_free_locked(t, slot);
	pthread_mutex_unlock(lock);
}

uint32_t slots_made(struct slots *t, unsigned at)
{
	uint32_t made;

	pthread_mutex_lock(&t->shard[at].lock);
	made = t->shard[at].made;
	pthread_mutex_unlock(&t->shard[at].lock);
	return made;
}
