/* IOCTL and POLL; and that what one file system of the host lacks is not taken for the share. */
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "devices/fuse/server.h"
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

/* Error of the reply; its data is behind struct fuse_ioctl_out. */
static int do_ioctl(uint64_t fh, uint32_t cmd, uint32_t flags, const void *data, uint32_t in_size,
		    uint32_t out_size)
{
	struct fuse_ioctl_in in = {
		.fh = fh, .flags = flags, .cmd = cmd, .in_size = in_size, .out_size = out_size
	};

	begin(&c, FUSE_IOCTL, FUSE_ROOT_ID);
	put(&c, &in, sizeof(in));
	put(&c, data, in_size);
	return finish(&c);
}

static uint32_t flags_of(uint64_t fh, uint32_t cmd, uint32_t flags, uint32_t out_size)
{
	uint32_t got;

	ck_assert_int_eq(do_ioctl(fh, cmd, flags, NULL, 0, out_size), 0);
	ck_assert_uint_eq(body_len(&c), sizeof(struct fuse_ioctl_out) + 4);
	ck_assert_int_eq(((struct fuse_ioctl_out *)body(&c))->result, 0);
	memcpy(&got, (char *)body(&c) + sizeof(struct fuse_ioctl_out), 4);
	return got;
}

static uint32_t host_flags(const char *name)
{
	int fd = open(host(&c, name), O_RDONLY | O_CLOEXEC), got = 0;

	ck_assert_int_eq(ioctl(fd, FS_IOC_GETFLAGS, &got), 0);
	close(fd);
	return (uint32_t)got;
}

static uint64_t open_file(const char *name)
{
	uint64_t fh, node = lookup(&c, FUSE_ROOT_ID, name, NULL);

	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	return fh;
}

/* The file system of /tmp keeps such flags: ext4 and others always, tmpfs since 6.0. */
static bool has_flags(const char *name)
{
	int fd = open(host(&c, name), O_RDONLY | O_CLOEXEC), got = 0;
	bool has = ioctl(fd, FS_IOC_GETFLAGS, &got) == 0;

	close(fd);
	return has;
}

/* Clients send 4 bytes, or 8 as the command's number says (before 5.9). */
START_TEST(flags_are_the_hosts)
{
	uint32_t set[2] = { 0, 0xdeadbeef };
	uint64_t fh, dir;

	host_write(&c, "f", "x", 1);
	if (!has_flags("f"))
		return;
	fh = open_file("f");
	set[0] = host_flags("f") | FS_NODUMP_FL;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, set, 4, 0), 0);
	ck_assert_uint_eq(host_flags("f"), set[0]);
	ck_assert_uint_eq(flags_of(fh, FS_IOC_GETFLAGS, 0, 4), set[0]);
	ck_assert_uint_eq(flags_of(fh, FS_IOC_GETFLAGS, 0, 8), set[0]);
	ck_assert_uint_eq(flags_of(fh, FS_IOC32_GETFLAGS, FUSE_IOCTL_COMPAT, 4), set[0]);
	set[0] &= ~(uint32_t)FS_NODUMP_FL;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, set, 8, 0), 0);
	ck_assert_uint_eq(host_flags("f"), set[0]);
	/* A directory's handle is used when the request says so, and only then. */
	ck_assert_int_eq(mkdir(host(&c, "d"), 0755), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, lookup(&c, FUSE_ROOT_ID, "d", NULL), 0, &dir),
			 0);
	ck_assert_uint_eq(flags_of(dir, FS_IOC_GETFLAGS, FUSE_IOCTL_DIR, 4), host_flags("d"));
	ck_assert_int_eq(do_ioctl(dir, FS_IOC_GETFLAGS, 0, NULL, 0, 4), -EBADF);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_GETFLAGS, FUSE_IOCTL_DIR, NULL, 0, 4), -EBADF);
}
END_TEST

/* Serving threads have no CAP_LINUX_IMMUTABLE. */
START_TEST(flags_that_take_a_capability)
{
	uint32_t set;
	uint64_t fh;

	host_write(&c, "f", "x", 1);
	if (!has_flags("f"))
		return;
	fh = open_file("f");
	set = host_flags("f") | FS_IMMUTABLE_FL;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, &set, 4, 0), -EPERM);
	set = host_flags("f") | FS_APPEND_FL;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC32_SETFLAGS, 0, &set, 4, 0), -EPERM);
	ck_assert_uint_eq(host_flags("f") & (FS_IMMUTABLE_FL | FS_APPEND_FL), 0);
}
END_TEST

START_TEST(project_ids)
{
	struct fsxattr x;
	uint64_t fh;
	int rc;

	host_write(&c, "f", "x", 1);
	fh = open_file("f");
	rc = do_ioctl(fh, FS_IOC_FSGETXATTR, 0, NULL, 0, sizeof(x));
	if (rc == -ENOTTY || rc == -EOPNOTSUPP)
		return;
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(body_len(&c), sizeof(struct fuse_ioctl_out) + sizeof(x));
	memcpy(&x, (char *)body(&c) + sizeof(struct fuse_ioctl_out), sizeof(x));
	ck_assert_uint_eq(x.fsx_projid, 0);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_FSSETXATTR, 0, &x, sizeof(x), 0), 0);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_FSSETXATTR, 0, &x, sizeof(x) - 1, 0), -EINVAL);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_FSGETXATTR, 0, NULL, 0, sizeof(x) - 1), -EINVAL);
}
END_TEST

START_TEST(other_ioctls_are_no_ioctls)
{
	char data[64] = { 0 };
	uint64_t fh;

	host_write(&c, "f", "x", 1);
	fh = open_file("f");
	ck_assert_int_eq(do_ioctl(fh, FIONREAD, 0, data, 4, 4), -ENOTTY);
	ck_assert_int_eq(do_ioctl(fh, FIFREEZE, 0, data, 4, 4), -ENOTTY);
	ck_assert_int_eq(do_ioctl(fh, FICLONE, 0, data, 4, 0), -ENOTTY);
	ck_assert_int_eq(do_ioctl(fh, 0, 0, NULL, 0, 0), -ENOTTY);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_GETFLAGS, FUSE_IOCTL_UNRESTRICTED, NULL, 0, 4),
			 -EINVAL);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_GETFLAGS, 0, NULL, 0, 3), -EINVAL);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, data, 3, 0), -EINVAL);
	ck_assert_int_eq(do_ioctl(99, FS_IOC_GETFLAGS, 0, NULL, 0, 4), -EBADF);
	/* A reply that does not fit, and sizes that the request does not have. */
	c.out_room = sizeof(struct fuse_out_header) + sizeof(struct fuse_ioctl_out) + 3;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_GETFLAGS, 0, NULL, 0, 4), -EINVAL);
	c.out_room = sizeof(c.out);
	begin(&c, FUSE_IOCTL, FUSE_ROOT_ID);
	put(&c, &(struct fuse_ioctl_in){ .fh = fh, .cmd = FS_IOC_SETFLAGS, .in_size = 4 },
	    sizeof(struct fuse_ioctl_in));
	ck_assert_int_eq(finish(&c), -EINVAL);
}
END_TEST

/* Linux before 5.13 has not asked whose file it is. */
START_TEST(setting_is_the_owners)
{
	uint32_t set;
	uint64_t fh;

	if (geteuid() != 0)
		return;
	host_write(&c, "f", "x", 1);
	if (!has_flags("f"))
		return;
	set = host_flags("f");
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	fh = open_file("f");
	c.uid = 1000;
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, &set, 4, 0), -EPERM);
	ck_assert_uint_eq(flags_of(fh, FS_IOC_GETFLAGS, 0, 4), set);
	ck_assert_int_eq(chown(host(&c, "f"), 1000, 1000), 0);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, &set, 4, 0), 0);
	ck_assert_int_eq(chown(host(&c, "f"), 0, 0), 0);
	ck_assert_int_eq(client_init_as(&c, 34, 0), 0);
	fh = open_file("f");
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, &set, 4, 0), 0);
}
END_TEST

START_TEST(readonly_shares_take_no_flags)
{
	struct fuse_opts o = { .readonly = true };
	struct fsxattr x = { 0 };
	uint32_t set = 0;
	uint64_t fh;

	client_stop(&c);
	client_start(&c, &o);
	host_write(&c, "f", "x", 1);
	fh = open_file("f");
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_SETFLAGS, 0, &set, 4, 0), -EROFS);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC32_SETFLAGS, 0, &set, 4, 0), -EROFS);
	ck_assert_int_eq(do_ioctl(fh, FS_IOC_FSSETXATTR, 0, &x, sizeof(x), 0), -EROFS);
	if (has_flags("f"))
		flags_of(fh, FS_IOC_GETFLAGS, 0, 4);
}
END_TEST

START_TEST(files_are_ready)
{
	struct fuse_poll_in in = { .kh = 7, .flags = FUSE_POLL_SCHEDULE_NOTIFY };
	struct fuse_poll_out *out = body(&c);

	host_write(&c, "f", "x", 1);
	in.fh = open_file("f");
	in.events = POLLIN | POLLPRI | POLLRDNORM;
	ck_assert_int_eq(CALL(&c, FUSE_POLL, FUSE_ROOT_ID, in, NULL), 0);
	ck_assert_uint_eq(body_len(&c), sizeof(*out));
	ck_assert_uint_eq(out->revents, POLLIN | POLLRDNORM);
	in.events = UINT32_MAX;
	ck_assert_int_eq(CALL(&c, FUSE_POLL, FUSE_ROOT_ID, in, NULL), 0);
	ck_assert_uint_eq(out->revents, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
	in.fh = 1234;
	ck_assert_int_eq(CALL(&c, FUSE_POLL, FUSE_ROOT_ID, in, NULL), -EBADF);
}
END_TEST

/* --- file systems that lack things ------------------------------------------------------------ */

static void mount_below(const char *type)
{
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	teardown(); /* a session sees the namespace it was made in */
	setup();
	ck_assert_int_eq(mkdir(host(&c, "m"), 0755), 0);
	ck_assert_int_eq(mount("t", host(&c, "m"), type, 0, NULL), 0);
}

/* What must not come back: for all but INIT's like, the client would never ask again. */
static int never_enosys(int rc)
{
	ck_assert_int_ne(rc, -ENOSYS);
	return rc;
}

#define LACKS(opcode, node, in, name) never_enosys(CALL(&c, opcode, node, in, name))

static void try_names(uint64_t dir)
{
	struct fuse_create_in make = { .flags = O_RDWR, .mode = S_IFREG | 0600 };
	struct fuse_rename2_in move = { .newdir = dir };
	struct fuse_mknod_in nod = { .mode = S_IFREG | 0600 };
	struct fuse_mkdir_in sub = { .mode = 0700 };
	struct fuse_link_in ln = { .oldnodeid = dir };

	ck_assert_int_eq(LACKS(FUSE_TMPFILE, dir, make, "/"), -EOPNOTSUPP);
	LACKS(FUSE_CREATE, dir, make, "new");
	LACKS(FUSE_MKNOD, dir, nod, "new");
	LACKS(FUSE_MKDIR, dir, sub, "new");
	LACKS(FUSE_LINK, dir, ln, "new");
	for (move.flags = 0; move.flags < 8; move.flags++) {
		begin(&c, FUSE_RENAME2, dir);
		put(&c, &move, sizeof(move));
		put_str(&c, "version");
		put_str(&c, "new");
		ck_assert_int_lt(never_enosys(finish(&c)), 0);
	}
	begin(&c, FUSE_SYMLINK, dir);
	put_str(&c, "new");
	put_str(&c, "target");
	never_enosys(finish(&c));
}

static void try_xattrs(uint64_t node)
{
	struct fuse_getxattr_in get = { .size = 100 };
	uint64_t set[2] = { 1 }; /* size, flags; the value */
	int rc;

	rc = LACKS(FUSE_GETXATTR, node, get, "user.a");
	ck_assert(rc == -EOPNOTSUPP || rc == -ENODATA);
	LACKS(FUSE_LISTXATTR, node, get, NULL);
	begin(&c, FUSE_SETXATTR, node);
	put(&c, set, 8);
	put_str(&c, "user.a");
	put(&c, "v", 1);
	rc = never_enosys(finish(&c));
	ck_assert(rc == -EOPNOTSUPP || rc == -EPERM);
	rc = never_enosys(call(&c, FUSE_REMOVEXATTR, node, NULL, 0, "user.a"));
	ck_assert(rc == -EOPNOTSUPP || rc == -EPERM || rc == -ENODATA);
}

static void try_file(uint64_t node, uint64_t fh)
{
	struct fuse_fallocate_in alloc = { .fh = fh, .length = 4096 };
	struct fuse_lseek_in seek = { .fh = fh, .whence = SEEK_DATA };
	struct fuse_copy_file_range_in copy = { .fh_in = fh, .fh_out = fh, .len = 1, .off_out = 9 };
	struct fuse_fsync_in sync = { .fh = fh };
	struct fuse_flush_in flush = { .fh = fh };
	struct fuse_poll_in ready = { .fh = fh };
	struct fuse_statx_in sx = { .sx_mask = STATX_ALL };
	struct fuse_syncfs_in all = { 0 };
	struct fuse_setattr_in attr_in = { .valid = FATTR_SIZE };
	int rc;

	ck_assert_int_lt(LACKS(FUSE_FALLOCATE, node, alloc, NULL), 0);
	LACKS(FUSE_LSEEK, node, seek, NULL);
	LACKS(FUSE_COPY_FILE_RANGE, node, copy, NULL);
	LACKS(FUSE_COPY_FILE_RANGE_64, node, copy, NULL);
	LACKS(FUSE_FSYNC, node, sync, NULL);
	LACKS(FUSE_SETATTR, node, attr_in, NULL);
	ck_assert_int_eq(LACKS(FUSE_FLUSH, node, flush, NULL), 0);
	ck_assert_int_eq(LACKS(FUSE_POLL, node, ready, NULL), 0);
	ck_assert_int_eq(LACKS(FUSE_STATX, node, sx, NULL), 0);
	ck_assert_int_eq(LACKS(FUSE_SYNCFS, node, all, NULL), 0);
	ck_assert_int_eq(never_enosys(call(&c, FUSE_STATFS, node, NULL, 0, NULL)), 0);
	rc = never_enosys(do_ioctl(fh, FS_IOC_GETFLAGS, 0, NULL, 0, 4));
	ck_assert(rc == -ENOTTY || rc == -EOPNOTSUPP);
	rc = never_enosys(do_ioctl(fh, FS_IOC_FSGETXATTR, 0, NULL, 0, sizeof(struct fsxattr)));
	ck_assert(rc == -ENOTTY || rc == -EOPNOTSUPP);
}

static void try_all(const char *type, const char *dir_name, const char *file_name)
{
	uint64_t dir, node, fh, dh;
	struct fuse_fsync_in sync = { 0 };

	mount_below(type);
	dir = lookup(&c, FUSE_ROOT_ID, "m", NULL);
	if (dir_name)
		dir = lookup(&c, dir, dir_name, NULL);
	node = lookup(&c, dir, file_name, NULL);
	ck_assert_uint_ne(node, 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, dir, 0, &dh), 0);
	sync.fh = dh;
	LACKS(FUSE_FSYNCDIR, dir, sync, NULL);
	try_names(dir);
	try_xattrs(node);
	try_file(node, fh);
}

START_TEST(a_file_system_lacks_it_proc)
{
	if (geteuid() != 0)
		return;
	try_all("proc", NULL, "version");
}
END_TEST

START_TEST(a_file_system_lacks_it_sysfs)
{
	if (geteuid() != 0)
		return;
	try_all("sysfs", "kernel", "vmcoreinfo");
}
END_TEST

/* A FUSE server that knows of no operation but those that it takes to be mounted. */
static void *know_nothing(void *arg)
{
	static char buf[1 << 20];
	int fd = *(int *)arg;

	while (read(fd, buf, sizeof(buf)) > 0) {
		const struct fuse_in_header *h = (void *)buf;
		struct {
			struct fuse_out_header head;
			union {
				struct fuse_init_out init;
				struct fuse_attr_out attr;
			};
		} out = { .head = { .unique = h->unique, .error = -ENOSYS } };
		size_t len = sizeof(out.head);

		if (h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET)
			continue;
		if (h->opcode == FUSE_INIT) {
			out.init = (struct fuse_init_out){ .major = 7,
							   .minor = 31,
							   .max_write = 4096 };
			len += sizeof(out.init);
		} else if (h->opcode == FUSE_GETATTR) {
			out.attr.attr =
				(struct fuse_attr){ .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2 };
			len += sizeof(out.attr);
		} else if (h->opcode == FUSE_LOOKUP) {
			out.head.error = -ENOENT;
		}
		if (len > sizeof(out.head))
			out.head.error = 0;
		out.head.len = (uint32_t)len;
		(void)!write(fd, &out, len);
	}
	return NULL;
}

/* The guest's kernel would switch such an operation off for the whole share. */
START_TEST(a_file_system_lacks_it_all)
{
	struct fuse_mkdir_in sub = { .mode = 0700 };
	struct fuse_mknod_in nod = { .mode = S_IFIFO | 0600 };
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	pthread_t thread;
	char opts[64];
	uint64_t dir;

	if (geteuid() != 0 || fd < 0)
		return;
	mount_below("tmpfs");
	ck_assert_int_eq(mkdir(host(&c, "n"), 0755), 0);
	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	ck_assert_int_eq(mount("t", host(&c, "n"), "fuse.t", 0, opts), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, know_nothing, &fd), 0);
	dir = lookup(&c, FUSE_ROOT_ID, "n", NULL);
	ck_assert_uint_ne(dir, 0);
	ck_assert_int_eq(mkdir(host(&c, "n/sub"), 0700), -1);
	ck_assert_int_eq(errno, ENOSYS); /* as the host's programs see it */
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, dir, sub, "sub"), -EOPNOTSUPP);
	ck_assert_int_eq(CALL(&c, FUSE_MKNOD, dir, nod, "p"), -EOPNOTSUPP);
	fuse_session_reset(c.s);
	ck_assert_int_eq(umount(host(&c, "n")), 0);
	pthread_join(thread, NULL);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_ioctl");
	TCase *t = tcase_create("ioctl");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, flags_are_the_hosts);
	tcase_add_test(t, flags_that_take_a_capability);
	tcase_add_test(t, project_ids);
	tcase_add_test(t, other_ioctls_are_no_ioctls);
	tcase_add_test(t, setting_is_the_owners);
	tcase_add_test(t, readonly_shares_take_no_flags);
	tcase_add_test(t, files_are_ready);
	tcase_add_test(t, a_file_system_lacks_it_proc);
	tcase_add_test(t, a_file_system_lacks_it_sysfs);
	tcase_add_test(t, a_file_system_lacks_it_all);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
