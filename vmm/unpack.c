/*
 * Bounded decompression: see unpack.h.
 *
 * The three libraries are driven the same way: a step function is given the input left and the room
 * left and says what it took, what it gave and whether the stream has ended.  One loop around it
 * grows the output by doubling, up to the limit, and decides every error.  The first guess of four
 * times the input fits kernel modules; a stream that lies about its size costs nothing, because no
 * header is believed.
 */
#include "vmm/unpack.h"

#include "vmm/base.h"

#include <errno.h>
#include <limits.h>
#include <lzma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* zlib promises not to write to its input */
#include <zlib.h>
#include <zstd.h>

/* Dictionary limit: xz -9 needs 65 MiB to decode, zstd --ultra -22 a window of 2^27. */
#define XZ_MEMORY_MAX	    (80u << 20)
#define ZSTD_WINDOW_LOG_MAX 27

struct span {
	const uint8_t *in;
	size_t in_len;
	uint8_t *out;
	size_t out_len;
};

struct decoder {
	enum unpack_format format;
	union {
		z_stream gzip;
		lzma_stream xz;
		ZSTD_DStream *zstd;
	};
};

enum unpack_format unpack_detect(const void *data, size_t len)
{
	static const struct {
		enum unpack_format format;
		uint8_t len;
		uint8_t magic[6];
	} table[] = {
		{ UNPACK_GZIP, 3, { 0x1f, 0x8b, 8 } },
		{ UNPACK_XZ, 6, { 0xfd, '7', 'z', 'X', 'Z', 0 } },
		{ UNPACK_ZSTD, 4, { 0x28, 0xb5, 0x2f, 0xfd } },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++)
		if (len >= table[i].len && memcmp(data, table[i].magic, table[i].len) == 0)
			return table[i].format;
	return UNPACK_NONE;
}

static int decoder_open(struct decoder *d, enum unpack_format format)
{
	memset(d, 0, sizeof(*d));
	d->format = format;
	switch (format) {
	case UNPACK_GZIP: /* 16: a gzip header, not a zlib one */
		return inflateInit2(&d->gzip, 16 + MAX_WBITS) == Z_OK ? 0 : -ENOMEM;
	case UNPACK_XZ:
		d->xz = (lzma_stream)LZMA_STREAM_INIT;
		return lzma_stream_decoder(&d->xz, XZ_MEMORY_MAX, 0) == LZMA_OK ? 0 : -ENOMEM;
	case UNPACK_ZSTD:
		d->zstd = ZSTD_createDStream();
		if (!d->zstd)
			return -ENOMEM;
		ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
		return 0;
	case UNPACK_NONE:
		break;
	}
	return -EINVAL;
}

static void decoder_close(struct decoder *d)
{
	switch (d->format) {
	case UNPACK_GZIP:
		inflateEnd(&d->gzip);
		break;
	case UNPACK_XZ:
		lzma_end(&d->xz);
		break;
	case UNPACK_ZSTD:
		ZSTD_freeDStream(d->zstd);
		break;
	case UNPACK_NONE:
		break;
	}
}

/* zlib counts in unsigned int: long spans go in pieces. */
static int gzip_step(z_stream *z, struct span *s)
{
	const unsigned in = MIN(s->in_len, (size_t)UINT_MAX);
	const unsigned out = MIN(s->out_len, (size_t)UINT_MAX);
	int ret;

	z->next_in = s->in;
	z->avail_in = in;
	z->next_out = s->out;
	z->avail_out = out;
	ret = inflate(z, Z_NO_FLUSH);
	s->in_len -= in - z->avail_in;
	s->in += in - z->avail_in;
	s->out_len -= out - z->avail_out;
	if (ret == Z_STREAM_END)
		return 1;
	if (ret == Z_MEM_ERROR)
		return -ENOMEM;
	return ret == Z_OK || ret == Z_BUF_ERROR ? 0 : -EBADMSG;
}

static int xz_step(lzma_stream *x, struct span *s)
{
	lzma_ret ret;

	x->next_in = s->in;
	x->avail_in = s->in_len;
	x->next_out = s->out;
	x->avail_out = s->out_len;
	ret = lzma_code(x, LZMA_RUN);
	s->in = x->next_in;
	s->in_len = x->avail_in;
	s->out_len = x->avail_out;
	if (ret == LZMA_STREAM_END)
		return 1;
	if (ret == LZMA_MEM_ERROR || ret == LZMA_MEMLIMIT_ERROR)
		return -ENOMEM;
	return ret == LZMA_OK || ret == LZMA_BUF_ERROR ? 0 : -EBADMSG;
}

static int zstd_step(ZSTD_DStream *z, struct span *s)
{
	ZSTD_inBuffer in = { .src = s->in, .size = s->in_len };
	ZSTD_outBuffer out = { .dst = s->out, .size = s->out_len };
	size_t ret = ZSTD_decompressStream(z, &out, &in);

	if (ZSTD_isError(ret))
		return -EBADMSG;
	s->in += in.pos;
	s->in_len -= in.pos;
	s->out_len -= out.pos;
	return ret == 0;
}

/* 1 = the stream has ended, 0 = go on, -errno.  Moves the span. */
static int decoder_step(struct decoder *d, struct span *s)
{
	const size_t room = s->out_len;
	int ret;

	if (d->format == UNPACK_GZIP)
		ret = gzip_step(&d->gzip, s);
	else if (d->format == UNPACK_XZ)
		ret = xz_step(&d->xz, s);
	else
		ret = zstd_step(d->zstd, s);
	s->out += room - s->out_len;
	return ret;
}

/* Double the output, at most to max. */
static int output_grow(uint8_t **out, size_t *cap, size_t max, struct span *s)
{
	const size_t len = *cap - s->out_len;
	const size_t bigger = MAX(*cap > max / 2 ? max : *cap * 2, (size_t)1);
	uint8_t *p;

	if (*cap >= max)
		return -EFBIG;
	p = realloc(*out, bigger);
	if (!p)
		return -ENOMEM;
	*out = p;
	s->out = p + len;
	s->out_len = bigger - len;
	*cap = bigger;
	return 0;
}

/*
 * A step that neither takes nor gives while it has room wants input that is not there.  With the
 * output full, one more step is tried first on a full buffer: the stream may end exactly there.
 */
static int decode_all(struct decoder *d, struct span *s, uint8_t **out, size_t *cap, size_t max)
{
	for (;;) {
		const size_t in_len = s->in_len, room = s->out_len;
		int ret = decoder_step(d, s);

		if (ret != 0)
			return ret;
		if (s->in_len != in_len || s->out_len != room)
			continue;
		if (room > 0)
			return -EBADMSG;
		ret = output_grow(out, cap, max, s);
		if (ret)
			return ret;
	}
}

int unpack(const void *in, size_t in_len, size_t max, void **out, size_t *out_len, size_t *used)
{
	struct span s = { .in = in, .in_len = in_len };
	size_t cap = MIN(in_len > max / 4 ? max : in_len * 4, max);
	struct decoder d;
	uint8_t *buf;
	int err;

	err = decoder_open(&d, unpack_detect(in, in_len));
	if (err)
		return err;
	buf = malloc(MAX(cap, (size_t)1));
	s.out = buf;
	s.out_len = cap;
	err = buf ? decode_all(&d, &s, &buf, &cap, max) : -ENOMEM;
	decoder_close(&d);
	if (err < 0) {
		free(buf);
		return err;
	}
	*out = buf;
	*out_len = cap - s.out_len;
	if (used)
		*used = in_len - s.in_len;
	return 0;
}
