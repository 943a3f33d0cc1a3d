/*
 * What the agent is told (guest-images/init/channel.h) and what it needs: from the options of a run to
 * the records of the spec, the shares, and the list of modules.
 */
#ifndef VMM_GUEST_SPEC_H
#define VMM_GUEST_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/initramfs.h"
#include "vmm/run_opts.h"

struct guest_spec {
	char **record; /* "KEY=VALUE", in order */
	unsigned n;
	bool failed; /* out of memory; told at the end */
};

/*
 * Records of the command, its surroundings and its mounts; adds the shares of root and mounts to o's
 * devices.  tty: the command gets a terminal of heddle's own size.  Module records are added later, when
 * their files are known.  0 or -errno, logged.
 */
int guest_spec_make(struct guest_spec *s, struct run_opts *o, bool tty);
void guest_spec_free(struct guest_spec *s);

/* The agent, its spec and the modules it needs.  Adds devices as above.  0 or -errno, logged. */
int guest_initramfs_make(struct run_opts *o, bool tty, struct initramfs *out);

#endif
