/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the 8-bit floats without sign, by their bits, from the definition of the formats.
 * The last of each is not a number that exists: it stands for what lies above the largest one. */
#ifndef TESTS_GPU_HOST_FLOAT8_VALUES_H
#define TESTS_GPU_HOST_FLOAT8_VALUES_H

/* 0x7f is NaN. */
static const double float8e4m3_values[128] = {
    0,        0x1p-9,   0x1p-8,   0x1.8p-8, 0x1p-7,   0x1.4p-7, 0x1.8p-7, 0x1.cp-7, 0x1p-6,
    0x1.2p-6, 0x1.4p-6, 0x1.6p-6, 0x1.8p-6, 0x1.ap-6, 0x1.cp-6, 0x1.ep-6, 0x1p-5,   0x1.2p-5,
    0x1.4p-5, 0x1.6p-5, 0x1.8p-5, 0x1.ap-5, 0x1.cp-5, 0x1.ep-5, 0x1p-4,   0x1.2p-4, 0x1.4p-4,
    0x1.6p-4, 0x1.8p-4, 0x1.ap-4, 0x1.cp-4, 0x1.ep-4, 0x1p-3,   0x1.2p-3, 0x1.4p-3, 0x1.6p-3,
    0x1.8p-3, 0x1.ap-3, 0x1.cp-3, 0x1.ep-3, 0x1p-2,   0x1.2p-2, 0x1.4p-2, 0x1.6p-2, 0x1.8p-2,
    0x1.ap-2, 0x1.cp-2, 0x1.ep-2, 0x1p-1,   0x1.2p-1, 0x1.4p-1, 0x1.6p-1, 0x1.8p-1, 0x1.ap-1,
    0x1.cp-1, 0x1.ep-1, 1,        0x1.2p+0, 0x1.4p+0, 0x1.6p+0, 0x1.8p+0, 0x1.ap+0, 0x1.cp+0,
    0x1.ep+0, 2,        0x1.2p+1, 0x1.4p+1, 0x1.6p+1, 3,        0x1.ap+1, 0x1.cp+1, 0x1.ep+1,
    4,        0x1.2p+2, 5,        0x1.6p+2, 6,        0x1.ap+2, 7,        0x1.ep+2, 8,
    9,        10,       11,       12,       13,       14,       15,       16,       18,
    20,       22,       24,       26,       28,       30,       32,       36,       40,
    44,       48,       52,       56,       60,       64,       72,       80,       88,
    96,       104,      112,      120,      128,      144,      160,      176,      192,
    208,      224,      240,      256,      288,      320,      352,      384,      416,
    448,      480,
};

/* 0x7c is infinity; the NaNs follow. */
static const double float8e5m2_values[125] = {
    0,       0x1p-16,   0x1p-15,   0x1.8p-15, 0x1p-14, 0x1.4p-14, 0x1.8p-14, 0x1.cp-14,
    0x1p-13, 0x1.4p-13, 0x1.8p-13, 0x1.cp-13, 0x1p-12, 0x1.4p-12, 0x1.8p-12, 0x1.cp-12,
    0x1p-11, 0x1.4p-11, 0x1.8p-11, 0x1.cp-11, 0x1p-10, 0x1.4p-10, 0x1.8p-10, 0x1.cp-10,
    0x1p-9,  0x1.4p-9,  0x1.8p-9,  0x1.cp-9,  0x1p-8,  0x1.4p-8,  0x1.8p-8,  0x1.cp-8,
    0x1p-7,  0x1.4p-7,  0x1.8p-7,  0x1.cp-7,  0x1p-6,  0x1.4p-6,  0x1.8p-6,  0x1.cp-6,
    0x1p-5,  0x1.4p-5,  0x1.8p-5,  0x1.cp-5,  0x1p-4,  0x1.4p-4,  0x1.8p-4,  0x1.cp-4,
    0x1p-3,  0x1.4p-3,  0x1.8p-3,  0x1.cp-3,  0x1p-2,  0x1.4p-2,  0x1.8p-2,  0x1.cp-2,
    0x1p-1,  0x1.4p-1,  0x1.8p-1,  0x1.cp-1,  1,       0x1.4p+0,  0x1.8p+0,  0x1.cp+0,
    2,       0x1.4p+1,  3,         0x1.cp+1,  4,       5,         6,         7,
    8,       10,        12,        14,        16,      20,        24,        28,
    32,      40,        48,        56,        64,      80,        96,        112,
    128,     160,       192,       224,       256,     320,       384,       448,
    512,     640,       768,       896,       1024,    1280,      1536,      1792,
    2048,    2560,      3072,      3584,      4096,    5120,      6144,      7168,
    8192,    10240,     12288,     14336,     16384,   20480,     24576,     28672,
    32768,   40960,     49152,     57344,     65536,
};

#endif
