/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what can be reduced, in three lists:
 *
 *   OCCL_MOVER_FORMS   the forms in which elements are combined, with the number of vectors that
 *                      one vector of user data occupies in each;
 *   OCCL_MOVER_LOOPS   the loops that are generated: a form, how two values in it are combined, and
 *                      whether each source is multiplied by its factor first;
 *   OCCL_MOVER_ROWS    the table itself: type and operator, of shm_ipc/datatype.h without their
 *                      prefixes, and the loop that serves them. Rows share loops wherever the bits
 *                      agree: a wrapping sum knows no sign, and an average of floats is a sum with
 *                      a divisor.
 *
 * Every instruction set generates its loops from these lists, and occl_movers_supports reads them
 * too. */
#ifndef GPU_HOST_MOVER_ROWS_H
#define GPU_HOST_MOVER_ROWS_H

/* clang-format off */
#define OCCL_MOVER_FORMS(FORM)                                                                     \
    FORM(RAW, 1)           /* integers as they are */                                              \
    FORM(FLOAT32, 1)       /* the end divides, and makes NaNs canonical */                         \
    FORM(FLOAT64, 1)       /* likewise */                                                          \
    FORM(FLOAT16, 2)       /* float32; the end also rounds */                                      \
    FORM(BFLOAT16, 2)      /* likewise */                                                          \
    FORM(FLOAT8E4M3, 4)    /* likewise */                                                          \
    FORM(FLOAT8E4M3_256, 4) /* likewise, but 2^-8 of the value: saves the scaling */               \
    FORM(FLOAT8E5M2, 4)    /* likewise */                                                          \
    FORM(LOW_FLOAT16, 1)   /* 16-bit integers in the order of MIN: the NaNs lowest */              \
    FORM(HIGH_FLOAT16, 1)  /* in the order of MAX: the NaNs highest */                             \
    FORM(LOW_BFLOAT16, 1)                                                                          \
    FORM(HIGH_BFLOAT16, 1)                                                                         \
    FORM(LOW_FLOAT8E4M3, 1) /* likewise 8-bit integers */                                          \
    FORM(HIGH_FLOAT8E4M3, 1)                                                                       \
    FORM(LOW_FLOAT8E5M2, 1)                                                                        \
    FORM(HIGH_FLOAT8E5M2, 1)                                                                       \
    FORM(SUM_I8, 2)        /* int16: exact for OCCL_MOVE_SRC_MAX elements; the end divides */      \
    FORM(SUM_U8, 2)                                                                                \
    FORM(SUM_I16, 2)       /* likewise int32 */                                                    \
    FORM(SUM_U16, 2)                                                                               \
    FORM(SUM_I32, 2)       /* likewise uint64, each source biased by 2^31 */                       \
    FORM(SUM_U32, 2)                                                                               \
    FORM(SUM_I64, 2)       /* sums of the lower and of the upper halves; the upper ones biased */  \
    FORM(SUM_U64, 2)                                                                               \
    FORM(TRUTH_8, 1)       /* all ones for true */                                                 \
    FORM(TRUTH_16, 1)                                                                              \
    FORM(TRUTH_32, 1)                                                                              \
    FORM(TRUTH_64, 1)                                                                              \
    FORM(LOW_PAIR_F32, 1)  /* one 64-bit integer: the least wins */                                \
    FORM(HIGH_PAIR_F32, 1)                                                                         \
    FORM(LOW_PAIR_I32, 1)                                                                          \
    FORM(HIGH_PAIR_I32, 1)                                                                         \
    FORM(LOW_PAIR_F64, 1)  /* two 64-bit integers: the least first one wins, then the second */    \
    FORM(HIGH_PAIR_F64, 1)                                                                         \
    FORM(LOW_PAIR_I64, 1)                                                                          \
    FORM(HIGH_PAIR_I64, 1)

#define OCCL_LOOPS_OF_WIDTH(LOOP, w)                    \
    LOOP(add_##w,    RAW,        ADD_U##w, 0)           \
    LOOP(scaled_##w, RAW,        ADD_U##w, 1)           \
    LOOP(mul_##w,    RAW,        MUL_U##w, 0)           \
    LOOP(min_i##w,   RAW,        MIN_I##w, 0)           \
    LOOP(max_i##w,   RAW,        MAX_I##w, 0)           \
    LOOP(min_u##w,   RAW,        MIN_U##w, 0)           \
    LOOP(max_u##w,   RAW,        MAX_U##w, 0)           \
    LOOP(land_##w,   TRUTH_##w,  AND,      0)           \
    LOOP(lor_##w,    TRUTH_##w,  OR,       0)           \
    LOOP(lxor_##w,   TRUTH_##w,  XOR,      0)

#define OCCL_LOOPS_OF_FLOAT(LOOP, form, sum_form, w)    \
    LOOP(add_##form,    sum_form, ADD_F##w, 0)          \
    LOOP(scaled_##form, form,     ADD_F##w, 1)          \
    LOOP(mul_##form,    form,     MUL_F##w, 0)

#define OCCL_LOOPS_OF_EXTREMES(LOOP, type, low, high, how)      \
    LOOP(min_##type,    low,      MIN_##how, 0)                 \
    LOOP(max_##type,    high,     MAX_##how, 0)

#define OCCL_MOVER_LOOPS(LOOP)                                                            \
    OCCL_LOOPS_OF_WIDTH(LOOP, 8)                                                          \
    OCCL_LOOPS_OF_WIDTH(LOOP, 16)                                                         \
    OCCL_LOOPS_OF_WIDTH(LOOP, 32)                                                         \
    OCCL_LOOPS_OF_WIDTH(LOOP, 64)                                                         \
    LOOP(band,    RAW,     AND,     0)                                                    \
    LOOP(bor,     RAW,     OR,      0)                                                    \
    LOOP(bxor,    RAW,     XOR,     0)                                                    \
    LOOP(avg_i8,  SUM_I8,  ADD_U16, 0)                                                    \
    LOOP(avg_u8,  SUM_U8,  ADD_U16, 0)                                                    \
    LOOP(avg_i16, SUM_I16, ADD_U32, 0)                                                    \
    LOOP(avg_u16, SUM_U16, ADD_U32, 0)                                                    \
    LOOP(avg_i32, SUM_I32, ADD_U64, 0)                                                    \
    LOOP(avg_u32, SUM_U32, ADD_U64, 0)                                                    \
    LOOP(avg_i64, SUM_I64, ADD_U64, 0)                                                    \
    LOOP(avg_u64, SUM_U64, ADD_U64, 0)                                                    \
    OCCL_LOOPS_OF_FLOAT(LOOP, FLOAT8E4M3, FLOAT8E4M3_256, 32)                             \
    OCCL_LOOPS_OF_FLOAT(LOOP, FLOAT8E5M2, FLOAT8E5M2, 32)                                 \
    OCCL_LOOPS_OF_FLOAT(LOOP, FLOAT16, FLOAT16, 32)                                       \
    OCCL_LOOPS_OF_FLOAT(LOOP, BFLOAT16, BFLOAT16, 32)                                     \
    OCCL_LOOPS_OF_FLOAT(LOOP, FLOAT32, FLOAT32, 32)                                       \
    OCCL_LOOPS_OF_FLOAT(LOOP, FLOAT64, FLOAT64, 64)                                       \
    OCCL_LOOPS_OF_EXTREMES(LOOP, FLOAT8E4M3, LOW_FLOAT8E4M3, HIGH_FLOAT8E4M3, I8)         \
    OCCL_LOOPS_OF_EXTREMES(LOOP, FLOAT8E5M2, LOW_FLOAT8E5M2, HIGH_FLOAT8E5M2, I8)         \
    OCCL_LOOPS_OF_EXTREMES(LOOP, FLOAT16, LOW_FLOAT16, HIGH_FLOAT16, I16)                 \
    OCCL_LOOPS_OF_EXTREMES(LOOP, BFLOAT16, LOW_BFLOAT16, HIGH_BFLOAT16, I16)              \
    OCCL_LOOPS_OF_EXTREMES(LOOP, FLOAT32, FLOAT32, FLOAT32, F32)                          \
    OCCL_LOOPS_OF_EXTREMES(LOOP, FLOAT64, FLOAT64, FLOAT64, F64)                          \
    LOOP(minloc_FLOAT32_INT32, LOW_PAIR_F32,  MIN_I64,  0)                                \
    LOOP(maxloc_FLOAT32_INT32, HIGH_PAIR_F32, MIN_I64,  0)                                \
    LOOP(minloc_INT32_INT32,   LOW_PAIR_I32,  MIN_I64,  0)                                \
    LOOP(maxloc_INT32_INT32,   HIGH_PAIR_I32, MIN_I64,  0)                                \
    LOOP(minloc_FLOAT64_INT64, LOW_PAIR_F64,  MIN_PAIR, 0)                                \
    LOOP(maxloc_FLOAT64_INT64, HIGH_PAIR_F64, MIN_PAIR, 0)                                \
    LOOP(minloc_INT64_INT64,   LOW_PAIR_I64,  MIN_PAIR, 0)                                \
    LOOP(maxloc_INT64_INT64,   HIGH_PAIR_I64, MIN_PAIR, 0)

#define OCCL_ROWS_OF_INT(ROW, type, sign, w)    \
    ROW(type, SUM,       add_##w)               \
    ROW(type, PROD,      mul_##w)               \
    ROW(type, MAX,       max_##sign##w)         \
    ROW(type, MIN,       min_##sign##w)         \
    ROW(type, AVG,       avg_##sign##w)         \
    ROW(type, PREMULSUM, scaled_##w)            \
    ROW(type, BAND,      band)                  \
    ROW(type, BOR,       bor)                   \
    ROW(type, BXOR,      bxor)                  \
    ROW(type, LAND,      land_##w)              \
    ROW(type, LOR,       lor_##w)               \
    ROW(type, LXOR,      lxor_##w)

#define OCCL_ROWS_OF_FLOAT(ROW, type)           \
    ROW(type, SUM,       add_##type)            \
    ROW(type, PROD,      mul_##type)            \
    ROW(type, MAX,       max_##type)            \
    ROW(type, MIN,       min_##type)            \
    ROW(type, AVG,       add_##type)            \
    ROW(type, PREMULSUM, scaled_##type)

#define OCCL_ROWS_OF_PAIR(ROW, type)            \
    ROW(type, MINLOC,    minloc_##type)         \
    ROW(type, MAXLOC,    maxloc_##type)

#define OCCL_MOVER_ROWS(ROW)                    \
    OCCL_ROWS_OF_INT(ROW, INT8, i, 8)           \
    OCCL_ROWS_OF_INT(ROW, UINT8, u, 8)          \
    OCCL_ROWS_OF_INT(ROW, INT16, i, 16)         \
    OCCL_ROWS_OF_INT(ROW, UINT16, u, 16)        \
    OCCL_ROWS_OF_INT(ROW, INT32, i, 32)         \
    OCCL_ROWS_OF_INT(ROW, UINT32, u, 32)        \
    OCCL_ROWS_OF_INT(ROW, INT64, i, 64)         \
    OCCL_ROWS_OF_INT(ROW, UINT64, u, 64)        \
    OCCL_ROWS_OF_FLOAT(ROW, FLOAT8E4M3)         \
    OCCL_ROWS_OF_FLOAT(ROW, FLOAT8E5M2)         \
    OCCL_ROWS_OF_FLOAT(ROW, FLOAT16)            \
    OCCL_ROWS_OF_FLOAT(ROW, BFLOAT16)           \
    OCCL_ROWS_OF_FLOAT(ROW, FLOAT32)            \
    OCCL_ROWS_OF_FLOAT(ROW, FLOAT64)            \
    OCCL_ROWS_OF_PAIR(ROW, FLOAT32_INT32)       \
    OCCL_ROWS_OF_PAIR(ROW, FLOAT64_INT64)       \
    OCCL_ROWS_OF_PAIR(ROW, INT32_INT32)         \
    OCCL_ROWS_OF_PAIR(ROW, INT64_INT64)
/* clang-format on */

#define OCCL_FORM_NUMBER(name, vectors) FORM_##name,
enum form { OCCL_MOVER_FORMS(OCCL_FORM_NUMBER) };

#define OCCL_LOOP_NUMBER(name, form, how, scaled) LOOP_##name,
enum loop { LOOP_NONE, OCCL_MOVER_LOOPS(OCCL_LOOP_NUMBER) LOOP_COUNT };

/* How two vectors in a form are combined: the operation and the lanes. */
enum combine {
    COMBINE_ADD_U8,
    COMBINE_ADD_U16,
    COMBINE_ADD_U32,
    COMBINE_ADD_U64,
    COMBINE_ADD_F32,
    COMBINE_ADD_F64,
    COMBINE_MUL_U8,
    COMBINE_MUL_U16,
    COMBINE_MUL_U32,
    COMBINE_MUL_U64,
    COMBINE_MUL_F32,
    COMBINE_MUL_F64,
    COMBINE_MIN_I8,
    COMBINE_MIN_I16,
    COMBINE_MIN_I32,
    COMBINE_MIN_I64,
    COMBINE_MIN_U8,
    COMBINE_MIN_U16,
    COMBINE_MIN_U32,
    COMBINE_MIN_U64,
    COMBINE_MIN_F32,
    COMBINE_MIN_F64,
    COMBINE_MAX_I8,
    COMBINE_MAX_I16,
    COMBINE_MAX_I32,
    COMBINE_MAX_I64,
    COMBINE_MAX_U8,
    COMBINE_MAX_U16,
    COMBINE_MAX_U32,
    COMBINE_MAX_U64,
    COMBINE_MAX_F32,
    COMBINE_MAX_F64,
    COMBINE_AND,
    COMBINE_OR,
    COMBINE_XOR,
    COMBINE_MIN_PAIR
};

#endif
