/* Operations on data, attributes and directories. */
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

/* --- directories ------------------------------------------------------------------------------ */

static int list(uint32_t opcode, uint64_t fh, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size };
	int rc = CALL(&c, opcode, FUSE_ROOT_ID, in, NULL);

	return rc ? rc : (int)body_len(&c);
}

static struct fuse_dirent *dirent_at(int pos, bool plus)
{
	return (struct fuse_dirent *)(void *)((char *)body(&c) + pos +
					      (plus ? sizeof(struct fuse_entry_out) : 0));
}

static int dirent_len(const struct fuse_dirent *d, bool plus)
{
	return (int)(FUSE_DIRENT_SIZE(d) + (plus ? sizeof(struct fuse_entry_out) : 0));
}

static void make_files(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "file-%u-%.*s", i, (int)(i % 13), "long name end");
		host_write(&c, name, "x", 1);
	}
}

/* One pass with replies of size bytes; every name once; references as many as nodes named. */
static void list_all(bool plus, uint32_t size, unsigned want)
{
	uint32_t opcode = plus ? FUSE_READDIRPLUS : FUSE_READDIR;
	static uint64_t cookie[4096], node[4096];
	unsigned n = 0, nodes = 0, before = count_fds();
	uint64_t fh, off = 0;
	int len;

	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	while ((len = list(opcode, fh, off, size)) > 0) {
		ck_assert_int_le(len, (int)size);
		for (int pos = 0; pos < len;) {
			struct fuse_dirent *d = dirent_at(pos, plus);

			if (plus) {
				struct fuse_entry_out *e = (void *)((char *)body(&c) + pos);
				bool dot = d->name[0] == '.';

				ck_assert(dot == (e->nodeid == 0));
				if (e->nodeid)
					node[nodes++] = e->nodeid;
				ck_assert(dot || e->attr.ino == d->ino);
			}
			for (unsigned i = 0; i < n; i++)
				ck_assert_uint_ne(cookie[i], d->off);
			cookie[n++] = off = d->off;
			pos += dirent_len(d, plus);
		}
	}
	ck_assert_int_eq(len, 0);
	ck_assert_uint_eq(n, want + 2);
	/* Again from the middle, and once more at the end. */
	ck_assert_int_gt(list(opcode, fh, cookie[n / 2], size), 0);
	for (int pos = 0, rest = (int)body_len(&c); plus && pos < rest;) {
		struct fuse_entry_out *e = (void *)((char *)body(&c) + pos);

		if (e->nodeid)
			node[nodes++] = e->nodeid;
		pos += dirent_len(dirent_at(pos, true), true);
	}
	ck_assert_uint_eq(dirent_at(0, plus)->off, cookie[n / 2 + 1]);
	ck_assert_int_eq(list(opcode, fh, cookie[n - 1], size), 0);
	for (unsigned i = 0; i < nodes; i++)
		forget(&c, node[i], 1);
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, fh), 0);
	ck_assert_uint_eq(count_fds(), before);
}

START_TEST(listings)
{
	static const uint32_t sizes[] = { 300, 500, 4096, 65536, 1 << 20 };

	make_files(500);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		list_all(false, sizes[i], 500);
		list_all(true, sizes[i], 500);
	}
}
END_TEST

START_TEST(listing_without_room)
{
	uint64_t fh;

	make_files(3);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	ck_assert_int_eq(list(FUSE_READDIR, fh, 0, 8), -EINVAL);
	ck_assert_int_eq(list(FUSE_READDIRPLUS, fh, 0, 100), -EINVAL);
	ck_assert_int_eq(list(FUSE_READDIR, fh, UINT64_MAX, 4096), -EINVAL);
	c.out_room = 16 + 64;
	ck_assert_int_gt(list(FUSE_READDIR, fh, 0, UINT32_MAX), 0);
	ck_assert_int_le((int)body_len(&c), 64);
}
END_TEST

/* A listing from the start shows the directory of now, not what was read ahead. */
START_TEST(listing_again)
{
	uint64_t fh;
	int before;

	make_files(3);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &fh), 0);
	before = list(FUSE_READDIR, fh, 0, 4096);
	host_write(&c, "one-more", "x", 1);
	ck_assert_int_gt(list(FUSE_READDIR, fh, 0, 4096), before);
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
	tcase_add_test(t, handles_keep_their_access);
	tcase_add_test(t, append);
	if (geteuid() == 0)
		tcase_add_test(t, device_numbers);
	else
		printf("skipped: 1, device nodes take root\n");
	tcase_add_test(t, statx_answers);
	tcase_add_test(t, times_are_set);
	tcase_add_test(t, listings);
	tcase_add_test(t, listing_without_room);
	tcase_add_test(t, listing_again);
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
