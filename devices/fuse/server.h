/*
 * Inside of the file server: what session.c, nodes.c, handles.c, fds.c and the operations share.
 * What only the files of the nodes share is in nodes.h.
 *
 * Vocabulary.  A node is an inode the guest knows (by node id); a handle is an open file or
 * directory (by fh).  A request pins what it uses, so FORGET and RELEASE on another queue at the
 * same time only take the name away; the descriptor closes after the last pin.
 *
 * An operation returns the length of the reply it has sent, 0 when there is none to send, -errno,
 * which the dispatcher turns into the error reply, or FUSE_SLOW or FUSE_AGAIN with nothing done.
 */
#ifndef DEVICES_FUSE_SERVER_H
#define DEVICES_FUSE_SERVER_H

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "devices/fuse/cred.h"
#include "devices/fuse/pool.h"
#include "devices/fuse/session.h"
#include "devices/fuse/slots.h"
#include "devices/fuse/wire.h"
#include "vmm/base.h"
#include "vmm/compat.h"
#include "vmm/iov.h"

#define FUSE_NAME_CAP    (WIRE_NAME_MAX + 1)
#define FUSE_SCRATCH_LEN ((size_t)64 * 1024) /* XATTR_SIZE_MAX, XATTR_LIST_MAX; above PATH_MAX */
#define FUSE_IOV_MAX     1024                /* IOV_MAX: what one preadv2 takes */

/* --- the host's file systems (host_kind.c) ----------------------------------------------------- */

enum host_kind {
	HOST_DISK,   /* a read may have to wait for the disk; the kernel tells, if asked */
	HOST_MEMORY, /* never waits */
	HOST_REMOTE, /* anything may wait, for ever: networks, FUSE */
};

enum host_kind host_kind(int fd); /* of the file system that the file is on; fd may be O_PATH */

/* --- nodes (nodes.c, node_*.c) ---------------------------------------------------------------- */

/* Which file on the host: the mount tells bind mounts of one file system apart. */
struct node_key {
	uint64_t ino;
	uint64_t dev;
	uint64_t mnt;
};

/* How a node that has given up its descriptor gets another: see node_open.c. */
enum node_how {
	HOW_HANDLE_LATER, /* by a file handle, not asked for yet */
	HOW_HANDLE_SOON,  /* one thread is asking for it */
	HOW_HANDLE,       /* by node.handle */
	HOW_NAME,         /* by node.name */
	HOW_NOT,          /* in no way: it keeps the one it has */
};

/* struct file_handle, as long as those of the file systems that are asked for them. */
struct node_handle {
	unsigned len;
	int type;
	unsigned char bytes[24];
};

struct node {
	struct slot slot;
	_Atomic int fd;    /* O_PATH, or -1; only by node_get() and those who own the slot */
	atomic_bool used;  /* since the clock hand came by (node_reclaim.c) */
	atomic_bool keeps; /* its descriptor: it may have no name now.  Set under the shard lock */
	_Atomic uint8_t how; /* enum node_how */
	bool hashed;         /* under the shard lock, as the next two */
	struct node *next;   /* hash chain */
	/*
	 * References the guest holds: one more for every reply that names the node, fewer by
	 * FORGET.  The guest may forge FORGET, so this never decides more than when the guest loses
	 * its id: a request in flight is protected by pins.  0 = the base pin is gone.
	 */
	uint64_t nlookup;
	struct node_key key; /* fixed, as are the next three */
	uint32_t type;       /* S_IFMT bits of the mode */
	struct statx_timestamp btime;
	uint64_t domain; /* see attr_ino() */
	union {
		struct node_handle handle; /* HOW_HANDLE; fixed */
		struct {
			uint64_t dir; /* id of a directory where it was found */
			char *text;   /* and its name there; allocated, or NULL: keeps is set */
		} name;               /* HOW_NAME; under the shard lock */
	};
};

#define DOMAINS_MAX 1024

struct nodes {
	struct slots slots;
	struct node root; /* not in the hash, never forgotten */
	struct node_bucket {
		struct node **head;
		uint32_t n_heads, n; /* n_heads: power of two */
	} hash[SLOT_SHARDS];         /* each under the lock of its shard of slots */

	/* File systems below the share; their keys have no ino.  [0] is the root's, not filled. */
	pthread_mutex_t domain_lock;
	_Atomic uint32_t n_domains; /* changed under the lock */
	struct node_key domain[DOMAINS_MAX];
	uint8_t kind[DOMAINS_MAX]; /* enum host_kind; fixed when a domain is entered */
	atomic_bool has_remote;    /* some domain is, or was */

	int mount_fd; /* of the root, not O_PATH: file handles are opened by it.  -1: by name */
	/*
	 * Names that have moved or gone.  A name looked up is only taken for the node's when none
	 * has meanwhile, or it may have been this.
	 */
	_Atomic uint64_t moves;

	/* Whose a descriptor is: index + 1 of the node's slot, or 0.  See node_reclaim.c. */
	_Atomic uint32_t *owner;
	int n_owners;
	_Atomic int owner_end; /* no descriptor of a node was ever this or above */
	_Atomic uint32_t owner_hand;
};

static inline enum host_kind nodes_kind(const struct nodes *t, uint64_t domain)
{
	/* Those that found no place are rare enough. */
	return domain < DOMAINS_MAX ? (enum host_kind)t->kind[domain] : HOST_DISK;
}

/* Is the node on a file system where anything may take long? */
bool node_is_remote(struct nodes *t, uint64_t id);

/*
 * A node in use by a request: pinned, with a descriptor that is good until node_put().  The
 * descriptor is O_PATH; operations must not assume that it is the node's only one.
 */
struct node_ref {
	struct node *node;
	int fd;
	bool own; /* fd is not the node's but of this request only */
};

/* root_fd is the table's from here on, also when it fails.  by_name: without file handles. */
int nodes_init(struct nodes *t, int root_fd, bool by_name);
void nodes_destroy(struct nodes *t);
void nodes_forget_all(struct nodes *t);

/*
 * 0; -ESTALE: unknown id, or its file has gone on the host; or another -errno, when it takes a
 * descriptor to open it again and that fails.
 */
int node_get(struct nodes *t, uint64_t id, struct node_ref *ref);
/* The same by index of its slot (slots_pin_index), when its domain is not in skip (bit each). */
int node_get_index(struct nodes *t, uint32_t index, const uint64_t *skip, struct node_ref *ref);
void node_put(struct nodes *t, struct node_ref *ref);

/* A directory to look names up in: by the node's descriptor, or one of its handle's. */
struct node_dir {
	int fd;
	uint64_t id;
	uint64_t domain;
};

static inline struct node_dir node_dir(const struct node_ref *ref)
{
	return (struct node_dir){ ref->fd, slot_id(&ref->node->slot), ref->node->domain };
}

/* What a name led to. */
struct entry {
	uint64_t id;
	uint64_t domain;
	bool submount; /* a directory on another mount than the one it was found in */
	struct statx st;
};

/*
 * Look name up in dir, and take one reference for the guest.  name has passed req_name().  Not
 * may_wait: dir is on no remote file system; FUSE_SLOW when the name leads to one.
 */
int node_lookup(struct fuse_session *s, const struct node_dir *dir, const char *name, bool may_wait,
		struct entry *e);

/*
 * The same for an open descriptor: the file just created as name in dir; without a name (NULL) by
 * O_TMPFILE.  Refuses no descriptor (fd_room).
 */
int node_of_fd(struct fuse_session *s, int fd, const struct node_dir *dir, const char *name,
	       struct entry *e);

void node_forget(struct nodes *t, uint64_t id, uint64_t n);

/*
 * Open the node's file itself.  Regular files and directories only (O_DIRECTORY); never waits for
 * one but for a lease.  fd, which ends with fd_close(), or -errno.
 */
int node_reopen(struct fuse_session *s, const struct node_ref *ref, int flags);

/*
 * The guest may go on with a file or directory whose name has gone, and a node that had given up
 * its descriptor could not find it any more.  So around all that takes names away or moves them:
 * node_hold before, then node_gone or node_moved when that was done, then node_put.
 *
 * node_hold: the node of the file of this name, if the guest knows it, with a descriptor of its own
 * and pinned so that it stays; else, or when no descriptor is to be had, ref->node is NULL, which
 * the others take.
 */
void node_hold(struct fuse_session *s, const struct node_dir *dir, const char *name,
	       struct node_ref *ref);
/* Of a name that only moves: does nothing where nodes are found by file handle. */
void node_hold_to_move(struct fuse_session *s, const struct node_dir *dir, const char *name,
		       struct node_ref *ref);
void node_gone(struct fuse_session *s, struct node_ref *ref, const struct node_dir *dir,
	       const char *name);
void node_moved(struct fuse_session *s, struct node_ref *ref, const struct node_dir *to,
		const char *name);

/* The node of this id, pinned for as long as it is open, if it is found by name; else NULL. */
struct node *node_hold_open(struct fuse_session *s, uint64_t id);
void node_unhold(struct fuse_session *s, struct node *n); /* n may be NULL */

/* --- handles (handles.c) ---------------------------------------------------------------------- */

struct handle {
	struct slot slot;
	int fd;
	bool is_dir;
	atomic_int direct_fd;     /* the same file with O_DIRECT, or -1; see direct.c */
	uint64_t node_id, domain; /* of the node it was opened from */
	struct node *held;        /* see node_hold_open */
	atomic_bool released;     /* the base pin is gone */
	struct dir_stream *dir;   /* directories only; see ops_dir.c */
};

/* A directory being listed (ops_dir.c). */
void dir_stream_free(struct fuse_session *s, struct dir_stream *d);

/* fd (of fd_taken), held and dir are the handle's from here on, also when it fails.  0 or -errno. */
int handle_new(struct fuse_session *s, unsigned shard, const struct handle *as, uint64_t *fh);
struct handle *handle_get(struct fuse_session *s, uint64_t fh, bool is_dir); /* or NULL */
void handle_put(struct fuse_session *s, struct handle *h);
int handle_release(struct fuse_session *s, uint64_t fh, bool is_dir); /* 0 or -EBADF */
void handles_release_all(struct fuse_session *s);

/* The descriptor for I/O that wants O_DIRECT, or does not (direct.c).  Good until handle_put(). */
int handle_fd(struct fuse_session *s, struct handle *h, bool direct);

/* --- session and worker ----------------------------------------------------------------------- */

struct fuse_worker {
	unsigned index;
	bool may_wait;    /* for the host as long as it takes: helpers, and lanes that have none */
	bool interrupted; /* the request in hand, by FUSE_INTERRUPT */
	bool remote;      /* it is slow because a remote file system has to answer */
	struct iovec iov[FUSE_IOV_MAX];
	_Alignas(uint64_t) char scratch[FUSE_SCRATCH_LEN];
} __attribute__((aligned(64)));

struct fuse_session {
	bool readonly;
	enum fuse_cache cache;
	struct fuse_choices choices;
	uint32_t max_write;
	uint64_t valid_s;      /* how long the guest may trust names and attributes */
	int proc_fd;           /* /proc/self/fd: from an O_PATH descriptor to the file itself */
	bool submounts;        /* tell the guest where the host's mounts begin */
	int fd_limit;          /* descriptors from here up are left to the rest: see fds.c */
	int fd_soft;           /* nodes that have one from here up give others up */
	int fd_excess_max;     /* with so many held above it, nothing begins */
	_Atomic int fd_excess; /* held above it */

	struct nodes nodes;
	struct slots handles;
	_Atomic uint32_t n_dir_tails; /* of open directories; see ops_dir.c */
	struct locks *locks;          /* the guest's on the host; NULL: it keeps them (locks.c) */

	/* The client has seen a file with a set-group-id bit and no execution by the group. */
	atomic_bool met_group_bit;

	_Atomic uint32_t minor;    /* agreed by INIT; 0 before */
	_Atomic uint64_t features; /* FUSE_* flags agreed by INIT; stored before minor */

	unsigned lanes;
	struct fuse_worker *worker; /* of the lanes, then of the helpers */
	struct fuse_pool *pool;     /* NULL: no helpers */
};

struct fuse_req {
	struct fuse_session *s;
	struct fuse_worker *w;
	struct fuse_in_header h; /* copied once; never read again from the guest */
	struct cursor in;        /* behind the fixed body */
	size_t in_left;          /* bytes of the request from there on, extensions not counted */
	struct cursor out;       /* at the start of the reply; header and fixed body fit */
	struct cred cred;        /* the caller */
	struct labels {
		struct cursor raw; /* as they came in the extensions; raw_len 0: not there */
		size_t raw_len;
		unsigned n; /* checked, from here on in scratch; see labels.c */
		const char *at;
	} labels;
	bool interrupted;        /* he no longer waits, if that can be helped */
};

static inline bool is_agreed_on(const struct fuse_session *s, uint64_t feature)
{
	return atomic_load_explicit(&s->features, memory_order_relaxed) & feature;
}

/* The next string of the request: up to cap - 1 bytes and NUL.  0, -EINVAL, or -ENAMETOOLONG. */
int req_string(struct fuse_req *r, char *s, size_t cap);
/* The same, and it names an entry of a directory: not "", ".", "..", no '/'. */
int req_name(struct fuse_req *r, char name[FUSE_NAME_CAP]);

/* The reply: header, then len bytes of body.  Returns the length of the reply. */
ssize_t req_reply(struct fuse_req *r, const void *body, size_t len);
/* The same when the len bytes of body are in place behind the header already. */
ssize_t req_reply_filled(struct fuse_req *r, size_t len);
/* Before the request changes a file's bytes or length: may its set-id bits stay? */
static inline void req_changes(const struct fuse_req *r, bool keep)
{
	cred_change(&r->cred, keep,
		    atomic_load_explicit(&r->s->met_group_bit, memory_order_relaxed));
}

/* Bytes of body that the guest has room for. */
size_t req_room(const struct fuse_req *r);
/* Reply with 0 and no body, or pass -errno on. */
ssize_t req_reply_status(struct fuse_req *r, int rc);

/* --- descriptors (fds.c) ---------------------------------------------------------------------- */

void fds_init(struct fuse_session *s); /* sets the limit, by that of the process */

/* A name below proc_fd. */
struct fd_name {
	char s[12];
};
struct fd_name fd_name(int fd);

/*
 * Before an operation that takes descriptors: 0, or -ENFILE when the session's share of them is
 * used up and no node can give one up.  Asked first, so that nothing has been done when the answer
 * is no.  What was begun may go above the limit by four on each lane, which is what FDS_LEFT_ALONE
 * allows for.
 */
int fd_room(struct fuse_session *s);

/* The result of a call that makes a descriptor: fd, counted until fd_close(), or -errno for -1. */
int fd_taken(struct fuse_session *s, int fd);

void fd_close(struct fuse_session *s, int fd);

/*
 * Let nodes that are not in use give up descriptors (node_reclaim.c).  True: some did.  The first
 * does little, for the time when descriptors are getting short; the second what it can.
 */
bool nodes_reclaim_some(struct fuse_session *s);
bool nodes_reclaim(struct fuse_session *s);

/* --- attributes (attr.c) ---------------------------------------------------------------------- */

#define ATTR_MASK (STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID)
#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

uint64_t attr_ino(uint64_t domain, uint64_t ino);
void attr_fill(struct fuse_session *s, struct fuse_attr *a, uint64_t domain,
	       const struct statx *st);
void attr_fill_entry(struct fuse_session *s, struct fuse_entry_out *out,
		     const struct entry *e);

/* Of an entry of a directory, or, with the name "", of a descriptor itself.  0 or -errno. */
int attr_stat(int fd, const char *name, struct statx *st);
/* The same as far as this host knows it without asking a remote server. */
int attr_peek(int fd, const char *name, struct statx *st);
/* Of a descriptor; sync: AT_STATX_*. */
int attr_statx(int fd, unsigned sync, unsigned mask, struct statx *st);

/* --- extended attributes' names (xattr_names.c) ----------------------------------------------- */

#define XATTR_NAME_CAP 256 /* XATTR_NAME_MAX and NUL */

/* Turn the guest's name into the host's.  0, or -EOPNOTSUPP, -ERANGE. */
int xattr_to_host(const struct fuse_session *s, char name[XATTR_NAME_CAP]);
/* Would it be a real right on the host, given by who is root by a map only?  A host's name. */
bool xattr_is_foreign_right(const struct fuse_session *s, const char *name);
/* The other way for a list of names, without those that the caller may not see.  Its new length. */
size_t xattr_list_to_guest(const struct fuse_req *r, char *list, size_t len);

/* --- security labels of new files (labels.c) -------------------------------------------------- */

/*
 * Take the labels that come with a request that makes a file, whose other parts have been read.  They
 * are the upper half of scratch from here on.  0 (r->labels.n may be 0), or -errno: make nothing.
 */
int labels_take(struct fuse_req *r);
/*
 * Give them to the new file fd, which is name in dir_fd (NULL: it has no name).  0, or -errno: then
 * it has been removed.
 */
int labels_set(struct fuse_req *r, int fd, int dir_fd, const char *name);

/* --- operations (ops_*.c) --------------------------------------------------------------------- */

#define FUSE_OP(name) ssize_t name(struct fuse_req *r, const void *body)

FUSE_OP(op_init);
FUSE_OP(op_destroy);
FUSE_OP(op_interrupt);

FUSE_OP(op_getattr);
FUSE_OP(op_setattr);
FUSE_OP(op_statx);
FUSE_OP(op_access);
FUSE_OP(op_statfs);

FUSE_OP(op_lookup);
FUSE_OP(op_forget);
FUSE_OP(op_batch_forget);
FUSE_OP(op_readlink);
FUSE_OP(op_symlink);
FUSE_OP(op_mknod);
FUSE_OP(op_mkdir);
FUSE_OP(op_unlink);
FUSE_OP(op_rmdir);
FUSE_OP(op_rename);
FUSE_OP(op_rename2);
FUSE_OP(op_link);

FUSE_OP(op_open);
FUSE_OP(op_create);
FUSE_OP(op_tmpfile);
FUSE_OP(op_release);
FUSE_OP(op_flush);
FUSE_OP(op_fsync);
FUSE_OP(op_syncfs);

FUSE_OP(op_read);
FUSE_OP(op_write);
FUSE_OP(op_lseek);
FUSE_OP(op_fallocate);
FUSE_OP(op_copy_file_range);

FUSE_OP(op_getlk);
FUSE_OP(op_setlk);

FUSE_OP(op_ioctl);
FUSE_OP(op_poll);

FUSE_OP(op_opendir);
FUSE_OP(op_readdir);
FUSE_OP(op_readdirplus);

FUSE_OP(op_setxattr);
FUSE_OP(op_getxattr);
FUSE_OP(op_listxattr);
FUSE_OP(op_removexattr);

#endif
