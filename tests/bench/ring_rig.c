/* The device of bench-ring, its tap, frames and rings: see ring_rig.h. */
#include "tests/bench/ring_internal.h"

#include "tests/unit/netns.h"

#include <netinet/ip.h>
#include <netinet/tcp.h>

#define FRONT      (ETH_HLEN + 20 + 20)
#define MSS        1448
#define PORTS      60000
#define SEND_BATCH 64
#define TAP_QUEUE  8192 /* frames the tap keeps for a reader */
#define RAM_LEN    (96ul << 20)
#define MAC        "02:00:00:00:00:01"

static const uint8_t mac_guest[ETH_ALEN] = { 2, 0, 0, 0, 0, 1 };

struct rig rig;
struct lane lane[BENCH_QUEUES_MAX];
struct hold hold[BENCH_QUEUES_MAX];
const struct frame_kind *kind;
unsigned n_pieces, n_buffers;

static int producer; /* a packet socket, only to send */
static struct frame wire;

/* --- the assertions of the unit tests' fake guest, without a test around them ------------------ */

void _mark_point(const char *file, int line)
{
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
	fprintf(stderr, "bench-ring: %s:%d: %s\n", file, line, expr ? expr : "cannot go on");
	exit(1);
}

/* --- frames ----------------------------------------------------------------------------------- */

static bool is_large(void)
{
	return kind->len > ETH_HLEN + 1500;
}

/* TCP to the guest's address, which the host's own stack does not take. */
static void make_wire(void)
{
	struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP };
	struct tcphdr tcp = { .dest = htons(9), .doff = 5, .ack = 1 };

	frame_make(&wire, kind->len, 1);
	memcpy(wire.data, mac_guest, ETH_ALEN);
	wire.data[12] = ETH_P_IP >> 8;
	wire.data[13] = ETH_P_IP & 0xff;
	ip.tot_len = htons((uint16_t)(kind->len - ETH_HLEN));
	inet_pton(AF_INET, "192.0.2.1", &ip.saddr);
	inet_pton(AF_INET, "192.0.2.2", &ip.daddr);
	memcpy(wire.data + ETH_HLEN, &ip, sizeof(ip));
	memcpy(wire.data + ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp));
	if (is_large())
		wire.hdr = (struct virtio_net_hdr_v1){
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
			.gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
			.hdr_len = FRONT,
			.gso_size = MSS,
			.csum_start = ETH_HLEN + sizeof(ip),
			.csum_offset = offsetof(struct tcphdr, check),
		};
}

static void set_port(uint16_t port)
{
	const uint16_t p = htons(port);

	memcpy(wire.data + ETH_HLEN + sizeof(struct iphdr), &p, sizeof(p));
}

/* --- the host's side -------------------------------------------------------------------------- */

static void open_producer(void)
{
	struct sockaddr_ll a = { .sll_family = AF_PACKET };
	const int on = 1, room = 1 << 28;

	a.sll_ifindex = (int)if_nametoindex(rig.net->tap.name);
	producer = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	need(producer >= 0 && bind(producer, (struct sockaddr *)&a, sizeof(a)) == 0, "AF_PACKET");
	need(!setsockopt(producer, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) &&
		     !setsockopt(producer, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) &&
		     !setsockopt(producer, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)),
	     "packet socket");
}

static void set_tap_queue(void)
{
	struct ifreq r = { .ifr_qlen = TAP_QUEUE };

	strcpy(r.ifr_name, rig.net->tap.name);
	need(netns_ioctl(SIOCSIFTXQLEN, &r) == 0, "txqueuelen");
}

void fill_tap(unsigned pair, unsigned frames)
{
	/* The socket's header is that of virtio 0.9, two bytes less. */
	struct iovec v[2] = {
		{ &wire.hdr, sizeof(struct virtio_net_hdr) },
		{ wire.data, kind->len },
	};
	struct mmsghdr m[SEND_BATCH] = { 0 };

	set_port(lane[pair].port);
	for (unsigned i = 0; i < SEND_BATCH; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = v, .msg_iovlen = 2 };
	while (frames > 0) {
		int n = sendmmsg(producer, m, MIN(frames, SEND_BATCH), 0);

		need(n > 0, "send to the tap");
		frames -= (unsigned)n;
	}
}

/* --- holding the device's threads ------------------------------------------------------------- */

static int hold_here(void *arg)
{
	struct hold *h = arg;
	char byte;

	sem_post(&h->held);
	need(read(h->gate[0], &byte, 1) == 1, "gate");
	h->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	h->wall_ns = clock_ns(CLOCK_MONOTONIC);
	return 0;
}

/* iothread_call in two halves. */
void hold_all(void)
{
	for (unsigned i = 0; i < rig.pairs; i++) {
		struct iothread *t = &rig.d->thread[i];

		t->fn = hold_here;
		t->arg = &hold[i];
		irq_signal(t->mail.fd);
		sem_wait(&hold[i].held);
	}
}

void let_go(void)
{
	for (unsigned i = 0; i < rig.pairs; i++)
		need(write(hold[i].gate[1], "", 1) == 1, "gate");
	for (unsigned i = 0; i < rig.pairs; i++)
		sem_wait(&rig.d->thread[i].done);
}

/* The tap chooses a queue by a hash of addresses and ports: find a port for each. */
static void find_ports(void)
{
	unsigned found = 0;
	char buf[256];

	hold_all();
	for (unsigned i = 0; i < rig.pairs; i++)
		lane[i].port = 0;
	for (unsigned p = 1; p < PORTS && found < rig.pairs; p++) {
		struct lane first = lane[0];

		lane[0].port = (uint16_t)p;
		fill_tap(0, 1);
		lane[0].port = first.port;
		for (unsigned i = 0; i < rig.pairs; i++) {
			if (read(lane[i].fd, buf, sizeof(buf)) <= 0 || lane[i].port)
				continue;
			lane[i].port = (uint16_t)p;
			found++;
		}
	}
	let_go();
	errno = 0;
	need(found == rig.pairs, "no frames come to some queue");
}

/* --- rings and buffers ------------------------------------------------------------------------ */

static struct iovec host_segment(uint64_t gpa, uint32_t len)
{
	return (struct iovec){ mem_at(&rig.g.mem, gpa, len), len };
}

/*
 * A small frame lies in one piece behind its header, as Linux guests do it; a large one in pages,
 * but for its protocol headers.
 */
static unsigned cut_frame(uint64_t gpa, struct seg *s)
{
	uint32_t end = HDR + kind->len, at = is_large() ? HDR + FRONT : end;
	unsigned n = 1;

	s[0] = (struct seg){ gpa, at, false };
	for (; at < end; at += s[n++].len)
		s[n] = (struct seg){ gpa + at, MIN(kind->piece, end - at), false };
	return n;
}

/* Entry i of a ring: in the table and in line, not yet on offer.  It stays for all samples. */
static void set_entry(struct ring *r, unsigned i, uint64_t gpa, uint32_t len, uint16_t flags)
{
	r->desc[i] = (struct vring_desc){ .addr = gpa, .len = len, .flags = flags };
	r->avail->ring[i] = (uint16_t)i;
}

/* The n segments as the bare loop writes them, behind a header of its own. */
static void set_bare(struct lane *l, struct iovec *v, const struct seg *s, unsigned n)
{
	v[0] = (struct iovec){ &l->hdr, HDR };
	v[1] = host_segment(s[0].gpa + HDR, s[0].len - HDR);
	for (unsigned k = 1; k < n; k++)
		v[k + 1] = host_segment(s[k].gpa, s[k].len);
}

static void lay_out_tx(unsigned q)
{
	static const uint16_t in_order[PIECES_MAX] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
						       10, 11, 12, 13, 14, 15, 16, 17, 18, 19 };
	struct ring *r = &rig.ring[TX(q)];
	struct lane *l = &lane[q];
	uint64_t gpa[TX_BUFFERS], table[TX_BUFFERS];
	struct seg s[PIECES_MAX];

	set_port(l->port);
	l->hdr = wire.hdr;
	for (unsigned i = 0; i < TX_BUFFERS; i++) {
		gpa[i] = rig_alloc(&rig, HDR + kind->len);
		table[i] = rig_alloc(&rig, sizeof(struct vring_desc) * PIECES_MAX);
		memcpy(guest_at(&rig.g, gpa[i]), &wire, HDR + kind->len);
		n_pieces = cut_frame(gpa[i], s);
		ring_fill(guest_at(&rig.g, table[i]), in_order, s, n_pieces);
		set_bare(l, l->tx[i], s, n_pieces);
	}
	for (unsigned i = 0; i < RING; i++)
		if (n_pieces == 1)
			set_entry(r, i, gpa[i % TX_BUFFERS], s[0].len, 0);
		else
			set_entry(r, i, table[i % TX_BUFFERS],
				  (uint32_t)sizeof(struct vring_desc) * n_pieces,
				  VRING_DESC_F_INDIRECT);
}

static void lay_out_rx(unsigned q)
{
	for (unsigned i = 0; i < RING; i++) {
		uint64_t gpa = rig_alloc(&rig, kind->piece);

		lane[q].rx[i] = host_segment(gpa, kind->piece);
		set_entry(&rig.ring[RX(q)], i, gpa, kind->piece, VRING_DESC_F_WRITE);
	}
}

void offer(unsigned queue, unsigned n)
{
	struct ring *r = &rig.ring[queue];

	r->avail_idx += (uint16_t)n;
	ring_show(r);
	rig_kick(&rig, queue);
}

void rig_set_frames(const struct frame_kind *k)
{
	kind = k;
	rig_stop(&rig);
	rig_start(&rig, ~0ULL);
	if (rig.pairs > 1)
		need(ctrl_pairs(&rig, (uint16_t)rig.pairs) == 0, "queue pairs");
	need(ctrl_mode(&rig, VIRTIO_NET_CTRL_RX_PROMISC, 0) == 0, "receive mode");
	make_wire();
	n_buffers = (HDR + kind->len + kind->piece - 1) / kind->piece;
	find_ports();
	for (unsigned i = 0; i < rig.pairs; i++) {
		lay_out_tx(i);
		lay_out_rx(i);
		offer(RX(i), RING);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

static void no_ipv6(void)
{
	FILE *f = fopen("/proc/sys/net/ipv6/conf/default/disable_ipv6", "we");

	/* No router solicitations and the like between our frames. */
	if (!f)
		return;
	fputs("1", f);
	fclose(f);
}

/* RAM as heddle makes it, large pages and all; the unit tests' is made of small ones. */
static void make_guest(void)
{
	const struct mem_region ram = { .gpa = 0, .len = RAM_LEN };

	rig.g = (struct guest){ .memfd = -1, .len = RAM_LEN, .next_gpa = GUEST_PAGE };
	need(mem_create(&rig.g.mem, &ram, 1) == 0, "guest RAM");
	rig.g.ram = rig.g.mem.map;
}

void rig_open(unsigned queues)
{
	char spec[128];

	allocations_mine();
	need(netns_enter(), "network namespace");
	no_ipv6();
	make_guest();
	snprintf(spec, sizeof(spec), "tap=bench,queues=%u,ring=%u,mac=" MAC, queues, RING);
	need(rig_launch(&rig, spec, queues, RING) == 0, "network device");
	set_tap_queue();
	open_producer();
	for (unsigned i = 0; i < rig.pairs; i++) {
		lane[i].fd = rig.net->tap.fd[i];
		sem_init(&hold[i].held, 0, 0);
		need(pipe2(hold[i].gate, O_CLOEXEC) == 0, "pipe");
	}
}

void rig_close(void)
{
	for (unsigned i = 0; i < rig.pairs; i++) {
		close(hold[i].gate[0]);
		close(hold[i].gate[1]);
	}
	close(producer);
	rig_stop(&rig);
	rig.g.mem.n = 0; /* guest_destroy is to unmap one range, not one for each region */
	rig_destroy(&rig);
}
