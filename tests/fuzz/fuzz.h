/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target defines, and how it takes its input apart. A target aborts on a broken
 * invariant; memory errors are found by the sanitizers. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct fuzz_input {
    const uint8_t *data;
    size_t bytes;
};

/* Numbers from the input; zeros when it is used up. */
static inline uint32_t fuzz_take8(struct fuzz_input *in) {
    if (in->bytes == 0)
        return 0;
    in->bytes--;
    return *in->data++;
}
static inline uint32_t fuzz_take32(struct fuzz_input *in) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= fuzz_take8(in) << (8 * i);
    return value;
}
static inline void fuzz_take(struct fuzz_input *in, void *out, size_t bytes) {
    size_t have = bytes < in->bytes ? bytes : in->bytes;
    memset(out, 0, bytes);
    if (have > 0)
        memcpy(out, in->data, have);
    in->data += have;
    in->bytes -= have;
}

/* Not assert: it has to hold in every build. */
static inline void fuzz_expect(int condition) {
    if (!condition)
        abort();
}

#endif
