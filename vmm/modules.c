/*
 * Kernel modules for the guest: see modules.h.
 *
 * libkmod answers from the indices in the folder alone: it is given an empty list of configuration
 * folders, so that blacklists, install commands and options of the host do not leak into the guest.
 * Only the folder's own modules.softdep is read.
 *
 * The order is that of a depth-first walk: soft dependencies that go before, hard dependencies, the
 * module, soft dependencies that go after.  A module is visited once; cycles (soft dependencies may
 * have them) end there.
 */
#include "vmm/modules.h"

#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/unpack.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libkmod.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest modules of distributions (graphics) are near 20 MiB unpacked. */
#define MODULE_LEN_MAX (64u << 20)
#define MODULES_MAX    256
#define DEPTH_MAX      32

/*
 * libkmod is opened when it is needed, for it brings libcrypto: 100 pages to relocate and 1.4 MiB of
 * memory, which a guest with an initrd of its own has no use for.
 */
#define LIBKMOD "libkmod.so.2"
#define KMOD_CALLS(call)                                                                    \
	call(new) call(unref) call(set_log_fn) call(load_resources) call(list_next)         \
		call(module_new_from_lookup) call(module_get_module) call(module_unref)     \
			call(module_unref_list) call(module_get_name) call(module_get_path) \
				call(module_get_initstate) call(module_get_softdeps)        \
					call(module_get_dependencies)

struct kmod_api {
	void *lib;
#define KMOD_MEMBER(name) __typeof__(&kmod_##name) name;
	KMOD_CALLS(KMOD_MEMBER)
};

struct walk {
	const char *dir;
	struct module_list *out;
	struct kmod_api kmod;
};

static int kmod_open(struct kmod_api *k)
{
	k->lib = dlopen(LIBKMOD, RTLD_NOW | RTLD_LOCAL);
#define KMOD_LOOKUP(name)                                                           \
	if (k->lib)                                                                 \
		*(void **)(void *)&k->name = dlsym(k->lib, "kmod_" #name);          \
	if (!k->lib || !k->name) {                                                  \
		log_error("modules for the guest need " LIBKMOD ": %s", dlerror()); \
		return -ENOENT;                                                     \
	}
	KMOD_CALLS(KMOD_LOOKUP)
	return 0;
}

static int read_all(int fd, uint8_t *p, size_t len)
{
	while (len > 0) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		p += n;
		len -= n;
	}
	return 0;
}

static const char *error_text(int err)
{
	if (err == -EBADMSG)
		return "not a kernel module, or damaged";
	return err == -EFBIG ? "too large, or one too many" : strerror(-err);
}

/* The whole of a regular file, bounded, malloc'd. */
static int file_slurp(const char *path, void **data, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int err = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size == 0)
		err = -EBADMSG;
	else if (st.st_size > MODULE_LEN_MAX)
		err = -EFBIG;
	if (err)
		goto out;
	*len = st.st_size;
	*data = malloc(*len);
	err = *data ? read_all(fd, *data, *len) : -ENOMEM;
	if (err)
		free(*data);
out:
	close(fd);
	return err;
}

/* Compression is told by the contents: the kernel would go by them too. */
static int module_load(struct module *m, const char *path)
{
	void *file = NULL;
	size_t len = 0;
	int err = file_slurp(path, &file, &len);

	if (err)
		return err;
	if (unpack_detect(file, len) == UNPACK_NONE) {
		m->data = file;
		m->len = len;
	} else {
		err = unpack(file, len, MODULE_LEN_MAX, &m->data, &m->len, NULL);
		free(file);
		if (err)
			return err;
	}
	if (m->len >= 4 && memcmp(m->data, "\177ELF", 4) == 0)
		return 0;
	free(m->data);
	return -EBADMSG;
}

static bool list_has(const struct module_list *list, const char *name)
{
	for (unsigned i = 0; i < list->n; i++)
		if (strcmp(list->v[i].name, name) == 0)
			return true;
	return false;
}

static int list_append(struct module_list *list, const char *name, const char *path)
{
	struct module m = { .name = strdup(name) };
	struct module *v;
	int err = -ENOMEM;

	if (list->n == MODULES_MAX) {
		err = -EFBIG;
		goto fail;
	}
	v = realloc(list->v, (list->n + 1) * sizeof(*v));
	if (v)
		list->v = v;
	if (!v || !m.name)
		goto fail;
	err = module_load(&m, path);
	if (err)
		goto fail;
	list->v[list->n++] = m;
	return 0;
fail:
	log_error("kernel module %s: %s", path, error_text(err));
	free(m.name);
	return err;
}

static int walk_module(struct walk *w, struct kmod_module *mod, unsigned depth);

static int walk_list(struct walk *w, struct kmod_list *list, unsigned depth)
{
	const struct kmod_api *k = &w->kmod;
	struct kmod_list *item;
	int err = 0;

	for (item = list; item; item = k->list_next(list, item)) {
		struct kmod_module *mod = k->module_get_module(item);

		if (!err)
			err = walk_module(w, mod, depth);
		k->module_unref(mod);
	}
	k->module_unref_list(list);
	return err;
}

/*
 * No path: a soft dependency that this kernel has not got, or that is built in.  Nothing to load.
 * The depth only bounds the stack against a folder with a damaged index.
 */
static int walk_module(struct walk *w, struct kmod_module *mod, unsigned depth)
{
	const struct kmod_api *k = &w->kmod;
	const char *name = k->module_get_name(mod);
	const char *path = k->module_get_path(mod);
	struct kmod_list *pre = NULL, *post = NULL;
	int err;

	if (!path || depth > DEPTH_MAX || list_has(w->out, name) ||
	    k->module_get_initstate(mod) == KMOD_MODULE_BUILTIN)
		return 0;
	k->module_get_softdeps(mod, &pre, &post);
	err = walk_list(w, pre, depth + 1);
	if (!err)
		err = walk_list(w, k->module_get_dependencies(mod), depth + 1);
	if (!err && !list_has(w->out, name))
		err = list_append(w->out, name, path);
	if (err)
		k->module_unref_list(post);
	else
		err = walk_list(w, post, depth + 1);
	return err;
}

/* An alias may name several modules: all of them. */
static int want_one(struct walk *w, struct kmod_ctx *kmod, struct module_want *want)
{
	const struct kmod_api *k = &w->kmod;
	struct kmod_list *list = NULL;

	want->found = k->module_new_from_lookup(kmod, want->name, &list) >= 0 && list;
	if (want->found)
		return walk_list(w, list, 0);
	if (want->optional)
		return 0;
	log_error("%s: this kernel has no module %s", w->dir, want->name);
	return -ENOENT;
}

static void kmod_silent(void *data, int priority, const char *file, int line, const char *fn,
			const char *format, va_list args)
{
}

/* libkmod works without the indices, and then knows nothing: say why instead. */
static int indices_check(const char *dir)
{
	int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int err = 0;

	if (dir_fd < 0) {
		err = -errno;
		log_error("kernel modules: %s: %s", dir, strerror(-err));
		return err;
	}
	if (faccessat(dir_fd, "modules.dep.bin", R_OK, 0)) {
		err = -errno;
		log_error("kernel modules: %s/modules.dep.bin: %s (depmod makes it)", dir,
			  strerror(-err));
	}
	close(dir_fd);
	return err;
}

int modules_collect(const char *dir, struct module_want *want, unsigned n_want,
		    struct module_list *out)
{
	static const char *const no_config[] = { NULL };
	struct walk w = { .dir = dir, .out = out };
	const struct kmod_api *k = &w.kmod;
	struct kmod_ctx *kmod;
	int err;

	*out = (struct module_list){ 0 };
	err = indices_check(dir);
	if (!err)
		err = kmod_open(&w.kmod);
	if (err)
		return err;
	kmod = k->new (dir, no_config);
	if (!kmod) {
		log_error("kernel modules: %s: no memory", dir);
		return -ENOMEM;
	}
	k->set_log_fn(kmod, kmod_silent, NULL);
	k->load_resources(kmod);
	for (unsigned i = 0; i < n_want && !err; i++)
		err = want_one(&w, kmod, &want[i]);
	k->unref(kmod);
	if (err)
		modules_free(out);
	return err;
}

void modules_free(struct module_list *list)
{
	for (unsigned i = 0; i < list->n; i++) {
		free(list->v[i].name);
		free(list->v[i].data);
	}
	free(list->v);
	*list = (struct module_list){ 0 };
}
