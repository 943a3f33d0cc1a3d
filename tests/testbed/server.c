/*
 * The test host's process 1: runs the commands that testbed's clients send; see proto.h.
 *
 * usage: server PORT TOKEN-FILE IDLE-SECONDS
 *
 * The main loop accepts connections and reaps.  Each connection has a process of its own, which
 * runs the command in its own session and cgroup, and ends when that is done: whatever the command
 * left running in its cgroup is killed then, so commands do not disturb later ones.  A command
 * whose client goes away gets SIGTERM, and SIGKILL two seconds later.
 *
 * The host powers off on SIGTERM, and after IDLE-SECONDS without a command.
 */
#include <fcntl.h>
#include <ftw.h>
#include <linux/kvm.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "proto.h"

#define TERM_GRACE_MS 2000		/* from SIGTERM to SIGKILL */
#define DRAIN_MS 100			/* for what still writes after the command's exit */
#define KILLED_MS 5000			/* for the killed to be gone */
#define MAX_RUNS 256

static char token[TOKEN_LEN];

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* One command on one connection. */
struct run {
	int conn;			/* -1 once the client is gone */
	int in, out, err;		/* our ends of the command's pipes; -1 once closed */
	int pidfd;			/* -1 once reaped */
	pid_t pid;
	uint32_t status;
	long long deadline;		/* when to go on to harder means, 0 for never */
	bool killed;
	char cgroup[64];
	char buf[FRAME_MAX];		/* input the command has not taken yet */
	size_t off, end;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static bool write_file(const char *dir, const char *name, const char *text)
{
	char path[128];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write_all(fd, text, strlen(text));
	close_fd(&fd);
	return ok;
}

static void run_kill(struct run *r)
{
	r->killed = true;
	if (!write_file(r->cgroup, "cgroup.kill", "1"))
		kill(-r->pid, SIGKILL);
}

static int remove_dir(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DP)
		rmdir(path);
	return 0;
}

static bool cgroup_populated(const char *cgroup)
{
	char path[128], text[128] = "";
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/cgroup.events", cgroup);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	close_fd(&fd);
	return n > 0 && strstr(text, "populated 1");
}

/* Kills what is left and waits until it is gone, so that the next command finds nothing of it. */
static void run_clean(struct run *r)
{
	long long end = now_ms() + KILLED_MS;

	if (cgroup_populated(r->cgroup)) {
		run_kill(r);
		while (cgroup_populated(r->cgroup) && now_ms() < end)
			usleep(2000);
	}
	nftw(r->cgroup, remove_dir, 8, FTW_DEPTH | FTW_PHYS);
}

/* In the new process; does not return.  words: folder, command, arguments; NULL at the end. */
static void run_exec(struct run *r, char **words, int in, int out, int err)
{
	setsid();
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	write_file(r->cgroup, "cgroup.procs", "0");
	signal(SIGPIPE, SIG_DFL);
	if (chdir(words[0]) < 0 && chdir("/") < 0)
		_exit(126);
	execvp(words[1], words + 1);
	fprintf(stderr, "%s: %s\n", words[1], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static bool run_start(struct run *r, char **words)
{
	int in[2], out[2], err[2];

	snprintf(r->cgroup, sizeof(r->cgroup), "/sys/fs/cgroup/testbed-%d", (int)getpid());
	mkdir(r->cgroup, 0755);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return false;
	r->pid = fork();
	if (r->pid < 0)
		return false;
	if (r->pid == 0)
		run_exec(r, words, in[0], out[1], err[1]);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	r->in = in[1];
	r->out = out[0];
	r->err = err[0];
	fcntl(r->in, F_SETFL, O_NONBLOCK);
	r->pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0);
	return r->pidfd >= 0;
}

static void run_hangup(struct run *r)
{
	close_fd(&r->in);
	if (r->deadline)
		return;
	kill(-r->pid, SIGTERM);
	r->deadline = now_ms() + TERM_GRACE_MS;
}

static void run_send(struct run *r, uint32_t type, const void *data, size_t len)
{
	char buf[sizeof(struct frame) + FRAME_MAX];
	struct frame f = { .type = type, .len = (uint32_t)len };

	if (r->conn < 0)
		return;
	memcpy(buf, &f, sizeof(f));
	memcpy(buf + sizeof(f), data, len);
	if (!write_all(r->conn, buf, sizeof(f) + len)) {
		close_fd(&r->conn);
		run_hangup(r);
	}
}

static void run_output(struct run *r, int *fd, uint32_t type)
{
	char buf[FRAME_MAX];
	ssize_t n = read(*fd, buf, sizeof(buf));

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close_fd(fd);
		return;
	}
	run_send(r, type, buf, (size_t)n);
	if (r->killed)
		r->deadline = now_ms() + KILLED_MS;	/* no writer lives: what is left ends */
}

/* The next piece of input from the client. */
static void run_receive(struct run *r)
{
	struct frame f;

	if (!read_all(r->conn, &f, sizeof(f)) || f.type != FRAME_STDIN || f.len > sizeof(r->buf) ||
	    !read_all(r->conn, r->buf, f.len)) {
		run_hangup(r);
		return;
	}
	r->off = 0;
	r->end = r->in < 0 ? 0 : f.len;
	if (f.len == 0)
		close_fd(&r->in);
}

static void run_input(struct run *r)
{
	ssize_t n = write(r->in, r->buf + r->off, r->end - r->off);

	if (n > 0)
		r->off += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR) {
		close_fd(&r->in);
		r->off = r->end = 0;
	}
}

static void run_exited(struct run *r)
{
	int status = 0;

	waitpid(r->pid, &status, 0);
	r->status = (uint32_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	close_fd(&r->pidfd);
	close_fd(&r->in);
	r->off = r->end = 0;
	r->killed = false;
	r->deadline = now_ms() + DRAIN_MS;
}

/* Moves data until the command has exited and its outputs are at their end, or nobody cares. */
static void run_pump(struct run *r)
{
	bool hung = false;		/* the client asked us to stop; it may still listen */

	while (r->pidfd >= 0 || r->out >= 0 || r->err >= 0) {
		bool pending = r->off < r->end;
		long long left = r->deadline ? r->deadline - now_ms() : -1;
		struct pollfd p[] = {
			{ .fd = hung ? -1 : r->conn, .events = POLLRDHUP },
			{ .fd = r->out, .events = POLLIN },
			{ .fd = r->err, .events = POLLIN },
			{ .fd = pending ? r->in : -1, .events = POLLOUT },
			{ .fd = r->pidfd, .events = POLLIN },
		};

		if (!pending)
			p[0].events |= POLLIN;
		if (r->deadline && left <= 0) {
			if (r->killed)
				return;
			run_kill(r);
			r->deadline = now_ms() + KILLED_MS;
			continue;
		}
		if (poll(p, 5, (int)left) < 0)
			continue;
		if (p[1].revents)
			run_output(r, &r->out, FRAME_STDOUT);
		if (p[2].revents)
			run_output(r, &r->err, FRAME_STDERR);
		if (p[3].revents && r->in >= 0)
			run_input(r);
		if (p[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
			hung = true;
			if (r->pidfd >= 0)
				run_hangup(r);
		} else if (p[0].revents && r->conn >= 0) {
			run_receive(r);
		}
		if (p[4].revents)
			run_exited(r);
	}
}

/* Reads the token and the command.  Returns the words (folder, command, arguments) or NULL. */
static char **read_words(int conn)
{
	char given[TOKEN_LEN], *text, **words;
	struct frame f;
	size_t n = 0;

	if (!read_all(conn, given, sizeof(given)) || memcmp(given, token, sizeof(given)) != 0)
		return NULL;
	if (!read_all(conn, &f, sizeof(f)) || f.type != FRAME_RUN || f.len == 0 || f.len > RUN_MAX)
		return NULL;
	text = malloc(f.len);
	words = calloc(f.len + 1, sizeof(*words));
	if (!text || !words || !read_all(conn, text, f.len) || text[f.len - 1] != '\0')
		return NULL;
	for (char *p = text; p < text + f.len; p += strlen(p) + 1)
		words[n++] = p;
	return n >= 2 ? words : NULL;
}

static int serve(int conn)
{
	static struct run r;
	struct timeval limit = { .tv_sec = 10 };
	sigset_t none;
	char **words;
	int on = 1;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	words = read_words(conn);
	if (!words)
		return 1;
	limit.tv_sec = 0;
	setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	r = (struct run){ .conn = conn, .in = -1, .out = -1, .err = -1, .pidfd = -1,
			  .status = 128 + SIGKILL };
	if (!run_start(&r, words))
		return 1;
	run_pump(&r);
	run_clean(&r);
	run_send(&r, FRAME_EXIT, &r.status, sizeof(r.status));
	return 0;
}

static int listen_on(int port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 128) < 0)
		return -1;
	return fd;
}

static void raise_limits(void)
{
	static const struct { int what; rlim_t to; } limits[] = {
		{ RLIMIT_NOFILE, 1 << 20 },
		{ RLIMIT_NPROC, RLIM_INFINITY },
		{ RLIMIT_MEMLOCK, RLIM_INFINITY },
		{ RLIMIT_SIGPENDING, RLIM_INFINITY },
		{ RLIMIT_MSGQUEUE, RLIM_INFINITY },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit l = { limits[i].to, limits[i].to };

		setrlimit(limits[i].what, &l);
	}
}

static void set_environment(void)
{
	clearenv();
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/root", 1);
	setenv("LANG", "C.UTF-8", 1);
	setenv("TESTBED", "1", 1);
}

static void power_off(const char *why)
{
	printf("testbed: power off: %s\n", why);
	sync();
	reboot(RB_POWER_OFF);
}

static pid_t runs[MAX_RUNS];		/* the connections' processes; 0 is free */
static unsigned n_runs;

static void reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		for (int i = 0; i < MAX_RUNS; i++) {
			if (runs[i] == pid) {
				runs[i] = 0;
				n_runs--;
			}
		}
	}
}

static void accept_run(int listener)
{
	int conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int i = 0;

	if (conn < 0)
		return;
	while (i < MAX_RUNS && runs[i])
		i++;
	if (i < MAX_RUNS) {
		runs[i] = fork();
		if (runs[i] == 0)
			_exit(serve(conn));
		if (runs[i] > 0)
			n_runs++;
		else
			runs[i] = 0;
	}
	close(conn);
}

/*
 * KVM patches kernel code when the first VM comes and the last one goes, and when the first or last local
 * APIC is switched off; the emulator now and then goes on with the code as it was, and this host dies.  One
 * idle VM, kept for ever, with a vCPU whose APIC is off in software, one whose APIC is off in hardware,
 * and another VM's vCPU without one, keeps all of these from changing.
 */
static void hold_kvm(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
	int bare = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
	struct kvm_sregs sregs;
	int off;

	if (vm < 0 || bare < 0 || ioctl(vm, KVM_CREATE_IRQCHIP, 0) < 0)
		return;
	(void)ioctl(bare, KVM_CREATE_VCPU, 0);
	(void)ioctl(vm, KVM_CREATE_VCPU, 0);
	off = ioctl(vm, KVM_CREATE_VCPU, 1);
	if (off >= 0 && ioctl(off, KVM_GET_SREGS, &sregs) == 0) {
		sregs.apic_base &= ~(1ULL << 11); /* APIC global enable */
		(void)ioctl(off, KVM_SET_SREGS, &sregs);
	}
}

int main(int argc, char **argv)
{
	struct signalfd_siginfo info;
	sigset_t set;
	int listener, signals, idle, fd;

	if (argc != 4)
		return 1;
	fd = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !read_all(fd, token, sizeof(token)))
		power_off("no token");
	close(fd);
	idle = atoi(argv[3]) * 1000;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	listener = listen_on(atoi(argv[1]));
	if (listener < 0 || signals < 0)
		power_off("cannot listen");
	raise_limits();
	set_environment();
	hold_kvm();
	printf("testbed: ready\n");
	for (;;) {
		struct pollfd p[] = {
			{ .fd = listener, .events = POLLIN },
			{ .fd = signals, .events = POLLIN },
		};
		int n = poll(p, 2, n_runs ? -1 : idle);

		if (n == 0)
			power_off("idle");
		if (n > 0 && p[1].revents && read_all(signals, &info, sizeof(info))) {
			if (info.ssi_signo == SIGTERM)
				power_off("asked to");
			reap();
		}
		if (n > 0 && p[0].revents)
			accept_run(listener);
	}
}
