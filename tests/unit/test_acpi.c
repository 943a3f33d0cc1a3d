/* ACPI tables (arch/x86/acpi.c, dsdt.asl). */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "arch/x86/layout.h"
#include "arch/x86/x86.h"
#include "tests/unit/suite.h"
#include "vmm/vm.h"

static uint8_t tables[LAYOUT_ACPI_LEN];

static struct platform platform(unsigned n_vcpus)
{
	struct platform p;

	arch_platform(&p);
	p.n_vcpus = n_vcpus;
	return p;
}

static const uint8_t *at(uint64_t gpa, uint32_t len)
{
	ck_assert_uint_ge(gpa, LAYOUT_ACPI_GPA);
	ck_assert_uint_le(gpa + len, LAYOUT_ACPI_GPA + LAYOUT_ACPI_LEN);
	return tables + (gpa - LAYOUT_ACPI_GPA);
}

static uint64_t number(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;

	memcpy(&v, p, bytes);
	return v;
}

static uint8_t sum(const uint8_t *p, uint64_t len)
{
	uint8_t s = 0;

	while (len-- > 0)
		s += *p++;
	return s;
}

/* The table at gpa: signature, length inside the area, checksum. */
static const uint8_t *table(uint64_t gpa, const char *signature)
{
	const uint8_t *t = at(gpa, 36);

	ck_assert_mem_eq(t, signature, 4);
	ck_assert_uint_eq(sum(at(gpa, (uint32_t)number(t + 4, 4)), number(t + 4, 4)), 0);
	ck_assert_uint_eq(gpa % 16, 0);
	return t;
}

static const uint8_t *xsdt_entry(unsigned i, const char *signature)
{
	const uint8_t *xsdt = table(number(tables + 24, 8), "XSDT");

	ck_assert_uint_eq(number(xsdt + 4, 4), 36 + 3 * 8);
	return table(number(xsdt + 36 + 8 * i, 8), signature);
}

static void build(unsigned n_vcpus)
{
	const struct platform p = platform(n_vcpus);

	memset(tables, 0xa5, sizeof(tables));
	ck_assert_int_gt(acpi_build(tables, sizeof(tables), LAYOUT_ACPI_GPA, &p), 0);
}

START_TEST(the_rsdp_comes_first_and_every_checksum_is_right)
{
	build(4);
	ck_assert_mem_eq(tables, "RSD PTR ", 8);
	ck_assert_uint_eq(sum(tables, 20), 0);
	ck_assert_uint_eq(sum(tables, 36), 0);
	ck_assert_uint_eq(tables[15], 2);
	xsdt_entry(0, "FACP");
	xsdt_entry(1, "APIC");
	xsdt_entry(2, "MCFG");
}
END_TEST

START_TEST(the_fadt_says_hardware_reduced_and_what_is_not_there)
{
	const uint8_t *f;

	build(1);
	f = xsdt_entry(0, "FACP");
	ck_assert_uint_eq(number(f + 4, 4), 276);
	ck_assert_uint_eq(number(f + 109, 2), 1 << 2 | 1 << 5); /* no VGA, no CMOS RTC; no 8042 */
	ck_assert_uint_eq(number(f + 112, 4), 1 << 0 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 20);
	ck_assert_uint_eq(f[116], 1); /* reset register: a port */
	ck_assert_uint_eq(number(f + 120, 8), LAYOUT_PORT_RESET);
	ck_assert_uint_eq(f[128], LAYOUT_RESET_VALUE);
	ck_assert_uint_eq(number(f + 248, 8), LAYOUT_PORT_SLEEP_CONTROL);
	ck_assert_uint_eq(number(f + 260, 8), LAYOUT_PORT_SLEEP_STATUS);
	/* PM1 event and control, PM timer, GPE blocks: none. */
	ck_assert_uint_eq(number(f + 46, 2), 0);
	for (unsigned off = 56; off < 88; off++)
		ck_assert_uint_eq(f[off], 0);
	table(number(f + 140, 8), "DSDT");
}
END_TEST

START_TEST(the_madt_has_every_vcpu_once)
{
	static const unsigned counts[] = { 1, 2, 3, 64, 254, 255 };

	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		unsigned lapics = 0, ioapics = 0, nmis = 0;
		const uint8_t *m, *e, *end;

		build(counts[i]);
		m = xsdt_entry(1, "APIC");
		ck_assert_uint_eq(number(m + 36, 4), LAYOUT_LAPIC_GPA);
		ck_assert_uint_eq(number(m + 40, 4), 0); /* no PICs */
		end = m + number(m + 4, 4);
		for (e = m + 44; e < end; e += e[1]) {
			ck_assert_uint_ge(e[1], 2);
			if (e[0] == 0) {
				ck_assert_uint_eq(e[3], lapics++);
				ck_assert_uint_eq(number(e + 4, 4), 1);
			} else if (e[0] == 1) {
				ioapics++;
				ck_assert_uint_eq(number(e + 4, 4), LAYOUT_IOAPIC_GPA);
			} else {
				nmis += e[0] == 4;
			}
		}
		ck_assert_ptr_eq(e, end);
		ck_assert_uint_eq(lapics, counts[i]);
		ck_assert_uint_eq(ioapics, 1);
		ck_assert_uint_eq(nmis, 1);
	}
}
END_TEST

START_TEST(the_mcfg_names_the_ecam_of_bus_0)
{
	const uint8_t *m;

	build(1);
	m = xsdt_entry(2, "MCFG");
	ck_assert_uint_eq(number(m + 4, 4), 60);
	ck_assert_uint_eq(number(m + 44, 8), LAYOUT_ECAM_GPA);
	ck_assert_uint_eq(number(m + 52, 4), 0); /* segment 0, bus 0 to 0 */
}
END_TEST

START_TEST(tables_that_do_not_fit_are_refused)
{
	const struct platform p = platform(8);
	int need;

	need = acpi_build(tables, sizeof(tables), LAYOUT_ACPI_GPA, &p);
	for (int len = 36; len < need; len++) {
		tables[len] = 0x5a;
		ck_assert_int_eq(acpi_build(tables, (uint32_t)len, LAYOUT_ACPI_GPA, &p), -ENOSPC);
		ck_assert_uint_eq(tables[len], 0x5a);
	}
	ck_assert_int_eq(acpi_build(tables, (uint32_t)need, LAYOUT_ACPI_GPA, &p), need);
}
END_TEST

/* A board without KVM: only its ports. */
static void make_board(struct vm *vm)
{
	*vm = (struct vm){ .kvm_fd = -1, .vm_fd = -1, .end_fd = eventfd(0, EFD_NONBLOCK) };
	bus_init(&vm->ports, -1, true);
	ck_assert_int_eq(arch_platform_init(vm), 0);
}

static int end_of(struct vm *vm)
{
	int end = atomic_load(&vm->end);

	close(vm->end_fd);
	bus_destroy(&vm->ports);
	return end;
}

static int end_after(uint64_t port, uint8_t value)
{
	struct vm vm;

	make_board(&vm);
	ck_assert(bus_write(&vm.ports, port, &value, 1));
	return end_of(&vm);
}

START_TEST(the_registers_the_fadt_names_end_the_vm)
{
	const uint8_t *f, s5 = LAYOUT_SLP_TYP_S5 << 2;
	uint64_t sleep_port, reset_port;

	build(1);
	f = xsdt_entry(0, "FACP");
	reset_port = number(f + 120, 8);
	sleep_port = number(f + 248, 8);
	ck_assert_int_eq(end_after(reset_port, f[128]), VM_RESET);
	ck_assert_int_eq(end_after(reset_port, 0), VM_RUNNING);
	ck_assert_int_eq(end_after(sleep_port, s5 | 1 << 5), VM_POWEROFF);
	ck_assert_int_eq(end_after(sleep_port, s5), VM_RUNNING);
	ck_assert_int_eq(end_after(sleep_port, 1 << 5), VM_RUNNING);
	ck_assert_int_eq(end_after(number(f + 260, 8), 1 << 7), VM_RUNNING);
	ck_assert_int_eq(end_after(0x64, 0xfe), VM_RESET);
	ck_assert_int_eq(end_after(0x60, 0xfe), VM_RUNNING);
}
END_TEST

START_TEST(missing_chips_read_as_nothing_to_wait_for)
{
	uint8_t v;
	struct vm vm;

	make_board(&vm);
	bus_read(&vm.ports, 0x64, &v, 1);
	ck_assert_uint_eq(v & 3, 1); /* a byte to read, for ever; room to write */
	bus_read(&vm.ports, 0x61, &v, 1);
	ck_assert_uint_eq(v & 0xe0, 0x20); /* no NMI cause; the PIT has counted down */
	bus_read(&vm.ports, 0x71, &v, 1);
	ck_assert_uint_eq(v, 0); /* no update in progress */
	ck_assert_int_eq(end_of(&vm), VM_RUNNING);
}
END_TEST

/* Does the disassembled DSDT in dir contain text? */
static void dsdt_has(const char *dir, const char *text)
{
	char command[256];

	snprintf(command, sizeof(command), "grep -qF '%s' %s/dsdt.dsl", text, dir);
	ck_assert_msg(system(command) == 0, "the DSDT lacks %s", text);
}

START_TEST(the_dsdt_says_what_the_platform_says)
{
	char dir[] = "/tmp/heddle-test-XXXXXX", command[256], path[64], text[64];
	const struct platform p = platform(1);
	const uint8_t *dsdt;
	FILE *f;

	build(1);
	dsdt = table(number(xsdt_entry(0, "FACP") + 140, 8), "DSDT");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/dsdt.aml", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(dsdt, number(dsdt + 4, 4), 1, f), 1);
	fclose(f);
	snprintf(command, sizeof(command), "cd %s && iasl -d dsdt.aml >/dev/null 2>&1", dir);
	ck_assert_int_eq(system(command), 0);
	dsdt_has(dir, "PNP0A08");
	dsdt_has(dir, "PNP0501");
	dsdt_has(dir, "ACPI0013");
	snprintf(text, sizeof(text), "0x%08llX,         // Range Minimum",
		 (unsigned long long)p.pci_window_gpa);
	dsdt_has(dir, text);
	snprintf(text, sizeof(text), "0x%08llX,         // Length", (unsigned long long)p.pci_window_len);
	dsdt_has(dir, text);
	snprintf(text, sizeof(text), "0x%08llX,         // Address Base", (unsigned long long)p.ecam_gpa);
	dsdt_has(dir, text);
	snprintf(text, sizeof(text), "0x%04llX,             // Range Minimum",
		 (unsigned long long)p.serial_base);
	dsdt_has(dir, text);
	snprintf(text, sizeof(text), "0x%08X,", p.serial_gsi);
	dsdt_has(dir, text);
	snprintf(text, sizeof(text), "0x%08X,", p.power_gsi);
	dsdt_has(dir, text);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "                    0x%02X", p.intx_gsi[i]);
		dsdt_has(dir, text);
	}
	snprintf(command, sizeof(command), "rm -r %s", dir);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

SUITE_MAIN("acpi", 30,
	   the_rsdp_comes_first_and_every_checksum_is_right,
	   the_fadt_says_hardware_reduced_and_what_is_not_there,
	   the_madt_has_every_vcpu_once,
	   the_mcfg_names_the_ecam_of_bus_0,
	   tables_that_do_not_fit_are_refused,
	   the_registers_the_fadt_names_end_the_vm,
	   missing_chips_read_as_nothing_to_wait_for,
	   the_dsdt_says_what_the_platform_says)
