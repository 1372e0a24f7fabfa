/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what can be reduced: one row per type and operator. A row names
 *
 *   type and operator, of shm_ipc/datatype.h without their prefixes;
 *   the form in which the type is combined (enum form);
 *   how two values in that form are combined (enum combine);
 *   whether the end divides.
 *
 * Every instruction set generates its loops from this list, and so does occl_movers_supports. */
#ifndef GPU_HOST_MOVER_ROWS_H
#define GPU_HOST_MOVER_ROWS_H

enum form {
    FORM_RAW,      /* integers as they are */
    FORM_FLOAT32,  /* the end makes NaNs canonical */
    FORM_FLOAT64,  /* likewise */
    FORM_FLOAT16,  /* two vectors of float32; the end makes NaNs canonical and rounds */
    FORM_BFLOAT16, /* likewise */
    FORM_SUM_I32,  /* two vectors of uint64, exact for the sum of OCCL_MOVE_SRC_MAX elements */
    FORM_SUM_I64   /* two vectors of uint64: lower and upper half of 128 bits */
};

enum combine {
    COMBINE_ADD_U32,
    COMBINE_ADD_U64,
    COMBINE_ADD_U128,
    COMBINE_ADD_F32,
    COMBINE_ADD_F64,
    COMBINE_MIN_I32,
    COMBINE_MAX_I32,
    COMBINE_MIN_I64,
    COMBINE_MAX_I64,
    COMBINE_MIN_F32,
    COMBINE_MAX_F32,
    COMBINE_MIN_F64,
    COMBINE_MAX_F64
};

/* clang-format off */
#define OCCL_MOVER_ROWS(ROW) \
    ROW(INT32,    SUM, FORM_RAW,      COMBINE_ADD_U32,  0) \
    ROW(INT32,    MIN, FORM_RAW,      COMBINE_MIN_I32,  0) \
    ROW(INT32,    MAX, FORM_RAW,      COMBINE_MAX_I32,  0) \
    ROW(INT32,    AVG, FORM_SUM_I32,  COMBINE_ADD_U64,  1) \
    ROW(INT64,    SUM, FORM_RAW,      COMBINE_ADD_U64,  0) \
    ROW(INT64,    MIN, FORM_RAW,      COMBINE_MIN_I64,  0) \
    ROW(INT64,    MAX, FORM_RAW,      COMBINE_MAX_I64,  0) \
    ROW(INT64,    AVG, FORM_SUM_I64,  COMBINE_ADD_U128, 1) \
    ROW(FLOAT16,  SUM, FORM_FLOAT16,  COMBINE_ADD_F32,  0) \
    ROW(FLOAT16,  MIN, FORM_FLOAT16,  COMBINE_MIN_F32,  0) \
    ROW(FLOAT16,  MAX, FORM_FLOAT16,  COMBINE_MAX_F32,  0) \
    ROW(FLOAT16,  AVG, FORM_FLOAT16,  COMBINE_ADD_F32,  1) \
    ROW(FLOAT32,  SUM, FORM_FLOAT32,  COMBINE_ADD_F32,  0) \
    ROW(FLOAT32,  MIN, FORM_FLOAT32,  COMBINE_MIN_F32,  0) \
    ROW(FLOAT32,  MAX, FORM_FLOAT32,  COMBINE_MAX_F32,  0) \
    ROW(FLOAT32,  AVG, FORM_FLOAT32,  COMBINE_ADD_F32,  1) \
    ROW(FLOAT64,  SUM, FORM_FLOAT64,  COMBINE_ADD_F64,  0) \
    ROW(FLOAT64,  MIN, FORM_FLOAT64,  COMBINE_MIN_F64,  0) \
    ROW(FLOAT64,  MAX, FORM_FLOAT64,  COMBINE_MAX_F64,  0) \
    ROW(FLOAT64,  AVG, FORM_FLOAT64,  COMBINE_ADD_F64,  1) \
    ROW(BFLOAT16, SUM, FORM_BFLOAT16, COMBINE_ADD_F32,  0) \
    ROW(BFLOAT16, MIN, FORM_BFLOAT16, COMBINE_MIN_F32,  0) \
    ROW(BFLOAT16, MAX, FORM_BFLOAT16, COMBINE_MAX_F32,  0) \
    ROW(BFLOAT16, AVG, FORM_BFLOAT16, COMBINE_ADD_F32,  1)
/* clang-format on */

#endif
