/*
 * An initramfs of heddle's agent as a file, for what boots kernels without heddle: kexec.
 * usage: initrd OUT AGENT MODULES_DIR|- RECORD...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/initramfs.h"

static void *slurp(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	void *data = NULL;

	if (f && fseek(f, 0, SEEK_END) == 0) {
		*len = (size_t)ftell(f);
		rewind(f);
		data = malloc(*len);
		if (data && fread(data, 1, *len, f) != *len) {
			free(data);
			data = NULL;
		}
	}
	if (f)
		fclose(f);
	return data;
}

int main(int argc, char **argv)
{
	struct module_want want[] = { { .name = "virtio_pci" }, { .name = "virtiofs" },
				      { .name = "overlay" },    { .name = "virtio_net" } };
	struct module_list modules = { 0 };
	struct initramfs image;
	struct initramfs_opts o = { .modules = &modules };
	FILE *out;

	if (argc < 4) {
		fprintf(stderr, "usage: initrd OUT AGENT MODULES_DIR|- RECORD...\n");
		return 1;
	}
	o.agent = slurp(argv[2], &o.agent_len);
	o.records = (const char *const *)argv + 4;
	o.n_records = (unsigned)argc - 4;
	if (!o.agent || (strcmp(argv[3], "-") != 0 && modules_collect(argv[3], want, 4, &modules)) ||
	    initramfs_create(&o, &image))
		return 1;
	out = fopen(argv[1], "wb");
	return !out || fwrite(image.data, 1, image.len, out) != image.len || fclose(out);
}
