/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and reduction operators. The numbers are ABI (signatures, records, wire). Those of
 * NCCL's types and of its first five operators equal NCCL's, so that a binding over either API
 * passes them through; what NCCL has not starts further up. Gaps are numbers that do not exist
 * here. Common subset of C11, C++ and CUDA.
 *
 * A pair is a value and the index that belongs to it, in this order and without padding; it is one
 * element, and only MINLOC and MAXLOC combine pairs.
 *
 * A new type or operator is one enumerator here, one line in occl_dtype_bytes or in the name tables
 * of datatype.c, and its rows in the movers of each backend. */
#ifndef SHM_IPC_DATATYPE_H
#define SHM_IPC_DATATYPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define OCCL_DATATYPE_INLINE static inline __host__ __device__
#else
#define OCCL_DATATYPE_INLINE static inline
#endif

enum occl_dtype {
    OCCL_DT_INT8 = 0,
    OCCL_DT_UINT8 = 1,
    OCCL_DT_INT32 = 2,
    OCCL_DT_UINT32 = 3,
    OCCL_DT_INT64 = 4,
    OCCL_DT_UINT64 = 5,
    OCCL_DT_FLOAT16 = 6,
    OCCL_DT_FLOAT32 = 7,
    OCCL_DT_FLOAT64 = 8,
    OCCL_DT_BFLOAT16 = 9,
    OCCL_DT_FLOAT8E4M3 = 10,
    OCCL_DT_FLOAT8E5M2 = 11,
    OCCL_DT_INT16 = 32,
    OCCL_DT_UINT16 = 33,
    OCCL_DT_FLOAT32_INT32 = 36,
    OCCL_DT_FLOAT64_INT64 = 37,
    OCCL_DT_INT32_INT32 = 38,
    OCCL_DT_INT64_INT64 = 39
};
/* One above the largest number: the size of a table indexed by type. */
#define OCCL_DT_LIMIT 40

enum occl_redop_kind {
    OCCL_RO_SUM = 0,
    OCCL_RO_PROD = 1,
    OCCL_RO_MAX = 2,
    OCCL_RO_MIN = 3,
    OCCL_RO_AVG = 4,
    OCCL_RO_PREMULSUM = 5, /* each source times a factor of its own, then the sum */
    OCCL_RO_BAND = 6,
    OCCL_RO_BOR = 7,
    OCCL_RO_BXOR = 8,
    OCCL_RO_LAND = 9,
    OCCL_RO_LOR = 10,
    OCCL_RO_LXOR = 11,
    OCCL_RO_MINLOC = 12,
    OCCL_RO_MAXLOC = 13
};
#define OCCL_RO_LIMIT 14

/* Bytes of one element; 0 for a number that is no type, so it also validates. Numbers come from
 * outside, hence the plain integer. Any thread; pure. */
OCCL_DATATYPE_INLINE size_t occl_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
    case OCCL_DT_INT8:
    case OCCL_DT_UINT8:
    case OCCL_DT_FLOAT8E4M3:
    case OCCL_DT_FLOAT8E5M2:
        return 1;
    case OCCL_DT_INT16:
    case OCCL_DT_UINT16:
    case OCCL_DT_FLOAT16:
    case OCCL_DT_BFLOAT16:
        return 2;
    case OCCL_DT_INT32:
    case OCCL_DT_UINT32:
    case OCCL_DT_FLOAT32:
        return 4;
    case OCCL_DT_INT64:
    case OCCL_DT_UINT64:
    case OCCL_DT_FLOAT64:
    case OCCL_DT_FLOAT32_INT32:
    case OCCL_DT_INT32_INT32:
        return 8;
    case OCCL_DT_FLOAT64_INT64:
    case OCCL_DT_INT64_INT64:
        return 16;
    default:
        return 0;
    }
}

/* Name as users write it ("float32", "sum"); NULL for a number that is no type or operator, so they
 * also validate. The strings are static. Any thread; neither blocks nor allocates. */
const char *occl_dtype_name(uint32_t dtype);
const char *occl_redop_name(uint32_t redop);

#ifdef __cplusplus
}
#endif

#endif
