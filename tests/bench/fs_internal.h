/* The parts of fs_rig.h, for fs_rig.c (device, rings, the loop) and fs_guest.c (requests) only. */
#ifndef TESTS_BENCH_FS_INTERNAL_H
#define TESTS_BENCH_FS_INTERNAL_H

#include "devices/fuse/wire.h"
#include "tests/bench/fs_rig.h"
#include "tests/bench/harness.h"
#include "tests/unit/ring.h"

#define DATA_LEN (256u << 10)

/* A request in flight: its place in the guest's RAM, and what its job is at. */
struct slot {
	unsigned index;
	uint64_t head_gpa, reply_gpa, data_gpa, table_gpa;
	uint8_t *head, *reply, *data; /* a page each, and DATA_LEN */
	struct vring_desc *table;
	uint32_t used_len; /* of the last reply */
	bool laid_out;     /* the table is as the job left it */

	unsigned step;
	uint64_t item, node, fh;
};

struct fs_lane {
	unsigned index;
	struct ring ring;
	int call_fd, kick_fd;
	struct slot slot[FS_DEPTH_MAX];
	unsigned busy; /* in flight */
	uint64_t todo; /* items that no slot has begun */
	uint64_t next_item;
	uint64_t done; /* what counts */
	uint64_t node;
	uint64_t fh[2]; /* its file, and with O_DIRECT */
	uint64_t seed;
};

/* The next request of a slot, built; false: it has none.  Step 0: nothing was sent before. */
typedef bool next_fn(struct fs_lane *l, struct slot *s);

extern struct fs_lane fs_lane[FS_QUEUES_MAX];
extern unsigned n_lanes, n_depth;

/* A new request's body, to be filled in place; then request_cut. */
void *request(struct slot *s, uint32_t opcode, uint64_t node);
/*
 * Cut what was filled into segments: in_len bytes of body, and out_len of reply body; in_data and
 * out_data bytes of the slot's data behind them.
 */
void request_cut(struct slot *s, uint32_t in_len, uint32_t in_data, uint32_t out_len,
		 uint32_t out_data);
/* The reply's body, of at least len bytes, or the program ends; `error` is what it must say. */
void *reply(struct slot *s, int error, size_t len);

/* One job on all lanes, `items` on each, from their first request to their last reply. */
struct sample run(next_fn *next, uint64_t items);

/* Every lane's file, and the folders. */
void rig_open_files(void);

#endif
