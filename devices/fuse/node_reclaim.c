/*
 * Nodes give up descriptors.
 *
 * A guest's kernel remembers as many files as it has memory for, so nodes may be many more than
 * there are descriptors.  When these get short, nodes that are not in use lose theirs and are opened
 * again when a request needs them (node_open.c).
 *
 * A clock goes round the numbers of descriptors rather than the nodes, of which most may have none:
 * t->owner tells whose a number is.  A node used since the hand came by last is passed over once.
 * From a node that nobody but the base pin holds, the descriptor is taken while the slot is owned
 * (slots.h); that the base pin is there, the shard lock guarantees.  Several lanes may do this at
 * once: each takes the next number of the hand.
 */
#include <errno.h>
#include <stdlib.h>

#include "devices/fuse/nodes.h"

/*
 * Longer tables are not made: who may have more descriptors than this has enough, and a soft limit
 * below it (fds.c) keeps the nodes within.
 */
#define OWNERS_MAX (1 << 20)

#define SOME       16 /* given up at a time, so that as many may be taken before the next */
#define SOME_STEPS 256
#define MANY       64

int node_owners_init(struct fuse_session *s)
{
	struct nodes *t = &s->nodes;

	t->n_owners = s->fd_limit < OWNERS_MAX / 4 * 3 ? s->fd_limit / 3 * 4 + 4 : OWNERS_MAX;
	t->owner = calloc((size_t)t->n_owners, sizeof(*t->owner));
	return t->owner ? 0 : -ENOMEM;
}

void node_owner_set(struct nodes *t, const struct node *n, int fd)
{
	int end = atomic_load_explicit(&t->owner_end, memory_order_relaxed);

	if (fd >= t->n_owners)
		return;
	atomic_store_explicit(&t->owner[fd], n->slot.index + 1, memory_order_relaxed);
	while (fd >= end &&
	       !atomic_compare_exchange_weak_explicit(&t->owner_end, &end, fd + 1,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

void node_owner_clear(struct nodes *t, int fd)
{
	if (fd < t->n_owners)
		atomic_store_explicit(&t->owner[fd], 0, memory_order_relaxed);
}

/* Take the descriptor of a pinned node, if nobody else uses it.  It, or -1. */
static int take_fd(struct nodes *t, struct node *n)
{
	pthread_mutex_t *lock = node_lock(t, n);
	int fd = -1;

	pthread_mutex_lock(lock);
	/* References of the guest: the base pin is there, and stays while the lock is held. */
	if (n->nlookup > 0 && slot_own(&n->slot)) {
		if (!atomic_load_explicit(&n->keeps, memory_order_relaxed))
			fd = atomic_exchange_explicit(&n->fd, -1, memory_order_relaxed);
		if (fd >= 0)
			node_owner_clear(t, fd);
		slot_disown(&n->slot);
	}
	pthread_mutex_unlock(lock);
	return fd;
}

static bool give_up(struct fuse_session *s, uint32_t index, bool used_too)
{
	struct node *n = (struct node *)(void *)slots_pin_index(&s->nodes.slots, index);
	int fd = -1;

	if (!n)
		return false;
	if (!used_too && atomic_exchange_explicit(&n->used, false, memory_order_relaxed))
		goto unpin;
	fd = node_fd(n);
	if (fd < 0 || atomic_load_explicit(&n->keeps, memory_order_relaxed) ||
	    !node_handle_take(n, fd))
		fd = -1;
	else
		fd = take_fd(&s->nodes, n);
unpin:
	node_unpin(&s->nodes, n);
	if (fd >= 0)
		fd_close(s, fd);
	return fd >= 0;
}

/* Let the hand go steps numbers on, or until n descriptors have been given up. */
static unsigned sweep(struct fuse_session *s, unsigned n, unsigned steps)
{
	struct nodes *t = &s->nodes;
	int end = atomic_load_explicit(&t->owner_end, memory_order_relaxed);
	unsigned done = 0;

	for (unsigned i = 0; end > 0 && i < steps && done < n; i++) {
		uint32_t at = atomic_fetch_add_explicit(&t->owner_hand, 1, memory_order_relaxed);
		uint32_t index =
			atomic_load_explicit(&t->owner[at % (uint32_t)end], memory_order_relaxed);

		if (index > 0)
			done += give_up(s, index - 1, false);
	}
	return done;
}

/* Those above the limit first: they stand in the way of all that begins. */
static unsigned sweep_above(struct fuse_session *s)
{
	struct nodes *t = &s->nodes;
	int end = atomic_load_explicit(&t->owner_end, memory_order_relaxed);
	unsigned done = 0;

	for (int fd = s->fd_limit; fd < end; fd++) {
		uint32_t index = atomic_load_explicit(&t->owner[fd], memory_order_relaxed);

		if (index > 0)
			done += give_up(s, index - 1, true);
	}
	return done;
}

bool nodes_reclaim_some(struct fuse_session *s)
{
	unsigned end = (unsigned)atomic_load_explicit(&s->nodes.owner_end, memory_order_relaxed);

	/* Not twice round: it would reach the node that has just got one. */
	return sweep(s, SOME, MIN(SOME_STEPS, end)) > 0;
}

bool nodes_reclaim(struct fuse_session *s)
{
	unsigned end = (unsigned)atomic_load_explicit(&s->nodes.owner_end, memory_order_relaxed);
	unsigned done = sweep_above(s);

	/* Twice round: on the first they may all have been used. */
	return done + sweep(s, MANY, 2 * end) > 0;
}

void node_fd_got(struct nodes *t, int fd)
{
	struct fuse_session *s = container_of(t, struct fuse_session, nodes);

	if (fd >= s->fd_soft)
		nodes_reclaim_some(s);
}
