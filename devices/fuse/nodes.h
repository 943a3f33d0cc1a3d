/* What the files of the nodes share among themselves: nodes.c and node_*.c. */
#ifndef DEVICES_FUSE_NODES_H
#define DEVICES_FUSE_NODES_H

#include "devices/fuse/server.h"

/* --- keys and the hash (node_hash.c) ---------------------------------------------------------- */

struct node_key node_key_of(const struct statx *st);
bool node_key_equal(const struct node_key *a, const struct node_key *b);
bool node_key_same_mount(const struct node_key *a, const struct node_key *b);
uint64_t node_key_hash(const struct node_key *k);

static inline bool node_btime_equal(const struct statx_timestamp *a,
				    const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static inline unsigned node_hash_shard(uint64_t hash)
{
	return (unsigned)(hash % SLOT_SHARDS);
}

/* All under the lock of the shard of b, and hash is that of the key. */
struct node *node_hash_find(struct node_bucket *b, const struct node_key *k, uint64_t hash);
bool node_hash_add(struct node_bucket *b, struct node *n, uint64_t hash); /* false: no memory */
void node_hash_remove(struct node_bucket *b, struct node *n);             /* one that is hashed */

/* --- domains (node_domain.c) ------------------------------------------------------------------ */

/* The domain of k, whose file fd is, entered when new; beyond DOMAINS_MAX a number made of k. */
uint64_t domain_of(struct nodes *t, const struct node_key *k, int fd);
void domain_set_kind(struct nodes *t, uint32_t i, enum host_kind kind); /* before others see it */
bool domain_may_be_remote(struct nodes *t, const struct node_key *k);
void domains_clear(struct nodes *t);

/* --- nodes.c ---------------------------------------------------------------------------------- */

void node_unpin(struct nodes *t, struct node *n);
pthread_mutex_t *node_lock(struct nodes *t, const struct node *n); /* of its shard */

/* --- from a node to a descriptor (node_open.c) ------------------------------------------------ */

void node_open_init(struct nodes *t, bool by_name); /* sets mount_fd */
/* How to open again the node of this key, of which st was read. */
enum node_how node_how_at_first(const struct nodes *t, const struct node_key *k,
				const struct statx *st);
/* Ask for the handle of a pinned node with a descriptor.  False: it cannot be opened again. */
bool node_handle_take(struct node *n, int fd);
/* Fill ref->fd; ref->node is pinned.  0 or -errno. */
int node_open(struct nodes *t, struct node_ref *ref);

/* The node's descriptor, or -1 when there is none that is good until it is unpinned. */
static inline int node_fd(struct node *n)
{
	if (slot_is_owned(&n->slot))
		return -1;
	return atomic_load_explicit(&n->fd, memory_order_relaxed);
}

/* --- names of nodes (node_name.c); under the shard lock --------------------------------------- */

void node_name_set(struct node *n, uint64_t dir_id, const char *name); /* keeps fd without memory */
void node_name_free(struct node *n);

/* --- giving descriptors up (node_reclaim.c) --------------------------------------------------- */

int node_owners_init(struct fuse_session *s); /* 0 or -ENOMEM */
/* fd has become a node's, or ceases to be. */
void node_owner_set(struct nodes *t, const struct node *n, int fd);
void node_owner_clear(struct nodes *t, int fd);
/* After a node has got fd, with no lock held: are they getting short? */
void node_fd_got(struct nodes *t, int fd);

#endif
