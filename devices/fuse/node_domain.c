/*
 * Domains: the file systems of the host that a share has met, numbered.  The root's is 0.
 */
#include "devices/fuse/nodes.h"

void domain_set_kind(struct nodes *t, uint32_t i, enum host_kind kind)
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
		if (node_key_same_mount(k, &t->domain[i]))
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
uint64_t domain_of(struct nodes *t, const struct node_key *k, int fd)
{
	const struct node_key mount = { .dev = k->dev, .mnt = k->mnt };
	bool is_new;
	uint32_t i;

	/* Most files are here, and the root's key is fixed: no lock. */
	if (node_key_same_mount(k, &t->root.key))
		return 0;
	pthread_mutex_lock(&t->domain_lock);
	i = domain_find(t, k);
	is_new = i == atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	pthread_mutex_unlock(&t->domain_lock);
	if (is_new && i < DOMAINS_MAX)
		i = domain_enter(t, k, host_kind(fd));
	return i < DOMAINS_MAX ? i : node_key_hash(&mount) | (uint64_t)1 << 63;
}

/*
 * Is, or may be, the file system of k a remote one?  One that is not known yet may be, and to ask it
 * is to wait for it.
 */
bool domain_may_be_remote(struct nodes *t, const struct node_key *k)
{
	uint32_t i, n;
	bool remote;

	if (node_key_same_mount(k, &t->root.key))
		return t->kind[0] == HOST_REMOTE;
	pthread_mutex_lock(&t->domain_lock);
	i = domain_find(t, k);
	n = atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	remote = i < n ? t->kind[i] == HOST_REMOTE : n < DOMAINS_MAX;
	pthread_mutex_unlock(&t->domain_lock);
	return remote;
}

void domains_clear(struct nodes *t)
{
	pthread_mutex_lock(&t->domain_lock);
	atomic_store_explicit(&t->n_domains, 1, memory_order_relaxed);
	pthread_mutex_unlock(&t->domain_lock);
}
