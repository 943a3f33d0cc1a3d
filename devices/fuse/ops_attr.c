/* Operations on attributes: GETATTR, STATX, SETATTR, ACCESS, STATFS. */
#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "devices/fuse/server.h"

#define STATX_KNOWN (STATX_BASIC_STATS | STATX_BTIME)

static ssize_t reply_attr(struct fuse_req *r, const struct node_ref *ref)
{
	struct fuse_attr_out out = { .attr_valid = r->s->valid_s };
	struct statx st;
	int rc = attr_stat(ref->fd, "", &st);

	if (rc < 0)
		return rc;
	attr_fill(r->s, &out.attr, ref->node->domain, &st);
	return req_reply(r, &out, sizeof(out));
}

/* The node's own descriptor serves files that have lost their name too. */
FUSE_OP(op_getattr)
{
	struct node_ref ref;
	ssize_t rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	(void)body;
	if (rc < 0)
		return rc;
	rc = reply_attr(r, &ref);
	node_put(&r->s->nodes, &ref);
	return rc;
}

static struct fuse_sx_time sx_time(const struct statx_timestamp *t)
{
	return (struct fuse_sx_time){ .tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec };
}

static void fill_statx(const struct fuse_session *s, struct fuse_statx *x, uint64_t domain,
		       const struct statx *st)
{
	*x = (struct fuse_statx){
		.mask = st->stx_mask & STATX_KNOWN,
		.blksize = st->stx_blksize,
		.attributes = st->stx_attributes,
		.attributes_mask = st->stx_attributes_mask,
		.nlink = st->stx_nlink,
		.uid = ids_show_uid(&s->choices.ids, st->stx_uid),
		.gid = ids_show_gid(&s->choices.ids, st->stx_gid),
		.mode = st->stx_mode,
		.ino = attr_ino(domain, st->stx_ino),
		.size = st->stx_size,
		.blocks = st->stx_blocks,
		.atime = sx_time(&st->stx_atime),
		.btime = sx_time(&st->stx_btime),
		.ctime = sx_time(&st->stx_ctime),
		.mtime = sx_time(&st->stx_mtime),
		.rdev_major = st->stx_rdev_major,
		.rdev_minor = st->stx_rdev_minor,
	};
}

FUSE_OP(op_statx)
{
	const struct fuse_statx_in *in = body;
	struct fuse_statx_out out = { .attr_valid = r->s->valid_s };
	unsigned sync = in->sx_flags & AT_STATX_SYNC_TYPE;
	struct node_ref ref;
	struct statx st;
	int rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	if (rc < 0)
		return rc;
	rc = attr_statx(ref.fd, sync, in->sx_mask & STATX_KNOWN, &st);
	if (rc == 0)
		fill_statx(r->s, &out.stat, ref.node->domain, &st);
	node_put(&r->s->nodes, &ref);
	return rc < 0 ? rc : req_reply(r, &out, sizeof(out));
}

/* --- SETATTR ---------------------------------------------------------------------------------- */

/*
 * The host drops set-id bits with it, those of a group whose members cannot execute the file
 * excepted: whether the caller is in that group is not known here (FUSE_HANDLE_KILLPRIV_V2).
 */
static int set_owner(struct fuse_req *r, const struct node_ref *ref,
		     const struct fuse_setattr_in *in)
{
	uid_t uid = in->valid & FATTR_UID ? in->uid : (uid_t)-1;
	gid_t gid = in->valid & FATTR_GID ? in->gid : (gid_t)-1;
	int rc = ids_chown(&r->s->choices.ids, &uid, &gid);

	if (rc < 0)
		return rc;
	cred_keep_setid(true);
	if (fchownat(ref->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

static int truncate_node(struct fuse_req *r, const struct node_ref *ref, off_t size)
{
	int fd = node_reopen(r->s, ref, O_WRONLY);
	int rc = 0;

	if (fd < 0)
		return fd == -ENXIO || fd == -ELOOP ? -EINVAL : fd;
	if (ftruncate(fd, size) < 0)
		rc = -errno;
	fd_close(r->s, fd);
	return rc;
}

static int set_size(struct fuse_req *r, const struct node_ref *ref,
		    const struct fuse_setattr_in *in)
{
	struct handle *h;
	int rc = 0;

	if (in->size > INT64_MAX)
		return -EFBIG;
	req_changes(r, !(in->valid & FATTR_KILL_SUIDGID));
	if (!(in->valid & FATTR_FH))
		return truncate_node(r, ref, (off_t)in->size);
	/* Through the handle: it may write where a new open would not be allowed to. */
	h = handle_get(r->s, in->fh, false);
	if (!h)
		return -EBADF;
	if (ftruncate(h->fd, (off_t)in->size) < 0)
		rc = -errno;
	handle_put(r->s, h);
	return rc;
}

static int set_mode(struct fuse_req *r, const struct node_ref *ref, mode_t mode)
{
	cred_keep_setid(true);
	if (fchmodat(r->s->proc_fd, fd_name(ref->fd).s, mode & 07777, 0) < 0)
		return -errno;
	return 0;
}

static struct timespec time_to_set(uint32_t valid, uint32_t given, uint32_t now, uint64_t sec,
				   uint32_t nsec)
{
	if (valid & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (valid & given)
		return (struct timespec){ .tv_sec = (time_t)sec, .tv_nsec = nsec };
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(const struct node_ref *ref, const struct fuse_setattr_in *in)
{
	struct timespec t[2] = {
		time_to_set(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
		time_to_set(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec),
	};

	return utimensat(ref->fd, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

#define SETS_TIMES (FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME | FATTR_MTIME_NOW)
#define SETS_ANY   (FATTR_UID | FATTR_GID | FATTR_SIZE | FATTR_MODE | SETS_TIMES)

static bool is_owner(const struct fuse_req *r, const struct node_ref *ref)
{
	struct statx st;

	return attr_stat(ref->fd, "", &st) == 0 &&
	       r->h.uid == ids_show_uid(&r->s->choices.ids, st.stx_uid);
}

/*
 * A request to set nothing is all that comes of chown(-1, -1), which clears set-id bits for root and
 * the owner, and of the guest's kernel before a write, where root's bits stay and others' go with the
 * write itself.  Root's are told apart by the time of the change, sent along with writeback only.
 */
static int set_nothing(struct fuse_req *r, const struct node_ref *ref,
		       const struct fuse_setattr_in *in)
{
	int rc;

	if (r->cred.root ? !(in->valid & FATTR_CTIME) : !is_owner(r, ref))
		return 0;
	rc = set_owner(r, ref, in);
	return rc == -EPERM ? 0 : rc;
}

/* Owner and size first: both may clear bits of the mode that the request also sets. */
static int set_all(struct fuse_req *r, const struct node_ref *ref, const struct fuse_setattr_in *in)
{
	int rc = 0;

	if (!(in->valid & SETS_ANY))
		return set_nothing(r, ref, in);
	if (in->valid & (FATTR_UID | FATTR_GID))
		rc = set_owner(r, ref, in);
	if (rc == 0 && in->valid & FATTR_SIZE)
		rc = set_size(r, ref, in);
	if (rc == 0 && in->valid & FATTR_MODE)
		rc = set_mode(r, ref, in->mode);
	if (rc == 0 && in->valid & SETS_TIMES)
		rc = set_times(ref, in);
	return rc;
}

FUSE_OP(op_setattr)
{
	const struct fuse_setattr_in *in = body;
	struct node_ref ref;
	ssize_t rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	if (rc < 0)
		return rc;
	rc = set_all(r, &ref, in);
	if (rc == 0)
		rc = reply_attr(r, &ref);
	node_put(&r->s->nodes, &ref);
	return rc;
}

/* --- the rest --------------------------------------------------------------------------------- */

/* The permission bits that apply to the caller; root may everything that somebody may. */
static unsigned rights_of(const struct fuse_req *r, const struct statx *st)
{
	const struct ids *ids = &r->s->choices.ids;
	unsigned mode = st->stx_mode;

	if (r->cred.root)
		return R_OK | W_OK | (S_ISDIR(mode) || mode & 0111 ? X_OK : 0);
	if (r->h.uid == ids_show_uid(ids, st->stx_uid))
		return mode >> 6 & 7;
	if (r->h.gid == ids_show_gid(ids, st->stx_gid))
		return mode >> 3 & 7;
	return mode & 7;
}

/* Only for clients that do not check permissions themselves; Linux does on virtiofs. */
FUSE_OP(op_access)
{
	const struct fuse_access_in *in = body;
	struct node_ref ref;
	struct statx st;
	int rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	if (rc < 0)
		return rc;
	rc = attr_stat(ref.fd, "", &st);
	node_put(&r->s->nodes, &ref);
	if (rc == 0 && in->mask & W_OK && r->s->readonly)
		rc = -EROFS;
	else if (rc == 0 && in->mask & (R_OK | W_OK | X_OK) & ~rights_of(r, &st))
		rc = -EACCES;
	return req_reply_status(r, rc);
}

FUSE_OP(op_statfs)
{
	struct fuse_statfs_out out = { 0 };
	struct node_ref ref;
	struct statfs st;
	int rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	(void)body;
	if (rc < 0)
		return rc;
	rc = fstatfs(ref.fd, &st) < 0 ? -errno : 0;
	node_put(&r->s->nodes, &ref);
	if (rc < 0)
		return rc;
	out.st = (struct fuse_kstatfs){
		.blocks = st.f_blocks,
		.bfree = st.f_bfree,
		.bavail = st.f_bavail,
		.files = st.f_files,
		.ffree = st.f_ffree,
		.bsize = (uint32_t)st.f_bsize,
		.namelen = (uint32_t)st.f_namelen,
		.frsize = (uint32_t)(st.f_frsize ? st.f_frsize : st.f_bsize),
	};
	return req_reply(r, &out, sizeof(out));
}
