/*
 * The channel between heddle and its agent in the guest: included by both sides.
 *
 * The agent is /init of the initramfs that heddle writes.  What it has to do stands in /heddle.spec
 * of that initramfs: records "KEY=VALUE" ended by NUL bytes, in order (a value holds any byte but
 * NUL).
 *
 * While the command runs, the two talk through a virtio-fs share with the tag CHANNEL_TAG, whose
 * files are pipes of heddle, opened with direct I/O and without seeking:
 *	stdin   read: what heddle reads on its standard input; 0 bytes = end of file
 *	stdout  write: appears on heddle's standard output; waits while that is full
 *	stderr  likewise
 *	events  read: one struct channel_event at a time; waits for the next.  The first read says
 *	        that the command runs
 *	status  write: one struct channel_status, the agent's last word
 * No reply to stdin or events is owed when the VM ends.
 */
#ifndef GUEST_IMAGES_INIT_CHANNEL_H
#define GUEST_IMAGES_INIT_CHANNEL_H

#include <stdint.h>

#define CHANNEL_TAG  "heddle-channel"
#define CHANNEL_SPEC "/heddle.spec"

/*
 * Spec keys.
 *	module=PATH     load this file of the initramfs, in this order (already decompressed)
 *	root=TAG        virtio-fs tag of the root; absent: stay in the initramfs
 *	rootmode=MODE   overlay (tmpfs above a read-only root), ro, rw
 *	mount=TAG:MODE:PATH   further share on PATH of the root (made when missing); MODE rw or ro
 *	arg=STRING      the command and its arguments, in order
 *	init=PATH       no command: become this program as PID 1 in the root (arg= are its
 *	                arguments)
 *	env=NAME=VALUE  the whole environment of the command
 *	cwd=PATH        of the command; not executing it when that is not there
 *	cwdtry=PATH     likewise, but / will do, with a line on standard error
 *	tty=ROWSxCOLS   the command gets a terminal
 *	hostname=NAME
 *	uid= gid=       numbers the command runs as (default 0)
 *	net=NUMBER,ADDRESS/LENGTH,GATEWAY,DNS   set these on the network device with this number,
 *	                from 0 in the order of PCI slots; GATEWAY and DNS may be empty
 */

enum { CHANNEL_EVENT_SIGNAL = 1, CHANNEL_EVENT_WINSIZE = 2 };

struct channel_event {
	uint32_t kind;
	uint32_t a, b; /* signal number (Linux, of the guest); or rows, columns */
};

enum {
	CHANNEL_EXITED = 1,
	CHANNEL_SIGNALLED = 2,
	CHANNEL_CANNOT_EXEC = 3,
	CHANNEL_SETUP_FAILED = 4
};

struct channel_status {
	uint32_t kind;
	uint32_t code;	/* exit code, signal number, errno of execve, errno of set-up */
	char text[256]; /* SETUP_FAILED: what failed and why, NUL-terminated; else empty */
};

#endif
