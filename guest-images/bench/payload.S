/*
 * The smallest guests: say one byte on the serial port, then end.  For timing how fast a VM
 * starts.
 *
 * Built twice from here (tests/bench/rules.mk): as a bzImage, with -DBZIMAGE and bzimage.ld, and
 * as an ELF kernel with a PVH note, with pvh.ld.  Both are filled up with PAD, a file of random
 * bytes, to the size of a real kernel.  With -DHALT the guest stays, halted, for looking at its
 * VMM.
 *
 * The byte tells which door was taken: R real mode, P protected mode (32-bit), L long mode.  The
 * end is a triple fault, which every VMM understands; nothing but the byte is asked of the
 * machine, and only a dozen instructions run, so that a KVM which interprets kernel code takes no
 * longer than another.
 */
#define SERIAL_PORT 0x3f8

/* The same text is assembled for 16, 32 and 64 bits.  idt: six zero bytes, no interrupt table. */
.macro	say_and_end byte, idt:vararg
	mov	$SERIAL_PORT, %dx
	mov	$\byte, %al
	out	%al, %dx
#ifdef HALT
	cli
1:	hlt
	jmp	1b
#else
	lidt	\idt
1:	ud2
	jmp	1b
#endif
.endm

#ifdef BZIMAGE

/* Linux, Documentation/arch/x86/boot.rst, protocol 2.15: names and offsets are from there. */
#define LOADED_HIGH                 1
#define XLF_KERNEL_64               1
#define XLF_CAN_BE_LOADED_ABOVE_4G  2
#define PREF_ADDRESS                0x1000000

	.section .setup, "ax"
	.code16
setup:
	.org	0x1f1
	.byte	1			/* setup_sects: up to 0x400 */
	.word	0			/* root_flags */
	.long	syssize			/* in 16 bytes; bzimage.ld */
	.word	0, 0, 0			/* ram_size, vid_mode, root_dev */
	.word	0xaa55			/* boot_flag */
	.byte	0xeb, real_mode - header /* jump */
header:
	.ascii	"HdrS"
	.word	0x020f			/* version */
	.long	0			/* realmode_swtch */
	.word	0			/* start_sys_seg */
	.word	version - setup - 0x200	/* kernel_version */
	.byte	0, LOADED_HIGH		/* type_of_loader, loadflags */
	.word	0			/* setup_move_size */
	.long	0x100000		/* code32_start */
	.long	0, 0, 0			/* ramdisk_image, ramdisk_size, bootsect_kludge */
	.word	0			/* heap_end_ptr */
	.byte	0, 0			/* ext_loader_ver, ext_loader_type */
	.long	0			/* cmd_line_ptr */
	.long	0x7fffffff		/* initrd_addr_max */
	.long	0x200000		/* kernel_alignment */
	.byte	1, 21			/* relocatable_kernel, min_alignment (a power of 2) */
	.word	XLF_KERNEL_64 | XLF_CAN_BE_LOADED_ABOVE_4G
	.long	2047			/* cmdline_size */
	.long	0			/* hardware_subarch */
	.quad	0			/* hardware_subarch_data */
	.long	payload_offset, pad_len	/* bzimage.ld */
	.quad	0			/* setup_data */
	.quad	PREF_ADDRESS		/* pref_address */
	.long	init_size		/* bzimage.ld */
	.long	0, 0			/* handover_offset, kernel_info_offset */
real_mode:				/* %ds is where this file starts */
	say_and_end 'R', no_idt - setup
no_idt:
	.word	0, 0, 0
version:
	.asciz	"0.0.0-bench"
	.org	0x400

	.section .kernel, "ax"
	.code32
kernel:					/* %esi: boot_params; the place is not known */
	call	1f
1:	pop	%ebx
	say_and_end 'P', no_idt_kernel - 1b(%ebx)
	.org	0x200
	.code64
entry64:
	say_and_end 'L', no_idt_kernel(%rip)
no_idt_kernel:
	.word	0, 0, 0, 0, 0

#else

/* Xen, docs/misc/pvh.pandoc: 32-bit protected mode, paging off, at the address in this note. */
#define XEN_ELFNOTE_PHYS32_ENTRY 18

	.section .note.pvh, "a", @note
	.long	4, 4, XEN_ELFNOTE_PHYS32_ENTRY
	.asciz	"Xen"
	.long	kernel

	.section .kernel, "ax"
	.code32
	.globl	kernel
kernel:
	say_and_end 'P', no_idt
no_idt:
	.word	0, 0, 0

#endif

	.section .pad, "a"
pad:
	.incbin	PAD
	.globl	pad_len
	.set	pad_len, . - pad
	.section .note.GNU-stack, "", @progbits
