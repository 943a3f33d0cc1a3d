/*
 * Mounts a directory through heddle's file server on /dev/fuse, so that the server can be tested
 * with a real kernel as client and without a VM.
 *
 * usage: mount [-t THREADS] [-h HELPERS] [-c none|auto|always] [-o KEY,...] [-u ID] [-r] [-s] [-n] [-l]
 *              SHARE MOUNTPOINT [COMMAND ARG...]
 * -t  serving threads, each with a queue of its own (default 1)
 * -h  helper threads (default 2)
 * -c  cache policy (default auto)          -r  read-only share       -l  locks=host
 * -o  keys of --fs about rights and writing, as in heddle.1
 * -u  serve as this user and group, without privileges; the command stays root's
 * -s  split buffers into odd pieces, as a hostile driver would
 * -n  no file handles: nodes are found again by name
 *
 * With a command: run it, unmount, exit with its code.  Without: serve until SIGINT or SIGTERM.
 * Either way the mount is gone at exit; exit code 125 means that the mount itself failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/fuse/pool.h"
#include "devices/fuse/session.h"
#include "vmm/base.h"
#include "vmm/opt.h"

#define BUF_LEN      (1024 * 1024 + 64 * 1024)
#define PAGE         4096
#define EXIT_SETUP   125
#define THREADS_MAX  64
#define SMALL_PIECES 256 /* that many pieces of one byte first, then pieces of ODD_LEN */
#define ODD_LEN      4093

struct server {
	struct fuse_session *session;
	struct fuse_worker *worker;
	pthread_t thread;
	int fd;
	bool split;
	uint32_t user; /* to serve as; 0: as we are */
	char *in_mem, *out_mem;
	char *in, *out; /* inside, so that the data of WRITE and READ begin with a page */
	struct iovec *pieces;
};

static void die(const char *what)
{
	fprintf(stderr, "mount: %s: %s\n", what, strerror(errno));
	exit(EXIT_SETUP);
}

static unsigned split(struct iovec *v, char *buf, size_t len)
{
	unsigned n = 0;

	while (len > 0) {
		size_t step = n < SMALL_PIECES ? 1 : ODD_LEN;

		if (step > len)
			step = len;
		v[n++] = (struct iovec){ buf, step };
		buf += step;
		len -= step;
	}
	return n;
}

static struct cursor pieces(const struct server *s, struct iovec *v, char *buf, size_t len)
{
	if (s->split)
		return cursor_of(v, split(v, buf, len));
	v[0] = (struct iovec){ buf, len };
	return cursor_of(v, 1);
}

/* This thread only: libc's functions would change all of them. */
static bool become(uint32_t user)
{
	return syscall(SYS_setgroups, 0, NULL) == 0 &&
	       syscall(SYS_setresgid, user, user, user) == 0 &&
	       syscall(SYS_setresuid, user, user, user) == 0;
}

/* --- slow requests ---------------------------------------------------------------------------- */

/* Buffers change hands with it. */
struct slow {
	struct fuse_job job;
	const struct server *s;
	char *in_mem, *out_mem, *in, *out;
	size_t in_len;
	struct iovec v[2];
};

static void reply(const struct server *s, const char *out, ssize_t n)
{
	/* ENOENT: the request was interrupted and the kernel does not wait for it. */
	if (n > 0 && write(s->fd, out, (size_t)n) < 0 && errno != ENOENT)
		fprintf(stderr, "mount: reply: %s\n", strerror(errno));
	if (n < 0)
		fprintf(stderr, "mount: request without answer\n");
}

static void slow_cursors(struct fuse_job *j, struct cursor *in, struct cursor *out)
{
	struct slow *w = container_of(j, struct slow, job);

	w->v[0] = (struct iovec){ w->in, w->in_len };
	w->v[1] = (struct iovec){ w->out, BUF_LEN };
	*in = cursor_of(&w->v[0], 1);
	*out = cursor_of(&w->v[1], 1);
}

static void slow_done(struct fuse_job *j, ssize_t len)
{
	struct slow *w = container_of(j, struct slow, job);

	reply(w->s, w->out, len);
	free(w->in_mem);
	free(w->out_mem);
	free(w);
}

static void buffers_new(struct server *s)
{
	s->in_mem = aligned_alloc(PAGE, BUF_LEN + PAGE);
	s->out_mem = aligned_alloc(PAGE, BUF_LEN + PAGE);
	if (!s->in_mem || !s->out_mem)
		die("memory");
	s->in = s->in_mem + PAGE - sizeof(struct fuse_in_header) - sizeof(struct fuse_write_in);
	s->out = s->out_mem + PAGE - sizeof(struct fuse_out_header);
}

static void hand_on(struct server *s, size_t in_len)
{
	struct slow *w = calloc(1, sizeof(*w));
	const struct fuse_in_header *h = (const void *)s->in;

	if (!w)
		die("memory");
	w->s = s;
	w->in_mem = s->in_mem;
	w->out_mem = s->out_mem;
	w->in = s->in;
	w->out = s->out;
	w->in_len = in_len;
	w->job.lane = s;
	w->job.cursors = slow_cursors;
	w->job.done = slow_done;
	buffers_new(s);
	fuse_submit(s->session, s->worker, &w->job, h->unique);
}

struct helper {
	struct iothread thread;
	struct fuse_session *session;
	unsigned index;
	uint32_t user;
};

static int helper_begin(struct iothread *t)
{
	struct helper *h = container_of(t, struct helper, thread);

	if (h->user && !become(h->user))
		return -EPERM;
	return fuse_helper_start(h->session, h->index, &t->loop);
}

static void helper_start(struct helper *h)
{
	h->thread.on_start = helper_begin;
	if (iothread_begin(&h->thread, "helper") < 0 || iothread_begun(&h->thread) < 0)
		die("helper");
}

/* --- serving ---------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
	struct server *s = arg;
	unsigned half = SMALL_PIECES + BUF_LEN / ODD_LEN + 2;

	if ((s->user && !become(s->user)) || fuse_thread_init(s->session) < 0) {
		fprintf(stderr, "mount: fuse_thread_init failed\n");
		_exit(EXIT_SETUP);
	}
	for (;;) {
		ssize_t n = read(s->fd, s->in, BUF_LEN), got;
		struct cursor in, out;

		if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		if (n <= 0)
			return NULL; /* ENODEV: unmounted */
		in = pieces(s, s->pieces, s->in, (size_t)n);
		out = pieces(s, s->pieces + half, s->out, BUF_LEN);
		got = fuse_serve(s->session, s->worker, &in, &out);
		if (got == FUSE_SLOW)
			hand_on(s, (size_t)n);
		else
			reply(s, s->out, got);
	}
}

static void server_start(struct server *s, int master)
{
	unsigned half = SMALL_PIECES + BUF_LEN / ODD_LEN + 2;
	uint32_t from = (uint32_t)master;

	s->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (s->fd < 0 || ioctl(s->fd, FUSE_DEV_IOC_CLONE, &from) < 0)
		die("/dev/fuse clone");
	buffers_new(s);
	s->pieces = calloc(2 * half, sizeof(*s->pieces));
	if (!s->pieces)
		die("memory");
	if (pthread_create(&s->thread, NULL, serve, s))
		die("thread");
}

static void server_stop(struct server *s)
{
	pthread_join(s->thread, NULL);
	close(s->fd);
	free(s->in_mem);
	free(s->out_mem);
	free(s->pieces);
}

static void raise_limits(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
	signal(SIGXFSZ, SIG_IGN);
}

static int mount_at(const char *at, bool readonly)
{
	unsigned long flags = MS_NODEV | (readonly ? MS_RDONLY : 0);
	char opts[128];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("/dev/fuse");
	/* What the kernel sets for virtiofs too. */
	snprintf(opts, sizeof(opts),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", fd);
	if (mount("heddle-test", at, "fuse.heddle-test", flags, opts) < 0)
		die("mount");
	return fd;
}

static void exec_command(char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGXFSZ, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	execvp(argv[0], argv);
	fprintf(stderr, "mount: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Exit code of the command.  Told to stop, kill it with all its children. */
static int run_command(char **argv, const sigset_t *signals)
{
	int status, sig;
	pid_t pid = fork();

	if (pid < 0)
		return EXIT_SETUP;
	if (pid == 0)
		exec_command(argv);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		sigwait(signals, &sig);
		if (sig != SIGCHLD)
			kill(-pid, SIGKILL);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void unmount(const char *at)
{
	/* Whoever still sits in it has a moment to leave. */
	for (int i = 0; i < 50; i++) {
		if (umount2(at, 0) == 0 || errno != EBUSY)
			return;
		usleep(20000);
	}
	fprintf(stderr, "mount: %s is busy\n", at);
	umount2(at, MNT_DETACH);
}

static enum fuse_cache cache_named(const char *s)
{
	if (!strcmp(s, "none"))
		return FUSE_CACHE_NONE;
	if (!strcmp(s, "always"))
		return FUSE_CACHE_ALWAYS;
	return FUSE_CACHE_AUTO;
}

struct options {
	struct fuse_opts fuse;
	uint32_t user;
	bool split;
	const char *at;
	char **command; /* or NULL */
};

static void parse_choices(struct fuse_choices *c, char *list)
{
	const struct opt table[] = { FUSE_CHOICE_ROWS(c), { 0 } };

	if (opt_parse_list(table, "-o", list) < 0)
		exit(EXIT_SETUP);
}

static void parse(int argc, char **argv, struct options *o)
{
	int opt;

	while ((opt = getopt(argc, argv, "+t:h:c:o:u:rsnl")) != -1) {
		if (opt == 't')
			o->fuse.workers = (unsigned)atoi(optarg);
		else if (opt == 'h')
			o->fuse.helpers = (unsigned)atoi(optarg);
		else if (opt == 'c')
			o->fuse.cache = cache_named(optarg);
		else if (opt == 'o')
			parse_choices(&o->fuse.choices, optarg);
		else if (opt == 'u')
			o->user = (uint32_t)atoi(optarg);
		else if (opt == 'r')
			o->fuse.readonly = true;
		else if (opt == 's')
			o->split = true;
		else if (opt == 'n')
			o->fuse.by_name = true;
		else if (opt == 'l')
			o->fuse.locks = FUSE_LOCKS_HOST;
		else
			exit(EXIT_SETUP);
	}
	if (argc - optind < 2 || o->fuse.workers < 1 || o->fuse.workers > THREADS_MAX ||
	    o->fuse.helpers > THREADS_MAX) {
		fprintf(stderr, "usage: mount [options] SHARE MOUNTPOINT [COMMAND ARG...]\n");
		exit(EXIT_SETUP);
	}
	if (fuse_choices_check(&o->fuse.choices, o->fuse.cache == FUSE_CACHE_NONE) < 0)
		exit(EXIT_SETUP);
	o->fuse.path = argv[optind];
	o->at = argv[optind + 1];
	o->command = argc - optind > 2 ? argv + optind + 2 : NULL;
}

static void block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, signals, NULL);
}

int main(int argc, char **argv)
{
	struct options o = { .fuse = { .workers = 1, .helpers = 2, .cache = FUSE_CACHE_AUTO } };
	static struct server servers[THREADS_MAX];
	static struct helper helpers[THREADS_MAX];
	struct fuse_session *session;
	sigset_t signals;
	int master, rc, sig;

	parse(argc, argv, &o);
	block_signals(&signals);
	raise_limits();
	rc = fuse_session_create(&o.fuse, &session);
	if (rc < 0) {
		errno = -rc;
		die(o.fuse.path);
	}
	master = mount_at(o.at, o.fuse.readonly);
	for (unsigned i = 0; i < o.fuse.helpers; i++) {
		helpers[i].session = session;
		helpers[i].index = i;
		helpers[i].user = o.user;
		helper_start(&helpers[i]);
	}
	for (unsigned i = 0; i < o.fuse.workers; i++) {
		servers[i].session = session;
		servers[i].worker = fuse_session_worker(session, i);
		servers[i].split = o.split;
		servers[i].user = o.user;
		server_start(&servers[i], master);
	}
	if (o.command)
		rc = run_command(o.command, &signals);
	else
		sigwait(&signals, &sig);
	unmount(o.at);
	for (unsigned i = 0; i < o.fuse.workers; i++)
		server_stop(&servers[i]);
	for (unsigned i = 0; i < o.fuse.helpers; i++)
		iothread_stop(&helpers[i].thread);
	close(master);
	fuse_session_destroy(session);
	return rc;
}
