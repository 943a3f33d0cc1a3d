/*
 * The machine: see machine.h.  make_all() is the place to read how a VM is made.
 */
#include "vmm/machine.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "devices/channel.h"
#include "devices/device.h"
#include "devices/fs.h"
#include "devices/net.h"
#include "devices/pci.h"
#include "devices/serial.h"
#include "devices/share.h"
#include "devices/virtio_pci.h"
#include "guest-images/init/channel.h"
#include "vmm/base.h"
#include "vmm/kvm.h"
#include "vmm/log.h"

/* The start of helpers would delay the guest's first instruction; a kernel's first mount is later. */
#define LATE_MS   100
#define STATS_MAX 131072 /* 129 queues with two dozen counters each */

struct plugged {
	struct device device;
	struct virtio_pci *pci;
	bool launched;
};

struct machine {
	struct vm vm;
	struct machine_opts opts;
	struct platform platform;
	struct loop *loop;
	struct pci_host pci;
	struct console console;
	struct irq_line serial_irq, power;
	struct serial *serial;
	struct plugged plugged[MACHINE_DEVICES_MAX];
	unsigned n_plugged;
	struct boot_entry entry;
	struct watch end, late;
	bool has_irq, has_pci, has_console;
};

/* Every kind of device there is; adding one adds a row. */
static const struct {
	const char *kind; /* option and name prefix: --fs, "fs0" */
	int (*create)(char *spec, const struct device_env *env, struct device *out);
} kinds[] = {
	{ "fs", share_create },
	{ "net", net_create },
};

static int kind_find(const char *kind)
{
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].kind, kind) == 0)
			return (int)i;
	return -1;
}

/* --- the end, and a new beginning ------------------------------------------------------------- */

static void machine_reset(struct machine *m);

static void machine_ended(struct watch *w, uint32_t events)
{
	struct machine *m = container_of(w, struct machine, end);
	enum vm_end why = (enum vm_end)atomic_load(&m->vm.end);
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	if (why == VM_RESET && m->opts.reboot)
		machine_reset(m);
	else if (why != VM_RUNNING)
		m->opts.ended(m->opts.ctx, why);
}

static int machine_boot(struct machine *m)
{
	int err = arch_load(&m->vm, &m->opts.files, &m->entry);

	if (!err)
		err = arch_describe(&m->vm, &m->platform, &m->entry);
	return err;
}

/* What a reset line does on a board: every chip back to its first state, then the boot again. */
static void machine_reset(struct machine *m)
{
	int err;

	vcpus_pause(&m->vm);
	for (unsigned i = 0; i < m->n_plugged; i++)
		virtio_status_write(m->plugged[i].device.dev, 0);
	pci_host_reset(&m->pci);
	serial_reset(m->serial);
	if (console_panic(&m->console))
		log_warn("the guest died and is booted again: %s", console_panic(&m->console));
	console_forget(&m->console);
	err = mem_clear(&m->vm.mem);
	if (!err)
		err = arch_vm_reset(&m->vm);
	if (err)
		log_error("the guest cannot be started again: %s", strerror(-err));
	else
		err = machine_boot(m);
	if (err) {
		m->opts.ended(m->opts.ctx, VM_CRASHED);
		return;
	}
	atomic_store(&m->vm.end, VM_RUNNING);
	vcpus_resume(&m->vm, &m->entry);
}

/* --- construction, in the order of make_all ----------------------------------------------------- */

static int open_kvm(struct machine *m)
{
	const struct kvm_need *need;
	int fd = kvm_open(NULL);

	if (fd < 0) {
		log_error("cannot use /dev/kvm: %s (heddle check says what to do)", strerror(-fd));
		return fd;
	}
	m->vm.kvm_fd = fd;
	need = kvm_missing(fd);
	if (need) {
		log_error("this KVM lacks %s (%s)", need->name, need->why);
		return -ENOTSUP;
	}
	fd = kvm_create_vm(m->vm.kvm_fd);
	if (fd < 0) {
		log_error("KVM makes no VM: %s", strerror(-fd));
		return fd;
	}
	m->vm.vm_fd = fd;
	return 0;
}

static int make_memory(struct machine *m)
{
	struct mem_region layout[MEM_REGIONS_MAX];
	int n = arch_memory_map(m->opts.ram, layout, MEM_REGIONS_MAX);
	int err = n < 0 ? n : mem_create(&m->vm.mem, layout, (unsigned)n);

	if (!err)
		err = kvm_set_memory(m->vm.vm_fd, &m->vm.mem);
	if (err)
		log_error("no guest memory of %llu MiB: %s (see -m)",
			  (unsigned long long)(m->opts.ram >> 20), strerror(-err));
	return err;
}

static int make_board(struct machine *m)
{
	int err;

	bus_init(&m->vm.mmio, m->vm.vm_fd, false);
	bus_init(&m->vm.ports, m->vm.vm_fd, true);
	err = arch_vm_init(&m->vm);
	m->has_irq = !err;
	if (!err)
		err = irq_commit(&m->vm.irq);
	if (!err)
		err = arch_platform_init(&m->vm);
	if (!err)
		err = irq_line_create(&m->vm.irq, &m->serial_irq, m->platform.serial_gsi, false);
	if (!err)
		err = irq_line_create(&m->vm.irq, &m->power, m->platform.power_gsi, false);
	return err;
}

static int make_console(struct machine *m)
{
	const struct serial_opts serial = {
		.bus = m->platform.serial_mmio ? &m->vm.mmio : &m->vm.ports,
		.base = m->platform.serial_base,
		.irq_fd = m->serial_irq.trigger_fd,
		.out = console_push,
		.out_ctx = &m->console,
		.room = m->opts.console_room,
		.room_ctx = m->opts.ctx,
	};
	int err = console_init(&m->console, m->loop, m->opts.console_fd);

	m->has_console = !err;
	m->console.last_word = m->opts.console_word;
	m->console.ctx = m->opts.ctx;
	return err ? err : serial_create(&serial, &m->serial);
}

static int make_pci(struct machine *m)
{
	struct pci_host_opts o = {
		.ecam_gpa = m->platform.ecam_gpa,
		.window_gpa = m->platform.pci_window_gpa,
		.window_len = m->platform.pci_window_len,
		.ports = m->platform.pci_ports,
	};
	int err;

	memcpy(o.intx_gsi, m->platform.intx_gsi, sizeof(o.intx_gsi));
	err = pci_host_create(&m->pci, &o, &m->vm.mmio, &m->vm.ports, &m->vm.irq);
	m->has_pci = !err;
	return err;
}

/* Take over d: start its threads (parked) and plug it in. */
static int plug(struct machine *m, const struct device *d)
{
	struct plugged *p = &m->plugged[m->n_plugged++];
	int err;

	p->device = *d;
	err = virtio_dev_launch(d->dev, d->thread_start);
	if (err) {
		log_error("cannot start the threads of %s: %s (see ulimit -u, ulimit -n)", d->dev->name,
			  strerror(-err));
		return err;
	}
	p->launched = true;
	err = virtio_pci_create(&m->pci, d->dev, &m->vm.mmio, m->loop, &p->pci);
	if (err)
		log_error("cannot plug in %s: %s", d->dev->name, strerror(-err));
	return err;
}

static int check_unique(const struct machine *m, const struct device *d)
{
	for (unsigned i = 0; i < m->n_plugged; i++) {
		if (strcmp(m->plugged[i].device.id, d->id) == 0) {
			log_error("%s is given twice", d->id);
			return -EEXIST;
		}
	}
	return 0;
}

static void device_free(struct device *d)
{
	if (d->dev)
		d->dev->class->destroy(d->dev);
	if (d->destroy)
		d->destroy(d->backing);
}

static int make_device(struct machine *m, const struct device_request *r, unsigned number)
{
	char name[12];
	const struct device_env env = { .name = name, .mem = &m->vm.mem, .n_vcpus = m->opts.n_vcpus };
	int kind = kind_find(r->kind), err;
	struct device d = { 0 };

	snprintf(name, sizeof(name), "%s%u", r->kind, number);
	err = kinds[kind].create(r->spec, &env, &d);
	if (err)
		return err;
	err = check_unique(m, &d);
	if (err) {
		device_free(&d);
		return err;
	}
	return plug(m, &d);
}

static int make_devices(struct machine *m)
{
	int err = 0;

	if (m->opts.n_devices + 1 > MACHINE_DEVICES_MAX) {
		log_error("more than %d devices", MACHINE_DEVICES_MAX - 1);
		return -EINVAL;
	}
	for (unsigned i = 0; i < m->opts.n_devices && !err; i++) {
		unsigned number = 0;

		for (unsigned k = 0; k < i; k++)
			number += strcmp(m->opts.device[k].kind, m->opts.device[i].kind) == 0;
		err = make_device(m, &m->opts.device[i], number);
	}
	return err;
}

/* The agent's share is one more virtio-fs device, all of it on one thread. */
static int make_channel(struct machine *m)
{
	void *workers[CHANNEL_WORKERS];
	const struct fs_opts fs = {
		.name = "channel",
		.tag = CHANNEL_TAG,
		.queues = 1,
		.ring = 64,
		.one_thread = true,
		.ops = &channel_fs_server,
		.server = m->opts.channel,
		.workers = workers,
	};
	struct device d = { .id = "tag " CHANNEL_TAG };
	int err;

	if (!m->opts.channel)
		return 0;
	channel_workers(m->opts.channel, workers);
	err = check_unique(m, &d);
	if (err)
		return err;
	err = fs_create(&fs, &m->vm.mem, &d.dev);
	if (err)
		log_error("cannot set up the channel to the guest's agent: %s", strerror(-err));
	return err ? err : plug(m, &d);
}

/* Threads that no kernel needs before it has mounted something. */
static void machine_late(struct watch *w, uint32_t events)
{
	struct machine *m = container_of(w, struct machine, late);
	int err = 0;

	(void)events;
	(void)loop_watch(m->loop, w, 0);
	for (unsigned i = 0; i < m->n_plugged && !err; i++) {
		struct virtio_dev *d = m->plugged[i].device.dev;

		err = virtio_dev_launch_late(d);
		if (err)
			log_error("cannot start the threads of %s: %s (see ulimit -u, ulimit -n)", d->name,
				  strerror(-err));
	}
	if (err)
		m->opts.ended(m->opts.ctx, VM_CRASHED);
}

static int init_late(struct machine *m)
{
	m->late = (struct watch){ .ready = machine_late,
				  .fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK) };
	return m->late.fd < 0 ? -errno : loop_watch(m->loop, &m->late, EPOLLIN);
}

static int watch_end(struct machine *m)
{
	int err;

	m->vm.end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->vm.end_fd < 0)
		return -errno;
	m->end = (struct watch){ .fd = m->vm.end_fd, .ready = machine_ended };
	err = loop_watch(m->loop, &m->end, EPOLLIN);
	return err ? err : init_late(m);
}

static int make_vcpus(struct machine *m)
{
	int err = vcpus_create(&m->vm);

	return err ? err : vcpus_start(&m->vm);
}

static int make_all(struct machine *m)
{
	static const struct {
		int (*fn)(struct machine *m);
		const char *name; /* for the line about a failure; NULL: fn logs it */
	} step[] = {
		{ open_kvm, NULL },    /* the descriptors */
		{ make_memory, NULL }, /* RAM and its slots */
		{ make_board, "the interrupt controllers" },
		{ make_console, "the console" },
		{ make_pci, "PCI" },
		{ make_devices, NULL }, /* I/O threads are born here, parked */
		{ make_channel, NULL },
		{ machine_boot, NULL }, /* kernel, initrd, tables */
		{ watch_end, "the watch for the guest's end" },
		{ make_vcpus, NULL }, /* their threads wait */
	};
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(step) && !err; i++) {
		err = step[i].fn(m);
		if (err && step[i].name)
			log_error("cannot set up %s: %s", step[i].name, strerror(-err));
	}
	return err;
}

int machine_create(const struct machine_opts *o, struct loop *loop, struct machine **out)
{
	struct machine *m = calloc(1, sizeof(*m));
	int err;

	if (!m) {
		log_error("no memory for the machine");
		return -ENOMEM;
	}
	m->opts = *o;
	m->loop = loop;
	m->vm.n_vcpus = o->n_vcpus;
	m->vm.kvm_fd = m->vm.vm_fd = m->vm.end_fd = m->late.fd = -1;
	m->serial_irq.trigger_fd = m->power.trigger_fd = -1;
	m->serial_irq.resample_fd = m->power.resample_fd = -1;
	arch_platform(&m->platform);
	m->platform.n_vcpus = o->n_vcpus;
	err = make_all(m);
	if (err) {
		machine_destroy(m);
		return err;
	}
	*out = m;
	return 0;
}

/* --- life --------------------------------------------------------------------------------------- */

void machine_start(struct machine *m)
{
	const struct itimerspec soon = { .it_value.tv_nsec = LATE_MS * 1000000L };

	vcpus_resume(&m->vm, &m->entry);
	timerfd_settime(m->late.fd, 0, &soon, NULL);
}

void machine_stop(struct machine *m)
{
	(void)loop_watch(m->loop, &m->end, 0);
	vcpus_pause(&m->vm);
	for (unsigned i = 0; i < m->n_plugged; i++)
		virtio_status_write(m->plugged[i].device.dev, 0);
	console_flush(&m->console);
}

/* In reverse; accepts a machine that was not finished. */
void machine_destroy(struct machine *m)
{
	vcpus_destroy(&m->vm);
	while (m->n_plugged > 0) {
		struct plugged *p = &m->plugged[--m->n_plugged];

		if (p->launched)
			virtio_dev_shutdown(p->device.dev);
		if (p->pci)
			virtio_pci_destroy(p->pci);
		device_free(&p->device);
	}
	if (m->has_pci)
		pci_host_destroy(&m->pci);
	if (m->serial)
		serial_destroy(m->serial);
	if (m->has_console)
		console_destroy(&m->console);
	if (m->end.events)
		(void)loop_watch(m->loop, &m->end, 0);
	if (m->late.events)
		(void)loop_watch(m->loop, &m->late, 0);
	if (m->late.fd >= 0)
		close(m->late.fd);
	irq_line_destroy(&m->vm.irq, &m->power);
	irq_line_destroy(&m->vm.irq, &m->serial_irq);
	arch_vm_destroy(&m->vm);
	if (m->has_irq)
		irq_destroy(&m->vm.irq);
	bus_destroy(&m->vm.ports);
	bus_destroy(&m->vm.mmio);
	if (m->vm.vm_fd >= 0)
		close(m->vm.vm_fd);
	mem_destroy(&m->vm.mem);
	if (m->vm.kvm_fd >= 0)
		close(m->vm.kvm_fd);
	if (m->vm.end_fd >= 0)
		close(m->vm.end_fd);
	free(m);
}

void machine_power_button(struct machine *m)
{
	irq_signal(m->power.trigger_fd);
}

size_t machine_type(struct machine *m, const void *p, size_t len)
{
	return serial_input(m->serial, p, len);
}

struct console *machine_console(struct machine *m)
{
	return &m->console;
}

void machine_log_stats(struct machine *m)
{
	char *json = malloc(STATS_MAX);

	for (unsigned i = 0; json && i < m->n_plugged; i++) {
		virtio_dev_stats_json(m->plugged[i].device.dev, json, STATS_MAX);
		log_line(json);
	}
	free(json);
}
