/*
 * A FUSE client in the test's own process: builds requests byte by byte, sends them through
 * fuse_serve() in buffers cut as the test likes, and takes replies apart.
 */
#ifndef TESTS_UNIT_FUSE_CLIENT_H
#define TESTS_UNIT_FUSE_CLIENT_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/fuse/session.h"
#include "devices/fuse/wire.h"
#include "vmm/base.h"

#define CLIENT_BUF (1024 * 1024 + 8192)

struct client {
	struct fuse_session *s;
	struct fuse_worker *w;
	char share[64];
	uint64_t unique;
	uint32_t uid, gid;
	size_t piece;    /* length of each iovec; 0: one for all */
	size_t out_room; /* what the client offers for the reply */

	char in[CLIENT_BUF];
	size_t in_len;
	char out[CLIENT_BUF];
	ssize_t out_len; /* what fuse_serve returned */
	struct iovec iov[2 * CLIENT_BUF / 1024 + 4096];
};

/* --- the share on the host -------------------------------------------------------------------- */

static inline const char *host(struct client *c, const char *name)
{
	static _Thread_local char path[4][512];
	static _Thread_local unsigned next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", c->share, name);
	return p;
}

static inline void host_write(struct client *c, const char *name, const void *data, size_t len)
{
	int fd = open(host(c, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	close(fd);
}

static inline struct stat host_stat(struct client *c, const char *name)
{
	struct stat st;

	ck_assert_int_eq(lstat(host(c, name), &st), 0);
	return st;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	return remove(path);
}

static inline unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* --- requests --------------------------------------------------------------------------------- */

static inline void put(struct client *c, const void *p, size_t len)
{
	ck_assert_uint_le(c->in_len + len, sizeof(c->in));
	if (len)
		memcpy(c->in + c->in_len, p, len);
	c->in_len += len;
}

static inline void put_str(struct client *c, const char *s)
{
	put(c, s, strlen(s) + 1);
}

static inline struct fuse_in_header *begin(struct client *c, uint32_t opcode, uint64_t node)
{
	struct fuse_in_header h = {
		.opcode = opcode,
		.unique = ++c->unique,
		.nodeid = node,
		.uid = c->uid,
		.gid = c->gid,
	};

	c->in_len = 0;
	put(c, &h, sizeof(h));
	return (struct fuse_in_header *)(void *)c->in;
}

static inline unsigned cut(struct client *c, struct iovec *v, char *buf, size_t len)
{
	size_t piece = c->piece ? c->piece : len;
	unsigned n = 0;

	for (size_t at = 0; at < len; at += piece, n++)
		v[n] = (struct iovec){ buf + at, MIN(piece, len - at) };
	return n;
}

/* Send c->in as it stands.  What fuse_serve returned. */
static inline ssize_t send_raw(struct client *c)
{
	unsigned half = ARRAY_SIZE(c->iov) / 2;
	struct cursor in = cursor_of(c->iov, cut(c, c->iov, c->in, c->in_len));
	struct cursor out = cursor_of(c->iov + half, cut(c, c->iov + half, c->out, c->out_room));

	c->out_len = fuse_serve(c->s, c->w, &in, &out);
	return c->out_len;
}

static inline struct fuse_out_header *reply_head(struct client *c)
{
	return (struct fuse_out_header *)(void *)c->out;
}

static inline void *body(struct client *c)
{
	return c->out + sizeof(struct fuse_out_header);
}

static inline size_t body_len(struct client *c)
{
	return (size_t)c->out_len - sizeof(struct fuse_out_header);
}

/* Send, check the frame of the reply, return its error. */
static inline int finish(struct client *c)
{
	struct fuse_in_header *h = (struct fuse_in_header *)(void *)c->in;
	ssize_t n;

	h->len = (uint32_t)c->in_len;
	n = send_raw(c);
	ck_assert_int_ge(n, (ssize_t)sizeof(struct fuse_out_header));
	ck_assert_uint_eq(reply_head(c)->len, (uint32_t)n);
	ck_assert_uint_eq(reply_head(c)->unique, h->unique);
	ck_assert_int_le(reply_head(c)->error, 0);
	return reply_head(c)->error;
}

static inline int call(struct client *c, uint32_t opcode, uint64_t node, const void *fixed,
		       size_t len, const char *name)
{
	begin(c, opcode, node);
	put(c, fixed, len);
	if (name)
		put_str(c, name);
	return finish(c);
}

#define CALL(c, opcode, node, in, name) call(c, opcode, node, &(in), sizeof(in), name)

static inline int client_init_as(struct client *c, uint32_t minor, uint64_t features)
{
	struct fuse_init_in in = {
		.major = 7,
		.minor = minor,
		.max_readahead = 131072,
		.flags = (uint32_t)features,
		.flags2 = (uint32_t)(features >> 32),
	};

	return call(c, FUSE_INIT, 0, &in, minor < 36 ? 16 : sizeof(in), NULL);
}

static inline void client_start(struct client *c, const struct fuse_opts *o)
{
	const char *tmp = getenv("TMPDIR");
	struct fuse_opts opts = *o;

	memset(c, 0, offsetof(struct client, in));
	snprintf(c->share, sizeof(c->share), "%s/heddle-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(c->share));
	ck_assert_int_eq(chmod(c->share, 0755), 0);
	c->out_room = sizeof(c->out);
	opts.path = c->share;
	opts.workers = MAX(o->workers, 1);
	ck_assert_int_eq(fuse_session_create(&opts, &c->s), 0);
	c->w = fuse_session_worker(c->s, 0);
	ck_assert_int_eq(fuse_thread_init(c->s), 0);
	ck_assert_int_eq(client_init_as(c, 45, ~(uint64_t)0), 0);
}

static inline void client_stop(struct client *c)
{
	fuse_session_destroy(c->s);
	nftw(c->share, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- the operations tests need again and again ------------------------------------------------ */

/* Node id, or 0 and the error in *rc. */
static inline uint64_t lookup(struct client *c, uint64_t dir, const char *name, int *rc)
{
	int err = call(c, FUSE_LOOKUP, dir, NULL, 0, name);

	if (rc)
		*rc = err;
	return err ? 0 : ((struct fuse_entry_out *)body(c))->nodeid;
}

static inline void forget(struct client *c, uint64_t node, uint64_t n)
{
	struct fuse_forget_in in = { .nlookup = n };
	struct fuse_in_header *h = begin(c, FUSE_FORGET, node);

	put(c, &in, sizeof(in));
	h->len = (uint32_t)c->in_len;
	ck_assert_int_eq(send_raw(c), 0);
}

static inline int getattr(struct client *c, uint64_t node)
{
	struct fuse_getattr_in in = { 0 };

	return CALL(c, FUSE_GETATTR, node, in, NULL);
}

static inline struct fuse_attr *attr(struct client *c)
{
	return &((struct fuse_attr_out *)body(c))->attr;
}

static inline int open_node(struct client *c, uint32_t opcode, uint64_t node, uint32_t flags,
			    uint64_t *fh)
{
	struct fuse_open_in in = { .flags = flags };
	int rc = CALL(c, opcode, node, in, NULL);

	*fh = 0;
	if (rc == 0)
		*fh = ((struct fuse_open_out *)body(c))->fh;
	return rc;
}

static inline int create(struct client *c, uint64_t dir, const char *name, uint32_t flags,
			 uint32_t mode, uint64_t *node, uint64_t *fh)
{
	struct fuse_create_in in = { .flags = flags | O_CREAT, .mode = S_IFREG | mode };
	int rc = CALL(c, FUSE_CREATE, dir, in, name);
	struct fuse_entry_out *e = body(c);

	*node = *fh = 0;
	if (rc)
		return rc;
	*node = e->nodeid;
	*fh = ((struct fuse_open_out *)(void *)(e + 1))->fh;
	return 0;
}

static inline int release(struct client *c, uint32_t opcode, uint64_t fh)
{
	struct fuse_release_in in = { .fh = fh };

	return CALL(c, opcode, FUSE_ROOT_ID, in, NULL);
}

/* Bytes read (in body(c)) or -errno. */
static inline int read_file(struct client *c, uint64_t fh, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size };
	int rc = CALL(c, FUSE_READ, FUSE_ROOT_ID, in, NULL);

	return rc ? rc : (int)body_len(c);
}

static inline int write_as(struct client *c, struct fuse_write_in in, const void *data)
{
	int rc;

	begin(c, FUSE_WRITE, FUSE_ROOT_ID);
	put(c, &in, sizeof(in));
	put(c, data, in.size);
	rc = finish(c);
	return rc ? rc : (int)((struct fuse_write_out *)body(c))->size;
}

static inline int write_file(struct client *c, uint64_t fh, uint64_t off, const void *data,
			     size_t len)
{
	struct fuse_write_in in = { .fh = fh, .offset = off, .size = (uint32_t)len };

	return write_as(c, in, data);
}

#endif
