/*
 * Operations on extended attributes: SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.
 *
 * Names are turned into the host's first (xattr_names.c).  Linux has these calls for
 * paths and real descriptors only; a node's descriptor N is the path "N" in /proc/self/fd, which is
 * the working directory of every serving thread (fuse_thread_init).
 */
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "devices/fuse/server.h"

static int xattr_name(struct fuse_req *r, char name[XATTR_NAME_CAP])
{
	int rc = req_string(r, name, XATTR_NAME_CAP);

	if (rc == -ENAMETOOLONG)
		return -ERANGE;
	return rc < 0 ? rc : xattr_to_host(r->s, name);
}

/* What follows the fixed body of a client that was told FUSE_SETXATTR_EXT. */
static int setxattr_flags(struct fuse_req *r, uint32_t *flags)
{
	uint32_t more[2]; /* setxattr_flags, padding */

	_Static_assert(sizeof(more) == sizeof(struct fuse_setxattr_in) - WIRE_SETXATTR_IN_MIN, "");
	/* Others say nothing of the caller's groups: only root surely may keep the bit. */
	*flags = r->cred.root ? 0 : FUSE_SETXATTR_ACL_KILL_SGID;
	if (!is_agreed_on(r->s, FUSE_SETXATTR_EXT))
		return 0;
	if (r->in_left < sizeof(more) || !cursor_read(&r->in, more, sizeof(more)))
		return -EINVAL;
	r->in_left -= sizeof(more);
	*flags = more[0];
	return 0;
}

/* The host did not: the server is in the file's group, or may set such bits for any. */
static int drop_setgid(struct fuse_req *r, const struct node_ref *ref)
{
	struct statx st;
	int rc = attr_stat(ref->fd, "", &st);

	if (rc < 0 || !(st.stx_mode & S_ISGID))
		return rc;
	if (fchmodat(r->s->proc_fd, fd_name(ref->fd).s, st.stx_mode & 07777 & ~S_ISGID, 0) < 0)
		return -errno;
	return 0;
}

static int set_value(struct fuse_req *r, const struct node_ref *ref, const char *name,
		     const struct fuse_setxattr_in *in, bool kill_sgid)
{
	if (xattr_is_foreign_right(r->s, name))
		return -EPERM;
	cred_keep_setid(true);
	if (setxattr(fd_name(ref->fd).s, name, r->w->scratch, in->size, (int)in->flags) < 0)
		return -errno;
	if (kill_sgid && !strcmp(name, "system.posix_acl_access"))
		return drop_setgid(r, ref);
	return 0;
}

FUSE_OP(op_setxattr)
{
	const struct fuse_setxattr_in *in = body;
	char name[XATTR_NAME_CAP];
	struct node_ref ref;
	uint32_t flags;
	int rc = setxattr_flags(r, &flags);

	if (rc == 0)
		rc = xattr_name(r, name);
	if (rc < 0)
		return rc;
	if (in->size > FUSE_SCRATCH_LEN)
		return -E2BIG;
	if (in->size > r->in_left || !cursor_read(&r->in, r->w->scratch, in->size))
		return -EINVAL;
	rc = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (rc < 0)
		return rc;
	rc = set_value(r, &ref, name, in, flags & FUSE_SETXATTR_ACL_KILL_SGID);
	node_put(&r->s->nodes, &ref);
	return req_reply_status(r, rc);
}

FUSE_OP(op_removexattr)
{
	char name[XATTR_NAME_CAP];
	struct node_ref ref;
	int rc = xattr_name(r, name);

	(void)body;
	if (rc < 0)
		return rc;
	rc = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (rc < 0)
		return rc;
	rc = removexattr(fd_name(ref.fd).s, name) < 0 ? -errno : 0;
	node_put(&r->s->nodes, &ref);
	return req_reply_status(r, rc);
}

/* A question with size 0 asks for the length only. */
static ssize_t reply_value(struct fuse_req *r, size_t asked, ssize_t n)
{
	struct fuse_getxattr_out out = { .size = (uint32_t)n };

	if (n < 0)
		return n;
	if (asked == 0)
		return req_reply(r, &out, sizeof(out));
	return (size_t)n > asked ? -ERANGE : req_reply(r, r->w->scratch, (size_t)n);
}

FUSE_OP(op_getxattr)
{
	const struct fuse_getxattr_in *in = body;
	size_t asked = MIN(in->size, FUSE_SCRATCH_LEN);
	char name[XATTR_NAME_CAP];
	struct node_ref ref;
	ssize_t n = xattr_name(r, name);

	if (n < 0)
		return n;
	n = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (n < 0)
		return n;
	n = getxattr(fd_name(ref.fd).s, name, r->w->scratch, asked);
	n = n < 0 ? -errno : n;
	node_put(&r->s->nodes, &ref);
	return reply_value(r, asked, n);
}

FUSE_OP(op_listxattr)
{
	const struct fuse_getxattr_in *in = body;
	struct node_ref ref;
	ssize_t n;

	if (r->s->choices.xattr == FUSE_XATTR_OFF)
		return -EOPNOTSUPP;
	n = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (n < 0)
		return n;
	n = listxattr(fd_name(ref.fd).s, r->w->scratch, FUSE_SCRATCH_LEN);
	n = n < 0 ? -errno : (ssize_t)xattr_list_to_guest(r, r->w->scratch, (size_t)n);
	node_put(&r->s->nodes, &ref);
	return reply_value(r, in->size, n);
}
