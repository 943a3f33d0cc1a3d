/* KVM ioctls: see kvm.h. */
#include "vmm/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define KVM_API 12 /* frozen since Linux 2.6.22 */

const struct kvm_need kvm_needs[] = {
	{ KVM_CAP_USER_MEMORY, "USER_MEMORY", "guest RAM" },
	{ KVM_CAP_IRQCHIP, "IRQCHIP", "interrupt controller in the kernel" },
	{ KVM_CAP_IRQ_ROUTING, "IRQ_ROUTING", "one MSI-X vector per queue" },
	{ KVM_CAP_IRQFD, "IRQFD", "interrupts from I/O threads" },
	{ KVM_CAP_IRQFD_RESAMPLE, "IRQFD_RESAMPLE", "INTx" },
	{ KVM_CAP_IOEVENTFD, "IOEVENTFD", "kicks without an exit" },
	{ KVM_CAP_IOEVENTFD_ANY_LENGTH, "IOEVENTFD_ANY_LENGTH", "kicks without an exit" },
	{ KVM_CAP_SIGNAL_MSI, "SIGNAL_MSI", "message-signalled interrupts" },
	{ KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT", "stopping vCPUs without a race" },
	{ 0, NULL, NULL },
};

int kvm_open(const char *path)
{
	int fd = open(path ? path : "/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API) {
		close(fd);
		return -ENOTSUP;
	}
	return fd;
}

int kvm_check(int fd, int cap)
{
	int value = ioctl(fd, KVM_CHECK_EXTENSION, cap);

	return value < 0 ? 0 : value;
}

const struct kvm_need *kvm_missing(int kvm_fd)
{
	for (const struct kvm_need *need = kvm_needs; need->name; need++)
		if (!kvm_check(kvm_fd, need->cap))
			return need;
	return NULL;
}

int kvm_create_vm(int kvm_fd)
{
	int fd;

	/* A signal during the call gives EINTR on kernels that set up big structures. */
	do
		fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

int kvm_set_memory(int vm_fd, const struct mem *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		struct kvm_userspace_memory_region slot = {
			.slot = i,
			.guest_phys_addr = m->region[i].gpa,
			.memory_size = m->region[i].len,
			.userspace_addr = (uintptr_t)m->region[i].host,
		};

		if (ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &slot))
			return -errno;
	}
	return 0;
}

int kvm_run_size(int kvm_fd)
{
	int size = ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);

	return size < 0 ? -errno : size;
}
