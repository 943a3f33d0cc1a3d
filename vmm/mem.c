/* Guest RAM: see mem.h. */
#include "vmm/mem.h"

#include <errno.h>
#include <sys/mman.h>

int mem_create(struct mem *m, const struct mem_region *layout, unsigned n)
{
	uint64_t total = 0, end = 0;

	*m = (struct mem){ 0 };
	if (n == 0 || n > MEM_REGIONS_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		if (layout[i].len == 0 || (layout[i].gpa | layout[i].len) % 4096 != 0 ||
		    layout[i].gpa < end || __builtin_add_overflow(layout[i].gpa, layout[i].len, &end))
			return -EINVAL;
		total += layout[i].len;
	}
	m->map = mmap(NULL, total, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m->map == MAP_FAILED) {
		m->map = NULL;
		return -ENOMEM;
	}
	m->map_len = total;
	/* Big pages save the host page faults; a core dump must not hold a tenant's memory. */
	(void)madvise(m->map, total, MADV_HUGEPAGE);
	(void)madvise(m->map, total, MADV_DONTDUMP);
	total = 0;
	for (unsigned i = 0; i < n; i++) {
		m->region[i] = layout[i];
		m->region[i].host = m->map + total;
		total += layout[i].len;
	}
	m->n = n;
	return 0;
}

void mem_destroy(struct mem *m)
{
	if (m->map)
		munmap(m->map, m->map_len);
	*m = (struct mem){ 0 };
}

int mem_clear(struct mem *m)
{
	return madvise(m->map, m->map_len, MADV_DONTNEED) ? -errno : 0;
}

void *mem_run(const struct mem *m, uint64_t gpa, uint64_t *len)
{
	for (unsigned i = 0; i < m->n; i++) {
		const struct mem_region *r = &m->region[i];
		uint64_t off = gpa - r->gpa;

		if (gpa < r->gpa || off >= r->len)
			continue;
		if (*len > r->len - off)
			*len = r->len - off;
		return r->host + off;
	}
	return NULL;
}

void *mem_at(const struct mem *m, uint64_t gpa, uint64_t len)
{
	for (unsigned i = 0; i < m->n; i++) {
		const struct mem_region *r = &m->region[i];
		uint64_t off = gpa - r->gpa;

		if (gpa >= r->gpa && off <= r->len && len <= r->len - off)
			return r->host + off;
	}
	return NULL;
}
