/*
 * The archive heddle gives to a guest (vmm/initramfs.h), read back by a reader that believes
 * nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest-images/init/channel.h"
#include "tests/unit/newc.h"
#include "tests/unit/suite.h"
#include "vmm/base.h"
#include "vmm/initramfs.h"

static struct module modules[] = {
	{ .name = (char *)(uintptr_t) "virtio_ring",
	  .data = (void *)(uintptr_t) "abcde",
	  .len = 5 },
	{ .name = (char *)(uintptr_t) "virtio", .data = (void *)(uintptr_t) "", .len = 0 },
	{ .name = (char *)(uintptr_t) "fuse",
	  .data = (void *)(uintptr_t) "0123456789ab",
	  .len = 12 },
};

static const char *const records[] = { "root=heddle-root", "arg=a\n\xff=b", "arg=", "env=X=" };

static struct initramfs build(void)
{
	const struct module_list list = { .v = modules, .n = ARRAY_SIZE(modules) };
	const struct initramfs_opts o = {
		.agent = "\177ELFagent",
		.agent_len = 9,
		.modules = &list,
		.records = records,
		.n_records = ARRAY_SIZE(records),
	};
	struct initramfs i;

	ck_assert_int_eq(initramfs_create(&o, &i), 0);
	ck_assert_uint_eq(i.len % 4, 0);
	return i;
}

static struct newc_file find(const struct initramfs *i, const char *name)
{
	struct newc_file f;
	size_t off = 0;

	while (newc_next(i->data, i->len, &off, &f) == 1)
		if (strcmp(f.name, name) == 0)
			return f;
	ck_abort_msg("%s is not in the archive", name);
}

START_TEST(well_formed_to_the_end)
{
	struct initramfs i = build();
	struct newc_file f;
	unsigned n = 0;
	size_t off = 0;

	while (newc_next(i.data, i.len, &off, &f) == 1)
		n++;
	ck_assert_uint_eq(n, 4 + 1 + 3 + 2);
	ck_assert_str_eq(f.name, "TRAILER!!!");
	ck_assert_uint_eq(off, i.len);
	initramfs_destroy(&i);
	ck_assert_ptr_null(i.data);
}
END_TEST

START_TEST(folders_come_before_their_files)
{
	struct initramfs i = build();
	struct newc_file f, dir;
	char parent[64];
	size_t off = 0, dir_off;

	while (newc_next(i.data, i.len, &off, &f) == 1) {
		const char *slash = strrchr(f.name, '/');

		ck_assert_int_ne(f.name[0], '/');
		if (!slash)
			continue;
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - f.name), f.name);
		for (dir_off = 0; newc_next(i.data, i.len, &dir_off, &dir) == 1;)
			if (strcmp(dir.name, parent) == 0)
				break;
		ck_assert(S_ISDIR(dir.mode));
		ck_assert_uint_lt(dir_off, off);
	}
	initramfs_destroy(&i);
}
END_TEST

START_TEST(the_agent_and_its_devices)
{
	struct initramfs i = build();
	struct newc_file f = find(&i, "init");

	ck_assert_uint_eq(f.mode, S_IFREG | 0755);
	ck_assert_uint_eq(f.len, 9);
	ck_assert_mem_eq(f.data, "\177ELFagent", 9);
	f = find(&i, "dev/console");
	ck_assert_uint_eq(f.mode, S_IFCHR | 0600);
	ck_assert_uint_eq(f.major, 5);
	ck_assert_uint_eq(f.minor, 1);
	f = find(&i, "dev/kmsg");
	ck_assert_uint_eq(f.major, 1);
	ck_assert_uint_eq(f.minor, 11);
	initramfs_destroy(&i);
}
END_TEST

START_TEST(the_spec_names_the_modules_first)
{
	static const char want[] = "module=/modules/00-virtio_ring.ko\0"
				   "module=/modules/01-virtio.ko\0"
				   "module=/modules/02-fuse.ko\0"
				   "root=heddle-root\0arg=a\n\xff=b\0arg=\0env=X=";
	struct initramfs i = build();
	struct newc_file f = find(&i, &CHANNEL_SPEC[1]);

	ck_assert_uint_eq(f.len, sizeof(want));
	ck_assert_mem_eq(f.data, want, sizeof(want));
	f = find(&i, "modules/00-virtio_ring.ko");
	ck_assert_uint_eq(f.len, 5);
	ck_assert_mem_eq(f.data, "abcde", 5);
	f = find(&i, "modules/01-virtio.ko");
	ck_assert_uint_eq(f.len, 0);
	f = find(&i, "modules/02-fuse.ko");
	ck_assert_uint_eq(f.len, 12);
	initramfs_destroy(&i);
}
END_TEST

START_TEST(nothing_optional_is_needed)
{
	const struct initramfs_opts o = { .agent = "x", .agent_len = 1 };
	struct initramfs i;

	ck_assert_int_eq(initramfs_create(&o, &i), 0);
	ck_assert_uint_eq(find(&i, &CHANNEL_SPEC[1]).len, 0);
	ck_assert_uint_eq(find(&i, "init").len, 1);
	initramfs_destroy(&i);
}
END_TEST

START_TEST(cpio_reads_it)
{
	struct initramfs i = build();
	char path[] = "/tmp/initramfs-XXXXXX", cmd[128];
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, i.data, i.len), (ssize_t)i.len);
	close(fd);
	snprintf(cmd, sizeof(cmd),
		 "! command -v cpio >/dev/null || cpio -it --quiet <%s >/dev/null", path);
	ck_assert_int_eq(system(cmd), 0);
	unlink(path);
	initramfs_destroy(&i);
}
END_TEST

SUITE_MAIN("initramfs", 30, well_formed_to_the_end, folders_come_before_their_files,
	   the_agent_and_its_devices, the_spec_names_the_modules_first, nothing_optional_is_needed,
	   cpio_reads_it)
