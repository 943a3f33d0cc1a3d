/*
 * The session: the table of operations, requests in and replies out.
 *
 * 1. The header is copied once and checked against what arrived.
 * 2. The opcode's row says how long the fixed body is and how long the fixed reply; a request that
 *    is too short or leaves no room for its reply fails here, before anything has been done.  So a
 *    reply that gives the guest a reference cannot get lost.
 * 3. The fixed body is copied once, and the operation runs.
 * 4. Its errors become the error reply; every reply goes through req_send().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/fuse/locks.h"
#include "devices/fuse/server.h"
#include "vmm/log.h"

#define MAX_WRITE_DEFAULT (1024 * 1024)
#define MAX_WRITE_MAX     ((uint32_t)UINT16_MAX * 4096) /* max_pages has 16 bits */

/* --- reading the request ---------------------------------------------------------------------- */

int req_string(struct fuse_req *r, char *s, size_t cap)
{
	size_t have = MIN(r->in_left, cap), len;
	struct cursor peek = r->in;

	if (!cursor_read(&peek, s, have))
		return -EINVAL;
	len = strnlen(s, have);
	if (len == have)
		return have == cap ? -ENAMETOOLONG : -EINVAL;
	cursor_skip(&r->in, len + 1);
	r->in_left -= len + 1;
	return 0;
}

int req_name(struct fuse_req *r, char name[FUSE_NAME_CAP])
{
	int rc = req_string(r, name, FUSE_NAME_CAP);

	if (rc < 0)
		return rc;
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
		return -EINVAL;
	return 0;
}

/* Who asks, in the host's numbers. */
static void req_cred(struct fuse_req *r)
{
	const struct ids *ids = &r->s->choices.ids;

	r->cred = (struct cred){ .uid = r->h.uid, .gid = r->h.gid, .root = r->h.uid == 0 };
	if (ids_are_same(ids))
		return;
	/* Squashed, all is made for the server itself, which is 0 where it can be others at all. */
	if (ids->squash) {
		r->cred.uid = r->cred.gid = 0;
		return;
	}
	r->cred.exact = true;
	idmap_to_host(&ids->uid, r->h.uid, &r->cred.uid);
	idmap_to_host(&ids->gid, r->h.gid, &r->cred.gid);
}

static void req_group(struct fuse_req *r, uint32_t group)
{
	const struct ids *ids = &r->s->choices.ids;

	if (r->cred.root || ids->squash)
		return;
	/* A group without a number here has no say. */
	r->cred.has_group = idmap_to_host(&ids->gid, group, &r->cred.group) || ids->gid.n == 0;
}

/* Extensions follow the request proper: the caller's further group, labels of a new file. */
static int req_extensions(struct fuse_req *r, struct cursor at, size_t len)
{
	struct fuse_ext_header ext;
	uint32_t groups[2]; /* how many, the first */

	while (len > 0) {
		struct cursor body = at;

		if (len < sizeof(ext) || !cursor_read(&body, &ext, sizeof(ext)))
			return -EINVAL;
		if (ext.size < sizeof(ext) || ext.size % 8 != 0 || ext.size > len)
			return -EINVAL;
		if (ext.type == FUSE_EXT_GROUPS && ext.size >= sizeof(ext) + sizeof(groups)) {
			if (!cursor_read(&body, groups, sizeof(groups)))
				return -EINVAL;
			if (groups[0] > 0)
				req_group(r, groups[1]);
		}
		if (ext.type > 0 && ext.type <= FUSE_MAX_NR_SECCTX) {
			r->labels.raw = at;
			r->labels.raw_len = ext.size;
		}
		cursor_skip(&at, ext.size);
		len -= ext.size;
	}
	return 0;
}

/* Header and length.  0, -EPROTO: no reply is possible, other -errno: reply that. */
static int req_open(struct fuse_req *r)
{
	struct cursor end;
	size_t ext_len;

	if (!cursor_read(&r->in, &r->h, sizeof(r->h)))
		return -EPROTO;
	req_cred(r);
	if (r->h.len < sizeof(r->h))
		return -EINVAL;
	r->in_left = r->h.len - sizeof(r->h);
	end = r->in;
	if (!cursor_skip(&end, r->in_left))
		return -EINVAL;
	ext_len = 8 * (size_t)r->h.total_extlen;
	if (ext_len == 0)
		return 0;
	if (ext_len > r->in_left)
		return -EINVAL;
	r->in_left -= ext_len;
	end = r->in;
	cursor_skip(&end, r->in_left);
	return req_extensions(r, end, ext_len);
}

/* --- writing the reply ------------------------------------------------------------------------ */

/* The one way out.  rc: 0 or -errno; body may be NULL when its len bytes are in place. */
static ssize_t req_send(struct fuse_req *r, int rc, const void *body, size_t len)
{
	struct fuse_out_header head = { .error = rc, .unique = r->h.unique };
	struct cursor c = r->out;

	head.len = (uint32_t)(sizeof(head) + len);
	if (!cursor_write(&c, &head, sizeof(head)))
		return -EPROTO;
	if (body && !cursor_write(&c, body, len))
		return req_send(r, -EINVAL, NULL, 0);
	return (ssize_t)(sizeof(head) + len);
}

ssize_t req_reply(struct fuse_req *r, const void *body, size_t len)
{
	return req_send(r, 0, body, len);
}

ssize_t req_reply_filled(struct fuse_req *r, size_t len)
{
	return req_send(r, 0, NULL, len);
}

ssize_t req_reply_status(struct fuse_req *r, int rc)
{
	return rc < 0 ? rc : req_send(r, 0, NULL, 0);
}

size_t req_room(const struct fuse_req *r)
{
	size_t room = cursor_left(&r->out);

	return room < sizeof(struct fuse_out_header) ? 0 : room - sizeof(struct fuse_out_header);
}

/* --- dispatch --------------------------------------------------------------------------------- */

enum {
	OP_CHANGES = 1, /* EROFS on a read-only share */
	OP_NO_REPLY = 2,
	OP_BEFORE_INIT = 4,
	OP_SLOW = 8,    /* takes its time on any file system */
	OP_AT_ONCE = 16, /* touches no file of the node in the header */
	OP_NOT_WRITEBACK = 32, /* the client can do better when it writes back */
};

struct op {
	ssize_t (*fn)(struct fuse_req *r, const void *body);
	uint16_t in_len;  /* fixed body */
	uint16_t out_len; /* fixed reply body; operations with a variable one look at req_room() */
	uint32_t flags;
};

#define OP(fn, in, out, flags)     \
	{                          \
		fn, in, out, flags \
	}
#define IN(name)   sizeof(struct fuse_##name##_in)
#define OUT(name)  sizeof(struct fuse_##name##_out)
#define CREATE_OUT (OUT(entry) + OUT(open))

static const struct op ops[] = {
	[FUSE_LOOKUP] = OP(op_lookup, 0, OUT(entry), 0),
	[FUSE_FORGET] = OP(op_forget, IN(forget), 0, OP_NO_REPLY | OP_AT_ONCE),
	[FUSE_GETATTR] = OP(op_getattr, IN(getattr), OUT(attr), 0),
	[FUSE_SETATTR] = OP(op_setattr, IN(setattr), OUT(attr), OP_CHANGES),
	[FUSE_READLINK] = OP(op_readlink, 0, 0, 0),
	[FUSE_SYMLINK] = OP(op_symlink, 0, OUT(entry), OP_CHANGES),
	[FUSE_MKNOD] = OP(op_mknod, IN(mknod), OUT(entry), OP_CHANGES),
	[FUSE_MKDIR] = OP(op_mkdir, IN(mkdir), OUT(entry), OP_CHANGES),
	[FUSE_UNLINK] = OP(op_unlink, 0, 0, OP_CHANGES),
	[FUSE_RMDIR] = OP(op_rmdir, 0, 0, OP_CHANGES),
	[FUSE_RENAME] = OP(op_rename, IN(rename), 0, OP_CHANGES),
	[FUSE_LINK] = OP(op_link, IN(link), OUT(entry), OP_CHANGES),
	[FUSE_OPEN] = OP(op_open, IN(open), OUT(open), 0),
	[FUSE_READ] = OP(op_read, IN(read), 0, 0),
	[FUSE_WRITE] = OP(op_write, IN(write), OUT(write), OP_CHANGES),
	[FUSE_STATFS] = OP(op_statfs, 0, OUT(statfs), 0),
	[FUSE_RELEASE] = OP(op_release, IN(release), 0, 0),
	[FUSE_FSYNC] = OP(op_fsync, IN(fsync), 0, OP_SLOW),
	[FUSE_SETXATTR] = OP(op_setxattr, WIRE_SETXATTR_IN_MIN, 0, OP_CHANGES),
	[FUSE_GETXATTR] = OP(op_getxattr, IN(getxattr), 0, 0),
	[FUSE_LISTXATTR] = OP(op_listxattr, IN(getxattr), 0, 0),
	[FUSE_REMOVEXATTR] = OP(op_removexattr, 0, 0, OP_CHANGES),
	[FUSE_FLUSH] = OP(op_flush, IN(flush), 0, 0),
	[FUSE_INIT] = OP(op_init, WIRE_INIT_IN_MIN, OUT(init), OP_BEFORE_INIT | OP_AT_ONCE),
	[FUSE_OPENDIR] = OP(op_opendir, IN(open), OUT(open), 0),
	[FUSE_READDIR] = OP(op_readdir, IN(read), 0, 0),
	[FUSE_RELEASEDIR] = OP(op_release, IN(release), 0, 0),
	[FUSE_FSYNCDIR] = OP(op_fsync, IN(fsync), 0, OP_SLOW),
	[FUSE_GETLK] = OP(op_getlk, IN(lk), OUT(lk), 0),
	[FUSE_SETLK] = OP(op_setlk, IN(lk), 0, 0),
	[FUSE_SETLKW] = OP(op_setlk, IN(lk), 0, 0),
	[FUSE_ACCESS] = OP(op_access, IN(access), 0, 0),
	[FUSE_CREATE] = OP(op_create, IN(create), CREATE_OUT, OP_CHANGES),
	[FUSE_INTERRUPT] = OP(op_interrupt, IN(interrupt), 0, OP_NO_REPLY | OP_AT_ONCE),
	[FUSE_DESTROY] = OP(op_destroy, 0, 0, OP_BEFORE_INIT | OP_AT_ONCE),
	[FUSE_IOCTL] = OP(op_ioctl, IN(ioctl), OUT(ioctl), 0),
	[FUSE_POLL] = OP(op_poll, IN(poll), OUT(poll), 0),
	[FUSE_BATCH_FORGET] = OP(op_batch_forget, IN(batch_forget), 0, OP_NO_REPLY | OP_AT_ONCE),
	[FUSE_FALLOCATE] = OP(op_fallocate, IN(fallocate), 0, OP_CHANGES | OP_SLOW),
	[FUSE_READDIRPLUS] = OP(op_readdirplus, IN(read), 0, 0),
	[FUSE_RENAME2] = OP(op_rename2, IN(rename2), 0, OP_CHANGES),
	[FUSE_LSEEK] = OP(op_lseek, IN(lseek), OUT(lseek), OP_NOT_WRITEBACK),
	[FUSE_COPY_FILE_RANGE] =
		OP(op_copy_file_range, IN(copy_file_range), OUT(write), OP_CHANGES | OP_SLOW),
	[FUSE_SYNCFS] = OP(op_syncfs, IN(syncfs), 0, OP_SLOW),
	[FUSE_TMPFILE] = OP(op_tmpfile, IN(create), CREATE_OUT, OP_CHANGES),
	[FUSE_STATX] = OP(op_statx, IN(statx), OUT(statx), 0),
	[FUSE_COPY_FILE_RANGE_64] =
		OP(op_copy_file_range, IN(copy_file_range), OUT(copy_file_range),
		   OP_CHANGES | OP_SLOW),
};

/* Room for the longest fixed body, aligned for any of them. */
union body {
	struct fuse_setattr_in setattr;
	struct fuse_copy_file_range_in copy;
	struct fuse_init_in init;
};

static const struct op *op_of(const struct fuse_req *r)
{
	uint32_t opcode = r->h.opcode;

	return opcode < ARRAY_SIZE(ops) && ops[opcode].fn ? &ops[opcode] : NULL;
}

static bool out_has_room(const struct fuse_req *r, size_t body_len)
{
	struct cursor c = r->out;

	return cursor_skip(&c, sizeof(struct fuse_out_header) + body_len);
}

static bool is_agreed(struct fuse_session *s)
{
	return atomic_load_explicit(&s->minor, memory_order_acquire) != 0;
}

/* To be served by a helper?  Asked of requests that are in order. */
static bool is_slow(struct fuse_req *r, const struct op *op)
{
	if (r->w->may_wait || op->flags & OP_AT_ONCE)
		return false;
	r->w->remote = node_is_remote(&r->s->nodes, r->h.nodeid);
	return op->flags & OP_SLOW || r->w->remote;
}

static ssize_t run(struct fuse_req *r, const struct op *op)
{
	union body body;
	ssize_t rc;

	/*
	 * These answers are for good: told ENOSYS once, the client does not ask again.  So ENOSYS
	 * is only for what no host file system could make work.
	 */
	if (!op)
		return -ENOSYS;
	if (op->flags & OP_NOT_WRITEBACK && is_agreed_on(r->s, FUSE_WRITEBACK_CACHE))
		return -ENOSYS;
	if (!(op->flags & OP_BEFORE_INIT) && !is_agreed(r->s))
		return -EIO;
	if (op->in_len > r->in_left || op->in_len > sizeof(body) ||
	    !cursor_read(&r->in, &body, op->in_len) ||
	    !(op->flags & OP_NO_REPLY || out_has_room(r, op->out_len)))
		return -EINVAL;
	r->in_left -= op->in_len;
	if (op->flags & OP_CHANGES && r->s->readonly)
		return -EROFS;
	if (is_slow(r, op))
		return FUSE_SLOW;
	rc = op->fn(r, &body);
	/* One file system of the host may say so of itself; the share has others. */
	return rc == -ENOSYS ? -EOPNOTSUPP : rc;
}

ssize_t fuse_serve(struct fuse_session *s, struct fuse_worker *w, struct cursor *in,
		   struct cursor *out)
{
	struct fuse_req r = {
		.s = s, .w = w, .in = *in, .out = *out, .interrupted = w->interrupted
	};
	const struct op *op;
	ssize_t rc = req_open(&r);

	if (rc == -EPROTO)
		return rc;
	op = op_of(&r);
	/* Without room for an error, nothing may fail: do not begin. */
	if (!(op && op->flags & OP_NO_REPLY) && !out_has_room(&r, 0))
		return -EPROTO;
	if (rc == 0)
		rc = run(&r, op);
	if (rc >= 0 || rc == FUSE_SLOW || rc == FUSE_AGAIN)
		return rc;
	if (op && op->flags & OP_NO_REPLY)
		return 0;
	return req_send(&r, (int)rc, NULL, 0);
}

/*
 * READ asks the host not to wait, and the attributes of a node are in memory, or with a remote file
 * system, which is a helper's to ask.
 */
bool fuse_is_quick(const struct fuse_worker *w, const struct cursor *in)
{
	struct fuse_in_header h;
	struct cursor peek = *in;

	return !w->may_wait && cursor_read(&peek, &h, sizeof(h)) &&
	       (h.opcode == FUSE_READ || h.opcode == FUSE_GETATTR);
}

ssize_t fuse_serve_waiting(struct fuse_session *s, struct fuse_worker *w, struct cursor *in,
			   struct cursor *out)
{
	bool may_wait = w->may_wait;
	ssize_t rc;

	w->may_wait = w->interrupted = true;
	rc = fuse_serve(s, w, in, out);
	w->may_wait = may_wait;
	w->interrupted = false;
	return rc;
}

/* --- life of a session ------------------------------------------------------------------------ */

void fuse_session_reset(struct fuse_session *s)
{
	atomic_store(&s->minor, 0);
	locks_end_all(s);
	handles_release_all(s);
	nodes_forget_all(&s->nodes);
	if (s->pool)
		fuse_pool_reset(s->pool);
}

static uint64_t cache_valid_s(enum fuse_cache cache)
{
	switch (cache) {
	case FUSE_CACHE_NONE:
		return 0;
	case FUSE_CACHE_ALWAYS:
		return 86400;
	default:
		return 1;
	}
}

/* Everything that needs no descriptor. */
static struct fuse_session *session_new(const struct fuse_opts *o)
{
	struct fuse_session *s = calloc(1, sizeof(*s));
	unsigned lanes = MAX(o->workers, 1), workers = lanes + o->helpers;

	if (!s)
		return NULL;
	s->worker = aligned_alloc(_Alignof(struct fuse_worker), workers * sizeof(*s->worker));
	if (!s->worker) {
		free(s);
		return NULL;
	}
	s->lanes = lanes;
	for (unsigned i = 0; i < workers; i++) {
		s->worker[i].index = i;
		s->worker[i].may_wait = i >= lanes || o->helpers == 0;
		s->worker[i].interrupted = s->worker[i].remote = false;
	}
	s->readonly = o->readonly;
	s->cache = o->cache;
	s->submounts = o->submounts;
	s->choices = o->choices;
	s->valid_s = cache_valid_s(o->cache);
	s->max_write = o->max_write ? MIN(o->max_write, MAX_WRITE_MAX) : MAX_WRITE_DEFAULT;
	fds_init(s);
	return s;
}

int fuse_session_create(const struct fuse_opts *o, struct fuse_session **out)
{
	struct fuse_session *s = session_new(o);
	int root_fd, rc;

	if (!s)
		return -ENOMEM;
	rc = o->locks == FUSE_LOCKS_HOST ? locks_create(s) : 0;
	if (rc == 0)
		rc = slots_init(&s->handles, sizeof(struct handle));
	if (rc < 0)
		goto free_session;
	s->proc_fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->proc_fd < 0) {
		rc = -errno;
		log_error("fs: /proc/self/fd: %s", strerror(-rc));
		goto free_handles;
	}
	root_fd = open(o->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = root_fd < 0 ? -errno : nodes_init(&s->nodes, root_fd, o->by_name);
	if (rc < 0)
		goto close_proc;
	if (o->helpers > 0)
		rc = fuse_pool_create(s, o->helpers, &s->pool);
	if (rc < 0)
		goto close_nodes;
	*out = s;
	return 0;

close_nodes:
	nodes_destroy(&s->nodes);
close_proc:
	close(s->proc_fd);
free_handles:
	slots_destroy(&s->handles);
free_session:
	locks_destroy(s);
	free(s->worker);
	free(s);
	return rc;
}

void fuse_session_destroy(struct fuse_session *s)
{
	if (!s)
		return;
	fuse_session_reset(s);
	fuse_pool_destroy(s->pool);
	nodes_destroy(&s->nodes);
	locks_destroy(s);
	slots_destroy(&s->handles);
	close(s->proc_fd);
	free(s->worker);
	free(s);
}

struct fuse_worker *fuse_session_worker(struct fuse_session *s, unsigned i)
{
	return &s->worker[i];
}

struct fuse_worker *fuse_session_helper(struct fuse_session *s, unsigned i)
{
	return &s->worker[s->lanes + i];
}

int fuse_thread_init(struct fuse_session *s)
{
	int rc = cred_thread_init();

	if (rc < 0)
		return rc;
	/* Operations that know paths only (xattrs) find descriptor N as the relative name "N". */
	return fchdir(s->proc_fd) < 0 ? -errno : 0;
}
