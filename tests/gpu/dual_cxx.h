/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_GPU_DUAL_CXX_H
#define TESTS_GPU_DUAL_CXX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* dual_digest as compiled by the C++ compiler. */
uint64_t dual_digest_cxx(void);
#ifdef __cplusplus
}
#endif

#endif
