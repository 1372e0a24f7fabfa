/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/datatype.h"

static const char *const dtype_names[OCCL_DT_LIMIT] = {
    [OCCL_DT_INT8] = "int8",
    [OCCL_DT_UINT8] = "uint8",
    [OCCL_DT_INT16] = "int16",
    [OCCL_DT_UINT16] = "uint16",
    [OCCL_DT_INT32] = "int32",
    [OCCL_DT_UINT32] = "uint32",
    [OCCL_DT_INT64] = "int64",
    [OCCL_DT_UINT64] = "uint64",
    [OCCL_DT_FLOAT8E4M3] = "float8e4m3",
    [OCCL_DT_FLOAT8E5M2] = "float8e5m2",
    [OCCL_DT_FLOAT16] = "float16",
    [OCCL_DT_BFLOAT16] = "bfloat16",
    [OCCL_DT_FLOAT32] = "float32",
    [OCCL_DT_FLOAT64] = "float64",
    [OCCL_DT_FLOAT32_INT32] = "float32_int32",
    [OCCL_DT_FLOAT64_INT64] = "float64_int64",
    [OCCL_DT_INT32_INT32] = "int32_int32",
    [OCCL_DT_INT64_INT64] = "int64_int64",
};

static const char *const redop_names[OCCL_RO_LIMIT] = {
    [OCCL_RO_SUM] = "sum",       [OCCL_RO_PROD] = "prod",     [OCCL_RO_MAX] = "max",
    [OCCL_RO_MIN] = "min",       [OCCL_RO_AVG] = "avg",       [OCCL_RO_PREMULSUM] = "premulsum",
    [OCCL_RO_BAND] = "band",     [OCCL_RO_BOR] = "bor",       [OCCL_RO_BXOR] = "bxor",
    [OCCL_RO_LAND] = "land",     [OCCL_RO_LOR] = "lor",       [OCCL_RO_LXOR] = "lxor",
    [OCCL_RO_MINLOC] = "minloc", [OCCL_RO_MAXLOC] = "maxloc",
};

const char *occl_dtype_name(uint32_t dtype) {
    return dtype < OCCL_DT_LIMIT ? dtype_names[dtype] : NULL;
}

const char *occl_redop_name(uint32_t redop) {
    return redop < OCCL_RO_LIMIT ? redop_names[redop] : NULL;
}
