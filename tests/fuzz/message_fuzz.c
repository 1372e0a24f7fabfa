/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams as a client may send them: header check, then the names inside, as the daemon does. */
#include "shm_ipc/wire.h"
#include "tests/fuzz/fuzz.h"

static void name(const char *text, uint32_t bytes) {
    struct occl_detail detail;
    if (occl_name_check(text, bytes, "name", &detail) == OCCL_OK) {
        size_t length = strlen(text);
        fuzz_expect(length < bytes);
        for (size_t i = 0; i < length; i++)
            fuzz_expect(text[i] > ' ' && text[i] < 0x7f);
    } else {
        fuzz_expect(detail.status == OCCL_E_PROTOCOL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct occl_detail detail;
    struct occl_msg_header h;
    memset(&detail, 0, sizeof detail);
    if (bytes > OCCL_MESSAGE_BYTES_MAX)
        return 0;
    int status = occl_msg_check(data, (uint32_t)bytes, &detail);
    if (status != OCCL_OK) {
        fuzz_expect(status == OCCL_E_PROTOCOL);
        fuzz_expect(detail.status == status);
        fuzz_expect(memchr(detail.text, '\0', sizeof detail.text) != NULL);
        return 0;
    }
    memcpy(&h, data, sizeof h);
    fuzz_expect(h.bytes == bytes);
    fuzz_expect(occl_msg_bytes(h.type) == bytes);
    switch (h.type) {
    case OCCL_MSG_HELLO: {
        struct occl_msg_hello m;
        memcpy(&m, data, sizeof m);
        name(m.job, sizeof m.job);
        name(m.tag, sizeof m.tag);
        name(m.program, sizeof m.program);
        break;
    }
    case OCCL_MSG_COMM_CREATE: {
        struct occl_msg_comm_create m;
        memcpy(&m, data, sizeof m);
        name(m.name, sizeof m.name);
        break;
    }
    case OCCL_MSG_COMM_SPLIT: {
        struct occl_msg_comm_split m;
        memcpy(&m, data, sizeof m);
        name(m.name, sizeof m.name);
        break;
    }
    default:
        break;
    }
    return 0;
}
