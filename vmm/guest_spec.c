/* Spec of the guest agent: see guest_spec.h. */
#include "vmm/guest_spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/net.h"
#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/modules.h"
#include "vmm/term.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

/* vmm/agent_image.S: the agent's program. */
extern const char agent_image_start[], agent_image_end[];

/* Variables of the caller that a command in the guest sees without being asked to: how to find
 * programs, who is at home, how to print.  All others may hold secrets and need --env. */
static const char *const passed_on[] = { "HOME", "LANG", "LOGNAME", "PATH", "SHELL",
					 "TERM", "TZ",	 "USER" };

static void record(struct guest_spec *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void record(struct guest_spec *s, const char *fmt, ...)
{
	char **more, *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	more = n < 0 ? NULL : realloc(s->record, (s->n + 1) * sizeof(*more));
	if (!more) {
		s->failed = true;
		if (n >= 0)
			free(text);
		return;
	}
	s->record = more;
	s->record[s->n++] = text;
}

/*
 * A device spec for a share; commas in the path are doubled, as option lists want it.  more: NULL, or
 * keys of the user's.
 */
static int add_share(struct run_opts *o, const char *tag, const char *path, bool readonly,
		     const char *more)
{
	size_t room = 2 * strlen(path) + strlen(tag) + (more ? strlen(more) : 0) + 24;
	char *spec = malloc(room), *to;

	if (!spec)
		return -ENOMEM;
	to = spec + sprintf(spec, "tag=%s,path=", tag);
	for (; *path; path++) {
		if (*path == ',')
			*to++ = ',';
		*to++ = *path;
	}
	sprintf(to, "%s%s", readonly ? ",ro" : "", more ? more : "");
	return run_opts_add_device(o, "fs", spec);
}

static int spec_root(struct guest_spec *s, struct run_opts *o)
{
	static const char *const modes[] = { "overlay", "ro", "rw" };

	record(s, "root=heddle-root");
	record(s, "rootmode=%s", modes[o->root_mode]);
	return add_share(o, "heddle-root", o->root, o->root_mode != ROOT_RW, o->root_share);
}

static int spec_mounts(struct guest_spec *s, struct run_opts *o)
{
	int err = 0;

	for (unsigned i = 0; i < o->n_mounts && !err; i++) {
		const struct run_mount *m = &o->mount[i];
		char tag[24];

		snprintf(tag, sizeof(tag), "heddle-mount%u", i);
		record(s, "mount=%s:%s:%s", tag, m->readonly ? "ro" : "rw", m->guest);
		err = add_share(o, tag, m->host, m->readonly, m->share);
	}
	return err;
}

static int spec_nets(struct guest_spec *s, const struct run_opts *o)
{
	unsigned number = 0;
	int err = 0;

	for (unsigned i = 0; i < o->n_devices && !err; i++) {
		struct net_guest g;

		if (strcmp(o->device[i].kind, "net") != 0)
			continue;
		err = net_guest_of(o->device[i].spec, &g);
		if (!err && *g.ip)
			record(s, "net=%u,%s,%s,%s", number, g.ip, g.gw, g.dns);
		number++;
	}
	return err;
}

/* The caller's directory as the guest sees it (to be freed), or NULL when it lies outside the root. */
static char *cwd_in_root(const struct run_opts *o)
{
	size_t n = strcmp(o->root, "/") == 0 ? 0 : strlen(o->root);
	char *cwd = getcwd(NULL, 0), *inside = NULL;

	if (cwd && strncmp(cwd, o->root, n) == 0 && (cwd[n] == '/' || cwd[n] == '\0'))
		inside = strdup(cwd[n] ? cwd + n : "/");
	free(cwd);
	return inside;
}

static void spec_cwd(struct guest_spec *s, const struct run_opts *o)
{
	char *here = o->cwd ? NULL : cwd_in_root(o);
	const char *cwd = o->cwd ? o->cwd : here;

	/* What was asked for must be there; the caller's folder may be one that only the host has. */
	record(s, "%s=%s", o->cwd ? "cwd" : "cwdtry", cwd ? cwd : "/");
	free(here);
}

/* True when the --env given as number `from`, or one after it, is about the variable of entry. */
static bool env_given(const struct run_opts *o, unsigned from, const char *entry)
{
	const char *name = entry;
	size_t len = strcspn(entry, "=");

	for (unsigned i = from; i < o->n_env; i++)
		if (strncmp(o->env[i], name, len) == 0 &&
		    (o->env[i][len] == '=' || o->env[i][len] == '\0'))
			return true;
	return false;
}

static bool env_passed(const char *entry)
{
	size_t len = strcspn(entry, "=");

	if (strncmp(entry, "LC_", 3) == 0)
		return true;
	for (unsigned i = 0; i < ARRAY_SIZE(passed_on); i++)
		if (strlen(passed_on[i]) == len && memcmp(passed_on[i], entry, len) == 0)
			return true;
	return false;
}

static void spec_env(struct guest_spec *s, const struct run_opts *o)
{
	bool own_root = strcmp(o->root, "/") == 0;

	for (char **e = environ; *e; e++) {
		/* Another root has its programs in the usual places, not in the caller's. */
		if (!env_passed(*e) || (!own_root && strncmp(*e, "PATH=", 5) == 0) ||
		    env_given(o, 0, *e))
			continue;
		record(s, "env=%s", *e);
	}
	if ((!own_root || !getenv("PATH")) && !env_given(o, 0, "PATH"))
		record(s, "env=PATH=%s", DEFAULT_PATH);
	if (!getenv("HOME") && !env_given(o, 0, "HOME"))
		record(s, "env=HOME=/root");
	for (unsigned i = 0; i < o->n_env; i++) {
		const char *value = getenv(o->env[i]);

		if (env_given(o, i + 1, o->env[i]))
			continue;
		if (strchr(o->env[i], '='))
			record(s, "env=%s", o->env[i]);
		else if (value)
			record(s, "env=%s=%s", o->env[i], value);
	}
}

static void spec_command(struct guest_spec *s, const struct run_opts *o, bool tty)
{
	unsigned rows = 24, cols = 80;
	const char *shell = getenv("SHELL");

	if (o->init)
		record(s, "init=%s", o->init);
	for (char **arg = o->command; arg && *arg; arg++)
		record(s, "arg=%s", *arg);
	if (!o->init && !o->command)
		record(s, "arg=%s", shell && strcmp(o->root, "/") == 0 ? shell : "/bin/sh");
	if (tty && !o->init) {
		(void)term_size(STDIN_FILENO, &rows, &cols);
		record(s, "tty=%ux%u", rows, cols);
	}
}

int guest_spec_make(struct guest_spec *s, struct run_opts *o, bool tty)
{
	int err;

	*s = (struct guest_spec){ 0 };
	err = spec_root(s, o);
	if (!err)
		err = spec_mounts(s, o);
	if (!err)
		err = spec_nets(s, o);
	spec_cwd(s, o);
	spec_env(s, o);
	spec_command(s, o, tty);
	record(s, "hostname=%s", o->hostname ? o->hostname : "heddle");
	if (!err && s->failed)
		err = -ENOMEM;
	if (err == -ENOMEM)
		log_error("no memory for what the guest's agent is told");
	return err;
}

void guest_spec_free(struct guest_spec *s)
{
	for (unsigned i = 0; i < s->n; i++)
		free(s->record[i]);
	free(s->record);
	*s = (struct guest_spec){ 0 };
}

/* The modules the agent needs to get at its root, minus what this kernel has built in. */
static int collect_modules(const struct run_opts *o, struct module_list *list)
{
	struct module_want want[] = {
		{ .name = "virtio_pci" },
		{ .name = "virtiofs" },
		{ .name = "overlay", .optional = o->root_mode != ROOT_OVERLAY },
		{ .name = "virtio_net" }, /* last: left out when there is no such device */
	};
	unsigned n = ARRAY_SIZE(want) - !run_opts_has_device(o, "net");

	if (!o->modules[0]) {
		/* A kernel without modules, or with all that is needed built in, is fine as well. */
		log_debug("no modules found for %s", o->kernel);
		return 0;
	}
	return modules_collect(o->modules, want, n, list);
}

int guest_initramfs_make(struct run_opts *o, bool tty, struct initramfs *out)
{
	struct module_list modules = { 0 };
	struct initramfs_opts what = {
		.agent = agent_image_start,
		.agent_len = (size_t)(agent_image_end - agent_image_start),
		.modules = &modules,
	};
	struct guest_spec s;
	int err = guest_spec_make(&s, o, tty);

	if (!err)
		err = collect_modules(o, &modules);
	if (!err) {
		what.records = (const char *const *)s.record;
		what.n_records = s.n;
		err = initramfs_create(&what, out);
		if (err)
			log_error("cannot make the initramfs: %s", strerror(-err));
	}
	modules_free(&modules);
	guest_spec_free(&s);
	return err;
}
