/* Bounded decompressors (vmm/unpack.h). */
#include <errno.h>
#include <lzma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/unit/suite.h"
#include "vmm/unpack.h"

#define PACKED_MAX (1u << 20)
#define PLAIN_MAX  (3u << 20)

static uint8_t plain[PLAIN_MAX], packed[PACKED_MAX + 64];

static const enum unpack_format formats[] = { UNPACK_GZIP, UNPACK_XZ, UNPACK_ZSTD };

static size_t pack_gzip(size_t len)
{
	z_stream z = {
		.next_in = plain, .avail_in = len, .next_out = packed, .avail_out = PACKED_MAX
	};

	deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

static size_t pack(enum unpack_format format, size_t len)
{
	size_t n = 0;

	if (format == UNPACK_GZIP)
		return pack_gzip(len);
	if (format == UNPACK_ZSTD)
		return ZSTD_compress(packed, PACKED_MAX, plain, len, 3);
	ck_assert_int_eq(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, plain, len, packed, &n,
						 PACKED_MAX),
			 LZMA_OK);
	return n;
}

/* Compressible, but not to nothing. */
static void fill(size_t len)
{
	for (size_t i = 0; i < len; i++)
		plain[i] = (i % 61) ^ (i >> 9);
}

START_TEST(every_length_comes_back)
{
	static const size_t lengths[] = { 0, 1, 4, 100, 65536, 1000000, PLAIN_MAX };
	size_t n, out_len, used;
	void *out;

	fill(PLAIN_MAX);
	for (unsigned f = 0; f < 3; f++) {
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			n = pack(formats[f], lengths[i]);
			ck_assert_int_eq(unpack_detect(packed, n), formats[f]);
			ck_assert_int_eq(unpack(packed, n, PLAIN_MAX, &out, &out_len, &used), 0);
			ck_assert_uint_eq(out_len, lengths[i]);
			ck_assert(memcmp(out, plain, out_len) == 0);
			ck_assert_uint_eq(used, n);
			free(out);
		}
	}
}
END_TEST

START_TEST(the_limit_holds_to_the_byte)
{
	size_t n, out_len;
	void *out;

	fill(100000);
	for (unsigned f = 0; f < 3; f++) {
		n = pack(formats[f], 100000);
		ck_assert_int_eq(unpack(packed, n, 100000, &out, &out_len, NULL), 0);
		ck_assert_uint_eq(out_len, 100000);
		free(out);
		ck_assert_int_eq(unpack(packed, n, 99999, &out, &out_len, NULL), -EFBIG);
		ck_assert_int_eq(unpack(packed, n, 0, &out, &out_len, NULL), -EFBIG);
	}
}
END_TEST

START_TEST(a_bomb_is_stopped)
{
	size_t n, out_len;
	void *out;

	memset(plain, 0, PLAIN_MAX);
	for (unsigned f = 0; f < 3; f++) {
		n = pack(formats[f], PLAIN_MAX);
		ck_assert_int_eq(unpack(packed, n, 1 << 20, &out, &out_len, NULL), -EFBIG);
	}
}
END_TEST

START_TEST(cut_short_anywhere)
{
	size_t n, out_len;
	void *out;

	fill(1500);
	for (unsigned f = 0; f < 3; f++) {
		n = pack(formats[f], 1500);
		for (size_t cut = 6; cut < n; cut++)
			ck_assert_int_eq(unpack(packed, cut, PLAIN_MAX, &out, &out_len, NULL),
					 -EBADMSG);
		for (size_t cut = 0; cut < 3; cut++)
			ck_assert_int_eq(unpack(packed, cut, PLAIN_MAX, &out, &out_len, NULL),
					 -EINVAL);
	}
}
END_TEST

START_TEST(damage_never_crashes)
{
	size_t n, out_len;
	void *out;

	fill(1500);
	for (unsigned f = 0; f < 3; f++) {
		n = pack(formats[f], 1500);
		for (size_t i = 0; i < n; i++) {
			packed[i] ^= 0x55;
			if (unpack(packed, n, PLAIN_MAX, &out, &out_len, NULL) == 0)
				free(out);
			packed[i] ^= 0x55;
		}
	}
}
END_TEST

START_TEST(what_follows_is_ignored)
{
	size_t n, out_len, used;
	void *out;

	fill(5000);
	for (unsigned f = 0; f < 3; f++) {
		n = pack(formats[f], 5000);
		memset(packed + n, 0xa5, 64);
		ck_assert_int_eq(unpack(packed, n + 64, PLAIN_MAX, &out, &out_len, &used), 0);
		ck_assert_uint_eq(out_len, 5000);
		ck_assert_uint_eq(used, n);
		free(out);
	}
}
END_TEST

START_TEST(other_files_are_refused)
{
	size_t out_len;
	void *out;

	ck_assert_int_eq(unpack_detect("\177ELF", 4), UNPACK_NONE);
	ck_assert_int_eq(unpack_detect("", 0), UNPACK_NONE);
	ck_assert_int_eq(unpack("\177ELF....", 8, 100, &out, &out_len, NULL), -EINVAL);
}
END_TEST

SUITE_MAIN("unpack", 60, every_length_comes_back, the_limit_holds_to_the_byte, a_bomb_is_stopped,
	   cut_short_anywhere, damage_never_crashes, what_follows_is_ignored,
	   other_files_are_refused)
