/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings: the only place where a key is named. */
#include <stddef.h>

#include "daemon/config.h"

#define AT(member) (uint32_t) offsetof(struct occl_config, member)
#define ROOM(member) (uint32_t)sizeof(((struct occl_config *)0)->member)
#define TEXT(name_, default_, reload_, help_) \
    { #name_, OCCL_CONFIG_TEXT, AT(name_), ROOM(name_), 0, 0, NULL, default_, reload_, help_ }
#define CHOICE(name_, words_, default_, reload_, help_) \
    { #name_, OCCL_CONFIG_CHOICE, AT(name_), ROOM(name_), 0, 0, words_, default_, reload_, help_ }
#define NUMBER(name_, min_, max_, default_, reload_, help_) \
    { #name_, OCCL_CONFIG_NUMBER, AT(name_), 0, min_, max_, NULL, default_, reload_, help_ }
#define TIME(name_, min_, max_, default_, reload_, help_) \
    { #name_, OCCL_CONFIG_TIME, AT(name_##_ns), 0, (min_), (max_), NULL, default_, reload_, help_ }
#define SIZE(name_, min_, max_, default_, reload_, help_)                                        \
    {                                                                                            \
#name_, OCCL_CONFIG_SIZE, AT(name_##_bytes), 0, (min_), (max_), NULL, default_, reload_, \
            help_                                                                                \
    }

#define MS 1000000ull
#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define MIB (1ull << 20)
#define TIB (1ull << 40)

static const struct occl_config_key keys[] = {
    TEXT(socket, "/run/occl/occld.sock", false,
         "path of the listening socket; several, separated by commas, make separate tenants"),
    {"socket_mode", OCCL_CONFIG_OCTAL, AT(socket_mode), 0, 0600, 0777, NULL, "0666", false,
     "permissions of the socket (octal)"},
    TEXT(operator_group, "", true,
         "group whose members may see and change everything; empty: only root"),
    CHOICE(log_level, "none|error|warn|info|debug", "info", true, "lines above it are dropped"),
    CHOICE(log_format, "auto|text|json|journal", "auto", false,
           "auto: journal under systemd, else text"),
    CHOICE(loop, "auto|io_uring|epoll", "auto", false,
           "engine of the control loop; auto: io_uring, epoll where it is forbidden"),
    NUMBER(lanes, 0, 64, "0", false,
           "executor threads; 0: as many as cores in the CPU set, at most 4"),
    TIME(handshake_timeout, 10 * MS, 600 * SECOND, "5s", true,
         "a connection that has not said hello by then is dropped"),
    TIME(drain_timeout, 0, 24 * HOUR, "30s", true, "how long running ops may go on after SIGTERM"),
    TIME(default_timeout, 0, 8760 * HOUR, "0", true,
         "deadline of ops where the communicator sets none; 0: none"),
    TIME(peer_dead, 0, 24 * HOUR, "10s", true,
         "how long an aborted op may wait for a member that is stopped in its middle"),
    TIME(stall_interval, 10 * MS, 24 * HOUR, "10s", true,
         "age at which a waiting op is reported in the log; the gaps then grow"),
    TIME(unkillable_after, 10 * MS, 24 * HOUR, "2s", true,
         "a killed process that is still there by then is fenced and reported"),
    TIME(ageing, 100000, 10 * SECOND, "10ms", false,
         "a runnable op of a lower class gets one slice per this time"),
    TIME(patience_min, 0, SECOND, "2us", false, "least time a lane waits at one op"),
    TIME(patience_max, 1000, SECOND, "100us", false, "most time a lane waits at one op"),
    TEXT(metrics_file, "", false, "Prometheus text file to write; empty: none"),
    TIME(metrics_interval, 100 * MS, 24 * HOUR, "15s", true,
         "time between two writes of the metrics file"),
    SIZE(direct_max, 0, OCCL_DIRECT_MAX_BYTES, "4096", false,
         "largest payload that every rank computes for itself; up to 128 bytes always"),
    SIZE(copy_max, 0, OCCL_COPY_MAX_BYTES, "2MiB", false,
         "largest private buffer that a process copies through shared memory where that is quicker "
         "than reading it from another process; 0: none"),
    SIZE(memory_limit, 0, 1024 * TIB, "0", false,
         "memory the daemon may count on; 0: that of its cgroup or the machine"),
    SIZE(registered_max, 0, 1024 * TIB, "0", false,
         "shared memory of all tenants together; 0: three quarters of memory_limit"),
    SIZE(send_queue, 16384, 64 * MIB, "262144", false,
         "messages kept for a client that does not read; beyond it is disconnected"),
    NUMBER(strays_max, 8, 65536, "2048", false,
           "connections that have not said hello; the oldest is dropped beyond"),
    NUMBER(tenants_max, 1, 65536, "256", false, "tenants at once"),
    NUMBER(ops_max, 256, 1048576, "65536", false, "ops inside the daemon, over all tenants"),
    NUMBER(sq_entries, OCCL_RING_ENTRIES_MIN, OCCL_CQ_ENTRIES, "256", false,
           "submission ring of a client that asks for no size"),
    NUMBER(quota_sessions, 1, 1048576, "1024", true, "attached processes of a tenant"),
    NUMBER(quota_communicators, 1, 1048576, "4096", true, "communicators of a tenant"),
    NUMBER(quota_ops, 1, 1048576, "65536", true, "ops of a tenant inside the daemon"),
    NUMBER(quota_regions, 1, 1048576, "4096", true, "memory regions of a tenant"),
    {"quota_registered", OCCL_CONFIG_SIZE, AT(quota_registered_bytes), 0, 0, 1024 * TIB, NULL, "0",
     true, "shared memory of a tenant; 0: half of registered_max"},
    {"job_class", OCCL_CONFIG_CLASS, AT(job_class), 0, 0, 3, NULL, "normal", true,
     "class of new jobs"},
    NUMBER(job_weight, 1, OCCL_WEIGHT_MAX, "100", true, "share of new jobs inside their tenant"),
    NUMBER(tenant_weight, 1, OCCL_WEIGHT_MAX, "100", true, "share of new tenants"),
};

_Static_assert(sizeof keys / sizeof *keys <= OCCL_CONFIG_KEYS_MAX, "each key has an origin");

const struct occl_config_key *occl_config_keys(uint32_t *out_count) {
    *out_count = sizeof keys / sizeof *keys;
    return keys;
}
