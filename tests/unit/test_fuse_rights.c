/* What never may happen: special files opened, links followed, files made for the wrong user. */
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

static bool is_root(void)
{
	return geteuid() == 0;
}

/* --- files that may not be opened ------------------------------------------------------------- */

START_TEST(special_files_are_never_opened)
{
	static const struct {
		const char *name;
		int open_error;
	} files[] = { { "fifo", -ENXIO }, { "link", -ELOOP }, { "dir", -EISDIR } };
	struct fuse_setattr_in truncate_in = { .valid = FATTR_SIZE };
	uint64_t node, fh;

	ck_assert_int_eq(mkfifo(host(&c, "fifo"), 0666), 0);
	ck_assert_int_eq(symlink("/etc/passwd", host(&c, "link")), 0);
	ck_assert_int_eq(mkdir(host(&c, "dir"), 0755), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		node = lookup(&c, FUSE_ROOT_ID, files[i].name, NULL);
		ck_assert_uint_ne(node, 0);
		for (uint32_t flags = 0; flags < 4; flags++)
			ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, flags | O_NONBLOCK, &fh),
					 files[i].open_error);
		ck_assert_int_lt(CALL(&c, FUSE_SETATTR, node, truncate_in, NULL), 0);
		if (strcmp(files[i].name, "dir"))
			ck_assert_int_lt(open_node(&c, FUSE_OPENDIR, node, 0, &fh), 0);
	}
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, node, 0, &fh), -ENOTDIR);
}
END_TEST

START_TEST(create_never_opens_what_exists)
{
	uint64_t node, fh;

	host_write(&c, "f", "content", 7);
	ck_assert_int_eq(symlink("target", host(&c, "link")), 0);
	ck_assert_int_eq(mkfifo(host(&c, "fifo"), 0666), 0);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR | O_TRUNC, 0644, &node, &fh),
			 -ESTALE);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR | O_EXCL, 0644, &node, &fh), -EEXIST);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "link", O_RDWR, 0644, &node, &fh), -ESTALE);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "fifo", O_RDWR, 0644, &node, &fh), -ESTALE);
	ck_assert_int_eq(access(host(&c, "target"), F_OK), -1);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 7);
}
END_TEST

START_TEST(create_makes_regular_files_only)
{
	struct fuse_create_in in = { .flags = O_CREAT | O_RDWR, .mode = S_IFCHR | 0666 };

	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "dev"), -EINVAL);
	in.mode = S_IFIFO | 0666;
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "dev"), -EINVAL);
	in.mode = 0640;
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "f"), 0);
	ck_assert_uint_eq(host_stat(&c, "f").st_mode, S_IFREG | 0640);
}
END_TEST

/* Flags of open() that would change what is opened do not reach the host. */
START_TEST(open_flags_are_filtered)
{
	uint64_t node, fh;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node,
				   O_RDWR | O_CREAT | O_EXCL | O_PATH | O_DIRECTORY | O_TMPFILE |
					   O_DIRECT | O_ASYNC | O_APPEND,
				   &fh),
			 0);
	ck_assert_int_eq(write_file(&c, fh, 1, "OO", 2), 2);
	ck_assert_int_eq(read_file(&c, fh, 0, 100), 7);
	ck_assert_mem_eq(body(&c), "cOOtent", 7);
}
END_TEST

START_TEST(links_are_not_followed)
{
	char outside[] = "/tmp/heddle-outside-XXXXXX";
	int fd = mkstemp(outside);
	uint64_t link_node;
	struct fuse_setattr_in in = { .valid = FATTR_MODE | FATTR_UID, .mode = 0777, .uid = 1 };
	struct stat before, after;

	ck_assert_int_eq(fstat(fd, &before), 0);
	ck_assert_int_eq(symlink(outside, host(&c, "l")), 0);
	ck_assert_int_eq(symlink("/", host(&c, "d")), 0);
	link_node = lookup(&c, FUSE_ROOT_ID, "l", NULL);
	ck_assert_int_eq(getattr(&c, link_node), 0);
	ck_assert_uint_eq(attr(&c)->mode & S_IFMT, S_IFLNK);
	call(&c, FUSE_SETATTR, link_node, &in, sizeof(in), NULL);
	in.valid = FATTR_MODE;
	call(&c, FUSE_SETATTR, link_node, &in, sizeof(in), NULL);
	in.valid = FATTR_ATIME | FATTR_MTIME;
	call(&c, FUSE_SETATTR, link_node, &in, sizeof(in), NULL);
	ck_assert_int_eq(call(&c, FUSE_LOOKUP, lookup(&c, FUSE_ROOT_ID, "d", NULL), NULL, 0, "etc"),
			 -ENOTDIR);
	ck_assert_int_eq(fstat(fd, &after), 0);
	ck_assert_uint_eq(before.st_mode, after.st_mode);
	ck_assert_uint_eq(before.st_uid, after.st_uid);
	ck_assert_int_eq(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
	close(fd);
	unlink(outside);
}
END_TEST

/* --- set-id bits ------------------------------------------------------------------------------ */

static mode_t mode_after_write(uint32_t write_flags)
{
	struct fuse_write_in in = { .size = 1, .write_flags = write_flags };
	uint64_t node = lookup(&c, FUSE_ROOT_ID, "s", NULL);

	ck_assert_int_eq(chmod(host(&c, "s"), 06777), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR, &in.fh), 0);
	ck_assert_int_eq(write_as(&c, in, "x"), 1);
	release(&c, FUSE_RELEASE, in.fh);
	return host_stat(&c, "s").st_mode & 07777;
}

static mode_t mode_after_truncate(uint32_t valid)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE | valid, .size = 1 };
	uint64_t node = lookup(&c, FUSE_ROOT_ID, "s", NULL);

	ck_assert_int_eq(chmod(host(&c, "s"), 06777), 0);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	return host_stat(&c, "s").st_mode & 07777;
}

static mode_t mode_after_open(uint32_t open_flags)
{
	struct fuse_open_in in = { .flags = O_RDWR | O_TRUNC, .open_flags = open_flags };
	uint64_t node = lookup(&c, FUSE_ROOT_ID, "s", NULL);

	ck_assert_int_eq(chmod(host(&c, "s"), 06777), 0);
	ck_assert_int_eq(CALL(&c, FUSE_OPEN, node, in, NULL), 0);
	return host_stat(&c, "s").st_mode & 07777;
}

START_TEST(setid_bits_drop_when_told)
{
	host_write(&c, "s", "content", 7);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(mode_after_write(FUSE_WRITE_KILL_SUIDGID), 0777);
		ck_assert_uint_eq(mode_after_truncate(FATTR_KILL_SUIDGID), 0777);
		ck_assert_uint_eq(mode_after_open(FUSE_OPEN_KILL_SUIDGID), 0777);
		if (!is_root())
			continue;
		ck_assert_uint_eq(mode_after_write(0), 06777);
		ck_assert_uint_eq(mode_after_truncate(0), 06777);
		ck_assert_uint_eq(mode_after_open(0), 06777);
	}
}
END_TEST

START_TEST(setid_bits_and_owner)
{
	struct fuse_setattr_in in = { .valid = FATTR_UID, .uid = 1 };
	uint64_t node;

	host_write(&c, "s", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "s", NULL);
	ck_assert_int_eq(chmod(host(&c, "s"), 06777), 0);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_uint_eq(host_stat(&c, "s").st_mode & 07777, 0777);
	/* Both at once: the mode asked for stays. */
	in.valid = FATTR_UID | FATTR_MODE;
	in.mode = 04755;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_uint_eq(host_stat(&c, "s").st_mode & 07777, 04755);
}
END_TEST

/* --- owners ----------------------------------------------------------------------------------- */

START_TEST(made_for_the_caller)
{
	struct fuse_mkdir_in dir_in = { .mode = 0777, .umask = 027 };
	struct fuse_mknod_in nod_in = { .mode = S_IFIFO | 0666, .umask = 02 };
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0666, .umask = 077 };
	struct stat st;

	c.uid = 1234;
	c.gid = 567;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, dir_in, "d"), 0);
	ck_assert_int_eq(CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, nod_in, "p"), 0);
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, file_in, "f"), 0);
	begin(&c, FUSE_SYMLINK, FUSE_ROOT_ID);
	put_str(&c, "l");
	put_str(&c, "target");
	ck_assert_int_eq(finish(&c), 0);
	st = host_stat(&c, "d");
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0750);
	ck_assert_uint_eq(st.st_uid, 1234);
	ck_assert_uint_eq(st.st_gid, 567);
	ck_assert_uint_eq(host_stat(&c, "p").st_mode, S_IFIFO | 0664);
	ck_assert_uint_eq(host_stat(&c, "f").st_mode, S_IFREG | 0600);
	ck_assert_uint_eq(host_stat(&c, "f").st_uid, 1234);
	ck_assert_uint_eq(host_stat(&c, "l").st_uid, 1234);
	ck_assert_uint_eq(host_stat(&c, "l").st_gid, 567);
	/* And the thread is itself again. */
	c.uid = c.gid = 0;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, dir_in, "root"), 0);
	ck_assert_uint_eq(host_stat(&c, "root").st_uid, 0);
	ck_assert_uint_eq(geteuid(), 0);
}
END_TEST

START_TEST(callers_without_number)
{
	struct fuse_mkdir_in in = { .mode = 0777 };

	c.uid = UINT32_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "d"), -EINVAL);
	c.uid = 5;
	c.gid = UINT32_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "d"), -EINVAL);
}
END_TEST

static mode_t create_in_setgid_dir(uint32_t group, const char *name)
{
	struct fuse_create_in in = { .flags = O_RDWR, .mode = S_IFREG | 02777 };
	struct {
		struct fuse_ext_header head;
		uint32_t n, group;
	} ext = { { sizeof(ext), FUSE_EXT_GROUPS }, 1, group };
	struct fuse_in_header *h = begin(&c, FUSE_CREATE, lookup(&c, FUSE_ROOT_ID, "d", NULL));

	h = begin(&c, FUSE_CREATE, h->nodeid);
	put(&c, &in, sizeof(in));
	put_str(&c, name);
	while (c.in_len % 8)
		put(&c, "", 1);
	if (group) {
		h->total_extlen = sizeof(ext) / 8;
		put(&c, &ext, sizeof(ext));
	}
	ck_assert_int_eq(finish(&c), 0);
	return ((struct fuse_entry_out *)body(&c))->attr.mode & 07777;
}

START_TEST(setgid_directories)
{
	char path[128];

	ck_assert_int_eq(mkdir(host(&c, "d"), 0777), 0);
	ck_assert_int_eq(chown(host(&c, "d"), 0, 77), 0);
	ck_assert_int_eq(chmod(host(&c, "d"), 02777), 0);
	c.uid = 1000;
	c.gid = 1000;
	/* The caller is not in group 77, or is, by the group sent along. */
	ck_assert_uint_eq(create_in_setgid_dir(0, "a"), 0777);
	ck_assert_uint_eq(create_in_setgid_dir(77, "b"), 02777);
	snprintf(path, sizeof(path), "d/b");
	ck_assert_uint_eq(host_stat(&c, path).st_gid, 77);
	ck_assert_uint_eq(host_stat(&c, path).st_uid, 1000);
	ck_assert_uint_eq(create_in_setgid_dir(0, "c"), 0777);
	c.uid = c.gid = 0;
	ck_assert_uint_eq(create_in_setgid_dir(0, "r"), 02777);
}
END_TEST

static void add_for_root(Suite *s)
{
	TCase *t;

	if (!is_root()) {
		printf("skipped: 4, files for other users take root\n");
		return;
	}
	t = tcase_create("owners");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, setid_bits_and_owner);
	tcase_add_test(t, made_for_the_caller);
	tcase_add_test(t, callers_without_number);
	tcase_add_test(t, setgid_directories);
	suite_add_tcase(s, t);
}

static void add_safety(Suite *s)
{
	TCase *t = tcase_create("safety");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, special_files_are_never_opened);
	tcase_add_test(t, create_never_opens_what_exists);
	tcase_add_test(t, create_makes_regular_files_only);
	tcase_add_test(t, open_flags_are_filtered);
	tcase_add_test(t, links_are_not_followed);
	tcase_add_test(t, setid_bits_drop_when_told);
	suite_add_tcase(s, t);
}

int main(void)
{
	Suite *s = suite_create("fuse_rights");
	SRunner *r;
	int failed;

	add_safety(s);
	add_for_root(s);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
