/*
 * Which kernel to boot, and where its modules are.
 */
#ifndef VMM_KERNEL_FIND_H
#define VMM_KERNEL_FIND_H

#include <stddef.h>

struct run_opts;

/* The newest readable /boot/vmlinuz-*, by version order of the names.  0 or -ENOENT, silently. */
int kernel_newest(char *path, size_t len);

/* When path is empty, fill it with the newest.  -ENOENT, logged. */
int kernel_find(char *path, size_t len);

/* Open o->kernel_file, fill o->release from it, and o->modules from the places where that release's modules
 * may be; both stay empty when there is nothing to find.  A --modules that holds none is an error.  -errno,
 * logged but for -ENOMEM. */
int kernel_find_modules(struct run_opts *o);

#endif
