/* What to expect of a file system of the host: how long it may take. */
#include <linux/magic.h>
#include <sys/vfs.h>

#include "devices/fuse/server.h"

/* Not, or not everywhere, in linux/magic.h. */
#define MAGIC_CIFS   0xff534d42
#define MAGIC_SMB2   0xfe534d42
#define MAGIC_FUSE   0x65735546
#define MAGIC_CEPH   0x00c36400
#define MAGIC_LUSTRE 0x0bd00bd0
#define MAGIC_GFS2   0x01161970
#define MAGIC_ORANGE 0x20030528
#define MAGIC_GPFS   0x47504653
#define MAGIC_BEEGFS 0x19830326
#define MAGIC_VBOXSF 0x786f4256

/* Another program or another machine answers, or does not. */
static bool is_remote(uint32_t magic)
{
	switch (magic) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case MAGIC_CIFS:
	case MAGIC_SMB2:
	case MAGIC_FUSE:
	case V9FS_MAGIC:
	case MAGIC_CEPH:
	case AFS_SUPER_MAGIC:
	case AFS_FS_MAGIC:
	case CODA_SUPER_MAGIC:
	case NCP_SUPER_MAGIC:
	case OCFS2_SUPER_MAGIC:
	case MAGIC_LUSTRE:
	case MAGIC_GFS2:
	case MAGIC_ORANGE:
	case MAGIC_GPFS:
	case MAGIC_BEEGFS:
	case MAGIC_VBOXSF:
		return true;
	default:
		return false;
	}
}

static bool is_memory(uint32_t magic)
{
	switch (magic) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case DEBUGFS_MAGIC:
	case TRACEFS_MAGIC:
		return true;
	default:
		return false;
	}
}

enum host_kind host_kind(int fd)
{
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return HOST_DISK;
	if (is_remote((uint32_t)st.f_type))
		return HOST_REMOTE;
	return is_memory((uint32_t)st.f_type) ? HOST_MEMORY : HOST_DISK;
}
