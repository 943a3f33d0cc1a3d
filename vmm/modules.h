/*
 * Kernel modules for the guest: which files of a modules folder a kernel needs to have some named
 * modules, in the order in which they must be loaded, with their contents.  Start-up only, main
 * thread.
 */
#ifndef VMM_MODULES_H
#define VMM_MODULES_H

#include <stdbool.h>
#include <stddef.h>

struct module {
	char *name; /* as the kernel says it: underscores, no suffix */
	void *data; /* an ELF object, decompressed */
	size_t len;
};

struct module_list {
	struct module *v;
	unsigned n;
};

struct module_want {
	const char *name; /* module name or alias */
	bool optional;	  /* a kernel without it is fine */
	bool found;	  /* result: built in, or in the list */
};

/*
 * Add what the wanted modules need and the kernel has not built in; dir is
 * ".../lib/modules/RELEASE" and must hold the indices that depmod writes.  A module of the list
 * comes after all that it depends on.
 * 0, or -errno after one log line: -ENOENT dir has no indices, or a module that is not optional is
 * unknown; -EFBIG a module is larger than 64 MiB or there are more than 256.  *out is empty on
 * failure.
 */
int modules_collect(const char *dir, struct module_want *want, unsigned n_want,
		    struct module_list *out);

void modules_free(struct module_list *list);

#endif
