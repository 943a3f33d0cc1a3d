/* Device life and its threads (devices/virtio.h), with the echo device. */
#include <linux/virtio_config.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "tests/unit/echo.h"
#include "tests/unit/fixture.h"
#include "vmm/irq.h"

#define ACKNOWLEDGE VIRTIO_CONFIG_S_ACKNOWLEDGE
#define DRIVER      VIRTIO_CONFIG_S_DRIVER
#define FEATURES_OK VIRTIO_CONFIG_S_FEATURES_OK
#define DRIVER_OK   VIRTIO_CONFIG_S_DRIVER_OK
#define NEEDS_RESET VIRTIO_CONFIG_S_NEEDS_RESET

#define QUEUES 8
#define SIZE   64

static struct guest g;
static struct ring ring[QUEUES];
static uint64_t buf[QUEUES]; /* a page per queue */
static struct echo *e;
static struct virtio_dev *d;

static void create(unsigned threads)
{
	guest_create_default(&g);
	e = echo_create(&g.mem, QUEUES, threads, SIZE);
	d = &e->dev;
	ck_assert_int_eq(virtio_dev_launch(d, NULL), 0);
	for (unsigned i = 0; i < QUEUES; i++) {
		ring_init(&ring[i], &g, SIZE, true);
		buf[i] = guest_alloc(&g, GUEST_PAGE, GUEST_PAGE);
		d->queue[i].call_fd = eventfd(0, EFD_NONBLOCK);
	}
	d->config_call_fd = eventfd(0, EFD_NONBLOCK);
}

static void setup(void)
{
	create(QUEUES);
}

static void teardown(void)
{
	virtio_dev_shutdown(d);
	for (unsigned i = 0; i < QUEUES; i++)
		close(d->queue[i].call_fd);
	close(d->config_call_fd);
	ck_assert_uint_eq(e->wrong_thread, 0);
	ck_assert_uint_eq(e->starts, e->stops + (e->start_result != 0));
	d->class->destroy(d);
	guest_destroy(&g);
}

static void negotiate(void)
{
	virtio_status_write(d, ACKNOWLEDGE | DRIVER);
	virtio_driver_features_write(d, 0, (uint32_t)d->features);
	virtio_driver_features_write(d, 1, (uint32_t)(d->features >> 32));
	virtio_status_write(d, ACKNOWLEDGE | DRIVER | FEATURES_OK);
	ck_assert(virtio_status_read(d) & FEATURES_OK);
}

static void enable(unsigned i)
{
	struct virtio_queue *q = virtio_queue_settable(d, i);

	ck_assert_ptr_nonnull(q);
	q->size = ring[i].size;
	q->desc_gpa = ring[i].desc_gpa;
	q->avail_gpa = ring[i].avail_gpa;
	q->used_gpa = ring[i].used_gpa;
	q->enabled = true;
}

static void start(unsigned n)
{
	negotiate();
	for (unsigned i = 0; i < n; i++)
		enable(i);
	virtio_status_write(d, ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
}

static void reset(void)
{
	virtio_status_write(d, 0);
	for (unsigned i = 0; i < QUEUES; i++)
		ring_reset(&ring[i]);
}

static unsigned running(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < QUEUES; i++)
		n += d->queue[i].running;
	return n;
}

/* True when fd was signalled within ms; the signal is consumed. */
static bool signalled(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t count;

	return poll(&p, 1, ms) == 1 && read(fd, &count, sizeof(count)) == sizeof(count);
}

static void submit(unsigned i, const char *text)
{
	uint32_t len = (uint32_t)strlen(text);
	const struct seg s[] = { { buf[i], len, false }, { buf[i] + 2048, 64, true } };

	memcpy(guest_at(&g, buf[i]), text, len);
	ring_add(&ring[i], s, 2);
}

/* Wait for the reply of one request: 0 or -1 after two seconds. */
static int wait_used(unsigned i, uint32_t *len)
{
	uint32_t head;

	while (!ring_take(&ring[i], &head, len)) {
		if (ring_want_irq(&ring[i]))
			continue;
		if (!signalled(d->queue[i].call_fd, 2000))
			return -1;
	}
	return 0;
}

static void assert_echo(unsigned i, const char *text)
{
	uint32_t len;

	submit(i, text);
	if (ring_wants_kick(&ring[i]))
		irq_signal(d->queue[i].kick_fd);
	ck_assert_int_eq(wait_used(i, &len), 0);
	ck_assert_uint_eq(len, strlen(text));
	ck_assert_mem_eq(guest_at(&g, buf[i] + 2048), text, len);
}

/* --- features and status ---------------------------------------------------------------------- */

START_TEST(features_ok_is_refused_for_bits_not_offered)
{
	for (unsigned bit = 0; bit < 64; bit++) {
		if (d->features >> bit & 1)
			continue;
		reset();
		virtio_status_write(d, ACKNOWLEDGE | DRIVER);
		virtio_driver_features_write(d, 0, (uint32_t)(1ULL << bit));
		virtio_driver_features_write(d, 1, (uint32_t)((1ULL << bit | 1ULL << 32) >> 32));
		virtio_status_write(d, ACKNOWLEDGE | DRIVER | FEATURES_OK);
		ck_assert_uint_eq(virtio_status_read(d), ACKNOWLEDGE | DRIVER);
	}
}
END_TEST

START_TEST(features_ok_needs_version_1)
{
	virtio_status_write(d, ACKNOWLEDGE | DRIVER);
	virtio_status_write(d, ACKNOWLEDGE | DRIVER | FEATURES_OK);
	ck_assert_uint_eq(virtio_status_read(d), ACKNOWLEDGE | DRIVER);
	virtio_driver_features_write(d, 1, 1);
	virtio_status_write(d, ACKNOWLEDGE | DRIVER | FEATURES_OK);
	ck_assert(virtio_status_read(d) & FEATURES_OK);
}
END_TEST

START_TEST(features_are_frozen_after_features_ok)
{
	negotiate();
	virtio_driver_features_write(d, 0, 0xffffffff);
	virtio_driver_features_write(d, 1, 0);
	ck_assert_uint_eq(d->driver_features, d->features);
	virtio_driver_features_write(d, 2, 1);
	virtio_driver_features_write(d, 0xffffffff, 1);
	ck_assert_uint_eq(d->driver_features, d->features);
}
END_TEST

START_TEST(driver_ok_without_features_ok_starts_nothing)
{
	enable(0);
	virtio_status_write(d, ACKNOWLEDGE | DRIVER | DRIVER_OK);
	ck_assert_uint_eq(virtio_status_read(d), ACKNOWLEDGE | DRIVER);
	ck_assert_uint_eq(running(), 0);
	ck_assert_uint_eq(e->starts, 0);
}
END_TEST

START_TEST(driver_ok_starts_only_enabled_queues)
{
	negotiate();
	enable(1);
	enable(5);
	virtio_status_write(d, FEATURES_OK | DRIVER_OK);
	ck_assert_uint_eq(running(), 2);
	ck_assert(d->queue[1].running && d->queue[5].running);
	ck_assert_uint_eq(e->begins, 2);
	reset();
	ck_assert_uint_eq(e->ends, 2);
	ck_assert_uint_eq(running(), 0);
}
END_TEST

START_TEST(driver_ok_with_no_queue_enabled_is_fine)
{
	start(0);
	ck_assert_uint_eq(virtio_status_read(d), 15);
	reset();
	ck_assert_uint_eq(virtio_status_read(d), 0);
	ck_assert_uint_eq(e->stops, 1);
}
END_TEST

START_TEST(second_driver_ok_starts_nothing_again)
{
	start(2);
	virtio_status_write(d, 15);
	virtio_status_write(d, 15);
	ck_assert_uint_eq(e->starts, 1);
	ck_assert_uint_eq(e->begins, 2);
}
END_TEST

START_TEST(only_reset_clears_status_bits)
{
	start(1);
	virtio_status_write(d, ACKNOWLEDGE);
	ck_assert_uint_eq(virtio_status_read(d), 15);
	/* A driver cannot fake NEEDS_RESET; FAILED is its own to set. */
	virtio_status_write(d, NEEDS_RESET | VIRTIO_CONFIG_S_FAILED);
	ck_assert_uint_eq(virtio_status_read(d), 15 | VIRTIO_CONFIG_S_FAILED);
	reset();
	ck_assert_uint_eq(virtio_status_read(d), 0);
}
END_TEST

START_TEST(registers_are_not_settable_once_enabled_or_started)
{
	negotiate();
	enable(0);
	ck_assert_ptr_null(virtio_queue_settable(d, 0));
	ck_assert_ptr_nonnull(virtio_queue_settable(d, 1));
	ck_assert_ptr_null(virtio_queue_settable(d, QUEUES));
	ck_assert_ptr_null(virtio_queue_settable(d, 65535));
	virtio_status_write(d, 15);
	ck_assert_ptr_null(virtio_queue_settable(d, 1));
	reset();
	ck_assert_ptr_nonnull(virtio_queue_settable(d, 0));
	ck_assert_uint_eq(d->queue[0].size, SIZE);
	ck_assert_uint_eq(d->queue[0].desc_gpa, 0);
}
END_TEST

/* --- starts that fail ------------------------------------------------------------------------- */

static void assert_start_failed(void)
{
	ck_assert_uint_eq(virtio_status_read(d), 15 | NEEDS_RESET);
	ck_assert(signalled(d->config_call_fd, 0));
	ck_assert_uint_eq(running(), 0);
	/* After a reset the device is as good as new. */
	reset();
	e->start_result = e->begin_result = 0;
	start(QUEUES);
	ck_assert_uint_eq(virtio_status_read(d), 15);
	assert_echo(QUEUES - 1, "again");
	reset();
	ck_assert_uint_eq(e->begins - e->ends, running());
}

START_TEST(ring_outside_ram_stops_the_start)
{
	ring[3].desc_gpa = 6u << 20;
	start(QUEUES);
	ring[3].desc_gpa = ring[2].desc_gpa;
	assert_start_failed();
}
END_TEST

START_TEST(class_that_refuses_stops_the_start)
{
	e->start_result = -ENOMEM;
	start(QUEUES);
	ck_assert_uint_eq(e->begins, 0);
	ck_assert_uint_eq(e->stops, 0);
	e->starts = 0;
	assert_start_failed();
}
END_TEST

START_TEST(queue_that_refuses_stops_the_start)
{
	e->begin_result = -EIO;
	start(QUEUES);
	ck_assert_uint_eq(e->begins, QUEUES);
	ck_assert_uint_eq(e->ends, QUEUES - 1);
	e->ends++;
	assert_start_failed();
}
END_TEST

/* --- traffic ---------------------------------------------------------------------------------- */

START_TEST(requests_are_answered_on_every_queue)
{
	start(QUEUES);
	for (unsigned i = 0; i < QUEUES; i++) {
		assert_echo(i, "first");
		assert_echo(i, "second one");
	}
}
END_TEST

START_TEST(kick_before_driver_ok_is_not_lost)
{
	uint32_t len;

	negotiate();
	enable(0);
	submit(0, "early");
	irq_signal(d->queue[0].kick_fd);
	virtio_status_write(d, 15);
	ck_assert_int_eq(wait_used(0, &len), 0);
}
END_TEST

START_TEST(request_before_driver_ok_is_served_without_a_kick)
{
	uint32_t len;

	negotiate();
	enable(0);
	submit(0, "early");
	virtio_status_write(d, 15);
	ck_assert_int_eq(wait_used(0, &len), 0);
}
END_TEST

START_TEST(no_kick_is_lost_in_many_round_trips)
{
	start(1);
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t len;

		submit(0, "ping");
		if (ring_wants_kick(&ring[0]))
			irq_signal(d->queue[0].kick_fd);
		must(wait_used(0, &len) == 0);
		must(len == 4);
	}
}
END_TEST

START_TEST(without_event_index_no_kick_is_lost_either)
{
	ring[0].event_idx = false;
	virtio_driver_features_write(d, 1, 1);
	virtio_status_write(d, FEATURES_OK);
	enable(0);
	virtio_status_write(d, FEATURES_OK | DRIVER_OK);
	for (unsigned i = 0; i < 5000; i++) {
		uint32_t len;

		submit(0, "ping");
		if (ring_wants_kick(&ring[0]))
			irq_signal(d->queue[0].kick_fd);
		must(wait_used(0, &len) == 0);
	}
}
END_TEST

START_TEST(more_than_a_budget_is_served_after_one_kick)
{
	uint32_t len;

	start(1);
	e->passes = 0;
	for (unsigned i = 0; i < 3 * ECHO_BUDGET; i++)
		submit(0, "flood");
	irq_signal(d->queue[0].kick_fd);
	for (unsigned i = 0; i < 3 * ECHO_BUDGET; i++)
		ck_assert_int_eq(wait_used(0, &len), 0);
	ck_assert_uint_ge(e->passes, 3);
}
END_TEST

START_TEST(kicks_of_queues_that_do_not_run_are_ignored)
{
	start(2);
	for (unsigned i = 0; i < QUEUES; i++)
		irq_signal(d->queue[i].kick_fd);
	assert_echo(0, "well");
	assert_echo(1, "well");
	ck_assert_uint_eq(d->queue[2].stats.kicks, 0);
}
END_TEST

START_TEST(broken_ring_needs_reset_and_neighbours_go_on)
{
	struct virtio_queue *q = &d->queue[2];

	start(QUEUES);
	ring_offer(&ring[2], 9999);
	ring_show(&ring[2]);
	irq_signal(q->kick_fd);
	ck_assert(signalled(d->config_call_fd, 2000));
	ck_assert_uint_eq(virtio_status_read(d), 15 | NEEDS_RESET);
	/* Further kicks do nothing: no second message, no pass. */
	e->passes = 0;
	for (unsigned i = 0; i < 100; i++)
		irq_signal(q->kick_fd);
	assert_echo(1, "fine");
	ck_assert(!signalled(d->config_call_fd, 20));
	ck_assert_uint_le(e->passes, 1);
	reset();
	ck_assert_uint_eq(virtio_status_read(d), 0);
	start(QUEUES);
	assert_echo(2, "back");
}
END_TEST

/* --- reset ------------------------------------------------------------------------------------ */

START_TEST(reset_returns_only_when_all_queues_have_left)
{
	e->handler_us = 20000;
	start(QUEUES);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < QUEUES; i++) {
			submit(i, "slow");
			irq_signal(d->queue[i].kick_fd);
		}
		usleep(5000);
		virtio_status_write(d, 0);
		ck_assert_uint_eq(e->in_handler, 0);
		ck_assert_uint_eq(running(), 0);
		/* The memory is the guest's again: nobody may write to it. */
		memset(g.ram, 0x5a, 1u << 20);
		usleep(30000);
		for (unsigned k = 0; k < 1u << 20; k++)
			must(g.ram[k] == 0x5a);
		for (unsigned i = 0; i < QUEUES; i++) {
			memset(ring[i].desc, 0, 16 * SIZE);
			ring_reset(&ring[i]);
		}
		start(QUEUES);
	}
}
END_TEST

START_TEST(reset_without_a_start_and_twice_is_fine)
{
	reset();
	reset();
	negotiate();
	reset();
	start(1);
	reset();
	reset();
	ck_assert_uint_eq(e->stops, 1);
}
END_TEST

/* One queue's driver, on a thread of its own, as a vCPU would run it. */
struct driver {
	pthread_t thread;
	unsigned i;
	unsigned done, stalls;
};

static _Atomic bool drivers_stop;

/* False when nothing came for two seconds, though the device runs. */
static bool wait_irq(unsigned i)
{
	for (unsigned k = 0; k < 100; k++)
		if (signalled(d->queue[i].call_fd, 20) || drivers_stop)
			return true;
	return false;
}

static void *driver_main(void *arg)
{
	struct driver *v = arg;
	struct ring *r = &ring[v->i];
	uint32_t head, len;

	while (!drivers_stop) {
		unsigned n = 1 + v->done % 7, got = 0;

		for (unsigned k = 0; k < n; k++)
			submit(v->i, "traffic");
		if (ring_wants_kick(r))
			irq_signal(d->queue[v->i].kick_fd);
		while (got < n && !drivers_stop) {
			if (ring_take(r, &head, &len)) {
				got++;
				v->stalls += len != 7;
			} else if (!ring_want_irq(r)) {
				v->stalls += !wait_irq(v->i);
			}
		}
		v->done += got;
	}
	return NULL;
}

static void round_of_traffic(unsigned ms)
{
	struct driver v[QUEUES] = { 0 };

	drivers_stop = false;
	for (unsigned i = 0; i < QUEUES; i++) {
		v[i].i = i;
		ck_assert_int_eq(pthread_create(&v[i].thread, NULL, driver_main, &v[i]), 0);
	}
	usleep(ms * 1000);
	/* In the middle of it all: the drivers go on until they see it. */
	virtio_status_write(d, 0);
	drivers_stop = true;
	for (unsigned i = 0; i < QUEUES; i++) {
		pthread_join(v[i].thread, NULL);
		ck_assert_uint_eq(v[i].stalls, 0);
	}
}

/* The proof of the sharing table, under make tsan. */
START_TEST(eight_queues_through_start_traffic_and_reset)
{
	uint64_t requests = 0;

	for (unsigned round = 0; round < 20; round++) {
		start(QUEUES);
		ck_assert_uint_eq(virtio_status_read(d), 15);
		round_of_traffic(10 + round);
		for (unsigned i = 0; i < QUEUES; i++)
			ring_reset(&ring[i]);
	}
	for (unsigned i = 0; i < QUEUES; i++)
		requests += d->queue[i].stats.requests;
	ck_assert_uint_gt(requests, 100);
	ck_assert_uint_eq(e->begins, 20 * QUEUES);
	ck_assert_uint_eq(e->ends, 20 * QUEUES);
}
END_TEST

START_TEST(eight_queues_share_two_threads)
{
	teardown();
	create(2);
	for (unsigned round = 0; round < 5; round++) {
		start(QUEUES);
		round_of_traffic(20);
		for (unsigned i = 0; i < QUEUES; i++)
			ring_reset(&ring[i]);
	}
}
END_TEST

/* --- interrupts ------------------------------------------------------------------------------- */

START_TEST(pin_interrupts_record_their_cause_and_vectors_do_not)
{
	start(1);
	assert_echo(0, "by vector");
	ck_assert_uint_eq(d->isr, 0);
	reset();
	d->intx_fd = d->queue[0].call_fd;
	start(1);
	assert_echo(0, "by pin");
	ck_assert_uint_eq(d->isr, VIRTIO_ISR_QUEUE);
	reset();
	ck_assert_uint_eq(d->isr, 0);
	d->intx_fd = d->config_call_fd;
	virtio_config_interrupt(d);
	ck_assert_uint_eq(d->isr, VIRTIO_ISR_CONFIG);
}
END_TEST

START_TEST(queue_without_a_vector_interrupts_nobody)
{
	int fd = d->queue[0].call_fd;
	uint32_t head, len;

	d->queue[0].call_fd = -1;
	start(1);
	submit(0, "silent");
	irq_signal(d->queue[0].kick_fd);
	for (unsigned i = 0; i < 2000 && !ring_take(&ring[0], &head, &len); i++)
		usleep(1000);
	ck_assert_uint_eq(ring[0].last_used, 1);
	ck_assert_uint_eq(d->queue[0].stats.interrupts, 0);
	reset();
	d->queue[0].call_fd = fd;
}
END_TEST

START_TEST(config_interrupt_changes_the_generation)
{
	uint8_t old = d->config_generation;

	virtio_config_interrupt(d);
	ck_assert_uint_eq(d->config_generation, old + 1);
	ck_assert(signalled(d->config_call_fd, 0));
}
END_TEST

/* --- config space, names, counters ------------------------------------------------------------ */

START_TEST(config_reads_beyond_the_end_are_zero)
{
	uint8_t p[8];

	virtio_config_read(d, 0, p, 8);
	ck_assert_uint_eq(p[0], 0xa0);
	ck_assert_uint_eq(p[7], 0xa7);
	virtio_config_read(d, 13, p, 8);
	ck_assert_uint_eq(p[2], 0xaf);
	ck_assert_uint_eq(p[3], 0);
	memset(p, 0xff, sizeof(p));
	virtio_config_read(d, 16, p, 8);
	ck_assert_uint_eq(p[0], 0);
	virtio_config_read(d, UINT32_MAX, p, 8);
	ck_assert_uint_eq(p[7], 0);
}
END_TEST

START_TEST(config_writes_reach_the_class_only_inside)
{
	const uint8_t v[4] = { 1, 2, 3, 4 };

	virtio_config_write(d, 12, v, 4);
	ck_assert_mem_eq(e->config + 12, v, 4);
	virtio_config_write(d, 13, v, 4);
	ck_assert_uint_eq(e->config[13], 2);
	virtio_config_write(d, UINT32_MAX - 1, v, 4);
}
END_TEST

static int note_name(struct iothread *t)
{
	char name[16];

	if (pthread_getname_np(pthread_self(), name, sizeof(name)) || strcmp(name, t->name) != 0 ||
	    t->ctx == NULL)
		return -EINVAL;
	return 0;
}

static int refuse_third(struct iothread *t)
{
	return strcmp(t->name, "echo0-q2") == 0 ? -EPERM : 0;
}

START_TEST(threads_carry_the_names_of_their_queues)
{
	struct echo *other = echo_create(&g.mem, 4, 4, SIZE);

	strcpy(other->thread[3].name, "chosen");
	ck_assert_int_eq(virtio_dev_launch(&other->dev, note_name), 0);
	ck_assert_str_eq(other->thread[1].name, "echo0-q1");
	ck_assert_str_eq(other->thread[3].name, "chosen");
	virtio_dev_shutdown(&other->dev);
	echo_destroy(&other->dev);
}
END_TEST

START_TEST(launch_that_fails_leaves_no_thread)
{
	struct echo *other = echo_create(&g.mem, 4, 4, SIZE);

	ck_assert_int_eq(virtio_dev_launch(&other->dev, refuse_third), -EPERM);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(!other->thread[i].started);
		ck_assert_int_eq(other->queue[i].kick_fd, -1);
	}
	echo_destroy(&other->dev);
}
END_TEST

START_TEST(shutdown_of_a_running_device_stops_it)
{
	start(QUEUES);
	assert_echo(0, "running");
	/* teardown shuts down */
}
END_TEST

START_TEST(counters_come_as_json)
{
	char json[2048], tiny[16];
	size_t len;

	start(1);
	assert_echo(0, "one");
	assert_echo(0, "two");
	reset();
	len = virtio_dev_stats_json(d, json, sizeof(json));
	ck_assert_uint_eq(len, strlen(json));
	ck_assert_ptr_eq(strstr(json, "{\"device\":\"echo0\",\"queues\":[{\"name\":\"echo0-q0\","),
			 json);
	ck_assert_ptr_nonnull(strstr(json, "\"requests\":2,\"suppressed\":"));
	ck_assert_ptr_nonnull(strstr(json, "\"batches\":2,\"interrupts\":"));
	ck_assert_str_eq(json + len - 3, "}]}");
	ck_assert_uint_eq(virtio_dev_stats_json(d, tiny, sizeof(tiny)), len);
	ck_assert_uint_eq(strlen(tiny), 15);
	ck_assert_uint_eq(virtio_dev_stats_json(d, NULL, 0), len);
}
END_TEST

SUITE_MAIN_FIXTURE("virtio", 30, setup, teardown, features_ok_is_refused_for_bits_not_offered,
		   features_ok_needs_version_1, features_are_frozen_after_features_ok,
		   driver_ok_without_features_ok_starts_nothing,
		   driver_ok_starts_only_enabled_queues, driver_ok_with_no_queue_enabled_is_fine,
		   second_driver_ok_starts_nothing_again, only_reset_clears_status_bits,
		   registers_are_not_settable_once_enabled_or_started,
		   ring_outside_ram_stops_the_start, class_that_refuses_stops_the_start,
		   queue_that_refuses_stops_the_start, requests_are_answered_on_every_queue,
		   kick_before_driver_ok_is_not_lost,
		   request_before_driver_ok_is_served_without_a_kick,
		   no_kick_is_lost_in_many_round_trips,
		   without_event_index_no_kick_is_lost_either,
		   more_than_a_budget_is_served_after_one_kick,
		   kicks_of_queues_that_do_not_run_are_ignored,
		   broken_ring_needs_reset_and_neighbours_go_on,
		   reset_returns_only_when_all_queues_have_left,
		   reset_without_a_start_and_twice_is_fine,
		   eight_queues_through_start_traffic_and_reset, eight_queues_share_two_threads,
		   pin_interrupts_record_their_cause_and_vectors_do_not,
		   queue_without_a_vector_interrupts_nobody,
		   config_interrupt_changes_the_generation, config_reads_beyond_the_end_are_zero,
		   config_writes_reach_the_class_only_inside,
		   threads_carry_the_names_of_their_queues, launch_that_fails_leaves_no_thread,
		   shutdown_of_a_running_device_stops_it, counters_come_as_json)
