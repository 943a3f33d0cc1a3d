/*
 * How a run ended, and the exit code that follows.
 */
#ifndef VMM_RUN_END_H
#define VMM_RUN_END_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "guest-images/init/channel.h"
#include "vmm/console.h"
#include "vmm/term.h"
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

	/* Of run_end_soon(): */
	struct term *term;
	volatile int code; /* as far as it is known; the caller improves on it */
	timer_t timer;
	bool has_timer;
};

/*
 * The guest is over: from here on the process has a moment to put all away.  A thread that is with a
 * server which does not answer may keep it, so then it ends as it is, with the terminal restored and
 * the code known by then.  main thread.  term must stay.
 */
void run_end_soon(struct run_end *e, struct term *term);
/* All is put away. */
void run_end_done(struct run_end *e);

/* The exit code; logs the reason if it is not the command's.  With the VM stopped. */
int run_end_code(const struct run_end *e);

#endif
