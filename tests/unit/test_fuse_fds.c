/*
 * Descriptors run out: nodes give theirs up, what is refused, and that the limit is one.  All tests
 * run twice: nodes are found again by file handle (0), by name (1).
 */
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

static void session_of_128(bool by_name)
{
	struct rlimit rl = { .rlim_cur = 128, .rlim_max = 128 };
	struct fuse_opts o = { .workers = 8, .by_name = by_name };

	client_stop(&c);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	client_start(&c, &o);
}

/* A node that keeps its descriptor: the file has no name any more. */
static uint64_t node_that_keeps(void)
{
	uint64_t node;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(call(&c, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, "f"), 0);
	return node;
}

/* Open files of node until no more open.  How many. */
static int open_all(uint64_t node, uint64_t *fh)
{
	int n = 0;

	while (open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh[n]) == 0)
		n++;
	return n;
}

/* Which of n handles is above the limit. */
static int above(const uint64_t *fh, int n)
{
	for (int i = 0; i < n; i++) {
		struct handle *h = handle_get(c.s, fh[i], false);
		bool is_above = h && h->fd >= c.s->fd_limit;

		if (h)
			handle_put(c.s, h);
		if (is_above)
			return i;
	}
	ck_abort_msg("none");
	return -1;
}

static void name_of(char name[16], unsigned i)
{
	snprintf(name, 16, "f%u", i);
}

#define MANY 2000

/* Far more nodes than descriptors: none is refused, each is the file that it was, all the time. */
static void check_many_nodes(void)
{
	static uint64_t node[MANY], ino[MANY];
	char name[16];

	for (unsigned i = 0; i < MANY; i++) {
		name_of(name, i);
		host_write(&c, name, "x", 1);
		node[i] = lookup(&c, FUSE_ROOT_ID, name, NULL);
		ck_assert_uint_ne(node[i], 0);
		ino[i] = host_stat(&c, name).st_ino;
		ck_assert_uint_lt(count_fds(), 100);
	}
	for (unsigned i = 0; i < 2 * MANY; i++) {
		unsigned k = i * 7919 % MANY;
		uint64_t fh;

		ck_assert_int_eq(getattr(&c, node[k]), 0);
		ck_assert_uint_eq(attr(&c)->ino, ino[k]);
		ck_assert_int_eq(open_node(&c, FUSE_OPEN, node[k], O_RDWR, &fh), 0);
		ck_assert_int_eq(read_file(&c, fh, 0, 16), 1);
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
	}
	ck_assert_uint_lt(count_fds(), 100);
	for (unsigned i = 0; i < MANY; i++) {
		name_of(name, i);
		ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, name, NULL), node[i]);
		forget(&c, node[i], 2);
		ck_assert_int_eq(getattr(&c, node[i]), -ESTALE);
	}
}

START_TEST(nodes_share_descriptors)
{
	unsigned before;

	session_of_128(_i);
	before = count_fds();
	check_many_nodes();
	ck_assert_uint_eq(count_fds(), before);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
}
END_TEST

/* Open files are never given up; nodes make room for them, and are found all the same. */
START_TEST(open_files_come_first)
{
	uint64_t node[40], kept, fh[128];
	char name[16];
	int n;

	session_of_128(_i);
	for (unsigned i = 0; i < 40; i++) {
		name_of(name, i);
		host_write(&c, name, "x", 1);
		node[i] = lookup(&c, FUSE_ROOT_ID, name, NULL);
	}
	kept = node_that_keeps();
	n = open_all(kept, fh);
	ck_assert_int_gt(n, 80);
	for (unsigned i = 0; i < 40; i++) {
		ck_assert_int_eq(getattr(&c, node[i]), 0);
		ck_assert_uint_eq(attr(&c)->size, 1);
		name_of(name, i);
		ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, name, NULL), node[i]);
	}
	for (int i = 0; i < n; i++)
		ck_assert_int_gt(read_file(&c, fh[i], 0, 16), 0);
	ck_assert_int_eq(call(&c, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, "f0"), 0);
}
END_TEST

static void check_makers_refuse(uint64_t node)
{
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_mknod_in nod_in = { .mode = S_IFREG | 0644 };
	struct fuse_mkdir_in dir_in = { .mode = 0755 };
	struct fuse_setattr_in cut_in = { .valid = FATTR_SIZE };
	uint64_t fh;

	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_WRONLY | O_TRUNC, &fh), -ENFILE);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, cut_in, NULL), -ENFILE);
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, file_in, "new"), -ENFILE);
	ck_assert_int_eq(CALL(&c, FUSE_TMPFILE, FUSE_ROOT_ID, file_in, "/"), -ENFILE);
	ck_assert_int_eq(CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, nod_in, "new"), -ENFILE);
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, dir_in, "new"), -ENFILE);
	begin(&c, FUSE_SYMLINK, FUSE_ROOT_ID);
	put_str(&c, "new");
	put_str(&c, "target");
	ck_assert_int_eq(finish(&c), -ENFILE);
	ck_assert_int_eq(getattr(&c, node), 0);
	ck_assert_uint_eq(attr(&c)->size, 7);
	ck_assert_int_eq(access(host(&c, "new"), F_OK), -1);
}

/* What is refused has not been done. */
START_TEST(no_descriptor_no_effect)
{
	uint64_t new_node, fh[128];
	uint64_t node;
	int n;

	session_of_128(_i);
	node = node_that_keeps();
	n = open_all(node, fh);
	ck_assert_int_gt(n, 50);
	check_makers_refuse(node);
	check_makers_refuse(node);
	/* One that is given back is there for the next; what begins with one may end with two. */
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[--n]), 0);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[--n]), 0);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "made", O_RDWR, 0644, &new_node, &fh[n++]), 0);
	/* Its node has the second; open files come first. */
	ck_assert_int_eq(open_all(node, fh + n), 1 - _i);
	check_makers_refuse(node);
}
END_TEST

/* One hole below the limit lets in what takes two descriptors; one stays. */
START_TEST(holes_do_not_raise_the_limit)
{
	uint64_t fh[128], new_node[128], new_fh[128];
	int n, low = 0, made = 0;
	uint64_t node;

	session_of_128(_i);
	node = node_that_keeps();
	n = open_all(node, fh);
	ck_assert_int_gt(n, 50);
	for (; low < n - 1; low++) {
		char name[16];
		int rc;

		snprintf(name, sizeof(name), "new%d", low);
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[low]), 0);
		rc = create(&c, FUSE_ROOT_ID, name, O_RDWR, 0644, &new_node[made], &new_fh[made]);
		made += rc == 0;
		ck_assert_int_eq(access(host(&c, name), F_OK), rc == 0 ? 0 : -1);
		ck_assert_int_le(atomic_load(&c.s->fd_excess), c.s->fd_excess_max + 1);
	}
	ck_assert_uint_lt(count_fds(), 128);
	/* All that was above comes back. */
	while (made-- > 0) {
		ck_assert_int_eq(release(&c, FUSE_RELEASE, new_fh[made]), 0);
		forget(&c, new_node[made], 1);
	}
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[n - 1]), 0);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
	ck_assert_int_gt(open_all(node, fh), 0);
	fuse_session_reset(c.s);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
}
END_TEST

/* A file may stay open above the limit for good: what the others gave back is for use. */
START_TEST(one_kept_above_the_limit)
{
	uint64_t fh[128], kept;
	uint64_t node;
	int n, at;

	session_of_128(_i);
	node = node_that_keeps();
	n = open_all(node, fh);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 1);
	at = above(fh, n);
	kept = fh[at];
	fh[at] = fh[10];
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[i]), 0);
	ck_assert_int_eq(open_all(node, fh), 10);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 1);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, kept), 0);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
}
END_TEST

/* What is opened for the time of a request is counted for as long. */
START_TEST(excess_of_a_request_ends_with_it)
{
	struct fuse_setattr_in cut_in = { .valid = FATTR_SIZE };
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_syncfs_in sync_in = { 0 };
	uint64_t node, there, fh[128];
	int n;

	session_of_128(_i);
	host_write(&c, "there", "x", 1);
	there = lookup(&c, FUSE_ROOT_ID, "there", NULL);
	node = node_that_keeps();
	n = open_all(node, fh);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[above(fh, n)]), 0); /* the next one is */
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, cut_in, NULL), 0);
		ck_assert_int_eq(getattr(&c, there), 0);
		ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, sync_in, NULL), 0);
		ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, file_in, "there"), -ESTALE);
		ck_assert_int_le(atomic_load(&c.s->fd_excess), 1);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_fds");
	TCase *t = tcase_create("fds");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, nodes_share_descriptors, 0, 2);
	tcase_add_loop_test(t, open_files_come_first, 0, 2);
	tcase_add_loop_test(t, no_descriptor_no_effect, 0, 2);
	tcase_add_loop_test(t, holes_do_not_raise_the_limit, 0, 2);
	tcase_add_loop_test(t, one_kept_above_the_limit, 0, 2);
	tcase_add_loop_test(t, excess_of_a_request_ends_with_it, 0, 2);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
