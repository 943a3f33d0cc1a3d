/*
 * `heddle run`: options -> machine -> exit code.
 */
#ifndef VMM_RUN_H
#define VMM_RUN_H

/* heddle's own exit codes; all others are the command's. */
enum run_exit {
	RUN_EXIT_NO_STATUS = 122,   /* the guest ended without a status: reset, triple fault, power off */
	RUN_EXIT_PANIC = 123,       /* the guest kernel panicked */
	RUN_EXIT_TIMEOUT = 124,     /* --timeout ran out */
	RUN_EXIT_SETUP = 125,       /* heddle failed before the command started: bad option, host, set-up */
	RUN_EXIT_CANNOT_EXEC = 126, /* command found but not executable */
	RUN_EXIT_NOT_FOUND = 127,   /* command not found */
	RUN_EXIT_SIGNAL = 128,      /* + n: command, or heddle, was ended by signal n */
};

/* argv[0] is "run".  Returns the exit code of the process. */
int run_main(int argc, char **argv);

#endif
