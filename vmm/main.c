/*
 * heddle: argv -> subcommand -> exit code.  The only caller of exit().
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "vmm/base.h"
#include "vmm/hostcheck.h"
#include "vmm/log.h"
#include "vmm/run.h"
#include "vmm/run_opts.h"

static int version_main(int argc, char **argv)
{
	printf("heddle " HEDDLE_VERSION "\n");
	return 0;
}

static int help_main(int argc, char **argv)
{
	printf("usage: heddle run [OPTION...] [--] [COMMAND ARG...]\n"
	       "       heddle check [--json]\n"
	       "       heddle --version | --help\n\n"
	       "run boots a Linux kernel in a virtual machine and runs COMMAND in it (an interactive\n"
	       "shell if there is none), on a throw-away view of this host's files.\n\n");
	run_opts_help();
	printf("\ncheck says whether this host can run guests, and what to do if not.\n");
	return 0;
}

static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} subcommands[] = {
	{ "run", run_main },	     { "check", hostcheck_main }, { "--version", version_main },
	{ "version", version_main }, { "--help", help_main },	  { "-h", help_main },
	{ "help", help_main },
};

/* A share needs a descriptor for each file the guest knows: take what the hard limit allows. */
static void raise_file_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* A caller may have closed them; a descriptor of ours in their place would get the guest's output. */
static void open_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* Our threads allocate at their start and hardly after: a heap for each would only cost memory. */
static void share_one_heap(void)
{
#ifdef M_ARENA_MAX
	(void)mallopt(M_ARENA_MAX, 1);
#endif
}

int main(int argc, char **argv)
{
	share_one_heap();
	open_standard_streams();
	raise_file_limit();
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(subcommands); i++)
		if (strcmp(argv[1], subcommands[i].name) == 0)
			return subcommands[i].main(argc - 1, argv + 1);
	if (argc > 1)
		log_error("unknown command %s (heddle --help lists them)", argv[1]);
	else
		log_error("what is to be done?  heddle run -- COMMAND, or heddle --help");
	return RUN_EXIT_SETUP;
}
