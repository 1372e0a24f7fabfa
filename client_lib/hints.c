/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: what a rank wishes for a communicator, as "key=value,key=value". */
#include <stdio.h>
#include <string.h>

#include "client_lib/client.h"

/* Each key has two values: the usual one, and the wish. */
static const struct {
    const char *key, *usual, *wish;
} known[] = {
    {"wait", "auto", "sleep"},
    {"cross_memory", "auto", "off"},
};
enum { HINT_WAIT, HINT_CROSS_MEMORY, HINTS };

static bool *field(struct client_hints *hints, uint32_t index) {
    return index == HINT_WAIT ? &hints->sleeps : &hints->no_cross_memory;
}

static bool equals(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static int parse_one(const char *text, size_t length, struct client_hints *hints) {
    const char *equal = memchr(text, '=', length);
    size_t key = equal ? (size_t)(equal - text) : length;
    for (uint32_t i = 0; i < HINTS; i++) {
        if (!equal || !equals(text, key, known[i].key))
            continue;
        const char *value = equal + 1;
        size_t rest = length - key - 1;
        bool wish = equals(value, rest, known[i].wish);
        if (!wish && !equals(value, rest, known[i].usual))
            return client_fail(OCCL_E_INVALID, "hint %s: value '%.*s', expected %s or %s",
                               known[i].key, (int)rest, value, known[i].usual, known[i].wish);
        *field(hints, i) = wish;
        return OCCL_OK;
    }
    return client_fail(OCCL_E_INVALID, "hint '%.*s', expected wait=... or cross_memory=...",
                       (int)length, text);
}

int client_hints_parse(const char *text, struct client_hints *out_hints) {
    *out_hints = (struct client_hints){false, false};
    int status = OCCL_OK;
    while (status == OCCL_OK && text && *text) {
        size_t length = strcspn(text, ",");
        status = parse_one(text, length, out_hints);
        text += length + (text[length] == ',');
    }
    return status;
}

OCCL_PUBLIC enum occl_result occl_comm_get_hint(struct occl_comm handle, const char *key,
                                                char *out_value, size_t bytes) {
    if (!key || !out_value)
        return client_fail(OCCL_E_INVALID, "%s is NULL", key ? "out_value" : "key");
    int status;
    struct client_comm *comm = client_comm_ask(handle, &status);
    if (!comm)
        return status;
    status = client_fail(OCCL_E_INVALID, "hint '%s', expected wait or cross_memory", key);
    for (uint32_t i = 0; i < HINTS; i++) {
        if (strcmp(key, known[i].key) != 0)
            continue;
        bool wish = i == HINT_CROSS_MEMORY ? comm->cma == 0 : comm->hints.sleeps;
        const char *value = wish ? known[i].wish : known[i].usual;
        if (strlen(value) < bytes) {
            (void)snprintf(out_value, bytes, "%s", value);
            status = OCCL_OK;
        } else {
            status = client_fail(OCCL_E_INVALID, "hint %s: %zu bytes of room, expected %zu", key,
                                 bytes, strlen(value) + 1);
        }
    }
    client_comm_answered(comm);
    return status;
}
