/* virtio-fs device (devices/fs.h) with a server made for it: the queue side only, no FUSE. */
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_fs.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "devices/fs.h"
#include "devices/share.h"
#include "tests/unit/fixture.h"
#include "tests/unit/ring.h"
#include "vmm/irq.h"

#define QUEUES 4 /* hiprio and three */
#define SIZE   64
#define KEEP_MAX 64

/*
 * The first byte of a request says what to do: 'e' echo, 'k' keep, 'f' forget (no reply), 's' slow
 * echo, 'q' quick echo, 'x' too short to be answered, 'o' claim to have written more than there was
 * room for.  A kept request is echoed when the worker's eventfd is written.
 */
struct worker {
	struct watch go;
	struct fs_request *kept[KEEP_MAX];
	unsigned n_kept;
	_Atomic unsigned begins, ends, served, kept_now, handed;
	pthread_t thread;
};

static struct guest g;
static struct ring ring[QUEUES];
static uint64_t buf;
static struct worker worker[QUEUES];
static struct virtio_dev *d;
static _Atomic unsigned resets, threads, wrong_thread;
static _Atomic bool hold; /* 's' waits while it is set */
static int begin_result;
static uint32_t refused; /* features that the driver does not take */

static ssize_t echo(struct cursor *in, struct cursor *out)
{
	char data[2048];
	size_t len = MIN(cursor_left(in), sizeof(data));

	len = MIN(len, cursor_left(out));
	ck_assert(cursor_read(in, data, len));
	ck_assert(cursor_write(out, data, len));
	return (ssize_t)len;
}

static ssize_t server_serve(void *server, void *worker_of_queue, struct fs_request *r,
			    struct cursor *in, struct cursor *out)
{
	struct cursor peek = *in;
	struct worker *w = worker_of_queue;
	char what = 0;

	wrong_thread += !pthread_equal(w->thread, pthread_self());
	w->served++;
	if (!cursor_read(&peek, &what, 1))
		return -EPROTO;
	switch (what) {
	case 'k':
		w->kept[w->n_kept++] = r;
		w->kept_now = w->n_kept;
		return FS_LATER;
	case 'f':
		return 0;
	case 'x':
		return -EPROTO;
	case 'o':
		return 1 << 20;
	case 's':
		while (hold)
			usleep(1000);
		break;
	}
	return echo(in, out);
}

/* The request's segments have moved by now, and say what they said. */
static void server_kept(void *server, void *worker_of_queue, struct fs_request *r)
{
	struct worker *w = worker_of_queue;
	struct cursor in, out;
	char what = 0;

	fs_request_cursors(r, &in, &out);
	ck_assert(cursor_read(&in, &what, 1));
	ck_assert_int_eq(what, 'k');
	ck_assert_uint_ge(cursor_left(&out), 64);
	w->handed++;
}

static bool server_quick(void *server, void *worker_of_queue, const struct cursor *in)
{
	struct cursor peek = *in;
	char what = 0;

	return cursor_read(&peek, &what, 1) && what == 'q';
}

static void server_go(struct watch *watch, uint32_t events)
{
	struct worker *w = container_of(watch, struct worker, go);
	uint64_t count;

	(void)!read(watch->fd, &count, sizeof(count));
	while (w->n_kept > 0) {
		/* Newest first: out of order. */
		struct fs_request *r = w->kept[--w->n_kept];
		struct cursor in, out;

		w->kept_now = w->n_kept;
		fs_request_cursors(r, &in, &out);
		fs_complete(r, echo(&in, &out));
	}
}

static int server_begin(void *server, void *worker_of_queue, struct loop *loop)
{
	struct worker *w = worker_of_queue;

	w->begins++;
	w->thread = pthread_self();
	if (begin_result)
		return begin_result;
	w->go.ready = server_go;
	return loop_watch(loop, &w->go, EPOLLIN);
}

static struct loop *loop_of(const struct worker *w)
{
	return &d->queue[w - worker].thread->loop;
}

static void server_end(void *server, void *worker_of_queue)
{
	struct worker *w = worker_of_queue;

	wrong_thread += !pthread_equal(w->thread, pthread_self());
	w->ends++;
	w->n_kept = 0;
	w->kept_now = 0;
	ck_assert_int_eq(loop_watch(loop_of(w), &w->go, 0), 0);
}

static void server_reset(void *server)
{
	resets++;
}

static int server_thread_start(void *server)
{
	threads++;
	return server == worker ? 0 : -EINVAL;
}

static const struct fs_server ops = {
	.thread_start = server_thread_start,
	.serve = server_serve,
	.kept = server_kept,
	.quick = server_quick,
	.worker_begin = server_begin,
	.worker_end = server_end,
	.reset = server_reset,
};

static int create(const char *tag, unsigned queues, uint16_t size, bool one_thread)
{
	void *workers[65] = { 0 };
	const struct fs_opts o = {
		.name = "fs0", .tag = tag, .queues = queues, .ring = size, .one_thread = one_thread,
		.ops = &ops, .server = worker, .workers = workers,
	};

	for (unsigned i = 0; i < QUEUES; i++)
		workers[i] = &worker[i];
	return fs_create(&o, &g.mem, &d);
}

static void launch(bool one_thread)
{
	ck_assert_int_eq(create("share", QUEUES - 1, SIZE, one_thread), 0);
	ck_assert_int_eq(virtio_dev_launch(d, fs_thread_start), 0);
	for (unsigned i = 0; i < QUEUES; i++)
		d->queue[i].call_fd = eventfd(0, EFD_NONBLOCK);
}

static void setup(void)
{
	guest_create_default(&g);
	buf = guest_alloc(&g, 1u << 20, GUEST_PAGE);
	for (unsigned i = 0; i < QUEUES; i++) {
		worker[i].go.fd = eventfd(0, EFD_NONBLOCK);
		ring_init(&ring[i], &g, SIZE, true);
	}
	launch(false);
}

static void unlaunch(void)
{
	int call[QUEUES];

	for (unsigned i = 0; i < QUEUES; i++)
		call[i] = d->queue[i].call_fd;
	virtio_dev_shutdown(d);
	for (unsigned i = 0; i < QUEUES; i++)
		close(call[i]);
	d->class->destroy(d);
}

static void teardown(void)
{
	unlaunch();
	ck_assert_uint_eq(wrong_thread, 0);
	for (unsigned i = 0; i < QUEUES; i++)
		close(worker[i].go.fd);
	guest_destroy(&g);
}

static void start(void)
{
	virtio_status_write(d, 3);
	virtio_driver_features_write(d, 0, (uint32_t)d->features & ~refused);
	virtio_driver_features_write(d, 1, 1);
	virtio_status_write(d, 11);
	for (unsigned i = 0; i < QUEUES; i++) {
		struct virtio_queue *q = virtio_queue_settable(d, i);

		ring_reset(&ring[i]);
		q->desc_gpa = ring[i].desc_gpa;
		q->avail_gpa = ring[i].avail_gpa;
		q->used_gpa = ring[i].used_gpa;
		q->size = SIZE;
		q->enabled = true;
	}
	virtio_status_write(d, 15);
	ck_assert_uint_eq(virtio_status_read(d), begin_result ? 15 | 0x40 : 15);
}

/* Each request has 64 bytes of its own for request and reply. */
static uint16_t submit(unsigned i, const char *text)
{
	uint64_t at = buf + (i * SIZE + (ring[i].next_desc / 2 * 2) % SIZE) * 256;
	const struct seg s[] = { { at, (uint32_t)strlen(text), false }, { at + 128, 64, true } };

	memcpy(guest_at(&g, at), text, strlen(text));
	return ring_add(&ring[i], s, 2);
}

static void kick(unsigned i)
{
	if (ring_wants_kick(&ring[i]))
		irq_signal(d->queue[i].kick_fd);
}

static int wait_used(unsigned i, uint32_t *head, uint32_t *len)
{
	uint64_t count;

	while (!ring_take(&ring[i], head, len)) {
		struct pollfd p = { .fd = d->queue[i].call_fd, .events = POLLIN };

		if (ring_want_irq(&ring[i]))
			continue;
		if (poll(&p, 1, 2000) != 1)
			return -1;
		(void)!read(p.fd, &count, sizeof(count));
	}
	return 0;
}

static void assert_reply(unsigned i, uint32_t head, const char *text)
{
	const char *reply = (const char *)guest_at(&g, ring[i].desc[head].addr) + 128;

	ck_assert_mem_eq(reply, text, strlen(text));
}

static void assert_served(unsigned i, const char *text)
{
	uint16_t head = submit(i, text);
	uint32_t got, len;

	kick(i);
	ck_assert_int_eq(wait_used(i, &got, &len), 0);
	ck_assert_uint_eq(got, head);
	ck_assert_uint_eq(len, strlen(text));
	assert_reply(i, head, text);
}

static void wait_kept(unsigned i, unsigned n)
{
	for (unsigned k = 0; k < 2000 && worker[i].kept_now != n; k++)
		usleep(1000);
	ck_assert_uint_eq(worker[i].kept_now, n);
	for (unsigned k = 0; k < 2000 && worker[i].handed < n; k++)
		usleep(1000);
	ck_assert_uint_ge(worker[i].handed, n);
}

/* --- the device ------------------------------------------------------------------------------- */

START_TEST(config_holds_tag_and_number_of_request_queues)
{
	struct virtio_fs_config c;

	virtio_config_read(d, 0, &c, sizeof(c));
	ck_assert_mem_eq(c.tag, "share\0\0", 7);
	ck_assert_uint_eq(c.tag[35], 0);
	ck_assert_uint_eq(c.num_request_queues, QUEUES - 1);
	ck_assert_uint_eq(d->n_queues, QUEUES);
	ck_assert_uint_eq(d->config_len, 40);
}
END_TEST

START_TEST(tag_of_36_bytes_fills_its_field)
{
	struct virtio_dev *keep = d;

	ck_assert_int_eq(create("123456789012345678901234567890123456", 1, 0, false), 0);
	ck_assert_uint_eq(((const struct virtio_fs_config *)d->config)->tag[35], '6');
	ck_assert_uint_eq(d->queue[1].size_max, 1024);
	d->class->destroy(d);
	d = keep;
}
END_TEST

START_TEST(tags_that_differ_in_their_last_byte_are_two)
{
	const struct device_env env = { .name = "fs1", .mem = &g.mem, .n_vcpus = 1 };
	struct device share[2];

	for (int i = 0; i < 2; i++) {
		char spec[] = "tag=12345678901234567890123456789012345x,path=/";

		*strchr(spec, 'x') = (char)('0' + i);
		ck_assert_int_eq(share_create(spec, &env, &share[i]), 0);
	}
	ck_assert_str_ne(share[0].id, share[1].id);
	for (int i = 0; i < 2; i++) {
		share[i].dev->class->destroy(share[i].dev);
		share[i].destroy(share[i].backing);
	}
}
END_TEST

START_TEST(bad_options_are_refused)
{
	struct virtio_dev *keep = d;

	ck_assert_int_eq(create("", 1, 0, false), -EINVAL);
	ck_assert_int_eq(create("1234567890123456789012345678901234567", 1, 0, false), -EINVAL);
	ck_assert_int_eq(create("t", 0, 0, false), -EINVAL);
	ck_assert_int_eq(create("t", 65, 0, false), -EINVAL);
	ck_assert_int_eq(create("t", 1, 100, false), -EINVAL);
	ck_assert_int_eq(create("t", 1, 8, false), -EINVAL);
	ck_assert_int_eq(create("t", 1, 8192, false), -EINVAL);
	ck_assert_ptr_eq(d, keep);
}
END_TEST

START_TEST(threads_are_one_a_queue_or_one_for_all)
{
	ck_assert_uint_eq(threads, QUEUES);
	ck_assert_str_eq(d->thread[0].name, "fs0-hiprio");
	ck_assert_str_eq(d->thread[3].name, "fs0-rq3");
	unlaunch();
	threads = 0;
	launch(true);
	ck_assert_uint_eq(threads, 1);
	start();
	for (unsigned i = 0; i < QUEUES; i++)
		assert_served(i, "echo");
}
END_TEST

START_TEST(begin_that_fails_sets_needs_reset)
{
	begin_result = -ENOMEM;
	start();
	ck_assert_uint_eq(worker[0].begins, 1);
	ck_assert_uint_eq(worker[0].ends, 0);
	virtio_status_write(d, 0);
	begin_result = 0;
	start();
	assert_served(1, "echo");
}
END_TEST

/* --- requests --------------------------------------------------------------------------------- */

START_TEST(requests_are_served_on_the_thread_of_their_queue)
{
	start();
	for (unsigned round = 0; round < 100; round++)
		for (unsigned i = 0; i < QUEUES; i++)
			assert_served(i, "echo this");
	ck_assert_uint_eq(worker[2].served, 100);
	ck_assert_uint_eq(d->queue[2].stats.requests, 100);
}
END_TEST

START_TEST(request_without_reply_gives_its_head_back)
{
	uint32_t head, len;

	start();
	submit(0, "forget");
	kick(0);
	ck_assert_int_eq(wait_used(0, &head, &len), 0);
	ck_assert_uint_eq(len, 0);
	assert_served(0, "echo");
}
END_TEST

START_TEST(unanswerable_request_gives_its_head_back_with_length_0)
{
	const struct seg nothing = { buf, 0, false }, only_in = { buf, 64, true };
	uint32_t head, len;

	start();
	submit(1, "x");
	ring_add(&ring[1], &nothing, 1);
	ring_add(&ring[1], &only_in, 1);
	kick(1);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(wait_used(1, &head, &len), 0);
		ck_assert_uint_eq(len, 0);
	}
	ck_assert_uint_eq(virtio_status_read(d), 15);
	assert_served(1, "echo");
}
END_TEST

START_TEST(used_length_never_exceeds_what_the_guest_offered)
{
	uint32_t head, len;

	start();
	submit(1, "o");
	kick(1);
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
	ck_assert_uint_eq(len, 64);
}
END_TEST

START_TEST(finished_reply_does_not_wait_for_a_slow_request_behind_it)
{
	uint32_t head, len;
	uint16_t first;

	start();
	hold = true;
	first = submit(1, "echo");
	submit(1, "slow");
	kick(1);
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
	ck_assert_uint_eq(head, first);
	ck_assert(!ring_take(&ring[1], &head, &len));
	hold = false;
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
}
END_TEST

START_TEST(slow_queue_does_not_hold_up_the_others)
{
	uint32_t head, len;

	start();
	hold = true;
	submit(1, "slow");
	kick(1);
	assert_served(0, "interrupt");
	assert_served(2, "echo");
	hold = false;
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
}
END_TEST

START_TEST(more_requests_than_a_budget_are_all_served)
{
	uint32_t head, len;
	unsigned got = 0;

	start();
	hold = true;
	submit(1, "slow");
	kick(1);
	/* The ring is kept full while the device works: several budgets without a kick of ours. */
	for (unsigned i = 1; i < SIZE / 2; i++)
		submit(1, "echo");
	hold = false;
	while (got < 1000) {
		ck_assert_int_eq(wait_used(1, &head, &len), 0);
		got++;
		submit(1, "echo");
		kick(1);
	}
	ck_assert_uint_ge(worker[1].served, 1000);
}
END_TEST

/* --- kept requests ---------------------------------------------------------------------------- */

START_TEST(kept_request_is_completed_later_and_others_pass_it)
{
	uint16_t kept;
	uint32_t head, len;

	start();
	kept = submit(1, "keep me");
	kick(1);
	wait_kept(1, 1);
	assert_served(1, "echo");
	assert_served(1, "echo more");
	irq_signal(worker[1].go.fd);
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
	ck_assert_uint_eq(head, kept);
	ck_assert_uint_eq(len, 7);
	assert_reply(1, kept, "keep me");
}
END_TEST

START_TEST(whole_ring_of_kept_requests_completes_out_of_order)
{
	bool seen[SIZE] = { false };
	uint32_t head, len;

	start();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < SIZE / 2; i++)
			submit(2, "kept one");
		kick(2);
		wait_kept(2, SIZE / 2);
		irq_signal(worker[2].go.fd);
		memset(seen, 0, sizeof(seen));
		for (unsigned i = 0; i < SIZE / 2; i++) {
			ck_assert_int_eq(wait_used(2, &head, &len), 0);
			ck_assert_uint_eq(len, 8);
			ck_assert(head < SIZE && !seen[head]);
			seen[head] = true;
			assert_reply(2, head, "kept one");
		}
	}
}
END_TEST

START_TEST(kept_request_of_many_segments_keeps_them_all)
{
	static struct seg s[300];
	uint64_t table = guest_alloc(&g, 16 * 300, 16);
	uint32_t head, len;

	for (unsigned i = 0; i < 300; i++)
		s[i] = (struct seg){ buf + (i < 150 ? i : 1000 + i), 1, i >= 150 };
	memset(guest_at(&g, buf), 'k', 150);
	start();
	ring_add_indirect(&ring[1], table, s, 300);
	kick(1);
	wait_kept(1, 1);
	/* The table is the guest's to reuse once it was read. */
	memset(guest_at(&g, table), 0xff, 16 * 300);
	assert_served(1, "echo");
	memset(guest_at(&g, buf), 'k', 150);
	irq_signal(worker[1].go.fd);
	ck_assert_int_eq(wait_used(1, &head, &len), 0);
	ck_assert_uint_eq(len, 150);
	for (unsigned i = 0; i < 150; i++)
		ck_assert_int_eq(((char *)guest_at(&g, buf + 1150))[i], 'k');
}
END_TEST

START_TEST(reset_gives_up_kept_requests_and_writes_nothing_more)
{
	start();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < QUEUES; i++) {
			submit(i, "keep");
			submit(i, "keep");
			kick(i);
			wait_kept(i, 2);
		}
		virtio_status_write(d, 0);
		ck_assert_uint_eq(resets, round + 1);
		memset(guest_at(&g, buf), 0x77, 1u << 16);
		for (unsigned i = 0; i < QUEUES; i++)
			irq_signal(worker[i].go.fd);
		usleep(10000);
		for (unsigned k = 0; k < 1u << 16; k++)
			must(((uint8_t *)guest_at(&g, buf))[k] == 0x77);
		start();
		assert_served(1, "echo");
	}
}
END_TEST

START_TEST(server_without_hooks_is_fine)
{
	static const struct fs_server bare = { .serve = server_serve };
	void *workers[2] = { &worker[0], &worker[1] };
	const struct fs_opts o = { .name = "fs1", .tag = "t", .queues = 1, .ops = &bare,
				   .workers = workers };
	struct virtio_dev *other;

	ck_assert_int_eq(fs_create(&o, &g.mem, &other), 0);
	ck_assert_int_eq(virtio_dev_launch(other, fs_thread_start), 0);
	virtio_driver_features_write(other, 1, 1);
	virtio_status_write(other, 11);
	virtio_status_write(other, 15);
	virtio_status_write(other, 0);
	virtio_dev_shutdown(other);
	other->class->destroy(other);
}
END_TEST

/* --- hostile rings ---------------------------------------------------------------------------- */

START_TEST(broken_ring_stops_its_queue_only)
{
	start();
	ring_offer(&ring[1], 60000);
	ring_show(&ring[1]);
	irq_signal(d->queue[1].kick_fd);
	for (unsigned i = 0; i < 2000 && virtio_status_read(d) == 15; i++)
		usleep(1000);
	ck_assert_uint_eq(virtio_status_read(d), 15 | 0x40);
	assert_served(2, "echo");
	virtio_status_write(d, 0);
	start();
	assert_served(1, "echo");
}
END_TEST

START_TEST(queueing_the_same_head_again_and_again_is_bounded)
{
	uint16_t head;

	start();
	head = submit(1, "keep");
	for (unsigned i = 1; i < SIZE; i++)
		ring_offer(&ring[1], head);
	ring_show(&ring[1]);
	kick(1);
	wait_kept(1, SIZE);
	ring_offer(&ring[1], head);
	ring_show(&ring[1]);
	irq_signal(d->queue[1].kick_fd);
	for (unsigned i = 0; i < 2000 && virtio_status_read(d) == 15; i++)
		usleep(1000);
	ck_assert_uint_eq(virtio_status_read(d), 15 | 0x40);
	/* Completions of a queue that broke meanwhile do no harm. */
	irq_signal(worker[1].go.fd);
	wait_kept(1, 0);
}
END_TEST

/* --- interrupts ------------------------------------------------------------------------------- */

/* A driver that wants one for everything. */
static void start_without_event_idx(void)
{
	refused = 1u << VIRTIO_RING_F_EVENT_IDX;
	start();
}

static void wait_served(unsigned i, unsigned n)
{
	for (unsigned k = 0; k < 2000 && worker[i].served != n; k++)
		usleep(1000);
	ck_assert_uint_eq(worker[i].served, n);
}

static int nothing(void *arg)
{
	return 0;
}

START_TEST(quick_replies_share_interrupts)
{
	const unsigned n = SIZE / 2 - 1;
	uint32_t head, len;

	start_without_event_idx();
	hold = true;
	submit(1, "slow");
	irq_signal(d->queue[1].kick_fd);
	wait_served(1, 1);
	for (unsigned i = 0; i < n; i++)
		submit(1, "quick");
	hold = false;
	for (unsigned i = 0; i <= n; i++)
		ck_assert_int_eq(wait_used(1, &head, &len), 0);
	ck_assert_int_eq(iothread_call(d->queue[1].thread, nothing, NULL), 0);
	ck_assert_uint_le(d->queue[1].stats.interrupts, 8);
}
END_TEST

START_TEST(guest_is_told_of_quick_replies_before_a_slow_request)
{
	struct pollfd p = { .fd = d->queue[1].call_fd, .events = POLLIN };
	uint32_t head, len;

	start_without_event_idx();
	hold = true;
	submit(1, "quick");
	for (unsigned i = 0; i < 4; i++)
		submit(1, "slow");
	irq_signal(d->queue[1].kick_fd);
	ck_assert_int_eq(poll(&p, 1, 2000), 1);
	ck_assert(ring_take(&ring[1], &head, &len));
	assert_reply(1, head, "quick");
	ck_assert(!ring_take(&ring[1], &head, &len));
	hold = false;
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(wait_used(1, &head, &len), 0);
}
END_TEST

SUITE_MAIN_FIXTURE("fs", 30, setup, teardown, config_holds_tag_and_number_of_request_queues,
		   tag_of_36_bytes_fills_its_field, tags_that_differ_in_their_last_byte_are_two,
		   bad_options_are_refused,
		   threads_are_one_a_queue_or_one_for_all, begin_that_fails_sets_needs_reset,
		   requests_are_served_on_the_thread_of_their_queue,
		   request_without_reply_gives_its_head_back,
		   unanswerable_request_gives_its_head_back_with_length_0,
		   used_length_never_exceeds_what_the_guest_offered,
		   finished_reply_does_not_wait_for_a_slow_request_behind_it,
		   slow_queue_does_not_hold_up_the_others,
		   more_requests_than_a_budget_are_all_served,
		   kept_request_is_completed_later_and_others_pass_it,
		   whole_ring_of_kept_requests_completes_out_of_order,
		   kept_request_of_many_segments_keeps_them_all,
		   reset_gives_up_kept_requests_and_writes_nothing_more,
		   server_without_hooks_is_fine, broken_ring_stops_its_queue_only,
		   queueing_the_same_head_again_and_again_is_bounded,
		   quick_replies_share_interrupts,
		   guest_is_told_of_quick_replies_before_a_slow_request)
