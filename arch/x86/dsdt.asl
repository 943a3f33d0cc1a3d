/*
 * DSDT: the devices that cannot be found by probing.  Static: all numbers come from layout.h, and what
 * varies with the machine's size (processors) is in the MADT.  Sections are those of ACPI 6.4.
 */
#include "layout.h"

DefinitionBlock ("dsdt.aml", "DSDT", 2, "HEDDLE", "HEDDLE  ", 1)
{
	/* 7.4.2: SLP_TYP for the sleep control register. */
	Name (\_S5, Package () { LAYOUT_SLP_TYP_S5, 0, 0, 0 })

	Scope (\_SB)
	{
		Device (PCI0)
		{
			Name (_HID, EisaId ("PNP0A08"))
			Name (_CID, EisaId ("PNP0A03"))
			Name (_UID, 0)
			Name (_SEG, 0)
			Name (_BBN, 0)
			Name (_CCA, 1)
			Name (_CRS, ResourceTemplate ()
			{
				WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
					0, 0, 0, 0, 1)
				IO (Decode16, 0xcf8, 0xcf8, 1, 8)
				DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed,
					NonCacheable, ReadWrite, 0, LAYOUT_PCI_WINDOW_GPA,
					LAYOUT_PCI_WINDOW_END, 0, LAYOUT_PCI_WINDOW_LEN)
			})

			/* 6.2.13: INTA of slot n is wired straight to an IOAPIC pin, by n % 4. */
			Name (_PRT, Package ()
			{
				Package () { 0x0000ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0001ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x0002ffff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x0003ffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x0004ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0005ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x0006ffff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x0007ffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x0008ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0009ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x000affff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x000bffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x000cffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x000dffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x000effff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x000fffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x0010ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0011ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x0012ffff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x0013ffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x0014ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0015ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x0016ffff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x0017ffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x0018ffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x0019ffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x001affff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x001bffff, 0, 0, LAYOUT_GSI_INTD },
				Package () { 0x001cffff, 0, 0, LAYOUT_GSI_INTA },
				Package () { 0x001dffff, 0, 0, LAYOUT_GSI_INTB },
				Package () { 0x001effff, 0, 0, LAYOUT_GSI_INTC },
				Package () { 0x001fffff, 0, 0, LAYOUT_GSI_INTD }
			})

			/* PCI Firmware 3.2, 4.5: the OS may control whatever it asks for. */
			Method (_OSC, 4)
			{
				Return (Arg3)
			}
		}

		/* The ECAM area has to be somebody's, or kernels distrust the MCFG that names it. */
		Device (MBRD)
		{
			Name (_HID, EisaId ("PNP0C02"))
			Name (_UID, 0)
			Name (_CRS, ResourceTemplate ()
			{
				Memory32Fixed (ReadWrite, LAYOUT_ECAM_GPA, LAYOUT_ECAM_LEN)
			})
		}

		Device (COM1)
		{
			Name (_HID, EisaId ("PNP0501"))
			Name (_UID, 0)
			Name (_CRS, ResourceTemplate ()
			{
				IO (Decode16, LAYOUT_PORT_SERIAL, LAYOUT_PORT_SERIAL, 1, 8)
				Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive)
				{
					LAYOUT_GSI_SERIAL
				}
			})
		}

		Device (PWRB)
		{
			Name (_HID, EisaId ("PNP0C0C"))
			Name (_UID, 0)
		}

		/* 5.6.9: the only event of this machine is the power button. */
		Device (GED)
		{
			Name (_HID, "ACPI0013")
			Name (_UID, 0)
			Name (_CRS, ResourceTemplate ()
			{
				Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive)
				{
					LAYOUT_GSI_POWER
				}
			})
			Method (_EVT, 1, Serialized)
			{
				Notify (PWRB, 0x80)
			}
		}
	}
}
