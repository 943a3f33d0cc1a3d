/* Fuzzer for the bounded decompressors: any input, an output limit taken from its last byte. */
#include "tests/fuzz/input.h"
#include "vmm/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t max = size ? (size_t)1 << data[size - 1] % 21 : 0, out_len, used;
	void *out;

	if (unpack(data, size, max, &out, &out_len, &used) == 0) {
		require(out_len <= max && used <= size);
		free(out);
	}
	return 0;
}
