/* What never may happen: special files opened, links followed, files made for the wrong user. */
#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "tests/unit/fuse_client.h"
#include "tests/unit/userns.h"

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

/* An entry made by this opcode for a caller with this further group (0: none). */
static int make_with_group(uint32_t opcode, uint32_t group, const char *name)
{
	struct {
		struct fuse_ext_header head;
		uint32_t n, group;
	} ext = { { sizeof(ext), FUSE_EXT_GROUPS }, 1, group };
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_mknod_in nod_in = { .mode = S_IFIFO | 0666 };
	struct fuse_mkdir_in dir_in = { .mode = 0777 };
	struct fuse_in_header *h = begin(&c, opcode, FUSE_ROOT_ID);

	if (opcode == FUSE_MKDIR)
		put(&c, &dir_in, sizeof(dir_in));
	else if (opcode == FUSE_MKNOD)
		put(&c, &nod_in, sizeof(nod_in));
	else if (opcode != FUSE_SYMLINK)
		put(&c, &file_in, sizeof(file_in));
	put_str(&c, name);
	put_str(&c, "target");
	while (c.in_len % 8)
		put(&c, "", 1);
	if (group) {
		h->total_extlen = sizeof(ext) / 8;
		put(&c, &ext, sizeof(ext));
	}
	return finish(&c);
}

static void check_bad_ids(uint32_t bad)
{
	static const uint32_t makers[] = { FUSE_MKDIR, FUSE_MKNOD, FUSE_SYMLINK, FUSE_CREATE,
					   FUSE_TMPFILE };

	for (unsigned i = 0; i < ARRAY_SIZE(makers); i++) {
		c.uid = c.gid = 1000;
		ck_assert_int_eq(make_with_group(makers[i], bad, "bad"), -EPERM);
		c.uid = bad;
		ck_assert_int_eq(make_with_group(makers[i], 0, "bad"), -EPERM);
		ck_assert_int_eq(make_with_group(makers[i], 1000, "bad"), -EPERM);
		c.uid = 1000;
		c.gid = bad;
		ck_assert_int_eq(make_with_group(makers[i], 0, "bad"), -EPERM);
		ck_assert_int_eq(make_with_group(makers[i], 1000, "bad"), -EPERM);
	}
	ck_assert_int_eq(access(host(&c, "bad"), F_OK), -1);
	/* And the thread is itself again, and can become others. */
	ck_assert_uint_eq(geteuid(), 0);
	ck_assert_uint_eq(getegid(), 0);
	ck_assert_int_eq(getgroups(0, NULL), 0);
	c.gid = 1000;
	ck_assert_int_eq(make_with_group(FUSE_MKDIR, 1001, "good"), 0);
	ck_assert_uint_eq(host_stat(&c, "good").st_uid, 1000);
	ck_assert_uint_eq(host_stat(&c, "good").st_gid, 1000);
}

START_TEST(callers_without_number)
{
	check_bad_ids(UINT32_MAX);
}
END_TEST

START_TEST(callers_that_our_namespace_does_not_know)
{
	if (!userns_enter()) {
		printf("skipped: 1, no user namespaces here\n");
		return;
	}
	client_stop(&c);
	setup();
	check_bad_ids(USERNS_IDS);
}
END_TEST

static void *serve_in_group(void *in)
{
	struct fuse_mkdir_in *dir_in = in;

	ck_assert_int_eq(syscall(SYS_setresgid, 77, 77, 77), 0);
	ck_assert_int_eq(fuse_thread_init(c.s), 0);
	c.uid = c.gid = 0;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, *dir_in, "before"), 0);
	c.uid = c.gid = 1000;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, *dir_in, "other"), 0);
	c.uid = c.gid = 0;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, *dir_in, "after"), 0);
	return NULL;
}

/* A server that root started in another group still makes root's files root's. */
START_TEST(group_of_the_server_is_not_the_callers)
{
	struct fuse_mkdir_in in = { .mode = 0777 };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, serve_in_group, &in), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(host_stat(&c, "before").st_gid, 0);
	ck_assert_uint_eq(host_stat(&c, "after").st_gid, 0);
}
END_TEST

/* Quotas and blocks kept for the administrator are ignored for CAP_SYS_RESOURCE. */
START_TEST(serving_threads_keep_few_capabilities)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	static const unsigned gone[] = { CAP_SYS_RESOURCE, CAP_SYS_PTRACE, CAP_SYS_MODULE,
					 CAP_NET_ADMIN, CAP_SYS_RAWIO };
	struct __user_cap_data_struct data[2];

	for (unsigned pass = 0; pass < 2; pass++) {
		ck_assert_int_eq(syscall(SYS_capget, &head, data), 0);
		for (unsigned i = 0; i < ARRAY_SIZE(gone); i++) {
			ck_assert_uint_eq(data[0].permitted >> gone[i] & 1, 0);
			ck_assert_uint_eq(data[0].effective >> gone[i] & 1, 0);
		}
		ck_assert_uint_eq(data[0].effective >> CAP_FOWNER & 1, 1);
		/* Nor do they come back with the way back from another user. */
		c.uid = c.gid = 1000;
		ck_assert_int_eq(make_with_group(FUSE_MKDIR, 0, pass ? "b" : "a"), 0);
	}
}
END_TEST

/* On local file systems it takes a capability to see these names, and the server has it. */
START_TEST(trusted_names_are_for_root)
{
	struct fuse_getxattr_in in = { .size = 100 };
	uint64_t node;

	host_write(&c, "f", "x", 1);
	if (setxattr(host(&c, "f"), "trusted.t", "v", 1, 0) < 0)
		return;
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, in, NULL), 0);
	ck_assert_uint_eq(body_len(&c), sizeof("trusted.t"));
	c.uid = 1000;
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, in, NULL), 0);
	ck_assert_uint_eq(body_len(&c), 0);
	in.size = 0;
	ck_assert_int_eq(CALL(&c, FUSE_LISTXATTR, node, in, NULL), 0);
	ck_assert_uint_eq(((struct fuse_getxattr_out *)body(&c))->size, 0);
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
		printf("skipped: 8, files for other users take root\n");
		return;
	}
	t = tcase_create("owners");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, setid_bits_and_owner);
	tcase_add_test(t, made_for_the_caller);
	tcase_add_test(t, callers_without_number);
	tcase_add_test(t, callers_that_our_namespace_does_not_know);
	tcase_add_test(t, group_of_the_server_is_not_the_callers);
	tcase_add_test(t, serving_threads_keep_few_capabilities);
	tcase_add_test(t, trusted_names_are_for_root);
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
