/*
 * The initramfs that heddle gives to a guest: its agent as /init, the kernel modules the agent
 * loads, and the spec that tells it what to do.  Start-up only, main thread.
 */
#ifndef VMM_INITRAMFS_H
#define VMM_INITRAMFS_H

#include <stddef.h>

#include "vmm/modules.h"

struct initramfs_opts {
	const void *agent; /* the agent's program */
	size_t agent_len;
	const struct module_list *modules; /* in load order; NULL: none */
	const char *const *records;	   /* of the spec, "KEY=VALUE"; channel.h lists the keys */
	unsigned n_records;		   /* module= records are not among them: they are added */
};

struct initramfs {
	void *data; /* a newc archive, uncompressed; its length is a multiple of 4 */
	size_t len;
};

/* 0, or -ENOMEM with nothing allocated. */
int initramfs_create(const struct initramfs_opts *o, struct initramfs *out);

void initramfs_destroy(struct initramfs *i);

#endif
