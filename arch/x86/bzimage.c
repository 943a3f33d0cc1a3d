/*
 * bzImage (Linux, Documentation/arch/x86/boot.rst).
 *
 *   0      boot sector and setup code, (setup_sects + 1) * 512 bytes; the header sits in it at 0x1f1
 *   then   the protected-mode kernel, syssize * 16 bytes; its 64-bit entry is at 0x200
 *   then   possibly a signature, which is not loaded
 *
 * The kernel goes where it would move itself anyway (pref_address) and gets init_size bytes there:
 * room to unpack itself before it reads any memory map.
 *
 * Refused, each with one line: a protocol before 2.12 (Linux 3.8: no 64-bit entry), a kernel without
 * 64-bit code, a file shorter than its header says, sizes that do not fit each other, and more memory
 * asked for than the guest has.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "arch/x86/boot.h"
#include "vmm/base.h"
#include "vmm/kernel.h"
#include "vmm/log.h"

#define HEADER_OFF      0x1f1
#define HEADER_JUMP_OFF 0x201 /* second byte of the jump over the header: where it ends, from 0x202 */
#define ENTRY64_OFF     0x200
#define PROTOCOL_MIN    0x020c
#define SETUP_SECTS_OLD 4     /* what 0 stands for */

static int read_header(const struct file *f, struct setup_header *hdr)
{
	uint8_t head[HEADER_OFF + sizeof(*hdr)] = { 0 };
	uint64_t len = MIN((uint64_t)sizeof(head), f->size), end;
	int err = file_read(f, 0, head, len);

	if (err)
		return err;
	/* An older header ends earlier; what follows it is code. */
	end = HEADER_JUMP_OFF + 1u + head[HEADER_JUMP_OFF];
	if (end < sizeof(head))
		memset(head + end, 0, sizeof(head) - end);
	memcpy(hdr, head + HEADER_OFF, sizeof(*hdr));
	return 0;
}

static int check_kind(const struct file *f, const struct setup_header *h)
{
	if (h->version < PROTOCOL_MIN) {
		log_error("%s: a bzImage with boot protocol %u.%02u; 2.12 is the oldest supported",
			  f->path, h->version >> 8, h->version & 0xffu);
		return -EINVAL;
	}
	if (!(h->loadflags & LOADED_HIGH) || !(h->xloadflags & XLF_KERNEL_64)) {
		log_error("%s: a bzImage without a 64-bit entry point (a 32-bit kernel?)", f->path);
		return -EINVAL;
	}
	return 0;
}

/* The two parts lie inside the file, and the header's sizes agree with each other. */
static int check_sizes(const struct file *f, const struct setup_header *h, uint64_t setup_len,
		       uint64_t kernel_len)
{
	uint64_t payload_end = (uint64_t)h->payload_offset + h->payload_length;

	if (setup_len + kernel_len > f->size) {
		log_error("%s: the bzImage is cut off: %" PRIu64 " bytes, its header says %" PRIu64,
			  f->path, f->size, setup_len + kernel_len);
		return -ENODATA;
	}
	if (kernel_len <= ENTRY64_OFF || payload_end > kernel_len || h->init_size < kernel_len) {
		log_error("%s: the bzImage is damaged: %" PRIu64 " bytes of kernel, payload up to %" PRIu64
			  ", %" PRIu32 " bytes to run in", f->path, kernel_len, payload_end,
			  h->init_size);
		return -EINVAL;
	}
	return 0;
}

static int check_place(const struct mem *m, const struct file *f, const struct setup_header *h)
{
	const struct mem_region *low = &m->region[0];
	uint64_t need;

	if (boot_range_ok(m, h->pref_address, h->init_size))
		return 0;
	need = h->pref_address + h->init_size;
	if (h->pref_address < low->gpa + low->len && need > low->len && need > h->init_size)
		log_error("%s: the kernel needs memory up to %" PRIu64 " MiB to start; the guest has %"
			  PRIu64 " MiB below the hole for devices", f->path,
			  (need + 0xfffff) >> 20, low->len >> 20);
	else
		log_error("%s: the kernel's load address 0x%" PRIx64 " is not in memory", f->path,
			  (uint64_t)h->pref_address);
	return -EINVAL;
}

int bzimage_load(const struct mem *m, const struct file *f, struct loaded *k)
{
	struct setup_header *h = &k->hdr;
	uint64_t setup_len, kernel_len;
	int err = read_header(f, h);

	if (err) {
		log_error("%s: cannot read the bzImage header: %s", f->path, strerror(-err));
		return err;
	}
	setup_len = 512ull * (1u + (h->setup_sects ? h->setup_sects : SETUP_SECTS_OLD));
	kernel_len = 16ull * h->syssize;
	err = check_kind(f, h);
	if (!err)
		err = check_sizes(f, h, setup_len, kernel_len);
	if (!err)
		err = check_place(m, f, h);
	if (!err)
		err = boot_read(m, f, setup_len, h->pref_address, kernel_len);
	if (err)
		return err;
	k->start = h->pref_address;
	k->end = h->pref_address + h->init_size;
	k->pc = h->pref_address + ENTRY64_OFF;
	k->initrd_max = h->initrd_addr_max;
	k->initrd_anywhere = h->xloadflags & XLF_CAN_BE_LOADED_ABOVE_4G;
	k->cmdline_max = h->cmdline_size;
	return 0;
}
