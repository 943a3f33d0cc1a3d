/*
 * Interrupt wires: see irq.h.
 *
 * KVM takes the whole routing table at once, so a change rebuilds nothing: the entry is edited in
 * place and the table is sent again.  An entry that is not routed yet is simply absent.
 */
#include "vmm/irq.h"

#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROUTES_STEP 64

int irq_init(struct irq *irq, int vm_fd, uint32_t pins)
{
	*irq = (struct irq){ .vm_fd = vm_fd, .next_gsi = pins };
	pthread_mutex_init(&irq->lock, NULL);
	irq->n_max = ROUTES_STEP;
	irq->routing = calloc(1, sizeof(*irq->routing) +
					 irq->n_max * sizeof(struct kvm_irq_routing_entry));
	return irq->routing ? 0 : -ENOMEM;
}

void irq_destroy(struct irq *irq)
{
	free(irq->routing);
	irq->routing = NULL;
	pthread_mutex_destroy(&irq->lock);
}

/* The entry of this GSI and type, added if there is none.  NULL without memory.  Lock held. */
static struct kvm_irq_routing_entry *irq_entry(struct irq *irq, uint32_t gsi, uint32_t type,
					       uint32_t chip)
{
	struct kvm_irq_routing *r = irq->routing;
	struct kvm_irq_routing_entry *e;

	for (uint32_t i = 0; i < r->nr; i++) {
		e = &r->entries[i];
		if (e->gsi == gsi && e->type == type &&
		    (type != KVM_IRQ_ROUTING_IRQCHIP || e->u.irqchip.irqchip == chip))
			return e;
	}
	if (r->nr == irq->n_max) {
		unsigned n = irq->n_max + ROUTES_STEP;

		r = realloc(r, sizeof(*r) + n * sizeof(*e));
		if (!r)
			return NULL;
		irq->routing = r;
		irq->n_max = n;
	}
	e = &r->entries[r->nr++];
	*e = (struct kvm_irq_routing_entry){ .gsi = gsi, .type = type };
	return e;
}

static int irq_send(struct irq *irq)
{
	if (irq->vm_fd < 0)
		return 0;
	return ioctl(irq->vm_fd, KVM_SET_GSI_ROUTING, irq->routing) ? -errno : 0;
}

int irq_route_pin(struct irq *irq, uint32_t gsi, uint32_t chip, uint32_t pin)
{
	struct kvm_irq_routing_entry *e;

	e = irq_entry(irq, gsi, KVM_IRQ_ROUTING_IRQCHIP, chip);
	if (!e)
		return -ENOMEM;
	e->u.irqchip.irqchip = chip;
	e->u.irqchip.pin = pin;
	return 0;
}

int irq_commit(struct irq *irq)
{
	return irq_send(irq);
}

int irq_msi_create(struct irq *irq, struct msi_line *l)
{
	*l = (struct msi_line){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (l->fd < 0)
		return -errno;
	pthread_mutex_lock(&irq->lock);
	l->gsi = irq->next_gsi++;
	pthread_mutex_unlock(&irq->lock);
	return 0;
}

static int irq_attach(struct irq *irq, const struct msi_line *l, uint32_t flags)
{
	struct kvm_irqfd fd = { .fd = (uint32_t)l->fd, .gsi = l->gsi, .flags = flags };

	if (irq->vm_fd < 0)
		return 0;
	return ioctl(irq->vm_fd, KVM_IRQFD, &fd) ? -errno : 0;
}

/*
 * KVM delivered what it found in the counter when it attached, but leaves the counter as it is: left
 * there it would read as pending the next time the vector is masked.  A signal that comes after the
 * attach is taken by KVM inside the write itself, so nothing is lost here.
 */
static void irq_drain(const struct irq *irq, const struct msi_line *l)
{
	uint64_t count;

	if (irq->vm_fd >= 0 && l->attached)
		(void)!read(l->fd, &count, sizeof(count));
}

void irq_msi_destroy(struct irq *irq, struct msi_line *l)
{
	if (l->fd < 0)
		return;
	if (l->attached)
		(void)irq_attach(irq, l, KVM_IRQFD_FLAG_DEASSIGN);
	close(l->fd);
	l->fd = -1;
}

/*
 * KVM judges the table as a whole: an entry it refuses (the guest chooses the address) would stand in the
 * way of every later change, so the old one is put back.
 */
static int irq_msi_route(struct irq *irq, struct msi_line *l, uint64_t addr, uint32_t data,
			 uint32_t devid)
{
	struct kvm_irq_routing_entry *e, old;
	int err;

	if (l->routed && l->addr == addr && l->data == data)
		return 0;
	e = irq_entry(irq, l->gsi, KVM_IRQ_ROUTING_MSI, 0);
	if (!e)
		return -ENOMEM;
	old = *e;
	e->u.msi.address_lo = (uint32_t)addr;
	e->u.msi.address_hi = (uint32_t)(addr >> 32);
	e->u.msi.data = data;
	if (irq->msi_has_devid) {
		e->flags = KVM_MSI_VALID_DEVID;
		e->u.msi.devid = devid;
	}
	err = irq_send(irq);
	if (err) {
		*e = old;
		return err;
	}
	l->routed = true;
	l->addr = addr;
	l->data = data;
	return 0;
}

int irq_msi_set(struct irq *irq, struct msi_line *l, uint64_t addr, uint32_t data, uint32_t devid,
		bool masked)
{
	int err = 0;

	pthread_mutex_lock(&irq->lock);
	if (masked && l->attached) {
		err = irq_attach(irq, l, KVM_IRQFD_FLAG_DEASSIGN);
		l->attached = false;
	}
	if (!masked) {
		err = irq_msi_route(irq, l, addr, data, devid);
		if (!err && !l->attached) {
			err = irq_attach(irq, l, 0);
			l->attached = !err;
			irq_drain(irq, l);
		}
	}
	pthread_mutex_unlock(&irq->lock);
	return err;
}

bool irq_msi_pending(const struct msi_line *l)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };

	return !l->attached && poll(&p, 1, 0) == 1;
}

int irq_line_create(struct irq *irq, struct irq_line *l, uint32_t gsi, bool level)
{
	struct kvm_irqfd fd = { .gsi = gsi };
	int err;

	*l = (struct irq_line){ .gsi = gsi, .resample_fd = -1 };
	l->trigger_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->trigger_fd < 0)
		return -errno;
	if (level) {
		l->resample_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (l->resample_fd < 0)
			goto fail;
		fd.flags = KVM_IRQFD_FLAG_RESAMPLE;
		fd.resamplefd = (uint32_t)l->resample_fd;
	}
	fd.fd = (uint32_t)l->trigger_fd;
	if (irq->vm_fd >= 0 && ioctl(irq->vm_fd, KVM_IRQFD, &fd))
		goto fail;
	return 0;
fail:
	err = -errno;
	irq_line_destroy(irq, l);
	return err;
}

/* Closing the eventfd takes the irqfd away as well (KVM sees the hang-up). */
void irq_line_destroy(struct irq *irq, struct irq_line *l)
{
	(void)irq;
	if (l->trigger_fd >= 0)
		close(l->trigger_fd);
	if (l->resample_fd >= 0)
		close(l->resample_fd);
	l->trigger_fd = l->resample_fd = -1;
}

void irq_signal(int fd)
{
	const uint64_t one = 1;

	/* Fails only when the counter is full: then it is signalled already. */
	(void)!write(fd, &one, sizeof(one));
}
