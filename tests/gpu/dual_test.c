/* SPDX-License-Identifier: Apache-2.0 */
/* Step format and executor are one text in three languages: as C (with C++-compatibility warnings
 * as errors) and as C++ they run here and must agree; as CUDA they are compiled by
 * cuda_headers_test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/dual_body.h"
#include "tests/gpu/dual_cxx.h"

static void c_and_cxx_agree(void **state) {
    (void)state;
    assert_true(dual_digest() != 0);
    assert_true(dual_digest() == dual_digest_cxx());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(c_and_cxx_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
