/* Choices about a share that exclude each other: see choices.h. */
#include "devices/fuse/choices.h"

#include <errno.h>
#include <stddef.h>

#include "vmm/log.h"

const char *const fuse_xattr_names[] = { "on", "off", "user", NULL };

int fuse_choices_check(const struct fuse_choices *c, bool cache_none)
{
	bool maps = c->ids.uid.n || c->ids.gid.n;
	const char *why = NULL;

	if (maps && c->ids.squash)
		why = "squash leaves nothing for uid-map and gid-map";
	else if (c->acl && !ids_are_same(&c->ids))
		why = "acl with uid-map, gid-map or squash: ACLs hold ids, which would not be mapped";
	else if (c->acl && c->xattr == FUSE_XATTR_OFF)
		why = "acl takes extended attributes, which xattr=off takes away";
	else if (c->labels && c->xattr == FUSE_XATTR_OFF)
		why = "security-labels takes extended attributes, which xattr=off takes away";
	else if (c->labels && c->xattr == FUSE_XATTR_USER)
		why = "security-labels with xattr=user: links and FIFOs have no user.* attributes";
	else if (c->writeback && cache_none)
		why = "writeback with cache=none: what is not cached cannot be written later";
	if (!why)
		return 0;
	log_error("a share cannot be made so: %s", why);
	return -EINVAL;
}
