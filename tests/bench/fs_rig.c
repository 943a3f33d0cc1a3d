/* The device of bench-fs, its rings, and the fake guest's loop: see fs_rig.h. */
#include "tests/bench/fs_internal.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "devices/share.h"
#include "vmm/irq.h"

#define RING       1024 /* the device's default */
#define BODY       64   /* of the page of a header: where the body is */
#define SEGS_MAX   140
#define DATA_SMALL 4096u

struct fs_lane fs_lane[FS_QUEUES_MAX];
unsigned n_lanes, n_depth;

static struct guest guest;
static struct device device;
static struct virtio_dev *dev;
static bool few_interrupts;
static uint64_t unique;

/* --- requests --------------------------------------------------------------------------------- */

void *request(struct slot *s, uint32_t opcode, uint64_t node)
{
	const struct fuse_in_header h = {
		.opcode = opcode,
		.nodeid = node,
		.unique = unique += 2,
		.pid = 1,
	};

	memset(s->head, 0, 4096);
	memcpy(s->head, &h, sizeof(h));
	return s->head + BODY;
}

static unsigned cut_pages(struct seg *to, uint64_t gpa, uint32_t len, bool in)
{
	unsigned n = 0;

	for (uint32_t at = 0; at < len; at += to[n++].len)
		to[n] = (struct seg){ gpa + at, MIN(4096u, len - at), in };
	return n;
}

void request_cut(struct slot *s, uint32_t in_len, uint32_t in_data, uint32_t out_len,
		 uint32_t out_data)
{
	struct fuse_in_header *h = (struct fuse_in_header *)(void *)s->head;
	struct ring *r = &fs_lane[s->index / FS_DEPTH_MAX].ring;
	uint16_t at[SEGS_MAX];
	struct seg seg[SEGS_MAX];
	bool answered = h->opcode != FUSE_FORGET && h->opcode != FUSE_BATCH_FORGET;
	unsigned n = 0;

	h->len = (uint32_t)sizeof(*h) + in_len + in_data;
	seg[n++] = (struct seg){ s->head_gpa, sizeof(*h), false };
	if (in_len)
		seg[n++] = (struct seg){ s->head_gpa + BODY, in_len, false };
	n += cut_pages(seg + n, s->data_gpa, in_data, false);
	if (answered)
		seg[n++] = (struct seg){ s->reply_gpa, sizeof(struct fuse_out_header), true };
	if (out_len)
		seg[n++] = (struct seg){ s->reply_gpa + BODY, out_len, true };
	n += cut_pages(seg + n, s->data_gpa, out_data, true);
	for (unsigned i = 0; i < n; i++)
		at[i] = (uint16_t)i;
	ring_fill(s->table, at, seg, n);
	r->desc[s->index % FS_DEPTH_MAX] = (struct vring_desc){
		.addr = s->table_gpa,
		.len = n * (uint32_t)sizeof(struct vring_desc),
		.flags = VRING_DESC_F_INDIRECT,
	};
}

void *reply(struct slot *s, int error, size_t len)
{
	struct fuse_out_header *h = (struct fuse_out_header *)(void *)s->reply;

	errno = -h->error;
	need(h->error == error, "a request was answered with another error than expected");
	need(s->used_len >= sizeof(*h) + len && h->len == s->used_len, "length of a reply");
	return s->reply + BODY;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void show(struct fs_lane *l)
{
	ring_show(&l->ring);
	if (ring_wants_kick(&l->ring))
		irq_signal(l->kick_fd);
}

static void begin(struct fs_lane *l, next_fn *next)
{
	for (unsigned i = 0; i < n_depth; i++) {
		struct slot *s = &l->slot[i];

		s->step = 0;
		s->laid_out = false;
		if (!next(l, s))
			continue;
		ring_offer(&l->ring, (uint16_t)i);
		l->busy++;
	}
	show(l);
}

/* Take what was used, and go on with each. */
static void take(struct fs_lane *l, next_fn *next)
{
	uint32_t head, len;

	while (ring_take(&l->ring, &head, &len)) {
		struct slot *s = &l->slot[head];

		s->used_len = len;
		if (next(l, s))
			ring_offer(&l->ring, (uint16_t)head);
		else
			l->busy--;
	}
	show(l);
}

/* Ask for an interrupt; true: what it would be for has happened. */
static bool ask(struct fs_lane *l)
{
	struct ring *r = &l->ring;
	uint16_t n = few_interrupts ? (uint16_t)MAX(l->busy / 2, 1) : 1;

	__atomic_store_n(ring_used_event(r), (uint16_t)(r->last_used + n - 1), __ATOMIC_RELAXED);
	/* Full barrier: pairs with the device's in virtq_publish. */
	__sync_synchronize();
	return (uint16_t)(__atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) - r->last_used) >= n;
}

static void serve(next_fn *next)
{
	struct pollfd p[FS_QUEUES_MAX];
	unsigned busy;
	uint64_t count;

	do {
		busy = 0;
		for (unsigned i = 0; i < n_lanes; i++) {
			struct fs_lane *l = &fs_lane[i];

			while (l->busy > 0 && ask(l))
				take(l, next);
			if (l->busy > 0)
				p[busy++] = (struct pollfd){ .fd = l->call_fd, .events = POLLIN };
		}
		need(busy == 0 || poll(p, busy, 20000) > 0, "the device stands still");
		for (unsigned i = 0; i < busy; i++)
			if (p[i].revents)
				(void)!read(p[i].fd, &count, sizeof(count));
	} while (busy > 0);
}

static uint64_t cpu_of(const struct fs_lane *l)
{
	clockid_t clock;

	need(pthread_getcpuclockid(dev->queue[l->index + 1].thread->thread, &clock) == 0, "clock");
	return clock_ns(clock);
}

struct sample run(next_fn *next, uint64_t items)
{
	struct sample s = { 0 };
	uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);

	for (unsigned i = 0; i < n_lanes; i++) {
		struct fs_lane *l = &fs_lane[i];

		s.cpu_ns -= (double)cpu_of(l);
		l->todo = items;
		l->next_item = items * i;
		l->done = 0;
		begin(l, next);
	}
	serve(next);
	s.wall_ns = (double)(clock_ns(CLOCK_MONOTONIC) - begin_ns);
	for (unsigned i = 0; i < n_lanes; i++) {
		s.cpu_ns += (double)cpu_of(&fs_lane[i]);
		s.ops += (double)fs_lane[i].done;
	}
	return s;
}

void *rig_data(unsigned queue, unsigned i)
{
	return fs_lane[queue].slot[i % n_depth].data;
}

void rig_few_interrupts(void)
{
	few_interrupts = true;
}

/* --- life ------------------------------------------------------------------------------------- */

/* RAM as heddle makes it, large pages and all; the unit tests' is made of small ones. */
static void make_guest(uint32_t data_len)
{
	const struct mem_region ram = {
		.len = ALIGN_UP((4ul << 20) + (uint64_t)n_lanes *
						      (65536 + n_depth * (data_len + 4ul * 4096)),
				2ul << 20),
	};

	guest = (struct guest){ .memfd = -1, .len = ram.len, .next_gpa = GUEST_PAGE };
	need(mem_create(&guest.mem, &ram, 1) == 0, "guest RAM");
	guest.ram = guest.mem.map;
}

/* As --fs plugs it in. */
static void make_device(const char *dir)
{
	const struct device_env env = { .name = "fs0", .mem = &guest.mem, .n_vcpus = n_lanes };
	char spec[512];

	snprintf(spec, sizeof(spec), "tag=bench,path=%s,queues=%u,ring=%u", dir, n_lanes, RING);
	need(share_create(spec, &env, &device) == 0, dir);
	dev = device.dev;
	need(virtio_dev_launch(dev, device.thread_start) == 0 && virtio_dev_launch_late(dev) == 0,
	     "I/O threads");
}

static void lay_out_slots(struct fs_lane *l, uint32_t data_len)
{
	for (unsigned i = 0; i < n_depth; i++) {
		struct slot *s = &l->slot[i];

		*s = (struct slot){ .index = l->index * FS_DEPTH_MAX + i };
		s->head_gpa = guest_alloc(&guest, 4096, 4096);
		s->reply_gpa = guest_alloc(&guest, 4096, 4096);
		s->table_gpa = guest_alloc(&guest, 4096, 4096);
		s->data_gpa = guest_alloc(&guest, data_len, 4096);
		s->head = guest_at(&guest, s->head_gpa);
		s->reply = guest_at(&guest, s->reply_gpa);
		s->table = guest_at(&guest, s->table_gpa);
		s->data = guest_at(&guest, s->data_gpa);
		memset(s->data, 1, data_len);
	}
}

/* Lane i is request queue i + 1. */
static void lay_out_lane(unsigned i, uint32_t data_len)
{
	struct virtio_queue *q = virtio_queue_settable(dev, i + 1);
	struct fs_lane *l = &fs_lane[i];

	*l = (struct fs_lane){ .index = i, .seed = i + 1 };
	ring_init(&l->ring, &guest, RING, true);
	l->call_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	need(q && l->call_fd >= 0, "queue");
	l->kick_fd = q->kick_fd;
	q->call_fd = l->call_fd;
	q->size = RING;
	q->desc_gpa = l->ring.desc_gpa;
	q->avail_gpa = l->ring.avail_gpa;
	q->used_gpa = l->ring.used_gpa;
	q->enabled = true;
	lay_out_slots(l, data_len);
}

static void start(uint32_t data_len)
{
	uint64_t features = dev->features | 1ULL << VIRTIO_F_VERSION_1;

	virtio_status_write(dev, 3);
	virtio_driver_features_write(dev, 0, (uint32_t)features);
	virtio_driver_features_write(dev, 1, (uint32_t)(features >> 32));
	virtio_status_write(dev, 11);
	for (unsigned i = 0; i < n_lanes; i++)
		lay_out_lane(i, data_len);
	virtio_status_write(dev, 15);
	need(virtio_status_read(dev) == 15, "start of the device");
}

static bool next_init(struct fs_lane *l, struct slot *s)
{
	struct fuse_init_in *in;
	struct fuse_init_out *out;

	if (s->step++ > 0) {
		out = reply(s, 0, sizeof(*out));
		need(out->max_write >= DATA_LEN, "max_write");
		return false;
	}
	if (l->index > 0 || l->todo == 0)
		return false;
	l->todo = 0;
	in = request(s, FUSE_INIT, 0);
	*in = (struct fuse_init_in){ .major = 7, .minor = 38, .max_readahead = 131072 };
	in->flags = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK |
		    FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO | FUSE_MAX_PAGES |
		    FUSE_PARALLEL_DIROPS | FUSE_AUTO_INVAL_DATA | FUSE_HANDLE_KILLPRIV_V2 |
		    FUSE_INIT_EXT;
	request_cut(s, sizeof(*in), 0, sizeof(*out), 0);
	return true;
}

void rig_open(const char *dir, unsigned queues, unsigned depth)
{
	uint32_t data_len;

	allocations_mine();
	need(queues <= FS_QUEUES_MAX && depth <= FS_DEPTH_MAX, "queues and depth");
	n_lanes = queues;
	n_depth = depth;
	data_len = queues > 4 ? DATA_SMALL : DATA_LEN;
	make_guest(data_len);
	make_device(dir);
	start(data_len);
	(void)run(next_init, 1);
	rig_open_files();
}

void rig_close(void)
{
	virtio_dev_shutdown(dev);
	for (unsigned i = 0; i < n_lanes; i++)
		close(fs_lane[i].call_fd);
	dev->class->destroy(dev);
	device.destroy(device.backing);
	mem_destroy(&guest.mem);
}
