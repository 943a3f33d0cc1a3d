/*
 * Guest RAM, and the only function that turns a guest-physical address into a host pointer.
 *
 * Built by main, frozen before the first thread starts, then read by all threads without a lock.
 * The memory is one private anonymous mapping without swap reservation: a page costs the host
 * nothing until the guest touches it.
 */
#ifndef VMM_MEM_H
#define VMM_MEM_H

#include <stddef.h>
#include <stdint.h>

#define MEM_REGIONS_MAX 4

struct mem_region {
	uint64_t gpa, len; /* bytes, both multiples of 4096 */
	uint8_t *host;
};

struct mem {
	struct mem_region region[MEM_REGIONS_MAX]; /* ascending gpa, never overlapping */
	unsigned n;
	uint8_t *map; /* all regions, back to back */
	size_t map_len;
};

/*
 * Map RAM for layout[0..n) (gpa and len filled, ascending; host is filled here).  0, or -ENOMEM /
 * -EINVAL with nothing mapped.
 */
int mem_create(struct mem *m, const struct mem_region *layout, unsigned n);
void mem_destroy(struct mem *m);

/* Give all pages back to the host: RAM reads as zero again.  Only while no vCPU or queue runs. */
int mem_clear(struct mem *m);

/*
 * Host pointer for the len bytes at gpa, or NULL unless every byte is RAM of one region.  len may
 * be 0 (then gpa itself must lie in RAM or at the end of a region).  Any value is safe to ask for.
 */
void *mem_at(const struct mem *m, uint64_t gpa, uint64_t len);

/*
 * Like mem_at, but gives the longest run of RAM that starts at gpa, at most *len bytes; *len is
 * reduced to that run.  NULL if gpa is not RAM.  For buffers that may cross two regions.
 */
void *mem_run(const struct mem *m, uint64_t gpa, uint64_t *len);

#endif
