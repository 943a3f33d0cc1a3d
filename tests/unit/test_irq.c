/* Interrupt wires (vmm/irq.h); KVM is replaced by this file's ioctl(). */
#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/irq.h"

#define FAKE_VM 1000000 /* no descriptor has this number */
#define PINS    24

/*
 * Of KVM: the routing table, and which eventfd is attached to which GSI.  An eventfd that is
 * signalled when it is attached has its interrupt delivered, and keeps its counter.
 */
static struct {
	struct kvm_irq_routing_entry route[256];
	unsigned n_routes, sends;
	int fd_of[256]; /* by GSI, 0 = none */
	int resample_of[256];
	unsigned delivered[256];
	int route_errno, irqfd_errno;
} kvm;

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static int set_routing(const struct kvm_irq_routing *r)
{
	if (kvm.route_errno) {
		errno = kvm.route_errno;
		return -1;
	}
	kvm.n_routes = r->nr;
	memcpy(kvm.route, r->entries, r->nr * sizeof(*r->entries));
	kvm.sends++;
	return 0;
}

static int set_irqfd(const struct kvm_irqfd *i)
{
	if (kvm.irqfd_errno) {
		errno = kvm.irqfd_errno;
		return -1;
	}
	if (i->flags & KVM_IRQFD_FLAG_DEASSIGN) {
		ck_assert_int_eq(kvm.fd_of[i->gsi], (int)i->fd);
		kvm.fd_of[i->gsi] = 0;
		return 0;
	}
	ck_assert_int_eq(kvm.fd_of[i->gsi], 0);
	kvm.fd_of[i->gsi] = (int)i->fd;
	kvm.resample_of[i->gsi] = i->flags & KVM_IRQFD_FLAG_RESAMPLE ? (int)i->resamplefd : 0;
	kvm.delivered[i->gsi] += readable((int)i->fd);
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	void *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	ck_assert_int_eq(fd, FAKE_VM);
	if (request == KVM_SET_GSI_ROUTING)
		return set_routing(arg);
	ck_assert_uint_eq(request, KVM_IRQFD);
	return set_irqfd(arg);
}

static const struct kvm_irq_routing_entry *route_of(uint32_t gsi)
{
	for (unsigned i = 0; i < kvm.n_routes; i++)
		if (kvm.route[i].gsi == gsi)
			return &kvm.route[i];
	return NULL;
}

static struct irq irq;
static struct msi_line l;

static void init(int vm_fd)
{
	ck_assert_int_eq(irq_init(&irq, vm_fd, PINS), 0);
	ck_assert_int_eq(irq_msi_create(&irq, &l), 0);
}

static void end(void)
{
	irq_msi_destroy(&irq, &l);
	ck_assert_int_eq(l.fd, -1);
	irq_destroy(&irq);
}

START_TEST(msi_lines_get_gsis_above_the_pins)
{
	struct msi_line other;

	init(FAKE_VM);
	ck_assert_uint_eq(l.gsi, PINS);
	ck_assert_int_eq(irq_msi_create(&irq, &other), 0);
	ck_assert_uint_eq(other.gsi, PINS + 1);
	irq_msi_destroy(&irq, &other);
	end();
}
END_TEST

START_TEST(unmasked_line_is_routed_and_attached)
{
	init(FAKE_VM);
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0x1fee00000, 0x4021, 8, false), 0);
	ck_assert_int_eq(kvm.fd_of[l.gsi], l.fd);
	ck_assert_uint_eq(route_of(l.gsi)->type, KVM_IRQ_ROUTING_MSI);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.address_lo, 0xfee00000);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.address_hi, 1);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.data, 0x4021);
	ck_assert_uint_eq(route_of(l.gsi)->flags, 0);
	end();
}
END_TEST

START_TEST(its_routes_carry_the_requester)
{
	init(FAKE_VM);
	irq.msi_has_devid = true;
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0x8080040, 3, 0x10, false), 0);
	ck_assert_uint_eq(route_of(l.gsi)->flags, KVM_MSI_VALID_DEVID);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.devid, 0x10);
	end();
}
END_TEST

START_TEST(masked_line_is_neither_routed_nor_attached)
{
	init(FAKE_VM);
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, true), 0);
	ck_assert_uint_eq(kvm.sends, 0);
	ck_assert_int_eq(kvm.fd_of[l.gsi], 0);
	end();
}
END_TEST

START_TEST(same_route_is_not_sent_twice)
{
	init(FAKE_VM);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false), 0);
		ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, true), 0);
	}
	ck_assert_uint_eq(kvm.sends, 1);
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 2, 0, false), 0);
	ck_assert_uint_eq(kvm.sends, 2);
	ck_assert_uint_eq(kvm.n_routes, 1);
	end();
}
END_TEST

START_TEST(signal_while_masked_is_pending_and_delivered_at_unmask)
{
	init(FAKE_VM);
	irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false);
	irq_msi_set(&irq, &l, 0xfee00000, 1, 0, true);
	ck_assert(!irq_msi_pending(&l));
	irq_signal(l.fd);
	irq_signal(l.fd);
	ck_assert(irq_msi_pending(&l));
	ck_assert(irq_msi_pending(&l));
	irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false);
	ck_assert_uint_eq(kvm.delivered[l.gsi], 1);
	ck_assert(!irq_msi_pending(&l));
	/* Delivered once: masked again, it is not pending any more. */
	irq_msi_set(&irq, &l, 0xfee00000, 1, 0, true);
	ck_assert(!irq_msi_pending(&l));
	irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false);
	ck_assert_uint_eq(kvm.delivered[l.gsi], 1);
	end();
}
END_TEST

/* A table that KVM refuses must not stay in the way of all later ones. */
START_TEST(refused_route_leaves_the_old_one)
{
	struct msi_line other;

	init(FAKE_VM);
	ck_assert_int_eq(irq_msi_create(&irq, &other), 0);
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false), 0);
	kvm.route_errno = EINVAL;
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xff00000000, 2, 0, false), -EINVAL);
	kvm.route_errno = 0;
	ck_assert_int_eq(irq_msi_set(&irq, &other, 0xfee01000, 3, 0, false), 0);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.address_hi, 0);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.data, 1);
	/* Asked again, it is tried again. */
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xff00000000, 2, 0, false), 0);
	ck_assert_uint_eq(route_of(l.gsi)->u.msi.data, 2);
	irq_msi_destroy(&irq, &other);
	end();
}
END_TEST

START_TEST(refused_attach_is_an_error_and_tried_again)
{
	init(FAKE_VM);
	kvm.irqfd_errno = EBUSY;
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false), -EBUSY);
	ck_assert(!l.attached);
	kvm.irqfd_errno = 0;
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false), 0);
	ck_assert(l.attached);
	end();
}
END_TEST

START_TEST(table_grows_and_keeps_what_it_has)
{
	static struct msi_line many[200];

	init(FAKE_VM);
	for (uint32_t pin = 0; pin < PINS; pin++)
		ck_assert_int_eq(irq_route_pin(&irq, pin, 2, pin), 0);
	ck_assert_int_eq(irq_route_pin(&irq, 0, 0, 2), 0);
	ck_assert_int_eq(irq_commit(&irq), 0);
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(irq_msi_create(&irq, &many[i]), 0);
		ck_assert_int_eq(irq_msi_set(&irq, &many[i], 0xfee00000, i, 0, false), 0);
	}
	ck_assert_uint_eq(kvm.n_routes, PINS + 1 + 200);
	ck_assert_uint_eq(route_of(5)->u.irqchip.pin, 5);
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_uint_eq(route_of(many[i].gsi)->u.msi.data, i);
		irq_msi_destroy(&irq, &many[i]);
	}
	end();
}
END_TEST

START_TEST(pin_on_two_chips_has_two_routes)
{
	init(FAKE_VM);
	ck_assert_int_eq(irq_route_pin(&irq, 4, 0, 4), 0);
	ck_assert_int_eq(irq_route_pin(&irq, 4, 2, 4), 0);
	ck_assert_int_eq(irq_route_pin(&irq, 4, 2, 5), 0);
	ck_assert_int_eq(irq_commit(&irq), 0);
	ck_assert_uint_eq(kvm.n_routes, 2);
	ck_assert_uint_eq(kvm.route[1].u.irqchip.pin, 5);
	end();
}
END_TEST

START_TEST(level_line_has_a_resample_descriptor_and_an_edge_line_has_none)
{
	struct irq_line level, edge;

	init(FAKE_VM);
	ck_assert_int_eq(irq_line_create(&irq, &level, 17, true), 0);
	ck_assert_int_eq(kvm.fd_of[17], level.trigger_fd);
	ck_assert_int_eq(kvm.resample_of[17], level.resample_fd);
	ck_assert_int_eq(irq_line_create(&irq, &edge, 9, false), 0);
	ck_assert_int_eq(kvm.fd_of[9], edge.trigger_fd);
	ck_assert_int_eq(kvm.resample_of[9], 0);
	ck_assert_int_eq(edge.resample_fd, -1);
	irq_line_destroy(&irq, &level);
	irq_line_destroy(&irq, &edge);
	kvm.irqfd_errno = ENOSPC;
	ck_assert_int_eq(irq_line_create(&irq, &level, 18, true), -ENOSPC);
	ck_assert_int_eq(level.trigger_fd, -1);
	ck_assert_int_eq(level.resample_fd, -1);
	kvm.irqfd_errno = 0;
	end();
}
END_TEST

START_TEST(without_kvm_lines_are_plain_eventfds)
{
	struct irq_line line;
	uint64_t count;

	init(-1);
	ck_assert_int_eq(irq_msi_set(&irq, &l, 0xfee00000, 1, 0, false), 0);
	irq_signal(l.fd);
	irq_signal(l.fd);
	ck_assert_int_eq(read(l.fd, &count, sizeof(count)), sizeof(count));
	ck_assert_uint_eq(count, 2);
	ck_assert_int_eq(irq_line_create(&irq, &line, 16, true), 0);
	irq_signal(line.trigger_fd);
	ck_assert(readable(line.trigger_fd));
	irq_line_destroy(&irq, &line);
	end();
}
END_TEST

START_TEST(full_counter_does_not_block_a_signal)
{
	const uint64_t most = UINT64_MAX - 1;

	init(-1);
	ck_assert_int_eq(write(l.fd, &most, sizeof(most)), sizeof(most));
	irq_signal(l.fd);
	ck_assert(irq_msi_pending(&l));
	end();
}
END_TEST

SUITE_MAIN("irq", 10, msi_lines_get_gsis_above_the_pins, unmasked_line_is_routed_and_attached,
	   its_routes_carry_the_requester, masked_line_is_neither_routed_nor_attached,
	   same_route_is_not_sent_twice, signal_while_masked_is_pending_and_delivered_at_unmask,
	   refused_route_leaves_the_old_one, refused_attach_is_an_error_and_tried_again,
	   table_grows_and_keeps_what_it_has, pin_on_two_chips_has_two_routes,
	   level_line_has_a_resample_descriptor_and_an_edge_line_has_none,
	   without_kvm_lines_are_plain_eventfds, full_counter_does_not_block_a_signal)
