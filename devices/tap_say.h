/*
 * One line for each reason why a tap cannot be had: it names the tap, the flag that is wrong, and
 * the command that makes it right.  Each returns the error, for the caller to pass on.
 */
#ifndef DEVICES_TAP_SAY_H
#define DEVICES_TAP_SAY_H

#include "devices/tap_info.h"

#define TUN_DEVICE "/dev/net/tun"

int tap_say_open(const char *name, int err); /* the device file */
int tap_say_kind(const char *name, const struct tap_info *info);
int tap_say_one_queue(const char *name, unsigned queues);
int tap_say_busy(const char *name);
/* TUNSETIFF said err; info may be but half filled when not found. */
int tap_say_refused(const char *name, const struct tap_info *info, bool found, int err);
/* A descriptor given to us lacks a flag; several: it is one of more. */
int tap_say_flag(int fd, const char *name, const char *flag, bool several);

#endif
