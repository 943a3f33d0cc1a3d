/* Handles: the files and directories that the guest has open. */
#include "devices/fuse/server.h"

#include <errno.h>
#include <stdlib.h>

static void handle_unpin(struct fuse_session *s, struct handle *h)
{
	int other;

	if (!slot_unpin(&h->slot))
		return;
	fd_close(s, h->fd);
	other = atomic_load_explicit(&h->direct_fd, memory_order_relaxed);
	if (other >= 0)
		fd_close(s, other);
	dir_stream_free(s, h->dir);
	node_unhold(s, h->held);
	slots_free(&s->handles, &h->slot);
}

int handle_new(struct fuse_session *s, unsigned shard, const struct handle *as, uint64_t *fh)
{
	pthread_mutex_t *lock;
	struct handle *h;

	shard %= SLOT_SHARDS;
	lock = &s->handles.shard[shard].lock;
	pthread_mutex_lock(lock);
	h = (struct handle *)(void *)slots_new(&s->handles, shard);
	pthread_mutex_unlock(lock);
	if (!h) {
		fd_close(s, as->fd);
		dir_stream_free(s, as->dir);
		node_unhold(s, as->held);
		return -ENOMEM;
	}
	h->fd = as->fd;
	h->is_dir = as->is_dir;
	h->node_id = as->node_id;
	atomic_store_explicit(&h->direct_fd, -1, memory_order_relaxed);
	h->domain = as->domain;
	h->held = as->held;
	h->dir = as->dir;
	atomic_store_explicit(&h->released, false, memory_order_relaxed);
	*fh = slot_id(&h->slot);
	slot_publish(&h->slot);
	return 0;
}

struct handle *handle_get(struct fuse_session *s, uint64_t fh, bool is_dir)
{
	struct handle *h = (struct handle *)(void *)slots_pin(&s->handles, fh);

	if (h && h->is_dir != is_dir) {
		handle_unpin(s, h);
		return NULL;
	}
	return h;
}

void handle_put(struct fuse_session *s, struct handle *h)
{
	handle_unpin(s, h);
}

/* Drop the base pin, once however often a guest releases. */
static bool handle_drop(struct fuse_session *s, struct handle *h)
{
	if (atomic_exchange_explicit(&h->released, true, memory_order_relaxed))
		return false;
	handle_unpin(s, h);
	return true;
}

int handle_release(struct fuse_session *s, uint64_t fh, bool is_dir)
{
	struct handle *h = handle_get(s, fh, is_dir);
	bool dropped;

	if (!h)
		return -EBADF;
	dropped = handle_drop(s, h);
	handle_unpin(s, h);
	return dropped ? 0 : -EBADF;
}

void handles_release_all(struct fuse_session *s)
{
	for (unsigned shard = 0; shard < SLOT_SHARDS; shard++) {
		uint32_t made = slots_made(&s->handles, shard);

		for (uint32_t i = 0; i < made; i++) {
			struct slot *slot = slots_pin_index(&s->handles, i * SLOT_SHARDS + shard);
			struct handle *h = (struct handle *)(void *)slot;

			if (!h)
				continue;
			handle_drop(s, h);
			handle_unpin(s, h);
		}
	}
}
