/*
 * Interrupt wires: GSI allocation, MSI routes and irqfds.  Control path only: an I/O thread raises
 * an interrupt by writing 1 to an eventfd and nothing else.
 *
 * One msi_line per MSI-X vector: its eventfd lives as long as the line.  While the vector is masked
 * the eventfd is not attached to KVM, so a write stays in its counter: that counter is the pending
 * bit, and attaching it again delivers it (KVM looks at the counter when an irqfd is assigned).
 *
 * One irq_line per level-triggered pin (INTx).  A write to trigger_fd asserts it; the guest's
 * end-of-interrupt deasserts it and signals resample_fd, upon which the owner writes trigger_fd
 * again if its cause is still there.
 *
 * With vm_fd < 0 there is no KVM (unit tests, fuzzers): lines are plain eventfds for the test.
 */
#ifndef VMM_IRQ_H
#define VMM_IRQ_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct kvm_irq_routing;

struct irq {
	int vm_fd;
	bool msi_has_devid; /* arm64 ITS: routes carry the requester id; set by arch_vm_init */
	pthread_mutex_t lock;             /* guards everything below; vCPU threads and main */
	struct kvm_irq_routing *routing;  /* what KVM was told last */
	unsigned n_max;                   /* entries there is room for */
	uint32_t next_gsi;                /* MSI GSIs follow those of the pins */
};

struct msi_line {
	int fd;        /* eventfd; -1 before irq_msi_create */
	uint32_t gsi;
	bool attached; /* irqfd assigned */
	bool routed;
	uint64_t addr;
	uint32_t data;
};

struct irq_line {
	int trigger_fd, resample_fd; /* eventfds */
	uint32_t gsi;
};

/*
 * pins: GSIs 0..pins-1 belong to interrupt-controller pins; arch_vm_init says how many and adds
 * their default routes through irq_route_pin.  0 or -errno.
 */
int irq_init(struct irq *irq, int vm_fd, uint32_t pins);
void irq_destroy(struct irq *irq);

/* Add a pin route (chip, pin as in kvm_irq_routing_irqchip) before vCPUs run; irq_commit sends all. */
int irq_route_pin(struct irq *irq, uint32_t gsi, uint32_t chip, uint32_t pin);
int irq_commit(struct irq *irq);

int irq_msi_create(struct irq *irq, struct msi_line *l);
void irq_msi_destroy(struct irq *irq, struct msi_line *l);

/*
 * The guest programmed or (un)masked the vector: update the route if it changed, and attach or
 * detach.  devid is the PCI requester id (arm64 ITS; ignored on x86).  Any thread that holds the
 * device's PCI lock.  0 or -errno.
 */
int irq_msi_set(struct irq *irq, struct msi_line *l, uint64_t addr, uint32_t data, uint32_t devid,
		bool masked);

/* True when the line is detached and was signalled meanwhile.  Does not consume it. */
bool irq_msi_pending(const struct msi_line *l);

/* Level line on pin gsi, with resample; edge line (power button) without: resample_fd is -1. */
int irq_line_create(struct irq *irq, struct irq_line *l, uint32_t gsi, bool level);
void irq_line_destroy(struct irq *irq, struct irq_line *l);

/* Write 1 to an eventfd: raise an interrupt, or ring a doorbell.  Any thread. */
void irq_signal(int fd);

#endif
