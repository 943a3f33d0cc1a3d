#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "devices/fuse/locks.h"
#include "devices/fuse/server.h"

/*
 * Flags of open() that mean something to a file on the host.  The rest is the guest kernel's
 * business or would change what is opened.  Not here with a reason: O_APPEND, O_DSYNC, O_SYNC come
 * with each WRITE, where they are right even for pages written back late and after fcntl(F_SETFL);
 * O_DIRECT, unless asked for, as it wants the host's alignment, which the guest cannot know.
 */
#define OPEN_FLAGS (O_ACCMODE | O_TRUNC | O_NOATIME)

static int open_flags(const struct fuse_session *s, uint32_t guest)
{
	int flags = (int)guest & OPEN_FLAGS;

	/* To write a part of a page back the guest reads the rest of it, through the same handle. */
	if (is_agreed_on(s, FUSE_WRITEBACK_CACHE) && (flags & O_ACCMODE) == O_WRONLY)
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	return flags;
}

static uint32_t open_reply_flags(const struct fuse_session *s)
{
	switch (s->cache) {
	case FUSE_CACHE_NONE:
		return FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	case FUSE_CACHE_ALWAYS:
		return FOPEN_KEEP_CACHE;
	default:
		return 0;
	}
}

static bool is_for_writing(uint32_t flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

/* Gives fd away. */
static int file_handle(struct fuse_req *r, int fd, uint64_t id, uint64_t domain,
		       struct fuse_open_out *out)
{
	struct handle as = { .fd = fd, .node_id = id, .domain = domain };

	as.held = node_hold_open(r->s, id);

	out->open_flags |= open_reply_flags(r->s);
	return handle_new(r->s, r->w->index, &as, &out->fh);
}

/* Open the node's file for the guest's flags; *out learns what that means for the guest. */
static int open_node(struct fuse_req *r, const struct node_ref *ref, uint32_t guest,
		     struct fuse_open_out *out)
{
	int flags = open_flags(r->s, guest), fd = node_reopen(r->s, ref, flags);

	if (fd == -EACCES && (flags ^ (int)guest) & O_ACCMODE) {
		/* May be written, not read: then the guest may not keep pages of it. */
		out->open_flags = FOPEN_DIRECT_IO;
		fd = node_reopen(r->s, ref, (flags & ~O_ACCMODE) | O_WRONLY);
	} else if (fd == -EPERM && guest & O_APPEND) {
		/* The host lets it grow only: pages written back would be appended, too. */
		out->open_flags = FOPEN_DIRECT_IO;
		fd = node_reopen(r->s, ref, flags | O_APPEND);
	}
	return fd;
}

FUSE_OP(op_open)
{
	const struct fuse_open_in *in = body;
	struct fuse_open_out out = { 0 };
	struct node_ref ref;
	int fd, rc;

	if (is_for_writing(in->flags) && r->s->readonly)
		return -EROFS;
	rc = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (rc < 0)
		return rc;
	if (in->flags & O_TRUNC)
		req_changes(r, !(in->open_flags & FUSE_OPEN_KILL_SUIDGID));
	fd = open_node(r, &ref, in->flags, &out);
	rc = fd < 0 ? fd : file_handle(r, fd, r->h.nodeid, ref.node->domain, &out);
	node_put(&r->s->nodes, &ref);
	return rc < 0 ? rc : req_reply(r, &out, sizeof(out));
}

/* Reply to CREATE and TMPFILE: fd is new, and is given away. */
static ssize_t reply_created(struct fuse_req *r, int fd, const struct node_ref *dir_ref,
			     const char *name)
{
	struct node_dir dir = node_dir(dir_ref);
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = { 0 };
	struct entry e;
	int rc = node_of_fd(r->s, fd, &dir, name, &e);

	if (rc < 0) {
		fd_close(r->s, fd);
		return rc;
	}
	rc = file_handle(r, fd, e.id, e.domain, &out.open);
	if (rc < 0) {
		node_forget(&r->s->nodes, e.id, 1);
		return rc;
	}
	attr_fill_entry(r->s, &out.entry, &e);
	return req_reply(r, &out, sizeof(out));
}

static int create_as_caller(struct fuse_req *r, int dir_fd, const char *name, int flags,
			    const struct fuse_create_in *in)
{
	int rc = fd_room(r->s);

	if (rc == 0)
		rc = cred_enter(&r->cred, in->umask);
	if (rc < 0)
		return rc;
	rc = fd_taken(r->s, openat(dir_fd, name, flags | O_CLOEXEC | O_NOCTTY, in->mode & 07777));
	cred_leave(&r->cred);
	return rc;
}

/*
 * A file that exists by now was not there when the guest looked.  It may be a link or a device, and
 * nobody has checked permissions: never open it here.  ESTALE makes the guest's kernel look the
 * name up again and open what it finds in its own right.
 */
FUSE_OP(op_create)
{
	const struct fuse_create_in *in = body;
	int flags = (open_flags(r->s, in->flags) & ~O_TRUNC) | O_CREAT | O_EXCL | O_NOFOLLOW;
	char name[FUSE_NAME_CAP];
	struct node_ref dir;
	ssize_t rc = req_name(r, name);
	int fd;

	if (rc < 0)
		return rc;
	if (!S_ISREG(in->mode) && in->mode & S_IFMT)
		return -EINVAL;
	rc = labels_take(r);
	if (rc < 0)
		return rc;
	rc = node_get(&r->s->nodes, r->h.nodeid, &dir);
	if (rc < 0)
		return rc;
	fd = create_as_caller(r, dir.fd, name, flags, in);
	if (fd == -EEXIST && !(in->flags & O_EXCL))
		fd = -ESTALE;
	rc = fd < 0 ? fd : labels_set(r, fd, dir.fd, name);
	if (rc == 0)
		rc = reply_created(r, fd, &dir, name);
	else if (fd >= 0)
		fd_close(r->s, fd);
	node_put(&r->s->nodes, &dir);
	return rc;
}

/* O_EXCL: the file may not get a name later. */
FUSE_OP(op_tmpfile)
{
	const struct fuse_create_in *in = body;
	int flags = (open_flags(r->s, in->flags) & ~O_TRUNC) | ((int)in->flags & O_EXCL) | O_TMPFILE;
	char name[FUSE_NAME_CAP];
	struct node_ref dir;
	ssize_t rc = 0;
	int fd;

	/* No name that means anything, but labels may stand behind it. */
	if (is_agreed_on(r->s, FUSE_SECURITY_CTX))
		rc = req_string(r, name, sizeof(name));
	if (rc == 0)
		rc = labels_take(r);
	if (rc == 0)
		rc = node_get(&r->s->nodes, r->h.nodeid, &dir);
	if (rc != 0)
		return rc;
	if (dir.node->type == S_IFDIR)
		fd = create_as_caller(r, r->s->proc_fd, fd_name(dir.fd).s, flags, in);
	else
		fd = -ENOTDIR;
	/* What file systems without it say, through two kernels. */
	if (fd == -EISDIR || fd == -EINVAL)
		fd = -EOPNOTSUPP;
	rc = fd < 0 ? fd : labels_set(r, fd, -1, NULL);
	if (rc == 0)
		rc = reply_created(r, fd, &dir, NULL);
	else if (fd >= 0)
		fd_close(r->s, fd);
	node_put(&r->s->nodes, &dir);
	return rc;
}

static bool is_about_dir(const struct fuse_req *r)
{
	return r->h.opcode == FUSE_RELEASEDIR || r->h.opcode == FUSE_FSYNCDIR;
}

/*
 * What was locked through the handle ends with it: flock by rule; OFD locks, which look like POSIX
 * locks here, have no other end; and for POSIX locks FLUSH has been before.
 */
FUSE_OP(op_release)
{
	const struct fuse_release_in *in = body;
	const struct lock_key flock = { r->h.nodeid, in->lock_owner, true };

	if (in->release_flags & FUSE_RELEASE_FLOCK_UNLOCK)
		locks_end(r->s, &flock);
	locks_end_handle(r->s, r->h.nodeid, in->fh);
	return req_reply_status(r, handle_release(r->s, in->fh, is_about_dir(r)));
}

/*
 * One of the guest's descriptors closes: a close of ours lets network file systems report late
 * errors, and the process loses its POSIX locks on the file.
 */
FUSE_OP(op_flush)
{
	const struct fuse_flush_in *in = body;
	const struct lock_key posix = { r->h.nodeid, in->lock_owner, false };
	struct handle *h = handle_get(r->s, in->fh, false);
	int fd, rc = 0;

	locks_end(r->s, &posix);
	if (!h)
		return -EBADF;
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	/*
	 * With no descriptor to spare there is nothing to report, and close() must not fail for
	 * that.
	 */
	if (fd >= 0 && close(fd) < 0 && errno != EINTR)
		rc = -errno;
	handle_put(r->s, h);
	return req_reply_status(r, rc);
}

FUSE_OP(op_fsync)
{
	const struct fuse_fsync_in *in = body;
	struct handle *h = handle_get(r->s, in->fh, is_about_dir(r));
	int rc;

	if (!h)
		return -EBADF;
	rc = in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(h->fd) : fsync(h->fd);
	rc = rc < 0 ? -errno : 0;
	handle_put(r->s, h);
	return req_reply_status(r, rc);
}

/* --- syncfs ----------------------------------------------------------------------------------- */

struct sync_walk {
	struct fuse_session *s;
	uint64_t done[DOMAINS_MAX / 64]; /* bit per domain */
	uint32_t n_done;
	int rc; /* the first error of syncfs() */
};

/* Sync the file system of the node, unless that is done.  -errno: the node does not open. */
static int sync_by(struct sync_walk *w, const struct node_ref *ref)
{
	int flags = ref->node->type == S_IFDIR ? O_RDONLY | O_DIRECTORY : O_RDONLY;
	uint64_t domain = ref->node->domain, bit = (uint64_t)1 << domain % 64;
	int fd;

	if (domain >= DOMAINS_MAX || w->done[domain / 64] & bit)
		return 0;
	fd = node_reopen(w->s, ref, flags);
	if (fd < 0)
		return fd;
	if (syncfs(fd) < 0 && w->rc == 0)
		w->rc = -errno;
	fd_close(w->s, fd);
	w->done[domain / 64] |= bit;
	w->n_done++;
	return 0;
}

/*
 * By the nodes that the guest knows, until each domain had its turn.  A node that does not open
 * may have a neighbour that does; but not when descriptors have run out.
 */
static int sync_below(struct sync_walk *w)
{
	struct nodes *t = &w->s->nodes;
	uint32_t n = atomic_load_explicit(&t->n_domains, memory_order_relaxed);
	int rc = 0;

	for (unsigned shard = 0; shard < SLOT_SHARDS && w->n_done < n; shard++) {
		uint32_t made = slots_made(&t->slots, shard);

		for (uint32_t i = 0; i < made && w->n_done < n && rc != -ENFILE; i++) {
			struct node_ref ref;

			rc = node_get_index(t, i * SLOT_SHARDS + shard, w->done, &ref);
			if (rc < 0)
				continue;
			rc = sync_by(w, &ref);
			node_put(t, &ref);
		}
	}
	return rc == -ENFILE ? rc : w->rc;
}

/*
 * The guest sees one file system and asks once.  What it wrote may be on several of the host's, so
 * each that this share has met is synced, and none else: sync() would wait for disks and servers
 * that are no business of the guest's.  A descriptor kept on each would hold the host's mounts, so
 * a node at hand is opened.  Left out are file systems of which the guest knows no file or directory
 * any more, what it wrote there included, and those that found no place in the table.
 */
FUSE_OP(op_syncfs)
{
	struct sync_walk w = { .s = r->s };
	struct node_ref ref;
	int rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	(void)body;
	if (rc < 0)
		return rc;
	rc = sync_by(&w, &ref);
	node_put(&r->s->nodes, &ref);
	if (rc == 0)
		rc = sync_below(&w);
	return req_reply_status(r, rc);
}
