/*
 * Nodes that have given up their descriptors are the files they were.  Most tests run twice: nodes
 * are found again by file handle (0), by name (1).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "devices/fuse/server.h"
#include "tests/unit/fuse_client.h"

static struct client c;

/* --- statx as the host might answer it -------------------------------------------------------- */

static bool without_btime;
static uint64_t ino_real, ino_told; /* the second in place of the first */
static const char *hook_name;       /* once, after this name was looked at: */
static void (*hook)(void);

/* In the place of libc's. */
int statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *st)
{
	long rc = syscall(SYS_statx, dir_fd, name, flags, mask, st);

	if (rc < 0)
		return -1;
	if (without_btime) {
		st->stx_mask &= ~(unsigned)STATX_BTIME;
		memset(&st->stx_btime, 0, sizeof(st->stx_btime));
	}
	if (ino_real && st->stx_ino == ino_real)
		st->stx_ino = ino_told;
	if (hook_name && !strcmp(name, hook_name)) {
		hook_name = NULL;
		hook();
	}
	return 0;
}

/* --- fixture ---------------------------------------------------------------------------------- */

static void start(bool by_name)
{
	struct fuse_opts o = { .workers = 8, .by_name = by_name };

	client_start(&c, &o);
}

static void teardown(void)
{
	client_stop(&c);
}

/* All nodes that can give up their descriptors have. */
static void drop_all(void)
{
	while (nodes_reclaim(c.s))
		;
}

static uint64_t file(const char *name, const char *content)
{
	uint64_t node;

	host_write(&c, name, content, strlen(content));
	node = lookup(&c, FUSE_ROOT_ID, name, NULL);
	ck_assert_uint_ne(node, 0);
	return node;
}

static uint64_t folder(uint64_t in, const char *path, const char *name)
{
	uint64_t node;

	ck_assert_int_eq(mkdir(host(&c, path), 0755), 0);
	node = lookup(&c, in, name, NULL);
	ck_assert_uint_ne(node, 0);
	return node;
}

static void check_content(uint64_t node, const char *content)
{
	uint64_t fh;

	ck_assert_int_eq(open_node(&c, FUSE_OPEN, node, O_RDONLY, &fh), 0);
	ck_assert_int_eq(read_file(&c, fh, 0, 100), (int)strlen(content));
	ck_assert_int_eq(memcmp(body(&c), content, strlen(content)), 0);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
}

static void check_links(uint64_t node, unsigned nlink)
{
	ck_assert_int_eq(getattr(&c, node), 0);
	ck_assert_uint_eq(attr(&c)->nlink, nlink);
}

static int remove_name(uint32_t opcode, uint64_t dir, const char *name)
{
	return call(&c, opcode, dir, NULL, 0, name);
}

static int rename_node(uint64_t from, const char *name, uint64_t to, const char *new_name,
		       uint32_t flags)
{
	struct fuse_rename2_in in = { .newdir = to, .flags = flags };

	begin(&c, FUSE_RENAME2, from);
	put(&c, &in, sizeof(in));
	put_str(&c, name);
	put_str(&c, new_name);
	return finish(&c);
}

static int link_node(uint64_t node, uint64_t dir, const char *name)
{
	struct fuse_link_in in = { .oldnodeid = node };

	return CALL(&c, FUSE_LINK, dir, in, name);
}

/* --- names that go ---------------------------------------------------------------------------- */

START_TEST(unlinked)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = 3 };
	uint64_t node;

	start(_i);
	node = file("f", "content");
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_UNLINK, FUSE_ROOT_ID, "f"), 0);
	drop_all();
	check_links(node, 0);
	ck_assert_int_eq(CALL(&c, FUSE_SETATTR, node, in, NULL), 0);
	drop_all();
	check_content(node, "con");
	/* Of the same name, and another file. */
	ck_assert_uint_ne(file("f", "new"), node);
	drop_all();
	check_content(node, "con");
}
END_TEST

/* The working directory of a process of the guest. */
START_TEST(removed_directory)
{
	uint64_t dir, above;
	int rc;

	start(_i);
	above = folder(FUSE_ROOT_ID, "above", "above");
	dir = folder(above, "above/d", "d");
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_RMDIR, above, "d"), 0);
	ck_assert_int_eq(remove_name(FUSE_RMDIR, FUSE_ROOT_ID, "above"), 0);
	drop_all();
	ck_assert_int_eq(getattr(&c, dir), 0);
	ck_assert_int_eq(getattr(&c, above), 0);
	lookup(&c, dir, "f", &rc);
	ck_assert(rc == 0 || rc == -ENOENT);
}
END_TEST

START_TEST(renamed_over)
{
	uint64_t a, b, da, db;

	start(_i);
	a = file("a", "aa");
	b = file("b", "b");
	da = folder(FUSE_ROOT_ID, "da", "da");
	db = folder(FUSE_ROOT_ID, "db", "db");
	drop_all();
	ck_assert_int_eq(rename_node(FUSE_ROOT_ID, "a", FUSE_ROOT_ID, "b", 0), 0);
	ck_assert_int_eq(rename_node(FUSE_ROOT_ID, "da", FUSE_ROOT_ID, "db", 0), 0);
	drop_all();
	check_links(b, 0);
	check_content(b, "b");
	check_links(a, 1);
	check_content(a, "aa");
	ck_assert_int_eq(getattr(&c, da), 0);
	ck_assert_int_eq(getattr(&c, db), 0);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "b", NULL), a);
}
END_TEST

/* --- names that move -------------------------------------------------------------------------- */

START_TEST(renamed)
{
	uint64_t d, e, f;

	start(_i);
	d = folder(FUSE_ROOT_ID, "d", "d");
	e = folder(FUSE_ROOT_ID, "e", "e");
	host_write(&c, "d/f", "content", 7);
	f = lookup(&c, d, "f", NULL);
	drop_all();
	ck_assert_int_eq(rename_node(d, "f", e, "g", 0), 0);
	drop_all();
	check_content(f, "content");
	/* And what is above it. */
	drop_all();
	ck_assert_int_eq(rename_node(FUSE_ROOT_ID, "e", d, "below", 0), 0);
	drop_all();
	check_content(f, "content");
	drop_all();
	ck_assert_uint_eq(lookup(&c, e, "g", NULL), f);
}
END_TEST

START_TEST(exchanged)
{
	uint64_t d, a, b;

	start(_i);
	d = folder(FUSE_ROOT_ID, "d", "d");
	a = file("a", "aa");
	host_write(&c, "d/b", "b", 1);
	b = lookup(&c, d, "b", NULL);
	drop_all();
	ck_assert_int_eq(rename_node(FUSE_ROOT_ID, "a", d, "b", RENAME_EXCHANGE), 0);
	drop_all();
	check_content(a, "aa");
	check_content(b, "b");
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_UNLINK, FUSE_ROOT_ID, "a"), 0);
	drop_all();
	check_links(b, 0);
	check_links(a, 1);
}
END_TEST

START_TEST(hard_links)
{
	unsigned before;
	uint64_t node;

	start(_i);
	before = count_fds();
	node = file("a", "content");
	ck_assert_int_eq(link_node(node, FUSE_ROOT_ID, "b"), 0);
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_UNLINK, FUSE_ROOT_ID, "a"), 0);
	drop_all();
	ck_assert_uint_eq(count_fds(), before); /* "b" leads to it */
	check_content(node, "content");
	ck_assert_int_eq(link_node(node, FUSE_ROOT_ID, "c"), 0);
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_UNLINK, FUSE_ROOT_ID, "c"), 0);
	drop_all();
	check_content(node, "content"); /* what leads to it need not be known */
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "b", NULL), node);
	drop_all();
	ck_assert_uint_eq(count_fds(), before); /* now it is */
	check_links(node, 1);
	drop_all();
	ck_assert_int_eq(remove_name(FUSE_UNLINK, FUSE_ROOT_ID, "b"), 0);
	drop_all();
	check_links(node, 0);
}
END_TEST

START_TEST(file_without_a_name)
{
	struct fuse_create_in in = { .flags = O_RDWR, .mode = S_IFREG | 0644 };
	struct fuse_entry_out *e = body(&c);
	unsigned before;
	uint64_t node, fh;
	int rc;

	start(_i);
	before = count_fds();
	rc = CALL(&c, FUSE_TMPFILE, FUSE_ROOT_ID, in, "/");
	if (rc == -EOPNOTSUPP)
		return;
	ck_assert_int_eq(rc, 0);
	node = e->nodeid;
	fh = ((struct fuse_open_out *)(void *)(e + 1))->fh;
	ck_assert_int_eq(write_file(&c, fh, 0, "content", 7), 7);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
	drop_all();
	check_content(node, "content");
	ck_assert_int_eq(link_node(node, FUSE_ROOT_ID, "f"), 0);
	drop_all();
	ck_assert_uint_eq(count_fds(), before);
	check_content(node, "content");
}
END_TEST

static struct client other;

static void unlink_f(void)
{
	ck_assert_int_eq(call(&other, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, "f"), 0);
}

static void rename_f(void)
{
	struct fuse_rename_in in = { .newdir = FUSE_ROOT_ID };

	begin(&other, FUSE_RENAME, FUSE_ROOT_ID);
	put(&other, &in, sizeof(in));
	put_str(&other, "f");
	put_str(&other, "g");
	ck_assert_int_eq(finish(&other), 0);
}

/* A look-up that saw the name does not bring it back. */
START_TEST(name_goes_under_a_look_up)
{
	static void (*const hooks[])(void) = { unlink_f, rename_f };

	start(_i);
	for (unsigned i = 0; i < ARRAY_SIZE(hooks); i++) {
		uint64_t node = file("f", "content");

		memcpy(&other, &c, offsetof(struct client, in));
		other.w = fuse_session_worker(c.s, 1);
		hook = hooks[i];
		hook_name = "f";
		ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "f", NULL), node);
		drop_all();
		check_content(node, "content");
	}
}
END_TEST

/* --- changes on the host ---------------------------------------------------------------------- */

START_TEST(host_renames)
{
	uint64_t node, open, fh;

	start(_i);
	node = file("f", "content");
	open = file("open", "open");
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, open, O_RDONLY, &fh), 0);
	drop_all();
	ck_assert_int_eq(rename(host(&c, "f"), host(&c, "g")), 0);
	ck_assert_int_eq(rename(host(&c, "open"), host(&c, "closed")), 0);
	ck_assert_int_eq(getattr(&c, node), _i ? -ESTALE : 0);
	ck_assert_int_eq(getattr(&c, open), 0);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "g", NULL), node);
	drop_all();
	check_content(node, "content");
	ck_assert_int_eq(unlink(host(&c, "closed")), 0);
	drop_all();
	check_links(open, 0);
	ck_assert_int_eq(read_file(&c, fh, 0, 16), 4);
	/* Another file of the name is not it. */
	drop_all();
	ck_assert_int_eq(unlink(host(&c, "g")), 0);
	host_write(&c, "g", "other", 5);
	ck_assert_int_eq(getattr(&c, node), -ESTALE);
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, "g", NULL), node);
}
END_TEST

/* A number that has passed to another file; nlookup of both is right, and forgetting all works. */
START_TEST(inode_number_used_again)
{
	uint64_t old, new;

	start(_i);
	old = file("old", "old");
	drop_all();
	usleep(20000); /* birth times are as coarse as the host's clock tick */
	host_write(&c, "new", "new", 3);
	ino_told = host_stat(&c, "old").st_ino;
	ino_real = host_stat(&c, "new").st_ino;
	ck_assert_int_eq(unlink(host(&c, "old")), 0);
	new = lookup(&c, FUSE_ROOT_ID, "new", NULL);
	ck_assert_uint_ne(new, 0);
	ck_assert_uint_ne(new, old);
	ck_assert_int_eq(getattr(&c, old), -ESTALE);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "new", NULL), new);
	forget(&c, old, 1);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "new", NULL), new);
	forget(&c, new, 2);
	check_content(new, "new");
	forget(&c, new, 1);
	ck_assert_int_eq(getattr(&c, new), -ESTALE);
}
END_TEST

/* The same, and the session ends with the node that is in no hash. */
START_TEST(reset_with_a_lost_node)
{
	unsigned before;
	uint64_t fh;

	start(_i);
	before = count_fds();
	ck_assert_int_eq(open_node(&c, FUSE_OPEN, file("old", "old"), O_RDONLY, &fh), 0);
	ck_assert_int_eq(release(&c, FUSE_RELEASE, fh), 0);
	drop_all();
	usleep(20000); /* birth times are as coarse as the host's clock tick */
	host_write(&c, "new", "new", 3);
	ino_told = host_stat(&c, "old").st_ino;
	ino_real = host_stat(&c, "new").st_ino;
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, "new", NULL), 0);
	fuse_session_reset(c.s);
	ck_assert_uint_eq(count_fds(), before);
	ck_assert_int_eq(client_init_as(&c, 31, 0), 0);
	ck_assert_uint_ne(lookup(&c, FUSE_ROOT_ID, "new", NULL), 0);
}
END_TEST

/* Nothing would tell that a number has passed on. */
START_TEST(no_birth_time_no_giving_up)
{
	unsigned before;

	without_btime = true;
	start(_i);
	(void)file("f", "x");
	(void)folder(FUSE_ROOT_ID, "d", "d");
	before = count_fds();
	drop_all();
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

/* --- directories above ------------------------------------------------------------------------ */

#define DEPTH 200

START_TEST(deep_tree)
{
	uint64_t node = FUSE_ROOT_ID;
	unsigned before;

	start(_i);
	before = count_fds();
	for (unsigned i = 0; i < DEPTH; i++) {
		struct fuse_mkdir_in in = { .mode = 0755 };

		ck_assert_int_eq(CALL(&c, FUSE_MKDIR, node, in, "d"), 0);
		node = ((struct fuse_entry_out *)body(&c))->nodeid;
	}
	drop_all();
	ck_assert_uint_eq(count_fds(), before);
	ck_assert_int_eq(getattr(&c, node), 0);
	drop_all();
	ck_assert_uint_eq(count_fds(), before);
	/* Without those between, which the guest need not know. */
	fuse_session_reset(c.s);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

/* The host moves directories so that each was last seen below the other. */
START_TEST(directories_in_a_circle)
{
	uint64_t a, b;

	start(_i);
	a = folder(FUSE_ROOT_ID, "a", "a");
	b = folder(a, "a/b", "b");
	ck_assert_int_eq(rename(host(&c, "a/b"), host(&c, "b")), 0);
	ck_assert_int_eq(rename(host(&c, "a"), host(&c, "b/a")), 0);
	ck_assert_uint_eq(lookup(&c, b, "a", NULL), a);
	drop_all();
	ck_assert_int_eq(getattr(&c, a), _i ? -ESTALE : 0);
	ck_assert_uint_eq(lookup(&c, FUSE_ROOT_ID, "b", NULL), b);
	ck_assert_int_eq(getattr(&c, a), 0);
}
END_TEST

/* What the guest knows from a listing only. */
START_TEST(listed)
{
	struct fuse_read_in in = { .size = 4096 };
	uint64_t dir, fh, node = 0;

	start(_i);
	dir = folder(FUSE_ROOT_ID, "d", "d");
	host_write(&c, "d/f", "content", 7);
	ck_assert_int_eq(open_node(&c, FUSE_OPENDIR, dir, O_RDONLY | O_DIRECTORY, &fh), 0);
	in.fh = fh;
	ck_assert_int_eq(CALL(&c, FUSE_READDIRPLUS, dir, in, NULL), 0);
	for (size_t at = 0; at < body_len(&c);) {
		struct fuse_direntplus *e = (void *)((char *)body(&c) + at);

		node = e->entry_out.nodeid ? e->entry_out.nodeid : node;
		at += FUSE_DIRENTPLUS_SIZE(e);
	}
	ck_assert_int_eq(release(&c, FUSE_RELEASEDIR, fh), 0);
	ck_assert_uint_ne(node, 0);
	drop_all();
	check_content(node, "content");
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  800
#define DIRS    4

struct racer {
	struct client c;
	pthread_t thread;
	unsigned seed;
};

static void race_names(struct client *me, unsigned seed, unsigned i)
{
	struct fuse_rename_in to = { .newdir = FUSE_ROOT_ID };
	char name[16], new_name[16];
	uint64_t node, fh;

	snprintf(name, sizeof(name), "t%u", seed);
	snprintf(new_name, sizeof(new_name), "n%u", seed);
	ck_assert_int_eq(create(me, FUSE_ROOT_ID, name, O_RDWR, 0644, &node, &fh), 0);
	ck_assert_int_eq(write_file(me, fh, 0, "x", 1), 1);
	ck_assert_int_eq(release(me, FUSE_RELEASE, fh), 0);
	if (i % 2) {
		begin(me, FUSE_RENAME, FUSE_ROOT_ID);
		put(me, &to, sizeof(to));
		put_str(me, name);
		put_str(me, new_name);
		ck_assert_int_eq(finish(me), 0);
	}
	ck_assert_int_eq(getattr(me, node), 0);
	ck_assert_int_eq(call(me, FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, i % 2 ? new_name : name), 0);
	ck_assert_int_eq(getattr(me, node), 0);
	ck_assert_uint_eq(attr(me)->nlink, 0);
	ck_assert_uint_eq(attr(me)->size, 1);
	forget(me, node, 1);
}

static void *race(void *arg)
{
	struct racer *me = arg;

	ck_assert_int_eq(fuse_thread_init(me->c.s), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		char name[16];
		uint64_t dir, node;

		snprintf(name, sizeof(name), "d%u", (i + me->seed) % DIRS);
		dir = lookup(&me->c, FUSE_ROOT_ID, name, NULL);
		node = lookup(&me->c, dir, "f", NULL);
		ck_assert_uint_ne(node, 0);
		if (i % 3 == me->seed % 3)
			nodes_reclaim(me->c.s);
		ck_assert_int_eq(getattr(&me->c, node), 0);
		ck_assert_uint_eq(attr(&me->c)->size, (i + me->seed) % DIRS + 1);
		if (i % 8 == 0)
			race_names(&me->c, me->seed, i / 8);
		forget(&me->c, node, 1);
		forget(&me->c, dir, 1);
	}
	return NULL;
}

START_TEST(lanes_race)
{
	static struct racer racer[THREADS];
	unsigned before;

	start(_i);
	before = count_fds();
	for (unsigned i = 0; i < DIRS; i++) {
		char name[16], path[24];

		snprintf(name, sizeof(name), "d%u", i);
		snprintf(path, sizeof(path), "d%u/f", i);
		/* One reference that is not given back, so that nodes live on without descriptors. */
		ck_assert_uint_ne(lookup(&c, folder(FUSE_ROOT_ID, name, name), "f", NULL), 1);
		host_write(&c, path, "xxxx", i + 1);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		memcpy(&racer[i].c, &c, offsetof(struct client, in));
		racer[i].c.w = fuse_session_worker(c.s, i);
		racer[i].c.out_room = 4096;
		racer[i].seed = i;
		pthread_create(&racer[i].thread, NULL, race, &racer[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(racer[i].thread, NULL);
	drop_all();
	ck_assert_uint_eq(count_fds(), before);
	fuse_session_reset(c.s);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fuse_reclaim");
	TCase *t = tcase_create("reclaim");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_loop_test(t, unlinked, 0, 2);
	tcase_add_loop_test(t, removed_directory, 0, 2);
	tcase_add_loop_test(t, renamed_over, 0, 2);
	tcase_add_loop_test(t, renamed, 0, 2);
	tcase_add_loop_test(t, exchanged, 0, 2);
	tcase_add_loop_test(t, hard_links, 0, 2);
	tcase_add_loop_test(t, file_without_a_name, 0, 2);
	tcase_add_loop_test(t, name_goes_under_a_look_up, 0, 2);
	tcase_add_loop_test(t, host_renames, 0, 2);
	tcase_add_loop_test(t, inode_number_used_again, 0, 2);
	tcase_add_loop_test(t, reset_with_a_lost_node, 0, 2);
	tcase_add_loop_test(t, no_birth_time_no_giving_up, 0, 2);
	tcase_add_loop_test(t, deep_tree, 0, 2);
	tcase_add_loop_test(t, directories_in_a_circle, 0, 2);
	tcase_add_loop_test(t, listed, 0, 2);
	tcase_add_loop_test(t, lanes_race, 0, 2);
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
