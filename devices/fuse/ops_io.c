/*
 * Operations on the bytes of files: READ, WRITE, LSEEK, FALLOCATE, COPY_FILE_RANGE.
 *
 * READ and WRITE move data between the host's page cache and the guest's buffers in one copy, take
 * no lock and allocate nothing.  A lane reads what is in the page cache; what has to come from a disk
 * first, and what must reach one before the answer, is for the helpers.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "devices/fuse/server.h"

/*
 * The most one COPY_FILE_RANGE moves: the queue waits for it, and the guest asks again for the
 * rest.
 */
#define COPY_MAX ((size_t)16 * 1024 * 1024)

#define SECTOR_MIN 512 /* of any disk; O_DIRECT is short by less at the end of a file only */

/* Is the guest's file open with O_DIRECT now, and may that reach the host? */
static bool is_direct(const struct fuse_req *r, uint32_t flags)
{
	return r->s->choices.direct && flags & O_DIRECT;
}

/*
 * Must a lane ask the host not to wait?  A file system that cannot tell whether it would has to be
 * taken to, unless it is memory.
 */
static int read_flags(const struct fuse_req *r, const struct handle *h)
{
	if (r->w->may_wait || nodes_kind(&r->s->nodes, h->domain) == HOST_MEMORY)
		return 0;
	return RWF_NOWAIT;
}

/*
 * Read len bytes at off into c, short only at the end of the file.  Bytes, -errno, or FUSE_SLOW when
 * some are not in memory.
 */
static ssize_t read_into(struct fuse_req *r, int fd, int flags, struct cursor c, size_t len,
			 off_t off)
{
	size_t done = 0;

	while (done < len) {
		unsigned n = cursor_slice(&c, len - done, r->w->iov, FUSE_IOV_MAX, NULL);
		ssize_t got;

		if (n == 0)
			break;
		got = preadv2(fd, r->w->iov, (int)n, off + (off_t)done, flags);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && flags && (errno == EAGAIN || errno == EOPNOTSUPP))
			return FUSE_SLOW;
		/* From the end of a file on, O_DIRECT asks for an alignment that nobody can have. */
		if (got < 0 && errno == EINVAL && done % SECTOR_MIN != 0)
			break;
		/*
		 * The guest takes a short reply for the end of the file, so never hide an error in
		 * one.
		 */
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
		cursor_skip(&c, (size_t)got);
	}
	return (ssize_t)done;
}

/*
 * Can [off, off + len) be a range of a file?  -1 as an offset would mean "where the last read
 * ended".
 */
static bool range_ok(uint64_t off, uint64_t len)
{
	return off <= INT64_MAX && len <= INT64_MAX - off;
}

FUSE_OP(op_read)
{
	const struct fuse_read_in *in = body;
	struct handle *h = handle_get(r->s, in->fh, false);
	size_t len = MIN(in->size, r->s->max_write);
	bool direct = is_direct(r, in->flags);
	struct cursor data = r->out;
	ssize_t n = -EINVAL;

	if (!h)
		return -EBADF;
	cursor_skip(&data, sizeof(struct fuse_out_header));
	/* Never more than was agreed, whatever room a guest lays out: it holds the lane. */
	if (direct && !r->w->may_wait)
		n = FUSE_SLOW;
	else if (range_ok(in->offset, len))
		n = read_into(r, handle_fd(r->s, h, direct), read_flags(r, h), data, len,
			      (off_t)in->offset);
	handle_put(r->s, h);
	return n < 0 ? n : req_reply_filled(r, (size_t)n);
}

/* How the guest's descriptor is open; pages written back later know nothing of that. */
static int write_flags(const struct fuse_session *s, const struct fuse_write_in *in)
{
	int flags = 0;

	if (in->write_flags & FUSE_WRITE_CACHE)
		return 0;
	/* A guest that writes back knows where the end is, and the host does not yet. */
	if (in->flags & O_APPEND && !is_agreed_on(s, FUSE_WRITEBACK_CACHE))
		flags |= RWF_APPEND;
	if ((in->flags & O_SYNC) == O_SYNC)
		flags |= RWF_SYNC;
	else if (in->flags & O_DSYNC)
		flags |= RWF_DSYNC;
	return flags;
}

/* Bytes, or -errno when not one was written. */
static ssize_t write_from(struct fuse_req *r, int fd, size_t len, off_t off, int flags)
{
	size_t done = 0;

	while (done < len) {
		unsigned n = cursor_slice(&r->in, len - done, r->w->iov, FUSE_IOV_MAX, NULL);
		ssize_t put = pwritev2(fd, r->w->iov, (int)n, off + (off_t)done, flags);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return done ? (ssize_t)done : -errno;
		if (put == 0)
			return done ? (ssize_t)done : -EIO;
		done += (size_t)put;
		cursor_skip(&r->in, (size_t)put);
	}
	return (ssize_t)done;
}

FUSE_OP(op_write)
{
	const struct fuse_write_in *in = body;
	struct fuse_write_out out = { 0 };
	bool direct = is_direct(r, in->flags) && !(in->write_flags & FUSE_WRITE_CACHE);
	int flags = write_flags(r->s, in);
	struct handle *h;
	ssize_t n;

	if (in->size > r->in_left || in->size > r->s->max_write || !range_ok(in->offset, in->size))
		return -EINVAL;
	if ((direct || flags & (RWF_SYNC | RWF_DSYNC)) && !r->w->may_wait)
		return FUSE_SLOW;
	h = handle_get(r->s, in->fh, false);
	if (!h)
		return -EBADF;
	req_changes(r, !(in->write_flags & FUSE_WRITE_KILL_SUIDGID));
	n = write_from(r, handle_fd(r->s, h, direct), in->size, (off_t)in->offset, flags);
	handle_put(r->s, h);
	if (n < 0)
		return n;
	out.size = (uint32_t)n;
	return req_reply(r, &out, sizeof(out));
}

/*
 * Other kinds of seek need no server; they would only move a position that nothing uses.  Not with
 * writeback: what the guest has yet to write back would look like a hole, and it does not do so before
 * it asks.  Told ENOSYS, its kernel takes all up to the end for data.
 */
FUSE_OP(op_lseek)
{
	const struct fuse_lseek_in *in = body;
	struct fuse_lseek_out out;
	struct handle *h;
	off_t at;
	int rc;

	if (in->whence != SEEK_DATA && in->whence != SEEK_HOLE)
		return -EINVAL;
	h = handle_get(r->s, in->fh, false);
	if (!h)
		return -EBADF;
	at = lseek(h->fd, (off_t)in->offset, (int)in->whence);
	rc = at < 0 ? -errno : 0;
	handle_put(r->s, h);
	if (rc < 0)
		return rc;
	out.offset = (uint64_t)at;
	return req_reply(r, &out, sizeof(out));
}

/* No flag tells whether set-id bits may stay; root's kernel-side rights are the best guess. */
static void keep_setid_for_root(const struct fuse_req *r)
{
	req_changes(r, r->cred.root);
}

FUSE_OP(op_fallocate)
{
	const struct fuse_fallocate_in *in = body;
	struct handle *h;
	int rc;

	if (!range_ok(in->offset, in->length))
		return -EFBIG;
	h = handle_get(r->s, in->fh, false);
	if (!h)
		return -EBADF;
	keep_setid_for_root(r);
	rc = fallocate(h->fd, (int)in->mode, (off_t)in->offset, (off_t)in->length);
	rc = rc < 0 ? -errno : 0;
	handle_put(r->s, h);
	return req_reply_status(r, rc);
}

/* Bytes or -errno. */
static ssize_t copy_range(struct fuse_req *r, const struct fuse_copy_file_range_in *in)
{
	off_t from_off = (off_t)in->off_in, to_off = (off_t)in->off_out;
	size_t len = MIN(in->len, COPY_MAX);
	struct handle *from, *to;
	ssize_t n = -EBADF;

	if (!range_ok(in->off_in, len) || !range_ok(in->off_out, len))
		return -EINVAL;
	from = handle_get(r->s, in->fh_in, false);
	if (!from)
		return -EBADF;
	to = handle_get(r->s, in->fh_out, false);
	if (to) {
		keep_setid_for_root(r);
		n = copy_file_range(from->fd, &from_off, to->fd, &to_off, len, (unsigned)in->flags);
		if (n < 0)
			n = -errno;
		handle_put(r->s, to);
	}
	handle_put(r->s, from);
	return n;
}

/* Also COPY_FILE_RANGE_64, whose reply has a number twice as wide. */
FUSE_OP(op_copy_file_range)
{
	ssize_t n = copy_range(r, body);
	struct fuse_copy_file_range_out out = { .bytes_copied = (uint64_t)n };

	/* COPY_MAX fits in 32 bits, and these come first: struct fuse_write_out reads the same. */
	_Static_assert(sizeof(out) == sizeof(struct fuse_write_out) &&
			       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		       "one reply for both");
	return n < 0 ? n : req_reply(r, &out, sizeof(out));
}
