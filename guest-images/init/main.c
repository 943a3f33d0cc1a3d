/* PID 1: the steps of agent.h in order, and what they need from the kernel beforehand. */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A kernel without console gives us no descriptors; what we open must not become 0, 1 or 2. */
static void fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 0)
		close(fd);
}

static void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return; /* a kernel without IPv4 */
	if (ioctl(fd, SIOCSIFFLAGS, &ifr))
		agent_note("loopback: %s", strerror(errno));
	close(fd);
}

/*
 * The kernel gives PID 1 a hard limit of 4096 descriptors; distributions give their programs more.
 */
static void raise_limits(void)
{
	const struct rlimit files = { .rlim_cur = 1024, .rlim_max = 524288 };

	setrlimit(RLIMIT_NOFILE, &files);
}

static int agent_setup(struct agent *a)
{
	int err = spec_load(a, CHANNEL_SPEC);

	if (err)
		return err;
	load_modules(&a->spec);
	err = mount_channel(a);
	if (!err)
		err = mount_root(a);
	if (err)
		return err;
	mount_system(&a->spec);
	if (a->spec.hostname && sethostname(a->spec.hostname, strlen(a->spec.hostname)))
		agent_note("host name: %s", strerror(errno));
	loopback_up();
	raise_limits();
	err = net_setup(a);
	return err ? err : mount_shares(a);
}

static int agent_run(struct agent *a)
{
	struct command *c = &a->command;
	struct pumps *p;
	int err;

	if (a->spec.init) {
		command_become_init(a);
		return 0;
	}
	err = command_start(a, c);
	if (err || c->pid == 0)
		return err;
	err = pumps_start(a, c, &p);
	if (err)
		return err;
	command_wait(a, c, p);
	return 0;
}

int main(void)
{
	struct agent a = { .ch = { -1, -1, -1, -1, -1 } };
	sigset_t set;

	if (getpid() != 1) {
		(void)!write(2, "heddle-agent: for a guest of heddle only\n", 41);
		return 1;
	}
	fill_standard_fds();
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD); /* end.c waits for it with a time limit */
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (agent_setup(&a) == 0)
		agent_run(&a);
	agent_end(&a);
}
