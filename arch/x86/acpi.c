/*
 * ACPI tables (ACPI Specification 6.4), hardware-reduced: no SCI, no PM timer, no event registers.
 * What is left of the fixed hardware is a sleep control register (power off), a reset register and
 * the boot flags that keep a kernel from probing for hardware of the last century.
 *
 *   RSDP -> XSDT -> FADT -> DSDT (static, dsdt.asl)
 *                -> MADT: one local APIC per vCPU, one IOAPIC
 *                -> MCFG: ECAM of bus 0
 *
 * Layout: the RSDP comes first, where its fixed address says; each table follows at the next multiple
 * of 64 bytes, children before the tables that point to them.
 */
#include <string.h>

#include "arch/x86/layout.h"
#include "arch/x86/x86.h"
#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/vm.h"

#define TABLE_ALIGN 64

extern const uint8_t acpi_dsdt[], acpi_dsdt_end[];

/* 5.2.5.3 */
struct acpi_rsdp {
	char signature[8];
	uint8_t checksum; /* of the first 20 bytes */
	char oem_id[6];
	uint8_t revision;
	uint32_t rsdt;
	uint32_t length;
	uint64_t xsdt;
	uint8_t checksum_all;
	uint8_t reserved[3];
} __attribute__((packed));

/* 5.2.6 */
struct acpi_header {
	char signature[4];
	uint32_t length;
	uint8_t revision;
	uint8_t checksum;
	char oem_id[6];
	char oem_table_id[8];
	uint32_t oem_revision;
	char creator_id[4];
	uint32_t creator_revision;
} __attribute__((packed));

/* 5.2.3.2 */
struct acpi_gas {
	uint8_t space; /* 1: I/O port */
	uint8_t bit_width, bit_offset;
	uint8_t access_size; /* 1: byte */
	uint64_t address;
} __attribute__((packed));

/* 5.2.9; the fields of fixed hardware are left zero, as a hardware-reduced platform must. */
struct acpi_fadt {
	struct acpi_header h;
	uint32_t facs, dsdt;
	uint8_t reserved0;
	uint8_t preferred_profile;
	uint8_t fixed_hardware[109 - 46];
	uint16_t boot_arch;
	uint8_t reserved1;
	uint32_t flags;
	struct acpi_gas reset_reg;
	uint8_t reset_value;
	uint16_t arm_boot_arch;
	uint8_t minor_version;
	uint64_t x_facs, x_dsdt;
	uint8_t x_fixed_hardware[244 - 148];
	struct acpi_gas sleep_control, sleep_status;
	uint64_t hypervisor_id;
} __attribute__((packed));

_Static_assert(sizeof(struct acpi_fadt) == 276, "FADT of ACPI 6");
_Static_assert(offsetof(struct acpi_fadt, flags) == 112, "FADT flags");
_Static_assert(offsetof(struct acpi_fadt, sleep_control) == 244, "FADT sleep control");

#define FADT_WBINVD          (1u << 0)
#define FADT_PWR_BUTTON      (1u << 4)  /* no fixed one: PNP0C0C */
#define FADT_SLP_BUTTON      (1u << 5)  /* no fixed one */
#define FADT_RESET_REG_SUP   (1u << 10)
#define FADT_HW_REDUCED_ACPI (1u << 20)

/* IAPC_BOOT_ARCH: what is not there. */
#define BOOT_VGA_NOT_PRESENT (1u << 2)
#define BOOT_RTC_NOT_PRESENT (1u << 5)

/* 5.2.12 */
struct acpi_madt {
	struct acpi_header h;
	uint32_t lapic_gpa;
	uint32_t flags; /* bit 0 would say that there are PICs */
} __attribute__((packed));

struct madt_lapic {
	uint8_t type, length; /* 0, 8 */
	uint8_t uid, apic_id;
	uint32_t flags; /* 1: enabled */
} __attribute__((packed));

struct madt_ioapic {
	uint8_t type, length; /* 1, 12 */
	uint8_t id, reserved;
	uint32_t gpa, gsi_base;
} __attribute__((packed));

struct madt_lapic_nmi {
	uint8_t type, length; /* 4, 6 */
	uint8_t uid; /* 0xff: all */
	uint16_t flags;
	uint8_t lint;
} __attribute__((packed));

/* PCI Firmware Specification 3.2, 4.1.2 */
struct acpi_mcfg {
	struct acpi_header h;
	uint64_t reserved0;
	uint64_t ecam_gpa;
	uint16_t segment;
	uint8_t bus_first, bus_last;
	uint32_t reserved1;
} __attribute__((packed));

struct acpi_xsdt {
	struct acpi_header h;
	uint64_t table[3];
} __attribute__((packed));

/* Where the next bytes go.  After an overflow everything is dropped and only full is kept. */
struct acpi_writer {
	uint8_t *buf;
	uint32_t len, used;
	uint64_t gpa;
	bool full;
};

static void put(struct acpi_writer *w, const void *p, size_t len)
{
	if (w->full || len > w->len - w->used) {
		w->full = true;
		return;
	}
	memcpy(w->buf + w->used, p, len);
	w->used += (uint32_t)len;
}

static uint8_t checksum(const uint8_t *p, size_t len)
{
	uint8_t sum = 0;

	while (len-- > 0)
		sum += *p++;
	return (uint8_t)-sum;
}

/* Start a table: its offset, aligned. */
static uint32_t table_begin(struct acpi_writer *w)
{
	static const uint8_t zeroes[TABLE_ALIGN];

	put(w, zeroes, ALIGN_UP(w->used, TABLE_ALIGN) - w->used);
	return w->used;
}

static struct acpi_header header(const char *signature, uint8_t revision)
{
	struct acpi_header h = { .revision = revision, .oem_revision = 1, .creator_revision = 1 };

	memcpy(h.signature, signature, sizeof(h.signature));
	memcpy(h.oem_id, "HEDDLE", sizeof(h.oem_id));
	memcpy(h.oem_table_id, "HEDDLE  ", sizeof(h.oem_table_id));
	memcpy(h.creator_id, "HEDL", sizeof(h.creator_id));
	return h;
}

/* Length and checksum, now that all of it is there.  Returns the table's address. */
static uint64_t table_end(struct acpi_writer *w, uint32_t at)
{
	struct acpi_header h;

	if (w->full)
		return 0;
	memcpy(&h, w->buf + at, sizeof(h));
	h.length = w->used - at;
	h.checksum = 0;
	memcpy(w->buf + at, &h, sizeof(h));
	h.checksum = checksum(w->buf + at, h.length);
	memcpy(w->buf + at, &h, sizeof(h));
	return w->gpa + at;
}

static uint64_t put_dsdt(struct acpi_writer *w)
{
	uint32_t at = table_begin(w);

	put(w, acpi_dsdt, (size_t)(acpi_dsdt_end - acpi_dsdt));
	return table_end(w, at);
}

static struct acpi_gas port_byte(uint16_t port)
{
	return (struct acpi_gas){ .space = 1, .bit_width = 8, .access_size = 1, .address = port };
}

static uint64_t put_fadt(struct acpi_writer *w, uint64_t dsdt)
{
	const struct acpi_fadt fadt = {
		.h = header("FACP", 6),
		.boot_arch = BOOT_VGA_NOT_PRESENT | BOOT_RTC_NOT_PRESENT,
		.flags = FADT_WBINVD | FADT_PWR_BUTTON | FADT_SLP_BUTTON | FADT_RESET_REG_SUP |
			 FADT_HW_REDUCED_ACPI,
		.reset_reg = port_byte(LAYOUT_PORT_RESET),
		.reset_value = LAYOUT_RESET_VALUE,
		.minor_version = 4,
		.x_dsdt = dsdt,
		.sleep_control = port_byte(LAYOUT_PORT_SLEEP_CONTROL),
		.sleep_status = port_byte(LAYOUT_PORT_SLEEP_STATUS),
	};
	uint32_t at = table_begin(w);

	put(w, &fadt, sizeof(fadt));
	return table_end(w, at);
}

static uint64_t put_madt(struct acpi_writer *w, unsigned n_vcpus)
{
	const struct acpi_madt madt = { .h = header("APIC", 5), .lapic_gpa = LAYOUT_LAPIC_GPA };
	const struct madt_ioapic ioapic = { 1, sizeof(ioapic), 0, 0, LAYOUT_IOAPIC_GPA, 0 };
	const struct madt_lapic_nmi nmi = { 4, sizeof(nmi), 0xff, 0, 1 };
	uint32_t at = table_begin(w);

	put(w, &madt, sizeof(madt));
	for (unsigned i = 0; i < n_vcpus; i++) {
		const struct madt_lapic lapic = { 0, sizeof(lapic), (uint8_t)i, (uint8_t)i, 1 };

		put(w, &lapic, sizeof(lapic));
	}
	put(w, &ioapic, sizeof(ioapic));
	put(w, &nmi, sizeof(nmi));
	return table_end(w, at);
}

static uint64_t put_mcfg(struct acpi_writer *w, uint64_t ecam_gpa)
{
	const struct acpi_mcfg mcfg = { .h = header("MCFG", 1), .ecam_gpa = ecam_gpa };
	uint32_t at = table_begin(w);

	put(w, &mcfg, sizeof(mcfg));
	return table_end(w, at);
}

static struct acpi_rsdp make_rsdp(uint64_t xsdt)
{
	struct acpi_rsdp rsdp = { .revision = 2, .length = sizeof(rsdp), .xsdt = xsdt };

	memcpy(rsdp.signature, "RSD PTR ", sizeof(rsdp.signature));
	memcpy(rsdp.oem_id, "HEDDLE", sizeof(rsdp.oem_id));
	rsdp.checksum = checksum((const uint8_t *)&rsdp, 20);
	rsdp.checksum_all = checksum((const uint8_t *)&rsdp, sizeof(rsdp));
	return rsdp;
}

int acpi_build(uint8_t *buf, uint32_t len, uint64_t gpa, const struct platform *p)
{
	struct acpi_writer w = { .buf = buf, .len = len, .gpa = gpa };
	struct acpi_rsdp rsdp = { 0 };
	struct acpi_xsdt xsdt = { .h = header("XSDT", 1) };
	uint32_t at;

	put(&w, &rsdp, sizeof(rsdp)); /* its place; filled below */
	xsdt.table[0] = put_fadt(&w, put_dsdt(&w));
	xsdt.table[1] = put_madt(&w, p->n_vcpus);
	xsdt.table[2] = put_mcfg(&w, p->ecam_gpa);
	at = table_begin(&w);
	put(&w, &xsdt, sizeof(xsdt));
	rsdp = make_rsdp(table_end(&w, at));
	if (w.full)
		return -ENOSPC;
	memcpy(buf, &rsdp, sizeof(rsdp));
	return (int)w.used;
}

int arch_describe(struct vm *vm, const struct platform *p, struct boot_entry *e)
{
	uint8_t *at = mem_at(&vm->mem, LAYOUT_ACPI_GPA, LAYOUT_ACPI_LEN);
	int used = -EFAULT;

	(void)e; /* arch_load has told the kernel where the RSDP is */
	if (at)
		used = acpi_build(at, LAYOUT_ACPI_LEN, LAYOUT_ACPI_GPA, p);
	if (used < 0) {
		log_error("no room for the ACPI tables of %u vCPUs", p->n_vcpus);
		return used;
	}
	return 0;
}
