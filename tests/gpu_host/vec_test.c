/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of buffers in pieces smaller than any element that exists today: every number of bytes
 * is loaded and stored exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define V_BYTES 16
#include "gpu/host/vec.h"

static void test_partial_vectors(void **state) {
    (void)state;
    unsigned char in[V_BYTES], whole[V_BYTES], out[2 * V_BYTES];
    for (size_t i = 0; i < V_BYTES; i++)
        in[i] = (unsigned char)(i + 1);
    for (size_t bytes = 1; bytes < V_BYTES; bytes++) {
        const struct v_part part = v_part_of(bytes);
        vu64 v = v_load_partial(in, &part);
        v_store(whole, v);
        for (size_t i = 0; i < V_BYTES; i++)
            assert_int_equal(whole[i], i < bytes ? i + 1 : 0);
        memset(out, 0xa5, sizeof(out));
        v_store_partial(out, v_load(in), &part);
        for (size_t i = 0; i < sizeof(out); i++)
            assert_int_equal(out[i], i < bytes ? i + 1 : 0xa5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
