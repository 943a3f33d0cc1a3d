/*
 * The options of `heddle run` as a plain struct, with defaults filled in and checked.
 */
#ifndef VMM_RUN_OPTS_H
#define VMM_RUN_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/kernel.h"
#include "vmm/machine.h"

#define RUN_MOUNTS_MAX 16
#define RUN_ENV_MAX    128
#define RUN_HOSTNAME_MAX 64 /* Linux' __NEW_UTS_LEN */

enum root_mode { ROOT_OVERLAY, ROOT_RO, ROOT_RW };

struct run_mount {
	char *host, *guest;
	char *share; /* more keys for the share: ",key=value,..." or "" */
	bool readonly;
};

struct run_opts {
	char kernel[4096];           /* path; chosen when not given */
	struct file kernel_file;     /* open */
	char release[128];           /* the kernel's own name for itself; "" = it does not say */
	char modules[4096];          /* folder with modules.dep of that release; "" = none found */
	const char *initrd;
	char *append;                /* all --append, joined */
	unsigned n_vcpus;
	uint64_t ram;
	bool has_root;               /* --root was given */
	char root[4096];             /* absolute, resolved */
	enum root_mode root_mode;
	char *root_share;            /* more keys for the root's share, or NULL */
	struct run_mount mount[RUN_MOUNTS_MAX];
	unsigned n_mounts;
	const char *env[RUN_ENV_MAX]; /* --env, as given */
	unsigned n_env;
	const char *cwd;
	const char *hostname;
	const char *init;
	unsigned timeout_s;          /* 0 = none */
	unsigned stop_timeout_s;     /* UINT_MAX: default */
	const char *console;         /* NULL: default */
	bool reboot;
	bool verbose;
	bool help;
	struct device_request device[MACHINE_DEVICES_MAX];
	unsigned n_devices;
	char **command;              /* NULL-terminated; NULL = none given */

	/* No agent: the given initrd or kernel does everything, the console is standard input and output. */
	bool bare;
};

/* Parse and complete.  0, or -EINVAL having logged one line.  Free with run_opts_free, also on error. */
int run_opts_parse(struct run_opts *o, int argc, char **argv);
void run_opts_free(struct run_opts *o);
/* The options table and exit codes on standard output. */
void run_opts_help(void);

/* True when a device of this kind was asked for. */
bool run_opts_has_device(const struct run_opts *o, const char *kind);
/* Append a device request; spec is taken over (freed by run_opts_free).  0 or -ENOSPC, logged. */
int run_opts_add_device(struct run_opts *o, const char *kind, char *spec);

#endif
