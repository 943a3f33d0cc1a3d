/* Descriptors run out: what is refused, and that the limit is one. */
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

static void session_of_128(void)
{
	struct rlimit rl = { .rlim_cur = 128, .rlim_max = 128 };

	client_stop(&c);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	setup();
}

/* Open files of node until no more open.  How many. */
static int open_all(uint64_t node, uint64_t *fh)
{
	int n = 0;

	while (open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh[n]) == 0)
		n++;
	return n;
}

START_TEST(descriptors_run_out)
{
	unsigned made = 0;
	uint64_t node[128];
	int rc = 0;

	session_of_128();
	for (unsigned i = 0; i < 128 && rc == 0; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		host_write(&c, name, "x", 1); /* works all the time: some descriptors are left */
		node[made] = lookup(&c, FUSE_ROOT_ID, name, &rc);
		made += rc == 0;
	}
	ck_assert_int_eq(rc, -ENFILE);
	ck_assert_uint_gt(made, 50);
	while (made > 0)
		forget(&c, node[--made], 1);
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, "f0", NULL), 0);
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
	ck_assert_int_eq(host_stat(&c, "f").st_size, 7);
	ck_assert_int_eq(access(host(&c, "new"), F_OK), -1);
}

/* What is refused has not been done. */
START_TEST(no_descriptor_no_effect)
{
	uint64_t node, new_node, fh[128];
	int n;

	session_of_128();
	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	n = open_all(node, fh);
	ck_assert_int_gt(n, 50);
	check_makers_refuse(node);
	check_makers_refuse(node);
	/* One that is given back is there for the next; what begins with one may end with two. */
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[--n]), 0);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[--n]), 0);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "made", O_RDWR, 0644, &new_node, &fh[n]), 0);
	check_makers_refuse(node);
}
END_TEST

/* One hole below the limit lets in what takes two descriptors; both stay. */
START_TEST(holes_do_not_raise_the_limit)
{
	uint64_t node, fh[128], new_node[128], new_fh[128];
	int n, low = 0, made = 0, rc = 0;

	session_of_128();
	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	n = open_all(node, fh);
	ck_assert_int_gt(n, 50);
	for (; low < n - 1 && rc == 0; low++) {
		char name[16];

		snprintf(name, sizeof(name), "new%d", low);
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[low]), 0);
		rc = create(&c, FUSE_ROOT_ID, name, O_RDWR, 0644, &new_node[made], &new_fh[made]);
		made += rc == 0;
		ck_assert_int_eq(access(host(&c, name), F_OK), rc == 0 ? 0 : -1);
	}
	ck_assert_int_eq(rc, -ENFILE);
	ck_assert_int_lt(made, 16);
	check_makers_refuse(node);
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

/* The last file that was opened may stay open for good: what the others gave back is for use. */
START_TEST(one_kept_above_the_limit)
{
	uint64_t node, fh[128];
	int n;

	session_of_128();
	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	n = open_all(node, fh);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 1);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[i]), 0);
	ck_assert_int_eq(open_all(node, fh), 10);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 1);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[n - 1]), 0);
	ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
}
END_TEST

/* What is opened for the time of a request is counted for as long. */
START_TEST(excess_of_a_request_ends_with_it)
{
	struct fuse_setattr_in cut_in = { .valid = FATTR_SIZE };
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_syncfs_in sync_in = { 0 };
	uint64_t node, fh[128];
	int n;

	session_of_128();
	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	n = open_all(node, fh);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh[n - 1]), 0); /* the next one is above */
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, cut_in, NULL), 0);
		ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, sync_in, NULL), 0);
		ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, file_in, "f"), -ESTALE);
		ck_assert_int_eq(atomic_load(&c.s->fd_excess), 0);
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
	tcase_add_test(t, descriptors_run_out);
	tcase_add_test(t, no_descriptor_no_effect);
	tcase_add_test(t, holes_do_not_raise_the_limit);
	tcase_add_test(t, one_kept_above_the_limit);
	tcase_add_test(t, excess_of_a_request_ends_with_it);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
