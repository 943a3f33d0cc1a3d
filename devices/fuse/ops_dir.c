/*
 * Operations on open directories: OPENDIR, READDIR, READDIRPLUS, RELEASEDIR, FSYNCDIR.
 *
 * Offsets are the host's own cookies, passed through: they survive changes to the directory and
 * going back exactly as they do on the host.  A handle keeps the entries that did not fit in the
 * last reply; a request for any other offset than the next one throws them away and seeks.
 *
 * READDIRPLUS takes a reference for the guest for each entry it sends, so whether an entry fits is
 * known before it is looked up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/fuse/server.h"

#define DIR_BUF_LEN (32 * 1024)

struct dir_stream {
	pthread_mutex_t lock; /* the guest may list one open directory from several queues */
	bool begun;           /* the descriptor is no longer at its start */
	uint64_t at;          /* cookie of the entry at pos */
	size_t pos, len;      /* of buf, in bytes */
	_Alignas(struct dirent64) char buf[DIR_BUF_LEN];
};

static struct dir_stream *dir_stream_new(void)
{
	struct dir_stream *d = malloc(sizeof(*d));

	if (!d)
		return NULL;
	pthread_mutex_init(&d->lock, NULL);
	d->begun = false;
	d->at = 0;
	d->pos = d->len = 0;
	return d;
}

void dir_stream_free(struct dir_stream *d)
{
	if (!d)
		return;
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int dir_seek(struct handle *h, uint64_t off)
{
	struct dir_stream *d = h->dir;

	if (off == d->at && (off != 0 || !d->begun))
		return 0;
	d->pos = d->len = 0;
	if (off > INT64_MAX || lseek(h->fd, (off_t)off, SEEK_SET) < 0)
		return -EINVAL;
	d->at = off;
	return 0;
}

/* The entry at the current place; NULL and 0 at the end, NULL and -errno. */
static const struct dirent64 *dir_peek(struct handle *h, int *rc)
{
	struct dir_stream *d = h->dir;

	*rc = 0;
	if (d->pos == d->len) {
		long n = syscall(SYS_getdents64, h->fd, d->buf, sizeof(d->buf));

		d->begun = true;
		d->pos = d->len = 0;
		if (n <= 0) {
			*rc = n < 0 ? -errno : 0;
			return NULL;
		}
		d->len = (size_t)n;
	}
	return (const struct dirent64 *)(const void *)(d->buf + d->pos);
}

static void dir_next(struct dir_stream *d, const struct dirent64 *de)
{
	d->at = (uint64_t)de->d_off;
	d->pos += de->d_reclen;
}

/* One entry on the wire; READDIR leaves the first member out. */
struct wire_entry {
	struct fuse_entry_out plus;
	char dirent[FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + NAME_MAX)];
};

static size_t wire_len(size_t name_len, bool plus)
{
	return (plus ? sizeof(struct fuse_entry_out) : 0) +
	       FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name_len);
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/*
 * Take a node for an entry and let the entry speak of it.  One without a node (id 0) is listed all
 * the same: "." and ".." by rule, others when the look-up fails, so that a listing is complete
 * whatever happens to one entry.
 */
static void add_node(struct fuse_req *r, const struct handle *h, const char *name,
		     struct fuse_entry_out *plus, struct fuse_dirent *head)
{
	struct entry e;

	memset(plus, 0, sizeof(*plus));
	if (is_dot(name) || node_lookup(r->s, h->fd, h->domain, name, &e) < 0)
		return;
	attr_fill_entry(r->s, plus, &e);
	head->ino = plus->attr.ino;
	head->type = (e.st.stx_mode & S_IFMT) >> 12;
}

/* Write one entry; the caller knows that it fits. */
static void put_entry(struct fuse_req *r, const struct handle *h, const struct dirent64 *de,
		      bool plus, struct cursor *to)
{
	size_t name_len = strlen(de->d_name);
	struct wire_entry w;
	struct fuse_dirent head = {
		.ino = attr_ino(h->domain, de->d_ino),
		.off = (uint64_t)de->d_off,
		.namelen = (uint32_t)name_len,
		.type = de->d_type,
	};

	if (plus)
		add_node(r, h, de->d_name, &w.plus, &head);
	memset(w.dirent, 0, sizeof(w.dirent));
	memcpy(w.dirent, &head, FUSE_NAME_OFFSET);
	memcpy(w.dirent + FUSE_NAME_OFFSET, de->d_name, name_len);
	if (plus)
		cursor_write(to, &w, wire_len(name_len, true));
	else
		cursor_write(to, w.dirent, wire_len(name_len, false));
}

/* Entries from the stream to the reply, as many as fit in room.  Bytes or -errno. */
static ssize_t list(struct fuse_req *r, struct handle *h, size_t room, bool plus)
{
	struct cursor to = r->out;
	size_t used = 0;

	cursor_skip(&to, sizeof(struct fuse_out_header));
	for (;;) {
		const struct dirent64 *de;
		size_t len;
		int rc;

		de = dir_peek(h, &rc);
		if (!de)
			return used ? (ssize_t)used : rc;
		len = wire_len(strlen(de->d_name), plus);
		/* No bytes at all would mean the end. */
		if (len > room - used)
			return used ? (ssize_t)used : -EINVAL;
		put_entry(r, h, de, plus, &to);
		used += len;
		dir_next(h->dir, de);
	}
}

static ssize_t readdir_common(struct fuse_req *r, const struct fuse_read_in *in, bool plus)
{
	struct handle *h = handle_get(r->s, in->fh, true);
	ssize_t n;

	if (!h)
		return -EBADF;
	pthread_mutex_lock(&h->dir->lock);
	n = dir_seek(h, in->offset);
	if (n == 0)
		n = list(r, h, MIN(in->size, req_room(r)), plus);
	pthread_mutex_unlock(&h->dir->lock);
	handle_put(r->s, h);
	return n < 0 ? n : req_reply_filled(r, (size_t)n);
}

FUSE_OP(op_readdir)
{
	return readdir_common(r, body, false);
}

FUSE_OP(op_readdirplus)
{
	return readdir_common(r, body, true);
}

FUSE_OP(op_opendir)
{
	struct fuse_open_out out = { 0 };
	struct handle as = { .is_dir = true };
	struct node_ref ref;
	int rc = node_get(&r->s->nodes, r->h.nodeid, &ref);

	(void)body;
	if (rc < 0)
		return rc;
	as.domain = ref.node->domain;
	as.fd = node_reopen(r->s, &ref, O_RDONLY | O_DIRECTORY);
	node_put(&r->s->nodes, &ref);
	if (as.fd < 0)
		return as.fd;
	as.dir = dir_stream_new();
	if (!as.dir) {
		close(as.fd);
		return -ENOMEM;
	}
	if (r->s->cache == FUSE_CACHE_ALWAYS)
		out.open_flags = FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR;
	rc = handle_new(r->s, r->w->index, &as, &out.fh);
	return rc < 0 ? rc : req_reply(r, &out, sizeof(out));
}

FUSE_OP(op_releasedir)
{
	const struct fuse_release_in *in = body;

	return req_reply_status(r, handle_release(r->s, in->fh, true));
}

FUSE_OP(op_fsyncdir)
{
	const struct fuse_fsync_in *in = body;
	struct handle *h = handle_get(r->s, in->fh, true);
	int rc;

	if (!h)
		return -EBADF;
	rc = in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(h->fd) : fsync(h->fd);
	rc = rc < 0 ? -errno : 0;
	handle_put(r->s, h);
	return req_reply_status(r, rc);
}
