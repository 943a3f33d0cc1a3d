/*
 * Operations on extended attributes: SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.
 *
 * Names of user, trusted and security pass as they are.  POSIX ACLs are not agreed with the guest,
 * whose kernel would otherwise not apply them: neither shown nor taken.  Linux has these calls for
 * paths and real descriptors only; a node's descriptor N is the path "N" in /proc/self/fd, which is
 * the working directory of every serving thread (fuse_thread_init).
 */
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "devices/fuse/server.h"

#define XATTR_NAME_CAP 256 /* XATTR_NAME_MAX and NUL */

static bool is_hidden(const char *name)
{
	return !strncmp(name, "system.", 7);
}

static int xattr_name(struct fuse_req *r, char name[XATTR_NAME_CAP])
{
	int rc = req_string(r, name, XATTR_NAME_CAP);

	if (rc == -ENAMETOOLONG)
		return -ERANGE;
	return rc == 0 && is_hidden(name) ? -EOPNOTSUPP : rc;
}

FUSE_OP(op_setxattr)
{
	const struct fuse_setxattr_in *in = body;
	char name[XATTR_NAME_CAP];
	struct node_ref ref;
	int rc = xattr_name(r, name);

	if (rc < 0)
		return rc;
	if (in->size > FUSE_SCRATCH_LEN)
		return -E2BIG;
	if (in->size > r->in_left || !cursor_read(&r->in, r->w->scratch, in->size))
		return -EINVAL;
	rc = node_get(&r->s->nodes, r->h.nodeid, &ref);
	if (rc < 0)
		return rc;
	rc = setxattr(fd_name(ref.fd).s, name, r->w->scratch, in->size, (int)in->flags);
	rc = rc < 0 ? -errno : 0;
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

/* As on the host, where it takes a capability to see them, and these threads have it. */
static bool is_listed(const struct fuse_req *r, const char *name)
{
	return !is_hidden(name) && (r->cred.uid == 0 || strncmp(name, "trusted.", 8) != 0);
}

/* Take out of a list of NUL-terminated names what the caller may not see.  The new length. */
static size_t filter_names(const struct fuse_req *r, char *list, size_t len)
{
	size_t to = 0, step;

	for (size_t from = 0; from < len; from += step) {
		step = strnlen(list + from, len - from) + 1;
		if (from + step > len || !is_listed(r, list + from))
			continue;
		memmove(list + to, list + from, step);
		to += step;
	}
	return to;
}

FUSE_OP(op_listxattr)
{
	const struct fuse_getxattr_in *in = body;
	struct node_ref ref;
	ssize_t n = node_get(&r->s->nodes, r->h.nodeid, &ref);

	if (n < 0)
		return n;
	n = listxattr(fd_name(ref.fd).s, r->w->scratch, FUSE_SCRATCH_LEN);
	n = n < 0 ? -errno : (ssize_t)filter_names(r, r->w->scratch, (size_t)n);
	node_put(&r->s->nodes, &ref);
	return reply_value(r, in->size, n);
}
