/* Locks on the host (locks=host): two sessions on one folder, and a process of the host. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "devices/fuse/locks.h"
#include "devices/fuse/server.h"
#include "tests/unit/fuse_client.h"

static struct client a, b; /* b's session has the share of a */

static void start_both(const struct fuse_opts *as)
{
	struct fuse_opts o = *as;

	o.locks = FUSE_LOCKS_HOST;
	client_start(&a, &o);
	memset(&b, 0, offsetof(struct client, in));
	memcpy(b.share, a.share, sizeof(b.share));
	b.out_room = sizeof(b.out);
	o.path = a.share;
	o.workers = MAX(o.workers, 1);
	ck_assert_int_eq(fuse_session_create(&o, &b.s), 0);
	b.w = fuse_session_worker(b.s, 0);
	ck_assert_int_eq(fuse_thread_init(b.s), 0);
	ck_assert_int_eq(client_init_as(&b, 45, ~(uint64_t)0), 0);
	host_write(&a, "f", "content", 7);
}

static void setup(void)
{
	struct fuse_opts o = { .workers = 8 };

	start_both(&o);
}

static void teardown(void)
{
	fuse_session_destroy(b.s);
	client_stop(&a);
}

/* An open file of a client. */
struct file {
	struct client *c;
	uint64_t node, fh;
};

static struct file open_as(struct client *c, const char *name, uint32_t flags)
{
	struct file f = { .c = c, .node = lookup(c, FUSE_ROOT_ID, name, NULL) };

	ck_assert_int_eq(open_node(c, FUSE_OPEN, f.node, flags, &f.fh), 0);
	return f;
}

static ssize_t send_lk(const struct file *f, uint32_t opcode, uint64_t owner, short type,
		       uint64_t start, uint64_t end, uint32_t flags)
{
	struct fuse_lk_in in = {
		.fh = f->fh,
		.owner = owner,
		.lk = { start, end, (uint32_t)type, type == F_UNLCK ? 0 : (uint32_t)owner + 1000 },
		.lk_flags = flags,
	};
	struct fuse_in_header *h = begin(f->c, opcode, f->node);

	put(f->c, &in, sizeof(in));
	h->len = (uint32_t)f->c->in_len;
	return send_raw(f->c);
}

static int lk(const struct file *f, uint32_t opcode, uint64_t owner, short type, uint64_t start,
	      uint64_t end, uint32_t flags)
{
	ck_assert_int_ge(send_lk(f, opcode, owner, type, start, end, flags),
			 (ssize_t)sizeof(struct fuse_out_header));
	return reply_head(f->c)->error;
}

static int posix(const struct file *f, uint64_t owner, short type, uint64_t start, uint64_t end)
{
	return lk(f, FUSE_SETLK, owner, type, start, end, 0);
}

static int bsd(const struct file *f, uint64_t owner, short type)
{
	return lk(f, FUSE_SETLK, owner, type, 0, INT64_MAX, FUSE_LK_FLOCK);
}

static const struct fuse_file_lock *ask(const struct file *f, uint64_t owner, short type,
					uint64_t start, uint64_t end)
{
	ck_assert_int_eq(lk(f, FUSE_GETLK, owner, type, start, end, 0), 0);
	ck_assert_uint_eq(body_len(f->c), sizeof(struct fuse_lk_out));
	return &((struct fuse_lk_out *)body(f->c))->lk;
}

static void flush(const struct file *f, uint64_t owner)
{
	struct fuse_flush_in in = { .fh = f->fh, .lock_owner = owner };

	ck_assert_int_eq(CALL(f->c, FUSE_FLUSH, f->node, in, NULL), 0);
}

static void release_as(const struct file *f, uint64_t owner, uint32_t flags)
{
	struct fuse_release_in in = { .fh = f->fh, .lock_owner = owner, .release_flags = flags };

	ck_assert_int_eq(CALL(f->c, FUSE_RELEASE, f->node, in, NULL), 0);
}

static uint32_t entries(const struct client *c)
{
	return atomic_load(&c->s->locks->n_entries);
}

/* --- exclusion -------------------------------------------------------------------------------- */

START_TEST(sessions_exclude_each_other)
{
	struct file fa = open_as(&a, "f", O_RDWR), fb = open_as(&b, "f", O_RDWR);

	ck_assert_int_eq(posix(&fa, 1, F_WRLCK, 10, 19), 0);
	ck_assert_int_eq(posix(&fb, 1, F_RDLCK, 19, 30), -EAGAIN); /* an owner is its session's */
	ck_assert_int_eq(posix(&fb, 1, F_RDLCK, 20, 30), 0);
	ck_assert_int_eq(posix(&fa, 1, F_RDLCK, 25, 25), 0);
	ck_assert_int_eq(posix(&fa, 1, F_WRLCK, 25, 25), -EAGAIN);
	ck_assert_int_eq(bsd(&fa, 7, F_WRLCK), 0); /* another kind */
	ck_assert_int_eq(bsd(&fb, 7, F_RDLCK), -EAGAIN);
	ck_assert_int_eq(bsd(&fa, 7, F_RDLCK), 0);
	ck_assert_int_eq(bsd(&fb, 7, F_RDLCK), 0);
	ck_assert_int_eq(bsd(&fb, 7, F_WRLCK), -EAGAIN);
	ck_assert_int_eq(bsd(&fa, 7, F_UNLCK), 0);
	ck_assert_int_eq(bsd(&fb, 7, F_WRLCK), 0);
}
END_TEST

START_TEST(owners_of_a_session_exclude_each_other)
{
	struct file f = open_as(&a, "f", O_RDWR), g = open_as(&a, "f", O_RDWR);

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, INT64_MAX), 0);
	ck_assert_int_eq(posix(&g, 2, F_RDLCK, 5, 5), -EAGAIN);
	/* One process with the file open twice has one set of locks. */
	ck_assert_int_eq(posix(&g, 1, F_WRLCK, 5, 5), 0);
	ck_assert_int_eq(posix(&g, 1, F_UNLCK, 5, 5), 0);
	ck_assert_int_eq(posix(&g, 2, F_RDLCK, 5, 5), 0);
	ck_assert_int_eq(posix(&g, 2, F_RDLCK, 4, 5), -EAGAIN);
	ck_assert_int_eq(posix(&f, 2, F_UNLCK, 0, UINT64_MAX), 0);
	ck_assert_int_eq(posix(&f, 1, F_UNLCK, 0, INT64_MAX), 0);
	ck_assert_int_eq(posix(&f, 3, F_UNLCK, 0, INT64_MAX), 0); /* who never had one */
	ck_assert_uint_eq(entries(&a), 0);
}
END_TEST

/* Exit code of a process of the host that tries for a lock. */
static int host_tries(short type, off_t start, off_t len)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct flock l = { .l_type = type, .l_start = start, .l_len = len };
		int fd = open(host(&a, "f"), O_RDWR);

		if (len < 0)
			_exit(flock(fd, (type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB) ? errno
											 : 0);
		_exit(fcntl(fd, F_SETLK, &l) ? errno : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(processes_of_the_host_are_excluded)
{
	struct file f = open_as(&a, "f", O_RDWR);

	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 10, 19), 0);
	ck_assert_int_eq(host_tries(F_WRLCK, 15, 1), EAGAIN);
	ck_assert_int_eq(host_tries(F_RDLCK, 15, 1), 0);
	ck_assert_int_eq(host_tries(F_WRLCK, 20, 0), 0);
	ck_assert_int_eq(host_tries(F_WRLCK, 0, -1), 0);
	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), 0);
	ck_assert_int_eq(host_tries(F_RDLCK, 0, -1), EAGAIN);
	ck_assert_int_eq(bsd(&f, 1, F_UNLCK), 0);
	ck_assert_int_eq(host_tries(F_WRLCK, 0, -1), 0);
}
END_TEST

/* A process of the host that holds locks until told to go. */
static pid_t host_holds(int go[2])
{
	struct flock l = { .l_type = F_WRLCK, .l_start = 10, .l_len = 10 };
	int ready[2];
	pid_t pid;
	char ch;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		int fd = open(host(&a, "f"), O_RDWR);

		close(go[1]);
		if (fcntl(fd, F_SETLK, &l) == 0 && flock(fd, LOCK_SH) == 0)
			(void)!write(ready[1], "x", 1);
		_exit((int)read(go[0], &ch, 1));
	}
	ck_assert_int_eq(read(ready[0], &ch, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

START_TEST(processes_of_the_host_exclude)
{
	struct file f = open_as(&a, "f", O_RDWR);
	int go[2], status;
	pid_t pid = host_holds(go);

	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 0, 10), -EAGAIN);
	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 0, 9), 0);
	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), -EAGAIN);
	ck_assert_int_eq(bsd(&f, 1, F_RDLCK), 0);
	/* Pids of the host say nothing to the guest. */
	ck_assert_uint_eq(ask(&f, 2, F_RDLCK, 0, INT64_MAX)->type, F_WRLCK);
	ck_assert_uint_eq(ask(&f, 2, F_RDLCK, 0, INT64_MAX)->pid, 0);
	close(go[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 0, 10), 0);
}
END_TEST

START_TEST(getlk)
{
	struct file f = open_as(&a, "f", O_RDWR), other = open_as(&b, "f", O_RDWR);
	const struct fuse_file_lock *l;

	ck_assert_uint_eq(ask(&f, 1, F_WRLCK, 0, INT64_MAX)->type, F_UNLCK);
	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 10, 19), 0);
	ck_assert_int_eq(posix(&f, 2, F_RDLCK, 15, INT64_MAX), 0);
	ck_assert_uint_eq(ask(&f, 1, F_WRLCK, 0, 14)->type, F_UNLCK); /* one's own */
	ck_assert_uint_eq(ask(&f, 3, F_RDLCK, 0, INT64_MAX)->type, F_UNLCK);
	l = ask(&f, 1, F_WRLCK, 0, INT64_MAX);
	ck_assert_uint_eq(l->type, F_RDLCK);
	ck_assert_uint_eq(l->start, 15);
	ck_assert_uint_eq(l->end, INT64_MAX);
	ck_assert_uint_eq(l->pid, 1002);
	l = ask(&f, 2, F_WRLCK, 0, 12);
	ck_assert_uint_eq(l->start, 10);
	ck_assert_uint_eq(l->end, 19);
	ck_assert_uint_eq(l->pid, 1001);
	l = ask(&other, 1, F_WRLCK, 12, 12);
	ck_assert_uint_eq(l->type, F_RDLCK);
	ck_assert_uint_eq(l->pid, 0);
	ck_assert_int_eq(posix(&f, 1, F_UNLCK, 0, 10), 0);
	ck_assert_uint_eq(ask(&f, 2, F_WRLCK, 0, 12)->pid, 1001);
	/* Asking leaves nothing behind. */
	ck_assert_uint_eq(entries(&b), 0);
	ck_assert_uint_eq(entries(&a), 2);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------- */

START_TEST(close_ends_locks)
{
	struct file f = open_as(&a, "f", O_RDWR), g = open_as(&a, "f", O_RDWR);
	struct file other = open_as(&b, "f", O_RDWR);
	unsigned before = count_fds();

	/* FLUSH: POSIX locks of the process that closes, by whatever descriptor. */
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), 0);
	ck_assert_int_eq(posix(&f, 2, F_WRLCK, 10, 19), 0);
	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), 0);
	ck_assert_uint_eq(count_fds(), before + 3);
	flush(&g, 1);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 0, 9), 0);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 10, 10), -EAGAIN);
	ck_assert_int_eq(bsd(&other, 1, F_WRLCK), -EAGAIN);
	/* RELEASE: flock, and what has no other end. */
	release_as(&f, 1, FUSE_RELEASE_FLOCK_UNLOCK);
	ck_assert_int_eq(bsd(&other, 1, F_WRLCK), 0);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 10, 19), 0);
	ck_assert_uint_eq(entries(&a), 0);
	/* Another handle's end is no end of these. */
	ck_assert_int_eq(posix(&g, 1, F_WRLCK, 30, 39), 0);
	f = open_as(&a, "f", O_RDWR);
	release_as(&f, 0, 0);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 30, 30), -EAGAIN);
}
END_TEST

START_TEST(forget_and_reset_end_locks)
{
	struct file f = open_as(&a, "f", O_RDWR), other = open_as(&b, "f", O_RDWR);
	unsigned before;

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), 0);
	forget(&a, f.node, 1);
	ck_assert_uint_eq(entries(&a), 0);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 0, 9), 0);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 20, 29), -ESTALE);
	fuse_session_reset(b.s);
	ck_assert_uint_eq(entries(&b), 0);
	before = count_fds();
	f = open_as(&a, "f", O_RDWR);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), 0);
	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), 0);
	ck_assert_int_eq(client_init_as(&a, 45, ~(uint64_t)0), 0);
	ck_assert_uint_le(count_fds(), before);
	ck_assert_int_eq(host_tries(F_WRLCK, 0, 0), 0);
	ck_assert_int_eq(host_tries(F_WRLCK, 0, -1), 0);
}
END_TEST

/* Failing leaves no descriptor. */
START_TEST(no_lock_no_entry)
{
	struct file f = open_as(&a, "f", O_RDWR), other = open_as(&b, "f", O_RDWR);
	unsigned before;

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), 0);
	before = count_fds();
	for (uint64_t owner = 1; owner < 100; owner++)
		ck_assert_int_eq(posix(&other, owner, F_RDLCK, 0, 0), -EAGAIN);
	ck_assert_uint_eq(entries(&b), 0);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

/* --- waiting ---------------------------------------------------------------------------------- */

START_TEST(waiting_is_the_callers)
{
	struct file f = open_as(&a, "f", O_RDWR), other = open_as(&b, "f", O_RDWR);

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), 0);
	ck_assert_int_eq(bsd(&f, 2, F_WRLCK), 0);
	b.w->may_wait = false;
	ck_assert_int_eq(send_lk(&other, FUSE_SETLKW, 1, F_WRLCK, 5, 5, 0), FUSE_SLOW);
	b.w->may_wait = true;
	ck_assert_int_eq(send_lk(&other, FUSE_SETLKW, 1, F_WRLCK, 5, 5, 0), FUSE_AGAIN);
	ck_assert_int_eq(send_lk(&other, FUSE_SETLKW, 1, F_WRLCK, 5, 5, FUSE_LK_FLOCK), FUSE_AGAIN);
	/* Who does not wait is answered. */
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 5, 5), -EAGAIN);
	ck_assert_int_eq(posix(&f, 1, F_UNLCK, 0, 9), 0);
	ck_assert_int_eq(bsd(&f, 2, F_UNLCK), 0);
	ck_assert_int_eq(lk(&other, FUSE_SETLKW, 1, F_WRLCK, 5, 5, 0), 0);
	ck_assert_int_eq(lk(&other, FUSE_SETLKW, 1, F_WRLCK, 5, 5, FUSE_LK_FLOCK), 0);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 5, 5), -EAGAIN);
}
END_TEST

/* --- bounds ----------------------------------------------------------------------------------- */

START_TEST(locks_are_bounded)
{
	struct file f = open_as(&a, "f", O_RDWR);
	uint64_t n = 0;
	int rc = 0;

	/* Many locks and unlocks, few at a time. */
	for (uint64_t i = 0; i < 20000; i++) {
		ck_assert_int_eq(posix(&f, 1, F_WRLCK, i, i), 0);
		ck_assert_int_eq(posix(&f, 1, F_UNLCK, i, i), 0);
	}
	ck_assert_uint_lt(atomic_load(&a.s->locks->bounds), 200);
	/* Ranges that do not meet. */
	for (; n < 10000 && rc == 0; n += rc == 0)
		rc = posix(&f, 1, F_WRLCK, 2 * n, 2 * n);
	ck_assert_int_eq(rc, -ENOLCK);
	ck_assert_uint_gt(n, 1000);
	ck_assert_uint_lt(n, 4000);
	ck_assert_int_eq(posix(&f, 1, F_UNLCK, 0, 2 * n - 100), 0);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 0), 0);
	flush(&f, 1);
	ck_assert_uint_eq(atomic_load(&a.s->locks->bounds), 0);
}
END_TEST

START_TEST(descriptors_for_locks_run_out)
{
	struct rlimit rl = { .rlim_cur = 128, .rlim_max = 128 };
	struct fuse_opts o = { 0 };
	uint64_t owner = 1;
	struct file f;
	int rc;

	teardown();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	start_both(&o);
	f = open_as(&a, "f", O_RDWR);
	while ((rc = posix(&f, owner, F_RDLCK, 0, 0)) == 0)
		owner++;
	ck_assert_int_eq(rc, -ENOLCK);
	ck_assert_uint_gt(owner, 50);
	flush(&f, 1);
	flush(&f, 2);
	ck_assert_int_eq(posix(&f, owner, F_RDLCK, 0, 0), 0);
	ck_assert_int_eq(client_init_as(&a, 45, ~(uint64_t)0), 0);
	ck_assert_int_eq(atomic_load(&a.s->fd_excess), 0);
}
END_TEST

/* --- requests that are wrong ------------------------------------------------------------------ */

START_TEST(forged_locks)
{
	struct file f = open_as(&a, "f", O_RDWR), dir = { &a, FUSE_ROOT_ID, 0 }, no_fh = f;

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 10, 9), -EINVAL);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, (uint64_t)1 << 63, UINT64_MAX), -EINVAL);
	ck_assert_int_eq(posix(&f, 1, 3, 0, 9), -EINVAL);
	ck_assert_int_eq(posix(&f, 1, -1, 0, 9), -EINVAL);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, INT64_MAX, INT64_MAX), 0);
	ck_assert_int_eq(lk(&f, FUSE_GETLK, 2, F_UNLCK, 0, 9, 0), -EINVAL);
	ck_assert_int_eq(lk(&f, FUSE_GETLK, 2, F_WRLCK, 0, 9, FUSE_LK_FLOCK), -EINVAL);
	no_fh.fh = 12345;
	ck_assert_int_eq(posix(&no_fh, 1, F_WRLCK, 0, 9), -EBADF);
	dir.fh = f.fh;
	ck_assert_int_eq(posix(&dir, 1, F_RDLCK, 0, 9), -EISDIR);
	ck_assert_int_eq(mkfifo(host(&a, "p"), 0600), 0);
	f.node = lookup(&a, FUSE_ROOT_ID, "p", NULL);
	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 0, 9), -ENXIO);
}
END_TEST

START_TEST(without_the_option_none_is_taken)
{
	struct fuse_opts o = { 0 };
	struct file f;
	uint64_t got;

	teardown();
	start_both(&o);
	fuse_session_destroy(a.s);
	o.path = a.share;
	o.workers = 1;
	ck_assert_int_eq(fuse_session_create(&o, &a.s), 0);
	a.w = fuse_session_worker(a.s, 0);
	ck_assert_int_eq(client_init_as(&a, 45, ~(uint64_t)0), 0);
	got = ((struct fuse_init_out *)body(&a))->flags;
	ck_assert_uint_eq(got & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS), 0);
	f = open_as(&a, "f", O_RDWR);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 9), -EOPNOTSUPP);
	ck_assert_int_eq(client_init_as(&b, 45, ~(uint64_t)0), 0);
	got = ((struct fuse_init_out *)body(&b))->flags;
	ck_assert_uint_eq(got & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS),
			  FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS);
}
END_TEST

START_TEST(readonly_shares_have_shared_locks)
{
	struct fuse_opts o = { .readonly = true };
	struct file f, other;

	teardown();
	start_both(&o);
	f = open_as(&a, "f", O_RDONLY);
	other = open_as(&b, "f", O_RDONLY);
	ck_assert_int_eq(posix(&f, 1, F_RDLCK, 0, 9), 0);
	ck_assert_int_eq(posix(&other, 1, F_WRLCK, 20, 29), -EBADF);
	ck_assert_int_eq(host_tries(F_WRLCK, 0, 1), EAGAIN);
	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), 0);
	ck_assert_int_eq(bsd(&other, 1, F_RDLCK), -EAGAIN);
}
END_TEST

/* flock opens for no more than the guest has: "flock $0" must leave a program a program. */
START_TEST(flock_does_not_open_for_writing)
{
	struct file f = open_as(&a, "f", O_RDONLY);
	int fd;

	ck_assert_int_eq(bsd(&f, 1, F_WRLCK), 0);
	fd = open(host(&a, "f"), O_RDONLY | O_CLOEXEC);
	/* A read lease is refused while somebody has the file open for writing. */
	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
	close(fd);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  4000

static struct {
	struct file f, g; /* of the thread's client */
	struct client c;
	unsigned index;
	pthread_t thread;
} thr[THREADS];
static atomic_int inside;

/* Each in turn the only one; owners are threads, so that entries come and go, or one for all. */
static void *exclude(void *arg)
{
	unsigned i = *(unsigned *)arg;
	uint64_t owner = 10 + i;

	ck_assert_int_eq(fuse_thread_init(thr[i].c.s), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		bool whole = round % 2;
		uint64_t end = whole ? INT64_MAX : 9;
		ssize_t n;

		do
			n = send_lk(&thr[i].f, FUSE_SETLKW, owner, F_WRLCK, 0, end, 0);
		while (n == FUSE_AGAIN);
		ck_assert_int_eq(reply_head(&thr[i].c)->error, 0);
		ck_assert_int_eq(atomic_fetch_add(&inside, 1), 0);
		ck_assert_int_eq(atomic_fetch_sub(&inside, 1), 1);
		if (round % 3 == 0)
			flush(&thr[i].f, owner);
		else
			ck_assert_int_eq(posix(&thr[i].f, owner, F_UNLCK, 0, end), 0);
		/* Threads of one process, which get into each other's way in the table only. */
		ck_assert_int_eq(lk(&thr[i].g, FUSE_SETLK, 1, F_RDLCK, 100 + i, 100 + i, 0), 0);
		if (round % 16 == i)
			flush(&thr[i].g, 1);
		else
			ck_assert_int_eq(posix(&thr[i].g, 1, F_UNLCK, 100 + i, 100 + i), 0);
	}
	return NULL;
}

START_TEST(locks_of_many_threads)
{
	host_write(&a, "g", "content", 7);
	for (unsigned i = 0; i < THREADS; i++) {
		struct client *from = i % 2 ? &a : &b;

		memset(&thr[i].c, 0, offsetof(struct client, in));
		thr[i].c.s = from->s;
		thr[i].c.w = fuse_session_worker(from->s, 1 + i / 2);
		thr[i].c.out_room = sizeof(thr[i].c.out);
		thr[i].index = i;
		thr[i].f = open_as(&thr[i].c, "f", O_RDWR);
		thr[i].g = open_as(&thr[i].c, "g", O_RDWR);
	}
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thr[i].thread, NULL, exclude, &thr[i].index), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thr[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		flush(&thr[i].g, 1);
	ck_assert_uint_eq(entries(&a) + entries(&b), 0);
	ck_assert_uint_eq(atomic_load(&a.s->locks->bounds), 0);
}
END_TEST

/* One lock with many holes is as many locks to the host. */
START_TEST(unlocks_that_split_are_bounded)
{
	struct file f = open_as(&a, "f", O_RDWR);
	int rc = 0, n = 0;

	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, INT64_MAX), 0);
	for (; rc == 0 && n < 4096; n++)
		rc = posix(&f, 1, F_UNLCK, (uint64_t)(100000 - 2 * n), (uint64_t)(100000 - 2 * n));
	ck_assert_int_eq(rc, -ENOLCK);
	/* All at once goes always. */
	ck_assert_int_eq(posix(&f, 1, F_UNLCK, 0, INT64_MAX), 0);
	ck_assert_int_eq(posix(&f, 1, F_WRLCK, 0, 10), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_locks");
	TCase *t = tcase_create("locks");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, unlocks_that_split_are_bounded);
	tcase_add_test(t, sessions_exclude_each_other);
	tcase_add_test(t, owners_of_a_session_exclude_each_other);
	tcase_add_test(t, processes_of_the_host_are_excluded);
	tcase_add_test(t, processes_of_the_host_exclude);
	tcase_add_test(t, getlk);
	tcase_add_test(t, close_ends_locks);
	tcase_add_test(t, forget_and_reset_end_locks);
	tcase_add_test(t, no_lock_no_entry);
	tcase_add_test(t, waiting_is_the_callers);
	tcase_add_test(t, locks_are_bounded);
	tcase_add_test(t, descriptors_for_locks_run_out);
	tcase_add_test(t, forged_locks);
	tcase_add_test(t, without_the_option_none_is_taken);
	tcase_add_test(t, readonly_shares_have_shared_locks);
	tcase_add_test(t, flock_does_not_open_for_writing);
	tcase_add_test(t, locks_of_many_threads);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
