/*
 * Kernel modules (vmm/modules.h), from the folders of stock kernels that guest-images/kernels.sh
 * has put under build/kernels, and from broken ones made here.
 */
#include <check.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/modules.h"

#define KERNELS "build/kernels/*/lib/modules/*"

static int index_of(const struct module_list *list, const char *name)
{
	for (unsigned i = 0; i < list->n; i++)
		if (strcmp(list->v[i].name, name) == 0)
			return i;
	return -1;
}

/* What heddle asks for. */
static void check_kernel(const char *dir)
{
	static const char *const before[][2] = {
		{ "virtio", "virtio_ring" },	{ "virtio_ring", "virtio_pci" },
		{ "fuse", "virtiofs" },		{ "net_failover", "virtio_net" },
		{ "failover", "net_failover" },
	};
	struct module_want want[] = {
		{ .name = "virtio_pci" },
		{ .name = "virtiofs" },
		{ .name = "overlay" },
		{ .name = "virtio_net" },
		{ .name = "no_such_thing", .optional = true },
	};
	struct module_list list;

	ck_assert_int_eq(modules_collect(dir, want, ARRAY_SIZE(want), &list), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(want[i].found);
	ck_assert(!want[4].found);
	ck_assert_int_ge(index_of(&list, "overlay"), 0); /* a module in all of them */
	for (unsigned i = 0; i < list.n; i++) {
		ck_assert_uint_gt(list.v[i].len, 64);
		ck_assert_mem_eq(list.v[i].data, "\177ELF", 4);
		ck_assert_int_eq(index_of(&list, list.v[i].name), i);
	}
	for (unsigned i = 1; i < ARRAY_SIZE(before); i++)
		if (index_of(&list, before[i][1]) >= 0)
			ck_assert_int_le(index_of(&list, before[i][0]),
					 index_of(&list, before[i][1]));
	modules_free(&list);
	ck_assert_uint_eq(list.n, 0);
}

START_TEST(stock_kernels)
{
	glob_t g;

	ck_assert_int_eq(glob(KERNELS, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc; i++)
		check_kernel(g.gl_pathv[i]);
	globfree(&g);
}
END_TEST

START_TEST(a_wanted_module_must_exist)
{
	struct module_want want = { .name = "no_such_thing" };
	struct module_list list;
	glob_t g;

	ck_assert_int_eq(glob(KERNELS, 0, NULL, &g), 0);
	ck_assert_int_eq(modules_collect(g.gl_pathv[0], &want, 1, &list), -ENOENT);
	ck_assert_uint_eq(list.n, 0);
	ck_assert_ptr_null(list.v);
	globfree(&g);
}
END_TEST

START_TEST(folders_that_are_none)
{
	struct module_want want = { .name = "fuse", .optional = true };
	struct module_list list;

	ck_assert_int_eq(modules_collect("/no/such/folder", &want, 1, &list), -ENOENT);
	ck_assert_int_eq(modules_collect("/etc/passwd", &want, 1, &list), -ENOTDIR);
	ck_assert_int_eq(modules_collect("/etc", &want, 1, &list), -ENOENT);
}
END_TEST

/* A folder with one module, the indices made by depmod, and then different contents. */
static void check_contents(const char *contents, size_t len, int expected)
{
	char dir[] = "/tmp/modules-XXXXXX", cmd[256], path[96];
	struct module_want want = { .name = "overlay" };
	struct module_list list;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(cmd, sizeof(cmd),
		 "cd $(ls -d build/kernels/bookworm-cloud/lib/modules/*) && cp modules.*bin %s/ && "
		 "mkdir -p %s/kernel/fs/overlayfs",
		 dir, dir);
	ck_assert_int_eq(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/kernel/fs/overlayfs/overlay.ko", dir);
	f = contents ? fopen(path, "w") : NULL;
	if (f) {
		fwrite(contents, 1, len, f);
		fclose(f);
	}
	ck_assert_int_eq(modules_collect(dir, &want, 1, &list), expected);
	modules_free(&list);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

START_TEST(damaged_module_files)
{
	log_set_level(LOG_LEVEL_ERROR);
	check_contents(NULL, 0, -ENOENT);
	check_contents("", 0, -EBADMSG);
	check_contents("not a module", 12, -EBADMSG);
	check_contents("\xfd"
		       "7zXZ\0cut",
		       9, -EBADMSG);
	check_contents("\177ELF", 4, 0);
}
END_TEST

/* Without kernels most of this cannot be tested, and does not count as tested. */
int main(void)
{
	Suite *s = suite_create("modules");
	TCase *t = tcase_create("modules");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, folders_that_are_none);
	if (access("build/kernels/bookworm-cloud", F_OK) == 0) {
		tcase_add_test(t, stock_kernels);
		tcase_add_test(t, a_wanted_module_must_exist);
		tcase_add_test(t, damaged_module_files);
	} else {
		printf("skipped: 3, there is no build/kernels/bookworm-cloud\n");
	}
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
