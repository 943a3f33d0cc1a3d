/*
 * Fuzzer for the initramfs and for the agent's reading of its spec: whatever records and modules
 * heddle is given, the archive can be read back, holds them byte for byte, and the agent takes or
 * refuses the spec.
 *
 * Input: number of modules, length of the agent, then for each module two lengths, then bytes.
 */
#include <errno.h>

#include "guest-images/init/spec.c"

#include "tests/fuzz/input.h"
#include "tests/unit/newc.h"
#include "vmm/base.h"
#include "vmm/initramfs.h"

#define MODULES_MAX 8
#define RECORDS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int agent_fail(struct agent *a, int err, const char *fmt, ...)
{
	return -err;
}

void agent_note(const char *fmt, ...)
{
}

/* The next len bytes, or fewer, as they lie in the input. */
static const void *take_bytes(struct input *in, size_t *len)
{
	const uint8_t *p = in->p;

	*len = MIN(*len, in->left);
	in->p += *len;
	in->left -= *len;
	return p;
}

/* The next string, of at most max bytes, copied; its NUL is taken too. */
static char *take_string(struct input *in, size_t max)
{
	size_t len = strnlen((const char *)in->p, MIN(max, in->left));
	char *s = malloc(len + 1);

	memcpy(s, take_bytes(in, &len), len);
	s[len] = '\0';
	(void)take(in, 1);
	return s;
}

static void check_archive(const struct initramfs *i, const struct initramfs_opts *o)
{
	unsigned n = 0, module = 0;
	struct newc_file f;
	size_t off = 0;

	while (newc_next(i->data, i->len, &off, &f) == 1) {
		if (strncmp(f.name, "modules/", 8) == 0) {
			require(f.len == o->modules->v[module].len);
			require(memcmp(f.data, o->modules->v[module++].data, f.len) == 0);
		} else if (strcmp(f.name, "init") == 0) {
			require(f.len == o->agent_len && !memcmp(f.data, o->agent, f.len));
		}
		n++;
	}
	require(off == i->len && strcmp(f.name, "TRAILER!!!") == 0);
	require(module == o->modules->n && n == 6 + module + (module > 0));
}

static void check_spec(const struct initramfs *i)
{
	struct agent a = { 0 };
	struct newc_file f;
	size_t off = 0;
	char *copy;

	while (newc_next(i->data, i->len, &off, &f) == 1 && strcmp(f.name, "heddle.spec"))
		;
	copy = malloc(f.len + 1);
	memcpy(copy, f.data, f.len);
	copy[f.len] = '\0';
	if (spec_parse(&a, copy, f.len) == 0)
		require(a.spec.init || a.spec.arg[0]);
	free(a.spec.module);
	free(a.spec.arg);
	free(a.spec.env);
	free(a.spec.mount);
	free(a.spec.net);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct module modules[MODULES_MAX];
	struct module_list list = { .v = modules, .n = take(&in, 1) % (MODULES_MAX + 1) };
	char *records[RECORDS_MAX];
	struct initramfs_opts o = { .modules = &list, .records = (const char *const *)records };
	struct initramfs i;

	o.agent_len = take(&in, 1);
	o.agent = take_bytes(&in, &o.agent_len);
	for (unsigned m = 0; m < list.n; m++) {
		modules[m].name = take_string(&in, take(&in, 1));
		modules[m].len = take(&in, 1);
		modules[m].data = (void *)(uintptr_t)take_bytes(&in, &modules[m].len);
	}
	while (in.left > 0 && o.n_records < RECORDS_MAX)
		records[o.n_records++] = take_string(&in, in.left);
	require(initramfs_create(&o, &i) == 0);
	check_archive(&i, &o);
	check_spec(&i);
	initramfs_destroy(&i);
	for (unsigned m = 0; m < list.n; m++)
		free(modules[m].name);
	for (unsigned r = 0; r < o.n_records; r++)
		free(records[r]);
	return 0;
}
