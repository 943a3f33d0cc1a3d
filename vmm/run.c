/*
 * heddle run: see run.h.
 *
 * main's thread does all of this: it builds the machine, then sits in its loop.  What can end a run, in
 * the order in which it decides the exit code:
 *	1. the agent's status (channel)	-> the command's own code
 *	2. our own decision		-> a signal (128+n) or the time limit (124)
 *	3. the guest's console		-> panic (123), halt (122)
 *	4. the way the VM ended		-> power off (0 without a command, else 122), reset, crash (122)
 */
#include "vmm/run.h"

#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "devices/channel.h"
#include "guest-images/init/channel.h"
#include "vmm/base.h"
#include "vmm/guest_spec.h"
#include "vmm/initramfs.h"
#include "vmm/irq.h"
#include "vmm/log.h"
#include "vmm/machine.h"
#include "vmm/modules.h"
#include "vmm/run_opts.h"
#include "vmm/term.h"

#define COMMAND_STOP_MS 1000  /* SIGTERM: the guest ends within 2 s in all */
#define INIT_STOP_MS    10000 /* an init system takes its services down */
#define PANIC_WAIT_MS   500   /* for the rest of the trace, if the guest does not reset itself */
#define ESCAPE_KEY      0x01  /* Ctrl-A, then x ends a console session */
#define TAIL_LINES      40    /* a panic with its trace */

/* vmm/agent_image.S: the agent's program. */
extern const char agent_image_start[], agent_image_end[];

struct run {
	struct run_opts opts;
	struct loop loop;
	struct file kernel, initrd;
	struct initrd_part part[2]; /* kept: a guest that resets is loaded from them again */
	struct guest_spec spec;
	struct initramfs initramfs;
	struct channel *channel;
	struct machine *machine;
	struct term term;
	bool has_command;    /* the agent runs one; else an init or a bare kernel has the machine */
	bool tty;            /* the command gets a terminal */
	bool console_stdio;  /* the guest's console is our standard input and output */
	int console_fd;      /* sink, -1 = none */
	char *cmdline;

	struct watch signals, timer, stop_timer, typed, room, said;

	/* Console input not taken yet. */
	char input[256];
	size_t input_len, input_off;
	bool escape;

	/* How it ended. */
	struct channel_status status; /* written by the channel's thread before `said` is signalled */
	_Atomic bool has_status;
	int signal;                   /* that made us stop */
	bool timed_out, panicked, halted, quit;
	enum vm_end end;
};

/* --- ends ----------------------------------------------------------------------------------------- */

static void run_stop(struct run *r)
{
	loop_stop(&r->loop);
}

static void on_vm_ended(void *ctx, enum vm_end why)
{
	struct run *r = ctx;

	r->end = why;
	run_stop(r);
}

static void arm(struct watch *timer, unsigned ms)
{
	const struct itimerspec when = { .it_value = { .tv_sec = ms / 1000,
						       .tv_nsec = (ms % 1000) * 1000000L } };

	timerfd_settime(timer->fd, 0, &when, NULL);
}

static void on_console_event(void *ctx, enum console_event e)
{
	struct run *r = ctx;

	if (e == CONSOLE_PANIC)
		r->panicked = true;
	else
		r->halted = true;
	arm(&r->stop_timer, PANIC_WAIT_MS);
}

/* On the channel's thread. */
static void on_status(void *ctx, const struct channel_status *status)
{
	struct run *r = ctx;

	if (atomic_load(&r->has_status))
		return;
	r->status = *status;
	r->status.text[sizeof(r->status.text) - 1] = '\0';
	atomic_store(&r->has_status, true);
	irq_signal(r->said.fd);
}

static void said_ready(struct watch *w, uint32_t events)
{
	run_stop(container_of(w, struct run, said));
}

static void timer_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, timer);

	r->timed_out = true;
	run_stop(r);
}

static void stop_timer_ready(struct watch *w, uint32_t events)
{
	run_stop(container_of(w, struct run, stop_timer));
}

/* --- signals ------------------------------------------------------------------------------------- */

static unsigned stop_ms(const struct run *r)
{
	if (r->opts.stop_timeout_s != UINT_MAX)
		return MAX(r->opts.stop_timeout_s * 1000, 1U);
	return r->has_command ? COMMAND_STOP_MS : INIT_STOP_MS;
}

/* Someone wants heddle to end: let the guest do it, but not for ever; at once when asked twice. */
static void end_by_signal(struct run *r, int sig)
{
	bool again = r->signal != 0;

	r->signal = sig;
	if (again || (r->has_command && !channel_connected(r->channel))) {
		run_stop(r);
		return;
	}
	if (r->has_command)
		channel_signal(r->channel, sig);
	else
		machine_power_button(r->machine);
	arm(&r->stop_timer, stop_ms(r));
}

static void pass_signal(struct run *r, int sig)
{
	if (r->has_command && channel_connected(r->channel))
		channel_signal(r->channel, sig);
	else
		end_by_signal(r, sig);
}

static void window_changed(struct run *r)
{
	unsigned rows, cols;

	if (r->tty && term_size(STDIN_FILENO, &rows, &cols))
		channel_winsize(r->channel, rows, cols);
}

static void signal_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, signals);
	struct signalfd_siginfo info;

	if (read(w->fd, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGTERM:
	case SIGHUP:
		end_by_signal(r, (int)info.ssi_signo);
		break;
	case SIGINT:
	case SIGQUIT:
	case SIGUSR2:
		pass_signal(r, (int)info.ssi_signo);
		break;
	case SIGUSR1:
		machine_log_stats(r->machine);
		break;
	case SIGWINCH:
		window_changed(r);
		break;
	}
}

/* --- console on our own standard input and output ------------------------------------------------ */

/* Hand waiting input to the UART; what it does not take waits for room. */
static void input_push(struct run *r)
{
	r->input_off += machine_type(r->machine, r->input + r->input_off, r->input_len - r->input_off);
	if (r->input_off < r->input_len) {
		(void)loop_watch(&r->loop, &r->typed, 0);
		return;
	}
	r->input_len = r->input_off = 0;
	(void)loop_watch(&r->loop, &r->typed, EPOLLIN);
}

/* Ctrl-A x ends, Ctrl-A Ctrl-A is Ctrl-A.  Returns the bytes that are for the guest, in place. */
static size_t input_filter(struct run *r, char *p, size_t len)
{
	size_t kept = 0;

	for (size_t i = 0; i < len; i++) {
		if (r->escape) {
			r->escape = false;
			if (p[i] == 'x') {
				r->quit = true;
				run_stop(r);
				return 0;
			}
			if (p[i] != ESCAPE_KEY)
				continue;
		} else if (p[i] == ESCAPE_KEY) {
			r->escape = true;
			continue;
		}
		p[kept++] = p[i];
	}
	return kept;
}

static void typed_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, typed);
	ssize_t n = read(w->fd, r->input, sizeof(r->input));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		(void)loop_watch(&r->loop, w, 0);
		return;
	}
	r->input_len = r->term.raw ? input_filter(r, r->input, (size_t)n) : (size_t)n;
	input_push(r);
}

/* On a vCPU thread. */
static void on_room(void *ctx)
{
	struct run *r = ctx;

	irq_signal(r->room.fd);
}

static void room_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, room);
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	if (r->input_off < r->input_len)
		input_push(r);
}

/* --- set-up -------------------------------------------------------------------------------------- */

static int open_console(struct run *r)
{
	const char *where = r->opts.console;

	r->console_fd = -1;
	r->console_stdio = !where && (r->opts.bare || r->opts.init);
	if (r->console_stdio)
		r->console_fd = STDOUT_FILENO;
	else if (where && strcmp(where, "stderr") == 0)
		r->console_fd = STDERR_FILENO;
	else if (where && strcmp(where, "none") != 0) {
		r->console_fd = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
		if (r->console_fd < 0) {
			log_error("--console %s: %s", where, strerror(errno));
			return -EINVAL;
		}
	}
	return 0;
}

/* The modules the agent needs to get at its root, minus what this kernel has built in. */
static int collect_modules(struct run *r, struct module_list *list)
{
	struct module_want want[] = {
		{ .name = "virtio_pci" },
		{ .name = "virtiofs" },
		{ .name = "overlay", .optional = r->opts.root_mode != ROOT_OVERLAY },
		{ .name = "virtio_net" }, /* last: left out when there is no such device */
	};
	unsigned n = ARRAY_SIZE(want) - !run_opts_has_device(&r->opts, "net");

	if (!r->opts.modules[0]) {
		/* A kernel without modules, or with all that is needed built in, is fine as well. */
		log_debug("no modules found for %s", r->opts.kernel);
		return 0;
	}
	return modules_collect(r->opts.modules, want, n, list);
}

static int make_initramfs(struct run *r)
{
	struct module_list modules = { 0 };
	struct initramfs_opts o = {
		.agent = agent_image_start,
		.agent_len = (size_t)(agent_image_end - agent_image_start),
		.modules = &modules,
	};
	int err = guest_spec_make(&r->spec, &r->opts, r->tty);

	if (!err)
		err = collect_modules(r, &modules);
	o.records = (const char *const *)r->spec.record;
	o.n_records = r->spec.n;
	if (!err)
		err = initramfs_create(&o, &r->initramfs);
	modules_free(&modules);
	return err;
}

static int make_cmdline(struct run *r)
{
	/* A silent console is fast, and still says why the kernel died. */
	const char *quiet = r->console_fd < 0 ? " quiet" : "";
	const char *append = r->opts.append ? r->opts.append : "";

	if (asprintf(&r->cmdline, "%s%s%s%s", arch_cmdline(), quiet, *append ? " " : "", append) < 0) {
		r->cmdline = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int make_channel(struct run *r)
{
	const struct channel_opts o = {
		.stdin_fd = STDIN_FILENO,
		.stdout_fd = STDOUT_FILENO,
		.stderr_fd = STDERR_FILENO,
		.on_status = on_status,
		.ctx = r,
	};

	return channel_create(&o, &r->channel);
}

static int watch_signals(struct run *r)
{
	static const int wanted[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a guest write past our file size limit: EFBIG for the guest */
	r->signals = (struct watch){ .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
				     .ready = signal_ready };
	return loop_watch(&r->loop, &r->signals, EPOLLIN);
}

static int watch_own(struct run *r)
{
	const int timer_flags = TFD_CLOEXEC | TFD_NONBLOCK;
	int err = watch_signals(r);

	r->timer = (struct watch){ .fd = timerfd_create(CLOCK_MONOTONIC, timer_flags),
				   .ready = timer_ready };
	r->stop_timer = (struct watch){ .fd = timerfd_create(CLOCK_MONOTONIC, timer_flags),
					.ready = stop_timer_ready };
	r->room = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = room_ready };
	r->said = (struct watch){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = said_ready };
	r->typed = (struct watch){ .fd = STDIN_FILENO, .ready = typed_ready };
	if (!err)
		err = loop_watch(&r->loop, &r->timer, EPOLLIN);
	if (!err)
		err = loop_watch(&r->loop, &r->stop_timer, EPOLLIN);
	if (!err)
		err = loop_watch(&r->loop, &r->room, EPOLLIN);
	if (!err)
		err = loop_watch(&r->loop, &r->said, EPOLLIN);
	/* A regular file or /dev/null cannot be polled: then there is no console input. */
	if (!err && r->console_stdio)
		(void)loop_watch(&r->loop, &r->typed, EPOLLIN);
	return err;
}

static int make_machine(struct run *r)
{
	struct machine_opts o = {
		.n_vcpus = r->opts.n_vcpus,
		.ram = r->opts.ram,
		.files = { .kernel = &r->kernel, .initrd = r->part, .cmdline = r->cmdline },
		.device = r->opts.device,
		.n_devices = r->opts.n_devices,
		.channel = r->channel,
		.console_fd = r->console_fd,
		.reboot = r->opts.reboot,
		.ended = on_vm_ended,
		.console_event = on_console_event,
		.console_room = on_room,
		.ctx = r,
	};

	if (r->opts.initrd)
		r->part[o.files.n_initrd++] =
			(struct initrd_part){ .file = &r->initrd, .len = r->initrd.size };
	if (r->initramfs.data)
		r->part[o.files.n_initrd++] =
			(struct initrd_part){ .data = r->initramfs.data, .len = r->initramfs.len };
	return machine_create(&o, &r->loop, &r->machine);
}

static int run_setup(struct run *r)
{
	int err = loop_init(&r->loop);

	if (!err)
		err = file_open(&r->kernel, r->opts.kernel);
	if (!err && r->opts.initrd)
		err = file_open(&r->initrd, r->opts.initrd);
	if (!err)
		err = open_console(r);
	if (!err && !r->opts.bare)
		err = make_initramfs(r);
	if (!err)
		err = make_cmdline(r);
	if (!err && !r->opts.bare)
		err = make_channel(r);
	if (!err)
		err = watch_own(r);
	return err ? err : make_machine(r);
}

static void run_loop(struct run *r)
{
	if (r->tty || (r->console_stdio && isatty(STDIN_FILENO)))
		(void)term_raw(&r->term, STDIN_FILENO);
	if (r->opts.timeout_s)
		arm(&r->timer, r->opts.timeout_s * 1000);
	machine_start(r->machine);
	loop_run(&r->loop);
	machine_stop(r->machine);
	term_restore(&r->term);
}

/* --- the verdict --------------------------------------------------------------------------------- */

static int status_code(const struct run *r)
{
	const struct channel_status *s = &r->status;
	const char *name = r->opts.command ? r->opts.command[0] : "the shell";

	switch (s->kind) {
	case CHANNEL_EXITED:
		return (int)(s->code & 0xff);
	case CHANNEL_SIGNALLED:
		return RUN_EXIT_SIGNAL + (int)(s->code & 0x7f);
	case CHANNEL_CANNOT_EXEC:
		log_error("%s: %s", name, strerror((int)s->code));
		return s->code == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_CANNOT_EXEC;
	default:
		log_error("guest set-up failed: %s", s->text);
		return RUN_EXIT_SETUP;
	}
}

static int no_status(struct run *r, int code, const char *what)
{
	log_error("%s", what);
	if (!r->console_stdio && r->console_fd != STDERR_FILENO)
		console_show_tail(machine_console(r->machine), TAIL_LINES);
	return code;
}

static int exit_code(struct run *r)
{
	if (atomic_load(&r->has_status))
		return status_code(r);
	if (r->timed_out)
		return no_status(r, RUN_EXIT_TIMEOUT, "time limit reached, guest ended");
	if (r->panicked)
		return no_status(r, RUN_EXIT_PANIC, "the guest kernel panicked");
	if (r->signal && r->end == VM_RUNNING)
		return RUN_EXIT_SIGNAL + r->signal;
	if (r->quit)
		return 0;
	if (r->halted)
		return no_status(r, RUN_EXIT_NO_STATUS, "the guest halted without a status");
	if (r->end == VM_POWEROFF && !r->has_command)
		return 0;
	if (r->end == VM_POWEROFF)
		return no_status(r, RUN_EXIT_NO_STATUS, "the guest powered off without a status");
	if (r->end == VM_RESET)
		return no_status(r, RUN_EXIT_NO_STATUS, "the guest reset without a status");
	return no_status(r, RUN_EXIT_NO_STATUS, "the guest crashed");
}

static void close_watch(struct watch *w)
{
	if (w->ready && w->fd > STDERR_FILENO)
		close(w->fd);
}

static void run_free(struct run *r)
{
	if (r->machine)
		machine_destroy(r->machine);
	if (r->channel)
		channel_destroy(r->channel);
	close_watch(&r->signals);
	close_watch(&r->timer);
	close_watch(&r->stop_timer);
	close_watch(&r->room);
	close_watch(&r->said);
	if (r->console_fd > STDERR_FILENO)
		close(r->console_fd);
	free(r->cmdline);
	initramfs_destroy(&r->initramfs);
	guest_spec_free(&r->spec);
	file_close(&r->initrd);
	file_close(&r->kernel);
	loop_destroy(&r->loop);
	run_opts_free(&r->opts);
	free(r);
}

int run_main(int argc, char **argv)
{
	struct run *r = calloc(1, sizeof(*r));
	int code = RUN_EXIT_SETUP;

	if (!r) {
		log_error("out of memory");
		return code;
	}
	r->loop.epoll_fd = r->console_fd = r->kernel.fd = r->initrd.fd = -1;
	if (run_opts_parse(&r->opts, argc, argv)) {
		run_free(r);
		return code;
	}
	if (r->opts.help) {
		run_help();
		run_free(r);
		return 0;
	}
	r->has_command = !r->opts.bare && !r->opts.init;
	r->tty = r->has_command && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
		 isatty(STDERR_FILENO);
	if (run_setup(r) == 0) {
		run_loop(r);
		code = exit_code(r);
	}
	run_free(r);
	return code;
}

void run_help(void)
{
	printf("options of heddle run:\n");
	run_opts_print();
	printf("\nexit codes: the command's own, or\n"
	       "  122  the guest ended without a status (reset, triple fault, power off)\n"
	       "  123  the guest kernel panicked\n"
	       "  124  --timeout ran out\n"
	       "  125  heddle failed before the command started (bad option, host, set-up)\n"
	       "  126  the command cannot be executed\n"
	       "  127  the command was not found\n"
	       "  128+n  ended by signal n\n");
}
