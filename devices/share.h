/*
 * A shared directory: options -> file server (devices/fuse) behind a virtio-fs device (devices/fs.h).
 */
#ifndef DEVICES_SHARE_H
#define DEVICES_SHARE_H

#include "devices/device.h"

/*
 * spec: "tag=NAME,path=DIR[,ro][,queues=N][,ring=N][,cache=auto|none|always]" and the keys of
 * devices/fuse/choices.h; modified.  0 or -errno, having logged one line.
 */
int share_create(char *spec, const struct device_env *env, struct device *out);

/* Is this "key" or "key=value" one of spec's, tag, path and ro excepted? */
bool share_takes(const char *word);

#endif
