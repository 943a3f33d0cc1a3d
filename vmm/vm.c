/* The VM's end: see vm.h. */
#include "vmm/vm.h"

void vm_end(struct vm *vm, enum vm_end why)
{
	int running = VM_RUNNING;

	if (atomic_compare_exchange_strong(&vm->end, &running, why))
		irq_signal(vm->end_fd);
}
