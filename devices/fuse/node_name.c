/*
 * Names of nodes: where those without file handles are found again, and what becomes of a node when
 * its name goes or moves.
 *
 * A name is taken away in three steps.  The node behind it is found and held, so that it has a
 * descriptor.  The host takes the name away.  t->moves is raised, and only then the node is marked:
 * a look-up on another lane that saw the name before has read the old count, and does not bring it
 * back.
 */
#include "devices/fuse/nodes.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static bool is_by_name(struct node *n)
{
	return atomic_load_explicit(&n->how, memory_order_relaxed) == HOW_NAME;
}

void node_name_set(struct node *n, uint64_t dir_id, const char *name)
{
	char *copy;

	if (!is_by_name(n))
		return;
	if (n->name.text && n->name.dir == dir_id && name && !strcmp(n->name.text, name))
		return;
	copy = name ? strdup(name) : NULL;
	if (!copy)
		atomic_store_explicit(&n->keeps, true, memory_order_relaxed);
	free(n->name.text);
	n->name.text = copy;
	n->name.dir = dir_id;
}

void node_name_free(struct node *n)
{
	if (is_by_name(n))
		free(n->name.text);
}

/* The id of the node of this file, or 0. */
static uint64_t id_of(struct nodes *t, const struct statx *st)
{
	struct node_key key = node_key_of(st);
	uint64_t hash = node_key_hash(&key), id = 0;
	unsigned at = node_hash_shard(hash);
	struct node *n;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	n = node_hash_find(&t->hash[at], &key, hash);
	if (n && node_btime_equal(&n->btime, &st->stx_btime))
		id = slot_id(&n->slot);
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	return id;
}

void node_hold(struct fuse_session *s, const struct node_dir *dir, const char *name,
	       struct node_ref *ref)
{
	struct statx st;
	uint64_t id;

	ref->node = NULL;
	if (attr_peek(dir->fd, name, &st) < 0)
		return;
	id = id_of(&s->nodes, &st);
	/* A mount point: it can neither go nor move, and its server might not answer. */
	if (nodes_kind(&s->nodes, dir->domain) != HOST_REMOTE && node_is_remote(&s->nodes, id))
		return;
	while (id && node_get(&s->nodes, id, ref) == 0 && ref->own) {
		/* One that ends with the request is of no use, and another lane has a better one. */
		bool again = atomic_load_explicit(&ref->node->fd, memory_order_relaxed) >= 0;

		node_put(&s->nodes, ref);
		if (!again)
			break;
		sched_yield();
	}
}

void node_hold_to_move(struct fuse_session *s, const struct node_dir *dir, const char *name,
		       struct node_ref *ref)
{
	ref->node = NULL;
	if (s->nodes.mount_fd < 0 || dir->domain != 0)
		node_hold(s, dir, name, ref);
}

/* Can the node's file not be found any more without the name that has gone?  Under the lock. */
static bool is_lost(struct node *n, unsigned nlink, const struct node_dir *dir, const char *name)
{
	if (nlink == 0 || n->type == S_IFDIR)
		return true;
	return is_by_name(n) &&
	       (!n->name.text || (n->name.dir == dir->id && !strcmp(n->name.text, name)));
}

void node_gone(struct fuse_session *s, struct node_ref *ref, const struct node_dir *dir,
	       const char *name)
{
	struct nodes *t = &s->nodes;
	struct statx st;

	atomic_fetch_add_explicit(&t->moves, 1, memory_order_release);
	if (!ref->node)
		return;
	if (attr_statx(ref->fd, 0, STATX_NLINK, &st) < 0)
		st.stx_nlink = 0;
	pthread_mutex_lock(node_lock(t, ref->node));
	if (is_lost(ref->node, st.stx_nlink, dir, name))
		atomic_store_explicit(&ref->node->keeps, true, memory_order_relaxed);
	pthread_mutex_unlock(node_lock(t, ref->node));
}

void node_moved(struct fuse_session *s, struct node_ref *ref, const struct node_dir *to,
		const char *name)
{
	struct nodes *t = &s->nodes;

	atomic_fetch_add_explicit(&t->moves, 1, memory_order_release);
	if (!ref->node)
		return;
	pthread_mutex_lock(node_lock(t, ref->node));
	node_name_set(ref->node, to->id, name);
	pthread_mutex_unlock(node_lock(t, ref->node));
}

struct node *node_hold_open(struct fuse_session *s, uint64_t id)
{
	struct node *n = (struct node *)(void *)slots_pin(&s->nodes.slots, id);

	if (n && !is_by_name(n)) {
		node_unpin(&s->nodes, n);
		n = NULL;
	}
	return n;
}

void node_unhold(struct fuse_session *s, struct node *n)
{
	if (n)
		node_unpin(&s->nodes, n);
}
