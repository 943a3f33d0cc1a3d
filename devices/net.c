/*
 * virtio-net: from the options to a device, and its life: see net.h and virtio 1.2, "Network
 * Device".
 *
 * Queues of pair i are 2i (RX) and 2i + 1 (TX); the control queue is the last, except for a driver
 * that has not taken VIRTIO_NET_F_MQ: to it the device has one pair, and queue 2 is the control
 * queue.  So who a queue is, and on which thread it runs, is settled at each start, while all are
 * parked.
 *
 * Threads: one for each pair ("net0-q0"); with split one for each queue ("net0-rx0", "net0-tx0");
 * with iothreads=N the pairs or queues go to N threads in turn ("net0-io0").  The control queue
 * always has a thread of its own: it waits for the others, and they never for it.
 *
 * A guest without MQ, and any until it says VQ_PAIRS_SET, has all its traffic on pair 0: the tap
 * has one queue attached.  Which pair a flow comes in on later is the kernel's choice: it remembers
 * from which queue it last saw the flow come out.
 */
#include "devices/net.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_ring.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/net_internal.h"
#include "vmm/base.h"
#include "vmm/log.h"

#define PCI_CLASS_NET 0x020000 /* Ethernet controller */
#define MTU_DEFAULT   1500

enum role { ROLE_NONE, ROLE_RX, ROLE_TX, ROLE_CTRL };

static struct net *net_of(struct virtio_dev *d)
{
	return container_of(d, struct net, dev);
}

/* --- queues, on their threads ----------------------------------------------------------------- */

static enum role role_of(const struct net *net, unsigned index)
{
	if (net->ctrl_index > 0 && index == net->ctrl_index)
		return ROLE_CTRL;
	if (index >= 2 * net->run_pairs)
		return ROLE_NONE;
	return index % 2 ? ROLE_TX : ROLE_RX;
}

static int net_queue_begin(struct virtio_queue *q)
{
	struct net *net = net_of(q->dev);

	switch (role_of(net, q->index)) {
	case ROLE_RX:
		return net_rx_begin(&net->rx[q->index / 2]);
	case ROLE_TX:
		net_tx_begin(&net->tx[q->index / 2]);
		break;
	case ROLE_CTRL:
	case ROLE_NONE:
		break;
	}
	return 0;
}

static void net_queue_kick(struct virtio_queue *q)
{
	struct net *net = net_of(q->dev);

	switch (role_of(net, q->index)) {
	case ROLE_RX:
		net_rx_pass(&net->rx[q->index / 2]);
		break;
	case ROLE_TX:
		net_tx_pass(&net->tx[q->index / 2]);
		break;
	case ROLE_CTRL:
		net_ctrl_pass(net, q);
		break;
	case ROLE_NONE:
		break;
	}
}

static void net_queue_end(struct virtio_queue *q)
{
	struct net *net = net_of(q->dev);

	switch (role_of(net, q->index)) {
	case ROLE_RX:
		net_rx_end(&net->rx[q->index / 2]);
		break;
	case ROLE_TX:
		net_tx_end(&net->tx[q->index / 2]);
		break;
	case ROLE_CTRL:
	case ROLE_NONE:
		break;
	}
}

/* --- the run, on a vCPU thread, all queues parked --------------------------------------------- */

static int net_start(struct virtio_dev *d)
{
	struct net *net = net_of(d);
	bool mq = virtio_has(d, VIRTIO_NET_F_MQ), ctrl = virtio_has(d, VIRTIO_NET_F_CTRL_VQ);

	net->run_pairs = mq ? net->n_pairs : 1;
	net->ctrl_index = ctrl ? 2 * net->run_pairs : 0;
	d->queue[2].thread =
		net->ctrl_index == 2 ? net->ctrl_thread : &d->thread[net->thread_of[2]];
	return iothread_call(net->ctrl_thread, net_ctrl_start, net);
}

static void net_stop(struct virtio_dev *d)
{
	(void)iothread_call(net_of(d)->ctrl_thread, net_ctrl_stop, net_of(d));
}

static int net_queue_stats(const struct virtio_queue *q, char *buf, size_t size)
{
	const struct net *net = container_of(q->dev, const struct net, dev);
	const struct net_stats *s;

	if (q->index >= 2 * net->n_pairs)
		return 0;
	s = q->index % 2 ? &net->tx[q->index / 2].stats : &net->rx[q->index / 2].stats;
	return snprintf(buf, size,
			",\"frames\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"stalls\":%" PRIu64
			",\"dropped\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"filtered\":%" PRIu64,
			stat_read(&s->frames), stat_read(&s->bytes), stat_read(&s->stalls),
			stat_read(&s->dropped), stat_read(&s->bad), stat_read(&s->filtered));
}

static void net_destroy(struct virtio_dev *d)
{
	struct net *net = net_of(d);

	for (unsigned i = 0; i < net->n_pairs; i++) {
		if (net->rx)
			net_rx_destroy(&net->rx[i]);
		if (net->tx)
			net_tx_destroy(&net->tx[i]);
	}
	net_link_destroy(net);
	tap_close(&net->tap);
	free(net->rx);
	free(net->tx);
	free(net->ctrl_iov);
	free(net->thread_of);
	free(d->queue);
	free(d->thread);
	free(net);
}

static const struct virtio_class net_class = {
	.name = "net",
	.id = VIRTIO_ID_NET,
	.pci_class = PCI_CLASS_NET,
	.start = net_start,
	.queue_begin = net_queue_begin,
	.queue_kick = net_queue_kick,
	.queue_end = net_queue_end,
	.stop = net_stop,
	.queue_stats = net_queue_stats,
	.destroy = net_destroy,
};

/* --- threads ---------------------------------------------------------------------------------- */

static int pin_thread(const struct net *net, const struct iothread *t, unsigned i)
{
	unsigned cpu = net->cpu[i % net->n_cpus];
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) == 0)
		return 0;
	log_error("--net: %s cannot run on host CPU %u (pin=): %s", t->name, cpu, strerror(errno));
	return -EINVAL;
}

/* On each new thread, before it parks. */
static int net_thread_start(struct iothread *t)
{
	struct net *net = net_of(t->ctx);

	if (t == net->ctrl_thread)
		return net_link_watch(net);
	return net->n_cpus ? pin_thread(net, t, (unsigned)(t - net->dev.thread)) : 0;
}

static void name_thread(struct iothread *t, const char *dev, const char *kind, unsigned i)
{
	snprintf(t->name, sizeof(t->name), "%.8s-%s%u", dev, kind, (uint8_t)i);
}

/* The data threads, and which queue goes to which; the control thread is the last. */
static int init_threads(struct net *net, const struct net_opts *o)
{
	struct virtio_dev *d = &net->dev;
	unsigned lanes = net->n_pairs * (o->split ? 2 : 1);
	unsigned n = o->iothreads ? MIN(o->iothreads, lanes) : lanes;

	d->n_threads = n + 1;
	d->thread = calloc(d->n_threads, sizeof(*d->thread));
	net->thread_of = calloc(d->n_queues, sizeof(*net->thread_of));
	if (!d->thread || !net->thread_of)
		return -ENOMEM;
	net->ctrl_thread = &d->thread[n];
	snprintf(net->ctrl_thread->name, IOTHREAD_NAME_MAX, "%.8s-ctrl", d->name);
	for (unsigned i = 0; i < d->n_queues; i++)
		net->thread_of[i] = (uint16_t)((o->split ? i : i / 2) % n);
	net->thread_of[d->n_queues - 1] = (uint16_t)n;
	for (unsigned i = 0; i < n; i++) {
		if (n < lanes)
			name_thread(&d->thread[i], d->name, "io", i);
		else if (o->split)
			name_thread(&d->thread[i], d->name, i % 2 ? "tx" : "rx", i / 2);
		else
			name_thread(&d->thread[i], d->name, "q", i);
	}
	return 0;
}

/* --- creation, on main ------------------------------------------------------------------------ */

static void init_queue(struct net *net, unsigned i, uint16_t ring)
{
	struct virtio_queue *q = &net->dev.queue[i];

	q->dev = &net->dev;
	q->index = i;
	q->size_max = ring;
	q->thread = &net->dev.thread[net->thread_of[i]];
	q->kick_fd = -1;
	if (i == 2 * net->n_pairs)
		snprintf(q->name, sizeof(q->name), "%.8s-ctrl", net->dev.name);
	else
		snprintf(q->name, sizeof(q->name), "%.8s-%s%u", net->dev.name, i % 2 ? "tx" : "rx",
			 (uint8_t)(i / 2));
}

/* Of whole cache lines, zeroed. */
static void *alloc_lines(size_t n, size_t size)
{
	void *p = aligned_alloc(CACHE_LINE, n * size);

	if (p)
		memset(p, 0, n * size);
	return p;
}

static int init_queues(struct net *net, const struct net_opts *o)
{
	struct virtio_dev *d = &net->dev;
	int err;

	d->n_queues = 2 * net->n_pairs + 1;
	d->queue = calloc(d->n_queues, sizeof(*d->queue));
	net->rx = alloc_lines(net->n_pairs, sizeof(*net->rx));
	net->tx = alloc_lines(net->n_pairs, sizeof(*net->tx));
	net->ctrl_iov = calloc(VIRTQ_IOV_MAX, sizeof(*net->ctrl_iov));
	if (!d->queue || !net->rx || !net->tx || !net->ctrl_iov)
		return -ENOMEM;
	err = init_threads(net, o);
	if (!err)
		err = net_link_init(net);
	for (unsigned i = 0; i < d->n_queues && !err; i++)
		init_queue(net, i, (uint16_t)o->ring);
	for (unsigned i = 0; i < net->n_pairs && !err; i++) {
		err = net_rx_init(&net->rx[i], net, i);
		if (!err)
			err = net_tx_init(&net->tx[i], net, i);
	}
	return err;
}

/* Only what is there: what this tap, on this kernel, can do, less what was switched off. */
static uint64_t offered_features(const struct net *net, const struct net_opts *o)
{
	static const uint8_t always[] = {
		VIRTIO_NET_F_MAC,           VIRTIO_NET_F_STATUS,         VIRTIO_NET_F_CTRL_VQ,
		VIRTIO_NET_F_CTRL_RX,       VIRTIO_NET_F_CTRL_RX_EXTRA,  VIRTIO_NET_F_CTRL_VLAN,
		VIRTIO_NET_F_CTRL_MAC_ADDR, VIRTIO_NET_F_GUEST_ANNOUNCE,
	};
	unsigned offloads = net->tap.offloads & o->offload;
	uint64_t f;

	/* What a socket's other end can do only its owner knows. */
	if (!net->tap.kernel && o->has_offload)
		offloads = o->offload & TAP_OFFLOADS_ALL;
	f = net_features_rx(offloads) | net_features_tx(offloads);
	for (unsigned i = 0; i < ARRAY_SIZE(always); i++)
		f |= 1ULL << always[i];
	if (offloads)
		f |= 1ULL << VIRTIO_NET_F_CTRL_GUEST_OFFLOADS;
	if (net->n_pairs > 1)
		f |= 1ULL << VIRTIO_NET_F_MQ;
	if (net->config.mtu)
		f |= 1ULL << VIRTIO_NET_F_MTU;
	if (o->offload & NET_OPT_MRG)
		f |= 1ULL << VIRTIO_NET_F_MRG_RXBUF;
	if (o->offload & NET_OPT_INDIRECT)
		f |= 1ULL << VIRTIO_RING_F_INDIRECT_DESC;
	if (o->offload & NET_OPT_EVENT)
		f |= 1ULL << VIRTIO_RING_F_EVENT_IDX;
	return f;
}

/* FNV-1a */
static uint64_t hash_add(uint64_t h, const void *data, size_t len)
{
	for (const uint8_t *p = data; len > 0; p++, len--)
		h = (h ^ *p) * 0x100000001b3;
	return h;
}

static uint64_t hash_add_file_id(uint64_t h, const struct stat *st)
{
	h = hash_add(h, &st->st_dev, sizeof(st->st_dev));
	return hash_add(h, &st->st_ino, sizeof(st->st_ino));
}

/* A network namespace that is not the host's first: that one has another number with each kernel. */
static bool own_namespace(struct stat *st)
{
	struct stat first;

	return stat("/proc/self/ns/net", st) == 0 &&
	       (stat("/proc/1/ns/net", &first) || first.st_ino != st->st_ino);
}

/*
 * The same for the same tap in the same network namespace of the same host, so that a guest is known
 * again by what looks at addresses; whatever may meet it on a network must come to another.  A socket
 * differs from the one at the other end of its cable.
 */
static void make_mac(uint8_t mac[ETH_ALEN], const struct tap *tap, const char *dev)
{
	uint64_t h = 0xcbf29ce484222325;
	struct stat st;
	char text[64];
	ssize_t len;
	int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd >= 0) {
		len = read(fd, text, sizeof(text));
		h = hash_add(h, text, len > 0 ? (size_t)len : 0);
		close(fd);
	}
	if (gethostname(text, sizeof(text)) == 0)
		h = hash_add(h, text, strnlen(text, sizeof(text)));
	if (tap->kernel ? own_namespace(&st) : fstat(tap->fd[0], &st) == 0)
		h = hash_add_file_id(h, &st);
	h = hash_add(h, tap->name, strlen(tap->name) + 1);
	h = hash_add(h, dev, strlen(dev));
	memcpy(mac, &h, ETH_ALEN);
	mac[0] = (uint8_t)((mac[0] & 0xfc) | 2); /* a station's, locally administered */
}

static void init_config(struct net *net, const struct net_opts *o)
{
	unsigned tap = tap_mtu(&net->tap), mtu = o->mtu;

	if (!mtu && tap != MTU_DEFAULT)
		mtu = tap;
	if (tap && mtu > tap)
		log_warn("--net: mtu=%u, but tap %s sends at most %u (sudo ip link set %s mtu %u)",
			 mtu, net->tap.name, tap, net->tap.name, mtu);
	if (o->has_mac)
		memcpy(net->mac, o->mac, ETH_ALEN);
	else
		make_mac(net->mac, &net->tap, net->dev.name);
	memcpy(net->config.mac, net->mac, ETH_ALEN);
	net->config.mtu = (uint16_t)mtu;
	net->config.max_virtqueue_pairs = (uint16_t)net->n_pairs;
	net->dev.config = &net->config;
	net->dev.config_len = offsetof(struct virtio_net_config, mtu) + sizeof(net->config.mtu);
	memcpy(net->cpu, o->cpu, sizeof(net->cpu));
	net->n_cpus = o->n_cpus;
}

/* One CPU that cannot be had is told here and in one line, not by each thread. */
static int check_cpus(const struct net_opts *o)
{
	cpu_set_t before, set;
	int err = 0;

	if (o->n_cpus == 0 || sched_getaffinity(0, sizeof(before), &before))
		return 0;
	for (unsigned i = 0; i < o->n_cpus && !err; i++) {
		CPU_ZERO(&set);
		CPU_SET(o->cpu[i], &set);
		err = sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
		if (err)
			log_error("--net: pin: host CPU %u is not to be had: %s", o->cpu[i],
				  strerror(-err));
	}
	(void)sched_setaffinity(0, sizeof(before), &before);
	return err;
}

static int open_tap(struct tap *t, const struct net_opts *o, unsigned n_vcpus)
{
	unsigned queues = o->queues ? o->queues : MIN(n_vcpus, TAP_QUEUES_MAX);
	int err;

	if (o->n_fds)
		return tap_adopt(t, o->fd, o->n_fds);
	err = tap_open(t, o->tap, queues, o->queues > 0);
	if (!err && t->n < queues)
		log_warn("--net: tap %s has a single queue (no IFF_MULTI_QUEUE), so the guest has "
			 "one pair",
			 t->name);
	if (!err)
		err = tap_bring_up(t, o->mtu);
	if (err)
		tap_close(t);
	return err;
}

static int make_net(const struct net_opts *o, const struct device_env *env, struct tap *tap,
		    struct virtio_dev **out)
{
	struct net *net = calloc(1, sizeof(*net));
	int err;

	if (!net) {
		tap_close(tap);
		return -ENOMEM;
	}
	net->tap = *tap;
	net->n_pairs = tap->n;
	net->dev.class = &net_class;
	net->dev.mem = env->mem;
	snprintf(net->dev.name, sizeof(net->dev.name), "%.11s", env->name);
	init_config(net, o);
	net->dev.features = offered_features(net, o);
	err = init_queues(net, o);
	if (err)
		net_destroy(&net->dev);
	else
		*out = &net->dev;
	return err;
}

int net_create(char *spec, const struct device_env *env, struct device *out)
{
	struct net_opts o;
	struct tap tap;
	int err = net_opts_parse(spec, &o);

	if (!err)
		err = check_cpus(&o);
	if (!err)
		err = open_tap(&tap, &o, env->n_vcpus);
	if (err)
		return err;
	*out = (struct device){ .thread_start = net_thread_start };
	if (tap.kernel)
		snprintf(out->id, sizeof(out->id), "tap %s", tap.name);
	else
		snprintf(out->id, sizeof(out->id), "descriptor %d", tap.fd[0]);
	err = make_net(&o, env, &tap, &out->dev);
	if (err)
		log_error("--net: no memory or descriptors for %s: %s", env->name, strerror(-err));
	return err;
}
