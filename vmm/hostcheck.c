/*
 * heddle check: see hostcheck.h.
 *
 * The last test runs guest code: a short loop in kernel mode.  A KVM that executes it does so at the
 * speed of the processor; a software KVM that interprets kernel mode is a hundred times slower, and does
 * not know every instruction a stock kernel uses.
 */
#include "vmm/hostcheck.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "vmm/arch.h"
#include "vmm/base.h"
#include "vmm/kernel_find.h"
#include "vmm/kvm.h"
#include "vmm/log.h"
#include "vmm/opt.h"
#include "vmm/run.h"

/* Executed kernel code does 50 million iterations a second even under emulation; interpreted, about one. */
#define SLOW_BELOW 20000000.0

enum { CHECK_OK, CHECK_NO_GUEST, CHECK_SLOW };

struct hostcheck {
	bool json;
	unsigned n;
	int verdict;
};

static void print_json(const char *key, const char *text)
{
	printf("\"%s\":\"", key);
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			printf("\\u%04x", *text);
		else
			printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	printf("\"");
}

static void report(struct hostcheck *h, const char *name, bool ok, const char *found,
		   const char *remedy)
{
	if (h->json) {
		printf("%s{\"check\":\"%s\",\"ok\":%s,", h->n ? ",\n " : "", name,
		       ok ? "true" : "false");
		print_json("found", found);
		printf(",");
		print_json("remedy", ok ? "" : remedy);
		printf("}");
	} else if (ok) {
		printf("ok       %-10s %s\n", name, found);
	} else {
		printf("missing  %-10s %s\n         %-10s -> %s\n", name, found, "", remedy);
	}
	h->n++;
}

static const char *device_remedy(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
		return "usermod -aG kvm $USER, then log in again";
	case ENOENT:
		return "modprobe kvm_intel or kvm_amd; switch virtualization on in the firmware, or "
		       "nested virtualization if this is a guest itself";
	default:
		return "modprobe kvm_intel or kvm_amd";
	}
}

static int check_device(struct hostcheck *h)
{
	int fd = kvm_open(NULL);

	report(h, "kvm", fd >= 0, fd >= 0 ? "/dev/kvm opens, API version 12" : strerror(-fd),
	       device_remedy(fd));
	if (fd < 0)
		h->verdict = CHECK_NO_GUEST;
	return fd;
}

static void check_needs(struct hostcheck *h, int kvm_fd)
{
	const struct kvm_need *need = kvm_missing(kvm_fd);
	char found[96] = "all that heddle needs";

	if (need) {
		snprintf(found, sizeof(found), "%s (%s)", need->name, need->why);
		h->verdict = CHECK_NO_GUEST;
	}
	report(h, "extensions", !need, found, "a newer host kernel (5.10 or later)");
}

static void check_speed(struct hostcheck *h)
{
	double loops = 0;
	int err = arch_probe(&loops);
	char found[96];

	if (err)
		snprintf(found, sizeof(found), "a guest could not run: %s", strerror(-err));
	else
		snprintf(found, sizeof(found), "kernel mode: %.1f million loops/s, %s", loops / 1e6,
			 loops < SLOW_BELOW ? "interpreted" : "executed");
	report(h, "speed", !err && loops >= SLOW_BELOW, found,
	       "a host with hardware virtualization; here a stock kernel will not boot");
	if (err)
		h->verdict = CHECK_NO_GUEST;
	else if (loops < SLOW_BELOW && h->verdict == CHECK_OK)
		h->verdict = CHECK_SLOW;
}

static void check_kernel(struct hostcheck *h)
{
	char path[300] = "";
	bool found;

	log_set_level(LOG_LEVEL_ERROR);
	found = kernel_newest(path, sizeof(path)) == 0;
	report(h, "kernel", found, found ? path : "none readable in /boot",
	       "heddle run -k FILE, or apt-get install linux-image-cloud-amd64");
}

static void check_tun(struct hostcheck *h)
{
	bool ok = access("/dev/net/tun", R_OK | W_OK) == 0;

	report(h, "tun", ok, ok ? "/dev/net/tun opens" : strerror(errno),
	       "modprobe tun (needed for --net only)");
}

static void check_files(struct hostcheck *h)
{
	struct rlimit r = { 0 };
	char found[64];
	bool ok;

	getrlimit(RLIMIT_NOFILE, &r);
	ok = r.rlim_max >= 65536;
	snprintf(found, sizeof(found), "up to %llu open files", (unsigned long long)r.rlim_max);
	report(h, "files", ok, found, "ulimit -Hn 1048576 (big trees shared with a guest want more)");
}

/* -1: go on; else this is all, and the exit code. */
static int parse(struct hostcheck *h, int argc, char **argv)
{
	bool help = false;
	const struct opt table[] = {
		{ "json", 0, OPT_FLAG, &h->json, NULL, "one JSON object instead of lines" },
		{ "help", 'h', OPT_FLAG, &help, NULL, "this text" },
		{ 0 },
	};
	int i = 1;

	if (opt_parse(table, argc, argv, &i))
		return RUN_EXIT_SETUP;
	if (i < argc) {
		log_error("heddle check takes no arguments: %s", argv[i]);
		return RUN_EXIT_SETUP;
	}
	if (!help)
		return -1;
	printf("options of heddle check:\n");
	opt_print(table);
	return 0;
}

int hostcheck_main(int argc, char **argv)
{
	struct hostcheck h = { 0 };
	static const char *const verdict[] = {
		"this host runs stock kernels",
		"no guest can run on this host",
		"KVM works, but interprets kernel code: stock kernels do not run here",
	};
	int code = parse(&h, argc, argv), fd;

	if (code >= 0)
		return code;
	if (h.json)
		printf("{\"checks\":[");
	fd = check_device(&h);
	if (fd >= 0) {
		check_needs(&h, fd);
		close(fd);
		check_speed(&h);
	}
	check_kernel(&h);
	check_tun(&h);
	check_files(&h);
	if (h.json)
		printf("],\n \"arch\":\"%s\",\"exit\":%d,\"verdict\":\"%s\"}\n", arch_name(), h.verdict,
		       verdict[h.verdict]);
	else
		printf("%s\n", verdict[h.verdict]);
	return h.verdict;
}
