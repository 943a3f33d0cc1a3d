/* Operations on the session: INIT, what client and server agree on; DESTROY; INTERRUPT. */
#include <errno.h>
#include <string.h>

#include "devices/fuse/server.h"
#include "vmm/log.h"

#define MAX_WRITE_OLD  (128 * 1024) /* 32 pages: the limit of clients without FUSE_MAX_PAGES */
#define PAGE_LEN       4096
#define MAX_BACKGROUND 256 /* requests a client keeps in flight that nobody waits for */

/* What is implemented; a client gets the part of it that it knows. */
static uint64_t features_offered(const struct fuse_session *s)
{
	uint64_t offer = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK |
			 FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO |
			 FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS |
			 FUSE_HANDLE_KILLPRIV_V2 | FUSE_INIT_EXT | FUSE_CREATE_SUPP_GROUP |
			 FUSE_HAS_IOCTL_DIR;

	if (s->submounts)
		offer |= FUSE_SUBMOUNTS;
	if (s->cache == FUSE_CACHE_AUTO)
		offer |= FUSE_AUTO_INVAL_DATA;
	if (s->cache == FUSE_CACHE_NONE)
		offer |= FUSE_DIRECT_IO_ALLOW_MMAP;
	if (s->locks)
		offer |= FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS;
	if (s->choices.acl)
		offer |= FUSE_POSIX_ACL | FUSE_SETXATTR_EXT;
	if (s->choices.labels)
		offer |= FUSE_SECURITY_CTX;
	if (s->choices.writeback)
		offer |= FUSE_WRITEBACK_CACHE;
	return offer;
}

static uint64_t features_agreed(const struct fuse_session *s, const struct fuse_init_in *in)
{
	uint64_t theirs = in->flags;

	if (in->flags & FUSE_INIT_EXT)
		theirs |= (uint64_t)in->flags2 << 32;
	return theirs & features_offered(s);
}

/* What the client and we have agreed on. */
static struct fuse_init_out agreement(const struct fuse_session *s, const struct fuse_init_in *in)
{
	uint64_t features = features_agreed(s, in);
	uint32_t max_write = s->max_write;

	if (!(features & FUSE_MAX_PAGES))
		max_write = MIN(max_write, MAX_WRITE_OLD);
	return (struct fuse_init_out){
		.major = FUSE_KERNEL_VERSION,
		.minor = MIN(in->minor, WIRE_MINOR_MAX),
		.max_readahead = in->max_readahead,
		.flags = (uint32_t)features,
		.flags2 = (uint32_t)(features >> 32),
		.max_background = MAX_BACKGROUND,
		.congestion_threshold = MAX_BACKGROUND / 4 * 3,
		.max_write = max_write,
		.time_gran = 1,
		.max_pages = (uint16_t)(max_write / PAGE_LEN),
	};
}

FUSE_OP(op_init)
{
	struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = WIRE_MINOR_MAX };
	struct fuse_init_in in = { 0 };
	size_t more = MIN(r->in_left, sizeof(in) - WIRE_INIT_IN_MIN);

	memcpy(&in, body, WIRE_INIT_IN_MIN);
	if (!cursor_read(&r->in, (char *)&in + WIRE_INIT_IN_MIN, more))
		return -EINVAL;
	/* A newer major is answered with ours, and the client tries again. */
	if (in.major > FUSE_KERNEL_VERSION)
		return req_reply(r, &out, sizeof(out));
	if (in.major < FUSE_KERNEL_VERSION || in.minor < WIRE_MINOR_MIN) {
		log_limited(LOG_LEVEL_ERROR, "fs: guest speaks FUSE %u.%u, 7.%u or later is needed",
			    in.major, in.minor, WIRE_MINOR_MIN);
		return -EPROTO;
	}
	/* A second INIT is a new mount, with nothing known. */
	fuse_session_reset(r->s);
	out = agreement(r->s, &in);
	atomic_store(&r->s->features, out.flags | (uint64_t)out.flags2 << 32);
	atomic_store(&r->s->minor, out.minor);
	return req_reply(r, &out, sizeof(out));
}

FUSE_OP(op_destroy)
{
	(void)body;
	fuse_session_reset(r->s);
	return req_reply_status(r, 0);
}

/*
 * What waits for another process's doing waits as a job of the pool.  Others cannot be interrupted:
 * they are with the host's kernel, for a disk, a server or (open_file in nodes.c) a lease.
 */
FUSE_OP(op_interrupt)
{
	const struct fuse_interrupt_in *in = body;

	if (r->s->pool)
		fuse_pool_interrupt(r->s->pool, in->unique);
	return 0;
}
