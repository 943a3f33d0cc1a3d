/*
 * What the kernel knows of a network interface (rtnetlink), as far as it decides whether and how a
 * tap can be opened.  Needs no privilege, and no /sys.
 */
#ifndef DEVICES_TAP_INFO_H
#define DEVICES_TAP_INFO_H

#include <stdbool.h>
#include <stdint.h>

struct tap_info {
	char kind[16]; /* "tun" for taps and tuns; "" = none told */
	bool told;     /* of a tun: kernels before 4.20 say nothing of what follows */
	bool tap;      /* frames, not packets */
	bool multi;    /* IFF_MULTI_QUEUE */
	bool persist;
	bool pi;                     /* no IFF_NO_PI: four more bytes before each frame */
	unsigned attached, detached; /* queues, whoever holds them */
	uint32_t owner;              /* user id; UINT32_MAX = nobody's */
};

/* 0, -ENODEV when there is none of that name, or -errno. */
int tap_info_get(const char *name, struct tap_info *info);

#endif
