/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher gives through the environment; unique ids; memory; errors that come late. */
#include <stdlib.h>
#include <string.h>

#include "client_lib/client.h"
#include "client_lib/memory.h"
#include "shm_ipc/unique_id.h"

_Static_assert(sizeof(struct occl_unique_id) == sizeof(struct occl_unique_id_wire), "one size");

OCCL_PUBLIC enum occl_result occl_get_unique_id(struct occl_unique_id *out_id) {
    if (!out_id)
        return client_fail(OCCL_E_INVALID, "out_id is NULL");
    struct occl_clock clock = occl_clock_system(occl_ticks_source_probe());
    struct occl_unique_id_wire id;
    occl_unique_id_make(&clock, &id);
    memcpy(out_id->bytes, id.bytes, sizeof out_id->bytes);
    return OCCL_SUCCESS;
}

static int number_of(const char *variable, long most, int *out_value) {
    const char *text = getenv(variable);
    char *end;
    if (!text)
        return client_fail(OCCL_E_USAGE,
                           "%s is not set: start the program with occlctl run, or use occl_init "
                           "and occl_comm_create",
                           variable);
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 0 || value > most)
        return client_fail(OCCL_E_USAGE, "%s is \"%s\", expected a number in 0..%ld", variable,
                           text, most);
    *out_value = (int)value;
    return OCCL_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static int id_of(const char *variable, struct occl_unique_id *out_id) {
    const char *text = getenv(variable);
    if (!text)
        return client_fail(OCCL_E_USAGE, "%s is not set", variable);
    size_t length = strlen(text);
    if (length != 2 * sizeof out_id->bytes)
        return client_fail(OCCL_E_USAGE, "%s has %zu characters, expected %zu hexadecimal digits",
                           variable, length, 2 * sizeof out_id->bytes);
    for (size_t i = 0; i < sizeof out_id->bytes; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return client_fail(OCCL_E_USAGE, "%s: character %zu is no hexadecimal digit", variable,
                               2 * i);
        out_id->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return OCCL_OK;
}

OCCL_PUBLIC enum occl_result occl_init_env(struct occl_comm *out_comm) {
    struct occl_unique_id id;
    int rank, size;
    if (!out_comm)
        return client_fail(OCCL_E_INVALID, "out_comm is NULL");
    int status = number_of("OCCL_RANK", OCCL_LOCAL_RANKS_MAX - 1, &rank);
    if (status == OCCL_OK)
        status = number_of("OCCL_SIZE", OCCL_LOCAL_RANKS_MAX, &size);
    if (status == OCCL_OK)
        status = id_of("OCCL_UNIQUE_ID", &id);
    if (status == OCCL_OK)
        status = occl_init(NULL);
    if (status)
        return status;
    struct occl_comm_attr attr = OCCL_COMM_ATTR_INIT;
    attr.name = "world";
    status = occl_comm_create(&id, rank, size, &attr, out_comm);
    if (status) {
        char text[OCCL_DETAIL_BYTES];
        client_error_save(text, sizeof text);
        (void)occl_finalize(); /* the first error is the one to report */
        return client_fail(status, "%s", text);
    }
    return OCCL_SUCCESS;
}

OCCL_PUBLIC enum occl_result occl_mem_alloc(size_t bytes, void **out_ptr) {
    int status = client_begin(false);
    if (status)
        return status;
    struct client_region *region;
    if (!out_ptr || bytes == 0)
        status = client_fail(OCCL_E_INVALID, "occl_mem_alloc: %s",
                             out_ptr ? "0 bytes" : "out_ptr is NULL");
    else
        status = client_region_alloc(bytes, &region);
    if (status == OCCL_OK)
        *out_ptr = region->base;
    client_end();
    return status;
}

OCCL_PUBLIC enum occl_result occl_mem_free(void *ptr) {
    uint64_t offset;
    if (!ptr)
        return OCCL_SUCCESS;
    int status = client_begin(true);
    if (status)
        return status;
    struct client_region *region = client_region_of(ptr, 1, &offset);
    if (!region || offset != 0) {
        client_regions_unuse(&region, 1);
        status = client_fail(OCCL_E_INVALID, "%p was not returned by occl_mem_alloc", ptr);
    } else {
        status = client_region_release(region, 1);
    }
    client_end();
    if (status == OCCL_E_DAEMON_LOST || status == OCCL_E_QUARANTINED)
        status = OCCL_OK; /* it is gone with the session */
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_get_async_error(struct occl_comm handle,
                                                       enum occl_result *out_error) {
    int status;
    uint32_t rank;
    if (!out_error)
        return client_fail(OCCL_E_INVALID, "out_error is NULL");
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm) {
        if (status != OCCL_E_DAEMON_LOST && status != OCCL_E_QUARANTINED)
            return status;
        *out_error = (enum occl_result)status;
        return OCCL_SUCCESS;
    }
    client_settle(comm);
    uint32_t late = occl_observe32(&occl_note_at(&comm->m, comm->rank)->async_error);
    int error = client_comm_state(comm, &rank);
    if (error && occl_observe32(&comm->event_set))
        (void)client_fail(error, "%s", comm->event.text); /* names the communicator */
    else if (error)
        (void)client_fail(error, "communicator %s: %s (rank %u)", comm->name,
                          occl_status_text(error), rank);
    if (!error && late)
        error = client_explain_late(comm, late);
    *out_error = (enum occl_result)error;
    client_comm_answered(comm);
    return OCCL_SUCCESS;
}
