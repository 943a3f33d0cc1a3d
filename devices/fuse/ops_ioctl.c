/*
 * IOCTL and POLL.
 *
 * Of the ioctls of files those pass that read and set attributes which a file system keeps with the
 * inode.  Linux since 5.13 makes them of its own calls, having checked who asks; before it passed
 * on whatever a program asked for.  The host's rules hold: what takes a capability there that
 * serving threads lack (immutable, append-only) is refused by the host's kernel.
 */
#include <errno.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "devices/fuse/server.h"

/* Linux 5.14; 5.13 has the minor of its predecessor. */
#define MINOR_CHECKS_OWNER 34

union ioctl_arg {
	uint32_t flags;
	uint64_t long_flags; /* what the number says, though int is what the kernel writes */
	struct fsxattr x;
};

static const struct ioctl_kind {
	unsigned long host_cmd;
	uint32_t cmd;
	uint16_t in_len, out_len;
} kinds[] = {
	{ FS_IOC_GETFLAGS, FS_IOC_GETFLAGS, 0, sizeof(uint32_t) },
	{ FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS, 0, sizeof(uint32_t) },
	{ FS_IOC_SETFLAGS, FS_IOC_SETFLAGS, sizeof(uint32_t), 0 },
	{ FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, sizeof(uint32_t), 0 },
	{ FS_IOC_FSGETXATTR, FS_IOC_FSGETXATTR, 0, sizeof(struct fsxattr) },
	{ FS_IOC_FSSETXATTR, FS_IOC_FSSETXATTR, sizeof(struct fsxattr), 0 },
};

static const struct ioctl_kind *kind_of(uint32_t cmd)
{
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].cmd == cmd)
			return &kinds[i];
	return NULL;
}

/* Setting is the owner's and root's. */
static int may_set(const struct fuse_req *r, const struct handle *h)
{
	struct statx st;
	int rc;

	if (atomic_load_explicit(&r->s->minor, memory_order_relaxed) >= MINOR_CHECKS_OWNER ||
	    r->h.uid == 0)
		return 0;
	rc = attr_stat(h->fd, "", &st);
	if (rc == 0 && ids_show_uid(&r->s->choices.ids, st.stx_uid) != r->h.uid)
		rc = -EPERM;
	return rc;
}

static int do_ioctl(const struct fuse_req *r, const struct ioctl_kind *k, const struct handle *h,
		    union ioctl_arg *arg)
{
	int rc = k->in_len ? may_set(r, h) : 0;

	if (rc == 0 && ioctl(h->fd, k->host_cmd, arg) < 0)
		rc = -errno;
	return rc;
}

FUSE_OP(op_ioctl)
{
	const struct fuse_ioctl_in *in = body;
	const struct ioctl_kind *k = kind_of(in->cmd);
	struct {
		struct fuse_ioctl_out head;
		union ioctl_arg arg;
	} out = { 0 };
	struct handle *h;
	int rc;

	/* The other kind, with addresses of the caller's, is for devices. */
	if (in->flags & FUSE_IOCTL_UNRESTRICTED)
		return -EINVAL;
	if (!k)
		return -ENOTTY;
	if (in->in_size < k->in_len || k->in_len > r->in_left || in->out_size < k->out_len ||
	    req_room(r) < sizeof(out.head) + k->out_len)
		return -EINVAL;
	if (k->in_len && r->s->readonly)
		return -EROFS;
	if (!cursor_read(&r->in, &out.arg, k->in_len))
		return -EINVAL;
	h = handle_get(r->s, in->fh, in->flags & FUSE_IOCTL_DIR);
	if (!h)
		return -EBADF;
	rc = do_ioctl(r, k, h, &out.arg);
	handle_put(r->s, h);
	return rc < 0 ? rc : req_reply(r, &out, sizeof(out.head) + k->out_len);
}

/* Files of a share never make a reader wait. */
FUSE_OP(op_poll)
{
	const struct fuse_poll_in *in = body;
	struct fuse_poll_out out = {
		.revents = in->events & (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM),
	};
	struct handle *h = handle_get(r->s, in->fh, false);

	if (!h)
		return -EBADF;
	handle_put(r->s, h);
	return req_reply(r, &out, sizeof(out));
}
