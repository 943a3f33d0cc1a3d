/*
 * Locks that the guest holds on the host's files: see locks.h.
 *
 * An entry is found under the lock of its bucket, used under a pin, and freed by whoever takes it
 * out of its chain and drops the last pin; its descriptor closes then, outside of the lock.
 *
 * Which ranges an owner holds is the host kernel's knowledge.  Here is only a bound on how many
 * there may be: each request that could add some raises it before it begins.  Where the bound runs
 * high it is replaced by the true number, from /proc/self/fdinfo, and an owner who unlocks his whole
 * file or closes it has none; both only when no other request used the entry meanwhile.
 */
#include "devices/fuse/locks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "devices/fuse/server.h"

/*
 * Each is a descriptor, and locks of a file are a list in the host's kernel, of some 200 bytes an
 * element: 50 MiB at most, and no list that takes long to walk.
 */
#define ENTRIES_MAX 16384
#define RANGES_MAX  1024   /* of an entry, when counted; about twice as many between counts */
#define BOUNDS_MAX  262144 /* of all entries together */
#define COUNT_FROM  64     /* a bound worth a count */
#define HOLDERS_MAX 64     /* entries looked at for the holder of a lock */

struct lock_entry {
	struct lock_entry *next;
	struct lock_key key; /* fixed, as fd */
	int fd;
	/* Under the lock of the bucket. */
	uint32_t pid;
	uint64_t fh;
	uint32_t pins;
	uint32_t bound;    /* at most so many locks are held */
	uint32_t count_at; /* bound that asks for a count */
	uint64_t n_uses;
	bool awaited;
	bool out; /* of the chain */
};

static struct lock_bucket *bucket_of(const struct fuse_session *s, uint64_t node)
{
	uint64_t h = node * 0x9e3779b97f4a7c15u;

	return &s->locks->bucket[h >> 32 & (LOCK_BUCKETS - 1)];
}

static bool key_equal(const struct lock_key *a, const struct lock_key *b)
{
	return a->node == b->node && a->owner == b->owner && a->flock == b->flock;
}

/* --- entries; under the lock of the bucket ---------------------------------------------------- */

static struct lock_entry *find(struct lock_bucket *b, const struct lock_key *key)
{
	struct lock_entry *e;

	for (e = b->first; e; e = e->next)
		if (key_equal(&e->key, key))
			return e;
	return NULL;
}

static void bound_set(struct fuse_session *s, struct lock_entry *e, uint32_t bound)
{
	atomic_fetch_add_explicit(&s->locks->bounds, bound - e->bound, memory_order_relaxed);
	e->bound = bound;
}

static void begin_use(struct fuse_session *s, struct lock_entry *e, uint32_t add,
		      struct lock_use *u)
{
	bound_set(s, e, e->bound + add);
	*u = (struct lock_use){
		.e = e, .fd = e->fd, .added = add, .alone = e->pins == 0, .n_uses = ++e->n_uses
	};
	e->pins++;
}

/* Nobody had it since this use began. */
static bool was_alone(const struct lock_use *u)
{
	return u->alone && u->e->n_uses == u->n_uses;
}

/* Out of the chain.  *p points to it; true: the caller frees it. */
static bool take_out(struct fuse_session *s, struct lock_entry **p)
{
	struct lock_entry *e = *p;

	*p = e->next;
	e->out = true;
	bound_set(s, e, 0);
	atomic_fetch_sub_explicit(&s->locks->n_entries, 1, memory_order_relaxed);
	return e->pins == 0;
}

static bool take_out_entry(struct fuse_session *s, struct lock_bucket *b, struct lock_entry *e)
{
	struct lock_entry **p = &b->first;

	while (*p != e)
		p = &(*p)->next;
	return take_out(s, p);
}

static void entry_free(struct fuse_session *s, struct lock_entry *e)
{
	fd_close(s, e->fd);
	free(e);
}

/* --- use -------------------------------------------------------------------------------------- */

bool lock_get(struct fuse_session *s, const struct lock_key *key, uint32_t add, struct lock_use *u)
{
	struct lock_bucket *b = bucket_of(s, key->node);
	struct lock_entry *e;

	pthread_mutex_lock(&b->lock);
	e = find(b, key);
	if (e)
		begin_use(s, e, add, u);
	pthread_mutex_unlock(&b->lock);
	return e != NULL;
}

static struct lock_entry *entry_new(struct fuse_session *s, const struct lock_key *key, int fd)
{
	struct lock_entry *e = NULL;

	if (atomic_fetch_add_explicit(&s->locks->n_entries, 1, memory_order_relaxed) < ENTRIES_MAX)
		e = calloc(1, sizeof(*e));
	if (!e) {
		atomic_fetch_sub_explicit(&s->locks->n_entries, 1, memory_order_relaxed);
		return NULL;
	}
	e->key = *key;
	e->fd = fd;
	e->count_at = COUNT_FROM;
	return e;
}

int lock_enter(struct fuse_session *s, const struct lock_key *key, uint32_t add, int fd,
	       struct lock_use *u)
{
	struct lock_bucket *b = bucket_of(s, key->node);
	struct lock_entry *mine = entry_new(s, key, fd), *e;

	if (!mine) {
		fd_close(s, fd);
		return -ENOLCK;
	}
	pthread_mutex_lock(&b->lock);
	e = find(b, key);
	if (!e) {
		e = mine;
		e->next = b->first;
		b->first = e;
	}
	begin_use(s, e, add, u);
	pthread_mutex_unlock(&b->lock);
	if (e != mine) {
		atomic_fetch_sub_explicit(&s->locks->n_entries, 1, memory_order_relaxed);
		entry_free(s, mine);
	}
	return 0;
}

void lock_put(struct fuse_session *s, struct lock_use *u, int known)
{
	struct lock_entry *e = u->e;
	struct lock_bucket *b = bucket_of(s, e->key.node);
	bool last;

	pthread_mutex_lock(&b->lock);
	e->pins--;
	e->awaited = known == LOCKS_AWAITED;
	if (!e->out && known >= 0 && was_alone(u)) {
		bound_set(s, e, (uint32_t)known);
		e->count_at = 2 * (uint32_t)known + COUNT_FROM;
	} else if (!e->out && (known == LOCKS_AS_WERE || known == LOCKS_AWAITED)) {
		bound_set(s, e, e->bound - u->added);
	}
	if (e->out)
		last = e->pins == 0;
	else
		last = e->bound == 0 && e->pins == 0 && !e->awaited && take_out_entry(s, b, e);
	pthread_mutex_unlock(&b->lock);
	if (last)
		entry_free(s, e);
	u->e = NULL;
}

void lock_note(struct fuse_session *s, struct lock_use *u, uint32_t pid, uint64_t fh)
{
	struct lock_bucket *b = bucket_of(s, u->e->key.node);

	pthread_mutex_lock(&b->lock);
	u->e->pid = pid;
	u->e->fh = fh;
	pthread_mutex_unlock(&b->lock);
}

/* --- what the kernel knows -------------------------------------------------------------------- */

/* "lock:\t1: OFDLCK ADVISORY WRITE -1 08:01:99 0 EOF" */
static bool line_is(const char *line, const struct flock *lock)
{
	intmax_t end = lock->l_len ? (intmax_t)(lock->l_start + lock->l_len - 1) : INT64_MAX;
	char type[8], first[24], last[24];

	if (sscanf(line, "lock: %*d: OFDLCK %*s %7s %*d %*s %23s %23s", type, first, last) != 3)
		return false;
	if (!strcmp(last, "EOF") ? end != INT64_MAX : end != strtoimax(last, NULL, 10))
		return false;
	return strtoimax(first, NULL, 10) == lock->l_start &&
	       !strcmp(type, lock->l_type == F_RDLCK ? "READ" : "WRITE");
}

/* Locks that a descriptor holds: all, or those that are as told.  Their number, or -errno. */
static int count_locks(const struct fuse_session *s, int fd, const struct flock *as)
{
	char path[32], line[128];
	int info_fd, n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "../fdinfo/%d", fd);
	info_fd = openat(s->proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (info_fd < 0)
		return -errno;
	f = fdopen(info_fd, "r");
	if (!f) {
		close(info_fd);
		return -ENOMEM;
	}
	while (fgets(line, sizeof(line), f))
		n += !strncmp(line, "lock:", 5) && (!as || line_is(line, as));
	fclose(f);
	return n;
}

int lock_room(struct fuse_session *s, struct lock_use *u, bool unlocks, int *known)
{
	struct lock_bucket *b = bucket_of(s, u->e->key.node);
	uint32_t bounds = atomic_load_explicit(&s->locks->bounds, memory_order_relaxed);
	bool doubt;
	int n;

	pthread_mutex_lock(&b->lock);
	doubt = u->e->bound > u->e->count_at || (bounds > BOUNDS_MAX / 2 && u->e->bound > 4);
	pthread_mutex_unlock(&b->lock);
	if (bounds > BOUNDS_MAX && !unlocks)
		return -ENOLCK;
	if (!doubt && bounds <= BOUNDS_MAX)
		return 0;
	n = count_locks(s, u->fd, NULL);
	/* To unlock a part may split a range, but most often it makes room. */
	if (n < 0 || n >= (unlocks ? 2 * RANGES_MAX : RANGES_MAX))
		return -ENOLCK;
	*known = n + (int)u->added;
	return 0;
}

uint32_t lock_pid(struct fuse_session *s, uint64_t node, const struct flock *lock)
{
	struct lock_bucket *b = bucket_of(s, node);
	struct lock_use use[HOLDERS_MAX];
	unsigned n = 0;
	uint32_t pid[HOLDERS_MAX], found = 0;

	pthread_mutex_lock(&b->lock);
	for (struct lock_entry *e = b->first; e && n < HOLDERS_MAX; e = e->next) {
		if (e->key.node != node || e->key.flock)
			continue;
		pid[n] = e->pid;
		begin_use(s, e, 0, &use[n++]);
	}
	pthread_mutex_unlock(&b->lock);
	for (unsigned i = 0; i < n; i++) {
		if (!found && count_locks(s, use[i].fd, lock) > 0)
			found = pid[i];
		lock_put(s, &use[i], LOCKS_UNKNOWN);
	}
	return found;
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool none(const struct fuse_session *s)
{
	return !s->locks || atomic_load_explicit(&s->locks->n_entries, memory_order_relaxed) == 0;
}

/* What to end: key or node or handle; none of them: all. */
struct end {
	const struct lock_key *key;
	const uint64_t *node, *fh;
};

static bool ends(const struct lock_entry *e, const struct end *w)
{
	return (!w->key || key_equal(&e->key, w->key)) && (!w->node || e->key.node == *w->node) &&
	       (!w->fh || e->fh == *w->fh);
}

static void end_in(struct fuse_session *s, struct lock_bucket *b, const struct end *w)
{
	struct lock_entry *done = NULL, *e, **p = &b->first;

	pthread_mutex_lock(&b->lock);
	while ((e = *p)) {
		if (!ends(e, w)) {
			p = &e->next;
		} else if (take_out(s, p)) {
			e->next = done;
			done = e;
		}
	}
	pthread_mutex_unlock(&b->lock);
	while ((e = done)) {
		done = e->next;
		entry_free(s, e);
	}
}

void locks_end(struct fuse_session *s, const struct lock_key *key)
{
	if (!none(s))
		end_in(s, bucket_of(s, key->node), &(struct end){ .key = key });
}

void locks_end_handle(struct fuse_session *s, uint64_t node, uint64_t fh)
{
	if (!none(s))
		end_in(s, bucket_of(s, node), &(struct end){ .node = &node, .fh = &fh });
}

void locks_end_node(struct fuse_session *s, uint64_t node)
{
	if (!none(s))
		end_in(s, bucket_of(s, node), &(struct end){ .node = &node });
}

void locks_end_all(struct fuse_session *s)
{
	for (unsigned i = 0; !none(s) && i < LOCK_BUCKETS; i++)
		end_in(s, &s->locks->bucket[i], &(struct end){ 0 });
}

int locks_create(struct fuse_session *s)
{
	s->locks = calloc(1, sizeof(*s->locks));
	if (!s->locks)
		return -ENOMEM;
	for (unsigned i = 0; i < LOCK_BUCKETS; i++)
		pthread_mutex_init(&s->locks->bucket[i].lock, NULL);
	return 0;
}

void locks_destroy(struct fuse_session *s)
{
	if (!s->locks)
		return;
	locks_end_all(s);
	for (unsigned i = 0; i < LOCK_BUCKETS; i++)
		pthread_mutex_destroy(&s->locks->bucket[i].lock);
	free(s->locks);
	s->locks = NULL;
}
