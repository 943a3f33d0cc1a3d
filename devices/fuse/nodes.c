/*
 * Nodes: the inodes that the guest knows.
 *
 * 1. A name is looked up with statx() in its directory: the answer's (mount, device, inode) is the
 *    key.
 * 2. Known key, and the birth time of the node: it gains a reference.  One system call in all.
 * 3. Else the name is opened (O_PATH, never following a link) and the key read again from the
 *    descriptor, since the name may have changed hands meanwhile.  Under the shard lock we look once
 *    more, another queue may have been faster, and enter the node.
 * 4. FORGET that takes the last reference removes the node from the hash and drops the base pin.
 *    The last pin closes the descriptor.
 *
 * A node's descriptor keeps the inode alive, so its number cannot pass to another file.  But nodes
 * give up descriptors when these get short (node_reclaim.c) and are opened again when needed
 * (node_open.c).  A node without one whose number is met with another birth time has lost its file:
 * the other file takes its place in the hash, and its id answers ESTALE until the guest forgets it.
 */
#include "devices/fuse/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/fuse/locks.h"

pthread_mutex_t *node_lock(struct nodes *t, const struct node *n)
{
	return &t->slots.shard[slot_shard_of(n->slot.index)].lock;
}

/* --- references of the guest ------------------------------------------------------------------ */

/* Where a file was found. */
struct found {
	const struct node_dir *dir;
	const char *name; /* or NULL: it has none */
	uint64_t moves;   /* of t->moves, before it was looked at */
};

/* Is the name still the file's?  As far as this server knows; under the shard lock. */
static bool name_holds(const struct nodes *t, const struct found *f)
{
	return f->name && atomic_load_explicit(&t->moves, memory_order_acquire) == f->moves;
}

static void found_again(struct nodes *t, struct node *n, const struct found *f)
{
	if (!name_holds(t, f))
		return;
	atomic_store_explicit(&n->keeps, false, memory_order_relaxed);
	node_name_set(n, f->dir->id, f->name);
}

/*
 * A reference for the guest on the node of this key, if there is one.  Only a name has been looked
 * at: its file may be gone and the number have passed to a file entered since, so the birth time
 * must agree too.
 */
static bool node_ref_known(struct nodes *t, const struct node_key *k, const struct found *f,
			   struct entry *e)
{
	uint64_t hash = node_key_hash(k);
	unsigned at = node_hash_shard(hash);
	struct node *n;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	n = node_hash_find(&t->hash[at], k, hash);
	if (n && !node_btime_equal(&n->btime, &e->st.stx_btime))
		n = NULL;
	if (n) {
		n->nlookup++;
		e->id = slot_id(&n->slot);
		e->domain = n->domain;
		found_again(t, n, f);
	}
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	return n != NULL;
}

/* Enter a node that is not in the hash.  Under the lock of shard at. */
static struct node *node_enter(struct nodes *t, unsigned at, const struct node *as,
			       const struct found *f, uint64_t hash)
{
	struct node *n = (struct node *)(void *)slots_new(&t->slots, at);

	if (!n)
		return NULL;
	n->key = as->key;
	n->type = as->type;
	n->btime = as->btime;
	n->domain = as->domain;
	n->nlookup = 1;
	if (!node_hash_add(&t->hash[at], n, hash)) {
		slots_free_locked(&t->slots, &n->slot);
		return NULL;
	}
	atomic_store_explicit(&n->fd, as->fd, memory_order_relaxed);
	atomic_store_explicit(&n->used, true, memory_order_relaxed);
	atomic_store_explicit(&n->how, as->how, memory_order_relaxed);
	atomic_store_explicit(&n->keeps, !name_holds(t, f), memory_order_relaxed);
	if (as->how == HOW_NAME) {
		n->name.text = NULL;
		node_name_set(n, f->dir->id, f->name);
	}
	node_owner_set(t, n, as->fd);
	slot_publish(&n->slot);
	return n;
}

/*
 * Is as the file of this node?  While the node has a descriptor the key alone says so; some file
 * systems can change a birth time.
 */
static bool is_same_file(struct node *n, const struct node *as)
{
	return atomic_load_explicit(&n->fd, memory_order_relaxed) >= 0 ||
	       node_btime_equal(&n->btime, &as->btime);
}

/* A reference on the node of as->key; as->fd becomes the node's or is closed. */
static int node_ref_add(struct fuse_session *s, const struct node *as, const struct found *f,
			struct entry *e)
{
	uint64_t hash = node_key_hash(&as->key);
	unsigned at = node_hash_shard(hash);
	struct nodes *t = &s->nodes;
	bool mine = false;
	struct node *n;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	n = node_hash_find(&t->hash[at], &as->key, hash);
	if (n && !is_same_file(n, as)) {
		node_hash_remove(&t->hash[at], n);
		n = NULL;
	}
	if (n) {
		n->nlookup++;
	} else {
		n = node_enter(t, at, as, f, hash);
		mine = n != NULL;
	}
	if (n) {
		e->id = slot_id(&n->slot);
		e->domain = n->domain;
	}
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	if (mine)
		node_fd_got(t, as->fd);
	else
		fd_close(s, as->fd);
	return n ? 0 : -ENOMEM;
}

void node_unpin(struct nodes *t, struct node *n)
{
	struct fuse_session *s = container_of(t, struct fuse_session, nodes);
	int fd;

	if (n == &t->root || !slot_unpin(&n->slot))
		return;
	locks_end_node(s, slot_id(&n->slot));
	fd = atomic_load_explicit(&n->fd, memory_order_relaxed);
	if (fd >= 0) {
		node_owner_clear(t, fd);
		fd_close(s, fd);
	}
	node_name_free(n);
	slots_free(&t->slots, &n->slot);
}

/* --- outside ---------------------------------------------------------------------------------- */

/* The node of an O_PATH descriptor, which is given away. */
static int node_of_path_fd(struct fuse_session *s, int fd, const struct found *f, struct entry *e)
{
	struct node as = { .fd = fd };
	int rc = attr_stat(fd, "", &e->st);

	if (rc < 0) {
		fd_close(s, fd);
		return rc;
	}
	as.key = node_key_of(&e->st);
	as.type = e->st.stx_mode & S_IFMT;
	as.btime = e->st.stx_btime;
	as.domain = domain_of(&s->nodes, &as.key, fd);
	as.how = (uint8_t)node_how_at_first(&s->nodes, &as.key, &e->st);
	return node_ref_add(s, &as, f, e);
}

/* When the guest is told of mounts below: as the host's programs see them, by another device too. */
static void mark_submount(const struct fuse_session *s, const struct node_dir *dir, struct entry *e)
{
	e->submount = s->submounts && S_ISDIR(e->st.stx_mode) && e->domain != dir->domain;
}

static struct found found_at(struct nodes *t, const struct node_dir *dir, const char *name)
{
	return (struct found){ dir, name, atomic_load_explicit(&t->moves, memory_order_acquire) };
}

int node_lookup(struct fuse_session *s, const struct node_dir *dir, const char *name, bool may_wait,
		struct entry *e)
{
	struct found f = found_at(&s->nodes, dir, name);
	int fd, rc;
	struct node_key key;

	rc = may_wait ? attr_stat(dir->fd, name, &e->st) : attr_peek(dir->fd, name, &e->st);
	if (rc < 0)
		return rc;
	key = node_key_of(&e->st);
	if (!may_wait && domain_may_be_remote(&s->nodes, &key))
		return FUSE_SLOW;
	if (!node_ref_known(&s->nodes, &key, &f, e)) {
		rc = fd_room(s);
		if (rc < 0)
			return rc;
		fd = fd_taken(s, openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
		rc = fd < 0 ? fd : node_of_path_fd(s, fd, &f, e);
	}
	mark_submount(s, dir, e);
	return rc;
}

int node_of_fd(struct fuse_session *s, int fd, const struct node_dir *dir, const char *name,
	       struct entry *e)
{
	struct found f = found_at(&s->nodes, dir, name);
	int path_fd = fd_taken(s, openat(s->proc_fd, fd_name(fd).s, O_PATH | O_CLOEXEC));

	e->submount = false;
	if (path_fd < 0)
		return path_fd;
	return node_of_path_fd(s, path_fd, &f, e);
}

/* ref->node is pinned; unpins it when it fails. */
static int node_ready(struct nodes *t, struct node_ref *ref)
{
	int rc;

	ref->own = false;
	ref->fd = node_fd(ref->node);
	if (ref->fd >= 0) {
		/* Looked at first: most often it is set, and the cache line is shared. */
		if (!atomic_load_explicit(&ref->node->used, memory_order_relaxed))
			atomic_store_explicit(&ref->node->used, true, memory_order_relaxed);
		return 0;
	}
	rc = node_open(t, ref);
	if (rc < 0) {
		node_unpin(t, ref->node);
		ref->node = NULL;
	}
	return rc;
}

int node_get(struct nodes *t, uint64_t id, struct node_ref *ref)
{
	if (id == FUSE_ROOT_ID)
		ref->node = &t->root;
	else
		ref->node = (struct node *)(void *)slots_pin(&t->slots, id);
	return ref->node ? node_ready(t, ref) : -ESTALE;
}

int node_get_index(struct nodes *t, uint32_t index, const uint64_t *skip, struct node_ref *ref)
{
	struct node *n = (struct node *)(void *)slots_pin_index(&t->slots, index);

	if (n && (n->domain >= DOMAINS_MAX || skip[n->domain / 64] >> n->domain % 64 & 1)) {
		node_unpin(t, n);
		n = NULL;
	}
	ref->node = n;
	return n ? node_ready(t, ref) : -ESTALE;
}

bool node_is_remote(struct nodes *t, uint64_t id)
{
	struct node *n = &t->root;
	bool remote;

	if (!atomic_load_explicit(&t->has_remote, memory_order_relaxed))
		return false;
	if (id != FUSE_ROOT_ID)
		n = (struct node *)(void *)slots_pin(&t->slots, id);
	if (!n)
		return false;
	remote = nodes_kind(t, n->domain) == HOST_REMOTE;
	node_unpin(t, n);
	return remote;
}

void node_put(struct nodes *t, struct node_ref *ref)
{
	if (ref->own)
		fd_close(container_of(t, struct fuse_session, nodes), ref->fd);
	node_unpin(t, ref->node);
	ref->node = NULL;
}

/* With a pin, which is dropped. */
static void forget_pinned(struct nodes *t, struct node *node, uint64_t n)
{
	pthread_mutex_t *lock = node_lock(t, node);
	bool last;

	pthread_mutex_lock(lock);
	last = node->nlookup > 0 && n >= node->nlookup;
	node->nlookup -= MIN(n, node->nlookup);
	if (last && node->hashed)
		node_hash_remove(&t->hash[slot_shard_of(node->slot.index)], node);
	pthread_mutex_unlock(lock);
	if (last)
		node_unpin(t, node);
	node_unpin(t, node);
}

void node_forget(struct nodes *t, uint64_t id, uint64_t n)
{
	struct node *node = (struct node *)(void *)slots_pin(&t->slots, id);

	if (node)
		forget_pinned(t, node, n);
}

void nodes_forget_all(struct nodes *t)
{
	for (unsigned shard = 0; shard < SLOT_SHARDS; shard++) {
		uint32_t made = slots_made(&t->slots, shard);

		for (uint32_t i = 0; i < made; i++) {
			struct slot *slot = slots_pin_index(&t->slots, i * SLOT_SHARDS + shard);

			if (slot)
				forget_pinned(t, (struct node *)(void *)slot, UINT64_MAX);
		}
	}
	/* Or a guest could fill the table for good, with mounts that have gone. */
	domains_clear(t);
}

int nodes_init(struct nodes *t, int root_fd, bool by_name)
{
	struct statx st;
	int rc;

	memset(t, 0, sizeof(*t));
	t->root.slot.index = FUSE_ROOT_ID; /* slot_id() is right for it, too */
	t->root.fd = root_fd;
	t->root.type = S_IFDIR;
	t->root.how = HOW_NOT;
	rc = attr_stat(root_fd, "", &st);
	if (rc == 0)
		rc = slots_init(&t->slots, sizeof(struct node));
	if (rc < 0)
		goto close_root;
	rc = node_owners_init(container_of(t, struct fuse_session, nodes));
	if (rc < 0)
		goto free_slots;
	pthread_mutex_init(&t->domain_lock, NULL);
	t->root.key = node_key_of(&st);
	domain_set_kind(t, 0, host_kind(root_fd));
	atomic_store(&t->n_domains, 1);
	node_open_init(t, by_name);
	return 0;

free_slots:
	slots_destroy(&t->slots);
close_root:
	close(root_fd);
	return rc;
}

void nodes_destroy(struct nodes *t)
{
	nodes_forget_all(t);
	for (unsigned i = 0; i < SLOT_SHARDS; i++)
		free(t->hash[i].head);
	slots_destroy(&t->slots);
	free(t->owner);
	pthread_mutex_destroy(&t->domain_lock);
	if (t->mount_fd >= 0)
		close(t->mount_fd);
	close(t->root.fd);
}
