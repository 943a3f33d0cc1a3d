/*
 * How a run ended, and the exit code that follows.
 */
#ifndef VMM_RUN_END_H
#define VMM_RUN_END_H

#include <stdatomic.h>
#include <stdbool.h>

#include "guest-images/init/channel.h"
#include "vmm/console.h"
#include "vmm/vm.h"

struct run_end {
	struct channel_status status; /* the agent's; text printable and terminated */
	_Atomic bool has_status;
	int signal; /* that made us stop */
	bool timed_out;
	bool quit;              /* by Ctrl-A x */
	enum console_word word; /* the console's last, when that made us stop */
	enum vm_end end; /* VM_RUNNING: it was us */

	bool command; /* there was one to run; else an init or a bare kernel had the machine */
	bool agent, mounted;          /* the guest got one; it has mounted the channel */
	const char *program;          /* what the agent was to execute */
	bool modules;              /* of this kernel: were any found? */
	struct console *console;
	bool console_seen; /* by the user, so its tail need not be shown */
};

/* The exit code; logs the reason if it is not the command's.  With the VM stopped. */
int run_end_code(const struct run_end *e);

#endif
