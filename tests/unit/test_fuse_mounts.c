/* File systems mounted below the share: one to the guest, several to the host. */
#include <sched.h>
#include <sys/mount.h>

#include "devices/fuse/server.h"
#include "tests/unit/fuse_client.h"

static struct client c;

/* In a mount namespace of its own, which the session is made in. */
static void setup(void)
{
	struct fuse_opts o = { 0 };

	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	client_start(&c, &o);
}

static void teardown(void)
{
	client_stop(&c);
}

static uint64_t ino_of(const char *dir, const char *name)
{
	uint64_t d = lookup(&c, FUSE_ROOT_ID, dir, NULL);

	ck_assert_uint_ne(lookup(&c, d, name, NULL), 0);
	return ((struct fuse_entry_out *)body(&c))->attr.ino;
}

START_TEST(mounts_below_the_share)
{
	uint64_t root;

	ck_assert_int_eq(mkdir(host(&c, "a"), 0755), 0);
	ck_assert_int_eq(mkdir(host(&c, "b"), 0755), 0);
	ck_assert_int_eq(mount("t", host(&c, "a"), "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mount("t", host(&c, "b"), "tmpfs", 0, NULL), 0);
	host_write(&c, "a/f", "x", 1);
	host_write(&c, "b/f", "x", 1);
	ck_assert_uint_eq(host_stat(&c, "a/f").st_ino, host_stat(&c, "b/f").st_ino);
	ck_assert_uint_ne(ino_of("a", "f"), ino_of("b", "f"));
	ck_assert_uint_eq(ino_of("a", "f"), ino_of("a", "f"));
	ck_assert_int_eq(getattr(&c, FUSE_ROOT_ID), 0);
	root = attr(&c)->ino;
	ck_assert_uint_eq(root, host_stat(&c, "").st_ino);
	/* Nothing keeps a mount once the guest has forgotten it. */
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_int_eq(umount(host(&c, "a")), 0);
	ck_assert_int_eq(umount(host(&c, "b")), 0);
}
END_TEST

static uint32_t flags_of(uint64_t dir, const char *name)
{
	ck_assert_uint_ne(lookup(&c, dir, name, NULL), 0);
	return ((struct fuse_entry_out *)body(&c))->attr.flags;
}

/* All flags in the listing of a directory. */
static uint32_t flags_listed(uint64_t dir)
{
	struct fuse_read_in in = { .size = 4096 };
	uint32_t flags = 0;

	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, dir, O_RDONLY | O_DIRECTORY, &in.fh), 0);
	ck_assert_int_eq(CALL(&c, FUSE_READDIRPLUS, dir, in, NULL), 0);
	for (size_t at = 0; at < body_len(&c);) {
		struct fuse_direntplus *e = (void *)((char *)body(&c) + at);

		flags |= e->entry_out.attr.flags;
		at += FUSE_DIRENTPLUS_SIZE(e);
	}
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, in.fh), 0);
	return flags;
}

/* Told where asked for (1), and only of the directory where a mount begins. */
START_TEST(submounts_are_told)
{
	uint32_t expected = _i ? FUSE_ATTR_SUBMOUNT : 0;
	struct fuse_opts o = { .submounts = _i };
	struct fuse_init_out *init = body(&c);
	uint64_t m;

	client_stop(&c);
	client_start(&c, &o);
	ck_assert_uint_eq(init->flags & FUSE_SUBMOUNTS, _i ? FUSE_SUBMOUNTS : 0);
	ck_assert_int_eq(mkdir(host(&c, "d"), 0755), 0);
	ck_assert_int_eq(mkdir(host(&c, "m"), 0755), 0);
	ck_assert_int_eq(mount("t", host(&c, "m"), "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mkdir(host(&c, "m/d"), 0755), 0);
	host_write(&c, "m/f", "x", 1);
	ck_assert_uint_eq(flags_of(FUSE_ROOT_ID, "d"), 0);
	ck_assert_uint_eq(flags_of(FUSE_ROOT_ID, "m"), expected);
	m = lookup(&c, FUSE_ROOT_ID, "m", NULL);
	ck_assert_uint_eq(flags_of(m, "d"), 0);
	ck_assert_uint_eq(flags_of(m, "f"), 0);
	ck_assert_uint_eq(flags_listed(FUSE_ROOT_ID), expected);
	ck_assert_uint_eq(flags_listed(m), 0);
	fuse_session_reset(c.s);
	ck_assert_int_eq(umount(host(&c, "m")), 0);
}
END_TEST

/* Below a mount, and a bind mount of the share's own file system, nodes are found by name. */
START_TEST(nodes_below_give_descriptors_up)
{
	static const char *const names[] = { "m", "bind" };
	uint64_t dir, node, outer;

	ck_assert_int_eq(mkdir(host(&c, "m"), 0755), 0);
	ck_assert_int_eq(mkdir(host(&c, "d"), 0755), 0);
	ck_assert_int_eq(mkdir(host(&c, "bind"), 0755), 0);
	ck_assert_int_eq(mount("t", host(&c, "m"), "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mount(host(&c, "d"), host(&c, "bind"), NULL, MS_BIND, NULL), 0);
	host_write(&c, "m/f", "x", 1);
	host_write(&c, "d/f", "x", 1);
	outer = lookup(&c, lookup(&c, FUSE_ROOT_ID, "d", NULL), "f", NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		dir = lookup(&c, FUSE_ROOT_ID, names[i], NULL);
		node = lookup(&c, dir, "f", NULL);
		ck_assert_uint_ne(node, 0);
		ck_assert_uint_ne(node, outer);
		while (nodes_reclaim(c.s))
			;
		ck_assert_int_eq(getattr(&c, node), 0);
		ck_assert_uint_eq(attr(&c)->size, 1);
		while (nodes_reclaim(c.s))
			;
		/* So they do not hold the mount. */
		ck_assert_int_eq(umount(host(&c, names[i])), 0);
		ck_assert_int_eq(getattr(&c, node), -ESTALE);
		ck_assert_int_eq(getattr(&c, outer), 0);
	}
}
END_TEST

#define MOUNTS (DOMAINS_MAX + 20)

static void mount_at(unsigned i)
{
	char name[16], file[24];

	snprintf(name, sizeof(name), "m%u", i);
	snprintf(file, sizeof(file), "m%u/f", i);
	ck_assert_int_eq(mkdir(host(&c, name), 0755), 0);
	ck_assert_int_eq(mount("t", host(&c, name), "tmpfs", 0, "size=4k"), 0);
	host_write(&c, file, "", 0);
}

/* And forgets what it found: descriptors may be few. */
static uint64_t ino_below(unsigned i)
{
	uint64_t dir, file, ino;
	char name[16];

	snprintf(name, sizeof(name), "m%u", i);
	dir = lookup(&c, FUSE_ROOT_ID, name, NULL);
	file = lookup(&c, dir, "f", NULL);
	ck_assert_uint_ne(file, 0);
	ino = ((struct fuse_entry_out *)body(&c))->attr.ino;
	forget(&c, file, 1);
	forget(&c, dir, 1);
	return ino;
}

START_TEST(more_mounts_than_the_table_holds)
{
	static uint64_t seen[MOUNTS];
	char name[16];

	for (unsigned i = 0; i < MOUNTS; i++) {
		mount_at(i);
		seen[i] = ino_below(i);
		for (unsigned k = 0; k < i; k++)
			ck_assert_uint_ne(seen[k], seen[i]);
	}
	ck_assert_uint_eq(seen[MOUNTS - 1], ino_below(MOUNTS - 1));
	ck_assert_uint_ne(seen[MOUNTS - 1] >> 63, 0);
	/* A new mount of the share begins with an empty table. */
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_uint_eq(ino_below(MOUNTS - 1) >> 63, 0);
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	for (unsigned i = 0; i < MOUNTS; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		ck_assert_int_eq(umount(host(&c, name)), 0);
	}
}
END_TEST

static unsigned syncs, n_synced;
static dev_t broken; /* says EIO */
static dev_t synced[8];

/* In the place of libc's. */
void sync(void)
{
	syncs++;
}

int syncfs(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_lt(n_synced, ARRAY_SIZE(synced));
	synced[n_synced++] = st.st_dev;
	errno = EIO;
	return st.st_dev == broken ? -1 : 0;
}

static bool is_synced(const char *name)
{
	for (unsigned i = 0; i < n_synced; i++)
		if (synced[i] == host_stat(&c, name).st_dev)
			return true;
	return false;
}

static void sync_all(unsigned expected)
{
	struct fuse_syncfs_in in = { 0 };

	n_synced = 0;
	ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, in, NULL), 0);
	ck_assert_uint_eq(n_synced, expected);
	ck_assert_uint_eq(syncs, 0);
	ck_assert(is_synced(""));
}

/* The guest asks once, for what it takes for one file system; other disks are not its business. */
START_TEST(syncfs_reaches_the_mounts_below)
{
	static const char *const broken_name[] = { "", "m0", "m1" };
	unsigned before = count_fds();
	uint64_t dir, link_node;

	sync_all(1);
	mount_at(0);
	mount_at(1);
	mount_at(2);
	sync_all(1); /* not known to the guest */
	ck_assert_int_eq(symlink("f", host(&c, "m0/link")), 0);
	dir = lookup(&c, FUSE_ROOT_ID, "m0", NULL);
	link_node = lookup(&c, dir, "link", NULL);
	ck_assert_uint_ne(link_node, 0);
	ck_assert_uint_ne(lookup(&c, dir, "f", NULL), 0);
	sync_all(2);
	ck_assert(is_synced("m0"));
	dir = lookup(&c, FUSE_ROOT_ID, "m1", NULL);
	ck_assert_uint_ne(lookup(&c, dir, "f", NULL), 0);
	forget(&c, dir, 1); /* any file will do */
	sync_all(3);
	ck_assert(is_synced("m0") && is_synced("m1") && !is_synced("m2"));
	(void)ino_below(2);
	sync_all(3); /* forgotten again */
	/* An error is told, and keeps nobody from being synced. */
	for (unsigned i = 0; i < ARRAY_SIZE(broken_name); i++) {
		struct fuse_syncfs_in in = { 0 };

		broken = host_stat(&c, broken_name[i]).st_dev;
		n_synced = 0;
		ck_assert_int_eq(CALL(&c, FUSE_SYNCFS, FUSE_ROOT_ID, in, NULL), -EIO);
		ck_assert_uint_eq(n_synced, 3);
	}
	/* Nothing is kept. */
	fuse_session_reset(c.s);
	ck_assert_uint_eq(count_fds(), before);
	for (unsigned i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "m%u", i);
		ck_assert_int_eq(umount(host(&c, name)), 0);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_mounts");
	TCase *t = tcase_create("mounts");
	SRunner *r;
	int failed;

	if (geteuid() != 0) {
		printf("skipped: 6, mounts take root\n");
		return 77;
	}
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, mounts_below_the_share);
	tcase_add_test(t, more_mounts_than_the_table_holds);
	tcase_add_loop_test(t, submounts_are_told, 0, 2);
	tcase_add_test(t, nodes_below_give_descriptors_up);
	tcase_add_test(t, syncfs_reaches_the_mounts_below);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
