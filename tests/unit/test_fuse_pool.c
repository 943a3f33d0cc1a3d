/* Helpers of the file server (devices/fuse/pool.h): what a lane hands on, and what becomes of it. */
#include <semaphore.h>
#include <sys/vfs.h>

#include "devices/fuse/pool.h"
#include "devices/fuse/server.h"
#include "tests/unit/fuse_client.h"
#include "tests/unit/iothread.h"
#include "tests/unit/suite.h"

#define HELPERS 2
#define LEN     (64 * 1024)

static struct client c;
static struct iothread helper[HELPERS];

static int helper_begin(struct iothread *t)
{
	return fuse_helper_start(c.s, (unsigned)(t - helper), &t->loop);
}

static void start_as(const struct fuse_opts *o)
{
	client_start(&c, o);
	for (unsigned i = 0; i < HELPERS; i++) {
		helper[i].on_start = helper_begin;
		ck_assert_int_eq(iothread_start(&helper[i], "helper"), 0);
	}
}

static void start(void)
{
	const struct fuse_opts o = { .helpers = HELPERS };

	start_as(&o);
}

static void stop(void)
{
	for (unsigned i = 0; i < HELPERS; i++)
		iothread_stop(&helper[i]);
	client_stop(&c);
}

/* A request of the client's as a job.  It may be held back when a helper has it in hand. */
struct request {
	struct fuse_job job;
	struct iovec v[2];
	char in[256], out[LEN + 64];
	bool held;
	sem_t taken, go, done;
	ssize_t len;
};

static void cursors(struct fuse_job *j, struct cursor *in, struct cursor *out)
{
	struct request *r = container_of(j, struct request, job);

	*in = cursor_of(&r->v[0], 1);
	*out = cursor_of(&r->v[1], 1);
	sem_post(&r->taken);
	if (r->held)
		sem_wait(&r->go);
}

static void done(struct fuse_job *j, ssize_t len)
{
	struct request *r = container_of(j, struct request, job);

	r->len = len;
	sem_post(&r->done);
}

/* What stands in c.in, for a lane. */
static void hand_on(struct request *r, const void *lane, bool held)
{
	struct fuse_in_header *h = (struct fuse_in_header *)(void *)c.in;

	ck_assert_uint_le(c.in_len, sizeof(r->in));
	h->len = (uint32_t)c.in_len;
	memcpy(r->in, c.in, c.in_len);
	r->v[0] = (struct iovec){ r->in, c.in_len };
	r->v[1] = (struct iovec){ r->out, sizeof(r->out) };
	r->held = held;
	sem_init(&r->taken, 0, 0);
	sem_init(&r->go, 0, 0);
	sem_init(&r->done, 0, 0);
	r->job = (struct fuse_job){ .lane = lane, .cursors = cursors, .done = done };
	fuse_submit(c.s, c.w, &r->job, h->unique);
}

static void prepare(uint32_t opcode, uint64_t node, const void *body, size_t len)
{
	begin(&c, opcode, node);
	put(&c, body, len);
	((struct fuse_in_header *)(void *)c.in)->len = (uint32_t)c.in_len;
}

static const struct fuse_out_header *head(const struct request *r)
{
	return (const struct fuse_out_header *)(const void *)r->out;
}

static bool is_done(struct request *r)
{
	int n;

	sem_getvalue(&r->done, &n);
	return n > 0;
}

START_TEST(a_lane_hands_on_what_takes_time_and_has_done_nothing)
{
	struct fuse_fallocate_in room_in = { .length = LEN };
	struct fuse_fsync_in sync_in = { 0 };
	struct fuse_write_in write_in = { .flags = O_SYNC, .size = 1 };
	uint64_t node;

	start();
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &room_in.fh), 0);
	sync_in.fh = write_in.fh = room_in.fh;
	prepare(FUSE_FALLOCATE, node, &room_in, sizeof(room_in));
	ck_assert_int_eq(send_raw(&c), FUSE_SLOW);
	prepare(FUSE_FSYNC, node, &sync_in, sizeof(sync_in));
	ck_assert_int_eq(send_raw(&c), FUSE_SLOW);
	prepare(FUSE_WRITE, node, &write_in, sizeof(write_in));
	put(&c, "x", 1);
	((struct fuse_in_header *)(void *)c.in)->len = (uint32_t)c.in_len;
	ck_assert_int_eq(send_raw(&c), FUSE_SLOW);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 0);
	/* What is wrong with a request is said at once. */
	sync_in.fh = 0;
	prepare(FUSE_FSYNC, node, &sync_in, 3);
	ck_assert_int_gt(send_raw(&c), 0);
	ck_assert_int_eq(reply_head(&c)->error, -EINVAL);
	stop();
}
END_TEST

START_TEST(a_helper_serves_it_and_waits)
{
	struct fuse_fallocate_in in = { .length = LEN };
	struct request r;
	uint64_t node;

	start();
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &in.fh), 0);
	prepare(FUSE_FALLOCATE, node, &in, sizeof(in));
	hand_on(&r, &c, false);
	sem_wait(&r.done);
	ck_assert_int_eq(r.len, sizeof(struct fuse_out_header));
	ck_assert_int_eq(head(&r)->error, 0);
	ck_assert_uint_eq(head(&r)->unique, c.unique);
	ck_assert_int_eq(host_stat(&c, "f").st_size, LEN);
	stop();
}
END_TEST

static bool host_forgets(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct statfs st;
	bool is_memory;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstatfs(fd, &st), 0);
	is_memory = st.f_type == 0x01021994; /* tmpfs */
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
	return !is_memory;
}

START_TEST(a_lane_reads_what_is_in_memory_only)
{
	static char data[LEN];
	struct fuse_read_in in = { .size = LEN };
	struct request r;
	uint64_t node;

	start();
	memset(data, 'x', sizeof(data));
	host_write(&c, "f", data, sizeof(data));
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &in.fh), 0);
	ck_assert_int_eq(read_file(&c, in.fh, 0, LEN), LEN);
	/* Short at the end of the file, and nothing behind it: no reason to wait. */
	ck_assert_int_eq(read_file(&c, in.fh, LEN - 100, LEN), 100);
	ck_assert_int_eq(read_file(&c, in.fh, LEN, LEN), 0);
	if (host_forgets(host(&c, "f"))) {
		prepare(FUSE_READ, node, &in, sizeof(in));
		ck_assert_int_eq(send_raw(&c), FUSE_SLOW);
	}
	prepare(FUSE_READ, node, &in, sizeof(in));
	hand_on(&r, &c, false);
	sem_wait(&r.done);
	ck_assert_int_eq(r.len, LEN + sizeof(struct fuse_out_header));
	ck_assert_mem_eq(r.out + sizeof(struct fuse_out_header), data, LEN);
	ck_assert_int_eq(read_file(&c, in.fh, 0, LEN), LEN);
	stop();
}
END_TEST

START_TEST(jobs_end_in_any_order)
{
	struct fuse_syncfs_in in = { 0 };
	struct request slow, quick;

	start();
	prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
	hand_on(&slow, &c, true);
	sem_wait(&slow.taken);
	prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
	hand_on(&quick, &c, false);
	sem_wait(&quick.done);
	ck_assert(!is_done(&slow));
	sem_post(&slow.go);
	sem_wait(&slow.done);
	ck_assert_uint_ne(head(&slow)->unique, head(&quick)->unique);
	stop();
}
END_TEST

static void *let_go_soon(void *arg)
{
	struct request *r = arg;

	usleep(50000);
	sem_post(&r->go);
	return NULL;
}

START_TEST(a_lane_takes_its_jobs_back)
{
	static struct request held[HELPERS], waiting, other;
	struct fuse_syncfs_in in = { 0 };
	struct fuse_job *back;
	pthread_t thread;
	const char lanes[2];

	start();
	for (unsigned i = 0; i < HELPERS; i++) {
		prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
		hand_on(&held[i], &lanes[0], true);
		sem_wait(&held[i].taken);
	}
	prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
	hand_on(&waiting, &lanes[0], false);
	hand_on(&other, &lanes[1], false);
	sem_post(&held[1].go);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_go_soon, &held[0]), 0);
	fuse_withdraw(c.s, &lanes[0], &back);
	/* Those in hand are done; the other one is back, unless a helper was quick. */
	ck_assert(is_done(&held[0]) && is_done(&held[1]));
	ck_assert(back ? back == &waiting.job && !back->next : is_done(&waiting));
	sem_wait(&other.done);
	fuse_withdraw(c.s, &lanes[0], &back);
	ck_assert_ptr_null(back);
	pthread_join(thread, NULL);
	stop();
}
END_TEST

static void lock_request(uint32_t opcode, uint64_t fh, uint64_t owner, uint32_t type)
{
	struct fuse_lk_in in = { .fh = fh, .owner = owner, .lk = { 0, INT64_MAX, type, 7 } };

	prepare(opcode, lookup(&c, FUSE_ROOT_ID, "f", NULL), &in, sizeof(in));
}

/* A file whose lock owner 1 has.  Its handle. */
static uint64_t start_with_lock(void)
{
	const struct fuse_opts o = { .helpers = HELPERS, .locks = FUSE_LOCKS_HOST };
	uint64_t node, fh;

	start_as(&o);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	lock_request(FUSE_SETLK, fh, 1, F_WRLCK);
	ck_assert_int_gt(send_raw(&c), 0);
	ck_assert_int_eq(reply_head(&c)->error, 0);
	return fh;
}

static void unlock(uint64_t fh)
{
	lock_request(FUSE_SETLK, fh, 1, F_UNLCK);
	ck_assert_int_gt(send_raw(&c), 0);
	ck_assert_int_eq(reply_head(&c)->error, 0);
}

static bool ends_soon(struct request *r)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 20;
	return sem_timedwait(&r->done, &t) == 0;
}

START_TEST(who_waits_for_a_lock_gets_it_when_it_is_free)
{
	static struct request waits[3 * HELPERS], other;
	uint64_t fh = start_with_lock();
	struct fuse_syncfs_in in = { 0 };

	/* As readers, so that all have it in the end; more of them than helpers. */
	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++) {
		lock_request(FUSE_SETLKW, fh, 10 + i, F_RDLCK);
		hand_on(&waits[i], &c, false);
	}
	prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
	hand_on(&other, &c, false);
	ck_assert(ends_soon(&other));
	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++)
		ck_assert(!is_done(&waits[i]));
	unlock(fh);
	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++) {
		ck_assert(ends_soon(&waits[i]));
		ck_assert_int_eq(head(&waits[i])->error, 0);
	}
	stop();
}
END_TEST

/* INTERRUPT finds a request that waits, one that a helper has in hand, and one that is yet to come. */
START_TEST(interrupted_waits_end)
{
	static struct request waits, in_hand, early, stays;
	uint64_t fh = start_with_lock();

	lock_request(FUSE_SETLKW, fh, 2, F_WRLCK);
	hand_on(&waits, &c, false);
	lock_request(FUSE_SETLKW, fh, 3, F_WRLCK);
	hand_on(&in_hand, &c, true);
	sem_wait(&in_hand.taken);
	lock_request(FUSE_SETLKW, fh, 4, F_WRLCK);
	hand_on(&stays, &c, false);
	fuse_pool_interrupt(c.s->pool, in_hand.job.unique);
	fuse_pool_interrupt(c.s->pool, waits.job.unique);
	sem_post(&in_hand.go);
	sem_post(&in_hand.go);
	lock_request(FUSE_SETLKW, fh, 5, F_WRLCK);
	fuse_pool_interrupt(c.s->pool, c.unique);
	hand_on(&early, &c, false);
	ck_assert(ends_soon(&waits) && ends_soon(&in_hand) && ends_soon(&early));
	ck_assert_int_eq(head(&waits)->error, -EINTR);
	ck_assert_int_eq(head(&in_hand)->error, -EINTR);
	ck_assert_int_eq(head(&early)->error, -EINTR);
	ck_assert(!is_done(&stays));
	unlock(fh);
	ck_assert(ends_soon(&stays));
	ck_assert_int_eq(head(&stays)->error, 0);
	stop();
}
END_TEST

static struct fuse_job *taken_back;

static void *take_back(void *lane)
{
	fuse_withdraw(c.s, lane, &taken_back);
	return NULL;
}

/* A request that waited, and comes ready while its lane takes all back, is not left behind. */
START_TEST(no_job_outlives_its_lane)
{
	static struct request waits, held, other, next;
	static const char lanes[2];
	uint64_t fh = start_with_lock();
	struct fuse_syncfs_in in = { 0 };
	pthread_t thread;

	lock_request(FUSE_SETLKW, fh, 2, F_WRLCK);
	hand_on(&waits, &lanes[0], false);
	sem_wait(&waits.taken);
	prepare(FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in));
	hand_on(&held, &lanes[0], true);
	hand_on(&other, &lanes[1], true);
	sem_wait(&held.taken);
	sem_wait(&other.taken);
	hand_on(&next, &lanes[1], false); /* stands before it */
	ck_assert_int_eq(pthread_create(&thread, NULL, take_back, (void *)(uintptr_t)&lanes[0]), 0);
	usleep(100000);
	fuse_pool_interrupt(c.s->pool, waits.job.unique);
	sem_post(&held.go);
	pthread_join(thread, NULL);
	ck_assert(is_done(&held));
	ck_assert(taken_back == &waits.job && !waits.job.next);
	sem_post(&other.go);
	ck_assert(ends_soon(&other) && ends_soon(&next));
	ck_assert(!is_done(&waits));
	stop();
}
END_TEST

/* Without helpers a lane does all by itself. */
START_TEST(no_helpers_no_handing_on)
{
	const struct fuse_opts o = { 0 };
	struct fuse_syncfs_in in = { 0 };

	client_start(&c, &o);
	ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, in, NULL), 0);
	client_stop(&c);
}
END_TEST

SUITE_MAIN("fuse_pool", 60, a_lane_hands_on_what_takes_time_and_has_done_nothing,
	   a_helper_serves_it_and_waits, a_lane_reads_what_is_in_memory_only, jobs_end_in_any_order,
	   a_lane_takes_its_jobs_back, who_waits_for_a_lock_gets_it_when_it_is_free,
	   interrupted_waits_end, no_job_outlives_its_lane, no_helpers_no_handing_on)
