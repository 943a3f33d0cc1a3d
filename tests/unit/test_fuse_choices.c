/* What a share's owner chooses: id maps, squash, ACLs, attributes, labels, writeback, O_DIRECT. */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "tests/unit/fuse_client.h"

static struct client c;

static void start(struct fuse_choices choices)
{
	struct fuse_opts o = { .choices = choices };

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

static uint64_t init_flags(void)
{
	struct fuse_init_out *out = body(&c);

	ck_assert_int_eq(client_init_as(&c, 45, ~(uint64_t)0), 0);
	return out->flags | (uint64_t)out->flags2 << 32;
}

/* --- the table of choices --------------------------------------------------------------------- */

START_TEST(maps_are_parsed)
{
	static const char *const bad[] = {
		"",	    ":",	  "0",		   "0:0",	    "0:0:",
		"0:0:0",    "0:0:1+",	  "0:0:1,",	   "-1:0:1",	    " 0:0:1",
		"0:0:1x",   "0::1",	  "4294967295:0:1", "0:4294967295:1", "0:1:4294967295",
		"1:0:4294967294+0:5:1", "99999999999:0:1", "0:0:10+9:100:1", "0:0:10+100:9:1",
		"0:0:4294967296",
	};
	char many[IDMAP_RANGES_MAX * 16 + 16] = "";
	struct idmap m;
	uint32_t host;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(idmap_take(&m, bad[i]), -EINVAL);
	ck_assert_int_eq(idmap_take(&m, "0:100000:1000+1000:1000:1+2000:200000:4294767296"), -EINVAL);
	ck_assert_int_eq(idmap_take(&m, "0:100000:1000+1000:1000:1+2000:200000:4000000000"), 0);
	ck_assert_uint_eq(m.n, 3);
	ck_assert(idmap_to_host(&m, 999, &host) && host == 100999);
	ck_assert(idmap_to_host(&m, 1000, &host) && host == 1000);
	ck_assert(!idmap_to_host(&m, 1001, &host) && host == UINT32_MAX);
	ck_assert(!idmap_to_host(&m, UINT32_MAX, &host) && host == UINT32_MAX);
	for (unsigned i = 0; i <= IDMAP_RANGES_MAX; i++) {
		ck_assert_int_eq(idmap_take(&m, i ? many : "1:1:1"), 0);
		sprintf(many + strlen(many), "%s%u:%u:1", i ? "+" : "", i, i);
	}
	ck_assert_int_eq(idmap_take(&m, many), -EINVAL);
}
END_TEST

START_TEST(squash_is_parsed)
{
	static const char *const bad[] = { "", "0", "0:", ":0", "0:0:0", "a:0", "4294967295:0" };
	struct ids ids = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(idmap_take_squash(&ids, bad[i]), -EINVAL);
	ck_assert_int_eq(idmap_take_squash(&ids, "10:20"), 0);
	ck_assert(ids.squash && ids.squash_uid == 10 && ids.squash_gid == 20);
}
END_TEST

START_TEST(choices_that_exclude_each_other)
{
	const struct idmap map = { .n = 1, .range = { { 0, 1000, 1 } } };
	const struct fuse_choices bad[] = {
		{ .acl = true, .ids.uid = map },
		{ .acl = true, .ids.gid = map },
		{ .acl = true, .ids.squash = true },
		{ .ids.squash = true, .ids.uid = map },
		{ .acl = true, .xattr = FUSE_XATTR_OFF },
		{ .labels = true, .xattr = FUSE_XATTR_OFF },
	};
	struct fuse_choices good = { .acl = true, .labels = true, .writeback = true, .direct = true };

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(fuse_choices_check(&bad[i], false), -EINVAL);
	ck_assert_int_eq(fuse_choices_check(&good, false), 0);
	ck_assert_int_eq(fuse_choices_check(&good, true), -EINVAL);
	good.writeback = false;
	ck_assert_int_eq(fuse_choices_check(&good, true), 0);
}
END_TEST

START_TEST(only_what_was_chosen_is_offered)
{
	const uint64_t all = FUSE_POSIX_ACL | FUSE_SETXATTR_EXT | FUSE_SECURITY_CTX |
			     FUSE_WRITEBACK_CACHE;
	struct fuse_choices every = { .acl = true, .labels = true, .writeback = true };

	start((struct fuse_choices){ 0 });
	ck_assert_uint_eq(init_flags() & all, 0);
	client_stop(&c);
	start(every);
	ck_assert_uint_eq(init_flags() & all, all);
	/* A client that knows none of it gets none. */
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_uint_eq(((struct fuse_init_out *)body(&c))->flags & all, 0);
}
END_TEST

/* --- ids -------------------------------------------------------------------------------------- */

static const struct idmap tens = { .n = 2, .range = { { 0, 10000, 1 }, { 1000, 11000, 100 } } };

static int chown_to(uint64_t node, uint32_t valid, uint32_t uid, uint32_t gid)
{
	struct fuse_setattr_in in = { .valid = valid, .uid = uid, .gid = gid };

	return CALL(&c, FUSE_SETATTR, node, in, NULL);
}

START_TEST(mapped_files_are_the_callers)
{
	struct fuse_mkdir_in in = { .mode = 0777 };
	uint64_t node, fh;

	start((struct fuse_choices){ .ids = { .uid = tens, .gid = tens } });
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "root"), 0);
	ck_assert_uint_eq(host_stat(&c, "root").st_uid, 10000);
	ck_assert_uint_eq(host_stat(&c, "root").st_gid, 10000);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.uid, 0);
	c.uid = 1001;
	c.gid = 1002;
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0644, &node, &fh), 0);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.uid, 1001);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.gid, 1002);
	ck_assert_uint_eq(host_stat(&c, "f").st_uid, 11001);
	ck_assert_uint_eq(host_stat(&c, "f").st_gid, 11002);
	ck_assert_int_eq(chown_to(node, FATTR_UID | FATTR_GID, 1005, 0), 0);
	ck_assert_uint_eq(attr(&c)->uid, 1005);
	ck_assert_uint_eq(host_stat(&c, "f").st_uid, 11005);
	ck_assert_uint_eq(host_stat(&c, "f").st_gid, 10000);
}
END_TEST

START_TEST(ids_without_a_map_own_nothing)
{
	static const uint32_t bad[] = { 1, 999, 1100, 10000, 11000, UINT32_MAX };
	struct fuse_statx_in statx_in = { .sx_mask = STATX_BASIC_STATS };
	struct fuse_mkdir_in in = { .mode = 0777 };
	uint64_t node;

	start((struct fuse_choices){ .ids = { .uid = tens, .gid = tens } });
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		if (bad[i] != UINT32_MAX) {
			ck_assert_int_eq(chown_to(node, FATTR_UID, bad[i], 0), -EPERM);
			ck_assert_int_eq(chown_to(node, FATTR_GID, 0, bad[i]), -EPERM);
		}
		c.uid = bad[i];
		c.gid = 0;
		ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "d"), -EPERM);
		c.uid = 0;
		c.gid = bad[i];
		ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "d"), -EPERM);
	}
	ck_assert_uint_eq(host_stat(&c, "f").st_uid, geteuid());
	ck_assert_int_eq(access(host(&c, "d"), F_OK), -1);
	/* The host's root is nobody here. */
	ck_assert_int_eq(getattr(&c, node), 0);
	ck_assert_uint_eq(attr(&c)->uid, IDMAP_NOBODY);
	ck_assert_uint_eq(attr(&c)->gid, IDMAP_NOBODY);
	ck_assert_int_eq(CALL(&c, FUSE_STATX, node, statx_in, NULL), 0);
	ck_assert_uint_eq(((struct fuse_statx_out *)body(&c))->stat.uid, IDMAP_NOBODY);
	ck_assert_uint_eq(((struct fuse_statx_out *)body(&c))->stat.gid, IDMAP_NOBODY);
}
END_TEST

/* The host's root by way of a map is no root to set-id bits; the guest's is, whatever his number. */
START_TEST(root_is_who_the_guest_says)
{
	const struct idmap swapped = { .n = 2, .range = { { 0, 1000, 1 }, { 1000, 0, 1 } } };
	struct fuse_create_in in = { .flags = O_RDWR, .mode = S_IFREG | 02777 };

	start((struct fuse_choices){ .ids = { .uid = swapped } });
	ck_assert_int_eq(chown(c.share, 0, 77), 0);
	ck_assert_int_eq(chmod(c.share, 02777), 0);
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "root"), 0);
	ck_assert_uint_eq(host_stat(&c, "root").st_uid, 1000);
	ck_assert_uint_eq(host_stat(&c, "root").st_mode & 07777, 02777);
	c.uid = 1000;
	ck_assert_int_eq(CALL(&c, FUSE_CREATE, FUSE_ROOT_ID, in, "user"), 0);
	ck_assert_uint_eq(host_stat(&c, "user").st_uid, 0);
	ck_assert_uint_eq(host_stat(&c, "user").st_mode & 07777, 0777);
}
END_TEST

START_TEST(squashed_files_have_one_owner)
{
	struct fuse_mkdir_in in = { .mode = 0777 };
	struct stat st;
	uint64_t node;

	start((struct fuse_choices){ .ids = { .squash = true, .squash_uid = 7, .squash_gid = 8 } });
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	if (is_root())
		ck_assert_int_eq(chown(host(&c, "f"), 55, 66), 0);
	ck_assert_int_eq(getattr(&c, node), 0);
	ck_assert_uint_eq(attr(&c)->uid, 7);
	ck_assert_uint_eq(attr(&c)->gid, 8);
	st = host_stat(&c, "f");
	ck_assert_int_eq(chown_to(node, FATTR_UID | FATTR_GID, 7, 8), 0);
	ck_assert_int_eq(chown_to(node, FATTR_UID, 8, 8), -EPERM);
	ck_assert_int_eq(chown_to(node, FATTR_UID | FATTR_GID, 7, 7), -EPERM);
	ck_assert_uint_eq(host_stat(&c, "f").st_uid, st.st_uid);
	ck_assert_uint_eq(host_stat(&c, "f").st_gid, st.st_gid);
	c.uid = c.gid = 1234;
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "d"), 0);
	ck_assert_uint_eq(((struct fuse_entry_out *)body(&c))->attr.uid, 7);
	ck_assert_uint_eq(host_stat(&c, "d").st_uid, geteuid());
}
END_TEST

static void *serve_as_user(void *arg)
{
	struct fuse_mkdir_in in = { .mode = 0777 };
	uint64_t node;

	ck_assert_int_eq(syscall(SYS_setgroups, 0, NULL), 0);
	ck_assert_int_eq(syscall(SYS_setresgid, 1000, 1000, 1000), 0);
	ck_assert_int_eq(syscall(SYS_setresuid, 1000, 1000, 1000), 0);
	ck_assert_int_eq(fuse_thread_init(c.s), 0);
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "root"), 0);
	node = ((struct fuse_entry_out *)body(&c))->nodeid;
	ck_assert_int_eq(chown_to(node, FATTR_UID, 1000, 0), -EPERM);
	ck_assert_int_eq(chown_to(node, FATTR_UID | FATTR_GID, 0, 0), 0);
	c.uid = c.gid = 1000; /* has no map, though the server has that number itself */
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "user"), -EPERM);
	c.uid = c.gid = 5; /* is mapped to somebody the server cannot become */
	ck_assert_int_eq(CALL(&c, FUSE_MKDIR, FUSE_ROOT_ID, in, "five"), -EPERM);
	return arg;
}

START_TEST(maps_of_a_server_that_is_not_root)
{
	const struct idmap m = { .n = 2, .range = { { 0, 1000, 1 }, { 5, 5, 1 } } };
	pthread_t thread;

	start((struct fuse_choices){ .ids = { .uid = m, .gid = m } });
	ck_assert_int_eq(chmod(c.share, 0777), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve_as_user, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(host_stat(&c, "root").st_uid, 1000);
	ck_assert_int_eq(access(host(&c, "user"), F_OK), -1);
	ck_assert_int_eq(access(host(&c, "five"), F_OK), -1);
}
END_TEST

/* --- extended attributes ---------------------------------------------------------------------- */

static int set_xattr_ext(uint64_t node, const char *name, const void *value, uint32_t len,
			 uint32_t flags, bool ext)
{
	struct fuse_setxattr_in in = { .size = len, .setxattr_flags = flags };

	begin(&c, FUSE_SETXATTR, node);
	put(&c, &in, ext ? sizeof(in) : 8);
	put_str(&c, name);
	put(&c, value, len);
	return finish(&c);
}

static int set_xattr(uint64_t node, const char *name, const char *value)
{
	return set_xattr_ext(node, name, value, (uint32_t)strlen(value), 0, false);
}

static int get_xattr(uint64_t node, const char *name)
{
	struct fuse_getxattr_in in = { .size = 1000 };
	int rc = CALL(&c, FUSE_GETXATTR, node, in, name);

	return rc ? rc : (int)body_len(&c);
}

/* Names, each with its NUL, in the order of the host. */
static int list_xattr(uint64_t node)
{
	struct fuse_getxattr_in in = { .size = 4000 };
	int rc = CALL(&c, FUSE_LISTXATTR, node, in, NULL);

	return rc ? rc : (int)body_len(&c);
}

static bool is_listed(uint64_t node, const char *name)
{
	int n = list_xattr(node);
	char *list = body(&c);

	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i += (int)strlen(list + i) + 1)
		if (!strcmp(list + i, name))
			return true;
	return false;
}

START_TEST(xattr_off)
{
	uint64_t node;

	start((struct fuse_choices){ .xattr = FUSE_XATTR_OFF });
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(set_xattr(node, "user.a", "v"), -EOPNOTSUPP);
	ck_assert_int_eq(get_xattr(node, "user.a"), -EOPNOTSUPP);
	ck_assert_int_eq(get_xattr(node, "security.capability"), -EOPNOTSUPP);
	ck_assert_int_eq(call(&c, FUSE_REMOVEXATTR, node, NULL, 0, "user.a"), -EOPNOTSUPP);
	ck_assert_int_eq(list_xattr(node), -EOPNOTSUPP);
}
END_TEST

START_TEST(xattr_user_keeps_all_classes)
{
	char name[300], back[10];
	uint64_t node;

	start((struct fuse_choices){ .xattr = FUSE_XATTR_USER });
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	if (setxattr(host(&c, "f"), "user.plain", "p", 1, 0) < 0)
		return;
	ck_assert_int_eq(set_xattr(node, "trusted.overlay.opaque", "y"), 0);
	ck_assert_int_eq(set_xattr(node, "security.capability", "anything"), 0);
	ck_assert_int_eq(getxattr(host(&c, "f"), "user.heddle.trusted.overlay.opaque", back, 10), 1);
	ck_assert_int_eq(getxattr(host(&c, "f"), "security.capability", back, 10), -1);
	ck_assert_int_eq(get_xattr(node, "security.capability"), 8);
	ck_assert_int_eq(get_xattr(node, "user.plain"), 1);
	ck_assert(is_listed(node, "trusted.overlay.opaque"));
	ck_assert(is_listed(node, "security.capability"));
	ck_assert(is_listed(node, "user.plain"));
	ck_assert(!is_listed(node, "user.heddle.security.capability"));
	c.uid = 1000;
	ck_assert(!is_listed(node, "trusted.overlay.opaque"));
	ck_assert(is_listed(node, "security.capability"));
	/* What a user writes is not what root's names are kept as. */
	ck_assert_int_eq(set_xattr(node, "user.heddle.security.capability", "forged"), 0);
	ck_assert_int_eq(get_xattr(node, "security.capability"), 8);
	ck_assert_int_eq(get_xattr(node, "user.heddle.security.capability"), 6);
	ck_assert(is_listed(node, "user.heddle.security.capability"));
	ck_assert_int_eq(call(&c, FUSE_REMOVEXATTR, node, NULL, 0, "security.capability"), 0);
	ck_assert_int_eq(get_xattr(node, "security.capability"), -ENODATA);
	ck_assert_int_eq(set_xattr(node, "system.posix_acl_access", "x"), -EOPNOTSUPP);
	/* Names of the host that say something else are not shown as another. */
	ck_assert_int_eq(setxattr(host(&c, "f"), "user.heddle.user.b", "v", 1, 0), 0);
	ck_assert(!is_listed(node, "user.b"));
	memset(name, 'n', sizeof(name));
	memcpy(name, "security.", 9);
	name[243] = '\0';
	ck_assert_int_eq(set_xattr(node, name, "v"), 0);
	name[243] = 'n';
	name[244] = '\0';
	ck_assert_int_eq(set_xattr(node, name, "v"), -ERANGE);
}
END_TEST

/* rwx for the owner, a named user 1000: r, the group: r-x, mask, others: none. */
static const struct {
	uint32_t version;
	struct {
		uint16_t tag, perm;
		uint32_t id;
	} e[5];
} an_acl = { 2,
	     { { 1, 7, -1U }, { 2, 4, 1000 }, { 4, 5, -1U }, { 16, 7, -1U }, { 32, 0, -1U } } };

START_TEST(acls_pass_when_chosen)
{
	const char *access = "system.posix_acl_access";
	uint64_t node;

	start((struct fuse_choices){ .acl = true });
	host_write(&c, "f", "x", 1);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	if (setxattr(host(&c, "f"), access, &an_acl, sizeof(an_acl), 0) < 0) {
		ck_assert_int_eq(errno, EOPNOTSUPP);
		return;
	}
	ck_assert_int_eq(removexattr(host(&c, "f"), access), 0);
	ck_assert_int_eq(set_xattr_ext(node, access, &an_acl, sizeof(an_acl), 0, true), 0);
	ck_assert_int_eq(get_xattr(node, access), sizeof(an_acl));
	ck_assert(is_listed(node, access));
	ck_assert_uint_eq(host_stat(&c, "f").st_mode & 07777, 0770);
	/* The file's group is that of the server, who would be taken for a member. */
	ck_assert_int_eq(chmod(host(&c, "f"), 02770), 0);
	ck_assert_int_eq(set_xattr_ext(node, access, &an_acl, sizeof(an_acl), 0, true), 0);
	if (is_root())
		ck_assert_uint_eq(host_stat(&c, "f").st_mode & 07777, 02770);
	ck_assert_int_eq(set_xattr_ext(node, access, &an_acl, sizeof(an_acl),
				       FUSE_SETXATTR_ACL_KILL_SGID, true),
			 0);
	ck_assert_uint_eq(host_stat(&c, "f").st_mode & 07777, 0770);
	/* Too short for a client that agreed on the longer body; other names of the class. */
	begin(&c, FUSE_SETXATTR, node);
	put(&c, "\0\0\0\0\0\0\0\0abc", 12);
	ck_assert_int_eq(finish(&c), -EINVAL);
	ck_assert_int_eq(set_xattr_ext(node, "system.other", "x", 1, 0, true), -EOPNOTSUPP);
	/* A client that has not agreed applies none, so it gets none. */
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(get_xattr(node, access), -EOPNOTSUPP);
	ck_assert(!is_listed(node, access));
}
END_TEST

/* --- security labels -------------------------------------------------------------------------- */

/* 8 + 8 + "security.test\0" and "label", filled up to 8. */
static size_t put_label(uint32_t size, uint32_t n, uint32_t value_len, const char *name)
{
	char buf[256] = { 0 };
	size_t len = 16 + strlen(name) + 1 + 5;
	uint32_t head[4] = { size, n, value_len, 0 };

	len = (len + 7) / 8 * 8;
	if (!size)
		head[0] = (uint32_t)len;
	memcpy(buf, head, sizeof(head));
	strcpy(buf + 16, name);
	memcpy(buf + 16 + strlen(name) + 1, "label", 5);
	put(&c, buf, len);
	return len;
}

static void begin_maker(uint32_t opcode, const char *name)
{
	struct fuse_create_in file_in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_mknod_in nod_in = { .mode = S_IFREG | 0666 };
	struct fuse_mkdir_in dir_in = { .mode = 0777 };

	begin(&c, opcode, FUSE_ROOT_ID);
	if (opcode == FUSE_MKDIR)
		put(&c, &dir_in, sizeof(dir_in));
	else if (opcode == FUSE_MKNOD)
		put(&c, &nod_in, sizeof(nod_in));
	else if (opcode != FUSE_SYMLINK)
		put(&c, &file_in, sizeof(file_in));
	put_str(&c, name);
	if (opcode == FUSE_SYMLINK)
		put_str(&c, "target");
}

static int make_labelled(uint32_t opcode, const char *name, bool as_extension, uint32_t size,
			 uint32_t n, uint32_t value_len, const char *label)
{
	struct fuse_in_header *h = (struct fuse_in_header *)(void *)c.in;
	size_t len;

	begin_maker(opcode, name);
	while (as_extension && c.in_len % 8)
		put(&c, "", 1);
	len = put_label(size, n, value_len, label);
	if (as_extension)
		h->total_extlen = (uint16_t)(len / 8);
	return finish(&c);
}

static const uint32_t makers[] = { FUSE_CREATE, FUSE_MKDIR, FUSE_MKNOD, FUSE_SYMLINK,
				   FUSE_TMPFILE };

START_TEST(labels_are_set_on_new_files)
{
	char name[16], back[16];
	uint64_t bare, fh;

	start((struct fuse_choices){ .labels = true });
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "bare", O_RDWR, 0644, &bare, &fh), 0);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(makers); i++) {
		uint32_t op = makers[i / 2];
		uint64_t node;

		snprintf(name, sizeof(name), "n%u", i);
		ck_assert_int_eq(make_labelled(op, name, i % 2, 0, 1, 5, "security.test"), 0);
		node = ((struct fuse_entry_out *)body(&c))->nodeid;
		ck_assert_int_eq(get_xattr(node, "security.test"), 5);
		ck_assert_mem_eq(body(&c), "label", 5);
		if (op != FUSE_TMPFILE)
			ck_assert_int_eq(lgetxattr(host(&c, name), "security.test", back, 16), 5);
	}
	/* None to set: a header alone, or nothing at all. */
	ck_assert_int_eq(make_labelled(FUSE_MKDIR, "none", false, 8, 0, 0, "x"), 0);
	begin_maker(FUSE_MKDIR, "nothing");
	ck_assert_int_eq(finish(&c), 0);
}
END_TEST

START_TEST(hostile_labels_make_nothing)
{
	static const struct {
		uint32_t size, n, value_len;
		const char *name;
	} bad[] = {
		{ 0, 1, 5, "user.a" },
		{ 0, 1, 5, "system.posix_acl_access" },
		{ 0, 1, 5, "trusted.a" },
		{ 0, 1, 5, "security." },
		{ 0, 1, 5, "" },
		{ 0, 2, 5, "security.test" },
		{ 0, 31, 5, "security.test" },
		{ 0, 32, 5, "security.test" },
		{ 0, UINT32_MAX, 5, "security.test" },
		{ 0, 1, 50, "security.test" },
		{ 0, 1, UINT32_MAX, "security.test" },
		{ 4, 1, 5, "security.test" },
		{ 8, 1, 5, "security.test" },
		{ 24, 1, 5, "security.test" },
		{ 1000, 1, 5, "security.test" },
		{ UINT32_MAX, 1, 5, "security.test" },
	};
	unsigned fds;

	start((struct fuse_choices){ .labels = true });
	fds = count_fds();
	for (unsigned i = 0; i < ARRAY_SIZE(bad) * ARRAY_SIZE(makers); i++) {
		unsigned k = i / ARRAY_SIZE(makers);

		ck_assert_int_eq(make_labelled(makers[i % ARRAY_SIZE(makers)], "n", false,
					       bad[k].size, bad[k].n, bad[k].value_len,
					       bad[k].name),
				 -EINVAL);
		ck_assert_int_eq(faccessat(AT_FDCWD, host(&c, "n"), F_OK, AT_SYMLINK_NOFOLLOW), -1);
	}
	ck_assert_uint_eq(count_fds(), fds);
}
END_TEST

/* The host refuses the label: no file stays, and nothing of it in our tables. */
START_TEST(labels_that_fail_take_the_file_along)
{
	unsigned fds;

	start((struct fuse_choices){ .labels = true });
	fds = count_fds();
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(makers); i++) {
		int rc = make_labelled(makers[i / 2], "n", i % 2, 0, 1, 5, "security.capability");

		ck_assert_int_lt(rc, 0);
		ck_assert_int_eq(faccessat(AT_FDCWD, host(&c, "n"), F_OK, AT_SYMLINK_NOFOLLOW), -1);
		ck_assert_uint_eq(count_fds(), fds);
	}
}
END_TEST

/* What a client has not agreed on is no label. */
START_TEST(labels_are_ignored_unless_agreed)
{
	char back[16];

	start((struct fuse_choices){ 0 });
	ck_assert_int_eq(make_labelled(FUSE_MKDIR, "d", false, 0, 1, 5, "security.test"), 0);
	ck_assert_int_eq(make_labelled(FUSE_MKDIR, "e", true, 0, 1, 5, "security.test"), 0);
	ck_assert_int_eq(getxattr(host(&c, "d"), "security.test", back, sizeof(back)), -1);
	ck_assert_int_eq(getxattr(host(&c, "e"), "security.test", back, sizeof(back)), -1);
}
END_TEST

/* --- writing ---------------------------------------------------------------------------------- */

START_TEST(writeback_reads_what_is_open_for_writing)
{
	struct fuse_write_in in = { .size = 2, .flags = O_APPEND, .offset = 1 };
	struct fuse_lseek_in seek = { .whence = SEEK_DATA };
	uint64_t node;

	start((struct fuse_choices){ .writeback = true });
	host_write(&c, "f", "content", 7);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_WRONLY | O_APPEND, &in.fh), 0);
	ck_assert_int_eq(read_file(&c, in.fh, 0, 100), 7);
	/* The guest knows where the end is. */
	ck_assert_int_eq(write_as(&c, in, "OO"), 2);
	in.write_flags = FUSE_WRITE_CACHE;
	in.offset = 3;
	ck_assert_int_eq(write_as(&c, in, "TT"), 2);
	ck_assert_int_eq(read_file(&c, in.fh, 0, 100), 7);
	ck_assert_mem_eq(body(&c), "cOOTTnt", 7);
	seek.fh = in.fh;
	ck_assert_int_eq(CALL(&c, FUSE_LSEEK, node, seek, NULL), -ENOSYS);
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "g", O_WRONLY, 0200, &node, &in.fh), 0);
	ck_assert_int_eq(read_file(&c, in.fh, 0, 100), 0);
	/* And not with a client that does not write back. */
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_WRONLY, &in.fh), 0);
	ck_assert_int_eq(read_file(&c, in.fh, 0, 100), -EBADF);
	in.write_flags = 0;
	in.offset = 0;
	ck_assert_int_eq(write_as(&c, in, "!!"), 2);
	ck_assert_int_eq(host_stat(&c, "f").st_size, 9);
}
END_TEST

static void *open_unreadable(void *arg)
{
	struct fuse_open_in in = { .flags = O_WRONLY };
	struct fuse_open_out *out = body(&c);
	uint64_t node;

	ck_assert_int_eq(syscall(SYS_setresuid, 1000, 1000, 1000), 0);
	ck_assert_int_eq(fuse_thread_init(c.s), 0);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	ck_assert_int_eq(CALL(&c, FUSE_OPEN, node, in, NULL), 0);
	ck_assert_uint_eq(out->open_flags & FOPEN_DIRECT_IO, FOPEN_DIRECT_IO);
	ck_assert_int_eq(read_file(&c, out->fh, 0, 100), -EBADF);
	return arg;
}

/* Who is root by a map only gives himself no real right on the host. */
START_TEST(maps_give_no_rights_of_the_host)
{
	static const uint32_t cap[5] = { 0x02000001, 1u << 7 };
	struct fuse_mknod_in disk_in = { .mode = S_IFBLK | 0666, .rdev = 0x800 };
	struct fuse_mknod_in whiteout_in = { .mode = S_IFCHR };
	const struct idmap shifted = { .n = 1, .range = { { 0, 100000, 60000 } } };
	uint64_t node, fh;

	start((struct fuse_choices){ .ids = { .uid = shifted, .gid = shifted } });
	ck_assert_int_eq(create(&c, FUSE_ROOT_ID, "f", O_RDWR, 0755, &node, &fh), 0);
	ck_assert_int_eq(set_xattr_ext(node, "security.capability", cap, sizeof(cap), 0, false),
			 -EPERM);
	ck_assert_int_eq(CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, disk_in, "disk"), -EPERM);
	ck_assert_int_eq(CALL(&c, FUSE_MKNOD, FUSE_ROOT_ID, whiteout_in, "gone"), 0);
}
END_TEST

/* A group without a number here decides nothing. */
START_TEST(a_group_without_a_map_does_not_refuse)
{
	const struct idmap shifted = { .n = 1, .range = { { 0, 100000, 60000 } } };
	const uint32_t ext[4] = { 16, FUSE_EXT_GROUPS, 1, 65534 };
	struct fuse_mkdir_in in = { .mode = 0777 };
	struct fuse_in_header *h;

	start((struct fuse_choices){ .ids = { .uid = shifted, .gid = shifted } });
	c.uid = c.gid = 1000;
	h = begin(&c, FUSE_MKDIR, FUSE_ROOT_ID);
	put(&c, &in, sizeof(in));
	put_str(&c, "d");
	put(&c, ext, sizeof(ext));
	h->total_extlen = sizeof(ext) / 8;
	ck_assert_int_eq(finish(&c), 0);
	ck_assert_uint_eq(host_stat(&c, "d").st_uid, 101000);
}
END_TEST

START_TEST(writeback_without_the_right_to_read)
{
	pthread_t thread;

	start((struct fuse_choices){ .writeback = true });
	host_write(&c, "f", "content", 7);
	ck_assert_int_eq(chown(host(&c, "f"), 1000, 0), 0);
	ck_assert_int_eq(chmod(host(&c, "f"), 0200), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, open_unreadable, NULL), 0);
	pthread_join(thread, NULL);
}
END_TEST

/* Flags of our descriptors on the file: how many have O_DIRECT, how many there are. */
static unsigned count_direct(const char *name, unsigned *all)
{
	struct stat want = host_stat(&c, name), st;
	unsigned n = 0;

	*all = 0;
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFL);

		if (flags < 0 || flags & O_PATH || fstat(fd, &st) < 0 || st.st_ino != want.st_ino ||
		    st.st_dev != want.st_dev)
			continue;
		++*all;
		n += (flags & O_DIRECT) != 0;
	}
	return n;
}

static int read_as(uint64_t fh, uint32_t flags)
{
	struct fuse_read_in in = { .fh = fh, .size = 3, .flags = flags };
	int rc = CALL(&c, FUSE_READ, FUSE_ROOT_ID, in, NULL);

	return rc ? rc : (int)body_len(&c);
}

START_TEST(direct_io_as_each_request_says)
{
	struct fuse_write_in in = { .size = 3, .flags = O_DIRECT, .write_flags = FUSE_WRITE_CACHE };
	int probe;
	unsigned all;
	uint64_t node, fh;

	start((struct fuse_choices){ .direct = true });
	host_write(&c, "f", "content", 7);
	probe = open(host(&c, "f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	node = lookup(&c, FUSE_ROOT_ID, "f", NULL);
	if (probe < 0) {
		printf("skipped: 1, no O_DIRECT here\n");
		return;
	}
	close(probe);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDWR | O_DIRECT, &fh), 0);
	/* What is written back from a mapping is not aligned, and need not be. */
	in.fh = fh;
	ck_assert_int_eq(write_as(&c, in, "abc"), 3);
	ck_assert_uint_eq(count_direct("f", &all), 0);
	ck_assert_uint_eq(all, 1);
	read_as(fh, O_DIRECT);
	ck_assert_uint_eq(count_direct("f", &all), 1);
	ck_assert_uint_eq(all, 2);
	ck_assert_int_eq(read_as(fh, 0), 3); /* after fcntl(F_SETFL) */
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
	ck_assert_uint_eq(count_direct("f", &all), 0);
	ck_assert_uint_eq(all, 0);
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	ck_assert_uint_eq(count_direct("f", &all), 0);
	read_as(fh, O_DIRECT);
	ck_assert_uint_eq(count_direct("f", &all), 1);
	release(&c, FUSE_RELEASE, fh);
	ck_assert_uint_eq(count_direct("f", &all), 0);
	ck_assert_uint_eq(all, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse_choices");
	TCase *t = tcase_create("options"), *served = tcase_create("served");
	SRunner *r;
	int failed;

	tcase_add_test(t, maps_are_parsed);
	tcase_add_test(t, squash_is_parsed);
	tcase_add_test(t, choices_that_exclude_each_other);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(served, NULL, teardown);
	tcase_add_test(served, only_what_was_chosen_is_offered);
	tcase_add_test(served, squashed_files_have_one_owner);
	tcase_add_test(served, ids_without_a_map_own_nothing);
	tcase_add_test(served, xattr_off);
	tcase_add_test(served, xattr_user_keeps_all_classes);
	tcase_add_test(served, acls_pass_when_chosen);
	tcase_add_test(served, hostile_labels_make_nothing);
	tcase_add_test(served, labels_are_ignored_unless_agreed);
	tcase_add_test(served, writeback_reads_what_is_open_for_writing);
	tcase_add_test(served, direct_io_as_each_request_says);
	if (is_root()) {
		tcase_add_test(served, mapped_files_are_the_callers);
		tcase_add_test(served, root_is_who_the_guest_says);
		tcase_add_test(served, maps_of_a_server_that_is_not_root);
		tcase_add_test(served, labels_are_set_on_new_files);
		tcase_add_test(served, labels_that_fail_take_the_file_along);
		tcase_add_test(served, maps_give_no_rights_of_the_host);
		tcase_add_test(served, a_group_without_a_map_does_not_refuse);
		tcase_add_test(served, writeback_without_the_right_to_read);
	} else {
		printf("skipped: 6, other users and security.* take root\n");
	}
	suite_add_tcase(s, served);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
