/*
 * The FUSE wire format (kernel FUSE protocol 7.x): linux/fuse.h, and what protocol minors up to 45
 * add to the header of the machine that builds.  Names and layouts are the kernel's.
 */
#ifndef DEVICES_FUSE_WIRE_H
#define DEVICES_FUSE_WIRE_H

#include <linux/fuse.h>
#include <stdint.h>

/* The oldest minor whose requests all have today's layout, and the newest that is known here. */
#define WIRE_MINOR_MIN 27
#define WIRE_MINOR_MAX 45

/* INIT requests end here before minor 36; replies have been 64 bytes since minor 23. */
#define WIRE_INIT_IN_MIN 16

/*
 * The longest name a client takes or sends (FUSE_NAME_MAX of its kernel; more since 6.16).  Above
 * NAME_MAX: the host's vfat and cifs have 255 characters in up to 765 bytes, its FUSE mounts 1024.
 */
#define WIRE_NAME_MAX 1024

/* SETXATTR bodies unless FUSE_SETXATTR_EXT was agreed. */
#define WIRE_SETXATTR_IN_MIN 8

#ifndef FUSE_CREATE_SUPP_GROUP
#define FUSE_CREATE_SUPP_GROUP (1ULL << 34)
#define FUSE_EXT_GROUPS        32

struct fuse_supp_groups {
	uint32_t nr_groups;
	uint32_t groups[];
};
#endif

#ifndef FUSE_DIRECT_IO_ALLOW_MMAP
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#endif

#if FUSE_KERNEL_MINOR_VERSION < 39
#define FUSE_STATX 52

struct fuse_sx_time {
	int64_t tv_sec;
	uint32_t tv_nsec;
	int32_t reserved;
};

struct fuse_statx {
	uint32_t mask;
	uint32_t blksize;
	uint64_t attributes;
	uint32_t nlink;
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	uint16_t spare0[1];
	uint64_t ino;
	uint64_t size;
	uint64_t blocks;
	uint64_t attributes_mask;
	struct fuse_sx_time atime;
	struct fuse_sx_time btime;
	struct fuse_sx_time ctime;
	struct fuse_sx_time mtime;
	uint32_t rdev_major;
	uint32_t rdev_minor;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint64_t spare2[14];
};

struct fuse_statx_in {
	uint32_t getattr_flags;
	uint32_t reserved;
	uint64_t fh;
	uint32_t sx_flags;
	uint32_t sx_mask;
};

struct fuse_statx_out {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec;
	uint32_t flags;
	uint64_t spare[2];
	struct fuse_statx stat;
};
#endif

#if FUSE_KERNEL_MINOR_VERSION < 45
#define FUSE_COPY_FILE_RANGE_64 53

struct fuse_copy_file_range_out {
	uint64_t bytes_copied;
};
#endif

#endif
