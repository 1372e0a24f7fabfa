/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/dual_cxx.h"

#include "tests/gpu/dual_body.h"

extern "C" uint64_t dual_digest_cxx(void) {
    return dual_digest();
}
