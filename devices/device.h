/*
 * What machine.c knows of a device it was asked for: a virtio device and what has to be freed with it.
 */
#ifndef DEVICES_DEVICE_H
#define DEVICES_DEVICE_H

#include "devices/virtio.h"

/* What a device may need from the machine at creation. */
struct device_env {
	const char *name; /* "fs0" */
	const struct mem *mem;
	unsigned n_vcpus;
};

struct device {
	struct virtio_dev *dev;
	int (*thread_start)(struct iothread *t); /* for virtio_dev_launch; may be NULL */
	char id[48];                             /* unique among devices: "tag " + 36 bytes + NUL */
	void *backing;                           /* freed by destroy after dev is gone; may be NULL */
	void (*destroy)(void *backing);
};

#endif
