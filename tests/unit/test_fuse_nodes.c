/* Nodes, handles and the tables behind them: identity, forged ids, references, threads. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "devices/fuse/server.h"
#include "tests/unit/fuse_client.h"

static struct client c;

static void setup(void)
{
	struct fuse_opts o = { .workers = 8 };

	client_start(&c, &o);
}

static void teardown(void)
{
	client_stop(&c);
}

/* --- slots ------------------------------------------------------------------------------------ */

struct thing {
	struct slot slot;
	int value;
};

static struct slot *thing_new(struct slots *t, unsigned shard)
{
	struct slot *slot;

	pthread_mutex_lock(&t->shard[shard].lock);
	slot = slots_new(t, shard);
	pthread_mutex_unlock(&t->shard[shard].lock);
	return slot;
}

START_TEST(slot_ids_never_come_again)
{
	struct slots t;
	struct slot *slot;
	uint64_t id, again;

	ck_assert_int_eq(slots_init(&t, sizeof(struct thing)), 0);
	slot = thing_new(&t, 5);
	id = slot_id(slot);
	ck_assert_ptr_null(slots_pin(&t, id)); /* not before it is published */
	slot_publish(slot);
	ck_assert_ptr_eq(slots_pin(&t, id), slot);
	ck_assert(!slot_unpin(slot));
	ck_assert(slot_unpin(slot));
	ck_assert_ptr_null(slots_pin(&t, id));
	slots_free(&t, slot);
	ck_assert_ptr_eq(thing_new(&t, 5), slot);
	again = slot_id(slot);
	slot_publish(slot);
	ck_assert_uint_ne(again, id);
	ck_assert_ptr_null(slots_pin(&t, id));
	ck_assert_ptr_eq(slots_pin(&t, again), slot);
	slots_destroy(&t);
}
END_TEST

START_TEST(slot_ids_that_lead_nowhere)
{
	struct slots t;

	ck_assert_int_eq(slots_init(&t, sizeof(struct thing)), 0);
	slot_publish(thing_new(&t, 0));
	for (uint64_t i = 0; i < 64; i++) {
		if (i != 32)
			ck_assert_ptr_null(slots_pin(&t, (uint64_t)1 << i));
		ck_assert_ptr_null(slots_pin(&t, UINT64_MAX - ((uint64_t)1 << i)));
	}
	ck_assert_ptr_null(slots_pin(&t, 0));
	ck_assert_ptr_nonnull(slots_pin(&t, (uint64_t)1 << 32));
	ck_assert_ptr_null(slots_pin(&t, (uint64_t)2 << 32));
	slots_destroy(&t);
}
END_TEST

/* --- nodes ------------------------------------------------------------------------------------ */

START_TEST(hard_links_are_one_node)
{
	uint64_t a, b;

	host_write(&c, "a", "x", 1);
	ck_assert_int_eq(link(host(&c, "a"), host(&c, "b")), 0);
	a = lookup(&c, FUSE_ROOT_ID, "a", NULL);
	b = lookup(&c, FUSE_ROOT_ID, "b", NULL);
	ck_assert_uint_ne(a, 0);
	ck_assert_uint_eq(a, b);
	forget(&c, a, 1);
	ck_assert_int_eq(getattr(&c, a), 0);
	ck_assert_uint_eq(attr(&c)->nlink, 2);
	forget(&c, a, 1);
	ck_assert_int_eq(getattr(&c, a), -ESTALE);
}
END_TEST

START_TEST(forged_forget)
{
	uint64_t node;
	unsigned before = count_fds();

	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	forget(&c, node, UINT64_MAX);
	ck_assert_int_eq(getattr(&c, node), -ESTALE);
	forget(&c, node, 1);
	forget(&c, FUSE_ROOT_ID, UINT64_MAX);
	forget(&c, 0, 5);
	ck_assert_int_eq(getattr(&c, FUSE_ROOT_ID), 0);
	ck_assert_uint_eq(count_fds(), before);
	/* The file is found again, under a number never used before. */
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, "f", NULL), node);
	forget(&c, node, 1);
	ck_assert_uint_eq(count_fds(), before + 1);
}
END_TEST

START_TEST(batch_forget)
{
	struct fuse_batch_forget_in in = { .count = 5 }; /* one more than there are */
	struct fuse_in_header *h;
	uint64_t node[4];
	unsigned before = count_fds();

	for (unsigned i = 0; i < 4; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%u", i);
		host_write(&c, name, "x", 1);
		node[i] = lookup(&c, FUSE_ROOT_ID, name, NULL);
	}
	h = begin(&c, FUSE_BATCH_FORGET, 0);
	put(&c, &in, sizeof(in));
	for (unsigned i = 0; i < 4; i++) {
		struct fuse_forget_one one = { .nodeid = node[i], .nlookup = 1 };

		put(&c, &one, sizeof(one));
	}
	h->len = (uint32_t)c.in_len;
	ck_assert_int_eq(send_raw(&c), 0);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

START_TEST(forged_ids)
{
	static const uint64_t ids[] = {
		0, 2, 64, 128, UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX
	};
	char zeros[104] = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
		for (uint32_t op = 1; op < 60; op++) {
			if (op == FUSE_INIT || op == FUSE_DESTROY || op == FUSE_FORGET ||
			    op == FUSE_BATCH_FORGET || op == FUSE_INTERRUPT)
				continue;
			ck_assert_int_lt(call(&c, op, ids[i], zeros, sizeof(zeros), "name"), 0);
		}
		ck_assert_int_eq(read_file(&c, ids[i], 0, 1), -EBADF);
		ck_assert_int_eq(release(&c, FUSE_RELEASE, ids[i]), -EBADF);
	}
}
END_TEST

/* The numbers of all nodes grow the hash and the tables through several doublings. */
START_TEST(many_nodes)
{
	enum { N = 5000 };
	static uint64_t node[N];
	unsigned before = count_fds(), n;
	struct rlimit rl;

	getrlimit(RLIMIT_NOFILE, &rl);
	n = MIN(N, (unsigned)MIN(rl.rlim_max, 1 << 20) / 2);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	client_stop(&c);
	setup();
	for (unsigned i = 0; i < n; i++) {
		struct fuse_mknod_in in = { .mode = S_IFREG | 0644 };
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, in, name), 0);
		node[i] = ((struct fuse_entry_out *)body(&c))->nodeid;
	}
	ck_assert_uint_eq(count_fds(), before + n);
	for (unsigned i = 0; i < n; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, name, NULL), node[i]);
	}
	for (unsigned i = 0; i < n; i++)
		forget(&c, node[i], 2);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

START_TEST(deleted_file_keeps_its_node)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE | FATTR_MODE, .size = 5, .mode = 0600 };
	uint64_t node;

	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(call(&c, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, "f"), 0);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_uint_eq(attr(&c)->size, 5);
	ck_assert_uint_eq(attr(&c)->mode, S_IFREG | 0600);
	ck_assert_uint_eq(attr(&c)->nlink, 0);
}
END_TEST

/* --- inode numbers ---------------------------------------------------------------------------- */

START_TEST(numbers_of_domains_differ)
{
	static const uint64_t inos[] = {
		1, 2, 12345, ((uint64_t)1 << 48) - 1, (uint64_t)1 << 48, UINT64_MAX
	};
	static const uint64_t domains[] = {
		0, 1, 2, DOMAINS_MAX - 1, (uint64_t)1 << 63, UINT64_MAX
	};
	enum { N = ARRAY_SIZE(inos) * ARRAY_SIZE(domains) };
	uint64_t seen[N];
	unsigned n = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(inos); i++)
		for (unsigned d = 0; d < ARRAY_SIZE(domains); d++)
			seen[n++] = attr_ino(domains[d], inos[i]);
	for (unsigned i = 0; i < N; i++)
		for (unsigned j = 0; j < i; j++)
			ck_assert_uint_ne(seen[i], seen[j]);
	ck_assert_uint_eq(attr_ino(0, 12345), 12345);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  1500
#define FILES   8

struct racer {
	struct client c;
	pthread_t thread;
	unsigned seed;
};

static atomic_uint_fast64_t seen_fh[FILES]; /* handles of others, to be used and released */

static void race_once(struct client *me, unsigned i)
{
	char name[8];
	uint64_t node, fh;
	int rc;

	snprintf(name, sizeof(name), "f%u", i % FILES);
	node = lookup(me, FUSE_ROOT_ID, name, &rc);
	if (rc == -EIO)
		return; /* just now reset */
	ck_assert_uint_ne(node, 0);
	rc = getattr(me, node);
	/* Another thread may have forgotten more than its own references. */
	ck_assert(rc == 0 || rc == -ESTALE || rc == -EIO);
	rc = open_node(me, FUSE_OPEN, node, O_RDWR, &fh);
	ck_assert(rc == 0 || rc == -ESTALE || rc == -EIO);
	if (rc == 0) {
		fh = atomic_exchange(&seen_fh[i % FILES], fh);
		rc = read_file(me, fh, 0, 16);
		ck_assert(rc == 1 || rc == -EBADF || rc == -EIO);
		release(me, FUSE_RELEASE, fh);
		release(me, FUSE_RELEASE, atomic_load(&seen_fh[i % FILES]));
	}
	forget(me, node, i % 5 == 0 ? 100 : 1);
}

static void *race(void *arg)
{
	struct racer *me = arg;

	ck_assert_int_eq(fuse_thread_init(me->c.s), 0);
	for (unsigned i = 0; i < ROUNDS; i++)
		race_once(&me->c, i * 7 + me->seed);
	return NULL;
}

START_TEST(queues_race)
{
	static struct racer racer[THREADS];
	unsigned before = count_fds();

	for (unsigned i = 0; i < FILES; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%u", i);
		host_write(&c, name, "x", 1);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		memcpy(&racer[i].c, &c, offsetof(struct client, in));
		racer[i].c.w = fuse_session_worker(c.s, i);
		racer[i].c.out_room = 4096;
		racer[i].seed = i;
		pthread_create(&racer[i].thread, NULL, race, &racer[i]);
	}
	for (unsigned i = 0; i < 20; i++) {
		fuse_session_reset(c.s);
		sched_yield();
		client_init_as(&c, 31, 0);
		usleep(2000);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(racer[i].thread, NULL);
	fuse_session_reset(c.s);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fuse_nodes");
	TCase *t = tcase_create("slots");

	tcase_add_test(t, slot_ids_never_come_again);
	tcase_add_test(t, slot_ids_that_lead_nowhere);
	suite_add_tcase(s, t);

	t = tcase_create("nodes");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, hard_links_are_one_node);
	tcase_add_test(t, forged_forget);
	tcase_add_test(t, batch_forget);
	tcase_add_test(t, forged_ids);
	tcase_add_test(t, many_nodes);
	tcase_add_test(t, deleted_file_keeps_its_node);
	tcase_add_test(t, numbers_of_domains_differ);
	tcase_add_test(t, queues_race);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(suite());
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
