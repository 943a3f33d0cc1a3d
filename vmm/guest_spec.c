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
#include "vmm/term.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

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

/* A device spec for a share; commas in the path are doubled, as option lists want it. */
static int add_share(struct run_opts *o, const char *tag, const char *path, const char *tail)
{
	size_t room = 2 * strlen(path) + strlen(tag) + strlen(tail) + 16;
	char *spec = malloc(room), *to;

	if (!spec)
		return -ENOMEM;
	to = spec + sprintf(spec, "tag=%s,path=", tag);
	for (; *path; path++) {
		if (*path == ',')
			*to++ = ',';
		*to++ = *path;
	}
	memcpy(to, tail, strlen(tail) + 1);
	return run_opts_add_device(o, "fs", spec);
}

static int spec_root(struct guest_spec *s, struct run_opts *o)
{
	static const char *const modes[] = { "overlay", "ro", "rw" };

	record(s, "root=heddle-root");
	record(s, "rootmode=%s", modes[o->root_mode]);
	return add_share(o, "heddle-root", o->root, o->root_mode == ROOT_RW ? "" : ",ro");
}

static int spec_mounts(struct guest_spec *s, struct run_opts *o)
{
	int err = 0;

	for (unsigned i = 0; i < o->n_mounts && !err; i++) {
		const struct run_mount *m = &o->mount[i];
		char tag[24];

		snprintf(tag, sizeof(tag), "heddle-mount%u", i);
		record(s, "mount=%s:%s:%s", tag, m->readonly ? "ro" : "rw", m->guest);
		err = add_share(o, tag, m->host, m->readonly ? ",ro" : "");
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

	record(s, "cwd=%s", cwd ? cwd : "/");
	free(here);
}

/* True when --env sets the variable NAME (len bytes). */
static bool env_given(const struct run_opts *o, const char *name, size_t len)
{
	for (unsigned i = 0; i < o->n_env; i++)
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
		    env_given(o, *e, strcspn(*e, "=")))
			continue;
		record(s, "env=%s", *e);
	}
	if ((!own_root || !getenv("PATH")) && !env_given(o, "PATH", 4))
		record(s, "env=PATH=%s", DEFAULT_PATH);
	if (!getenv("HOME") && !env_given(o, "HOME", 4))
		record(s, "env=HOME=/root");
	for (unsigned i = 0; i < o->n_env; i++) {
		const char *value = getenv(o->env[i]);

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
	if (err)
		return err;
	spec_cwd(s, o);
	spec_env(s, o);
	spec_command(s, o, tty);
	record(s, "hostname=%s", o->hostname ? o->hostname : "heddle");
	if (s->failed) {
		log_error("no memory for the command's arguments and environment");
		return -ENOMEM;
	}
	return 0;
}

void guest_spec_free(struct guest_spec *s)
{
	for (unsigned i = 0; i < s->n; i++)
		free(s->record[i]);
	free(s->record);
	*s = (struct guest_spec){ 0 };
}
