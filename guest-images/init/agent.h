/*
 * heddle's agent in the guest: PID 1 of the initramfs that heddle writes (see channel.h for what it
 * is told and what it tells).  A life in steps:
 *
 *	1. spec.c    read /heddle.spec
 *	2. load.c    load the kernel modules it names
 *	3. mounts.c  open the channel to heddle, mount the root, move into it, mount the rest
 *	   net.c     set the addresses of network devices
 *	4. spawn.c   start the command
 *	5. pump.c    threads carry its input and output, and signals
 *	6. end.c     the command is over: end what it left, drain its output, report, power off
 *
 * Every step returns 0 or -errno and has then left one line about it by agent_fail(); main reports
 * that line and ends the machine.  The main thread does everything; the threads of step 5 only
 * pump.
 */
#ifndef GUEST_IMAGES_INIT_AGENT_H
#define GUEST_IMAGES_INIT_AGENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "guest-images/init/channel.h"

enum root_mode { ROOT_OVERLAY, ROOT_RO, ROOT_RW };

struct spec_mount {
	char *tag, *path;
	bool ro;
};

struct spec_net {
	unsigned number; /* of the device, among those of its kind */
	char *address;
	unsigned prefix;
	char *gw, *dns; /* "" = none */
};

/* Strings point into buf; all of it lives for ever.  Lists of strings end with NULL. */
struct spec {
	char *buf;
	char **module;
	char *root; /* NULL: stay in the initramfs */
	enum root_mode root_mode;
	struct spec_mount *mount;
	unsigned n_mounts;
	struct spec_net *net;
	unsigned n_nets;
	char **arg;
	char *init; /* NULL: run arg as a command */
	char **env;
	char *cwd; /* NULL: "/" */
	bool cwd_try; /* "/" will do */
	bool tty;
	unsigned rows, cols;
	char *hostname; /* NULL: leave it */
	uid_t uid;
	gid_t gid;
};

/* Heddle's files on the channel; -1 = not open.  Above 2, closed on exec. */
struct channel_fds {
	int in, out, err, events, status;
};

/* The command and our ends of what it has for standard input, output and error. */
struct command {
	pid_t pid; /* leader of its own session and process group */
	bool tty;
	int in;	 /* write: its input; in tty mode the master */
	int out; /* read: its output; in tty mode the master */
	int err; /* read; -1 in tty mode */
};

struct pumps;

struct agent {
	struct spec spec;
	struct channel_fds ch;
	struct command command; /* here: the pumps' threads use it to the end */
	struct channel_status status; /* what will be reported */
};

/* say.c */
/* Set status to SETUP_FAILED, err and the line.  Returns -err. */
int agent_fail(struct agent *a, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* One line in the kernel's log: err shows on a quiet console, note does not. */
void agent_err(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void agent_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* spec.c: all of the file at path. */
int spec_load(struct agent *a, const char *path);
/* The same for bytes in memory, which it keeps and writes to; buf[len] must be NUL. */
int spec_parse(struct agent *a, char *buf, size_t len);

/* load.c: a module that does not load is noted, not fatal: what needs it will fail and say so. */
void load_modules(const struct spec *s);

/* mounts.c */
void sleep_ms(long ms); /* below a second */
int mount_channel(struct agent *a); /* fills a->ch; the share is out of sight after */
int channel_open(struct agent *a, const char *dir); /* the files of an already mounted share */
int mount_root(struct agent *a);		    /* and move into it */
void mount_system(const struct spec *s);	    /* /proc, /sys, /dev...: best effort, noted */
int mount_shares(struct agent *a);
int make_dirs(const char *path); /* mkdir -p; 0 also when it is there, or -errno */
void unmount_shares(const struct spec *s);

/* net.c: the addresses of the spec's net records.  In the root, with /run mounted. */
int net_setup(struct agent *a);

/* spawn.c: a command that cannot be executed, or not there, gives 0 with c->pid = 0 and a->status set. */
int command_start(struct agent *a, struct command *c);
/* Become spec.init.  Returns only when that failed, with a->status set. */
void command_become_init(struct agent *a);

/*
 * pump.c: start the threads.  They use the descriptors of both structs, which stay open for ever.
 * pumps_drain() returns when all output that was in the pipes has been taken by heddle; the command
 * and whoever shares its output are gone by then, or are not waited for.
 */
int pumps_start(struct agent *a, const struct command *c, struct pumps **out);
void pumps_drain(struct pumps *p);

/* end.c: wait for the command, fill a->status, drain. */
void command_wait(struct agent *a, const struct command *c, struct pumps *p);
/* Report a->status and switch the machine off. */
void agent_end(struct agent *a) __attribute__((noreturn));
void agent_report(const struct agent *a);

#endif
