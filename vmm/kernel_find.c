/*
 * Kernel and modules: see kernel_find.h.
 *
 * A kernel's modules are looked for beside the kernel first (BASE/boot/vmlinuz-R with
 * BASE/lib/modules/R, as in an unpacked package), then where distributions put them.
 */
#include "vmm/kernel_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/kernel.h"
#include "vmm/log.h"
#include "vmm/run_opts.h"

int kernel_newest(char *path, size_t len)
{
	char best[256] = "";
	struct dirent *e;
	DIR *dir = opendir("/boot");

	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, "vmlinuz-", 8) != 0 ||
		    (best[0] && strverscmp(e->d_name, best) <= 0))
			continue;
		snprintf(path, len, "/boot/%s", e->d_name);
		if (access(path, R_OK) == 0)
			snprintf(best, sizeof(best), "%s", e->d_name);
	}
	if (dir)
		closedir(dir);
	snprintf(path, len, "/boot/%s", best);
	return best[0] ? 0 : -ENOENT;
}

int kernel_find(char *path, size_t len)
{
	int err = path[0] ? 0 : kernel_newest(path, len);

	if (err)
		log_error("no readable kernel in /boot: give one with -k FILE, or install the "
			  "distribution's (Debian: apt-get install linux-image-cloud-amd64)");
	return err;
}

static bool has_modules(const char *dir)
{
	char *dep;
	bool found;

	if (asprintf(&dep, "%s/modules.dep", dir) < 0)
		return false;
	found = access(dep, R_OK) == 0;
	free(dep);
	return found;
}

/* DIR[0..dir_len) + below + release: take it if it has modules and fits. */
static bool try_modules(struct run_opts *o, int dir_len, const char *dir, const char *below)
{
	bool found = false;
	char *path;

	if (asprintf(&path, "%.*s%s%s", dir_len, dir, below, o->release) < 0)
		return false;
	if (strlen(path) < sizeof(o->modules) && has_modules(path)) {
		memcpy(o->modules, path, strlen(path) + 1);
		found = true;
	}
	free(path);
	return found;
}

/* --modules DIR: the folder itself, or one above that has a folder named as the release. */
static int given_modules(struct run_opts *o)
{
	char *given;
	bool found;

	if (has_modules(o->modules))
		return 0;
	given = strdup(o->modules);
	if (!given)
		return -ENOMEM;
	found = try_modules(o, (int)strlen(given), given, "/") ||
		try_modules(o, (int)strlen(given), given, "/lib/modules/");
	if (!found)
		log_error("--modules %s: no modules.dep there (looked for release %s)", given,
			  o->release[0] ? o->release : "of unknown name");
	free(given);
	return found ? 0 : -EINVAL;
}

int kernel_find_modules(struct run_opts *o)
{
	static const char *const beside[] = { "../lib/modules/", "../usr/lib/modules/" };
	const char *slash = strrchr(o->kernel, '/');
	int dir_len = slash ? (int)(slash - o->kernel) + 1 : 0;
	int err = file_open(&o->kernel_file, o->kernel);

	if (err)
		return err;
	if (kernel_release(&o->kernel_file, o->release, sizeof(o->release)))
		o->release[0] = '\0';
	if (o->modules[0])
		return given_modules(o);
	if (!o->release[0])
		return 0;
	for (unsigned i = 0; i < 2; i++)
		if (try_modules(o, dir_len, o->kernel, beside[i]))
			return 0;
	if (!try_modules(o, 0, "", "/lib/modules/"))
		(void)try_modules(o, 0, "", "/usr/lib/modules/");
	return 0;
}
