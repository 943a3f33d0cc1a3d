/*
 * User and group ids: those of the guest against those of the host.
 *
 * Three ways.  The same on both sides (all zero).  Mapped: ranges of guest ids stand for ranges of
 * host ids; a guest id without a range cannot own anything, a host id without one shows as
 * IDMAP_NOBODY.  Squashed, for a server that may not give files away: whatever the host says, every
 * file shows one owner, and new ones belong to the server.
 */
#ifndef DEVICES_FUSE_IDMAP_H
#define DEVICES_FUSE_IDMAP_H

#include <stdbool.h>
#include <stdint.h>

#define IDMAP_RANGES_MAX 32
/* Not 65534: guests have somebody of that number, who would own the files of all others here. */
#define IDMAP_NOBODY (UINT32_MAX - 1)

struct idmap {
	unsigned n; /* 0: ids are the same on both sides */
	struct idmap_range {
		uint32_t guest, host, count;
	} range[IDMAP_RANGES_MAX];
};

struct ids {
	struct idmap uid, gid;
	bool squash;
	uint32_t squash_uid, squash_gid; /* what the guest is shown */
};

/*
 * From "GUEST:HOST:COUNT[+GUEST:HOST:COUNT...]", of decimal numbers.  Ranges may not overlap on either
 * side, nor hold the id 4294967295, which stands for none.  For option tables: ctx is struct idmap.
 * 0, or -EINVAL having logged one line.
 */
int idmap_take(void *ctx, const char *text);
/* From "UID:GID"; ctx is struct ids. */
int idmap_take_squash(void *ctx, const char *text);

static inline bool ids_are_same(const struct ids *ids)
{
	return !ids->squash && ids->uid.n == 0 && ids->gid.n == 0;
}

/* False: the guest's id has no number on the host; *host is UINT32_MAX then. */
bool idmap_to_host(const struct idmap *m, uint32_t guest, uint32_t *host);

/* What the guest is shown for an owner on the host. */
uint32_t ids_show_uid(const struct ids *ids, uint32_t host);
uint32_t ids_show_gid(const struct ids *ids, uint32_t host);

/*
 * A change of owner, as the guest asks for it, in the host's numbers; UINT32_MAX, no change, stays.
 * Squashed, a file can only be given to whom it shows, which is no change.  0, or -EPERM.
 */
int ids_chown(const struct ids *ids, uint32_t *uid, uint32_t *gid);

#endif
