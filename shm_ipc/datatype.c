/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/datatype.h"

static const char *const dtype_names[OCCL_DT_LIMIT] = {
    [OCCL_DT_INT32] = "int32",     [OCCL_DT_INT64] = "int64",     [OCCL_DT_FLOAT16] = "float16",
    [OCCL_DT_FLOAT32] = "float32", [OCCL_DT_FLOAT64] = "float64", [OCCL_DT_BFLOAT16] = "bfloat16",
};

static const char *const redop_names[OCCL_RO_LIMIT] = {
    [OCCL_RO_SUM] = "sum",
    [OCCL_RO_MAX] = "max",
    [OCCL_RO_MIN] = "min",
    [OCCL_RO_AVG] = "avg",
};

const char *occl_dtype_name(uint32_t dtype) {
    return dtype < OCCL_DT_LIMIT ? dtype_names[dtype] : NULL;
}

const char *occl_redop_name(uint32_t redop) {
    return redop < OCCL_RO_LIMIT ? redop_names[redop] : NULL;
}
