/* Operations on data and attributes. */
#include <sys/sysmacros.h>

#include "tests/unit/fuse_client.h"

static struct client c;

static void setup(void)
{
	struct fuse_opts o = { 0 };

	client_start(&c, &o);
}

static void teardown(void)
{
	client_stop(&c);
}

/* --- read and write --------------------------------------------------------------------------- */

START_TEST(read_and_write)
{
	static char data[1024 * 1024];
	uint64_t node, fh;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 >> 3);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_int_eq(write_file(&c, fh, 5000, data, sizeof(data)), (int)sizeof(data));
	c.piece = 1024; /* more pieces than one preadv takes */
	ck_assert_int_eq(write_file(&c, fh, 0, data, 5000), 5000);
	ck_assert_int_eq(read_file(&c, fh, 5000, sizeof(data)), (int)sizeof(data));
	ck_assert_mem_eq(body(&c), data, sizeof(data));
	ck_assert_int_eq(read_file(&c, fh, 5000 + sizeof(data) - 10, 100), 10);
	ck_assert_int_eq(read_file(&c, fh, 5000 + sizeof(data), 100), 0);
	ck_assert_int_eq(read_file(&c, fh, INT64_MAX, 1), -EINVAL);
	ck_assert_int_eq(read_file(&c, fh, UINT64_MAX, 1), -EINVAL);
	ck_assert_int_eq(write_file(&c, fh, UINT64_MAX, data, 1), -EINVAL);
	ck_assert_int_eq(write_file(&c, fh, INT64_MAX, data, 1), -EINVAL);
	ck_assert_int_eq(getattr(&c, node), 0);
	ck_assert_uint_eq(attr(&c)->size, 5000 + sizeof(data));
}
END_TEST

START_TEST(write_claims_more_than_it_brings)
{
	struct fuse_write_in in = { .size = 100 };
	uint64_t node;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &in.fh), 0);
	begin(&c, FUSE_WRITE, node);
	put(&c, &in, sizeof(in));
	put(&c, "short", 5);
	ck_assert_int_eq(finish(&c), -EINVAL);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 0);
}
END_TEST

/* However much room a guest lays out, a lane is not held for more than was agreed. */
START_TEST(agreed_sizes_are_kept)
{
	struct fuse_opts o = { .max_write = 64 * 1024 };
	static char data[128 * 1024];
	uint64_t node, fh;

	client_stop(&c);
	client_start(&c, &o);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_int_eq(write_file(&c, fh, 0, data, 64 * 1024), 64 * 1024);
	ck_assert_int_eq(write_file(&c, fh, 0, data, 64 * 1024 + 1), -EINVAL);
	ck_assert_int_eq(write_file(&c, fh, 64 * 1024, data, 64 * 1024), 64 * 1024);
	ck_assert_int_eq(read_file(&c, fh, 0, sizeof(data)), 64 * 1024);
	ck_assert_int_eq(read_file(&c, fh, 0, UINT32_MAX), 64 * 1024);
}
END_TEST

START_TEST(handles_keep_their_access)
{
	uint64_t node, r, w;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &r), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_WRONLY, &w), 0);
	ck_assert_int_eq(write_file(&c, r, 0, "x", 1), -EBADF);
	ck_assert_int_eq(read_file(&c, w, 0, 1), -EBADF);
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, r), -EBADF);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, r), 0);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, r), -EBADF);
	ck_assert_int_eq(read_file(&c, r, 0, 1), -EBADF);
}
END_TEST

/* O_APPEND counts when it comes with a write of the caller's, not with pages written back late. */
START_TEST(append)
{
	struct fuse_write_in in = { .size = 3, .flags = O_WRONLY | O_APPEND };
	uint64_t node;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR | O_APPEND, &in.fh), 0);
	ck_assert_int_eq(write_as(&c, in, "123"), 3);
	in.write_flags = FUSE_WRITE_CACHE;
	ck_assert_int_eq(write_as(&c, in, "CON"), 3);
	in.write_flags = 0;
	in.flags = O_WRONLY; /* fcntl() took the flag away */
	in.offset = 4;
	ck_assert_int_eq(write_as(&c, in, "ENT"), 3);
	ck_assert_int_eq(read_file(&c, in.fh, 0, 100), 10);
	ck_assert_mem_eq(body(&c), "CONtENT123", 10);
}
END_TEST

/* --- attributes ------------------------------------------------------------------------------- */

START_TEST(device_numbers)
{
	static const struct {
		unsigned major, minor;
	} dev[] = { { 1, 3 }, { 8, 17 }, { 254, 255 }, { 259, 70000 }, { 4095, 1048575 } };

	for (unsigned i = 0; i < ARRAY_SIZE(dev); i++) {
		uint32_t rdev =
			(dev[i].minor & 0xff) | dev[i].major << 8 | (dev[i].minor & ~0xffu) << 12;
		struct fuse_mknod_in in = { .mode = S_IFBLK | 0600, .rdev = rdev };
		char name[8];

		snprintf(name, sizeof(name), "b%u", i);
		if (CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, in, name) == -EPERM)
			return;
		ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.rdev, rdev);
		ck_assert_uint_eq(host_stat(&c, name).st_rdev, makedev(dev[i].major, dev[i].minor));
	}
}
END_TEST

START_TEST(statx_answers)
{
	struct fuse_statx_in in = { .sx_mask = UINT32_MAX };
	struct fuse_statx_out *out = body(&c);
	struct stat st;
	uint64_t node;

	host_write(&c, "f", "content", 7);
	st = host_stat(&c, "f");
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(CALL(&c, FUSE_STATX, node, in, NULL), 0);
	ck_assert_uint_eq(out->stat.size, 7);
	ck_assert_uint_eq(out->stat.ino, st.st_ino);
	ck_assert_uint_eq(out->stat.mode, st.st_mode);
	ck_assert_int_eq(out->stat.mtime.tv_sec, st.st_mtim.tv_sec);
	ck_assert_uint_eq(out->stat.mtime.tv_nsec, (uint32_t)st.st_mtim.tv_nsec);
}
END_TEST

/* Links of procfs say 0; a guest cuts the target at the size it was told. */
START_TEST(statx_tells_the_size_of_any_link)
{
	struct fuse_opts o = { .path = "/proc", .workers = 1 };
	struct fuse_statx_in in = { .sx_mask = UINT32_MAX };
	struct fuse_statx_out *out = body(&c);
	uint64_t node, size;

	fuse_session_destroy(c.s);
	ck_assert_int_eq(fuse_session_create(&o, &c.s), 0);
	c.w = fuse_session_worker(c.s, 0);
	ck_assert_int_eq(client_init_as(&c, 45, 0), 0);
	node = lookup(&c, FUSE_ROOT_ID, "self", NULL);
	ck_assert_int_eq(getattr(&c, node), 0);
	size = attr(&c)->size;
	ck_assert_uint_ge(size, 1);
	ck_assert_int_eq(CALL(&c, FUSE_STATX, node, in, NULL), 0);
	ck_assert_uint_eq(out->stat.size, size);
}
END_TEST

START_TEST(times_are_set)
{
	struct fuse_setattr_in in = { .valid = FATTR_ATIME | FATTR_MTIME,
				      .atime = (uint64_t)-100,
				      .atimensec = 1,
				      .mtime = 4000000000u,
				      .mtimensec = 999999999 };
	uint64_t node;

	ck_assert_int_eq(symlink("x", host(&c, "l")), 0);
	node = lookup(&c, FUSE_ROOT_ID, "l", NULL);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_int_eq((int64_t)attr(&c)->atime, -100);
	ck_assert_uint_eq(attr(&c)->atimensec, 1);
	ck_assert_uint_eq(attr(&c)->mtime, 4000000000u);
	in.valid = FATTR_MTIME | FATTR_MTIME_NOW;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_int_eq((int64_t)attr(&c)->atime, -100);
	ck_assert_uint_lt(attr(&c)->mtime, 4000000000u);
	in.valid = FATTR_ATIME;
	in.atimensec = 1000000000;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), -EINVAL);
}
END_TEST

/* --- extended attributes ---------------------------------------------------------------------- */

static int setxattr_as(uint64_t node, const char *name, const void *value, size_t len)
{
	struct fuse_setxattr_in in = { .size = (uint32_t)len };

	begin(&c, FUSE_SETXATTR, node);
	put(&c, &in, WIRE_SETXATTR_IN_MIN);
	put_str(&c, name);
	put(&c, value, len);
	return finish(&c);
}

static int getxattr_as(uint64_t node, const char *name, uint32_t size)
{
	struct fuse_getxattr_in in = { .size = size };
	int rc = CALL(&c, FUSE_GETXATTR, node, in, name);

	return rc ? rc : (int)body_len(&c);
}

START_TEST(xattrs)
{
	struct fuse_getxattr_out *out = body(&c);
	struct fuse_getxattr_in ask = { 0 };
	uint64_t node;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	if (setxattr_as(node, "user.a", "value", 5) == -EOPNOTSUPP)
		return;
	ck_assert_int_eq(getxattr_as(node, "user.a", 0), (int)sizeof(*out));
	ck_assert_uint_eq(out->size, 5);
	ck_assert_int_eq(getxattr_as(node, "user.a", 100), 5);
	ck_assert_mem_eq(body(&c), "value", 5);
	ck_assert_int_eq(getxattr_as(node, "user.a", 4), -ERANGE);
	ck_assert_int_eq(getxattr_as(node, "user.none", 100), -ENODATA);
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, ask, NULL), 0);
	ck_assert_uint_eq(out->size, 7);
	ask.size = 6;
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, ask, NULL), -ERANGE);
	ask.size = 7;
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, ask, NULL), 0);
	ck_assert_mem_eq(body(&c), "user.a", 7);
	ck_assert_int_eq(call(&c, FUSE_REMOVEXATTR, node, NULL, 0, "user.a"), 0);
	ck_assert_int_eq(call(&c, FUSE_REMOVEXATTR, node, NULL, 0, "user.a"), -ENODATA);
}
END_TEST

START_TEST(xattrs_out_of_shape)
{
	static char big[65537];
	struct fuse_setxattr_in in = { .size = 100 };
	char name[300];
	uint64_t node;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(setxattr_as(node, "user.a", big, sizeof(big)), -E2BIG);
	ck_assert_int_eq(setxattr_as(node, "system.posix_acl_access", "x", 1), -EOPNOTSUPP);
	ck_assert_int_eq(getxattr_as(node, "system.posix_acl_access", 0), -EOPNOTSUPP);
	begin(&c, FUSE_SETXATTR, node);
	put(&c, &in, WIRE_SETXATTR_IN_MIN);
	put_str(&c, "user.a");
	put(&c, "short", 5);
	ck_assert_int_eq(finish(&c), -EINVAL);
	memset(name, 'a', sizeof(name));
	name[256] = '\0';
	ck_assert_int_eq(getxattr_as(node, name, 0), -ERANGE);
	ck_assert_int_lt(getxattr_as(node, "", 0), 0);
}
END_TEST

/* --- the rest --------------------------------------------------------------------------------- */

START_TEST(seeks)
{
	struct fuse_lseek_in in = { .whence = SEEK_DATA };
	struct fuse_lseek_out *out = body(&c);
	uint64_t node;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &in.fh), 0);
	ck_assert_int_eq(write_file(&c, in.fh, 0, "x", 1), 1);
	ck_assert_int_eq(CALL(&c, FUSE_LSEEK, node, in, NULL), 0);
	ck_assert_uint_eq(out->offset, 0);
	in.whence = SEEK_HOLE;
	ck_assert_int_eq(CALL(&c, FUSE_LSEEK, node, in, NULL), 0);
	ck_assert_uint_eq(out->offset, 1);
	in.offset = 5;
	ck_assert_int_eq(CALL(&c, FUSE_LSEEK, node, in, NULL), -ENXIO);
	in.whence = SEEK_SET;
	ck_assert_int_eq(CALL(&c, FUSE_LSEEK, node, in, NULL), -EINVAL);
}
END_TEST

START_TEST(copies)
{
	struct fuse_copy_file_range_in in = { .off_in = 1, .off_out = 2, .len = 100 };
	uint64_t node;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "a", O_RDWR, 0644, &node, &in.fh_in), 0);
	ck_assert_int_eq(write_file(&c, in.fh_in, 0, "content", 7), 7);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "b", O_RDWR, 0644, &node, &in.fh_out), 0);
	ck_assert_int_eq(CALL(&c, FUSE_COPY_FILE_RANGE, node, in, NULL), 0);
	ck_assert_uint_eq(((struct fuse_write_out *)body(&c))->size, 6);
	ck_assert_int_eq(CALL(&c, FUSE_COPY_FILE_RANGE_64, node, in, NULL), 0);
	ck_assert_uint_eq(((struct fuse_copy_file_range_out *)body(&c))->bytes_copied, 6);
	ck_assert_int_eq(read_file(&c, in.fh_out, 0, 100), 8);
	ck_assert_mem_eq(body(&c), "\0\0ontent", 8);
	in.off_in = UINT64_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_COPY_FILE_RANGE, node, in, NULL), -EINVAL);
}
END_TEST

START_TEST(absent_names_are_remembered)
{
	int rc;

	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "absent", &rc), 0);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->entry_valid, 1);
}
END_TEST

START_TEST(nothing_is_remembered_without_cache)
{
	struct fuse_opts o = { .cache = FUSE_CACHE_NONE };
	uint64_t node, fh;
	int rc;

	client_stop(&c);
	client_start(&c, &o);
	lookup(&c, FUSE_ROOT_ID, "absent", &rc);
	ck_assert_int_eq(rc, -ENOENT);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr_valid, 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR, &fh), 0);
	ck_assert_uint_ne(((struct fuse_open_out *)body(&c))->open_flags & FOPEN_DIRECT_IO, 0);
}
END_TEST

static void add_operations(Suite *s)
{
	TCase *t = tcase_create("operations");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, read_and_write);
	tcase_add_test(t, write_claims_more_than_it_brings);
	tcase_add_test(t, agreed_sizes_are_kept);
	tcase_add_test(t, handles_keep_their_access);
	tcase_add_test(t, append);
	if (geteuid() == 0)
		tcase_add_test(t, device_numbers);
	else
		printf("skipped: 1, device nodes take root\n");
	tcase_add_test(t, statx_answers);
	tcase_add_test(t, statx_tells_the_size_of_any_link);
	tcase_add_test(t, times_are_set);
	tcase_add_test(t, xattrs);
	tcase_add_test(t, xattrs_out_of_shape);
	tcase_add_test(t, seeks);
	tcase_add_test(t, copies);
	tcase_add_test(t, absent_names_are_remembered);
	tcase_add_test(t, nothing_is_remembered_without_cache);
	suite_add_tcase(s, t);
}

int main(void)
{
	Suite *s = suite_create("fuse_ops");
	SRunner *r;
	int failed;

	add_operations(s);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
