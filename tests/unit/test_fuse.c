/* The session: INIT, framing of requests and replies, names, read-only shares. */
#include "tests/unit/fuse_client.h"

#define WIRE_ENTRY_LEN sizeof(struct fuse_entry_out)

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

/* --- INIT ------------------------------------------------------------------------------------- */

static struct fuse_init_out *init_out(void)
{
	return body(&c);
}

START_TEST(init_offers_only_what_was_asked)
{
	ck_assert_int_eq(client_init_as(&c, 31, FUSE_ASYNC_READ | FUSE_MAX_PAGES | FUSE_POSIX_ACL),
			 0);
	ck_assert_uint_eq(init_out()->flags, FUSE_ASYNC_READ | FUSE_MAX_PAGES);
	ck_assert_uint_eq(init_out()->flags2, 0);
	ck_assert_uint_eq(init_out()->minor, 31);
	ck_assert_uint_eq(body_len(&c), 64);
}
END_TEST

START_TEST(init_offers_nothing_that_is_not_there)
{
	uint64_t never = FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_EXPORT_SUPPORT |
			 FUSE_SPLICE_READ | FUSE_WRITEBACK_CACHE | FUSE_NO_OPEN_SUPPORT |
			 FUSE_POSIX_ACL | FUSE_MAP_ALIGNMENT | FUSE_HANDLE_KILLPRIV |
			 FUSE_SETXATTR_EXT | FUSE_SECURITY_CTX | FUSE_HAS_INODE_DAX;
	uint64_t got;

	ck_assert_int_eq(client_init_as(&c, 45, ~(uint64_t)0), 0);
	got = init_out()->flags | (uint64_t)init_out()->flags2 << 32;
	ck_assert_uint_eq(got & never, 0);
}
END_TEST

START_TEST(init_sizes)
{
	ck_assert_int_eq(client_init_as(&c, 36, FUSE_MAX_PAGES | FUSE_INIT_EXT), 0);
	ck_assert_uint_eq(init_out()->max_write, 1024 * 1024);
	ck_assert_uint_eq(init_out()->max_pages, 256);
	ck_assert_int_eq(client_init_as(&c, 27, FUSE_ASYNC_READ), 0);
	ck_assert_uint_eq(init_out()->max_write, 128 * 1024);
}
END_TEST

START_TEST(init_high_flags_need_the_extension)
{
	ck_assert_int_eq(client_init_as(&c, 38, FUSE_CREATE_SUPP_GROUP | FUSE_INIT_EXT), 0);
	ck_assert_uint_ne(init_out()->flags2, 0);
	ck_assert_int_eq(client_init_as(&c, 38, FUSE_CREATE_SUPP_GROUP), 0);
	ck_assert_uint_eq(init_out()->flags2, 0);
}
END_TEST

START_TEST(init_versions)
{
	struct fuse_init_in in = { .major = 8, .minor = 1 };

	ck_assert_int_eq(CALL(&c, FUSE_INIT, 0, in, NULL), 0);
	ck_assert_uint_eq(init_out()->major, 7);
	ck_assert_int_eq(client_init_as(&c, 26, 0), -EPROTO);
	in.major = 6;
	ck_assert_int_eq(CALL(&c, FUSE_INIT, 0, in, NULL), -EPROTO);
	ck_assert_int_eq(client_init_as(&c, 99, 0), 0);
	ck_assert_uint_eq(init_out()->minor, WIRE_MINOR_MAX);
}
END_TEST

START_TEST(nothing_is_served_before_init)
{
	ck_assert_int_eq(call(&c, FUSE_DESTROY, 0, NULL, 0, NULL), 0);
	ck_assert_int_eq(getattr(&c, FUSE_ROOT_ID), -EIO);
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_int_eq(getattr(&c, FUSE_ROOT_ID), 0);
}
END_TEST

START_TEST(second_init_forgets_everything)
{
	uint64_t node, fh, dir;
	unsigned before = count_fds();

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &dir), 0);
	ck_assert_uint_gt(count_fds(), before);
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_uint_eq(count_fds(), before);
	ck_assert_int_eq(getattr(&c, node), -ESTALE);
	ck_assert_int_eq(read_file(&c, fh, 0, 10), -EBADF);
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, dir), -EBADF);
}
END_TEST

/* --- framing ---------------------------------------------------------------------------------- */

START_TEST(unknown_opcodes)
{
	static const uint32_t unknown[] = { 0, 7, 19, FUSE_BMAP, 54, 99, 4096, UINT32_MAX };

	for (unsigned i = 0; i < ARRAY_SIZE(unknown); i++)
		ck_assert_int_eq(call(&c, unknown[i], FUSE_ROOT_ID, NULL, 0, NULL), -ENOSYS);
}
END_TEST

/* Every opcode, cut at every length up to a header, a body and a name: no crash, never success. */
START_TEST(truncated_requests)
{
	char names[] = "one\0two\0three";

	for (uint32_t opcode = 0; opcode < 60; opcode++) {
		for (size_t len = 0; len < 200; len++) {
			struct fuse_in_header *h = begin(&c, opcode, FUSE_ROOT_ID);
			char zeros[200] = { 0 };
			ssize_t n;

			put(&c, zeros, 104);
			put(&c, names, sizeof(names));
			h->len = (uint32_t)len;
			c.in_len = len;
			n = send_raw(&c);
			if (len < sizeof(*h))
				ck_assert_int_eq(n, -EPROTO);
			else
				ck_assert(n == 0 || n >= 16);
			if (opcode == FUSE_INIT)
				client_init_as(&c, 31, 0);
		}
	}
}
END_TEST

START_TEST(header_claims_more_than_arrived)
{
	struct fuse_in_header *h = begin(&c, FUSE_LOOKUP, FUSE_ROOT_ID);

	put_str(&c, "name");
	h->len = (uint32_t)c.in_len + 1;
	ck_assert_int_eq(send_raw(&c), 16);
	ck_assert_int_eq(reply_head(&c)->error, -EINVAL);
	h->len = 39;
	ck_assert_int_eq(send_raw(&c), 16);
	ck_assert_int_eq(reply_head(&c)->error, -EINVAL);
	h->len = UINT32_MAX;
	ck_assert_int_eq(send_raw(&c), 16);
	ck_assert_int_eq(reply_head(&c)->error, -EINVAL);
}
END_TEST

/* A name must end within the request even when a NUL follows in the buffer. */
START_TEST(name_ends_within_the_request)
{
	struct fuse_in_header *h = begin(&c, FUSE_LOOKUP, FUSE_ROOT_ID);

	put_str(&c, "name");
	h->len = (uint32_t)c.in_len - 1;
	ck_assert_int_eq(send_raw(&c), 16);
	ck_assert_int_eq(reply_head(&c)->error, -EINVAL);
}
END_TEST

/* A reply that does not fit is refused before anything is done, so no reference is lost. */
START_TEST(replies_that_do_not_fit)
{
	struct fuse_mkdir_in in = { .mode = 0755 };
	struct fuse_in_header *h;
	unsigned before;

	host_write(&c, "f", "x", 1);
	before = count_fds();
	for (c.out_room = 0; c.out_room < 16 + WIRE_ENTRY_LEN; c.out_room++) {
		ssize_t want = c.out_room < 16 ? -EPROTO : 16;

		h = begin(&c, FUSE_LOOKUP, FUSE_ROOT_ID);
		put_str(&c, "f");
		h->len = (uint32_t)c.in_len;
		ck_assert_int_eq(send_raw(&c), want);
		h = begin(&c, FUSE_MKDIR, FUSE_ROOT_ID);
		put(&c, &in, sizeof(in));
		put_str(&c, "d");
		h->len = (uint32_t)c.in_len;
		ck_assert_int_eq(send_raw(&c), want);
	}
	c.out_room = sizeof(c.out);
	ck_assert_uint_eq(count_fds(), before);
	ck_assert_int_eq(access(host(&c, "d"), F_OK), -1);
}
END_TEST

START_TEST(buffers_in_pieces)
{
	static const size_t pieces[] = { 1, 2, 3, 7, 39, 41, 4096 };

	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++) {
		uint64_t node, fh, dir;
		char name[16];

		c.piece = pieces[i];
		c.out_room = 2000;
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(create(&c, FUSE_ROOT_ID, name, O_RDWR, 0600, &node, &fh), 0);
		ck_assert_int_eq(write_file(&c, fh, 3, "hello", 5), 5);
		ck_assert_int_eq(read_file(&c, fh, 0, 100), 8);
		ck_assert_mem_eq(body(&c), "\0\0\0hello", 8);
		ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
		ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &dir), 0);
		ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, dir), 0);
	}
}
END_TEST

START_TEST(extensions_out_of_shape)
{
	struct fuse_mkdir_in in = { .mode = 0755 };
	struct fuse_ext_header ext = { .size = 16, .type = FUSE_EXT_GROUPS };
	static const uint32_t sizes[] = { 0, 1, 7, 8, 15, 24, UINT32_MAX };

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct fuse_in_header *h = begin(&c, FUSE_MKDIR, FUSE_ROOT_ID);

		put(&c, &in, sizeof(in));
		put_str(&c, "d");
		ext.size = sizes[i];
		put(&c, &ext, sizeof(ext));
		put(&c, &(uint64_t){ 0 }, 8);
		h->total_extlen = 2;
		/* Two empty extensions of 8 bytes are in order; a size that lies is not. */
		if (sizes[i] != 8)
			ck_assert_int_eq(finish(&c), -EINVAL);
	}
	begin(&c, FUSE_GETATTR, FUSE_ROOT_ID)->total_extlen = UINT16_MAX;
	ck_assert_int_eq(finish(&c), -EINVAL);
}
END_TEST

/* --- names ------------------------------------------------------------------------------------ */

static int rc_of_name(uint32_t opcode, const char *name)
{
	static const char zeros[104];
	size_t len = 0;

	switch (opcode) {
	case FUSE_MKNOD:
		len = sizeof(struct fuse_mknod_in);
		break;
	case FUSE_MKDIR:
		len = sizeof(struct fuse_mkdir_in);
		break;
	case FUSE_CREATE:
		len = sizeof(struct fuse_create_in);
		break;
	case FUSE_LINK:
		len = sizeof(struct fuse_link_in);
		break;
	}
	begin(&c, opcode, FUSE_ROOT_ID);
	put(&c, zeros, len);
	put_str(&c, name);
	put_str(&c, "second");
	return finish(&c);
}

START_TEST(crafted_names)
{
	static const uint32_t named[] = { FUSE_LOOKUP, FUSE_MKNOD,  FUSE_MKDIR, FUSE_CREATE,
					  FUSE_LINK,   FUSE_UNLINK, FUSE_RMDIR, FUSE_SYMLINK };
	static const char *const bad[] = { "", ".", "..", "/", "a/b", "../x", "a/", "/etc" };
	char longest[1100];

	memset(longest, 'n', sizeof(longest));
	longest[1025] = '\0'; /* longer than any host's */
	for (unsigned i = 0; i < ARRAY_SIZE(named); i++) {
		for (unsigned j = 0; j < ARRAY_SIZE(bad); j++)
			ck_assert_int_eq(rc_of_name(named[i], bad[j]), -EINVAL);
		ck_assert_int_eq(rc_of_name(named[i], longest), -ENAMETOOLONG);
	}
	longest[1024] = '\0'; /* longer than this host's */
	ck_assert_int_eq(rc_of_name(FUSE_MKDIR, longest), -ENAMETOOLONG);
	longest[255] = '\0';
	ck_assert_int_eq(rc_of_name(FUSE_MKDIR, longest), 0);
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, longest, NULL), 0);
}
END_TEST

START_TEST(crafted_names_in_rename)
{
	struct fuse_rename_in in = { .newdir = FUSE_ROOT_ID };
	static const char *const bad[] = { "", ".", "..", "a/b", "../x" };

	host_write(&c, "f", "x", 1);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(&c, FUSE_RENAME, FUSE_ROOT_ID);
		put(&c, &in, sizeof(in));
		put_str(&c, "f");
		put_str(&c, bad[i]);
		ck_assert_int_eq(finish(&c), -EINVAL);
		begin(&c, FUSE_RENAME, FUSE_ROOT_ID);
		put(&c, &in, sizeof(in));
		put_str(&c, bad[i]);
		put_str(&c, "g");
		ck_assert_int_eq(finish(&c), -EINVAL);
	}
	ck_assert_int_eq(access(host(&c, "f"), F_OK), 0);
}
END_TEST

/* --- read-only -------------------------------------------------------------------------------- */

static void setup_readonly(void)
{
	struct fuse_opts o = { .readonly = true };

	client_start(&c, &o);
	host_write(&c, "f", "content", 7);
}

START_TEST(readonly_changes_nothing)
{
	static const uint32_t changes[] = {
		FUSE_SETATTR, FUSE_SYMLINK,   FUSE_MKNOD,       FUSE_MKDIR,
		FUSE_UNLINK,  FUSE_RMDIR,     FUSE_RENAME,      FUSE_LINK,
		FUSE_WRITE,   FUSE_SETXATTR,  FUSE_REMOVEXATTR, FUSE_CREATE,
		FUSE_RENAME2, FUSE_FALLOCATE, FUSE_TMPFILE,     FUSE_COPY_FILE_RANGE,
	};
	char zeros[104] = { 0 };
	uint64_t node, fh;

	for (unsigned i = 0; i < ARRAY_SIZE(changes); i++)
		ck_assert_int_eq(call(&c, changes[i], FUSE_ROOT_ID, zeros, sizeof(zeros), "f"),
				 -EROFS);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR, &fh), -EROFS);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_WRONLY, &fh), -EROFS);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY | O_TRUNC, &fh), -EROFS);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	ck_assert_int_eq(read_file(&c, fh, 0, 100), 7);
}
END_TEST

static void set_old(const char *path)
{
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_nsec = UTIME_OMIT } };

	ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
}

/* The base of an overlay is a read-only share, and the host's folder may be a package's own. */
START_TEST(readonly_leaves_access_times_alone)
{
	struct fuse_read_in in = { .size = 4096 };
	uint64_t node, fh;

	host_write(&c, "f", "content", 7);
	set_old(host(&c, "f"));
	set_old(c.share);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	ck_assert_int_eq(read_file(&c, fh, 0, 100), 7);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, O_RDONLY, &fh), 0);
	in.fh = fh;
	ck_assert_int_eq(CALL(&c, FUSE_READDIR, FUSE_ROOT_ID, in, NULL), 0);
	ck_assert_int_eq(host_stat(&c, "f").st_atime, 1000);
	ck_assert_int_eq(host_stat(&c, "").st_atime, 1000);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fuse");
	TCase *t = tcase_create("session");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, init_offers_only_what_was_asked);
	tcase_add_test(t, init_offers_nothing_that_is_not_there);
	tcase_add_test(t, init_sizes);
	tcase_add_test(t, init_high_flags_need_the_extension);
	tcase_add_test(t, init_versions);
	tcase_add_test(t, nothing_is_served_before_init);
	tcase_add_test(t, second_init_forgets_everything);
	tcase_add_test(t, unknown_opcodes);
	tcase_add_test(t, truncated_requests);
	tcase_add_test(t, header_claims_more_than_arrived);
	tcase_add_test(t, name_ends_within_the_request);
	tcase_add_test(t, replies_that_do_not_fit);
	tcase_add_test(t, buffers_in_pieces);
	tcase_add_test(t, extensions_out_of_shape);
	tcase_add_test(t, crafted_names);
	tcase_add_test(t, crafted_names_in_rename);
	suite_add_tcase(s, t);

	t = tcase_create("readonly");
	tcase_add_checked_fixture(t, setup_readonly, teardown);
	tcase_add_test(t, readonly_changes_nothing);
	tcase_add_test(t, readonly_leaves_access_times_alone);
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
