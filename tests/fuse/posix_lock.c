/* Advisory locks: fcntl (POSIX and OFD) and flock. */
#include "tests/fuse/posix.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

static int set_as(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	return fcntl(fd, cmd, &l);
}

static int set(int fd, short type, off_t start, off_t len)
{
	return set_as(fd, F_SETLK, type, start, len);
}

static int open_f(int flags)
{
	int fd = open("f", flags | O_CREAT, 0644);

	CHECK(fd >= 0);
	return fd;
}

/* Run fn(fd) in a child that has the file open by itself, and wait. */
static void in_child(void (*fn)(int fd))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fn(open_f(O_RDWR));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What another process finds locked, byte by byte: r, w or - for each of the first 40. */
static void note_locks(int fd)
{
	char map[41];

	for (int i = 0; i < 40; i++) {
		struct flock l = { .l_type = F_RDLCK, .l_start = i, .l_len = 1 };

		CHECK(fcntl(fd, F_GETLK, &l) == 0);
		map[i] = l.l_type == F_UNLCK ? '-' : 'w';
		l = (struct flock){ .l_type = F_WRLCK, .l_start = i, .l_len = 1 };
		CHECK(fcntl(fd, F_GETLK, &l) == 0);
		if (map[i] == '-' && l.l_type != F_UNLCK)
			map[i] = 'r';
		CHECK(l.l_type == F_UNLCK || l.l_pid == getppid());
	}
	map[40] = '\0';
	posix_note_text("%s\n", map);
}

static void posix_ranges(void)
{
	int fd = open_f(O_RDWR);

	DO(set(fd, F_WRLCK, 10, 10));
	in_child(note_locks);
	DO(set(fd, F_UNLCK, 13, 3)); /* split */
	in_child(note_locks);
	DO(set(fd, F_RDLCK, 11, 8)); /* over both, and between */
	in_child(note_locks);
	DO(set(fd, F_WRLCK, 5, 5)); /* beside one of its kind */
	in_child(note_locks);
	DO(set(fd, F_WRLCK, 0, 0)); /* all of it */
	in_child(note_locks);
	DO(set(fd, F_UNLCK, 0, 1));
	DO(set(fd, F_UNLCK, 20, 0));
	in_child(note_locks);
	DO(set(fd, F_UNLCK, 0, 0));
	in_child(note_locks);
}

static void posix_relative(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -5, .l_len = 10 };
	int fd = open_f(O_RDWR);

	CHECK(ftruncate(fd, 20) == 0);
	DO(fcntl(fd, F_SETLK, &l));
	l = (struct flock){ .l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 10, .l_len = -4 };
	DO(fcntl(fd, F_SETLK, &l));
	in_child(note_locks);
}

static void try_conflicts(int fd)
{
	DO(set(fd, F_RDLCK, 0, 10));
	DO(set(fd, F_WRLCK, 0, 1));
	DO(set(fd, F_RDLCK, 10, 1));
	DO(set(fd, F_WRLCK, 19, 2));
	DO(set(fd, F_WRLCK, 20, 5));
	DO(set(fd, F_RDLCK, 0, 0));
	DO(set(fd, F_UNLCK, 0, 0));
}

static void posix_conflicts(void)
{
	int fd = open_f(O_RDWR);

	DO(set(fd, F_RDLCK, 0, 10));
	DO(set(fd, F_WRLCK, 10, 10));
	in_child(try_conflicts);
	DO(set(fd, F_WRLCK, 0, 10));
	in_child(try_conflicts);
}

static void posix_errors(void)
{
	int r = open_f(O_RDONLY), w = open_f(O_WRONLY);

	DO(set(r, F_WRLCK, 0, 1));
	DO(set(w, F_RDLCK, 0, 1));
	DO(set(r, F_RDLCK, 0, 1));
	DO(set(w, F_WRLCK, 0, 1));
	DO(set(r, F_RDLCK, -1, 1));
	DO(set(r, F_RDLCK, 5, -6));
	DO(set(r, 17, 0, 1));
	DO(set(r, F_RDLCK, INT64_MAX, 2));
	DO(set(r, F_RDLCK, INT64_MAX, 1));
}

/* A child has no locks of its parent, and its close ends none of them. */
static void child_after_fork(int fd)
{
	note_locks(fd);
	DO(set(fd, F_WRLCK, 0, 5));
	DO(set(fd, F_WRLCK, 20, 5));
	DO(close(fd));
}

static void posix_fork_and_close(void)
{
	int fd = open_f(O_RDWR), other = open_f(O_RDONLY), status;
	pid_t pid;

	DO(set(fd, F_WRLCK, 0, 10));
	pid = fork();
	if (pid == 0) {
		child_after_fork(fd);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	in_child(note_locks);
	/* Of a process all locks on a file go with any of its descriptors. */
	DO(close(other));
	in_child(note_locks);
	DO(set(fd, F_WRLCK, 0, 10));
	DO(close(dup(fd)));
	in_child(note_locks);
}

static void lock_and_die(int fd)
{
	DO(set(fd, F_WRLCK, 0, 0));
	DO(flock(fd, LOCK_EX | LOCK_NB));
}

static void locks_end_with_the_process(void)
{
	int fd;

	in_child(lock_and_die);
	fd = open_f(O_RDWR);
	DO(set(fd, F_WRLCK, 0, 0));
	/* RELEASE is not waited for by close(). */
	for (int i = 0; i < 100 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
		usleep(10000);
	DO(flock(fd, LOCK_EX | LOCK_NB));
}

static void names_gone(void)
{
	int fd = open_f(O_RDWR), again;

	DO(set(fd, F_WRLCK, 0, 10));
	DO(flock(fd, LOCK_EX | LOCK_NB));
	DO(rename("f", "g"));
	again = open("g", O_RDWR);
	DO(flock(again, LOCK_SH | LOCK_NB));
	DO(unlink("g"));
	DO(flock(again, LOCK_SH | LOCK_NB));
	DO(flock(fd, LOCK_UN));
	DO(flock(again, LOCK_SH | LOCK_NB));
	/* A new file of the name is another. */
	again = open_f(O_RDWR);
	DO(flock(again, LOCK_EX | LOCK_NB));
	in_child(try_conflicts);
}

/* --- OFD -------------------------------------------------------------------------------------- */

static int ofd(int fd, short type, off_t start, off_t len)
{
	return set_as(fd, F_OFD_SETLK, type, start, len);
}

static void ofd_locks(void)
{
	int a = open_f(O_RDWR), b = open_f(O_RDWR), c = dup(a);

	DO(ofd(a, F_WRLCK, 0, 10));
	DO(ofd(b, F_RDLCK, 9, 10));
	DO(ofd(b, F_RDLCK, 10, 10));
	DO(ofd(c, F_WRLCK, 0, 5));
	DO(set(b, F_WRLCK, 0, 1)); /* POSIX locks meet them */
	DO(close(b));
	DO(ofd(a, F_WRLCK, 0, 0));
	DO(close(a));
	b = open_f(O_RDWR);
	DO(ofd(b, F_RDLCK, 0, 1));
	DO(close(c));
	/* RELEASE is not waited for by close(). */
	for (int i = 0; i < 100 && ofd(b, F_WRLCK, 0, 0) < 0; i++)
		usleep(10000);
	DO(ofd(b, F_WRLCK, 0, 0));
}

/* --- flock ------------------------------------------------------------------------------------ */

static void flock_kinds(void)
{
	int a = open_f(O_RDONLY), b = open_f(O_WRONLY), c = dup(a);

	DO(flock(a, LOCK_SH));
	DO(flock(b, LOCK_SH | LOCK_NB));
	DO(flock(a, LOCK_EX | LOCK_NB));
	DO(flock(b, LOCK_UN));
	DO(flock(a, LOCK_EX | LOCK_NB));
	DO(flock(b, LOCK_SH | LOCK_NB));
	DO(flock(c, LOCK_SH | LOCK_NB)); /* the same open file */
	DO(flock(b, LOCK_SH | LOCK_NB));
	DO(flock(b, LOCK_UN));
	DO(close(c));
	DO(flock(b, LOCK_EX | LOCK_NB));
	DO(flock(a, LOCK_UN));
	DO(flock(b, LOCK_EX | LOCK_NB));
	DO(flock(a, LOCK_MAND | LOCK_NB));
	DO(flock(a, 0));
	DO(set(b, F_WRLCK, 0, 0)); /* not of one kind */
}

static void try_flock(int fd)
{
	DO(flock(fd, LOCK_EX | LOCK_NB));
}

static void flock_fork(void)
{
	int fd = open_f(O_RDWR), status;
	pid_t pid;

	DO(flock(fd, LOCK_EX));
	pid = fork();
	if (pid == 0) {
		try_flock(open_f(O_RDONLY));
		DO(flock(fd, LOCK_SH | LOCK_NB)); /* the parent's open file: its lock */
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	in_child(try_flock);
	DO(flock(fd, LOCK_UN));
	in_child(try_flock);
}

static void flock_directory(void)
{
	int a, b;

	CHECK(mkdir("d", 0755) == 0);
	a = open("d", O_RDONLY | O_DIRECTORY);
	b = open("d", O_RDONLY | O_DIRECTORY);
	DO(flock(a, LOCK_EX | LOCK_NB));
	DO(flock(b, LOCK_SH | LOCK_NB));
	DO(close(a));
	DO(flock(b, LOCK_SH | LOCK_NB));
}

/* --- waiting ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t n_signals;

static void count_signal(int sig)
{
	n_signals++;
}

/* SIGALRM after a while, once; restart tells what the system call does then. */
static void alarm_in(long ms, int flags)
{
	struct sigaction sa = { .sa_handler = count_signal, .sa_flags = flags };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec at = { .it_value = { ms / 1000, ms % 1000 * 1000000 } };
	timer_t timer;

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	CHECK(timer_settime(timer, 0, &at, NULL) == 0);
}

/* A child that holds both kinds of lock for a while.  It has them on return. */
static pid_t holder(unsigned ms)
{
	int ready[2];
	pid_t pid;
	char c;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		int fd = open_f(O_RDWR);

		CHECK(set(fd, F_WRLCK, 10, 10) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
		CHECK(write(ready[1], "x", 1) == 1);
		usleep(ms * 1000);
		_exit(0);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void waits(void)
{
	int fd = open_f(O_RDWR);
	pid_t pid = holder(400);

	DO(set_as(fd, F_SETLKW, F_WRLCK, 0, 10));
	DO(set(fd, F_RDLCK, 15, 1));
	DO(set_as(fd, F_SETLKW, F_RDLCK, 15, 1));
	DO(flock(fd, LOCK_SH));
	wait_for(pid);
	in_child(note_locks);
}

static void waits_interrupted(void)
{
	int fd = open_f(O_RDWR);
	pid_t pid = holder(2500);

	alarm_in(200, 0);
	DO(set_as(fd, F_SETLKW, F_WRLCK, 15, 1));
	CHECK(n_signals == 1);
	alarm_in(200, 0);
	DO(flock(fd, LOCK_EX));
	CHECK(n_signals == 2);
	/* What was given up is not got later. */
	alarm_in(200, SA_RESTART);
	DO(set_as(fd, F_SETLKW, F_WRLCK, 18, 4));
	CHECK(n_signals == 3);
	wait_for(pid);
	in_child(note_locks);
	in_child(try_flock);
}

static void waits_killed(void)
{
	int fd = open_f(O_RDWR), status;
	pid_t pid = holder(2500), victim = fork();

	if (victim == 0) {
		(void)set_as(fd, F_SETLKW, F_WRLCK, 0, 0);
		_exit(0);
	}
	usleep(200000);
	CHECK(kill(victim, SIGKILL) == 0);
	CHECK(waitpid(victim, &status, 0) == victim);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(waitpid(pid, &status, WNOHANG) == 0); /* long before the lock was free */
	wait_for(pid);
	in_child(note_locks);
}

/* Each takes the lock, changes what the file says, and gives it back. */
static void counted(void)
{
	enum { CHILDREN = 4, ROUNDS = 100 };
	int fd = open_f(O_RDWR), n = 0, status;

	CHECK(pwrite(fd, &n, sizeof(n), 0) == sizeof(n));
	for (int i = 0; i < CHILDREN; i++) {
		if (fork() != 0)
			continue;
		fd = open_f(O_RDWR);
		for (int k = 0; k < ROUNDS; k++) {
			bool by_flock = i % 2;

			/* Both, so that each kind is waited for. */
			CHECK(by_flock || set_as(fd, F_SETLKW, F_WRLCK, 0, 4) == 0);
			CHECK(flock(fd, LOCK_EX) == 0);
			CHECK(pread(fd, &n, sizeof(n), 0) == sizeof(n));
			n++;
			CHECK(pwrite(fd, &n, sizeof(n), 0) == sizeof(n));
			CHECK(flock(fd, LOCK_UN) == 0);
			CHECK(by_flock || set(fd, F_UNLCK, 0, 4) == 0);
		}
		_exit(0);
	}
	for (int i = 0; i < CHILDREN; i++)
		CHECK(wait(&status) > 0 && status == 0);
	CHECK(pread(fd, &n, sizeof(n), 0) == sizeof(n));
	posix_note_text("%d\n", n);
}

const struct posix_case posix_lock_cases[] = {
	{ "lock-ranges", posix_ranges },
	{ "lock-relative", posix_relative },
	{ "lock-conflicts", posix_conflicts },
	{ "lock-errors", posix_errors },
	{ "lock-fork-close", posix_fork_and_close },
	{ "lock-process-ends", locks_end_with_the_process },
	{ "lock-names-gone", names_gone },
	{ "lock-ofd", ofd_locks },
	{ "lock-flock", flock_kinds },
	{ "lock-flock-fork", flock_fork },
	{ "lock-flock-directory", flock_directory },
	{ "lock-waits", waits },
	{ "lock-interrupted", waits_interrupted },
	{ "lock-killed", waits_killed },
	{ "lock-counted", counted },
	{ 0 },
};
