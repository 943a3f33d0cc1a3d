/*
 * Operations on locks, with locks=host: GETLK, SETLK, SETLKW.  They come for files only: Linux keeps
 * flock on directories to itself.
 *
 * Nothing here waits.  A SETLKW that somebody is in the way of says so, and is asked again: for how
 * long, and whether the guest still wants it, is the caller's of fuse_serve() to know.  Two owners
 * who wait for each other are not found out.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "devices/fuse/locks.h"
#include "devices/fuse/server.h"

/* A lock more, and a range cut in two. */
#define RANGES_ADDED 2

/* The lock of a request.  0 or -EINVAL. */
static int lock_read(const struct fuse_lk_in *in, struct flock *lock)
{
	bool to_end = in->lk.end >= INT64_MAX;

	if (in->lk.start > INT64_MAX || in->lk.start > in->lk.end || in->lk.type > F_UNLCK)
		return -EINVAL;
	*lock = (struct flock){
		.l_type = (short)in->lk.type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)in->lk.start,
		.l_len = to_end ? 0 : (off_t)(in->lk.end - in->lk.start + 1),
	};
	return 0;
}

static struct lock_key key_of(const struct fuse_req *r, const struct fuse_lk_in *in)
{
	return (struct lock_key){
		.node = r->h.nodeid,
		.owner = in->owner,
		.flock = in->lk_flags & FUSE_LK_FLOCK,
	};
}

/* --- the descriptor --------------------------------------------------------------------------- */

/*
 * To write where that can be, since a POSIX write lock may follow and locks cannot move to another
 * descriptor.  For flock as the guest has the file: nothing more is needed, and a program that
 * locks itself must not become one that is open for writing.
 */
static int lock_open(struct fuse_req *r, const struct lock_key *key, const struct node_ref *node,
		     const struct handle *h)
{
	static const int modes[] = { O_RDWR, O_RDONLY, O_WRONLY };
	int rc = -EBADF;

	if (key->flock)
		return node_reopen(r->s, node, fcntl(h->fd, F_GETFL) & O_ACCMODE);
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		if (r->s->readonly && modes[i] != O_RDONLY)
			continue;
		rc = node_reopen(r->s, node, modes[i]);
		if (rc != -EACCES && rc != -EPERM && rc != -EROFS && rc != -ETXTBSY)
			break;
	}
	return rc;
}

/* The owner's entry, made when he has none.  0 or -errno. */
static int lock_use_begin(struct fuse_req *r, const struct lock_key *key,
			  const struct node_ref *node, const struct handle *h, struct lock_use *u)
{
	int fd;

	if (lock_get(r->s, key, RANGES_ADDED, u))
		return 0;
	fd = lock_open(r, key, node, h);
	if (fd < 0)
		return fd == -ENFILE || fd == -EMFILE ? -ENOLCK : fd;
	return lock_enter(r->s, key, RANGES_ADDED, fd, u);
}

/* --- setting ---------------------------------------------------------------------------------- */

static bool is_whole_file(const struct flock *lock)
{
	return lock->l_start == 0 && lock->l_len == 0;
}

/* *known: of the owner's locks afterwards. */
static int set_posix(struct fuse_req *r, struct lock_use *u, const struct flock *lock, int *known)
{
	int rc;

	if (lock->l_type == F_UNLCK && is_whole_file(lock))
		*known = 0;
	else if ((rc = lock_room(r->s, u, lock->l_type == F_UNLCK, known)) < 0)
		return rc;
	return fcntl(u->fd, F_OFD_SETLK, lock) < 0 ? -errno : 0;
}

/* To change its kind, flock gives the old lock up first, here as on any file. */
static int set_flock(struct lock_use *u, const struct flock *lock, int *known)
{
	int how = lock->l_type == F_UNLCK ? LOCK_UN : lock->l_type == F_RDLCK ? LOCK_SH : LOCK_EX;
	int rc = flock(u->fd, how | LOCK_NB) < 0 ? -errno : 0;

	*known = rc == 0 && how != LOCK_UN;
	return rc;
}

static int set_lock(struct fuse_req *r, const struct lock_key *key, struct lock_use *u,
		    const struct flock *lock, bool awaited)
{
	int known = LOCKS_UNKNOWN, rc;

	if (key->flock)
		rc = set_flock(u, lock, &known);
	else
		rc = set_posix(r, u, lock, &known);
	if (rc == -EACCES || rc == -EWOULDBLOCK)
		rc = -EAGAIN;
	if (rc == -EAGAIN && awaited)
		known = LOCKS_AWAITED;
	else if (rc < 0 && !key->flock)
		known = LOCKS_AS_WERE;
	lock_put(r->s, u, known);
	return rc;
}

/* Answer to a lock that somebody is in the way of. */
static ssize_t is_held(const struct fuse_req *r, bool waits)
{
	if (!waits)
		return -EAGAIN;
	if (r->interrupted)
		return -EINTR;
	return r->w->may_wait ? FUSE_AGAIN : FUSE_SLOW;
}

static ssize_t set_on(struct fuse_req *r, const struct fuse_lk_in *in, const struct flock *lock,
		      const struct node_ref *node, const struct handle *h)
{
	bool waits = r->h.opcode == FUSE_SETLKW, keep = waits && !r->interrupted;
	struct lock_key key = key_of(r, in);
	struct lock_use u;
	int rc;

	if (lock->l_type != F_UNLCK)
		rc = lock_use_begin(r, &key, node, h, &u);
	else if (lock_get(r->s, &key, RANGES_ADDED, &u))
		rc = 0;
	else
		return req_reply_status(r, 0); /* who has no locks has none to give up */
	if (rc < 0)
		return rc;
	if (lock->l_type != F_UNLCK) /* which comes without a pid */
		lock_note(r->s, &u, in->lk.pid, in->fh);
	rc = set_lock(r, &key, &u, lock, keep);
	return rc == -EAGAIN ? is_held(r, waits) : req_reply_status(r, rc);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Through the owner's descriptor, since his own locks are not in his way.  Without, any will do. */
static int ask(struct fuse_req *r, const struct lock_key *key, const struct handle *h,
	       struct flock *lock)
{
	struct lock_use u = { 0 };
	bool has = lock_get(r->s, key, 0, &u);
	int rc = fcntl(has ? u.fd : h->fd, F_OFD_GETLK, lock) < 0 ? -errno : 0;

	if (has)
		lock_put(r->s, &u, LOCKS_UNKNOWN);
	return rc;
}

/* The pid is the guest's for a process of it, else 0: those of the host mean nothing there. */
static ssize_t get_on(struct fuse_req *r, const struct fuse_lk_in *in, struct flock *lock,
		      const struct handle *h)
{
	struct fuse_lk_out out = { .lk.type = F_UNLCK };
	struct lock_key key = key_of(r, in);
	int rc;

	if (key.flock || lock->l_type == F_UNLCK)
		return -EINVAL;
	rc = ask(r, &key, h, lock);
	if (rc < 0)
		return rc;
	if (lock->l_type != F_UNLCK) {
		off_t last = lock->l_start + lock->l_len - 1;

		out.lk.type = (uint32_t)lock->l_type;
		out.lk.start = (uint64_t)lock->l_start;
		out.lk.end = lock->l_len ? (uint64_t)last : INT64_MAX;
		out.lk.pid = lock->l_pid > 0 ? 0 : lock_pid(r->s, key.node, lock);
	}
	return req_reply(r, &out, sizeof(out));
}

/* --- operations ------------------------------------------------------------------------------- */

static ssize_t lock_op(struct fuse_req *r, const struct fuse_lk_in *in)
{
	struct node_ref node;
	struct flock lock;
	struct handle *h;
	ssize_t rc = lock_read(in, &lock);

	if (!r->s->locks)
		return -EOPNOTSUPP;
	if (rc < 0)
		return rc;
	rc = node_get(&r->s->nodes, r->h.nodeid, &node);
	if (rc < 0)
		return rc;
	/* Pinned to the end: entries go with their node. */
	h = handle_get(r->s, in->fh, false);
	if (!h)
		rc = -EBADF;
	else if (r->h.opcode == FUSE_GETLK)
		rc = get_on(r, in, &lock, h);
	else
		rc = set_on(r, in, &lock, &node, h);
	if (h)
		handle_put(r->s, h);
	node_put(&r->s->nodes, &node);
	return rc;
}

FUSE_OP(op_getlk)
{
	return lock_op(r, body);
}

/* Also SETLKW. */
FUSE_OP(op_setlk)
{
	return lock_op(r, body);
}
