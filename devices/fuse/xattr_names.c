/*
 * Names of extended attributes: what the guest says against what the host keeps.
 *
 * user, trusted and security pass as they are; of system only POSIX ACLs, and those only when they
 * are agreed with the guest, whose kernel would otherwise not apply them.  With xattr=user, for a
 * server that may not set trusted and security names, NAME of these classes is user.heddle.NAME on
 * the host.  So are names that begin so in the guest itself, or its users could forge the others.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <string.h>

#define KEPT_AS  "user.heddle."
#define KEPT_LEN (sizeof(KEPT_AS) - 1)

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static bool is_acl(const char *name)
{
	return !strcmp(name, "system.posix_acl_access") || !strcmp(name, "system.posix_acl_default");
}

static bool is_mapped(const struct fuse_session *s, const char *name)
{
	if (s->choices.xattr != FUSE_XATTR_USER)
		return false;
	return begins(name, "security.") || begins(name, "trusted.") || begins(name, KEPT_AS);
}

int xattr_to_host(const struct fuse_session *s, char name[XATTR_NAME_CAP])
{
	size_t len = strlen(name);

	if (s->choices.xattr == FUSE_XATTR_OFF)
		return -EOPNOTSUPP;
	if (begins(name, "system."))
		return is_acl(name) && is_agreed_on(s, FUSE_POSIX_ACL) ? 0 : -EOPNOTSUPP;
	if (!is_mapped(s, name))
		return 0;
	if (len + KEPT_LEN >= XATTR_NAME_CAP)
		return -ERANGE;
	memmove(name + KEPT_LEN, name, len + 1);
	memcpy(name, KEPT_AS, KEPT_LEN);
	return 0;
}

/* The guest's name for the host's, which it is a part of; NULL: not shown. */
static const char *to_guest(const struct fuse_req *r, const char *name)
{
	if (begins(name, "system."))
		return is_acl(name) && is_agreed_on(r->s, FUSE_POSIX_ACL) ? name : NULL;
	if (is_mapped(r->s, name)) {
		if (!begins(name, KEPT_AS))
			return NULL;
		name += KEPT_LEN;
		/* What it would not be kept for was put there by the host. */
		if (!is_mapped(r->s, name))
			return NULL;
	}
	/* On the host it takes a capability to see them, and these threads have it. */
	return r->cred.root || !begins(name, "trusted.") ? name : NULL;
}

size_t xattr_list_to_guest(const struct fuse_req *r, char *list, size_t len)
{
	size_t to = 0, step;

	for (size_t from = 0; from < len; from += step) {
		const char *name;
		size_t n;

		step = strnlen(list + from, len - from) + 1;
		name = from + step > len ? NULL : to_guest(r, list + from);
		if (!name)
			continue;
		n = strlen(name) + 1;
		memmove(list + to, name, n);
		to += n;
	}
	return to;
}

bool xattr_is_foreign_right(const struct fuse_session *s, const char *name)
{
	return !strcmp(name, "security.capability") && !ids_are_same(&s->choices.ids);
}
