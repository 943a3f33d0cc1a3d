/*
 * Nodes: the inodes that the guest knows.
 *
 * 1. A name is looked up with statx() in its directory: the answer's (mount, device, inode) is the
 *    key.
 * 2. Known key: the node's descriptor keeps the inode alive, so the number cannot have passed to
 *    another file; the node gains a reference.  One system call in all.
 * 3. Unknown key: the name is opened (O_PATH, never following a link) and the key read again from
 *    the descriptor, since the name may have changed hands meanwhile.  Under the shard lock we look
 *    once more, another queue may have been faster, and enter the node.
 * 4. FORGET that takes the last reference removes the node from the hash and drops the base pin.
 *    The last pin closes the descriptor.
 *
 * A key decides the shard, so hash chain, slots and free list of a node are under one lock.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define HASH_START 16

/* --- the file itself -------------------------------------------------------------------------- */

/*
 * Some regular files block a reader (/proc/kmsg), and one that waits for ever would take the lane
 * and every reset with it: with O_NONBLOCK these say EAGAIN, and file systems on disks do not care.
 * An open that says EAGAIN has met a lease of a program on the host (Samba), which is being called
 * in: wait for it, as any open on the host would.  The host's kernel ends the wait after
 * fs.lease-break-time, 45 s unless changed; so long this lane, and a reset, may stand.
 */
static int open_file(int proc_fd, const char *name, int flags)
{
	int fd = openat(proc_fd, name, flags | O_NONBLOCK);

	if (fd >= 0 || errno != EAGAIN)
		return fd;
	fd = openat(proc_fd, name, flags);
	if (fd >= 0)
		(void)fcntl(fd, F_SETFL, (flags & O_NOATIME) | O_NONBLOCK);
	return fd;
}

static int open_again(const struct fuse_session *s, const struct node_ref *ref, int flags)
{
	struct fd_name name = fd_name(ref->fd);

	flags |= O_CLOEXEC | O_NOCTTY;
	if (flags & O_DIRECTORY)
		return openat(s->proc_fd, name.s, flags);
	return open_file(s->proc_fd, name.s, flags);
}

int node_reopen(struct fuse_session *s, const struct node_ref *ref, int flags)
{
	int fd, rc;

	/* Opening a device has effects, a FIFO may block for ever, and a link leads elsewhere. */
	switch (ref->node->type) {
	case S_IFREG:
		if (flags & O_DIRECTORY)
			return -ENOTDIR;
		break;
	case S_IFDIR:
		if (!(flags & O_DIRECTORY))
			return -EISDIR;
		break;
	case S_IFLNK:
		return -ELOOP;
	default:
		return -ENXIO;
	}
	rc = fd_room(s);
	if (rc < 0)
		return rc;
	/*
	 * To read what may not be changed must not change it, atimes of files and directories
	 * included.  There is no such flag for readlink(), which moves a link's.
	 */
	if (s->readonly)
		flags |= O_NOATIME;
	fd = open_again(s, ref, flags);
	/* O_NOATIME is the owner's right: the guest's kernel has granted it, the host need not. */
	if (fd < 0 && errno == EPERM && flags & O_NOATIME)
		fd = open_again(s, ref, flags & ~O_NOATIME);
	return fd_taken(s, fd);
}

/* --- keys ------------------------------------------------------------------------------------- */

static struct node_key key_of(const struct statx *st)
{
	return (struct node_key){
		.ino = st->stx_ino,
		.dev = makedev(st->stx_dev_major, st->stx_dev_minor),
		.mnt = st->stx_mask & STATX_MNT_ID ? st->stx_mnt_id : 0,
	};
}

static bool same_domain(const struct node_key *a, const struct node_key *b)
{
	return a->dev == b->dev && a->mnt == b->mnt;
}

static bool key_equal(const struct node_key *a, const struct node_key *b)
{
	return a->ino == b->ino && same_domain(a, b);
}

static uint64_t key_hash(const struct node_key *k)
{
	uint64_t h = k->ino * 0x9e3779b97f4a7c15u;

	h ^= (h >> 32) ^ (k->dev * 0xc2b2ae3d27d4eb4fu) ^ (k->mnt * 0x165667b19e3779f9u);
	h *= 0x9e3779b97f4a7c15u;
	return h ^ (h >> 29);
}

static unsigned hash_shard(uint64_t hash)
{
	return (unsigned)(hash % SLOT_SHARDS);
}

static void domain_set_kind(struct nodes *t, uint32_t i, enum host_kind kind)
{
	t->kind[i] = (uint8_t)kind;
	if (kind == HOST_REMOTE)
		atomic_store_explicit(&t->has_remote, true, memory_order_relaxed);
}

/* The number of k's domain, or that of the first free place.  Under the lock. */
static uint32_t domain_find(const struct nodes *t, const struct node_key *k)
{
	uint32_t i, n = atomic_load_explicit(&t->n_domains, memory_order_relaxed);

	for (i = 1; i < n; i++)
		if (same_domain(k, &t->domain[i]))
			break;
	return i;
}

static uint32_t domain_enter(struct nodes *t, const struct node_key *k, enum host_kind kind)
{
	uint32_t i, n;

	pthread_mutex_lock(&t->domain_lock);
	i = domain_find(t, k);
	n = atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	if (i == n && n < DOMAINS_MAX) {
		t->domain[i] = (struct node_key){ .dev = k->dev, .mnt = k->mnt };
		domain_set_kind(t, i, kind);
		atomic_store_explicit(&t->n_domains, n + 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&t->domain_lock);
	return i;
}

/*
 * The domain of k, whose file fd is, entered when new; when the table is full, a number made of k
 * (see attr.c).
 */
static uint64_t domain_of(struct nodes *t, const struct node_key *k, int fd)
{
	const struct node_key mount = { .dev = k->dev, .mnt = k->mnt };
	bool is_new;
	uint32_t i;

	/* Most files are here, and the root's key is fixed: no lock. */
	if (same_domain(k, &t->root.key))
		return 0;
	pthread_mutex_lock(&t->domain_lock);
	i = domain_find(t, k);
	is_new = i == atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	pthread_mutex_unlock(&t->domain_lock);
	if (is_new && i < DOMAINS_MAX)
		i = domain_enter(t, k, host_kind(fd));
	return i < DOMAINS_MAX ? i : key_hash(&mount) | (uint64_t)1 << 63;
}

/*
 * Is, or may be, the file system of k a remote one?  One that is not known yet may be, and to ask it
 * is to wait for it.
 */
static bool may_be_remote(struct nodes *t, const struct node_key *k)
{
	uint32_t i, n;
	bool remote;

	if (same_domain(k, &t->root.key))
		return t->kind[0] == HOST_REMOTE;
	pthread_mutex_lock(&t->domain_lock);
	i = domain_find(t, k);
	n = atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	remote = i < n ? t->kind[i] == HOST_REMOTE : n < DOMAINS_MAX;
	pthread_mutex_unlock(&t->domain_lock);
	return remote;
}

static void domains_clear(struct nodes *t)
{
	pthread_mutex_lock(&t->domain_lock);
	atomic_store_explicit(&t->n_domains, 1, memory_order_relaxed);
	pthread_mutex_unlock(&t->domain_lock);
}

/* --- the hash; all under the shard lock ------------------------------------------------------- */

static struct node **hash_head(struct node_bucket *b, uint64_t hash)
{
	return &b->head[(hash / SLOT_SHARDS) & (b->n_heads - 1)];
}

static struct node *hash_find(struct node_bucket *b, const struct node_key *k, uint64_t hash)
{
	struct node *n;

	if (b->n_heads == 0)
		return NULL;
	for (n = *hash_head(b, hash); n; n = n->next)
		if (key_equal(&n->key, k))
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
			struct node **to = hash_head(&bigger, key_hash(&n->key));

			next = n->next;
			n->next = *to;
			*to = n;
		}
	}
	free(b->head);
	*b = bigger;
	return true;
}

static bool hash_add(struct node_bucket *b, struct node *n, uint64_t hash)
{
	struct node **head;

	if (b->n >= b->n_heads && !hash_grow(b))
		return false;
	head = hash_head(b, hash);
	n->next = *head;
	*head = n;
	b->n++;
	return true;
}

static void hash_remove(struct node_bucket *b, struct node *n)
{
	struct node **p = hash_head(b, key_hash(&n->key));

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	b->n--;
}

/* --- references of the guest ------------------------------------------------------------------ */

static bool btime_equal(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * A reference for the guest on the node of this key, if there is one.  Only a name has been looked
 * at: its file may be gone and the number have passed to a file entered since, so the birth time
 * must agree too.
 */
static bool node_ref_known(struct nodes *t, const struct node_key *k, struct entry *e)
{
	uint64_t hash = key_hash(k);
	unsigned at = hash_shard(hash);
	struct node *n;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	n = hash_find(&t->hash[at], k, hash);
	if (n && !btime_equal(&n->btime, &e->st.stx_btime))
		n = NULL;
	if (n) {
		n->nlookup++;
		e->id = slot_id(&n->slot);
		e->domain = n->domain;
	}
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	return n != NULL;
}

/* Enter a node that is not in the hash.  Under the lock of shard at. */
static struct node *node_enter(struct nodes *t, unsigned at, const struct node *as, uint64_t hash)
{
	struct node *n = (struct node *)(void *)slots_new(&t->slots, at);

	if (!n)
		return NULL;
	n->key = as->key;
	n->fd = as->fd;
	n->type = as->type;
	n->btime = as->btime;
	n->domain = as->domain;
	n->nlookup = 1;
	if (!hash_add(&t->hash[at], n, hash)) {
		slots_free_locked(&t->slots, &n->slot);
		return NULL;
	}
	slot_publish(&n->slot);
	return n;
}

/* A reference on the node of as->key; as->fd becomes the node's or is closed. */
static int node_ref_add(struct fuse_session *s, const struct node *as, struct entry *e)
{
	uint64_t hash = key_hash(&as->key);
	unsigned at = hash_shard(hash);
	struct nodes *t = &s->nodes;
	bool mine = false;
	struct node *n;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	n = hash_find(&t->hash[at], &as->key, hash);
	if (n) {
		n->nlookup++;
	} else {
		n = node_enter(t, at, as, hash);
		mine = n != NULL;
	}
	if (n) {
		e->id = slot_id(&n->slot);
		e->domain = n->domain;
	}
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	if (!mine)
		fd_close(s, as->fd);
	return n ? 0 : -ENOMEM;
}

static void node_unpin(struct nodes *t, struct node *n)
{
	if (n == &t->root || !slot_unpin(&n->slot))
		return;
	fd_close(container_of(t, struct fuse_session, nodes), n->fd);
	slots_free(&t->slots, &n->slot);
}

/* --- outside ---------------------------------------------------------------------------------- */

/* The node of an O_PATH descriptor, which is given away. */
static int node_of_path_fd(struct fuse_session *s, int fd, struct entry *e)
{
	struct node as = { .fd = fd };
	int rc = attr_stat(fd, "", &e->st);

	if (rc < 0) {
		fd_close(s, fd);
		return rc;
	}
	as.key = key_of(&e->st);
	as.type = e->st.stx_mode & S_IFMT;
	as.btime = e->st.stx_btime;
	as.domain = domain_of(&s->nodes, &as.key, fd);
	return node_ref_add(s, &as, e);
}

int node_lookup(struct fuse_session *s, int dir_fd, const char *name, bool may_wait,
		struct entry *e)
{
	int fd, rc;
	struct node_key key;

	rc = may_wait ? attr_stat(dir_fd, name, &e->st) : attr_peek(dir_fd, name, &e->st);
	if (rc < 0)
		return rc;
	key = key_of(&e->st);
	if (!may_wait && may_be_remote(&s->nodes, &key))
		return FUSE_SLOW;
	if (node_ref_known(&s->nodes, &key, e))
		return 0;
	rc = fd_room(s);
	if (rc < 0)
		return rc;
	fd = fd_taken(s, openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return fd;
	return node_of_path_fd(s, fd, e);
}

int node_of_fd(struct fuse_session *s, int fd, struct entry *e)
{
	int path_fd = fd_taken(s, openat(s->proc_fd, fd_name(fd).s, O_PATH | O_CLOEXEC));

	if (path_fd < 0)
		return path_fd;
	return node_of_path_fd(s, path_fd, e);
}

int node_get(struct nodes *t, uint64_t id, struct node_ref *ref)
{
	if (id == FUSE_ROOT_ID)
		ref->node = &t->root;
	else
		ref->node = (struct node *)(void *)slots_pin(&t->slots, id);
	if (!ref->node)
		return -ESTALE;
	ref->fd = ref->node->fd;
	return 0;
}

bool node_is_remote(struct nodes *t, uint64_t id)
{
	struct node_ref ref;
	bool remote;

	if (!atomic_load_explicit(&t->has_remote, memory_order_relaxed) ||
	    node_get(t, id, &ref) < 0)
		return false;
	remote = nodes_kind(t, ref.node->domain) == HOST_REMOTE;
	node_put(t, &ref);
	return remote;
}

void node_put(struct nodes *t, struct node_ref *ref)
{
	node_unpin(t, ref->node);
	ref->node = NULL;
}

void node_forget(struct nodes *t, uint64_t id, uint64_t n)
{
	struct node *node = (struct node *)(void *)slots_pin(&t->slots, id);
	unsigned at;
	bool last;

	if (!node)
		return;
	at = slot_shard_of(node->slot.index);
	pthread_mutex_lock(&t->slots.shard[at].lock);
	last = node->nlookup > 0 && n >= node->nlookup;
	node->nlookup -= MIN(n, node->nlookup);
	if (last)
		hash_remove(&t->hash[at], node);
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	if (last)
		node_unpin(t, node);
	node_unpin(t, node);
}

/* Take all nodes out of a shard's hash, as a chain. */
static struct node *shard_take_all(struct nodes *t, unsigned at)
{
	struct node_bucket *b = &t->hash[at];
	struct node *all = NULL, *n, *next;

	pthread_mutex_lock(&t->slots.shard[at].lock);
	for (uint32_t i = 0; i < b->n_heads; i++) {
		for (n = b->head[i]; n; n = next) {
			next = n->next;
			n->nlookup = 0;
			n->next = all;
			all = n;
		}
		b->head[i] = NULL;
	}
	b->n = 0;
	pthread_mutex_unlock(&t->slots.shard[at].lock);
	return all;
}

void nodes_forget_all(struct nodes *t)
{
	for (unsigned i = 0; i < SLOT_SHARDS; i++) {
		struct node *n, *next;

		/* Out of the hash and with no references, nobody else touches their chain. */
		for (n = shard_take_all(t, i); n; n = next) {
			next = n->next;
			node_unpin(t, n);
		}
	}
	/* Or a guest could fill the table for good, with mounts that have gone. */
	domains_clear(t);
}

int nodes_init(struct nodes *t, int root_fd)
{
	struct statx st;
	int rc;

	memset(t, 0, sizeof(*t));
	t->root.fd = root_fd;
	t->root.type = S_IFDIR;
	rc = attr_stat(root_fd, "", &st);
	if (rc == 0)
		rc = slots_init(&t->slots, sizeof(struct node));
	if (rc < 0) {
		close(root_fd);
		return rc;
	}
	pthread_mutex_init(&t->domain_lock, NULL);
	t->root.key = key_of(&st);
	domain_set_kind(t, 0, host_kind(root_fd));
	atomic_store(&t->n_domains, 1);
	return 0;
}

void nodes_destroy(struct nodes *t)
{
	nodes_forget_all(t);
	for (unsigned i = 0; i < SLOT_SHARDS; i++)
		free(t->hash[i].head);
	slots_destroy(&t->slots);
	pthread_mutex_destroy(&t->domain_lock);
	close(t->root.fd);
}
