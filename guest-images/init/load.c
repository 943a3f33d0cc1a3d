/*
 * Kernel modules of the initramfs, in the spec's order.  Each file is removed once loaded: it is
 * RAM.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load_module(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
		err = -errno;
	close(fd);
	return err;
}

void load_modules(const struct spec *s)
{
	for (char **path = s->module; *path; path++) {
		int err = load_module(*path);

		if (err)
			agent_err("%s: %s", *path, strerror(-err));
		unlink(*path);
	}
}
