/*
 * The guest's initramfs: see initramfs.h.
 *
 * The archive is "newc" (Linux, Documentation/driver-api/early-userspace/buffer-format.rst): for
 * each file a header of 110 ASCII bytes, the name with its NUL, padding to 4, the contents, padding
 * to 4; at the end a file called TRAILER!!!.  It is not compressed: unpacking costs the guest more
 * than copying.
 *
 *	/init                 the agent
 *	/heddle.spec          "KEY=VALUE\0" records, module= first
 *	/modules/NN-NAME.ko   what to load, NN in load order
 *	/dev/console          the kernel opens it for the agent's first three descriptors
 *	/dev/null, /dev/kmsg  the agent needs them before it has a devtmpfs
 *
 * The buffer grows by doubling; once growing has failed, everything further is dropped and the
 * failure reported at the end, so that no step in between needs a check.
 */
#include "vmm/initramfs.h"

#include "guest-images/init/channel.h"
#include "vmm/base.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NEWC_HEADER_LEN 110
#define MODULE_PATH_MAX 96

struct buffer {
	uint8_t *data;
	size_t len, cap;
	bool failed;
};

struct archive {
	struct buffer b;
	uint32_t ino;
};

static bool buffer_reserve(struct buffer *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 4096;
	uint8_t *p;

	if (b->failed || more > SIZE_MAX / 2 - b->len)
		goto fail;
	while (cap < b->len + more)
		cap *= 2;
	if (cap == b->cap)
		return true;
	p = realloc(b->data, cap);
	if (!p)
		goto fail;
	b->data = p;
	b->cap = cap;
	return true;
fail:
	b->failed = true;
	return false;
}

static void buffer_add(struct buffer *b, const void *data, size_t len)
{
	if (len == 0 || !buffer_reserve(b, len))
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void buffer_align(struct buffer *b)
{
	static const uint8_t zero[4];

	buffer_add(b, zero, ALIGN_UP(b->len, 4) - b->len);
}

/*
 * major, minor: of a device node.  A link count of 1 keeps the kernel from looking for hard links.
 */
static void archive_header(struct archive *a, const char *name, mode_t mode, size_t len,
			   unsigned major, unsigned minor)
{
	char h[NEWC_HEADER_LEN + 1];

	snprintf(h, sizeof(h), "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		 ++a->ino, (unsigned)mode, 0, 0, 1, 0, (unsigned)len, 0, 0, major, minor,
		 (unsigned)strlen(name) + 1, 0);
	buffer_add(&a->b, h, NEWC_HEADER_LEN);
	buffer_add(&a->b, name, strlen(name) + 1);
	buffer_align(&a->b);
}

static void archive_file(struct archive *a, const char *name, mode_t mode, const void *data,
			 size_t len)
{
	if (len > UINT32_MAX) {
		a->b.failed = true;
		return;
	}
	archive_header(a, name, S_IFREG | mode, len, 0, 0);
	buffer_add(&a->b, data, len);
	buffer_align(&a->b);
}

static void archive_dir(struct archive *a, const char *name)
{
	archive_header(a, name, S_IFDIR | 0755, 0, 0, 0);
}

static void archive_node(struct archive *a, const char *name, unsigned major, unsigned minor)
{
	archive_header(a, name, S_IFCHR | 0600, 0, major, minor);
}

/*
 * The agent takes the path from the spec as it is: a name with odd bytes does no harm beyond
 * itself.
 */
static void module_path(char path[MODULE_PATH_MAX], unsigned i, const struct module *m)
{
	snprintf(path, MODULE_PATH_MAX, "modules/%02u-%.64s.ko", i, m->name);
}

static void archive_modules(struct archive *a, struct buffer *spec, const struct module_list *list)
{
	char path[MODULE_PATH_MAX];

	if (!list || list->n == 0)
		return;
	archive_dir(a, "modules");
	for (unsigned i = 0; i < list->n; i++) {
		module_path(path, i, &list->v[i]);
		archive_file(a, path, 0600, list->v[i].data, list->v[i].len);
		buffer_add(spec, "module=/", 8);
		buffer_add(spec, path, strlen(path) + 1);
	}
}

int initramfs_create(const struct initramfs_opts *o, struct initramfs *out)
{
	struct archive a = { 0 };
	struct buffer spec = { 0 };
	const char *const spec_name = &CHANNEL_SPEC[1];

	archive_dir(&a, "dev");
	archive_node(&a, "dev/console", 5, 1);
	archive_node(&a, "dev/null", 1, 3);
	archive_node(&a, "dev/kmsg", 1, 11);
	archive_modules(&a, &spec, o->modules);
	for (unsigned i = 0; i < o->n_records; i++)
		buffer_add(&spec, o->records[i], strlen(o->records[i]) + 1);
	archive_file(&a, spec_name, 0600, spec.data, spec.len);
	archive_file(&a, "init", 0755, o->agent, o->agent_len);
	archive_header(&a, "TRAILER!!!", 0, 0, 0, 0);
	free(spec.data);
	if (a.b.failed || spec.failed) {
		free(a.b.data);
		return -ENOMEM;
	}
	*out = (struct initramfs){ .data = a.b.data, .len = a.b.len };
	return 0;
}

void initramfs_destroy(struct initramfs *i)
{
	free(i->data);
	*i = (struct initramfs){ 0 };
}
