/*
 * Operations on names: LOOKUP, FORGET, READLINK, and all that make, move and remove entries.
 *
 * A name is one component below a directory the guest knows; it is never resolved further, so links
 * are followed by the guest only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "devices/fuse/server.h"

static ssize_t reply_entry(struct fuse_req *r, const struct entry *e)
{
	struct fuse_entry_out out;

	attr_fill_entry(r->s, &out, e);
	return req_reply(r, &out, sizeof(out));
}

/* The directory that a request is about, and the name in it. */
struct place {
	struct node_ref dir;
	char name[FUSE_NAME_CAP];
};

static int place_get(struct fuse_req *r, uint64_t dir_id, struct place *p)
{
	int rc = req_name(r, p->name);

	return rc < 0 ? rc : node_get(&r->s->nodes, dir_id, &p->dir);
}

static void place_put(struct fuse_req *r, struct place *p)
{
	node_put(&r->s->nodes, &p->dir);
}

static int place_lookup(struct fuse_req *r, const struct place *p, bool may_wait, struct entry *e)
{
	struct node_dir dir = node_dir(&p->dir);
	int rc = node_lookup(r->s, &dir, p->name, may_wait, e);

	if (rc == FUSE_SLOW)
		r->w->remote = true;
	return rc;
}

/* Is the second node of a request a helper's to touch? */
static bool is_for_helper(struct fuse_req *r, uint64_t id)
{
	if (r->w->may_wait || !node_is_remote(&r->s->nodes, id))
		return false;
	r->w->remote = true;
	return true;
}

/* --- look-up and forget ----------------------------------------------------------------------- */

FUSE_OP(op_lookup)
{
	struct fuse_entry_out none = { .entry_valid = r->s->valid_s };
	struct place p;
	struct entry e;
	int rc = place_get(r, r->h.nodeid, &p);

	(void)body;
	if (rc < 0)
		return rc;
	rc = place_lookup(r, &p, r->w->may_wait, &e);
	place_put(r, &p);
	/* Node id 0 lets the guest remember that there is no such name. */
	if (rc == -ENOENT && r->s->valid_s > 0)
		return req_reply(r, &none, sizeof(none));
	return rc < 0 ? rc : reply_entry(r, &e);
}

FUSE_OP(op_forget)
{
	const struct fuse_forget_in *in = body;

	node_forget(&r->s->nodes, r->h.nodeid, in->nlookup);
	return 0;
}

FUSE_OP(op_batch_forget)
{
	const struct fuse_batch_forget_in *in = body;
	struct fuse_forget_one one;

	for (uint32_t i = 0; i < in->count && r->in_left >= sizeof(one); i++) {
		if (!cursor_read(&r->in, &one, sizeof(one)))
			break;
		r->in_left -= sizeof(one);
		node_forget(&r->s->nodes, one.nodeid, one.nlookup);
	}
	return 0;
}

FUSE_OP(op_readlink)
{
	struct node_ref ref;
	ssize_t n = node_get(&r->s->nodes, r->h.nodeid, &ref);

	(void)body;
	if (n < 0)
		return n;
	/*
	 * With the empty name a link's own descriptor answers; other types give ENOENT, which is
	 * not what readlink says of them.
	 */
	n = readlinkat(ref.fd, "", r->w->scratch, PATH_MAX);
	if (n < 0)
		n = errno == ENOENT ? -EINVAL : -errno;
	node_put(&r->s->nodes, &ref);
	return n < 0 ? n : req_reply(r, r->w->scratch, (size_t)n);
}

/* --- making entries --------------------------------------------------------------------------- */

/* The directory and name of an operation that makes an entry; there is room for its node. */
static int place_to_make(struct fuse_req *r, struct place *p)
{
	int rc = fd_room(r->s);

	return rc < 0 ? rc : place_get(r, r->h.nodeid, p);
}

/* Become the caller, once all that the request says has been read. */
static int caller_enter(struct fuse_req *r, uint32_t mask)
{
	int rc = labels_take(r);

	return rc < 0 ? rc : cred_enter(&r->cred, mask);
}

/* The new entry e of p gets its labels, or goes again. */
static int label(struct fuse_req *r, const struct place *p, const struct entry *e)
{
	struct node_ref ref;
	int rc = node_get(&r->s->nodes, e->id, &ref);

	if (rc == 0) {
		rc = labels_set(r, ref.fd, p->dir.fd, p->name);
		node_put(&r->s->nodes, &ref);
	}
	if (rc < 0)
		node_forget(&r->s->nodes, e->id, 1);
	return rc;
}

/* End of an operation that made p (rc: 0) or failed to (rc: -errno). */
static ssize_t made(struct fuse_req *r, struct place *p, int rc)
{
	struct entry e;

	/* It is made: no way back.  It is where its directory is. */
	if (rc == 0)
		rc = place_lookup(r, p, true, &e);
	if (rc == 0 && r->labels.n > 0)
		rc = label(r, p, &e);
	place_put(r, p);
	return rc < 0 ? rc : reply_entry(r, &e);
}

FUSE_OP(op_symlink)
{
	struct place p;
	int rc = place_to_make(r, &p);

	(void)body;
	if (rc < 0)
		return rc;
	rc = req_string(r, r->w->scratch, PATH_MAX);
	if (rc == 0)
		rc = caller_enter(r, 0);
	if (rc == 0) {
		rc = symlinkat(r->w->scratch, p.dir.fd, p.name) < 0 ? -errno : 0;
		cred_leave(&r->cred);
	}
	return made(r, &p, rc);
}

/* The kernel's encoding of a device number in 32 bits. */
static dev_t decode_rdev(uint32_t rdev)
{
	return makedev(rdev >> 8 & 0xfff, (rdev & 0xff) | (rdev >> 12 & 0xfff00));
}

FUSE_OP(op_mknod)
{
	const struct fuse_mknod_in *in = body;
	struct place p;
	int rc = place_to_make(r, &p);

	if (rc < 0)
		return rc;
	/* Who is root by a map is not this machine's, and its devices are not his. */
	if ((S_ISCHR(in->mode) || S_ISBLK(in->mode)) && in->rdev != 0 &&
	    !ids_are_same(&r->s->choices.ids))
		rc = -EPERM;
	if (rc == 0)
		rc = caller_enter(r, in->umask);
	if (rc == 0) {
		dev_t rdev = decode_rdev(in->rdev);

		rc = mknodat(p.dir.fd, p.name, in->mode, rdev) < 0 ? -errno : 0;
		cred_leave(&r->cred);
	}
	return made(r, &p, rc);
}

FUSE_OP(op_mkdir)
{
	const struct fuse_mkdir_in *in = body;
	struct place p;
	int rc = place_to_make(r, &p);

	if (rc < 0)
		return rc;
	rc = caller_enter(r, in->umask);
	if (rc == 0) {
		rc = mkdirat(p.dir.fd, p.name, in->mode) < 0 ? -errno : 0;
		cred_leave(&r->cred);
	}
	return made(r, &p, rc);
}

FUSE_OP(op_link)
{
	const struct fuse_link_in *in = body;
	int proc_fd = r->s->proc_fd;
	struct node_ref old;
	struct place p;
	int rc;

	if (is_for_helper(r, in->oldnodeid))
		return FUSE_SLOW;
	rc = place_get(r, r->h.nodeid, &p);
	if (rc < 0)
		return rc;
	rc = node_get(&r->s->nodes, in->oldnodeid, &old);
	if (rc == 0) {
		struct fd_name path = fd_name(old.fd);

		/* By way of /proc: to link a bare descriptor takes a capability of its own. */
		if (linkat(proc_fd, path.s, p.dir.fd, p.name, AT_SYMLINK_FOLLOW) < 0)
			rc = -errno;
		node_put(&r->s->nodes, &old);
	}
	return made(r, &p, rc);
}

/* --- removing and moving ---------------------------------------------------------------------- */

static ssize_t remove_entry(struct fuse_req *r, int flags)
{
	struct node_ref old;
	struct node_dir dir;
	struct place p;
	int rc = place_get(r, r->h.nodeid, &p);

	if (rc < 0)
		return rc;
	dir = node_dir(&p.dir);
	node_hold(r->s, &dir, p.name, &old);
	rc = unlinkat(p.dir.fd, p.name, flags) < 0 ? -errno : 0;
	if (rc == 0)
		node_gone(r->s, &old, &dir, p.name);
	if (old.node)
		node_put(&r->s->nodes, &old);
	place_put(r, &p);
	return req_reply_status(r, rc);
}

FUSE_OP(op_unlink)
{
	(void)body;
	return remove_entry(r, 0);
}

FUSE_OP(op_rmdir)
{
	(void)body;
	return remove_entry(r, AT_REMOVEDIR);
}

/* With a whiteout, the file left in the old place is the caller's. */
static int rename_as_caller(struct fuse_req *r, const struct place *from, const struct place *to,
			    unsigned flags)
{
	bool makes = flags & RENAME_WHITEOUT;
	int rc = makes ? cred_enter(&r->cred, 0) : 0;

	if (rc < 0)
		return rc;
	if (renameat2(from->dir.fd, from->name, to->dir.fd, to->name, flags) < 0)
		rc = -errno;
	if (makes)
		cred_leave(&r->cred);
	return rc;
}

/* Rename, and keep track of the nodes of both names. */
static int rename_places(struct fuse_req *r, const struct place *from, const struct place *to,
			 unsigned flags)
{
	struct node_dir from_dir = node_dir(&from->dir), to_dir = node_dir(&to->dir);
	struct fuse_session *s = r->s;
	struct node_ref moved, old;
	int rc;

	node_hold_to_move(s, &from_dir, from->name, &moved);
	node_hold(s, &to_dir, to->name, &old);
	rc = rename_as_caller(r, from, to, flags);
	if (rc == 0 && flags & RENAME_EXCHANGE)
		node_moved(s, &old, &from_dir, from->name);
	else if (rc == 0)
		node_gone(s, &old, &to_dir, to->name);
	if (rc == 0)
		node_moved(s, &moved, &to_dir, to->name);
	if (old.node)
		node_put(&s->nodes, &old);
	if (moved.node)
		node_put(&s->nodes, &moved);
	return rc;
}

static ssize_t rename_entry(struct fuse_req *r, uint64_t new_dir, unsigned flags)
{
	struct place from, to;
	int rc;

	if (is_for_helper(r, new_dir))
		return FUSE_SLOW;
	rc = place_get(r, r->h.nodeid, &from);
	if (rc < 0)
		return rc;
	rc = place_get(r, new_dir, &to);
	if (rc == 0) {
		rc = rename_places(r, &from, &to, flags);
		place_put(r, &to);
	}
	place_put(r, &from);
	return req_reply_status(r, rc);
}

FUSE_OP(op_rename)
{
	const struct fuse_rename_in *in = body;

	return rename_entry(r, in->newdir, 0);
}

FUSE_OP(op_rename2)
{
	const struct fuse_rename2_in *in = body;

	return rename_entry(r, in->newdir, in->flags);
}
