/* An I/O thread started in one step. */
#ifndef TESTS_UNIT_IOTHREAD_H
#define TESTS_UNIT_IOTHREAD_H

#include "vmm/loop.h"

static inline int iothread_start(struct iothread *t, const char *name)
{
	int err = iothread_begin(t, name);

	return err ? err : iothread_begun(t);
}

#endif
