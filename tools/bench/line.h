/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far apart the first two cores are: the round trip of a cache line between them. A virtual
 * machine's cores wander among those of the host, and with them this time, by a factor of ten,
 * while a benchmark runs. Short operations follow it, so results are compared at the same distance
 * only.
 *
 * Memory order of the fields, which lie in the control file (control.h):
 *
 *   field  written by  read by  store    load     pairs with
 *   ping   rank 0      rank 1   release  acquire  rank 1's look for the next number
 *   pong   rank 1      rank 0   release  acquire  rank 0's look for the answer
 *
 * Each number is one above the one before, also from one measurement to the next; the writer of a
 * field is the only one, so it reads its own field plainly.
 */
#ifndef OCCL_TOOLS_BENCH_LINE_H
#define OCCL_TOOLS_BENCH_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "tools/bench/control.h"

/* Two lines apart each: a prefetcher that takes the neighbouring line must not mix them. */
struct occl_bench_line {
    _Alignas(128) uint32_t ping;
    _Alignas(128) uint32_t pong;
};

/*
 * Called by all ranks, outside of timed calls. Ranks 0 and 1 bind themselves to cores[0] and
 * cores[1], send a line to and fro some hundred times, and take their earlier masks again; the
 * others sleep meanwhile. Blocks for some 0.1 ms (0.3 ms for cores far apart). Returns the
 * nanoseconds of a round trip on rank 0; NAN on all others, and where it cannot be measured: one
 * rank, twice the same core, or a core that one of the two may not use.
 */
double occl_bench_line_ns(struct occl_bench_control *control, const int cores[2]);

/* Room for the text of two measurements. */
#define OCCL_BENCH_LINE_TEXT_BYTES 64u

/* What was measured before and after a point, as a JSON array, or null where not measured. */
void occl_bench_line_text(const double line_ns[2], char out_text[OCCL_BENCH_LINE_TEXT_BYTES]);

#endif
