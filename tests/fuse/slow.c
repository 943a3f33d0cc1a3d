/*
 * A file system that hangs: a FUSE mount with one file, "file", whose content is "slow\n".  While the
 * path GATE does not exist, reading it is not answered, and neither is anything that comes later.
 *
 * usage: slow MOUNTPOINT GATE     serves until it is unmounted
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_ID 2
#define CONTENT "slow\n"

static union {
	char bytes[256 * 1024];
	struct fuse_in_header head;
} in;

static int fuse;

static void reply(int error, const void *body, size_t len)
{
	char out[512];
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + len), .error = error, .unique = in.head.unique
	};

	memcpy(out, &head, sizeof(head));
	if (len)
		memcpy(out + sizeof(head), body, len);
	(void)!write(fuse, out, head.len);
}

static struct fuse_attr attr(uint64_t id)
{
	return (struct fuse_attr){
		.ino = id,
		.mode = id == FILE_ID ? S_IFREG | 0644 : S_IFDIR | 0755,
		.nlink = 1,
		.size = id == FILE_ID ? strlen(CONTENT) : 0,
	};
}

static void lookup(const char *name)
{
	struct fuse_entry_out out = { .nodeid = FILE_ID, .attr = attr(FILE_ID) };

	if (strcmp(name, "file"))
		reply(-ENOENT, NULL, 0);
	else
		reply(0, &out, sizeof(out));
}

static void read_file(const struct fuse_read_in *r, const char *gate)
{
	while (access(gate, F_OK))
		usleep(10000);
	reply(0, CONTENT, r->offset ? 0 : strlen(CONTENT));
}

static void serve(const char *gate)
{
	const struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 4096 };
	const struct fuse_attr_out a = { .attr = attr(in.head.nodeid) };
	const struct fuse_open_out open_out = { .open_flags = FOPEN_DIRECT_IO };
	const struct fuse_statfs_out statfs_out = { .st.bsize = 4096 };
	const void *body = in.bytes + sizeof(in.head);

	switch (in.head.opcode) {
	case FUSE_INIT:
		return reply(0, &init, sizeof(init));
	case FUSE_LOOKUP:
		return lookup(body);
	case FUSE_GETATTR:
		return reply(0, &a, sizeof(a));
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return reply(0, &open_out, sizeof(open_out));
	case FUSE_READ:
		return read_file(body, gate);
	case FUSE_READDIR:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		return reply(0, NULL, 0);
	case FUSE_STATFS:
		return reply(0, &statfs_out, sizeof(statfs_out));
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	default:
		return reply(-ENOSYS, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	char opts[128];

	if (argc != 3)
		return 125;
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
	if (fuse < 0 || mount("heddle-slow", argv[1], "fuse.heddle-slow", 0, opts) < 0) {
		perror("slow: mount");
		return 125;
	}
	while (read(fuse, in.bytes, sizeof(in.bytes)) > 0 || errno == EINTR || errno == ENOENT)
		serve(argv[2]);
	return 0;
}
