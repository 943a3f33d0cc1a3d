/*
 * Fuzzer for kernel files.  The input is the file: its recognition, its release, and the loader of this
 * machine's formats, on a guest with little memory and without KVM.  An initrd and a command line are
 * there too, so that what comes after the kernel runs as well.
 *
 * Each refusal logs a line: run libFuzzer with -close_fd_mask=2.  Seeds: tests/fuzz/corpus/kernel/, small
 * files of each format with the smallest sizes the loaders take.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/arch.h"
#include "vmm/kernel.h"
#include "vmm/vm.h"

#define RAM_LEN ((uint64_t)96 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_guest(struct vm *vm)
{
	struct mem_region layout[MEM_REGIONS_MAX];
	int n = arch_memory_map(RAM_LEN, layout, MEM_REGIONS_MAX);

	if (n < 0 || mem_create(&vm->mem, layout, (unsigned)n))
		abort();
	/* Clearing 2 MiB pages after each run would be most of the work. */
	(void)madvise(vm->mem.map, vm->mem.map_len, MADV_NOHUGEPAGE);
	vm->kvm_fd = vm->vm_fd = -1;
}

/* What was loaded is where vCPU 0 can run it. */
static void check_entry(const struct vm *vm, const struct boot_entry *e)
{
	if (!mem_at(&vm->mem, e->pc, 1) || !mem_at(&vm->mem, e->arg, 1))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct initrd_part part = { .data = "initrd", .len = 6 };
	struct file f = { .fd = memfd_create("kernel", MFD_CLOEXEC), .size = size, .path = "KERNEL" };
	const struct boot_files files = {
		.kernel = &f, .initrd = &part, .n_initrd = 1, .cmdline = "console=ttyS0",
	};
	static struct vm vm;
	struct boot_entry e;
	char release[65];

	if (!vm.mem.map)
		make_guest(&vm);
	if (f.fd < 0 || pwrite(f.fd, data, size, 0) != (ssize_t)size)
		abort();
	(void)kernel_format_name(kernel_detect(&f));
	(void)kernel_release(&f, release, sizeof(release));
	if (arch_load(&vm, &files, &e) == 0) {
		check_entry(&vm, &e);
		mem_clear(&vm.mem);
	}
	file_close(&f);
	return 0;
}
