/*
 * Keys of nodes, and the hash from key to node.
 *
 * A key decides the shard, so hash chain, slots and free list of a node are under one lock.
 */
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "devices/fuse/nodes.h"

#define HASH_START 16

struct node_key node_key_of(const struct statx *st)
{
	return (struct node_key){
		.ino = st->stx_ino,
		.dev = makedev(st->stx_dev_major, st->stx_dev_minor),
		.mnt = st->stx_mask & STATX_MNT_ID ? st->stx_mnt_id : 0,
	};
}

bool node_key_same_mount(const struct node_key *a, const struct node_key *b)
{
	return a->dev == b->dev && a->mnt == b->mnt;
}

bool node_key_equal(const struct node_key *a, const struct node_key *b)
{
	return a->ino == b->ino && node_key_same_mount(a, b);
}

uint64_t node_key_hash(const struct node_key *k)
{
	uint64_t h = k->ino * 0x9e3779b97f4a7c15u;

	h ^= (h >> 32) ^ (k->dev * 0xc2b2ae3d27d4eb4fu) ^ (k->mnt * 0x165667b19e3779f9u);
	h *= 0x9e3779b97f4a7c15u;
	return h ^ (h >> 29);
}

static struct node **hash_head(struct node_bucket *b, uint64_t hash)
{
	return &b->head[(hash / SLOT_SHARDS) & (b->n_heads - 1)];
}

struct node *node_hash_find(struct node_bucket *b, const struct node_key *k, uint64_t hash)
{
	struct node *n;

	if (b->n_heads == 0)
		return NULL;
	for (n = *hash_head(b, hash); n; n = n->next)
		if (node_key_equal(&n->key, k))
			return n;
	return NULL;
}

static bool hash_grow(struct node_bucket *b)
{
	struct node_bucket bigger = { .n = b->n };

	bigger.n_heads = b->n_heads ? 2 * b->n_heads : HASH_START;
	bigger.head = calloc(bigger.n_heads, sizeof(struct node *));
	if (!bigger.head)
		return b->n_heads > 0; /* longer chains will do */
	for (uint32_t i = 0; i < b->n_heads; i++) {
		struct node *n, *next;

		for (n = b->head[i]; n; n = next) {
			struct node **to = hash_head(&bigger, node_key_hash(&n->key));

			next = n->next;
			n->next = *to;
			*to = n;
		}
	}
	free(b->head);
	*b = bigger;
	return true;
}

bool node_hash_add(struct node_bucket *b, struct node *n, uint64_t hash)
{
	struct node **head;

	if (b->n >= b->n_heads && !hash_grow(b))
		return false;
	head = hash_head(b, hash);
	n->next = *head;
	n->hashed = true;
	*head = n;
	b->n++;
	return true;
}

void node_hash_remove(struct node_bucket *b, struct node *n)
{
	struct node **p = hash_head(b, node_key_hash(&n->key));

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	n->hashed = false;
	b->n--;
}
