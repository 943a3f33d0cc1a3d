/*
 * The machine around the CPUs: memory map, KVM's interrupt controllers, and the ports that end the
 * VM or keep a kernel from waiting for hardware that is not there.
 *
 * Interrupt controllers live in KVM (local APICs, one IOAPIC, and a pair of PICs that nothing names
 * but kernels poke at).  There is no PIT: the tables say "hardware-reduced", the clock is kvm-clock or
 * the TSC, and the timer that of the local APIC.
 *
 * KVM's pair of PICs and its IOAPIC see the same wires: GSI n is IOAPIC pin n, and for n < 16 also a
 * PIC input.  Limit of 255 vCPUs: an IOAPIC's redirection entry has 8 bits for the APIC id, and 255 of
 * those is "all".
 */
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>

#include "arch/x86/layout.h"
#include "arch/x86/x86.h"
#include "vmm/base.h"
#include "vmm/bus.h"
#include "vmm/vm.h"

#define IOAPIC_MASKED 0x10000 /* redirection entry: interrupt mask */

#define SLEEP_ENABLE 0x20 /* ACPI 6.4, "Sleep Control Register": SLP_EN; SLP_TYP is in [4:2] */

int arch_memory_map(uint64_t ram, struct mem_region out[], unsigned max)
{
	uint64_t low = MIN(ram, (uint64_t)LAYOUT_HOLE_GPA);

	if (ram <= LAYOUT_HIGH_RAM || max < 2 || ram > UINT64_MAX / 2)
		return -EINVAL;
	out[0] = (struct mem_region){ .gpa = 0, .len = low };
	if (ram == low)
		return 1;
	out[1] = (struct mem_region){ .gpa = LAYOUT_HOLE_END, .len = ram - low };
	return 2;
}

void arch_platform(struct platform *p)
{
	*p = (struct platform){
		.ecam_gpa = LAYOUT_ECAM_GPA,
		.pci_window_gpa = LAYOUT_PCI_WINDOW_GPA,
		.pci_window_len = LAYOUT_PCI_WINDOW_LEN,
		.intx_gsi = { LAYOUT_GSI_INTA, LAYOUT_GSI_INTB, LAYOUT_GSI_INTC, LAYOUT_GSI_INTD },
		.pci_ports = true,
		.serial_base = LAYOUT_PORT_SERIAL,
		.serial_gsi = LAYOUT_GSI_SERIAL,
		.power_gsi = LAYOUT_GSI_POWER,
	};
}

unsigned arch_max_vcpus(void)
{
	return 255;
}

const char *arch_cmdline(void)
{
	/* A panic is a reset, at once: the one end of a dead kernel that KVM reports. */
	return "console=ttyS0 panic=-1";
}

const char *arch_name(void)
{
	return "x86-64";
}

static int route_pins(struct irq *irq)
{
	int err = 0;

	for (uint32_t pin = 0; pin < LAYOUT_PINS && !err; pin++) {
		err = irq_route_pin(irq, pin, KVM_IRQCHIP_IOAPIC, pin);
		if (!err && pin < 16)
			err = irq_route_pin(irq, pin,
					    pin < 8 ? KVM_IRQCHIP_PIC_MASTER : KVM_IRQCHIP_PIC_SLAVE,
					    pin % 8);
	}
	return err;
}

/* KVM keeps a page table and a TSS of its own in guest memory (Intel without "unrestricted guest"). */
static int init_kvm(struct vm *vm)
{
	const uint64_t identity_map = LAYOUT_KVM_GPA;
	int err = x86_ioctl(vm->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map);

	if (err >= 0 && ioctl(vm->vm_fd, KVM_SET_TSS_ADDR, (unsigned long)LAYOUT_KVM_TSS_GPA) < 0)
		err = -errno;
	if (err >= 0)
		err = x86_ioctl(vm->vm_fd, KVM_CREATE_IRQCHIP, NULL);
	return err;
}

int arch_vm_init(struct vm *vm)
{
	struct x86_vm *x = calloc(1, sizeof(*x));
	int err;

	if (!x)
		return -ENOMEM;
	vm->arch = x;
	err = x86_cpuid_init(x, vm->kvm_fd, vm->n_vcpus);
	if (err < 0)
		return err;
	err = init_kvm(vm);
	if (err < 0)
		return err;
	err = irq_init(&vm->irq, vm->vm_fd, LAYOUT_PINS);
	if (err)
		return err;
	err = route_pins(&vm->irq);
	if (err)
		irq_destroy(&vm->irq);
	return err;
}

/* All pins masked, nothing pending: as KVM made them. */
int arch_vm_reset(struct vm *vm)
{
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };
	int err;

	chip.chip.ioapic.base_address = LAYOUT_IOAPIC_GPA;
	for (unsigned pin = 0; pin < LAYOUT_PINS; pin++)
		chip.chip.ioapic.redirtbl[pin].bits = IOAPIC_MASKED;
	err = x86_ioctl(vm->vm_fd, KVM_SET_IRQCHIP, &chip);
	memset(&chip, 0, sizeof(chip));
	for (unsigned pic = KVM_IRQCHIP_PIC_MASTER; pic <= KVM_IRQCHIP_PIC_SLAVE && err >= 0; pic++) {
		chip.chip_id = pic;
		err = x86_ioctl(vm->vm_fd, KVM_SET_IRQCHIP, &chip);
	}
	return err < 0 ? err : 0;
}

void arch_vm_destroy(struct vm *vm)
{
	struct x86_vm *x = vm->arch;

	if (!x)
		return;
	free(x->cpuid);
	free(x);
	vm->arch = NULL;
}

static void read_zero(void *ctx, uint64_t off, void *p, uint32_t len)
{
	(void)ctx;
	(void)off;
	memset(p, 0, len);
}

static void write_nothing(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	(void)ctx;
	(void)off;
	(void)p;
	(void)len;
}

/* The registers the FADT names.  Wider writes count as one to their first byte. */
static void acpi_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	const uint8_t value = *(const uint8_t *)p;
	struct vm *vm = ctx;

	(void)len;
	if (off == LAYOUT_PORT_RESET - LAYOUT_PORT_SLEEP_CONTROL && value == LAYOUT_RESET_VALUE)
		vm_end(vm, VM_RESET);
	if (off == 0 && (value & SLEEP_ENABLE) && (value >> 2 & 7) == LAYOUT_SLP_TYP_S5)
		vm_end(vm, VM_POWEROFF);
}

/*
 * Ports 0x60-0x64.  No keyboard controller: its status says that a byte is there however often one is
 * read, at which drivers give up at once.  But its input buffer is never full, since who wants to reset
 * the machine waits for that.  0x61 is another chip's: bits 6 and 7 would be the cause of an NMI, bit 5
 * the PIT's output, which some loop waits for.
 */
static void keyboard_read(void *ctx, uint64_t off, void *p, uint32_t len)
{
	(void)ctx;
	memset(p, 0xff, len);
	if (off == 1)
		*(uint8_t *)p = 0x20;
	else if (off == 4)
		*(uint8_t *)p = 0xfd;
}

/* Command 0xfe pulses the reset line: how a PC without ACPI reboots. */
static void keyboard_write(void *ctx, uint64_t off, const void *p, uint32_t len)
{
	(void)len;
	if (off == 4 && *(const uint8_t *)p == 0xfe)
		vm_end(ctx, VM_RESET);
}

int arch_platform_init(struct vm *vm)
{
	const struct bus_range ranges[] = {
		{ LAYOUT_PORT_SLEEP_CONTROL, 3, vm, read_zero, acpi_write },
		{ 0x60, 5, vm, keyboard_read, keyboard_write },
		/* PIT and RTC: a kernel told to ignore ACPI asks, and zeroes end its loops soonest. */
		{ 0x40, 4, vm, read_zero, write_nothing },
		{ 0x70, 2, vm, read_zero, write_nothing },
	};
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(ranges) && !err; i++)
		err = bus_add(&vm->ports, &ranges[i]);
	return err;
}
