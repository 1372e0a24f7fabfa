/* SPDX-License-Identifier: Apache-2.0 */
/* The last-level cache as one core reaches it. The kernel says so; sysconf adds up, or guesses,
 * what all cores of a socket have, which is more by a factor of ten on chiplets. */
#include <sched.h>
#include <stdio.h>

#include "gpu/host/reduce.h"

#define LEVELS_MAX 8
/* Where the kernel does not tell. */
#define CACHE_BYTES_DEFAULT (32ull << 20)

static uint64_t read_size(int cpu, int index) {
    char path[96], unit = 'K';
    unsigned long long size = 0;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu,
                   index);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%llu%c", &size, &unit) < 1)
        size = 0;
    (void)fclose(file);
    return unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : size;
}

uint64_t occl_movers_cache_bytes(void) {
    int cpu = sched_getcpu();
    uint64_t largest = 0;
    for (int index = 0; index < LEVELS_MAX; index++) {
        uint64_t bytes = read_size(cpu < 0 ? 0 : cpu, index);
        if (bytes > largest)
            largest = bytes;
    }
    return largest ? largest : CACHE_BYTES_DEFAULT;
}
