/* The file server as a server for the virtio-fs device: see devices/fs.h. */
#include "devices/fs.h"
#include "devices/fuse/session.h"

static int thread_start(void *server)
{
	return fuse_thread_init(server);
}

static ssize_t serve(void *server, void *worker, struct fs_request *r, struct cursor *in,
		     struct cursor *out)
{
	(void)r;
	return fuse_serve(server, worker, in, out);
}

static void reset(void *server)
{
	fuse_session_reset(server);
}

const struct fs_server fuse_fs_server = {
	.thread_start = thread_start,
	.serve = serve,
	.reset = reset,
};
