/* What the owner of a share chooses about rights, attributes and writing; see heddle.1, --fs. */
#ifndef DEVICES_FUSE_CHOICES_H
#define DEVICES_FUSE_CHOICES_H

#include <stdbool.h>

#include "devices/fuse/idmap.h"

enum { FUSE_XATTR_ON, FUSE_XATTR_OFF, FUSE_XATTR_USER };

struct fuse_choices {
	struct ids ids;
	int xattr;      /* FUSE_XATTR_* */
	bool acl;       /* POSIX ACLs */
	bool labels;    /* new files get the security labels that the guest sends along */
	bool writeback; /* the guest may write back later */
	bool direct;    /* the guest's O_DIRECT reaches the host */
};

/* Rows of an option table (vmm/opt.h); c: struct fuse_choices. */
#define FUSE_CHOICE_ROWS(c)                                                                        \
	{ .name = "uid-map", .kind = OPT_CALL, .dst = &(c)->ids.uid, .fn = idmap_take },           \
	{ .name = "gid-map", .kind = OPT_CALL, .dst = &(c)->ids.gid, .fn = idmap_take },           \
	{ .name = "squash", .kind = OPT_CALL, .dst = &(c)->ids, .fn = idmap_take_squash },         \
	{ .name = "acl", .kind = OPT_FLAG, .dst = &(c)->acl },                                     \
	{ .name = "xattr", .kind = OPT_ENUM, .dst = &(c)->xattr, .names = fuse_xattr_names },      \
	{ .name = "security-labels", .kind = OPT_FLAG, .dst = &(c)->labels },                      \
	{ .name = "writeback", .kind = OPT_FLAG, .dst = &(c)->writeback },                         \
	{ .name = "direct-io", .kind = OPT_FLAG, .dst = &(c)->direct }

extern const char *const fuse_xattr_names[];

/* Do they go together?  0, or -EINVAL having logged one line. */
int fuse_choices_check(const struct fuse_choices *c, bool cache_none);

#endif
