/* User and group ids: see idmap.h. */
#include "devices/fuse/idmap.h"

#include <errno.h>
#include <stddef.h>

#include "vmm/log.h"

/* --- from text -------------------------------------------------------------------------------- */

/* A decimal id, then the character end; *p moves behind it.  The id of nobody at all is none. */
static bool take_number(const char **p, uint32_t *n)
{
	uint64_t v = 0;
	const char *s = *p;

	while (*s >= '0' && *s <= '9' && v < UINT32_MAX)
		v = 10 * v + (uint64_t)(*s++ - '0');
	if (s == *p || v >= UINT32_MAX)
		return false;
	*n = (uint32_t)v;
	*p = s;
	return true;
}

static bool take_char(const char **p, char c)
{
	if (**p != c)
		return false;
	++*p;
	return true;
}

static bool overlap(uint32_t a, uint32_t a_count, uint32_t b, uint32_t b_count)
{
	return a < (uint64_t)b + b_count && b < (uint64_t)a + a_count;
}

static bool range_fits(const struct idmap *m, const struct idmap_range *r)
{
	if (r->count == 0 || r->count > UINT32_MAX - r->guest || r->count > UINT32_MAX - r->host)
		return false;
	for (unsigned i = 0; i < m->n; i++) {
		const struct idmap_range *o = &m->range[i];

		if (overlap(r->guest, r->count, o->guest, o->count) ||
		    overlap(r->host, r->count, o->host, o->count))
			return false;
	}
	return true;
}

static bool take_range(const char **p, struct idmap *m)
{
	struct idmap_range r;

	if (m->n == IDMAP_RANGES_MAX || !take_number(p, &r.guest) || !take_char(p, ':') ||
	    !take_number(p, &r.host) || !take_char(p, ':') || !take_number(p, &r.count) ||
	    !range_fits(m, &r))
		return false;
	m->range[m->n++] = r;
	return true;
}

int idmap_take(void *ctx, const char *text)
{
	struct idmap *m = ctx;
	const char *p = text;

	m->n = 0;
	while (take_range(&p, m)) {
		if (*p == '\0')
			return 0;
		if (!take_char(&p, '+'))
			break;
	}
	log_error("a map of ids is GUEST:HOST:COUNT[+...], at most %d ranges that do not overlap: %s",
		  IDMAP_RANGES_MAX, text);
	return -EINVAL;
}

int idmap_take_squash(void *ctx, const char *text)
{
	struct ids *ids = ctx;
	const char *p = text;

	ids->squash = true;
	if (take_number(&p, &ids->squash_uid) && take_char(&p, ':') &&
	    take_number(&p, &ids->squash_gid) && *p == '\0')
		return 0;
	log_error("squash takes UID:GID: %s", text);
	return -EINVAL;
}

/* --- one id ----------------------------------------------------------------------------------- */

bool idmap_to_host(const struct idmap *m, uint32_t guest, uint32_t *host)
{
	*host = guest;
	if (m->n == 0)
		return guest != UINT32_MAX;
	for (unsigned i = 0; i < m->n; i++) {
		const struct idmap_range *r = &m->range[i];

		if (guest >= r->guest && guest - r->guest < r->count) {
			*host = r->host + (guest - r->guest);
			return true;
		}
	}
	*host = UINT32_MAX;
	return false;
}

static uint32_t to_guest(const struct idmap *m, uint32_t host)
{
	if (m->n == 0)
		return host;
	for (unsigned i = 0; i < m->n; i++) {
		const struct idmap_range *r = &m->range[i];

		if (host >= r->host && host - r->host < r->count)
			return r->guest + (host - r->host);
	}
	return IDMAP_NOBODY;
}

uint32_t ids_show_uid(const struct ids *ids, uint32_t host)
{
	return ids->squash ? ids->squash_uid : to_guest(&ids->uid, host);
}

uint32_t ids_show_gid(const struct ids *ids, uint32_t host)
{
	return ids->squash ? ids->squash_gid : to_guest(&ids->gid, host);
}

static int chown_squashed(uint32_t shown, uint32_t *id)
{
	if (*id != UINT32_MAX && *id != shown)
		return -EPERM;
	*id = UINT32_MAX;
	return 0;
}

static int chown_mapped(const struct idmap *m, uint32_t *id)
{
	return *id == UINT32_MAX || idmap_to_host(m, *id, id) ? 0 : -EPERM;
}

int ids_chown(const struct ids *ids, uint32_t *uid, uint32_t *gid)
{
	int rc;

	if (ids->squash) {
		rc = chown_squashed(ids->squash_uid, uid);
		return rc < 0 ? rc : chown_squashed(ids->squash_gid, gid);
	}
	rc = chown_mapped(&ids->uid, uid);
	return rc < 0 ? rc : chown_mapped(&ids->gid, gid);
}
