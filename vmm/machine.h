/*
 * The machine: builds the VM from plain options, top to bottom, in one function; runs it; takes it down
 * in reverse.  All functions on the main thread.
 */
#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/arch.h"
#include "vmm/console.h"
#include "vmm/loop.h"
#include "vmm/vm.h"

struct channel; /* devices/channel.h */
struct machine;

#define MACHINE_DEVICES_MAX 24

/* A device asked for by a command-line option: kind is the option's name ("fs"), spec its value. */
struct device_request {
	const char *kind;
	char *spec; /* modified by the parser; owned by the caller */
};

struct machine_opts {
	unsigned n_vcpus;
	uint64_t ram; /* bytes, a multiple of 2 MiB */
	struct boot_files files; /* all it points to must outlive the machine: a reset loads it again */
	const struct device_request *device;
	unsigned n_devices;
	struct channel *channel; /* agent's share; NULL = none */
	int console_fd;          /* -1: nowhere */
	bool reboot;             /* a guest reset starts the guest anew instead of ending the VM */

	void (*ended)(void *ctx, enum vm_end why);
	void (*console_word)(void *ctx); /* console_last_word may say something new */
	void (*console_room)(void *ctx); /* machine_type can take more */
	void *ctx;
};

/* Build everything; no vCPU runs yet.  0 or -errno, having logged one line; nothing is left behind. */
int machine_create(const struct machine_opts *o, struct loop *loop, struct machine **out);
/* Let the guest run. */
void machine_start(struct machine *m);
/* Stop vCPUs and devices.  opts.ended is not called any more. */
void machine_stop(struct machine *m);
void machine_destroy(struct machine *m);

/* Press the power button. */
void machine_power_button(struct machine *m);
/* Console input; returns the bytes taken. */
size_t machine_type(struct machine *m, const void *p, size_t len);
struct console *machine_console(struct machine *m);
/* One JSON line of counters per device to the log. */
void machine_log_stats(struct machine *m);

#endif
