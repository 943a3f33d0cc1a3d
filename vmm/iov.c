/* Cursor over iovecs: see iov.h. */
#include "vmm/iov.h"

#include <stdint.h>
#include <string.h>

size_t cursor_left(const struct cursor *c)
{
	size_t left = 0, off = c->off;

	for (unsigned i = 0; i < c->n; i++) {
		if (__builtin_add_overflow(left, c->v[i].iov_len - off, &left))
			return SIZE_MAX;
		off = 0;
	}
	return left;
}

/* True when at least len bytes are left; stops walking as soon as it knows. */
static bool cursor_has(const struct cursor *c, size_t len)
{
	size_t off = c->off;

	for (unsigned i = 0; i < c->n; i++) {
		size_t here = c->v[i].iov_len - off;

		if (here >= len)
			return true;
		len -= here;
		off = 0;
	}
	return len == 0;
}

/* The next contiguous piece, at most len bytes, consumed.  The caller knows that len > 0 are left. */
static void *cursor_take(struct cursor *c, size_t len, size_t *taken)
{
	uint8_t *p;

	while (c->off == c->v->iov_len) {
		c->v++;
		c->n--;
		c->off = 0;
	}
	p = (uint8_t *)c->v->iov_base + c->off;
	*taken = c->v->iov_len - c->off;
	if (*taken > len)
		*taken = len;
	c->off += *taken;
	return p;
}

bool cursor_read(struct cursor *c, void *dst, size_t len)
{
	uint8_t *to = dst;
	size_t step;

	if (!cursor_has(c, len))
		return false;
	for (; len > 0; len -= step, to += step) {
		const void *from = cursor_take(c, len, &step);

		memcpy(to, from, step);
	}
	return true;
}

bool cursor_write(struct cursor *c, const void *src, size_t len)
{
	const uint8_t *from = src;
	size_t step;

	if (!cursor_has(c, len))
		return false;
	for (; len > 0; len -= step, from += step) {
		void *to = cursor_take(c, len, &step);

		memcpy(to, from, step);
	}
	return true;
}

bool cursor_skip(struct cursor *c, size_t len)
{
	size_t step;

	if (!cursor_has(c, len))
		return false;
	for (; len > 0; len -= step)
		(void)cursor_take(c, len, &step);
	return true;
}

unsigned cursor_slice(const struct cursor *c, size_t len, struct iovec *dst, unsigned max,
		      size_t *got)
{
	size_t off = c->off, sum = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < c->n && len > 0 && n < max; i++, off = 0) {
		size_t here = c->v[i].iov_len - off;

		if (here > len)
			here = len;
		if (here == 0)
			continue;
		dst[n].iov_base = (uint8_t *)c->v[i].iov_base + off;
		dst[n++].iov_len = here;
		sum += here;
		len -= here;
	}
	if (got)
		*got = sum;
	return n;
}
