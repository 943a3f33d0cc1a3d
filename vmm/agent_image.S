/* The guest agent as heddle carries it: start and end of the program's bytes. */
	.section .rodata, "a"
	.balign	16
	.globl	agent_image_start
	.hidden	agent_image_start
agent_image_start:
	.incbin	"agent"
	.globl	agent_image_end
	.hidden	agent_image_end
agent_image_end:
	.byte	0

	.section .note.GNU-stack, "", %progbits
