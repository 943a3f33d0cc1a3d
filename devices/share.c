/* A shared directory as a virtio-fs device: see share.h. */
#include "devices/share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/fs.h"
#include "devices/fuse/fs_server.h"
#include "devices/fuse/session.h"
#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/opt.h"

/* The guest driver takes at most one queue a CPU; beyond 8 the host's page cache is the limit. */
#define QUEUES_DEFAULT_MAX 8
#define QUEUES_MAX         64
#define TAG_MAX            36 /* virtio 1.2, "File System Device", config layout */

/* Each may wait for a disk: what a share has there at a time when nothing is in the page cache. */
#define HELPERS_DEFAULT 4
#define HELPERS_MAX     64

struct share_opts {
	const char *tag, *path;
	unsigned queues, ring, helpers;
	bool readonly, submounts;
	int cache, locks;
	struct fuse_choices choices;
};

#define SHARE_ROWS 32

static void share_table(struct share_opts *o, struct opt table[SHARE_ROWS])
{
	static const char *const cache_names[] = { "auto", "none", "always", NULL };
	static const char *const locks_names[] = { "local", "host", NULL };
	const struct opt rows[] = {
		{ .name = "tag", .kind = OPT_STRING, .dst = &o->tag },
		{ .name = "path", .kind = OPT_STRING, .dst = &o->path },
		{ .name = "ro", .kind = OPT_FLAG, .dst = &o->readonly },
		{ .name = "queues", .kind = OPT_UINT, .dst = &o->queues, .min = 1, .max = QUEUES_MAX },
		{ .name = "ring", .kind = OPT_UINT, .dst = &o->ring, .min = 16, .max = VIRTQ_SIZE_MAX },
		{ .name = "helpers", .kind = OPT_UINT, .dst = &o->helpers, .min = 1, .max = HELPERS_MAX },
		{ .name = "submounts", .kind = OPT_FLAG, .dst = &o->submounts },
		{ .name = "cache", .kind = OPT_ENUM, .dst = &o->cache, .names = cache_names },
		{ .name = "locks", .kind = OPT_ENUM, .dst = &o->locks, .names = locks_names },
		FUSE_CHOICE_ROWS(&o->choices),
		{ 0 },
	};

	_Static_assert(ARRAY_SIZE(rows) <= SHARE_ROWS, "SHARE_ROWS");
	memcpy(table, rows, sizeof(rows));
}

/* The first three keys are what --mount and --root say themselves. */
bool share_takes(const char *word)
{
	struct share_opts o;
	struct opt table[SHARE_ROWS];
	size_t len = strcspn(word, "=");

	share_table(&o, table);
	for (const struct opt *row = table + 3; row->name; row++)
		if (strlen(row->name) == len && memcmp(row->name, word, len) == 0)
			return true;
	return false;
}

static int share_parse(char *spec, const struct device_env *env, struct share_opts *o)
{
	struct opt table[SHARE_ROWS];
	int err;

	*o = (struct share_opts){ .queues = MIN(env->n_vcpus, QUEUES_DEFAULT_MAX), .ring = 1024,
				  .helpers = HELPERS_DEFAULT };
	share_table(o, table);
	err = opt_parse_list(table, "--fs", spec);
	if (err)
		return err;
	if (!o->tag || !o->path) {
		log_error("--fs needs %s", o->tag ? "path=DIR" : "tag=NAME");
		return -EINVAL;
	}
	if (*o->tag == '\0' || strlen(o->tag) > TAG_MAX) {
		log_error("--fs: tag has %zu bytes, 1 to %d are possible: %s", strlen(o->tag),
			  TAG_MAX, o->tag);
		return -EINVAL;
	}
	if (o->ring & (o->ring - 1)) {
		log_error("--fs: ring must be a power of two: %u", o->ring);
		return -EINVAL;
	}
	return fuse_choices_check(&o->choices, o->cache == FUSE_CACHE_NONE);
}

struct share {
	struct fuse_session *session;
	struct fuse_lanes *lanes;
};

static void share_destroy(void *backing)
{
	struct share *share = backing;

	fuse_lanes_destroy(share->lanes);
	fuse_session_destroy(share->session);
	free(share);
}

/* Refused here, since a server may be root at its start and serve as somebody else. */
static int share_check(const struct share_opts *o)
{
	if (!o->choices.ids.squash || geteuid() != 0)
		return 0;
	log_error("squash is for a heddle that is not root, whose files are all its own: run it as their "
		  "user, or give uid-map and gid-map");
	return -EPERM;
}

static int share_open(const struct share_opts *o, struct share *share)
{
	const struct fuse_opts fuse = {
		.path = o->path,
		.readonly = o->readonly,
		.submounts = o->submounts,
		.cache = (enum fuse_cache)o->cache,
		.locks = (enum fuse_locks)o->locks,
		.choices = o->choices,
		.workers = o->queues + 1,
		.helpers = o->helpers,
	};
	int err = fuse_session_create(&fuse, &share->session);

	if (!err)
		err = fuse_lanes_create(share->session, o->queues + 1, &share->lanes);
	if (err)
		log_error("cannot share %s: %s", o->path, strerror(-err));
	return err;
}

static int share_device(const struct share_opts *o, const struct device_env *env,
			const struct share *share, struct virtio_dev **dev)
{
	void *workers[QUEUES_MAX + 1];
	const struct fs_opts fs = {
		.name = env->name,
		.tag = o->tag,
		.queues = o->queues,
		.ring = (uint16_t)o->ring,
		.helpers = o->helpers,
		.ops = &fuse_fs_server,
		.server = share->session,
		.workers = workers,
	};
	int err;

	for (unsigned i = 0; i <= o->queues; i++)
		workers[i] = fuse_lane(share->lanes, i);
	err = fs_create(&fs, env->mem, dev);
	if (err)
		log_error("no memory for the share %s", o->path);
	return err;
}

_Static_assert(sizeof("tag ") + TAG_MAX <= sizeof(((struct device *)NULL)->id), "a tag fits whole");

int share_create(char *spec, const struct device_env *env, struct device *out)
{
	struct share_opts o;
	struct share *share;
	int err = share_parse(spec, env, &o);

	if (err)
		return err;
	err = share_check(&o);
	if (err)
		return err;
	share = calloc(1, sizeof(*share));
	if (!share)
		return -ENOMEM;
	*out = (struct device){ .backing = share, .destroy = share_destroy,
				.thread_start = fs_thread_start };
	snprintf(out->id, sizeof(out->id), "tag %s", o.tag);
	err = share_open(&o, share);
	if (!err)
		err = share_device(&o, env, share, &out->dev);
	if (err)
		share_destroy(share);
	return err;
}
