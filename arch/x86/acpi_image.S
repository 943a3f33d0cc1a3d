/* The DSDT, compiled from dsdt.asl by iasl, as bytes of the program. */
	.section .rodata
	.balign 16
	.globl acpi_dsdt, acpi_dsdt_end
	.hidden acpi_dsdt, acpi_dsdt_end
acpi_dsdt:
	.incbin "dsdt.aml"
acpi_dsdt_end:
	.section .note.GNU-stack, "", @progbits
