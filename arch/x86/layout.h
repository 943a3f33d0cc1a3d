/*
 * Guest-physical memory map of the x86-64 machine.  Only macros with plain numbers: dsdt.asl includes
 * this file too, so the tables a guest reads and the code behind them cannot disagree.
 *
 *   0x0_0000_0000  +-----------------------------+
 *                  | zero page (IVT, BDA: empty) |
 *         0_1000   | GDT                         |
 *         0_2000   | boot_params                 |   what heddle leaves for the kernel; plain RAM,
 *         0_3000   | hvm_start_info              |   free again once the kernel has copied it
 *         0_4000   | page tables, 6 pages        |
 *         0_a000   | setup_data: random seed     |
 *         1_0000   | command line, 64 KiB        |
 *         2_0000   | free RAM                    |
 *         a_0000   +-----------------------------+
 *                  | nothing (VGA, option ROMs)  |
 *         e_0000   | ACPI: RSDP first, 64 KiB    |
 *         f_fff0   | reset vector: ends the VM   |
 *   0x0_0010_0000  +-----------------------------+
 *                  | RAM: kernel, initrd         |
 *   0x0_c000_0000  +-----------------------------+  3 GiB, or the end of RAM
 *                  | PCI BARs, 512 MiB           |
 *   0x0_e000_0000  | PCI ECAM, bus 0, 1 MiB      |
 *   0x0_fec0_0000  | IOAPIC                      |
 *   0x0_fee0_0000  | local APICs                 |
 *   0x0_fffb_c000  | KVM's own: identity map, TSS|
 *   0x1_0000_0000  +-----------------------------+  4 GiB
 *                  | the rest of RAM             |
 *                  +-----------------------------+
 */
#ifndef ARCH_X86_LAYOUT_H
#define ARCH_X86_LAYOUT_H

#define LAYOUT_GDT_GPA         0x1000
#define LAYOUT_BOOT_PARAMS_GPA 0x2000
#define LAYOUT_START_INFO_GPA  0x3000
#define LAYOUT_PAGE_TABLES_GPA 0x4000
#define LAYOUT_SETUP_DATA_GPA  0xa000
#define LAYOUT_CMDLINE_GPA     0x10000
#define LAYOUT_CMDLINE_LEN     0x10000

#define LAYOUT_LOW_RAM_END 0xa0000
#define LAYOUT_ACPI_GPA    0xe0000
#define LAYOUT_ACPI_LEN    0x10000
#define LAYOUT_BIOS_GPA    0xf0000
#define LAYOUT_BIOS_LEN    0x10000
#define LAYOUT_HIGH_RAM    0x100000

#define LAYOUT_HOLE_GPA       0xc0000000
#define LAYOUT_PCI_WINDOW_GPA 0xc0000000
#define LAYOUT_PCI_WINDOW_END 0xdfffffff
#define LAYOUT_PCI_WINDOW_LEN 0x20000000
#define LAYOUT_ECAM_GPA       0xe0000000
#define LAYOUT_ECAM_LEN       0x100000
#define LAYOUT_IOAPIC_GPA     0xfec00000
#define LAYOUT_LAPIC_GPA      0xfee00000
#define LAYOUT_KVM_GPA        0xfffbc000
#define LAYOUT_KVM_TSS_GPA    0xfffbd000
#define LAYOUT_KVM_LEN        0x4000
#define LAYOUT_HOLE_END       0x100000000

/* Ports.  The first three are what the FADT names; nothing on a PC lives there. */
#define LAYOUT_PORT_SLEEP_CONTROL 0x600
#define LAYOUT_PORT_SLEEP_STATUS  0x601
#define LAYOUT_PORT_RESET         0x602
#define LAYOUT_RESET_VALUE        0x5a
#define LAYOUT_PORT_SERIAL        0x3f8

/* Global system interrupts: pin numbers of the one IOAPIC. */
#define LAYOUT_PINS       24
#define LAYOUT_GSI_SERIAL 4
#define LAYOUT_GSI_INTA   16
#define LAYOUT_GSI_INTB   17
#define LAYOUT_GSI_INTC   18
#define LAYOUT_GSI_INTD   19
#define LAYOUT_GSI_POWER  20

/* ACPI S5 as SLP_TYP; written to the sleep control register and named by \_S5. */
#define LAYOUT_SLP_TYP_S5 5

#endif
