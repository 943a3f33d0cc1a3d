/* --net: see net.h for what may be said. */
#include "devices/net_opts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtq.h"
#include "vmm/base.h"
#include "vmm/log.h"
#include "vmm/opt.h"

#define RING_DEFAULT 256
#define RING_MIN     32    /* a Linux driver stops its queue below 19 free descriptors */
#define MTU_MIN      68    /* virtio 1.2, "Device configuration layout" of the network device */
#define MTU_MAX      65521 /* of a tap: 65535 less the Ethernet header */
#define THREADS_MAX  128   /* one for each queue of 64 pairs */
#define CPU_LAST     1023  /* what a cpu_set_t holds */

static int complain(const char *key, const char *what, const char *value)
{
	log_error("--net: %s %s: %s", key, what, value);
	return -EINVAL;
}

static bool copy_text(char *to, size_t size, const char *from)
{
	size_t len = strlen(from);

	if (len >= size)
		return false;
	memcpy(to, from, len + 1);
	return true;
}

/* The next word of a list of words with colons between; NULL at the end.  Cuts the list. */
static char *next_word(char **list)
{
	char *word = *list, *end;

	if (!word)
		return NULL;
	end = strchr(word, ':');
	if (end)
		*end++ = '\0';
	*list = end;
	return word;
}

/* Digits only; false when there are none, or it is above max. */
static bool number(const char **text, unsigned max, unsigned *n)
{
	const char *p = *text;
	unsigned long v = 0;

	for (; *p >= '0' && *p <= '9' && v <= max; p++)
		v = v * 10 + (unsigned long)(*p - '0');
	if (p == *text || v > max)
		return false;
	*text = p;
	*n = (unsigned)v;
	return true;
}

/* --- one key each ----------------------------------------------------------------------------- */

static int parse_fds(void *ctx, const char *value)
{
	struct net_opts *o = ctx;
	char copy[1024], *list = copy, *word;

	if (!copy_text(copy, sizeof(copy), value))
		return complain("fds", "is too long", value);
	while ((word = next_word(&list))) {
		const char *p = word;
		unsigned fd;

		if (!number(&p, 1u << 20, &fd) || *p || fd < 3)
			return complain("fds", "takes descriptor numbers from 3 on, A:B:...",
					value);
		for (unsigned i = 0; i < o->n_fds; i++)
			if (o->fd[i] == (int)fd)
				return complain("fds", "names a descriptor twice", value);
		if (o->n_fds == TAP_QUEUES_MAX)
			return complain("fds", "takes at most 64 descriptors", value);
		o->fd[o->n_fds++] = (int)fd;
	}
	return 0;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | (c > '9' ? 0x20 : 0)) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* "XX:XX:XX:XX:XX:XX" */
static bool mac_read(uint8_t mac[6], const char *text)
{
	for (unsigned i = 0; i < 6; i++, text += 3) {
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

		if (low < 0 || text[2] != (i < 5 ? ':' : '\0'))
			return false;
		mac[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static int parse_mac(void *ctx, const char *value)
{
	static const uint8_t none[6];
	struct net_opts *o = ctx;

	/* The multicast bit makes no station. */
	o->has_mac = mac_read(o->mac, value) && !(o->mac[0] & 1) && memcmp(o->mac, none, 6) != 0;
	return o->has_mac ? 0
			  : complain("mac", "takes a station's address, XX:XX:XX:XX:XX:XX", value);
}

static int parse_pin(void *ctx, const char *value)
{
	struct net_opts *o = ctx;
	char copy[1024], *list = copy, *word;

	if (!copy_text(copy, sizeof(copy), value))
		return complain("pin", "is too long", value);
	while ((word = next_word(&list))) {
		const char *p = word;
		unsigned first, last;
		bool ok = number(&p, CPU_LAST, &first);

		last = first;
		if (ok && *p == '-') {
			p++;
			ok = number(&p, CPU_LAST, &last);
		}
		if (!ok || *p || last < first)
			return complain("pin", "takes host CPUs, 0-3:8", value);
		for (unsigned cpu = first; cpu <= last; cpu++) {
			if (o->n_cpus == NET_CPUS_MAX)
				return complain("pin", "names too many CPUs", value);
			o->cpu[o->n_cpus++] = (uint16_t)cpu;
		}
	}
	return 0;
}

static const struct {
	const char *name;
	unsigned bits, needs; /* off when one that it needs is off */
} offload_names[] = {
	{ "csum", TUN_F_CSUM, 0 },          { "tso4", TUN_F_TSO4, TUN_F_CSUM },
	{ "tso6", TUN_F_TSO6, TUN_F_CSUM }, { "ecn", TUN_F_TSO_ECN, TUN_F_CSUM },
	{ "ufo", TUN_F_UFO, TUN_F_CSUM },   { "uso", TAP_USO, TUN_F_CSUM },
	{ "mrg", NET_OPT_MRG, 0 },          { "indirect", NET_OPT_INDIRECT, 0 },
	{ "event_idx", NET_OPT_EVENT, 0 },
};

static bool offload_find(const char *name, unsigned *bits)
{
	for (unsigned i = 0; i < ARRAY_SIZE(offload_names); i++) {
		if (strcmp(offload_names[i].name, name) == 0) {
			*bits = offload_names[i].bits;
			return true;
		}
	}
	return false;
}

#define RING_BITS   (NET_OPT_INDIRECT | NET_OPT_EVENT)
#define OFFLOAD_ALL (TAP_OFFLOADS_ALL | NET_OPT_MRG | RING_BITS)

/* Words apply from the left; a list that begins with a plain name begins with nothing. */
static int parse_offload(void *ctx, const char *value)
{
	struct net_opts *o = ctx;
	char copy[256], *list = copy, *word;
	unsigned bits;

	if (!copy_text(copy, sizeof(copy), value))
		return complain("offload", "is too long", value);
	o->offload = *value == '-' ? OFFLOAD_ALL : RING_BITS;
	while ((word = next_word(&list))) {
		if (strcmp(word, "all") == 0)
			o->offload = OFFLOAD_ALL;
		else if (strcmp(word, "none") == 0)
			o->offload &= RING_BITS;
		else if (*word == '-' && offload_find(word + 1, &bits))
			o->offload &= ~bits;
		else if (offload_find(word, &bits))
			o->offload |= bits;
		else
			return complain("offload",
					"takes all, none, csum, tso4, tso6, ecn, ufo, uso, mrg, "
					"indirect, event_idx, or -NAME, with colons between",
					value);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(offload_names); i++)
		if ((o->offload & offload_names[i].needs) != offload_names[i].needs)
			o->offload &= ~offload_names[i].bits;
	if (!(o->offload & (TUN_F_TSO4 | TUN_F_TSO6)))
		o->offload &= ~(unsigned)TUN_F_TSO_ECN;
	o->has_offload = true;
	return 0;
}

/* An address of either family; its number of bits, 0 when it is none. */
static unsigned address_bits(const char *text)
{
	struct in6_addr a;

	if (inet_pton(AF_INET, text, &a) == 1)
		return 32;
	return inet_pton(AF_INET6, text, &a) == 1 ? 128 : 0;
}

static int parse_ip(void *ctx, const char *value)
{
	struct net_opts *o = ctx;
	const char *slash = strchr(value, '/'), *p = slash ? slash + 1 : "";
	unsigned bits = 0, len = 0;
	char address[64];

	if (slash && strlen(value) < sizeof(address)) {
		snprintf(address, sizeof(address), "%.*s", (int)(slash - value), value);
		bits = address_bits(address);
	}
	if (bits == 0 || !number(&p, bits, &len) || *p || len == 0)
		return complain("ip", "takes ADDRESS/LENGTH, 192.0.2.2/24", value);
	memcpy(o->guest.ip, value, strlen(value) + 1);
	return 0;
}

static int parse_address(char *to, size_t size, const char *key, const char *value)
{
	if (address_bits(value) == 0 || !copy_text(to, size, value))
		return complain(key, "takes an IP address", value);
	return 0;
}

static int parse_gw(void *ctx, const char *value)
{
	struct net_opts *o = ctx;

	return parse_address(o->guest.gw, sizeof(o->guest.gw), "gw", value);
}

static int parse_dns(void *ctx, const char *value)
{
	struct net_opts *o = ctx;

	return parse_address(o->guest.dns, sizeof(o->guest.dns), "dns", value);
}

/* --- together --------------------------------------------------------------------------------- */

static int check(const struct net_opts *o)
{
	if (!o->tap == !o->n_fds) {
		log_error(o->tap ? "--net takes tap=NAME or fds=A:B:..., not both"
				 : "--net needs tap=NAME or fds=A:B:...");
		return -EINVAL;
	}
	if (o->n_fds && o->queues && o->queues != o->n_fds) {
		log_error("--net: queues=%u, but fds= names %u descriptors (one each)", o->queues,
			  o->n_fds);
		return -EINVAL;
	}
	if (o->ring & (o->ring - 1)) {
		log_error("--net: ring must be a power of two: %u", o->ring);
		return -EINVAL;
	}
	if (!*o->guest.ip && (*o->guest.gw || *o->guest.dns)) {
		log_error("--net: %s= needs ip=", *o->guest.gw ? "gw" : "dns");
		return -EINVAL;
	}
	if (*o->guest.gw && !strchr(o->guest.gw, ':') != !strchr(o->guest.ip, ':')) {
		log_error("--net: gw and ip are not of one family: %s, %s", o->guest.gw,
			  o->guest.ip);
		return -EINVAL;
	}
	return 0;
}

int net_opts_parse(char *spec, struct net_opts *o)
{
	const struct opt table[] = {
		{ .name = "tap", .kind = OPT_STRING, .dst = &o->tap },
		{ .name = "fds", .kind = OPT_CALL, .dst = o, .fn = parse_fds },
		{ .name = "queues", .kind = OPT_UINT, .dst = &o->queues,
		  .min = 1, .max = TAP_QUEUES_MAX },
		{ .name = "mac", .kind = OPT_CALL, .dst = o, .fn = parse_mac },
		{ .name = "mtu", .kind = OPT_UINT, .dst = &o->mtu, .min = MTU_MIN, .max = MTU_MAX },
		{ .name = "ring", .kind = OPT_UINT, .dst = &o->ring,
		  .min = RING_MIN, .max = VIRTQ_SIZE_MAX },
		{ .name = "iothreads", .kind = OPT_UINT, .dst = &o->iothreads,
		  .min = 1, .max = THREADS_MAX },
		{ .name = "split", .kind = OPT_FLAG, .dst = &o->split },
		{ .name = "pin", .kind = OPT_CALL, .dst = o, .fn = parse_pin },
		{ .name = "offload", .kind = OPT_CALL, .dst = o, .fn = parse_offload },
		{ .name = "ip", .kind = OPT_CALL, .dst = o, .fn = parse_ip },
		{ .name = "gw", .kind = OPT_CALL, .dst = o, .fn = parse_gw },
		{ .name = "dns", .kind = OPT_CALL, .dst = o, .fn = parse_dns },
		{ 0 },
	};
	int err;

	*o = (struct net_opts){ .ring = RING_DEFAULT, .offload = OFFLOAD_ALL };
	err = opt_parse_list(table, "--net", spec);
	return err ? err : check(o);
}

int net_guest_of(const char *spec, struct net_guest *g)
{
	struct net_opts *o = malloc(sizeof(*o));
	char *copy = strdup(spec);
	int err = o && copy ? net_opts_parse(copy, o) : -ENOMEM;

	if (!err)
		*g = o->guest;
	free(copy);
	free(o);
	return err;
}
