/*
 * The guest agent's second half (spawn, pumps, end) and heddle's channel, end to end and without a
 * VM: the channel's file server answers a real /dev/fuse mount instead of a virtqueue, and the
 * agent's code runs as PID 1 of a PID namespace.  The fs_complete() here takes the place of the
 * device's.
 *
 * Needs root and /dev/fuse; says so and skips without.
 */
#include "guest-images/init/end.c"
#include "guest-images/init/mounts.c"
#include "guest-images/init/pump.c"
#include "guest-images/init/spawn.c"
#include "guest-images/init/spec.c"

#include "devices/channel.h"
#include "tests/unit/iothread.h"
#include "vmm/base.h"

#include <check.h>
#include <pty.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>

#define REQUEST_MAX ((1 << 20) + 65536)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BULK (32ull << 20)
#else
#define BULK (1ull << 30)
#endif

/* --- what say.c does, without the kernel's log ------------------------------------------------ */

int agent_fail(struct agent *a, int err, const char *fmt, ...)
{
	va_list ap;

	a->status = (struct channel_status){ .kind = CHANNEL_SETUP_FAILED, .code = err };
	va_start(ap, fmt);
	vsnprintf(a->status.text, sizeof(a->status.text), fmt, ap);
	va_end(ap);
	return -err;
}

void agent_err(const char *fmt, ...)
{
}

void agent_note(const char *fmt, ...)
{
}

/* --- /dev/fuse in place of a virtqueue -------------------------------------------------------- */

struct host;

/* Used again and again: under sanitizers a new megabyte costs a millisecond. */
struct fs_request {
	struct host *h;
	struct fs_request *next_free;
	struct iovec in, out;
};

struct host {
	struct channel *channel;
	struct iothread thread;
	struct watch fuse;
	struct fs_request *free;
	void *worker[CHANNEL_WORKERS];
	char dir[32];
	struct channel_status status;
	sem_t said, ready;
	pid_t agent;
	int go; /* closed: the agent may start */
};

void fs_request_cursors(const struct fs_request *r, struct cursor *in, struct cursor *out)
{
	*in = cursor_of(&r->in, 1);
	*out = cursor_of(&r->out, 1);
}

void fs_complete(struct fs_request *r, ssize_t len)
{
	if (len > 0)
		(void)!write(r->h->fuse.fd, r->out.iov_base, len);
	r->next_free = r->h->free;
	r->h->free = r;
}

static struct fs_request *request_get(struct host *h)
{
	struct fs_request *r = h->free;

	if (r) {
		h->free = r->next_free;
		return r;
	}
	r = calloc(1, sizeof(*r));
	r->h = h;
	r->in.iov_base = malloc(REQUEST_MAX);
	r->out = (struct iovec){ malloc(REQUEST_MAX), REQUEST_MAX };
	return r;
}

static void fuse_ready(struct watch *w, uint32_t events)
{
	struct host *h = container_of(w, struct host, fuse);
	struct fs_request *r = request_get(h);
	struct cursor in, out;
	ssize_t n;

	n = read(w->fd, r->in.iov_base, REQUEST_MAX);
	if (n < 0) {
		if (errno == ENODEV)
			loop_watch(&h->thread.loop, w, 0);
		fs_complete(r, 0);
		return;
	}
	r->in.iov_len = n;
	fs_request_cursors(r, &in, &out);
	n = channel_fs_server.serve(h->channel, h->worker[1], r, &in, &out);
	if (n != FS_LATER)
		fs_complete(r, n);
}

static int fuse_begin(void *arg)
{
	struct host *h = arg;
	int err = channel_fs_server.worker_begin(h->channel, h->worker[1], &h->thread.loop);

	return err ? err : loop_watch(&h->thread.loop, &h->fuse, EPOLLIN);
}

static void on_status(void *ctx, const struct channel_status *s)
{
	struct host *h = ctx;

	h->status = *s;
	if (s->kind == CHANNEL_SETUP_FAILED && strncmp(s->text, "--cwd", 5) != 0) {
		fprintf(stderr, "agent: %s: %s\n", s->text, strerror(s->code));
		_exit(1); /* tests wait for other things */
	}
	sem_post(&h->said);
}

static void on_ready(void *ctx)
{
	struct host *h = ctx;

	sem_post(&h->ready);
}

static void mount_fuse(struct host *h)
{
	char opts[96];

	h->fuse = (struct watch){ .fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK),
				  .ready = fuse_ready };
	ck_assert_int_ge(h->fuse.fd, 0);
	snprintf(opts, sizeof(opts),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions", h->fuse.fd);
	ck_assert_int_eq(mount("channel", h->dir, "fuse", 0, opts), 0);
}

/* PID 1 of its namespace: what main.c does after set-up.  Never returns. */
static void agent_main(const struct host *h, char *spec, size_t len, int wait_fd)
{
	struct agent a = { .ch = { -1, -1, -1, -1, -1 } };
	struct command c;
	struct pumps *p;
	sigset_t set;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(wait_fd, &byte, 1) > 0)
		;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (channel_open(&a, h->dir) == 0 && unshare(CLONE_NEWNS) == 0 &&
	    mount("proc", "/proc", "proc", 0, NULL) == 0 && spec_parse(&a, spec, len) == 0 &&
	    command_start(&a, &c) == 0 && c.pid && pumps_start(&a, &c, &p) == 0)
		command_wait(&a, &c, p);
	agent_report(&a);
	_exit(0);
}

/*
 * The agent is forked while this process has one thread; it waits until the mount is there.  A
 * process can make only one PID namespace for its children, so there is one in between.
 */
static void fork_agent(struct host *h, char *spec, size_t len, int first_fd)
{
	int go[2];

	pid_t pid1;

	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	h->agent = fork();
	if (h->agent == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pid1 = unshare(CLONE_NEWPID) ? -1 : fork();
		if (pid1 != 0) {
			close(go[0]);
			close(go[1]);
			for (int fd = first_fd; fd < 1024; fd++)
				close(fd);
			waitpid(pid1, NULL, 0);
			_exit(0);
		}
		close(go[1]);
		/* Our pipe ends must not live on in the agent. */
		for (int fd = first_fd; fd < 1024; fd++)
			if (fd != go[0])
				close(fd);
		agent_main(h, spec, len, go[0]);
	}
	close(go[0]);
	h->go = go[1];
}

static bool can_mount(void)
{
	return geteuid() == 0 && access("/dev/fuse", R_OK | W_OK) == 0 &&
	       unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Run the spec (records, each ended by NUL) with these descriptors. */
static void host_start(struct host *h, const void *spec, size_t len, int in, int out, int err)
{
	struct channel_opts o = { in, out, err, on_ready, on_status, h };
	char *copy = malloc(len + 1);

	signal(SIGPIPE, SIG_IGN);
	memset(h, 0, sizeof(*h));
	memcpy(copy, spec, len);
	copy[len] = '\0';
	strcpy(h->dir, "/tmp/agent-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(h->dir));
	sem_init(&h->said, 0, 0);
	sem_init(&h->ready, 0, 0);
	fork_agent(h, copy, len, 3);
	free(copy);
	ck_assert_int_eq(channel_create(&o, &h->channel), 0);
	channel_workers(h->channel, h->worker);
	mount_fuse(h);
	ck_assert_int_eq(iothread_start(&h->thread, "channel"), 0);
	ck_assert_int_eq(iothread_call(&h->thread, fuse_begin, h), 0);
	close(h->go);
}

static int fuse_end(void *arg)
{
	struct host *h = arg;

	loop_watch(&h->thread.loop, &h->fuse, 0);
	channel_fs_server.worker_end(h->channel, h->worker[1]);
	return 0;
}

/* Wait for the status, at most 20 s, then take everything down. */
static struct channel_status host_wait(struct host *h)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 20;
	ck_assert_int_eq(sem_timedwait(&h->said, &t), 0);
	ck_assert_int_eq(waitpid(h->agent, NULL, 0), h->agent);
	umount2(h->dir, MNT_DETACH);
	iothread_call(&h->thread, fuse_end, h);
	iothread_stop(&h->thread);
	channel_destroy(h->channel);
	while (h->free) {
		struct fs_request *req = h->free;

		h->free = req->next_free;
		free(req->in.iov_base);
		free(req->out.iov_base);
		free(req);
	}
	close(h->fuse.fd);
	rmdir(h->dir);
	return h->status;
}

static void host_wait_ready(struct host *h)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 20;
	ck_assert_int_eq(sem_timedwait(&h->ready, &t), 0);
	ck_assert(channel_connected(h->channel));
}

/* --- helpers ---------------------------------------------------------------------------------- */

#define SPEC(s)	 s, sizeof(s) - 1
#define PATH_ENV "env=PATH=/usr/bin:/bin\0"
#define SH	 "arg=/bin/sh\0arg=-c\0arg="

struct wires {
	int in, out, err; /* our ends; others are in far[] */
	int far[3];
};

static void make_wires(struct wires *w)
{
	int p[3][2];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pipe2(p[i], O_CLOEXEC), 0);
	w->in = p[0][1];
	w->out = p[1][0];
	w->err = p[2][0];
	w->far[0] = p[0][0];
	w->far[1] = p[1][1];
	w->far[2] = p[2][1];
}

static void close_far(struct wires *w)
{
	for (int i = 0; i < 3; i++)
		close(w->far[i]);
}

/* Up to the end of file or max bytes. */
static size_t slurp(int fd, char *buf, size_t max)
{
	size_t len = 0;
	ssize_t n;

	while (len < max && (n = read(fd, buf + len, max - len)) > 0)
		len += n;
	return len;
}

struct result {
	struct channel_status status;
	char out[65536], err[4096];
	size_t out_len, err_len;
};

/* Run with the bytes of input, small output. */
static void run_bytes(struct result *r, const void *spec, size_t len, const char *input)
{
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h, spec, len, w.far[0], w.far[1], w.far[2]);
	(void)!write(w.in, input, strlen(input));
	close(w.in);
	r->status = host_wait(&h);
	close_far(&w);
	r->out_len = slurp(w.out, r->out, sizeof(r->out) - 1);
	r->err_len = slurp(w.err, r->err, sizeof(r->err) - 1);
	r->out[r->out_len] = r->err[r->err_len] = '\0';
	close(w.out);
	close(w.err);
}

static struct result r;

/* --- tests ------------------------------------------------------------------------------------ */

static int parse_spec(struct agent *a, const char *record)
{
	size_t len = strlen(record);
	char *buf = malloc(len + 8);

	memcpy(buf, record, len + 1);
	memcpy(buf + len + 1, "arg=x", 6);
	*a = (struct agent){ 0 };
	return spec_parse(a, buf, len + 7);
}

/* The agent itself keeps its spec for ever. */
static void free_spec(struct spec *s)
{
	free(s->buf);
	free(s->module);
	free(s->arg);
	free(s->env);
	free(s->mount);
	free(s->net);
}

START_TEST(network_addresses_in_the_spec)
{
	static const char *const bad[] = { "net=", "net=0", "net=0,10.0.0.2,,", "net=x,10.0.0.2/8,,",
					   "net=0,10.0.0.2/8,", "net=0,10.0.0.2/a,," };
	struct agent a;

	ck_assert_int_eq(parse_spec(&a, "net=3,fd00::2/64,fd00::1,"), 0);
	ck_assert_uint_eq(a.spec.n_nets, 1);
	ck_assert_uint_eq(a.spec.net->number, 3);
	ck_assert_uint_eq(a.spec.net->prefix, 64);
	ck_assert_str_eq(a.spec.net->address, "fd00::2");
	ck_assert_str_eq(a.spec.net->gw, "fd00::1");
	ck_assert_str_eq(a.spec.net->dns, "");
	free_spec(&a.spec);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_int_eq(parse_spec(&a, bad[i]), -EINVAL);
		free_spec(&a.spec);
	}
}
END_TEST

START_TEST(exit_code_and_three_streams)
{
	run_bytes(&r, SPEC(PATH_ENV SH "read x; echo out $x; echo err >&2; exit 7\0"), "line\n");
	ck_assert_uint_eq(r.status.kind, CHANNEL_EXITED);
	ck_assert_uint_eq(r.status.code, 7);
	ck_assert_str_eq(r.out, "out line\n");
	ck_assert_str_eq(r.err, "err\n");
}
END_TEST

START_TEST(death_by_signal)
{
	run_bytes(&r, SPEC(SH "kill -9 $$\0"), "");
	ck_assert_uint_eq(r.status.kind, CHANNEL_SIGNALLED);
	ck_assert_uint_eq(r.status.code, SIGKILL);
}
END_TEST

static void check_exec(const void *spec, size_t len, unsigned kind, unsigned code)
{
	run_bytes(&r, spec, len, "");
	ck_assert_uint_eq(r.status.kind, kind);
	ck_assert_uint_eq(r.status.code, code);
}

START_TEST(what_cannot_be_executed)
{
	check_exec(SPEC(PATH_ENV "arg=no-such-command\0"), CHANNEL_CANNOT_EXEC, ENOENT);
	check_exec(SPEC(PATH_ENV "arg=/no/such\0"), CHANNEL_CANNOT_EXEC, ENOENT);
	check_exec(SPEC(PATH_ENV "arg=\0"), CHANNEL_CANNOT_EXEC, ENOENT);
	check_exec(SPEC("arg=/etc/passwd\0"), CHANNEL_CANNOT_EXEC, EACCES);
	check_exec(SPEC("arg=/etc\0"), CHANNEL_CANNOT_EXEC, EACCES);
	check_exec(SPEC("arg=/etc/passwd/x\0"), CHANNEL_CANNOT_EXEC, ENOTDIR);
	check_exec(SPEC("env=PATH=/etc:/usr/bin\0arg=passwd\0arg=--help\0"), CHANNEL_EXITED, 0);
	check_exec(SPEC("env=PATH=/etc:/nowhere\0arg=passwd\0"), CHANNEL_CANNOT_EXEC, EACCES);
}
END_TEST

START_TEST(script_without_interpreter_line)
{
	int fd = open("/tmp/agent-test-script", O_CREAT | O_WRONLY | O_TRUNC, 0755);

	dprintf(fd, "echo script \"$0\" \"$1\"; exit 3\n");
	close(fd);
	run_bytes(&r, SPEC("env=PATH=/tmp\0arg=agent-test-script\0arg=a b\0"), "");
	unlink("/tmp/agent-test-script");
	ck_assert_uint_eq(r.status.code, 3);
	ck_assert_str_eq(r.out, "script /tmp/agent-test-script a b\n");
}
END_TEST

START_TEST(arguments_byte_for_byte)
{
	static const char spec[] =
		PATH_ENV "arg=printf\0arg=%s|\0arg=\0arg=a=b\0arg=\xff\x01\n\"'$\0"
			 "arg= \t\0";
	static const char want[] = "|a=b|\xff\x01\n\"'$| \t|";

	run_bytes(&r, SPEC(spec), "");
	ck_assert_uint_eq(r.out_len, sizeof(want) - 1);
	ck_assert_mem_eq(r.out, want, sizeof(want) - 1);
}
END_TEST

START_TEST(environment_identity_and_folder)
{
	run_bytes(&r,
		  SPEC("env=A=1\0env=PATH=/usr/bin\0uid=65534\0gid=65533\0cwd=/usr/lib\0arg=sh\0"
		       "arg=-c\0arg=/usr/bin/env | grep -v -e PWD -e _=; id -u; id -g; id -G; pwd; "
		       "echo again >/dev/stdout\0"),
		  "");
	ck_assert_str_eq(r.out, "A=1\nPATH=/usr/bin\n65534\n65533\n65533\n/usr/lib\nagain\n");
	run_bytes(&r, SPEC("cwdtry=/no/such/folder\0arg=/bin/pwd\0"), "");
	ck_assert_str_eq(r.out, "/\n");
	ck_assert_str_eq(r.err, "heddle: warning: /no/such/folder: No such file or directory in the "
				"guest; the command runs in /\n");
	run_bytes(&r, SPEC("cwd=/no/such/folder\0arg=/bin/pwd\0"), "");
	ck_assert_uint_eq(r.status.kind, CHANNEL_SETUP_FAILED);
	ck_assert_uint_eq(r.status.code, ENOENT);
	ck_assert_str_eq(r.status.text, "--cwd /no/such/folder");
	ck_assert_str_eq(r.out, "");
}
END_TEST

START_TEST(signals_start_out_default)
{
	/* 32 and 33 are the C library's own; it lets nobody set them, so here they may be inherited. */
	const unsigned long long own = 3ULL << 31;
	unsigned long long blocked, ignored;

	run_bytes(&r, SPEC(PATH_ENV "arg=grep\0arg=-E\0arg=^Sig(Blk|Ign)\0arg=/proc/self/status\0"),
		  "");
	ck_assert_int_eq(sscanf(r.out, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
	ck_assert_uint_eq(blocked, 0);
	ck_assert_uint_eq(ignored & ~own, 0);
}
END_TEST

START_TEST(no_descriptor_leaks)
{
	run_bytes(&r, SPEC(PATH_ENV SH "echo /proc/self/fd/*; cd /proc/self/fd; ls\0"), "");
	ck_assert_str_eq(r.out, "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n"
				"0\n1\n2\n");
}
END_TEST

START_TEST(background_processes_do_not_hold_us)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	run_bytes(&r, SPEC(PATH_ENV SH "sleep 100 & setsid sleep 100 & echo done\0"), "");
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_str_eq(r.out, "done\n");
	ck_assert_int_lt(b.tv_sec - a.tv_sec, 3);
}
END_TEST

START_TEST(what_ends_soon_may_end)
{
	run_bytes(&r, SPEC(PATH_ENV "arg=bash\0arg=-c\0arg=echo one > >(cat; echo two)\0"), "");
	ck_assert_str_eq(r.out, "one\ntwo\n");
}
END_TEST

/* A byte sequence that does not repeat at any power of two. */
static void pattern(uint8_t *buf, size_t len, uint64_t pos)
{
	for (size_t i = 0; i < len; i++, pos++)
		buf[i] = (pos * 2654435761u >> 13) ^ pos >> 20;
}

static void *feed_main(void *arg)
{
	const int fd = *(int *)arg;
	static uint8_t block[1 << 20];

	for (uint64_t pos = 0; pos < BULK; pos += sizeof(block)) {
		pattern(block, sizeof(block), pos);
		if (!write_all(fd, (char *)block, sizeof(block)))
			break;
	}
	close(fd);
	return NULL;
}

START_TEST(a_gigabyte_arrives_intact)
{
	static uint8_t got[1 << 20], want[1 << 20];
	uint64_t pos = 0;
	pthread_t feeder;
	struct timespec a, b;
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h, SPEC(PATH_ENV "arg=cat\0"), w.far[0], w.far[1], w.far[2]);
	clock_gettime(CLOCK_MONOTONIC, &a);
	pthread_create(&feeder, NULL, feed_main, &w.in);
	while (pos < BULK) {
		size_t n = slurp(w.out, (char *)got, sizeof(got));

		ck_assert_uint_eq(n, sizeof(got));
		pattern(want, n, pos);
		ck_assert(memcmp(got, want, n) == 0);
		pos += n;
	}
	ck_assert_uint_eq(host_wait(&h).code, 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	pthread_join(feeder, NULL);
	close_far(&w);
	ck_assert_uint_eq(slurp(w.out, (char *)got, 1), 0);
	fprintf(stderr, "%llu MiB through the command in %.2f s\n", BULK >> 20,
		(b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
}
END_TEST

START_TEST(a_full_stdout_does_not_hold_stderr)
{
	static char out[8 << 20];
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h,
		   SPEC(PATH_ENV SH "{ head -c 8388608 /dev/zero; echo fed >&2; } & sleep 0.2; "
				    "echo err >&2; wait\0"),
		   w.far[0], w.far[1], w.far[2]);
	ck_assert_uint_eq(slurp(w.err, out, 4), 4); /* although nobody reads w.out */
	ck_assert_mem_eq(out, "err\n", 4);
	ck_assert_uint_eq(slurp(w.out, out, sizeof(out)), sizeof(out));
	ck_assert_uint_eq(host_wait(&h).code, 0);
}
END_TEST

START_TEST(a_broken_pipe_breaks_the_commands_pipe)
{
	struct channel_status s;
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h, SPEC(PATH_ENV "arg=yes\0"), w.far[0], w.far[1], w.far[2]);
	close_far(&w);
	ck_assert_uint_eq(slurp(w.out, r.out, 2), 2);
	close(w.out);
	s = host_wait(&h);
	ck_assert_uint_eq(s.kind, CHANNEL_SIGNALLED);
	ck_assert_uint_eq(s.code, SIGPIPE);
}
END_TEST

static void run_stdin(int in, const void *spec, size_t len)
{
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h, spec, len, in, w.far[1], w.far[2]);
	r.status = host_wait(&h);
	close_far(&w);
	r.out_len = slurp(w.out, r.out, sizeof(r.out) - 1);
	r.out[r.out_len] = '\0';
}

START_TEST(kinds_of_standard_input)
{
	int pair[2], fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	static char file[65536];
	size_t len = slurp(fd, file, sizeof(file));

	lseek(fd, 5, SEEK_SET);
	run_stdin(fd, SPEC(PATH_ENV "arg=cat\0"));
	ck_assert_uint_eq(r.out_len, len - 5);
	ck_assert_mem_eq(r.out, file + 5, len - 5);
	run_stdin(-1, SPEC(PATH_ENV "arg=cat\0"));
	ck_assert_uint_eq(r.out_len, 0);
	run_stdin(open("/dev/null", O_RDONLY | O_CLOEXEC), SPEC(PATH_ENV "arg=cat\0"));
	ck_assert_uint_eq(r.out_len, 0);
	run_stdin(open("/dev/zero", O_RDONLY | O_CLOEXEC), SPEC(PATH_ENV "arg=head\0arg=-c9\0"));
	ck_assert_uint_eq(r.out_len, 9);
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	(void)!write(pair[1], "sock", 4);
	shutdown(pair[1], SHUT_WR);
	run_stdin(pair[0], SPEC(PATH_ENV "arg=cat\0"));
	ck_assert_str_eq(r.out, "sock");
}
END_TEST

START_TEST(signals_reach_the_command)
{
	struct channel_status s;
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h,
		   SPEC(PATH_ENV SH "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; "
				    "echo up; while :; do sleep 0.01; done\0"),
		   w.far[0], w.far[1], w.far[2]);
	host_wait_ready(&h);
	ck_assert_uint_eq(slurp(w.out, r.out, 3), 3);
	channel_signal(h.channel, SIGUSR1);
	ck_assert_uint_eq(slurp(w.out, r.out, 5), 5);
	ck_assert_mem_eq(r.out, "usr1\n", 5);
	channel_signal(h.channel, SIGTERM);
	s = host_wait(&h);
	ck_assert_uint_eq(s.kind, CHANNEL_EXITED);
	ck_assert_uint_eq(s.code, 5);
}
END_TEST

/* Read until the text has been seen; a read waits for at most 10 s. */
static void expect(int fd, const char *text)
{
	static char buf[65536];
	size_t len = 0;

	while (len < sizeof(buf) - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n = poll(&p, 1, 10000) == 1 ? read(fd, buf + len, 1) : 0;

		ck_assert_msg(n == 1, "end before \"%s\", after: %.*s", text, (int)len, buf);
		len += n;
		buf[len] = '\0';
		if (strstr(buf, text))
			return;
	}
	ck_abort_msg("no \"%s\" in: %s", text, buf);
}

START_TEST(a_terminal)
{
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(
		&h,
		SPEC("tty=33x77\0" PATH_ENV SH "winch=1; trap 'winch=' WINCH; [ -t 0 ] && [ -t 1 ] "
					       "&& [ -t 2 ] && stty size && "
		     "tty; echo >/dev/tty ctl; while [ $winch ]; do sleep 0.01; done; stty size; "
		     "read x; echo got $x; int=1; trap 'int=' INT; echo ready; "
		     "while [ $int ]; do sleep 0.01; done; echo int; read x || echo eof\0"),
		w.far[0], w.far[1], w.far[2]);
	host_wait_ready(&h);
	expect(w.out, "33 77\r\n/dev/pts/");
	expect(w.out, "ctl\r\n");
	channel_winsize(h.channel, 44, 88);
	expect(w.out, "44 88\r\n");
	(void)!write(w.in, "hello\n", 6);
	expect(w.out, "got hello\r\n");
	expect(w.out, "ready\r\n");
	(void)!write(w.in, "\003", 1);
	expect(w.out, "int\r\n");
	(void)!write(w.in, "\004", 1);
	expect(w.out, "eof\r\n");
	ck_assert_uint_eq(host_wait(&h).code, 0);
}
END_TEST

START_TEST(a_terminal_delivers_all_output)
{
	static char out[1 << 20];
	struct wires w;
	struct host h;
	size_t len;

	make_wires(&w);
	host_start(&h, SPEC("tty=24x80\0" PATH_ENV SH "stty -opost; seq 20000\0"), w.far[0],
		   w.far[1], w.far[2]);
	close(w.far[1]);
	len = slurp(w.out, out, 108894);
	ck_assert_uint_eq(len, 108894);
	ck_assert_mem_eq(out + len - 6, "20000\n", 6);
	ck_assert_uint_eq(host_wait(&h).code, 0);
}
END_TEST

START_TEST(a_terminal_left_and_taken_again)
{
	struct wires w;
	struct host h;

	make_wires(&w);
	host_start(&h,
		   SPEC("tty=24x80\0" PATH_ENV SH
			"trap '' HUP; t=$(tty); exec </dev/null >/dev/null 2>&1; sleep 0.3; "
			"echo back >$t; exit 4\0"),
		   w.far[0], w.far[1], w.far[2]);
	expect(w.out, "back\r\n");
	ck_assert_uint_eq(host_wait(&h).code, 4);
}
END_TEST

static Suite *agent_suite(void)
{
	Suite *s = suite_create("agent");
	TCase *t = tcase_create("end to end");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, network_addresses_in_the_spec);
	tcase_add_test(t, exit_code_and_three_streams);
	tcase_add_test(t, death_by_signal);
	tcase_add_test(t, what_cannot_be_executed);
	tcase_add_test(t, script_without_interpreter_line);
	tcase_add_test(t, arguments_byte_for_byte);
	tcase_add_test(t, environment_identity_and_folder);
	tcase_add_test(t, signals_start_out_default);
	tcase_add_test(t, no_descriptor_leaks);
	tcase_add_test(t, background_processes_do_not_hold_us);
	tcase_add_test(t, what_ends_soon_may_end);
	tcase_add_test(t, a_gigabyte_arrives_intact);
	tcase_add_test(t, a_full_stdout_does_not_hold_stderr);
	tcase_add_test(t, a_broken_pipe_breaks_the_commands_pipe);
	tcase_add_test(t, kinds_of_standard_input);
	tcase_add_test(t, signals_reach_the_command);
	tcase_add_test(t, a_terminal);
	tcase_add_test(t, a_terminal_delivers_all_output);
	tcase_add_test(t, a_terminal_left_and_taken_again);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner;
	int failed;

	if (!can_mount()) {
		printf("skipped: 18, needs root, /dev/fuse and mount namespaces\n");
		return 77;
	}
	runner = srunner_create(agent_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
