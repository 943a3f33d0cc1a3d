/*
 * File systems of the guest.
 *
 * The channel is mounted only for as long as it takes to open its files; then it is detached, so
 * that the command finds it in no mount table.  The same goes for the layers under an overlay root.
 *
 * The root is mounted on /newroot, moved over / and entered.  Everything after that happens inside
 * it, so paths and symbolic links mean what they will mean to the command.
 *
 * Mount points that are missing are made; in a read-only root they cannot be, and the guest does
 * without, which is noted in the kernel's log.  Only a share the user asked for must be there.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VIRTIOFS "virtiofs"
#define NEWROOT	 "/newroot"

/* A driver's probe may still be running when its module has loaded. */
#define DEVICE_WAIT_MS 1000

void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* An unknown tag gives EINVAL, which is also what a device not yet probed gives. */
static int mount_tag(const char *tag, const char *path, unsigned long flags)
{
	for (int ms = 0;; ms += 10) {
		if (mount(tag, path, VIRTIOFS, flags, NULL) == 0)
			return 0;
		if (errno != EINVAL || ms >= DEVICE_WAIT_MS)
			return -errno;
		sleep_ms(10);
	}
}

int channel_open(struct agent *a, const char *dir)
{
	struct {
		int *fd;
		const char *name;
		int flags;
	} file[] = {
		{ &a->ch.status, "status", O_WRONLY }, /* first: failures go there */
		{ &a->ch.in, "stdin", O_RDONLY },      { &a->ch.out, "stdout", O_WRONLY },
		{ &a->ch.err, "stderr", O_WRONLY },    { &a->ch.events, "events", O_RDONLY },
	};
	char path[256];

	for (unsigned i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, file[i].name);
		*file[i].fd = open(path, file[i].flags | O_CLOEXEC);
		if (*file[i].fd < 0)
			return agent_fail(a, errno, "channel: %s", file[i].name);
	}
	return 0;
}

int mount_channel(struct agent *a)
{
	int err;

	mkdir("/channel", 0700);
	err = mount_tag(CHANNEL_TAG, "/channel", MS_NOSUID | MS_NODEV | MS_NOEXEC);
	if (err)
		return agent_fail(a, -err, "mount %s", CHANNEL_TAG);
	err = channel_open(a, "/channel");
	umount2("/channel", MNT_DETACH);
	rmdir("/channel");
	return err;
}

/* The merged root shows owner and mode of the upper layer's top folder: make them the lower's. */
static void copy_root_attributes(const char *lower, const char *upper)
{
	struct stat st;

	if (stat(lower, &st))
		return;
	if (chown(upper, st.st_uid, st.st_gid) == 0)
		chmod(upper, st.st_mode & 07777);
}

/*
 * With redirects, folders of the lower layer can be renamed; kernels that cannot do it refuse the
 * option.
 */
static int mount_overlay(void)
{
#define LAYERS "lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work"
	if (mount("overlay", NEWROOT, "overlay", 0, LAYERS ",redirect_dir=on") == 0 ||
	    mount("overlay", NEWROOT, "overlay", 0, LAYERS) == 0)
		return 0;
	return -errno;
}

static int mount_overlay_root(struct agent *a)
{
	int err;

	mkdir("/lower", 0700);
	mkdir("/upper", 0700);
	err = mount_tag(a->spec.root, "/lower", MS_RDONLY);
	if (err)
		return agent_fail(a, -err, "mount %s", a->spec.root);
	if (mount("tmpfs", "/upper", "tmpfs", 0, "mode=0700"))
		return agent_fail(a, errno, "mount tmpfs for the overlay");
	mkdir("/upper/data", 0755);
	mkdir("/upper/work", 0755);
	copy_root_attributes("/lower", "/upper/data");
	err = mount_overlay();
	if (err)
		return agent_fail(a, -err, "mount overlay root");
	umount2("/lower", MNT_DETACH);
	umount2("/upper", MNT_DETACH);
	rmdir("/lower");
	rmdir("/upper");
	return 0;
}

static int mount_plain_root(struct agent *a)
{
	int err = mount_tag(a->spec.root, NEWROOT, a->spec.root_mode == ROOT_RO ? MS_RDONLY : 0);

	return err ? agent_fail(a, -err, "mount %s", a->spec.root) : 0;
}

/* Our program stays while it runs; its name goes with the rest of the initramfs. */
static void initramfs_empty(void)
{
	unlink("/init");
	unlink(CHANNEL_SPEC);
	rmdir("/modules");
}

int mount_root(struct agent *a)
{
	int err;

	if (!a->spec.root)
		return 0;
	initramfs_empty();
	mkdir(NEWROOT, 0755);
	err = a->spec.root_mode == ROOT_OVERLAY ? mount_overlay_root(a) : mount_plain_root(a);
	if (err)
		return err;
	if (chdir(NEWROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		return agent_fail(a, errno, "enter the root");
	return 0;
}

int make_dirs(const char *path)
{
	static char part[PATH_MAX]; /* one thread; too large for a stack */
	struct stat st;
	int err;

	if (strlen(path) >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; path[i - 1]; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		err = mkdir(part, 0755) ? errno : 0;
		if (err && err != EEXIST && stat(part, &st))
			return -err;
	}
	return 0;
}

static void mount_one(const char *type, const char *path, unsigned long flags, const char *data)
{
	struct stat st;

	if (stat(path, &st) && mkdir(path, 0755)) {
		agent_note("%s is missing in the root and cannot be made: %s", path,
			   strerror(errno));
		return;
	}
	if (mount(type, path, type, flags, data) && errno != EBUSY)
		agent_note("mount %s: %s", path, strerror(errno));
}

/* What udev would add to a devtmpfs. */
static void make_dev_links(void)
{
	static const char *const link[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (unsigned i = 0; i < sizeof(link) / sizeof(link[0]); i++)
		(void)!symlink(link[i][0], link[i][1]);
}

void mount_system(const struct spec *s)
{
	const unsigned long none = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	mount_one("proc", "/proc", none, NULL);
	mount_one("sysfs", "/sys", none, NULL);
	mount_one("cgroup2", "/sys/fs/cgroup", none, NULL);
	mount_one("devtmpfs", "/dev", MS_NOSUID, "mode=0755");
	mount_one("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
	mount_one("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	make_dev_links();
	mount_one("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755");
	if (mkdir("/run/lock", 01777) == 0)
		chmod("/run/lock", 01777);
	if (s->root && s->root_mode == ROOT_RO)
		mount_one("tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777");
}

int mount_shares(struct agent *a)
{
	for (unsigned i = 0; i < a->spec.n_mounts; i++) {
		const struct spec_mount *m = &a->spec.mount[i];
		int err = make_dirs(m->path);

		if (err)
			return agent_fail(a, -err, "mount point %s", m->path);
		err = mount_tag(m->tag, m->path, m->ro ? MS_RDONLY : 0);
		if (err)
			return agent_fail(a, -err, "mount %s on %s", m->tag, m->path);
	}
	return 0;
}

/* Backwards: a share may lie on another. */
void unmount_shares(const struct spec *s)
{
	for (unsigned i = s->n_mounts; i-- > 0;)
		umount2(s->mount[i].path, 0);
}
