/*
 * A bounded cursor over an array of iovecs: the one way heddle reads and writes buffers whose shape
 * a guest chose.  A cursor never moves past the end; a call that returns false has moved nothing
 * and touched nothing.  The memory behind the iovecs may change at any time under a hostile guest:
 * copy what is parsed once, then check the copy.
 *
 * The cursor does not own the iovec array and never changes it.  Any thread; one user at a time.
 */
#ifndef VMM_IOV_H
#define VMM_IOV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct cursor {
	const struct iovec *v; /* current iovec */
	unsigned n;            /* iovecs left, the current one included */
	size_t off;            /* bytes of the current iovec already consumed */
};

static inline struct cursor cursor_of(const struct iovec *v, unsigned n)
{
	return (struct cursor){ .v = v, .n = n, .off = 0 };
}

/* Bytes left.  Walks the rest of the array; saturates at SIZE_MAX. */
size_t cursor_left(const struct cursor *c);

/* Copy len bytes out of / into the buffers and advance.  False if fewer than len are left. */
bool cursor_read(struct cursor *c, void *dst, size_t len);
bool cursor_write(struct cursor *c, const void *src, size_t len);

/* Advance by len bytes.  False if fewer are left. */
bool cursor_skip(struct cursor *c, size_t len);

/*
 * Describe the next len bytes (or as many as there are) as iovecs in dst[0..max), without moving.
 * Returns the number of iovecs written; *got (may be NULL) receives the bytes they cover, which is
 * less than len when the buffers or max run out.  Empty iovecs are left out.
 */
unsigned cursor_slice(const struct cursor *c, size_t len, struct iovec *dst, unsigned max,
		      size_t *got);

#endif
