/*
 * Operations on open directories: OPENDIR, READDIR, READDIRPLUS.
 *
 * Offsets are the host's own cookies, passed through: they survive changes to the directory and
 * going back exactly as they do on the host.  Entries are read into the lane's scratch memory.
 * What did not fit in the reply (the tail) is kept with the handle for the next request; a request
 * for any other offset than the next one throws it away and seeks.  A guest may open as many
 * directories as there are descriptors, so only TAILS_MAX have a tail; the others seek each time.
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

#define DIR_READ_LEN ((size_t)32 * 1024) /* of host entries at a time; libc does the same */
#define TAILS_MAX    1024                /* 32 MiB at most */
#define NOWHERE      UINT64_MAX          /* no cookie: lseek takes 63 bits */

_Static_assert(DIR_READ_LEN <= FUSE_SCRATCH_LEN, "entries are read into scratch");

/* What getdents64 writes.  libc's has room for 255 bytes of name; compilers may believe that. */
struct host_dirent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct dir_stream {
	pthread_mutex_t lock; /* the guest may list one open directory from several queues */
	bool begun;           /* the descriptor is no longer at its start */
	uint64_t at;          /* cookie of the entry at pos */
	size_t pos, len;      /* of buf, in bytes */
	char *buf;            /* tail, or scratch of the lane that serves, or NULL */
	char *tail;           /* allocated; NULL: none */
};

static struct dir_stream *dir_stream_new(void)
{
	struct dir_stream *d = calloc(1, sizeof(*d));

	if (d)
		pthread_mutex_init(&d->lock, NULL);
	return d;
}

static void tail_drop(struct fuse_session *s, struct dir_stream *d)
{
	if (d->tail)
		atomic_fetch_sub_explicit(&s->n_dir_tails, 1, memory_order_relaxed);
	free(d->tail);
	d->tail = d->buf = NULL;
	d->pos = d->len = 0;
}

void dir_stream_free(struct fuse_session *s, struct dir_stream *d)
{
	if (!d)
		return;
	tail_drop(s, d);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static char *tail_alloc(struct fuse_session *s, size_t len)
{
	char *tail = NULL;

	if (atomic_fetch_add_explicit(&s->n_dir_tails, 1, memory_order_relaxed) < TAILS_MAX)
		tail = malloc(len);
	if (!tail)
		atomic_fetch_sub_explicit(&s->n_dir_tails, 1, memory_order_relaxed);
	return tail;
}

/* End of a request: the lane needs its scratch.  Without a tail the next request seeks. */
static void dir_settle(struct fuse_session *s, struct dir_stream *d)
{
	size_t left = d->len - d->pos;
	char *tail;

	if (d->buf == d->tail && left > 0)
		return;
	tail = left > 0 ? tail_alloc(s, left) : NULL;
	if (tail)
		memcpy(tail, d->buf + d->pos, left);
	else if (left > 0)
		d->at = NOWHERE;
	tail_drop(s, d);
	d->tail = d->buf = tail;
	d->len = tail ? left : 0;
}

static int dir_seek(struct fuse_session *s, struct handle *h, uint64_t off)
{
	struct dir_stream *d = h->dir;

	if (off > INT64_MAX)
		return -EINVAL;
	if (off == d->at && (off != 0 || !d->begun))
		return 0;
	if (lseek(h->fd, (off_t)off, SEEK_SET) < 0)
		return -EINVAL;
	tail_drop(s, d);
	d->at = off;
	return 0;
}

/* The entry at the current place; NULL and 0 at the end, NULL and -errno. */
static const struct host_dirent *dir_peek(struct fuse_req *r, struct handle *h, int *rc)
{
	struct dir_stream *d = h->dir;

	*rc = 0;
	if (d->pos == d->len) {
		long n = syscall(SYS_getdents64, h->fd, r->w->scratch, DIR_READ_LEN);

		d->begun = true;
		tail_drop(r->s, d);
		if (n <= 0) {
			*rc = n < 0 ? -errno : 0;
			return NULL;
		}
		d->buf = r->w->scratch;
		d->len = (size_t)n;
	}
	return (const struct host_dirent *)(const void *)(d->buf + d->pos);
}

static void dir_next(struct dir_stream *d, const struct host_dirent *de)
{
	d->at = (uint64_t)de->off;
	d->pos += de->reclen;
}

/* One entry on the wire; READDIR leaves the first member out. */
struct wire_entry {
	struct fuse_entry_out plus;
	char dirent[FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + WIRE_NAME_MAX)];
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
 * the same: "." and ".." by rule, others when the look-up fails or would wait, so that a listing is
 * complete whatever happens to one entry.
 */
static void add_node(struct fuse_req *r, const struct handle *h, const char *name,
		     struct fuse_entry_out *plus, struct fuse_dirent *head)
{
	struct node_dir dir = { h->fd, h->node_id, h->domain };
	struct entry e;

	memset(plus, 0, sizeof(*plus));
	if (is_dot(name) || node_lookup(r->s, &dir, name, r->w->may_wait, &e) < 0)
		return;
	attr_fill_entry(r->s, plus, &e);
	head->ino = plus->attr.ino;
	head->type = (e.st.stx_mode & S_IFMT) >> 12;
}

/* Write one entry; the caller knows that it fits, and that the name does. */
static void put_entry(struct fuse_req *r, const struct handle *h, const struct host_dirent *de,
		      size_t name_len, bool plus, struct cursor *to)
{
	struct wire_entry w;
	struct fuse_dirent head = {
		.ino = attr_ino(h->domain, de->ino),
		.off = (uint64_t)de->off,
		.namelen = (uint32_t)name_len,
		.type = de->type,
	};

	if (plus)
		add_node(r, h, de->name, &w.plus, &head);
	memset(w.dirent, 0, sizeof(w.dirent));
	memcpy(w.dirent, &head, FUSE_NAME_OFFSET);
	memcpy(w.dirent + FUSE_NAME_OFFSET, de->name, name_len);
	if (plus)
		cursor_write(to, &w, wire_len(name_len, true));
	else
		cursor_write(to, w.dirent, wire_len(name_len, false));
}

/*
 * Entries from the stream to the reply, as many as fit in room.  Names that no client takes are
 * left out.  Bytes or -errno.
 */
static ssize_t list(struct fuse_req *r, struct handle *h, size_t room, bool plus)
{
	const struct host_dirent *de;
	struct cursor to = r->out;
	size_t used = 0;
	int rc;

	cursor_skip(&to, sizeof(struct fuse_out_header));
	for (; (de = dir_peek(r, h, &rc)); dir_next(h->dir, de)) {
		size_t name_len = strlen(de->name), len = wire_len(name_len, plus);

		if (name_len > WIRE_NAME_MAX)
			continue;
		/* No bytes at all would mean the end. */
		if (len > room - used)
			return used ? (ssize_t)used : -EINVAL;
		put_entry(r, h, de, name_len, plus, &to);
		used += len;
	}
	return used ? (ssize_t)used : rc;
}

static ssize_t readdir_common(struct fuse_req *r, const struct fuse_read_in *in, bool plus)
{
	struct handle *h = handle_get(r->s, in->fh, true);
	ssize_t n;

	if (!h)
		return -EBADF;
	pthread_mutex_lock(&h->dir->lock);
	n = dir_seek(r->s, h, in->offset);
	if (n == 0) {
		n = list(r, h, MIN(in->size, req_room(r)), plus);
		dir_settle(r->s, h->dir);
	}
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
	as.node_id = r->h.nodeid;
	as.domain = ref.node->domain;
	as.fd = node_reopen(r->s, &ref, O_RDONLY | O_DIRECTORY);
	node_put(&r->s->nodes, &ref);
	if (as.fd < 0)
		return as.fd;
	as.dir = dir_stream_new();
	if (!as.dir) {
		fd_close(r->s, as.fd);
		return -ENOMEM;
	}
	if (r->s->cache == FUSE_CACHE_ALWAYS)
		out.open_flags = FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR;
	rc = handle_new(r->s, r->w->index, &as, &out.fh);
	return rc < 0 ? rc : req_reply(r, &out, sizeof(out));
}
