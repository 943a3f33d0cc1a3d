/*
 * heddle run: see run.h.
 *
 * main's thread does all of this: it builds the machine, then sits in its loop until something ends it;
 * run_end.c says what that makes of the exit code.
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
#include "vmm/run_end.h"
#include "vmm/run_input.h"
#include "vmm/run_opts.h"
#include "vmm/term.h"

#define COMMAND_STOP_MS 1000  /* SIGTERM: the guest ends within 2 s in all */
#define INIT_STOP_MS    10000 /* an init system takes its services down */
#define SILENCE_MS      500   /* behind a dead kernel's last word */

struct run {
	struct run_opts opts;
	struct loop loop;
	struct file initrd;
	struct initrd_part part[2]; /* kept: a guest that resets is loaded from them again */
	struct initramfs initramfs;
	struct channel *channel;
	struct machine *machine;
	struct term term;
	bool has_command;    /* the agent runs one; else an init or a bare kernel has the machine */
	bool tty;            /* the command gets a terminal */
	bool console_stdio;  /* the guest's console is our standard input and output */
	int console_fd;      /* sink, -1 = none */
	char *cmdline;

	struct watch signals, timer, stop_timer, silence, said;
	struct run_input input; /* of the console, with console_stdio */

	struct run_end how; /* its status: written by the channel's thread before `said` is signalled */
};

/* --- ends ----------------------------------------------------------------------------------------- */

static void run_stop(struct run *r)
{
	loop_stop(&r->loop);
}

static void on_vm_ended(void *ctx, enum vm_end why)
{
	struct run *r = ctx;

	r->how.end = why;
	run_stop(r);
}

static void arm(struct watch *timer, unsigned ms)
{
	const struct itimerspec when = { .it_value = { .tv_sec = ms / 1000,
						       .tv_nsec = (ms % 1000) * 1000000L } };

	timerfd_settime(timer->fd, 0, &when, NULL);
}

static void on_console_word(void *ctx)
{
	struct run *r = ctx;

	arm(&r->silence, SILENCE_MS);
}

/* A person at the console sees whether the guest is dead, or only something that printed these words. */
static void silence_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, silence);
	uint64_t count;

	(void)!read(w->fd, &count, sizeof(count));
	r->how.word = console_last_word(machine_console(r->machine));
	if (r->how.word == CONSOLE_ALIVE)
		return;
	if (r->input.raw)
		log_warn("the guest's kernel seems to have stopped: Ctrl-A x ends heddle");
	else
		run_stop(r);
}

static void on_quit(void *ctx)
{
	struct run *r = ctx;

	r->how.quit = true;
	r->how.word = console_last_word(machine_console(r->machine));
	run_stop(r);
}

static size_t on_typed(void *ctx, const void *p, size_t len)
{
	struct run *r = ctx;

	return machine_type(r->machine, p, len);
}

/* On a vCPU thread. */
static void on_room(void *ctx)
{
	struct run *r = ctx;

	if (r->console_stdio)
		run_input_room(&r->input);
}

/* On the channel's thread. */
static void on_status(void *ctx, const struct channel_status *status)
{
	struct run *r = ctx;

	r->how.status = *status;
	atomic_store(&r->how.has_status, true);
	irq_signal(r->said.fd);
}

static void said_ready(struct watch *w, uint32_t events)
{
	run_stop(container_of(w, struct run, said));
}

static void timer_ready(struct watch *w, uint32_t events)
{
	struct run *r = container_of(w, struct run, timer);

	r->how.timed_out = true;
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
	bool again = r->how.signal != 0;

	r->how.signal = sig;
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

/* --- set-up -------------------------------------------------------------------------------------- */

static int make_loop(struct run *r)
{
	return loop_init(&r->loop);
}

static int open_initrd(struct run *r)
{
	return r->opts.initrd ? file_open(&r->initrd, r->opts.initrd) : 0;
}

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

static int make_initramfs(struct run *r)
{
	return r->opts.bare ? 0 : guest_initramfs_make(&r->opts, r->tty, &r->initramfs);
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

	return r->opts.bare ? 0 : channel_create(&o, &r->channel);
}

static int watch_new(struct run *r, struct watch *w, int fd,
		     void (*ready)(struct watch *w, uint32_t events))
{
	*w = (struct watch){ .fd = fd, .ready = ready };
	return fd < 0 ? -errno : loop_watch(&r->loop, w, EPOLLIN);
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
	return watch_new(r, &r->signals, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), signal_ready);
}

static int watch_own(struct run *r)
{
	const struct {
		struct watch *watch;
		void (*ready)(struct watch *w, uint32_t events);
	} timer[] = { { &r->timer, timer_ready },
		      { &r->stop_timer, stop_timer_ready },
		      { &r->silence, silence_ready } };
	int err = watch_signals(r);

	for (unsigned i = 0; i < ARRAY_SIZE(timer) && !err; i++)
		err = watch_new(r, timer[i].watch,
				timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
				timer[i].ready);
	if (!err)
		err = watch_new(r, &r->said, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), said_ready);
	r->input.type = on_typed;
	r->input.quit = on_quit;
	r->input.ctx = r;
	if (!err && r->console_stdio)
		err = run_input_open(&r->input, &r->loop, STDIN_FILENO);
	return err;
}

static int make_machine(struct run *r)
{
	struct machine_opts o = {
		.n_vcpus = r->opts.n_vcpus,
		.ram = r->opts.ram,
		.files = { .kernel = &r->opts.kernel_file, .initrd = r->part, .cmdline = r->cmdline },
		.device = r->opts.device,
		.n_devices = r->opts.n_devices,
		.channel = r->channel,
		.console_fd = r->console_fd,
		.reboot = r->opts.reboot,
		.ended = on_vm_ended,
		.console_word = on_console_word,
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
	static const struct {
		int (*fn)(struct run *r);
		const char *name; /* for the line about a failure; NULL: fn logs it */
	} step[] = {
		{ make_loop, "the event loop" },
		{ open_initrd, NULL },
		{ open_console, NULL },
		{ make_initramfs, NULL },
		{ make_cmdline, "the kernel command line" },
		{ make_channel, NULL },
		{ watch_own, "signals, timers and console input" },
		{ make_machine, NULL },
	};
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(step) && !err; i++) {
		err = step[i].fn(r);
		if (err && step[i].name)
			log_error("cannot set up %s: %s", step[i].name, strerror(-err));
	}
	return err;
}

/* What the exit code depends on, beside how it ended. */
static void run_circumstances(struct run *r)
{
	struct run_end *e = &r->how;

	e->command = r->has_command;
	e->agent = r->channel != NULL;
	e->mounted = e->agent && channel_mounted(r->channel);
	e->program = r->opts.init ? r->opts.init : "the shell";
	if (r->has_command && r->opts.command)
		e->program = r->opts.command[0];
	e->modules = r->opts.modules[0] != '\0';
	e->console = machine_console(r->machine);
	e->console_seen = r->console_stdio || r->console_fd == STDERR_FILENO;
}

static void run_loop(struct run *r)
{
	if (r->tty || (r->console_stdio && isatty(STDIN_FILENO)))
		(void)term_raw(&r->term, STDIN_FILENO);
	if (r->opts.timeout_s)
		arm(&r->timer, r->opts.timeout_s * 1000);
	if (r->console_stdio)
		run_input_start(&r->input, r->term.raw);
	machine_start(r->machine);
	loop_run(&r->loop);
	run_circumstances(r);
	run_end_soon(&r->how, &r->term);
	machine_stop(r->machine);
	term_restore(&r->term);
}

/* --- life ----------------------------------------------------------------------------------------- */

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
	close_watch(&r->silence);
	close_watch(&r->said);
	run_input_close(&r->input);
	if (r->console_fd > STDERR_FILENO)
		close(r->console_fd);
	free(r->cmdline);
	initramfs_destroy(&r->initramfs);
	file_close(&r->initrd);
	loop_destroy(&r->loop);
	run_opts_free(&r->opts);
	run_end_done(&r->how);
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
	r->loop.epoll_fd = r->console_fd = r->initrd.fd = -1;
	if (run_opts_parse(&r->opts, argc, argv)) {
		run_free(r);
		return code;
	}
	if (r->opts.help) {
		run_opts_help();
		run_free(r);
		return 0;
	}
	r->has_command = !r->opts.bare && !r->opts.init;
	r->tty = r->has_command && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
		 isatty(STDERR_FILENO);
	if (run_setup(r) == 0) {
		run_loop(r);
		code = r->how.code = run_end_code(&r->how);
	}
	run_free(r);
	return code;
}
