/* The file server as a server for the virtio-fs device: see devices/fs.h. */
#include "devices/fs.h"
#include "devices/fuse/session.h"

static ssize_t serve(void *server, void *worker, struct fs_request *r, struct cursor *in,
		     struct cursor *out)
{
	return fuse_serve(server, worker, in, out);
}

static int worker_begin(void *server, void *worker, struct loop *loop)
{
	return fuse_thread_init(server);
}

static void worker_end(void *server, void *worker)
{
}

static void reset(void *server)
{
	fuse_session_reset(server);
}

const struct fs_server fuse_fs_server = {
	.serve = serve,
	.worker_begin = worker_begin,
	.worker_end = worker_end,
	.reset = reset,
};
