/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI as numbers: every member's place and size against a golden list, every status, message,
 * type and operator number, and the checks of what comes over the socket. A change here is a new
 * ABI version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shm_ipc/abi.h"
#include "shm_ipc/datatype.h"
#include "shm_ipc/record.h"
#include "shm_ipc/session.h"
#include "shm_ipc/status.h"
#include "shm_ipc/tag_batch.h"
#include "shm_ipc/wire.h"

struct text {
    char bytes[32768];
    size_t used;
};

static void add(struct text *text, const char *type, const char *member, size_t at, size_t bytes) {
    int n = snprintf(text->bytes + text->used, sizeof text->bytes - text->used, "%s%s%s %zu %zu\n",
                     type, member[0] ? "." : "", member, at, bytes);
    assert_true(n > 0 && (size_t)n < sizeof text->bytes - text->used);
    text->used += (size_t)n;
}

#define S(type) add(text, #type, "", 0, sizeof(struct type));
#define M(type, member) \
    add(text, #type, #member, offsetof(struct type, member), sizeof(((struct type *)0)->member));

static void list_job_page(struct text *text) {
    S(occl_job_page)
    M(occl_job_page, magic)
    M(occl_job_page, abi_version)
    M(occl_job_page, job_class)
    M(occl_job_page, gate)
    M(occl_job_page, gate_bell)
    M(occl_job_page, granted_bytes)
    M(occl_job_page, charged_bytes_seen)
    M(occl_job_page, node_ranks)
    M(occl_job_page, node_cores)
    M(occl_job_page, job_ranks)
    M(occl_job_page, job_cores)
}

static void list_session(struct text *text) {
    S(occl_signature)
    M(occl_signature, kind)
    M(occl_signature, dtype)
    M(occl_signature, redop)
    M(occl_signature, selection_version)
    M(occl_signature, root)
    M(occl_signature, program_id)
    M(occl_signature, count)
    S(occl_buffer_ref)
    M(occl_buffer_ref, space)
    M(occl_buffer_ref, region)
    M(occl_buffer_ref, offset)
    S(occl_op_key)
    M(occl_op_key, peers)
    M(occl_op_key, tag)
    M(occl_op_key, instance)
}

static void list_session_page(struct text *text) {
    S(occl_session_page)
    M(occl_session_page, magic)
    M(occl_session_page, abi_version)
    M(occl_session_page, page_bytes)
    M(occl_session_page, session_id)
    M(occl_session_page, daemon_epoch)
    M(occl_session_page, sq_entries)
    M(occl_session_page, cq_entries)
    M(occl_session_page, sq_offset)
    M(occl_session_page, cq_offset)
    M(occl_session_page, session_state)
    M(occl_session_page, ticks_source)
    M(occl_session_page, sq_tail)
    M(occl_session_page, sq_head)
    M(occl_session_page, cq_tail)
    M(occl_session_page, cq_head)
    M(occl_session_page, daemon_sleeping)
    M(occl_session_page, cq_bell)
    M(occl_session_page, cq_sleepers)
    M(occl_session_page, threads_using)
    M(occl_session_page, threads_waiting)
    M(occl_session_page, held_ticks)
    M(occl_session_page, held)
    M(occl_session_page, held_after)
    M(occl_session_page, held_total)
    S(occl_held_op)
    M(occl_held_op, key)
    M(occl_held_op, comm)
    S(occl_sqe)
    M(occl_sqe, verb)
    M(occl_sqe, priority)
    M(occl_sqe, slot)
    M(occl_sqe, comm)
    M(occl_sqe, key)
    M(occl_sqe, flags)
    M(occl_sqe, signature)
    M(occl_sqe, src)
    M(occl_sqe, dst)
    M(occl_sqe, user_data)
    M(occl_sqe, submit_ticks)
    M(occl_sqe, deadline_ns)
    M(occl_sqe, factor)
    M(occl_sqe, vector)
    S(occl_cqe)
    M(occl_cqe, user_data)
    M(occl_cqe, status)
    M(occl_cqe, about_rank)
    M(occl_cqe, field)
    M(occl_cqe, preemptions)
    M(occl_cqe, detail)
}

static void list_record(struct text *text) {
    S(occl_line)
    M(occl_line, flag)
    M(occl_line, count)
    M(occl_line, tag)
    M(occl_line, instance)
    M(occl_line, kind)
    M(occl_line, dtype)
    M(occl_line, redop)
    M(occl_line, root)
    M(occl_line, peers)
    M(occl_line, program_id)
    M(occl_line, u)
    M(occl_line, submit_ticks)
    M(occl_line, wait_since_ticks)
    M(occl_line, waiters)
    M(occl_line, busy)
    M(occl_line, factor)
    M(occl_line, vector)
    M(occl_line, after)
    M(occl_line, after_tag)
    M(occl_line, after_instance)
    M(occl_line, after_comm)
    M(occl_line, inlined)
    S(occl_record)
    M(occl_record, state)
    M(occl_record, event)
    M(occl_record, sleepers)
    M(occl_record, strands_next)
    M(occl_record, strands_done)
    M(occl_record, lanes_busy)
    S(occl_claim)
    M(occl_claim, word)
    M(occl_claim, left)
    S(occl_rank_note)
    M(occl_rank_note, last_key)
    M(occl_rank_note, last_kind)
    M(occl_rank_note, last_ticks)
    M(occl_rank_note, ops_done)
    M(occl_rank_note, bytes_done)
    M(occl_rank_note, bytes_executed)
    M(occl_rank_note, errors)
    M(occl_rank_note, stream_done)
    M(occl_rank_note, async_error)
    M(occl_rank_note, async_kind)
    M(occl_rank_note, cpu)
    M(occl_rank_note, async_told)
    M(occl_rank_note, probe_address)
    M(occl_rank_note, async_mine)
    M(occl_rank_note, async_theirs)
    M(occl_rank_note, async_key)
}

static void list_comm(struct text *text) {
    S(occl_comm_page)
    M(occl_comm_page, magic)
    M(occl_comm_page, abi_version)
    M(occl_comm_page, ranks)
    M(occl_comm_page, page_bytes)
    M(occl_comm_page, comm_uid)
    M(occl_comm_page, records)
    M(occl_comm_page, record_stride)
    M(occl_comm_page, records_offset)
    M(occl_comm_page, notes_offset)
    M(occl_comm_page, payload_offset)
    M(occl_comm_page, payload_stride)
    M(occl_comm_page, payload_chunk_bytes)
    M(occl_comm_page, claims_offset)
    M(occl_comm_page, tags_offset)
    M(occl_comm_page, comm_state)
    M(occl_comm_page, dead_mask)
    M(occl_comm_page, gone_mask)
    M(occl_comm_page, probe_nonce)
    S(occl_tag_batch)
    M(occl_tag_batch, word)
    M(occl_tag_batch, voted)
    M(occl_tag_batch, acted)
    M(occl_tag_batch, advance)
    S(occl_tag_vote)
    M(occl_tag_vote, stale)
    M(occl_tag_vote, digest)
    M(occl_tag_vote, reach)
}

static void list_messages(struct text *text) {
    S(occl_msg_header)
    M(occl_msg_header, magic)
    M(occl_msg_header, type)
    M(occl_msg_header, abi_version)
    M(occl_msg_header, bytes)
    M(occl_msg_header, request)
    S(occl_msg_hello)
    M(occl_msg_hello, abi_min)
    M(occl_msg_hello, abi_max)
    M(occl_msg_hello, role)
    M(occl_msg_hello, job)
    M(occl_msg_hello, tag)
    M(occl_msg_hello, program)
    S(occl_msg_welcome)
    M(occl_msg_welcome, session_id)
    M(occl_msg_welcome, host)
    M(occl_msg_welcome, version)
    S(occl_detail)
    M(occl_detail, system_error)
    M(occl_detail, text)
    for (uint32_t type = 1; occl_msg_bytes(type); type++)
        add(text, "message", occl_msg_name(type), type, occl_msg_bytes(type));
}

static void list_types(struct text *text) {
    for (uint32_t dtype = 0; dtype < OCCL_DT_LIMIT; dtype++)
        if (occl_dtype_name(dtype) != NULL)
            add(text, "type", occl_dtype_name(dtype), dtype, occl_dtype_bytes(dtype));
    for (uint32_t redop = 0; redop < OCCL_RO_LIMIT; redop++)
        if (occl_redop_name(redop) != NULL)
            add(text, "operator", occl_redop_name(redop), redop, 0);
}

static void abi_matches_golden_list(void **state) {
    (void)state;
    static struct text now;
    static char golden[sizeof now.bytes];
    now.used = 0;
    list_session(&now);
    list_session_page(&now);
    list_job_page(&now);
    list_record(&now);
    list_comm(&now);
    list_messages(&now);
    list_types(&now);
    FILE *file = fopen("tests/shm_ipc/abi.golden", "r");
    assert_non_null(file);
    size_t got = fread(golden, 1, sizeof golden - 1, file);
    golden[got] = '\0';
    assert_int_equal(fclose(file), 0);
    bool same = strcmp(golden, now.bytes) == 0;
    /* Whole, so that it can become the new list (cmocka's own messages are short). */
    if (!same)
        (void)fprintf(stderr, "the ABI now:\n%s", now.bytes);
    assert_true(same);
}

static void status_numbers_are_fixed(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *name;
    } expected[] = {
        {0, "OK"},
        {1, "PENDING"},
        {2, "WOULD_BLOCK"},
        {-1, "E_INVALID"},
        {-2, "E_HANDLE"},
        {-3, "E_USAGE"},
        {-4, "E_NO_MEMORY"},
        {-5, "E_UNSUPPORTED"},
        {-6, "E_QUOTA"},
        {-7, "E_TIMEOUT"},
        {-8, "E_MISMATCH"},
        {-9, "E_FAULT"},
        {-10, "E_CANCELED"},
        {-11, "E_FORKED"},
        {-12, "E_TRUNCATED"},
        {-13, "E_BUSY"},
        {-14, "E_NOT_FOUND"},
        {-20, "E_NO_DAEMON"},
        {-21, "E_PERMISSION"},
        {-22, "E_VERSION"},
        {-23, "E_DAEMON_LOST"},
        {-24, "E_QUARANTINED"},
        {-25, "E_PROTOCOL"},
        {-40, "E_TENANT_REFUSED"},
        {-60, "E_PEER_FAILED"},
        {-61, "E_REVOKED"},
        {-62, "E_ABORTED"},
        {-80, "E_SHUTTING_DOWN"},
        {-81, "E_INTERNAL"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_string_equal(occl_status_name(expected[i].status), expected[i].name);
        assert_true(strlen(occl_status_text(expected[i].status)) > 3);
    }
    int named = 0;
    for (int status = -300; status < 300; status++)
        named += strcmp(occl_status_name(status), "UNKNOWN") != 0;
    assert_int_equal(named, sizeof expected / sizeof *expected);
}

/* What two programs built apart write into one page and read there. */
static void record_numbers_are_fixed(void **state) {
    (void)state;
    static const uint32_t numbers[][2] = {
        {OCCL_REC_OPEN, 0},
        {OCCL_REC_LOCAL, 2},
        {OCCL_REC_DONE, 3},
        {OCCL_REC_ABORTED, 4},
        {OCCL_FLAG_READY, 1},
        {OCCL_FLAG_POISONED, 2},
        {OCCL_FLAG_BLOCKED, 4},
        {OCCL_FLAG_IN_PAGE, 8},
        {OCCL_FLAG_SOURCE, 16},
        {OCCL_FLAG_LEFT, 32},
        {OCCL_FLAG_SELECTION_SHIFT, 8},
        {OCCL_COMM_LIVE, 0},
        {OCCL_COMM_FAILED, 1},
        {OCCL_COMM_REVOKED, 2},
        {OCCL_COMM_ABORTED, 3},
        {OCCL_LINE_PEERS_ALL, 0xffff},
        {OCCL_PAIRS, 64},
        {OCCL_SINGLES, 128},
        {OCCL_RUNS, 4},
        {OCCL_RUN_OPS, 16},
        {OCCL_STRAND_SEGMENTS, 8},
        {OCCL_RECORDS, 256},
        {OCCL_CLAIMS, 196},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(numbers[i][0], numbers[i][1]);
    assert_int_equal(occl_flag_make(0xa1b2c3d4e5f6, OCCL_FLAG_READY), 0xa1b2c3d4e5f60001);
    assert_int_equal(OCCL_WORD_CLAIMED, 0x0001000000000000);
    assert_int_equal(OCCL_WORD_OVERFLOW_ONE, 0x0002000000000000);
    assert_int_equal(OCCL_WORD_PRINT_MASK, 0x0000ffffffffffff);
}

static void detail_keeps_status_and_cause(void **state) {
    (void)state;
    struct occl_detail detail;
    memset(&detail, 'x', sizeof detail);
    assert_int_equal(occl_detail_set(&detail, OCCL_E_QUOTA, 12, "sessions %d: limit %d", 4, 3),
                     OCCL_E_QUOTA);
    assert_int_equal(detail.status, OCCL_E_QUOTA);
    assert_int_equal(detail.system_error, 12);
    assert_string_equal(detail.text, "sessions 4: limit 3");
    assert_int_equal(occl_detail_set(NULL, OCCL_E_BUSY, 0, "nobody reads this"), OCCL_E_BUSY);
    char wide[2 * OCCL_DETAIL_BYTES];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    (void)occl_detail_set(&detail, OCCL_E_INVALID, 0, "%s", wide);
    assert_int_equal(strlen(detail.text), OCCL_DETAIL_BYTES - 1);
}

/* ---- messages ---- */

static void well_formed_messages_pass(void **state) {
    (void)state;
    unsigned char datagram[OCCL_MESSAGE_BYTES_MAX];
    for (uint32_t type = OCCL_MSG_HELLO; type <= OCCL_MSG_ROOMS_REPLY; type++) {
        memset(datagram, 0, sizeof datagram);
        struct occl_msg_header h;
        occl_msg_init(&h, type, 77);
        memcpy(datagram, &h, sizeof h);
        assert_int_equal(h.request, 77);
        assert_int_equal(occl_msg_check(datagram, occl_msg_bytes(type), NULL), OCCL_OK);
    }
    assert_int_equal(occl_msg_bytes(0), 0);
    assert_int_equal(occl_msg_bytes(OCCL_MSG_ROOMS_REPLY + 1), 0);
    assert_int_equal(occl_msg_bytes(UINT32_MAX), 0);
    assert_string_equal(occl_msg_name(OCCL_MSG_HELLO), "HELLO");
    assert_string_equal(occl_msg_name(0), "UNKNOWN");
}

static void malformed_messages_are_refused(void **state) {
    (void)state;
    struct occl_msg_hello good, bad;
    struct occl_detail detail;
    memset(&good, 0, sizeof good);
    occl_msg_init(&good.h, OCCL_MSG_HELLO, 1);
    bad = good;
    bad.h.magic++;
    assert_int_equal(occl_msg_check(&bad, sizeof bad, &detail), OCCL_E_PROTOCOL);
    assert_non_null(strstr(detail.text, "magic"));
    bad = good;
    bad.h.type = 999;
    assert_int_equal(occl_msg_check(&bad, sizeof bad, &detail), OCCL_E_PROTOCOL);
    assert_non_null(strstr(detail.text, "999"));
    bad = good;
    bad.h.type = OCCL_MSG_EVENT;
    assert_int_equal(occl_msg_check(&bad, sizeof bad, &detail), OCCL_E_PROTOCOL);
    bad = good;
    bad.h.bytes--;
    assert_int_equal(occl_msg_check(&bad, sizeof bad, &detail), OCCL_E_PROTOCOL);
    assert_non_null(strstr(detail.text, "HELLO"));
    bad = good;
    bad.h.reserved = 1;
    assert_int_equal(occl_msg_check(&bad, sizeof bad, &detail), OCCL_E_PROTOCOL);
    for (uint32_t bytes = 0; bytes < sizeof good; bytes++)
        assert_int_equal(occl_msg_check(&good, bytes, &detail), OCCL_E_PROTOCOL);
}

static void names_are_checked(void **state) {
    (void)state;
    struct occl_detail detail;
    char name[OCCL_NAME_BYTES] = "team-a/resnet_50:2@node.1";
    assert_int_equal(occl_name_check(name, sizeof name, "job", &detail), OCCL_OK);
    assert_int_equal(occl_name_check("", 1, "job", &detail), OCCL_OK);
    static const char bad[] = "\x01\n\x1b \"'\\{}=,;%$#!~\x7f\x80\xff";
    for (const char *c = bad; *c; c++) {
        char text[8] = {'a', *c, 'b', '\0'};
        assert_int_equal(occl_name_check(text, sizeof text, "tag", &detail), OCCL_E_PROTOCOL);
        assert_non_null(strstr(detail.text, "tag"));
    }
    memset(name, 'a', sizeof name);
    assert_int_equal(occl_name_check(name, sizeof name, "job", &detail), OCCL_E_PROTOCOL);
    assert_non_null(strstr(detail.text, "not terminated"));
}

/* ---- session page ---- */

static void shapes_are_powers_of_two(void **state) {
    (void)state;
    static const uint32_t wishes[][2] = {
        {0, OCCL_SQ_ENTRIES}, {1, OCCL_RING_ENTRIES_MIN},    {8, 8},     {9, 16},
        {4096, 4096},         {UINT32_MAX, OCCL_CQ_ENTRIES}, {257, 512},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        struct occl_session_shape shape;
        occl_session_shape_choose(wishes[i][0], &shape);
        assert_int_equal(shape.sq_entries, wishes[i][1]);
        assert_true(shape.cq_entries >= shape.sq_entries);
        assert_int_equal(shape.page_bytes % OCCL_PAGE_BYTES, 0);
        assert_true(shape.cq_offset + (uint64_t)shape.cq_entries * sizeof(struct occl_cqe) <=
                    shape.page_bytes);
    }
}

static union {
    struct occl_session_page page;
    char bytes[1 << 20];
} memory;

static void open_fails(int status, const char *word) {
    struct occl_session_shape shape;
    struct occl_session_facts facts;
    struct occl_detail detail;
    assert_int_equal(occl_session_open(&memory.page, sizeof memory, &shape, &facts, &detail),
                     status);
    assert_non_null(strstr(detail.text, word));
}

static void session_page_is_checked(void **state) {
    (void)state;
    struct occl_session_shape shape, seen;
    struct occl_session_facts facts = {0x12340007, 99, OCCL_ABI_VERSION, 2}, read_back;
    struct occl_detail detail;
    occl_session_shape_choose(64, &shape);
    occl_session_format(&memory.page, &shape, &facts);
    assert_int_equal(occl_session_open(&memory.page, shape.page_bytes, &seen, &read_back, &detail),
                     OCCL_OK);
    assert_memory_equal(&seen, &shape, sizeof seen);
    assert_memory_equal(&read_back, &facts, sizeof facts);
    assert_int_equal(memory.page.session_state, OCCL_SESSION_LIVE);
    assert_int_equal(
        occl_session_open(&memory.page, shape.page_bytes - 1, &seen, &read_back, &detail),
        OCCL_E_PROTOCOL);
    assert_int_equal(occl_session_open(&memory.page, 64, &seen, &read_back, &detail),
                     OCCL_E_PROTOCOL);
    memory.page.magic++;
    open_fails(OCCL_E_VERSION, "magic");
    memory.page.magic--;
    memory.page.abi_version = OCCL_ABI_VERSION + 1;
    open_fails(OCCL_E_VERSION, "ABI version");
    memory.page.abi_version = OCCL_ABI_VERSION;
    memory.page.sq_entries = 65;
    open_fails(OCCL_E_PROTOCOL, "65");
    memory.page.sq_entries = 1u << 31;
    open_fails(OCCL_E_PROTOCOL, "powers of two");
    memory.page.sq_entries = 0;
    open_fails(OCCL_E_PROTOCOL, "powers of two");
    memory.page.sq_entries = 64;
    memory.page.cq_offset += 32;
    open_fails(OCCL_E_PROTOCOL, "rings at");
    memory.page.cq_offset -= 32;
    memory.page.page_bytes += OCCL_PAGE_BYTES;
    open_fails(OCCL_E_PROTOCOL, "session page of");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abi_matches_golden_list),
        cmocka_unit_test(status_numbers_are_fixed),
        cmocka_unit_test(record_numbers_are_fixed),
        cmocka_unit_test(detail_keeps_status_and_cause),
        cmocka_unit_test(well_formed_messages_pass),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(shapes_are_powers_of_two),
        cmocka_unit_test(session_page_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
