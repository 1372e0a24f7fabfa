/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ipc/op_kind.h"

#define NONE OCCL_EXTENT_NONE
#define BLOCK OCCL_EXTENT_BLOCK
#define ALL OCCL_EXTENT_ALL
#define TYPED OCCL_KIND_TYPED
#define REDUCES (OCCL_KIND_TYPED | OCCL_KIND_REDUCES)
#define ROOTED OCCL_KIND_ROOTED
#define SOURCE (OCCL_KIND_ROOTED | OCCL_KIND_SOURCE)
#define SINK (OCCL_KIND_ROOTED | OCCL_KIND_CONTRIBUTES)
#define VECTOR OCCL_KIND_VECTOR
#define PAIR (OCCL_KIND_TYPED | OCCL_KIND_PAIR | OCCL_KIND_SOURCE)
#define PREFIX (REDUCES | OCCL_KIND_PREFIX)
#define EXPREFIX (PREFIX | OCCL_KIND_EXCLUSIVE)

/* clang-format off */
const struct occl_kind_traits occl_kind_table[OCCL_OP_LIMIT] = {
    /*                    name              flags            send: root, rest   recv: root, rest */
    [OCCL_OP_ALL_REDUCE] = {"all_reduce",     REDUCES,         BLOCK, BLOCK,       BLOCK, BLOCK},
    [OCCL_OP_BROADCAST]  = {"broadcast",      TYPED | SOURCE,  BLOCK, NONE,        BLOCK, BLOCK},
    [OCCL_OP_BARRIER]    = {"barrier",        0,               NONE,  NONE,        NONE,  NONE},
    [OCCL_OP_SEND]       = {"send",           PAIR,            BLOCK, NONE,        NONE,  BLOCK},
    [OCCL_OP_RECV]       = {"recv",           PAIR,            BLOCK, NONE,        NONE,  BLOCK},
    [OCCL_OP_REDUCE]     = {"reduce",         REDUCES | SINK,  BLOCK, BLOCK,       BLOCK, NONE},
    [OCCL_OP_ALL_GATHER] = {"all_gather",     TYPED,           BLOCK, BLOCK,       ALL,   ALL},
    [OCCL_OP_REDUCE_SCATTER]
                         = {"reduce_scatter", REDUCES,         ALL,   ALL,         BLOCK, BLOCK},
    [OCCL_OP_ALL_TO_ALL] = {"all_to_all",     TYPED,           ALL,   ALL,         ALL,   ALL},
    [OCCL_OP_GATHER]     = {"gather",         TYPED | SINK,    BLOCK, BLOCK,       ALL,   NONE},
    [OCCL_OP_SCATTER]    = {"scatter",        TYPED | SOURCE,  ALL,   NONE,        BLOCK, BLOCK},
    [OCCL_OP_SCAN]       = {"scan",           PREFIX,          BLOCK, BLOCK,       BLOCK, BLOCK},
    [OCCL_OP_EXSCAN]     = {"exscan",         EXPREFIX,        BLOCK, BLOCK,       BLOCK, BLOCK},
    [OCCL_OP_FAN_IN]     = {"fan_in",         SINK,            NONE,  NONE,        NONE,  NONE},
    [OCCL_OP_FAN_OUT]    = {"fan_out",        SOURCE,          NONE,  NONE,        NONE,  NONE},
    [OCCL_OP_ALL_GATHER_V]
                         = {"all_gather_v",   TYPED | VECTOR,  BLOCK, BLOCK,       ALL,   ALL},
    [OCCL_OP_REDUCE_SCATTER_V]
                         = {"reduce_scatter_v", REDUCES | VECTOR, ALL, ALL,        BLOCK, BLOCK},
    [OCCL_OP_ALL_TO_ALL_V]
                         = {"all_to_all_v",   TYPED | VECTOR,  ALL,   ALL,         ALL,   ALL},
    [OCCL_OP_GATHER_V]   = {"gather_v",       TYPED | SINK | VECTOR,
                                                               BLOCK, BLOCK,       ALL,   NONE},
    [OCCL_OP_SCATTER_V]  = {"scatter_v",      TYPED | SOURCE | VECTOR,
                                                               ALL,   NONE,        BLOCK, BLOCK},
};
/* clang-format on */
