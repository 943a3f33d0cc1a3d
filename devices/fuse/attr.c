/*
 * Attributes on the wire, and inode numbers.
 *
 * The guest sees one device for the whole share, so two files from different host file systems must
 * not have one number.  Each file system met is a domain, numbered in order of discovery, the
 * root's is 0. Numbers below 2^48 get the domain in bits 48..62, so the root's pass as they are.
 * Larger ones (some network and stacked file systems) are hashed together with the domain into the
 * upper half, where a collision takes some 2^31 such files.  So are all numbers of file systems
 * that found no place in the table: a hash of device and mount is their domain.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define INO_BITS   48
#define LINK_GUESS 2048 /* no such link was seen to be longer */

uint64_t attr_ino(uint64_t domain, uint64_t ino)
{
	uint64_t h;

	if (ino >> INO_BITS == 0 && domain < DOMAINS_MAX)
		return domain << INO_BITS | ino;
	h = domain * 0xc2b2ae3d27d4eb4fu;
	h = (ino ^ h ^ (h >> 32)) * 0x9e3779b97f4a7c15u;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15u;
	return (h ^ (h >> 29)) | (uint64_t)1 << 63;
}

static uint32_t encode_rdev(uint32_t major, uint32_t minor)
{
	return (minor & 0xff) | (major & 0xfff) << 8 | (minor & ~0xffu) << 12;
}

void attr_fill(struct fuse_session *s, struct fuse_attr *a, uint64_t domain,
	       const struct statx *st)
{
	if (S_ISREG(st->stx_mode) && (st->stx_mode & (S_ISGID | S_IXGRP)) == S_ISGID)
		atomic_store_explicit(&s->met_group_bit, true, memory_order_relaxed);
	*a = (struct fuse_attr){
		.ino = attr_ino(domain, st->stx_ino),
		.size = st->stx_size,
		.blocks = st->stx_blocks,
		.atime = (uint64_t)st->stx_atime.tv_sec,
		.mtime = (uint64_t)st->stx_mtime.tv_sec,
		.ctime = (uint64_t)st->stx_ctime.tv_sec,
		.atimensec = st->stx_atime.tv_nsec,
		.mtimensec = st->stx_mtime.tv_nsec,
		.ctimensec = st->stx_ctime.tv_nsec,
		.mode = st->stx_mode,
		.nlink = st->stx_nlink,
		.uid = ids_show_uid(&s->choices.ids, st->stx_uid),
		.gid = ids_show_gid(&s->choices.ids, st->stx_gid),
		.rdev = encode_rdev(st->stx_rdev_major, st->stx_rdev_minor),
		.blksize = st->stx_blksize,
	};
}

void attr_fill_entry(struct fuse_session *s, struct fuse_entry_out *out,
		     const struct entry *e)
{
	memset(out, 0, sizeof(*out));
	/* Ids carry a generation of their own and never come again. */
	out->nodeid = e->id;
	out->entry_valid = s->valid_s;
	out->attr_valid = s->valid_s;
	attr_fill(s, &out->attr, e->domain, &e->st);
	if (e->submount)
		out->attr.flags |= FUSE_ATTR_SUBMOUNT;
}

/*
 * Links of procfs and the like have size 0.  The guest keeps link targets (FUSE_CACHE_SYMLINKS), and
 * cuts them at the size it was told.
 */
static void fix_link_size(int fd, const char *name, struct statx *st)
{
	char target[LINK_GUESS];
	ssize_t n = readlinkat(fd, name, target, sizeof(target));

	if (n > 0)
		st->stx_size = (uint64_t)n;
}

static int stat_by(int fd, const char *name, int flags, unsigned mask, struct statx *st)
{
	flags |= AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
	if (statx(fd, name, flags, mask, st) < 0)
		return -errno;
	if (S_ISLNK(st->stx_mode) && st->stx_size == 0)
		fix_link_size(fd, name, st);
	return 0;
}

int attr_stat(int fd, const char *name, struct statx *st)
{
	return stat_by(fd, name, 0, ATTR_MASK, st);
}

int attr_peek(int fd, const char *name, struct statx *st)
{
	return stat_by(fd, name, AT_STATX_DONT_SYNC, ATTR_MASK, st);
}

int attr_statx(int fd, unsigned sync, unsigned mask, struct statx *st)
{
	return stat_by(fd, "", (int)sync, mask, st);
}
