/* Options of `heddle run`: see run_opts.h. */
#include "vmm/run_opts.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/net.h"
#include "devices/share.h"
#include "vmm/arch.h"
#include "vmm/base.h"
#include "vmm/kernel_find.h"
#include "vmm/log.h"
#include "vmm/opt.h"

#define RAM_STEP        (2ULL << 20)
#define RAM_MIN         (64ULL << 20)
#define RAM_MAX         (4096ULL << 30)
#define RAM_DEFAULT_MAX (4ULL << 30)

bool run_opts_has_device(const struct run_opts *o, const char *kind)
{
	for (unsigned i = 0; i < o->n_devices; i++)
		if (strcmp(o->device[i].kind, kind) == 0)
			return true;
	return false;
}

int run_opts_add_device(struct run_opts *o, const char *kind, char *spec)
{
	/* One place is kept for the agent's channel. */
	if (!spec || o->n_devices == MACHINE_DEVICES_MAX - 1) {
		log_error("too many devices: %d are possible", MACHINE_DEVICES_MAX - 1);
		free(spec);
		return -ENOSPC;
	}
	o->device[o->n_devices++] = (struct device_request){ .kind = kind, .spec = spec };
	return 0;
}

static int take_fs(void *ctx, const char *value)
{
	return run_opts_add_device(ctx, "fs", strdup(value));
}

static int take_net(void *ctx, const char *value)
{
	return run_opts_add_device(ctx, "net", strdup(value));
}

static int take_hostname(void *ctx, const char *value)
{
	struct run_opts *o = ctx;
	size_t len = strlen(value);

	if (len < 1 || len > RUN_HOSTNAME_MAX) {
		log_error("--hostname takes 1 to %d bytes: %s", RUN_HOSTNAME_MAX, value);
		return -EINVAL;
	}
	o->hostname = value;
	return 0;
}

static int take_env(void *ctx, const char *value)
{
	struct run_opts *o = ctx;

	if (*value == '=' || *value == '\0' || o->n_env == RUN_ENV_MAX) {
		log_error("--env takes NAME=VALUE or NAME, at most %d times: %s", RUN_ENV_MAX, value);
		return -EINVAL;
	}
	o->env[o->n_env++] = value;
	return 0;
}

static int mode_of(const char *word, const char *const modes[])
{
	for (int i = 0; modes[i]; i++)
		if (strcmp(word, modes[i]) == 0)
			return i;
	return -1;
}

/*
 * Cut ",word" off the end of text as long as word is one of modes, the last of which is stored as its
 * index, or a key of shares.  Returns these, in their order, to be freed; NULL: no memory.
 */
static char *cut_words(char *text, const char *const modes[], int *mode)
{
	char *keys = calloc(1, strlen(text) + 1), *word;

	if (!keys)
		return NULL;
	while ((word = strrchr(text, ','))) {
		int i = mode_of(word + 1, modes);

		size_t len = (size_t)(text + strlen(text) - word);

		if (i < 0 && !share_takes(word + 1))
			break;
		if (i < 0) {
			memmove(keys + len, keys, strlen(keys) + 1);
			memcpy(keys, word, len);
		} else if (*mode < 0) {
			*mode = i;
		}
		*word = '\0';
	}
	return keys;
}

/* What would be a key, if there were one of that name, and not a part of a path. */
static bool looks_like_key(const char *path)
{
	const char *word = strrchr(path, ',');
	size_t len = word ? strspn(word + 1, "abcdefghijklmnopqrstuvwxyz-") : 0;

	return len > 0 && word[1 + len] == '=';
}

static int take_mount(void *ctx, const char *value)
{
	static const char *const modes[] = { "rw", "ro", NULL };
	struct run_opts *o = ctx;
	struct run_mount *m = &o->mount[o->n_mounts];
	char *copy, *colon;
	int mode = -1;

	if (o->n_mounts == RUN_MOUNTS_MAX) {
		log_error("--mount: at most %d are possible", RUN_MOUNTS_MAX);
		return -EINVAL;
	}
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	*m = (struct run_mount){ .host = copy };
	o->n_mounts++;
	m->share = cut_words(copy, modes, &mode);
	if (!m->share)
		return -ENOMEM;
	m->readonly = mode == 1;
	colon = strrchr(copy, ':');
	if (!colon || colon == copy || colon[1] != '/') {
		log_error("--mount takes DIR:PATH[,ro|rw][,...] with an absolute PATH: %s", value);
		return -EINVAL;
	}
	*colon = '\0';
	m->guest = colon + 1;
	if (looks_like_key(m->guest)) {
		log_error("--mount: no such key: %s", strrchr(m->guest, ',') + 1);
		return -EINVAL;
	}
	return 0;
}

static int take_root(void *ctx, const char *value)
{
	static const char *const modes[] = { "overlay", "ro", "rw", NULL };
	struct run_opts *o = ctx;
	char *copy = strdup(value);
	int mode = -1, err = 0;

	if (!copy)
		return -ENOMEM;
	/* Nothing is left of an earlier --root. */
	free(o->root_share);
	o->root_share = cut_words(copy, modes, &mode);
	if (!o->root_share) {
		free(copy);
		return -ENOMEM;
	}
	o->root_mode = mode < 0 ? ROOT_OVERLAY : (enum root_mode)mode;
	o->has_root = true;
	if (!realpath(copy, o->root)) {
		log_error("--root %s: %s", copy, strerror(errno));
		err = -EINVAL;
	}
	free(copy);
	return err;
}

/* Each --append adds to those before it. */
static int take_append(void *ctx, const char *value)
{
	struct run_opts *o = ctx;
	char *joined;

	if (asprintf(&joined, "%s%s%s", o->append ? o->append : "", o->append ? " " : "", value) < 0)
		return -ENOMEM;
	free(o->append);
	o->append = joined;
	return 0;
}

static int take_kernel(void *ctx, const char *value)
{
	struct run_opts *o = ctx;

	if (strlen(value) >= sizeof(o->kernel)) {
		log_error("--kernel: path too long");
		return -EINVAL;
	}
	memcpy(o->kernel, value, strlen(value) + 1);
	return 0;
}

static int take_modules(void *ctx, const char *value)
{
	struct run_opts *o = ctx;

	if (strlen(value) >= sizeof(o->modules)) {
		log_error("--modules: path too long");
		return -EINVAL;
	}
	memcpy(o->modules, value, strlen(value) + 1);
	return 0;
}

#define OPTION_COUNT 24

static void options_table(struct run_opts *o, struct opt table[OPTION_COUNT])
{
	const struct opt rows[] = {
		{ "kernel", 'k', OPT_CALL, o, "FILE",
		  "kernel: bzImage or vmlinux (default: newest in /boot)", .fn = take_kernel },
		{ "cpus", 'c', OPT_UINT, &o->n_vcpus, "N", "vCPUs (default: those of the host, up to 8)",
		  .min = 1, .max = arch_max_vcpus() },
		{ "memory", 'm', OPT_SIZE, &o->ram, "SIZE",
		  "guest RAM, used as touched (default: half the host's, up to 4G)", .min = RAM_MIN,
		  .max = RAM_MAX },
		{ "root", 0, OPT_CALL, o, "DIR[,MODE][,...]",
		  "guest root: overlay (throw-away, default), ro or rw (default: /)", .fn = take_root },
		{ "mount", 0, OPT_CALL, o, "DIR:PATH[,ro|rw][,...]",
		  "share host DIR at PATH of the guest; more keys as for --fs",
		  .fn = take_mount },
		{ "fs", 0, OPT_CALL, o, "tag=T,path=DIR[,...]",
		  "raw virtio-fs device: ro, queues=N, cache=auto|none|always, locks=local|host, ...",
		  .fn = take_fs },
		{ "net", 0, OPT_CALL, o, "tap=NAME[,...]",
		  "virtio-net device: queues=N, ip=ADDR/LEN, gw=, dns=, mac=, mtu=, ...",
		  .fn = take_net },
		{ "env", 0, OPT_CALL, o, "NAME[=VALUE]", "set, or pass on, a variable of the command",
		  .fn = take_env },
		{ "cwd", 0, OPT_STRING, &o->cwd, "PATH", "working directory of the command" },
		{ "hostname", 0, OPT_CALL, o, "NAME", "host name of the guest", .fn = take_hostname },
		{ "init", 0, OPT_STRING, &o->init, "PATH",
		  "run this as process 1 of the root; console on standard input and output" },
		{ "timeout", 0, OPT_UINT, &o->timeout_s, "SECONDS", "end the guest then, exit code 124",
		  .max = 4000000 },
		{ "stop-timeout", 0, OPT_UINT, &o->stop_timeout_s, "SECONDS",
		  "after SIGTERM, how long the guest may take (default: 1, with --init 10)",
		  .max = 3600 },
		{ "console", 0, OPT_STRING, &o->console, "FILE|stderr|none",
		  "where the kernel's messages go (default: none)" },
		{ "append", 0, OPT_CALL, o, "TEXT", "add to the kernel command line",
		  .fn = take_append },
		{ "initrd", 0, OPT_STRING, &o->initrd, "FILE",
		  "initrd; alone (no command, --root, --init) it is booted as it is" },
		{ "modules", 0, OPT_CALL, o, "DIR", "the kernel's module folder (default: found)",
		  .fn = take_modules },
		{ "reboot", 0, OPT_FLAG, &o->reboot, NULL, "a guest that resets or panics is booted again" },
		{ "verbose", 'v', OPT_FLAG, &o->verbose, NULL, "say what is done" },
		{ "help", 'h', OPT_FLAG, &o->help, NULL, "this text" },
		{ 0 },
	};

	_Static_assert(ARRAY_SIZE(rows) <= OPTION_COUNT, "OPTION_COUNT");
	memcpy(table, rows, sizeof(rows));
}

void run_opts_help(void)
{
	struct run_opts *o = calloc(1, sizeof(*o));
	struct opt table[OPTION_COUNT];

	if (!o)
		return;
	options_table(o, table);
	printf("options of heddle run:\n");
	opt_print(table);
	printf("\nexit codes: the command's own, or\n"
	       "  122  the guest ended without a status (reset, triple fault, power off)\n"
	       "  123  the guest kernel panicked\n"
	       "  124  --timeout ran out\n"
	       "  125  heddle failed before the command started (bad option, host, set-up)\n"
	       "  126  the command cannot be executed\n"
	       "  127  the command was not found\n"
	       "  128+n  ended by signal n\n");
	free(o);
}

static unsigned default_cpus(void)
{
	cpu_set_t set;
	unsigned n = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = (unsigned)CPU_COUNT(&set);
	return MIN(n, MIN(8U, arch_max_vcpus()));
}

static uint64_t default_ram(void)
{
	uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return MAX(MIN(host / 2, RAM_DEFAULT_MAX), RAM_MIN);
}

static int check_directory(const char *option, const char *path)
{
	struct stat st;

	if (stat(path, &st)) {
		log_error("%s %s: %s", option, path, strerror(errno));
		return -EINVAL;
	}
	if (!S_ISDIR(st.st_mode)) {
		log_error("%s %s: not a directory", option, path);
		return -EINVAL;
	}
	return 0;
}

static int complete_directories(struct run_opts *o)
{
	int err = 0;

	if (!o->has_root)
		strcpy(o->root, "/");
	if (!o->bare)
		err = check_directory("--root", o->root);
	for (unsigned i = 0; i < o->n_mounts && !err; i++)
		err = check_directory("--mount", o->mount[i].host);
	return err;
}

/* What only the agent can do is not to be asked for without it. */
static int check_bare(const struct run_opts *o)
{
	const struct {
		bool given;
		const char *option;
	} agents[] = { { o->n_mounts, "--mount" }, { o->n_env, "--env" }, { o->cwd, "--cwd" },
		       { o->hostname, "--hostname" } };

	for (unsigned i = 0; i < ARRAY_SIZE(agents); i++) {
		if (agents[i].given) {
			log_error("%s needs heddle's agent in the guest: not with --initrd alone",
				  agents[i].option);
			return -EINVAL;
		}
	}
	for (unsigned i = 0; i < o->n_devices; i++) {
		struct net_guest g = { 0 };

		if (strcmp(o->device[i].kind, "net") == 0 && net_guest_of(o->device[i].spec, &g))
			return -EINVAL;
		if (*g.ip) {
			log_error("--net: ip= needs heddle's agent in the guest: not with --initrd alone");
			return -EINVAL;
		}
	}
	return 0;
}

static int complete(struct run_opts *o)
{
	int err;

	if (o->init && o->cwd) {
		log_error("--cwd is for a command: not with --init");
		return -EINVAL;
	}
	o->bare = o->initrd && !o->command && !o->has_root && !o->init;
	if (o->bare && check_bare(o))
		return -EINVAL;
	if (o->n_vcpus == 0)
		o->n_vcpus = default_cpus();
	if (o->ram == 0)
		o->ram = default_ram();
	o->ram = ALIGN_DOWN(o->ram, RAM_STEP);
	err = complete_directories(o);
	if (!err)
		err = kernel_find(o->kernel, sizeof(o->kernel));
	if (!err)
		err = kernel_find_modules(o);
	return err;
}

int run_opts_parse(struct run_opts *o, int argc, char **argv)
{
	struct opt table[OPTION_COUNT];
	int i = 1, err;

	memset(o, 0, sizeof(*o));
	o->kernel_file.fd = -1;
	o->stop_timeout_s = UINT_MAX;
	options_table(o, table);
	err = opt_parse(table, argc, argv, &i);
	if (o->verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	if (i < argc)
		o->command = argv + i;
	if (!err && !o->help)
		err = complete(o);
	if (err == -ENOMEM)
		log_error("no memory for the options");
	return err;
}

void run_opts_free(struct run_opts *o)
{
	for (unsigned i = 0; i < o->n_mounts; i++) {
		free(o->mount[i].host);
		free(o->mount[i].share);
	}
	free(o->root_share);
	for (unsigned i = 0; i < o->n_devices; i++)
		free(o->device[i].spec);
	free(o->append);
	file_close(&o->kernel_file);
}
