/*
 * Security labels of new files (FUSE_SECURITY_CTX): the guest's security module says with CREATE,
 * MKDIR, MKNOD, SYMLINK and TMPFILE what the new file's security.* attributes are.
 *
 * A header (bytes in all, how many labels), then for each: struct fuse_secctx, its name and NUL, its
 * value, filled up to 8 bytes.  Clients before 6.3 append that to the request; later ones send it as
 * an extension, whose header reads the same.
 */
#include "devices/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LABELS_AT  (FUSE_SCRATCH_LEN / 2) /* SYMLINK has its target below */
#define LABELS_MAX ((size_t)16 * 1024)    /* a label of SELinux or Smack has some hundred bytes */

_Static_assert(LABELS_AT >= PATH_MAX && LABELS_AT + LABELS_MAX <= FUSE_SCRATCH_LEN, "both fit");

struct label {
	const char *name, *value;
	size_t value_len;
};

/* The label at *p, which moves behind it.  False: there is none that lies before end. */
static bool label_next(const char **p, const char *end, struct label *l)
{
	struct fuse_secctx head;
	size_t name_len, left = (size_t)(end - *p);

	if (left < sizeof(head))
		return false;
	memcpy(&head, *p, sizeof(head));
	l->name = *p + sizeof(head);
	left -= sizeof(head);
	name_len = strnlen(l->name, left);
	if (name_len == left || head.size > left - name_len - 1)
		return false;
	l->value = l->name + name_len + 1;
	l->value_len = head.size;
	left = sizeof(head) + name_len + 1 + head.size;
	*p += MIN((left + 7) / 8 * 8, (size_t)(end - *p));
	return true;
}

/* Other classes are not for a label to set, and come with rules of their own. */
static bool is_label(const char *name)
{
	return strlen(name) < XATTR_NAME_CAP && !strncmp(name, "security.", 9) && name[9];
}

static bool labels_ok(const char *p, const char *end, unsigned n)
{
	struct label l;

	for (unsigned i = 0; i < n; i++)
		if (!label_next(&p, end, &l) || !is_label(l.name))
			return false;
	return true;
}

int labels_take(struct fuse_req *r)
{
	struct fuse_secctx_header head;
	char *at = r->w->scratch + LABELS_AT;
	size_t have = r->labels.raw_len;
	struct cursor c = r->labels.raw;

	if (!is_agreed_on(r->s, FUSE_SECURITY_CTX))
		return 0;
	if (have == 0) {
		have = r->in_left;
		c = r->in;
	}
	if (have == 0)
		return 0;
	if (have < sizeof(head) || !cursor_read(&c, &head, sizeof(head)))
		return -EINVAL;
	if (head.size < sizeof(head) || head.size > have || head.nr_secctx > FUSE_MAX_NR_SECCTX)
		return -EINVAL;
	have = head.size - sizeof(head);
	if (have > LABELS_MAX)
		return -E2BIG;
	if (!cursor_read(&c, at, have) || !labels_ok(at, at + have, head.nr_secctx))
		return -EINVAL;
	r->labels.at = at;
	r->labels.raw_len = have;
	r->labels.n = head.nr_secctx;
	return 0;
}

static int set_all(struct fuse_req *r, int fd)
{
	const char *p = r->labels.at, *end;
	char name[XATTR_NAME_CAP];
	struct label l;
	int rc;

	if (r->labels.n == 0)
		return 0;
	end = p + r->labels.raw_len;
	for (unsigned i = 0; i < r->labels.n; i++) {
		if (!label_next(&p, end, &l))
			return -EINVAL;
		memcpy(name, l.name, strlen(l.name) + 1); /* fits: is_label() */
		rc = xattr_to_host(r->s, name);
		if (rc == 0 && xattr_is_foreign_right(r->s, name))
			rc = -EPERM;
		if (rc < 0)
			return rc;
		if (setxattr(fd_name(fd).s, name, l.value, l.value_len, 0) < 0)
			return -errno;
	}
	return 0;
}

/* The host may have given the name to another file meanwhile, which stays. */
static void unmake(int fd, int dir_fd, const char *name)
{
	struct statx made, there;

	if (attr_stat(fd, "", &made) < 0 || attr_stat(dir_fd, name, &there) < 0 ||
	    made.stx_ino != there.stx_ino || made.stx_dev_major != there.stx_dev_major ||
	    made.stx_dev_minor != there.stx_dev_minor)
		return;
	unlinkat(dir_fd, name, S_ISDIR(made.stx_mode) ? AT_REMOVEDIR : 0);
}

int labels_set(struct fuse_req *r, int fd, int dir_fd, const char *name)
{
	int rc = set_all(r, fd);

	if (rc < 0 && name)
		unmake(fd, dir_fd, name);
	return rc;
}
