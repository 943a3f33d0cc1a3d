/*
 * The file server as a server for the virtio-fs device (devices/fs.h): server = session, worker =
 * lane i.  What a lane must not wait for goes to the session's helpers, and is completed on the lane.
 */
#ifndef DEVICES_FUSE_FS_SERVER_H
#define DEVICES_FUSE_FS_SERVER_H

struct fs_server;
struct fuse_lanes;
struct fuse_session;

extern const struct fs_server fuse_fs_server;

/* Lanes for all workers of the session, which must outlive them.  0 or -errno. */
int fuse_lanes_create(struct fuse_session *s, unsigned n, struct fuse_lanes **out);
void fuse_lanes_destroy(struct fuse_lanes *l); /* NULL is harmless */
void *fuse_lane(struct fuse_lanes *l, unsigned i);

#endif
