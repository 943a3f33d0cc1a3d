/*
 * start WORK OUT HOST RUNS: how long a VM takes to start, and what its VMM weighs.
 *
 * WORK holds heddle (stripped), bare (bare.c), exit.bzimage and halt.bzimage (guest-images/bench),
 * an empty initrd (which makes heddle boot the kernel as it is) and an empty share; QEMU is looked
 * up in $PATH, and left out if it is not there.  HOST names the place in the report.
 *
 * Start: from the moment before execve to the first byte on the VMM's standard output, which is
 * the guest's first deed.  So a VMM's own way to its standard output counts as well; forking does
 * not. Life: to the end of the process, for the payload ends at once.  The VMMs take turns, in
 * another order each round; a first round is not counted.
 *
 * Memory: with a guest that halts, the Pss of all mappings but the guest's RAM, which is told by
 * its size.
 *
 * A host switches virtualization on for its first VM and off after its last, and patches its own
 * code for it.  One VM that never runs is kept meanwhile, so that nobody pays for that; an
 * emulated host would not even survive it for long.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/report.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RUNS_MAX    1000
#define MEMORY_RUNS 5
#define RAM_KIB     (1ul << 20)
#define TIMEOUT_MS  120000
#define SETTLE_NS   300000000 /* threads may still be at work after the guest's first byte */

#define START_AIM_BARE 1.5
#define START_AIM_QEMU 0.2
#define PSS_AIM_KIB    4096
#define BINARY_AIM_KIB 1024

enum { HEDDLE, BARE, QEMU, QBOOT, VMMS };

/* KERNEL is replaced by the payload. */
#define QEMU_ARGS(machine)                                                                       \
	"qemu-system-x86_64", "-M", machine, "-accel", "kvm", "-cpu", "host", "-smp", "4", "-m", \
		"1G", "-nodefaults", "-no-user-config", "-nographic", "-serial", "stdio",        \
		"-no-reboot", "-kernel", "KERNEL"

static const struct vmm {
	const char *name;
	const char *argv[24];
} vmms[VMMS] = {
	[HEDDLE] = { "heddle",
		     { "./heddle", "run", "-k", "KERNEL", "-c", "4", "-m", "1G", "--initrd",
		       "initrd", "--fs", "tag=x,path=share,queues=4" } },
	[BARE] = { "bare KVM program", { "./bare", "KERNEL" } },
	[QEMU] = { "QEMU microvm", { QEMU_ARGS("microvm") } },
	/* Without ACPI its firmware is qboot in place of SeaBIOS. */
	[QBOOT] = { "QEMU microvm, acpi=off", { QEMU_ARGS("microvm,acpi=off") } },
};

struct result {
	double start[RUNS_MAX], life[RUNS_MAX];
	double pss[MEMORY_RUNS];
	bool absent;
};

struct child {
	pid_t pid;
	int out;
	uint64_t exec_ns;
};

static struct result results[VMMS];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void fail(const struct vmm *v, const char *what)
{
	char text[400] = "";
	FILE *f = fopen("stderr", "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	text[n] = '\0';
	fprintf(stderr, "bench-start: %s: %s\n%s", v->name, what, text);
	exit(1);
}

/* The child borrows our memory until its execve: that is where the clock is started. */
static void launch(const struct vmm *v, const char *kernel, struct child *c)
{
	const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const int log = open("stderr", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const char *argv[ARRAY_SIZE(v->argv)];
	volatile uint64_t exec_ns = 0;
	int out[2];

	for (unsigned i = 0; i < ARRAY_SIZE(argv); i++)
		argv[i] = v->argv[i] && strcmp(v->argv[i], "KERNEL") == 0 ? kernel : v->argv[i];
	if (null < 0 || log < 0 || pipe2(out, O_CLOEXEC))
		fail(v, strerror(errno));
	c->pid = vfork();
	if (c->pid == 0) {
		dup2(null, STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		exec_ns = now_ns();
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	if (c->pid < 0)
		fail(v, strerror(errno));
	close(null);
	close(log);
	close(out[1]);
	c->out = out[0];
	c->exec_ns = exec_ns;
}

/* Next byte of output, or -1 at its end. */
static int next_byte(const struct vmm *v, const struct child *c)
{
	struct pollfd p = { .fd = c->out, .events = POLLIN };
	char byte;

	if (poll(&p, 1, TIMEOUT_MS) != 1) {
		kill(c->pid, SIGKILL);
		fail(v, "no sign of life");
	}
	return read(c->out, &byte, 1) == 1 ? byte : -1;
}

static double wait_first_byte(const struct vmm *v, const struct child *c)
{
	int byte = next_byte(v, c);
	double ms = (double)(now_ns() - c->exec_ns) / 1e6;

	if (byte != 'R' && byte != 'P' && byte != 'L') {
		kill(c->pid, SIGKILL);
		fail(v, byte < 0 ? "ended without output" : "the output is not the payload's");
	}
	return ms;
}

static void time_start(const struct vmm *v, double *start, double *life)
{
	struct child c;

	launch(v, "exit.bzimage", &c);
	*start = wait_first_byte(v, &c);
	while (next_byte(v, &c) >= 0)
		;
	waitpid(c.pid, NULL, 0);
	*life = (double)(now_ns() - c.exec_ns) / 1e6;
	close(c.out);
}

/* Sum of Pss over the mappings but guest RAM, which must be there. */
static double read_pss(const struct vmm *v, pid_t pid)
{
	unsigned long from, to, kib, ram = 0, sum = 0;
	bool is_ram = false;
	char line[512];
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/smaps", (int)pid);
	f = fopen(line, "re");
	if (!f)
		fail(v, line);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			is_ram = (to - from) >> 10 >= RAM_KIB;
		if (sscanf(line, "Size: %lu kB", &kib) == 1 && is_ram)
			ram += kib;
		if (sscanf(line, "Pss: %lu kB", &kib) == 1 && !is_ram)
			sum += kib;
	}
	fclose(f);
	if (ram != RAM_KIB)
		fail(v, "guest RAM is not one mapping of 1 GiB");
	return (double)sum;
}

static double weigh(const struct vmm *v)
{
	const struct timespec settle = { .tv_nsec = SETTLE_NS };
	struct child c;
	double kib;

	launch(v, "halt.bzimage", &c);
	(void)wait_first_byte(v, &c);
	nanosleep(&settle, NULL);
	kib = read_pss(v, c.pid);
	kill(c.pid, SIGKILL);
	waitpid(c.pid, NULL, 0);
	close(c.out);
	return kib;
}

static void keep_one_vm(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (kvm < 0 || ioctl(kvm, KVM_CREATE_VM, 0) < 0) {
		fprintf(stderr, "bench-start: /dev/kvm: %s\n", strerror(errno));
		exit(1);
	}
}

static void measure(unsigned runs)
{
	double unused[2];

	keep_one_vm();
	for (unsigned k = 0; k < VMMS; k++)
		if (!results[k].absent)
			time_start(&vmms[k], &unused[0], &unused[1]);
	for (unsigned i = 0; i < runs * VMMS; i++) {
		unsigned round = i / VMMS, k = (i + round) % VMMS;
		struct result *r = &results[k];

		if (!r->absent)
			time_start(&vmms[k], &r->start[round], &r->life[round]);
	}
	for (unsigned i = 0; i < MEMORY_RUNS * VMMS; i++)
		if (!results[i % VMMS].absent)
			results[i % VMMS].pss[i / VMMS] = weigh(&vmms[i % VMMS]);
}

/* KiB of the program that argv[0] stands for; 0 if there is none. */
static double program_kib(const struct vmm *v)
{
	char line[600] = "";
	struct stat st;
	FILE *f;

	snprintf(line, sizeof(line), "command -v %s", v->argv[0]);
	f = popen(line, "re");
	if (!f || !fgets(line, sizeof(line), f))
		line[0] = '\0';
	if (f)
		pclose(f);
	line[strcspn(line, "\n")] = '\0';
	return stat(line, &st) ? 0 : (double)st.st_size / 1024;
}

struct table {
	struct bench_row row[3 * VMMS + 1];
	size_t n;
	const char *what;
};

static struct bench_row *add_row(struct table *t, const char *metric, const char *unit,
				 double heddle, double reference, const char *name)
{
	struct bench_row *r = &t->row[t->n++];

	*r = (struct bench_row){ .bench = "start", .what = t->what, .runs = 1 };
	r->metric = metric;
	r->unit = unit;
	r->heddle = heddle;
	r->reference = reference;
	r->reference_name = name;
	return r;
}

static void set_aim(struct bench_row *r, unsigned runs, double aim, const char *of)
{
	r->runs = runs;
	r->aim = aim;
	r->aim_of = of;
}

static void make_rows(struct table *t, unsigned runs)
{
	struct result *h = &results[HEDDLE];
	double start = bench_median(h->start, runs), life = bench_median(h->life, runs);
	double pss = bench_median(h->pss, MEMORY_RUNS), file = program_kib(&vmms[HEDDLE]);

	for (unsigned k = BARE; k < VMMS; k++) {
		double aim = k == BARE ? START_AIM_BARE : START_AIM_QEMU;
		const char *name = vmms[k].name;
		struct result *r = &results[k];

		if (r->absent)
			continue;
		set_aim(add_row(t, "exec to first guest instruction", "ms", start,
				bench_median(r->start, runs), name),
			runs, aim, "ratio");
		set_aim(add_row(t, "exec to end of process", "ms", life,
				bench_median(r->life, runs), name),
			runs, 0, "");
		set_aim(add_row(t, "memory beyond guest RAM, Pss", "KiB", pss,
				bench_median(r->pss, MEMORY_RUNS), name),
			MEMORY_RUNS, PSS_AIM_KIB, "heddle");
	}
	set_aim(add_row(t, "program file, stripped", "KiB", file, program_kib(&vmms[QEMU]),
			results[QEMU].absent ? "none" : "qemu-system-x86_64"),
		1, BINARY_AIM_KIB, "heddle");
}

int main(int argc, char **argv)
{
	unsigned runs = argc == 5 ? (unsigned)atoi(argv[4]) : 0;
	struct table table = { .n = 0 };
	char what[200], title[200], *out = argc == 5 ? realpath(argv[2], NULL) : NULL;
	int err;

	if (runs < 5 || runs > RUNS_MAX || !out || chdir(argv[1])) {
		fprintf(stderr, "usage: start WORK OUT HOST RUNS (5 to %d)\n", RUNS_MAX);
		return 2;
	}
	snprintf(what, sizeof(what), "12 MiB bzImage, 1 GiB, 4 vCPUs, 4 fs queues; %s", argv[3]);
	snprintf(title, sizeof(title), "Start of a VM, medians; measured on %s", argv[3]);
	table.what = what;
	results[QEMU].absent = results[QBOOT].absent = program_kib(&vmms[QEMU]) == 0;
	if (results[QEMU].absent)
		fprintf(stderr, "bench-start: no qemu-system-x86_64 here: not compared\n");
	measure(runs);
	make_rows(&table, runs);
	err = bench_report(out, "start", title, table.row, table.n);
	free(out);
	return err ? 1 : 0;
}
