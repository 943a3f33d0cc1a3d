/*
 * Bounded decompression of whole files in memory: kernel modules, compressed kernels.
 *
 * The input is not trusted: a damaged or malicious stream gives an error, and no stream can make
 * the output, or the decoder's own memory, grow beyond its limit.  Any thread; no state is kept.
 */
#ifndef VMM_UNPACK_H
#define VMM_UNPACK_H

#include <stddef.h>

enum unpack_format { UNPACK_NONE, UNPACK_GZIP, UNPACK_XZ, UNPACK_ZSTD };

/* What the first bytes are; UNPACK_NONE for everything else. */
enum unpack_format unpack_detect(const void *data, size_t len);

/*
 * Decompress the first stream in in[0..in_len), whose format is detected.  On success *out is
 * malloc'd (the caller frees it), *out_len its length, and *used (may be NULL) the bytes of input
 * the stream took; what follows it is ignored.
 * -EINVAL: none of the formats.  -EBADMSG: damaged or cut short.  -EFBIG: more than max bytes come
 * out.
 * -ENOMEM.  Nothing is allocated on failure.
 */
int unpack(const void *in, size_t in_len, size_t max, void **out, size_t *out_len, size_t *used);

#endif
