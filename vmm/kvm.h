/*
 * Thin wrappers of the KVM ioctls that every architecture needs, and the list of capabilities without
 * which heddle does not start.  All return 0 or a descriptor, else -errno.
 */
#ifndef VMM_KVM_H
#define VMM_KVM_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/mem.h"

struct kvm_need {
	int cap;          /* KVM_CAP_* */
	const char *name; /* as in linux/kvm.h, without KVM_CAP_ */
	const char *why;
};

/* What every VM needs; ends with name == NULL. */
extern const struct kvm_need kvm_needs[];

/* Open path (NULL: /dev/kvm), check the API version.  -ENOTSUP for another version. */
int kvm_open(const char *path);
/* First capability of kvm_needs that this KVM lacks, or NULL. */
const struct kvm_need *kvm_missing(int kvm_fd);
int kvm_create_vm(int kvm_fd);
int kvm_check(int fd, int cap); /* KVM_CHECK_EXTENSION: 0 = no, else a value; on kvm or vm fd */
int kvm_set_memory(int vm_fd, const struct mem *m); /* one slot a region */
int kvm_run_size(int kvm_fd);

#endif
