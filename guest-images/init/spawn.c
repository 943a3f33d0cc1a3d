/*
 * Starting the command: three pipes or a terminal, a session of its own, identity, folder,
 * environment, and execve with the search and the errors a shell's user knows.
 *
 * The child tells the parent what failed through a pipe that execve closes: end of file there means
 * the command runs.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_LEN     (1 << 20) /* what a pipe may be enlarged to by default */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The child's side: what becomes descriptors 0, 1 and 2. */
struct child_fds {
	int fd[3];
	int report; /* struct failure */
};

struct failure {
	int err;
	bool cwd; /* not of execve: the folder is not there */
};

static int open_pipes(struct agent *a, struct command *c, struct child_fds *child)
{
	int fd[3][2];

	for (int i = 0; i < 3; i++) {
		if (pipe2(fd[i], O_CLOEXEC))
			return agent_fail(a, errno, "pipe");
		fcntl(fd[i][0], F_SETPIPE_SZ, PIPE_LEN); /* or what there is */
		child->fd[i] = fd[i][i == 0 ? 0 : 1];
		/* Programs open /dev/stdout again; that asks for permission. */
		(void)!fchown(child->fd[i], a->spec.uid, a->spec.gid);
	}
	c->in = fd[0][1];
	c->out = fd[1][0];
	c->err = fd[2][0];
	return 0;
}

static int open_terminal(struct agent *a, struct command *c, struct child_fds *child)
{
	const struct winsize ws = { .ws_row = a->spec.rows, .ws_col = a->spec.cols };
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	char path[32];
	int slave, number, unlock = 0;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) || ioctl(master, TIOCGPTN, &number))
		return agent_fail(a, errno, "terminal: /dev/ptmx");
	snprintf(path, sizeof(path), "/dev/pts/%d", number);
	slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return agent_fail(a, errno, "terminal: %s", path);
	ioctl(master, TIOCSWINSZ, &ws);
	(void)!fchown(slave, a->spec.uid, -1);
	c->in = master;
	c->out = master;
	c->err = -1;
	child->fd[0] = child->fd[1] = child->fd[2] = slave;
	return 0;
}

/* As execvp does for a file the kernel does not know: it is a shell script. */
static int exec_script(char *path, char **arg)
{
	static char shell[] = "/bin/sh";
	unsigned n = 0;
	char **v;

	while (arg[n])
		n++;
	v = calloc(n + 2, sizeof(*v));
	if (!v)
		return ENOMEM;
	v[0] = shell;
	v[1] = path;
	for (unsigned i = 1; i < n; i++)
		v[i + 1] = arg[i];
	execve(v[0], v, environ);
	free(v);
	return ENOEXEC;
}

static int exec_file(char *path, char **arg)
{
	execve(path, arg, environ);
	return errno == ENOEXEC ? exec_script(path, arg) : errno;
}

/* Errors that mean "look in the next folder"; of these EACCES is worth remembering. */
static bool exec_goes_on(int err)
{
	return err == ENOENT || err == ENOTDIR || err == EACCES || err == ENODEV || err == ESTALE ||
	       err == ETIMEDOUT;
}

/* Returns the errno that says best why nothing was executed. */
static int exec_search(char **arg)
{
	const char *dir = getenv("PATH"), *end;
	static char path[PATH_MAX]; /* one thread; too large for a stack */
	int found = ENOENT;

	if (strchr(arg[0], '/'))
		return exec_file(arg[0], arg);
	if (arg[0][0] == '\0')
		return ENOENT;
	for (dir = dir ? dir : DEFAULT_PATH; dir; dir = *end ? end + 1 : NULL) {
		int len, err;

		end = strchrnul(dir, ':');
		len = end - dir; /* none: the current folder */
		if (snprintf(path, sizeof(path), "%.*s%s%s", len, dir, len ? "/" : "", arg[0]) >=
		    (int)sizeof(path))
			continue;
		err = exec_file(path, arg);
		if (!exec_goes_on(err))
			return err;
		if (err == EACCES)
			found = EACCES;
	}
	return found;
}

/* Ignored and blocked signals outlive execve: ours are not the command's. */
static void signals_default(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int child_identity(const struct spec *s)
{
	if (setgroups(0, NULL) || setgid(s->gid) || setuid(s->uid))
		return errno;
	return 0;
}

/* 0, or an errno. */
static int child_folder(const struct spec *s)
{
	if (!s->cwd || chdir(s->cwd) == 0)
		return 0;
	if (!s->cwd_try)
		return errno;
	dprintf(STDERR_FILENO, "heddle: warning: %s: %s in the guest; the command runs in /\n", s->cwd,
		strerror(errno));
	return chdir("/") ? errno : 0;
}

static void child_main(const struct spec *s, const struct child_fds *child)
{
	struct failure f = { 0 };

	setsid();
	if (s->tty)
		ioctl(child->fd[0], TIOCSCTTY, 0);
	for (int i = 0; i < 3; i++)
		dup2(child->fd[i], i);
	signals_default();
	f.err = child_identity(s);
	if (!f.err) {
		f.err = child_folder(s);
		f.cwd = f.err != 0;
	}
	if (!f.err) {
		environ = s->env;
		f.err = exec_search(s->arg);
	}
	(void)!write(child->report, &f, sizeof(f));
	_exit(127);
}

static void cannot_exec(struct agent *a, int err)
{
	a->status = (struct channel_status){ .kind = CHANNEL_CANNOT_EXEC, .code = err };
}

/* False: it could not, and is gone and reaped. */
static bool child_runs(struct agent *a, int fd, pid_t pid)
{
	struct failure f;
	ssize_t n;

	do
		n = read(fd, &f, sizeof(f));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(f))
		return true;
	waitpid(pid, NULL, 0);
	if (f.cwd)
		agent_fail(a, f.err, "--cwd %s", a->spec.cwd);
	else
		cannot_exec(a, f.err);
	return false;
}

int command_start(struct agent *a, struct command *c)
{
	struct child_fds child = { .fd = { -1, -1, -1 } };
	int report[2], err;

	*c = (struct command){ .tty = a->spec.tty };
	err = c->tty ? open_terminal(a, c, &child) : open_pipes(a, c, &child);
	if (err)
		return err;
	if (pipe2(report, O_CLOEXEC))
		return agent_fail(a, errno, "pipe");
	child.report = report[1];
	c->pid = fork();
	if (c->pid < 0)
		return agent_fail(a, errno, "fork");
	if (c->pid == 0)
		child_main(&a->spec, &child);
	close(report[1]);
	for (int i = 0; i < (c->tty ? 1 : 3); i++)
		close(child.fd[i]);
	if (!child_runs(a, report[0], c->pid))
		c->pid = 0;
	close(report[0]);
	return 0;
}

/* A real init gets the console, like from the kernel, and finds the file systems mounted. */
void command_become_init(struct agent *a)
{
	unsigned n = 0;
	char **v;
	int fd;

	while (a->spec.arg[n])
		n++;
	v = calloc(n + 2, sizeof(*v));
	fd = open("/dev/console", O_RDWR | O_NOCTTY);
	if (fd >= 0) {
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		close(fd);
	}
	if (v) {
		v[0] = a->spec.init;
		memcpy(v + 1, a->spec.arg, n * sizeof(*v));
		signals_default();
		execve(v[0], v, a->spec.env);
	}
	cannot_exec(a, errno);
	free(v);
}
