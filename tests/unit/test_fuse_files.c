/* Operations on names and open files, as a client uses them. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/xattr.h>

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

/* --- names ------------------------------------------------------------------------------------ */

static int link_to(uint64_t node, const char *name)
{
	struct fuse_link_in in = { .oldnodeid = node };

	return CALL(&c, FUSE_LINK, FUSE_ROOT_ID, in, name);
}

static int rename_as(uint32_t flags, const char *from, const char *to)
{
	struct fuse_rename2_in in = { .newdir = FUSE_ROOT_ID, .flags = flags };

	begin(&c, FUSE_RENAME2, FUSE_ROOT_ID);
	put(&c, &in, sizeof(in));
	put_str(&c, from);
	put_str(&c, to);
	return finish(&c);
}

START_TEST(links_and_renames)
{
	uint64_t node;

	host_write(&c, "a", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "a", NULL);
	ck_assert_int_eq(link_to(node, "b"), 0);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->nodeid, node);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.nlink, 2);
	ck_assert_int_eq(link_to(node, "b"), -EEXIST);
	ck_assert_int_eq(rename_as(0, "a", "c"), 0);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "c", NULL), node);
	ck_assert_int_eq(rename_as(RENAME_NOREPLACE, "c", "d"), 0);
	host_write(&c, "e", "x", 1);
	ck_assert_int_eq(rename_as(RENAME_NOREPLACE, "d", "e"), -EEXIST);
	ck_assert_int_eq(rename_as(RENAME_EXCHANGE, "d", "e"), 0);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "e", NULL), node);
	ck_assert_int_eq(rename_as(1u << 20, "d", "e"), -EINVAL);
	ck_assert_int_eq(rename_as(0, "absent", "x"), -ENOENT);
	ck_assert_int_eq(link_to(FUSE_ROOT_ID, "x"), -EPERM);
	ck_assert_int_eq(link_to(12345, "x"), -ESTALE);
}
END_TEST

START_TEST(readlink_of_everything)
{
	uint64_t node;

	ck_assert_int_eq(symlink("the target", host(&c, "l")), 0);
	ck_assert_int_eq(mkfifo(host(&c, "p"), 0644), 0);
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "l", NULL);
	ck_assert_int_eq(call(&c, FUSE_READLINK, node, NULL, 0, NULL), 0);
	ck_assert_uint_eq(body_len(&c), 10);
	ck_assert_mem_eq(body(&c), "the target", 10);
	ck_assert_int_eq(call(&c, FUSE_READLINK, FUSE_ROOT_ID, NULL, 0, NULL), -EINVAL);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(call(&c, FUSE_READLINK, node, NULL, 0, NULL), -EINVAL);
	node = lookup(&c, FUSE_ROOT_ID, "p", NULL);
	ck_assert_int_eq(call(&c, FUSE_READLINK, node, NULL, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(removals)
{
	ck_assert_int_eq(mkdir(host(&c, "d"), 0755), 0);
	host_write(&c, "d/f", "x", 1);
	ck_assert_int_eq(call(&c, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, "d"), -EISDIR);
	ck_assert_int_eq(call(&c, FUSE_RMDIR, FUSE_ROOT_ID, NULL, 0, "d"), -ENOTEMPTY);
	ck_assert_int_eq(call(&c, FUSE_RMDIR, lookup(&c, FUSE_ROOT_ID, "d", NULL), NULL, 0, "f"),
			 -ENOTDIR);
	ck_assert_int_eq(call(&c, FUSE_UNLINK, lookup(&c, FUSE_ROOT_ID, "d", NULL), NULL, 0, "f"),
			 0);
	ck_assert_int_eq(call(&c, FUSE_RMDIR, FUSE_ROOT_ID, NULL, 0, "d"), 0);
	ck_assert_int_eq(call(&c, FUSE_RMDIR, FUSE_ROOT_ID, NULL, 0, "d"), -ENOENT);
}
END_TEST

/* --- open files ------------------------------------------------------------------------------- */

START_TEST(tmpfiles)
{
	struct fuse_create_in in = { .flags = O_RDWR, .mode = S_IFREG | 0640, .umask = 022 };
	struct fuse_entry_out *e = body(&c);
	uint64_t node, fh;
	int rc;

	rc = CALL(&c, FUSE_TMPFILE, FUSE_ROOT_ID, in, "/");
	if (rc == -EOPNOTSUPP)
		return;
	ck_assert_int_eq(rc, 0);
	node = e->nodeid;
	fh = ((struct fuse_open_out *)(void *)(e + 1))->fh;
	ck_assert_uint_eq(e->attr.nlink, 0);
	ck_assert_uint_eq(e->attr.mode, S_IFREG | 0640);
	ck_assert_int_eq(write_file(&c, fh, 0, "hello", 5), 5);
	ck_assert_int_eq(link_to(node, "named"), 0);
	ck_assert_int_eq(host_stat(&c, "named").st_size, 5);
	in.flags |= O_EXCL;
	ck_assert_int_eq(CALL(&c, FUSE_TMPFILE, FUSE_ROOT_ID, in, "/"), 0);
	ck_assert_int_eq(link_to(e->nodeid, "never"), -ENOENT);
	ck_assert_int_eq(CALL(&c, FUSE_TMPFILE, node, in, "/"), -ENOTDIR);
}
END_TEST

START_TEST(syncs)
{
	struct fuse_fsync_in in = { 0 };
	struct fuse_flush_in flush_in = { 0 };
	struct fuse_syncfs_in syncfs_in = { 0 };
	uint64_t node, fh, dir;
	unsigned before;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &dir), 0);
	before = count_fds();
	for (in.fsync_flags = 0; in.fsync_flags < 2; in.fsync_flags++) {
		in.fh = fh;
		ck_assert_int_eq(CALL(&c, FUSE_FSYNC, node, in, NULL), 0);
		ck_assert_int_eq(CALL(&c, FUSE_FSYNCDIR, node, in, NULL), -EBADF);
		in.fh = dir;
		ck_assert_int_eq(CALL(&c, FUSE_FSYNCDIR, FUSE_ROOT_ID, in, NULL), 0);
		ck_assert_int_eq(CALL(&c, FUSE_FSYNC, FUSE_ROOT_ID, in, NULL), -EBADF);
	}
	flush_in.fh = fh;
	ck_assert_int_eq(CALL(&c, FUSE_FLUSH, node, flush_in, NULL), 0);
	flush_in.fh = dir;
	ck_assert_int_eq(CALL(&c, FUSE_FLUSH, node, flush_in, NULL), -EBADF);
	ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, syncfs_in, NULL), 0);
	ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, node, syncfs_in, NULL), 0);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

/* A handle may change the size where a new open could not. */
START_TEST(size_by_handle)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE | FATTR_FH, .size = 3 };
	uint64_t node, fh, dir;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0, &node, &fh), 0);
	in.fh = fh;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	ck_assert_uint_eq(attr(&c)->size, 3);
	in.size = (uint64_t)INT64_MAX + 1;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), -EFBIG);
	in.size = 1;
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, FUSE_ROOT_ID, 0, &dir), 0);
	in.fh = dir;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), -EBADF);
	in.fh = 99;
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), -EBADF);
}
END_TEST

START_TEST(allocations)
{
	struct fuse_fallocate_in in = { .length = 1000 };
	uint64_t node;

	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0600, &node, &in.fh), 0);
	ck_assert_int_eq(CALL(&c, FUSE_FALLOCATE, node, in, NULL), 0);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 1000);
	in.mode = FALLOC_FL_KEEP_SIZE;
	in.offset = 1000;
	ck_assert_int_eq(CALL(&c, FUSE_FALLOCATE, node, in, NULL), 0);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 1000);
	in.mode = UINT32_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_FALLOCATE, node, in, NULL), -EOPNOTSUPP);
	in.mode = 0;
	in.length = UINT64_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_FALLOCATE, node, in, NULL), -EFBIG);
}
END_TEST

/* --- rights ----------------------------------------------------------------------------------- */

static int access_as(uint32_t uid, uint32_t gid, uint64_t node, uint32_t mask)
{
	struct fuse_access_in in = { .mask = mask };

	c.uid = uid;
	c.gid = gid;
	return CALL(&c, FUSE_ACCESS, node, in, NULL);
}

START_TEST(access_rights)
{
	uint64_t node;
	struct stat st;

	host_write(&c, "f", "x", 1);
	ck_assert_int_eq(chmod(host(&c, "f"), 0640), 0);
	st = host_stat(&c, "f");
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(access_as(0, 0, node, R_OK | W_OK), 0);
	ck_assert_int_eq(access_as(0, 0, node, X_OK), -EACCES);
	ck_assert_int_eq(access_as(0, 0, FUSE_ROOT_ID, R_OK | W_OK | X_OK), 0);
	ck_assert_int_eq(access_as(54321, st.st_gid, node, R_OK), 0);
	ck_assert_int_eq(access_as(54321, st.st_gid, node, W_OK), -EACCES);
	ck_assert_int_eq(access_as(54321, 54321, node, R_OK), -EACCES);
	ck_assert_int_eq(access_as(54321, 54321, node, F_OK), 0);
}
END_TEST

/* A default ACL takes the umask's place, as on the host. */
START_TEST(default_acl)
{
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entry[3];
	} acl = { 2, { { 1, 7, UINT32_MAX }, { 4, 7, UINT32_MAX }, { 0x20, 5, UINT32_MAX } } };
	struct fuse_create_in in = { .flags = O_RDWR, .mode = S_IFREG | 0666, .umask = 077 };
	struct fuse_entry_out *e = body(&c);
	uint64_t dir;

	ck_assert_int_eq(mkdir(host(&c, "d"), 0755), 0);
	if (setxattr(host(&c, "d"), "system.posix_acl_default", &acl, sizeof(acl), 0) < 0)
		return;
	dir = lookup(&c, FUSE_ROOT_ID, "d", NULL);
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, dir, in, "with"), 0);
	ck_assert_uint_eq(e->attr.mode, S_IFREG | 0664);
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "without"), 0);
	ck_assert_uint_eq(e->attr.mode, S_IFREG | 0600);
}
END_TEST

/* --- files that block ------------------------------------------------------------------------- */

/* /proc/kmsg is a regular file: a lane at it would wait for ever, and a reset for the lane. */
START_TEST(nobody_waits_for_a_regular_file)
{
	uint64_t node, fh;
	int fd;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	fd = dup(0); /* the next number */
	close(fd);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR, &fh), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
}
END_TEST

static int lease_fd;

static void lease_wanted(int sig)
{
	usleep(100000);
	fcntl(lease_fd, F_SETLEASE, F_UNLCK);
}

/* A program of the host with a lease on f, which it gives back when asked, after a while. */
static pid_t lease_holder(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGIO, lease_wanted);
		lease_fd = open(host(&c, "f"), O_RDONLY);
		byte = fcntl(lease_fd, F_SETLEASE, F_RDLCK) == 0;
		(void)!write(ready[1], &byte, 1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	if (byte)
		return pid;
	kill(pid, SIGKILL);
	return -1;
}

START_TEST(leased_file_opens_when_the_lease_is_given_back)
{
	uint64_t node, fh;
	pid_t pid;
	int fd;

	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	pid = lease_holder();
	if (pid < 0) {
		printf("skipped: 1, no leases on this file system\n");
		return;
	}
	fd = dup(0);
	close(fd);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR, &fh), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
	ck_assert_int_eq(read_file(&c, fh, 0, 100), 7);
	kill(pid, SIGKILL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fuse_files");
	TCase *t = tcase_create("files");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, links_and_renames);
	tcase_add_test(t, readlink_of_everything);
	tcase_add_test(t, removals);
	tcase_add_test(t, tmpfiles);
	tcase_add_test(t, syncs);
	tcase_add_test(t, nobody_waits_for_a_regular_file);
	tcase_add_test(t, leased_file_opens_when_the_lease_is_given_back);
	tcase_add_test(t, size_by_handle);
	tcase_add_test(t, allocations);
	tcase_add_test(t, access_rights);
	tcase_add_test(t, default_acl);
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
