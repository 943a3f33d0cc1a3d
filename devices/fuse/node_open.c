/*
 * From a node to descriptors: its own again, after it has given that up, and the file itself.
 *
 * A node is opened again in one of two ways.
 *
 * By file handle, on the share's own mount, where its file system finds a file by handle for as long
 * as it exists, under whatever name: the handle is asked for when the descriptor is given up for the
 * first time.  It takes CAP_DAC_READ_SEARCH, which is tried when the session is made.
 *
 * By name elsewhere: beneath the directory in which it was last looked up, which is opened in the
 * same way when it must.  LOOKUP, RENAME and LINK keep the name right; changes on the host can make
 * it wrong until the next LOOKUP.
 *
 * Either way the key and the birth time must be those of the node.  -ESTALE if not: the guest's
 * kernel then walks the path once more with fresh look-ups.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "devices/fuse/nodes.h"

#define CLIMB_MAX 256 /* directories above a node that have to be opened by name before it */

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* --- file handles ----------------------------------------------------------------------------- */

union handle_room {
	struct file_handle head;
	char room[sizeof(struct file_handle) + sizeof(((struct node_handle *)NULL)->bytes)];
};

static bool handle_of(int fd, struct node_handle *h)
{
	union handle_room r = { .head.handle_bytes = sizeof(h->bytes) };
	int mount_id;

	if (name_to_handle_at(fd, "", &r.head, &mount_id, AT_EMPTY_PATH) < 0)
		return false;
	h->len = r.head.handle_bytes;
	h->type = r.head.handle_type;
	memcpy(h->bytes, r.head.f_handle, h->len);
	return true;
}

static int open_handle(int mount_fd, const struct node_handle *h)
{
	union handle_room r = { .head = { .handle_bytes = h->len, .handle_type = h->type } };

	memcpy(r.head.f_handle, h->bytes, h->len);
	return open_by_handle_at(mount_fd, &r.head, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/*
 * Others (FUSE, FAT) give handles that are only good while the inode is in memory, or are not known
 * to be good.
 */
static bool finds_by_handle(int fd)
{
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return false;
	switch ((unsigned)st.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool handle_works(int root_fd, int mount_fd)
{
	struct node_handle h;
	int fd;

	if (!handle_of(root_fd, &h))
		return false;
	fd = open_handle(mount_fd, &h);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void node_open_init(struct nodes *t, bool by_name)
{
	int root_fd = atomic_load(&t->root.fd), fd;

	t->mount_fd = -1;
	/* Without mount ids (before Linux 5.8) a bind mount below cannot be told from the root's. */
	if (by_name || t->root.key.mnt == 0 || !finds_by_handle(root_fd))
		return;
	fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (handle_works(root_fd, fd))
		t->mount_fd = fd;
	else
		close(fd);
}

enum node_how node_how_at_first(const struct nodes *t, const struct node_key *k,
				const struct statx *st)
{
	/* An inode number could pass to another file unseen. */
	if (!(st->stx_mask & STATX_BTIME))
		return HOW_NOT;
	return t->mount_fd >= 0 && k->mnt == t->root.key.mnt ? HOW_HANDLE_LATER : HOW_NAME;
}

bool node_handle_take(struct node *n, int fd)
{
	uint8_t how = HOW_HANDLE_LATER;

	if (!atomic_compare_exchange_strong_explicit(&n->how, &how, HOW_HANDLE_SOON,
						     memory_order_acquire, memory_order_acquire))
		return how == HOW_HANDLE || how == HOW_NAME;
	how = handle_of(fd, &n->handle) ? HOW_HANDLE : HOW_NOT;
	/* Pairs with the acquire in node_open and above. */
	atomic_store_explicit(&n->how, how, memory_order_release);
	return how == HOW_HANDLE;
}

/* --- the node's descriptor again -------------------------------------------------------------- */

/* fd, just opened, is for ref->node, if it is that file; to keep when there is room. */
static int install(struct nodes *t, struct node_ref *ref, int fd, bool room)
{
	struct node *n = ref->node;
	struct node_key key;
	struct statx st;
	int rc = attr_statx(fd, 0, STATX_TYPE | STATX_INO | STATX_BTIME | STATX_MNT_ID, &st);
	int none = -1;

	key = node_key_of(&st);
	if (rc == 0 &&
	    (!node_key_equal(&key, &n->key) || !node_btime_equal(&st.stx_btime, &n->btime)))
		rc = -ESTALE;
	if (rc < 0) {
		fd_close(container_of(t, struct fuse_session, nodes), fd);
		return rc;
	}
	ref->fd = fd;
	/* Another lane may be faster, or about to take the old one. */
	ref->own = !room || !atomic_compare_exchange_strong_explicit(
				    &n->fd, &none, fd, memory_order_relaxed, memory_order_relaxed);
	if (!ref->own) {
		node_owner_set(t, n, fd);
		atomic_store_explicit(&n->used, true, memory_order_relaxed);
		node_fd_got(t, fd);
	}
	return 0;
}

static int open_by_handle(struct nodes *t, struct node_ref *ref)
{
	struct fuse_session *s = container_of(t, struct fuse_session, nodes);
	bool room = fd_room(s) == 0;
	int fd = fd_taken(s, open_handle(t->mount_fd, &ref->node->handle));

	return fd < 0 ? fd : install(t, ref, fd, room);
}

/* Where the node was found, and as what; name may be NULL. */
static int place_of(struct nodes *t, struct node *n, uint64_t *dir_id, char *name)
{
	pthread_mutex_t *lock = node_lock(t, n);
	int rc = 0;

	pthread_mutex_lock(lock);
	*dir_id = n->name.dir;
	if (!n->name.text)
		rc = -ESTALE;
	else if (name)
		memcpy(name, n->name.text, strlen(n->name.text) + 1);
	pthread_mutex_unlock(lock);
	return rc;
}

/* The name is used when its directory is still the one the caller has opened. */
static int open_beneath(struct nodes *t, const struct node_ref *dir, struct node_ref *ref)
{
	struct fuse_session *s = container_of(t, struct fuse_session, nodes);
	bool room = fd_room(s) == 0;
	char name[FUSE_NAME_CAP];
	uint64_t dir_id;
	int fd, rc = place_of(t, ref->node, &dir_id, name);

	if (rc == 0 && dir_id != slot_id(&dir->node->slot))
		rc = -ESTALE;
	if (rc < 0)
		return rc;
	fd = fd_taken(s, openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (fd == -ENOENT || fd == -ENOTDIR)
		return -ESTALE;
	return fd < 0 ? fd : install(t, ref, fd, room);
}

static struct node *pin(struct nodes *t, uint64_t id)
{
	return id == FUSE_ROOT_ID ? &t->root : (struct node *)(void *)slots_pin(&t->slots, id);
}

/* dir->node is pinned.  1: it has a descriptor, in dir->fd; 0: it is to be opened by name. */
static int at_hand(struct nodes *t, struct node_ref *dir)
{
	int rc;

	dir->own = false;
	dir->fd = node_fd(dir->node);
	if (dir->fd >= 0)
		return 1;
	if (atomic_load_explicit(&dir->node->how, memory_order_acquire) != HOW_HANDLE)
		return 0;
	rc = open_by_handle(t, dir);
	return rc < 0 ? rc : 1;
}

/*
 * From the directory id up to one that can be used as it is, *dir; in up, the n ids below it that
 * cannot.  0 or -errno.
 */
static int climb(struct nodes *t, uint64_t id, uint64_t up[CLIMB_MAX], unsigned *n,
		 struct node_ref *dir)
{
	for (*n = 0;;) {
		int rc;

		dir->node = pin(t, id);
		if (!dir->node)
			return -ESTALE;
		rc = at_hand(t, dir);
		if (rc > 0)
			return 0;
		if (rc == 0)
			rc = *n < CLIMB_MAX ? 0 : -ESTALE;
		if (rc == 0) {
			up[(*n)++] = id;
			rc = place_of(t, dir->node, &id, NULL);
		}
		node_unpin(t, dir->node);
		if (rc < 0)
			return rc;
	}
}

static int open_by_name(struct nodes *t, struct node_ref *ref)
{
	uint64_t id, up[CLIMB_MAX];
	struct node_ref dir;
	unsigned n;
	int rc = place_of(t, ref->node, &id, NULL);

	if (rc == 0)
		rc = climb(t, id, up, &n, &dir);
	if (rc < 0)
		return rc;
	while (n > 0 && rc == 0) {
		struct node_ref below = { .node = pin(t, up[--n]) };

		rc = below.node ? open_beneath(t, &dir, &below) : -ESTALE;
		node_put(t, &dir);
		if (rc < 0 && below.node)
			node_unpin(t, below.node);
		dir = below;
	}
	if (rc < 0)
		return rc;
	rc = open_beneath(t, &dir, ref);
	node_put(t, &dir);
	return rc;
}

int node_open(struct nodes *t, struct node_ref *ref)
{
	if (atomic_load_explicit(&ref->node->how, memory_order_acquire) == HOW_HANDLE)
		return open_by_handle(t, ref);
	return open_by_name(t, ref);
}

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
		(void)fcntl(fd, F_SETFL, (flags & (O_NOATIME | O_APPEND)) | O_NONBLOCK);
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
