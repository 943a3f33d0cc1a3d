/* MMIO and port ranges, doorbells: see bus.h. */
#include "vmm/bus.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void bus_init(struct bus *b, int vm_fd, bool ports)
{
	*b = (struct bus){ .vm_fd = vm_fd, .ports = ports };
}

void bus_destroy(struct bus *b)
{
	free(b->soft);
	b->soft = NULL;
	b->n_soft = 0;
}

int bus_add(struct bus *b, const struct bus_range *r)
{
	uint64_t end;

	if (r->len == 0 || __builtin_add_overflow(r->base, r->len, &end))
		return -EINVAL;
	for (unsigned i = 0; i < b->n; i++)
		if (r->base < b->range[i].base + b->range[i].len && b->range[i].base < end)
			return -EINVAL;
	if (b->n == BUS_RANGES_MAX)
		return -ENOSPC;
	b->range[b->n++] = *r;
	return 0;
}

static const struct bus_range *bus_find(const struct bus *b, uint64_t addr, uint32_t len)
{
	for (unsigned i = 0; i < b->n; i++) {
		const struct bus_range *r = &b->range[i];

		if (addr >= r->base && addr - r->base < r->len && len <= r->len - (addr - r->base))
			return r;
	}
	return NULL;
}

bool bus_read(const struct bus *b, uint64_t addr, void *p, uint32_t len)
{
	const struct bus_range *r = bus_find(b, addr, len);

	if (!r) {
		memset(p, 0xff, len);
		return false;
	}
	r->read(r->ctx, addr - r->base, p, len);
	return true;
}

bool bus_write(const struct bus *b, uint64_t addr, const void *p, uint32_t len)
{
	const struct bus_range *r;
	const uint64_t one = 1;

	for (unsigned i = 0; i < b->n_soft; i++)
		if (b->soft[i].addr == addr)
			return write(b->soft[i].fd, &one, sizeof(one)) == sizeof(one);
	r = bus_find(b, addr, len);
	if (!r)
		return false;
	r->write(r->ctx, addr - r->base, p, len);
	return true;
}

static int bus_doorbell_kvm(struct bus *b, uint64_t addr, int fd, uint32_t flags)
{
	struct kvm_ioeventfd io = { .addr = addr, .fd = fd, .flags = flags };

	/* Length 0 is "any length", and for MMIO KVM's fast path; ports have to name one. */
	if (b->ports) {
		io.flags |= KVM_IOEVENTFD_FLAG_PIO;
		io.len = 2;
	}
	return ioctl(b->vm_fd, KVM_IOEVENTFD, &io) ? -errno : 0;
}

int bus_doorbell_add(struct bus *b, uint64_t addr, int fd)
{
	struct bus_doorbell *soft;

	if (b->vm_fd >= 0)
		return bus_doorbell_kvm(b, addr, fd, 0);
	if (b->n_soft == BUS_DOORBELLS_MAX)
		return -ENOSPC;
	soft = realloc(b->soft, (b->n_soft + 1) * sizeof(*soft));
	if (!soft)
		return -ENOMEM;
	b->soft = soft;
	b->soft[b->n_soft++] = (struct bus_doorbell){ .addr = addr, .fd = fd };
	return 0;
}

int bus_doorbell_del(struct bus *b, uint64_t addr, int fd)
{
	if (b->vm_fd >= 0)
		return bus_doorbell_kvm(b, addr, fd, KVM_IOEVENTFD_FLAG_DEASSIGN);
	for (unsigned i = 0; i < b->n_soft; i++) {
		if (b->soft[i].addr == addr && b->soft[i].fd == fd) {
			b->soft[i] = b->soft[--b->n_soft];
			return 0;
		}
	}
	return -ENOENT;
}
