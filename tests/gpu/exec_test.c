/* SPDX-License-Identifier: Apache-2.0 */
/* The executor alone: laws 1 to 5 of gpu/exec.h, the meaning of every step kind, and the built
 * programs against a reference, over depth, budget, sizes that do not divide, and random orders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/mesh.h"
#include "tools/sim/programs.h"

static struct mesh mesh;

static struct occl_geometry geometry_of(uint64_t elements, uint32_t chunks, uint64_t slot_bytes) {
    struct occl_geometry g;
    assert_int_equal(occl_geometry_make(elements * 8, 8, chunks, slot_bytes, 1, &g), 1);
    return g;
}

static int64_t value_at(uint32_t node, uint32_t member, uint64_t element) {
    return (int64_t)((node * 31u + member * 7u + 1u) * 1000003u + element * 17u);
}

static void fill_inputs(uint32_t nodes, uint32_t members, uint64_t elements, bool in_place) {
    for (uint32_t n = 0; n < nodes; n++) {
        mesh.nodes[n].in_place = in_place;
        for (uint32_t m = 0; m < members; m++)
            for (uint64_t e = 0; e < elements; e++) {
                mesh.nodes[n].input[m][e] = value_at(n, m, e);
                mesh.nodes[n].output[m][e] = in_place ? value_at(n, m, e) : -1;
            }
    }
}

/* Builds and loads the program of every node; the caller frees them. */
static void load_all(struct occl_sim_program *programs, struct occl_sim_spec spec,
                     uint64_t elements, uint64_t slot_bytes) {
    uint32_t chunks = spec.shape == OCCL_SIM_RING_ALL_REDUCE ? spec.nodes : spec.chunks;
    struct occl_geometry g = geometry_of(elements, chunks, slot_bytes);
    mesh_start(&mesh, spec.nodes, spec.depth_slots, &g);
    for (uint32_t n = 0; n < spec.nodes; n++) {
        spec.me = n;
        occl_sim_program_build(&spec, &programs[n]);
        mesh_load(&mesh, n, &programs[n].program);
    }
}

static void free_all(struct occl_sim_program *programs, uint32_t nodes) {
    for (uint32_t n = 0; n < nodes; n++)
        occl_sim_program_free(&programs[n]);
}

static void check_quiet(uint32_t nodes) {
    for (uint32_t a = 0; a < nodes; a++)
        for (uint32_t b = 0; b < nodes; b++)
            assert_int_equal(mesh.wires[a][b].sent, mesh.wires[a][b].received);
}

static void check_sums(uint32_t nodes, uint32_t members, uint64_t elements) {
    for (uint64_t e = 0; e < elements; e++) {
        int64_t sum = 0;
        for (uint32_t n = 0; n < nodes; n++)
            for (uint32_t m = 0; m < members; m++)
                sum += value_at(n, m, e);
        for (uint32_t n = 0; n < nodes; n++)
            for (uint32_t m = 0; m < members; m++)
                assert_int_equal(mesh.nodes[n].output[m][e], sum);
    }
    for (uint32_t n = 0; n < nodes; n++) /* nothing behind the end */
        for (uint32_t m = 0; m < members; m++)
            assert_int_equal(mesh.nodes[n].output[m][elements], 0);
}

static void all_reduce_case(enum occl_sim_shape shape, uint32_t nodes, uint32_t members,
                            uint64_t elements, uint64_t slot_bytes, uint32_t budget,
                            uint64_t seed) {
    struct occl_sim_program programs[MESH_NODES_MAX];
    struct occl_sim_spec spec = {.shape = shape,
                                 .nodes = nodes,
                                 .members = members,
                                 .chunks = 1 + (uint32_t)(seed % 5),
                                 .depth_slots = 2 + (uint32_t)(seed % 3)};
    load_all(programs, spec, elements, slot_bytes);
    fill_inputs(nodes, members, elements, seed & 1);
    assert_true(mesh_settle(&mesh, seed, budget));
    check_sums(nodes, members, elements);
    check_quiet(nodes);
    free_all(programs, nodes);
}

static void all_reduce_matches_reference(void **state) {
    static const uint64_t sizes[] = {1, 2, 7, 63, 64, 65, 500, 1001};
    static const uint64_t slots[] = {8, 24, 64, 512, 1024};
    uint64_t seed = 0;
    (void)state;
    for (int shape = OCCL_SIM_RING_ALL_REDUCE; shape <= OCCL_SIM_TREE_ALL_REDUCE; shape++)
        for (uint32_t nodes = 2; nodes <= 8; nodes++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (size_t b = 0; b < sizeof slots / sizeof *slots; b++, seed++)
                    all_reduce_case((enum occl_sim_shape)shape, nodes, 1 + seed % 3, sizes[s],
                                    slots[b], 1 + seed % 4, seed);
}

static void chain_and_pair_match_reference(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct occl_sim_program programs[MESH_NODES_MAX];
        uint32_t nodes = 2 + (uint32_t)(seed % 7), members = 1 + (uint32_t)(seed % 4);
        struct occl_sim_spec spec = {.shape = OCCL_SIM_CHAIN_BROADCAST,
                                     .nodes = nodes,
                                     .members = members,
                                     .root_node = (uint32_t)(seed / 3) % nodes,
                                     .root_member = (uint32_t)(seed / 5) % members,
                                     .chunks = 1 + (uint32_t)(seed % 9),
                                     .depth_slots = 1 + (uint32_t)(seed % 3)};
        uint64_t elements = 1 + seed * 7 % 900;
        if (seed % 4 == 0) {
            spec.shape = OCCL_SIM_PAIR;
            spec.nodes = nodes = 2;
            spec.members = members = 1;
            spec.root_node = 0;
            spec.root_member = 0;
        }
        load_all(programs, spec, elements, 64 << seed % 5);
        fill_inputs(nodes, members, elements, false);
        assert_true(mesh_settle(&mesh, seed, 1 + seed % 3));
        for (uint32_t n = 0; n < nodes; n++)
            for (uint32_t m = 0; m < members; m++)
                for (uint64_t e = 0; e < elements; e++)
                    if (spec.shape == OCCL_SIM_CHAIN_BROADCAST || n == 1)
                        assert_int_equal(mesh.nodes[n].output[m][e],
                                         value_at(spec.root_node, spec.root_member, e));
        check_quiet(nodes);
        free_all(programs, nodes);
    }
}

/* Fused steps with one slot get stuck alone, with two they do not. */
static void fused_ring_needs_two_slots(void **state) {
    (void)state;
    for (uint32_t nodes = 2; nodes <= 8; nodes++)
        for (uint32_t depth = 1; depth <= 2; depth++) {
            struct occl_sim_program programs[MESH_NODES_MAX];
            struct occl_sim_spec spec = {.shape = OCCL_SIM_RING_ALL_REDUCE,
                                         .nodes = nodes,
                                         .members = 1,
                                         .depth_slots = depth};
            load_all(programs, spec, 80, 64);
            fill_inputs(nodes, 1, 80, false);
            assert_int_equal(mesh_settle(&mesh, nodes, 4), depth == 2);
            free_all(programs, nodes);
        }
}

/* Depth and size of a call belong together: two ranks that send 8 chunks before they receive 8 need
 * depth 1, 2, 4, 8 when a message holds 8, 4, 2, 1 chunks. */
static void depth_needed_grows_with_splitting(void **state) {
    (void)state;
    for (uint32_t per_message = 1; per_message <= 8; per_message *= 2)
        for (uint32_t depth = 1; depth <= 8; depth++) {
            struct occl_step steps[2];
            struct occl_strand strand = {0, 2, 0, 1};
            struct occl_link links[2][2];
            struct occl_program programs[2];
            struct occl_geometry g = geometry_of(64, 8, 64 * per_message);
            assert_int_equal(g.chunks_per_message, per_message);
            memset(steps, 0, sizeof steps);
            memset(links, 0, sizeof links);
            memset(programs, 0, sizeof programs);
            steps[0].kind = OCCL_STEP_SEND;
            steps[0].src_buffer = OCCL_BUFFER_INPUT;
            steps[0].src_count = 1;
            steps[1].kind = OCCL_STEP_RECV;
            steps[1].dst_buffer = OCCL_BUFFER_OUTPUT;
            steps[1].dst_count = 1;
            steps[0].chunks = steps[1].chunks = 8;
            steps[0].dep_strand = steps[1].dep_strand = OCCL_STEP_NONE;
            mesh_start(&mesh, 2, depth, &g);
            for (uint32_t n = 0; n < 2; n++) {
                links[n][0].peer = links[n][1].peer = 1 - n;
                links[n][1].direction = OCCL_LINK_RECV;
                programs[n].steps = steps;
                programs[n].strands = &strand;
                programs[n].links = links[n];
                programs[n].strand_count = 1;
                mesh_load(&mesh, n, &programs[n]);
            }
            assert_int_equal(mesh_settle(&mesh, 1, 3), depth >= 8 / per_message);
        }
}

/* A context may be copied away and back between any two slices, and the budget may be anything:
 * the messages, their order and the bytes are the same. */
static void resume_repeats_nothing(void **state) {
    struct occl_sim_spec spec = {
        .shape = OCCL_SIM_TREE_ALL_REDUCE, .nodes = 3, .members = 2, .chunks = 3, .depth_slots = 2};
    uint64_t moves = 0;
    (void)state;
    for (uint32_t budget = 1; budget <= 64; budget *= 2) {
        struct occl_sim_program programs[MESH_NODES_MAX];
        bool open = true;
        load_all(programs, spec, 300, 64);
        fill_inputs(3, 2, 300, true);
        for (uint32_t round = 0; open; round++) {
            assert_true(round < 100000);
            open = false;
            for (uint32_t n = 0; n < 3; n++)
                for (uint32_t s = 0; s < programs[n].program.strand_count; s++) {
                    struct occl_exec_context away = mesh.nodes[n].contexts[s];
                    struct occl_exec_report report;
                    memset(&mesh.nodes[n].contexts[s], 0xee, sizeof away);
                    mesh.nodes[n].contexts[s] = away;
                    open |= mesh_run(&mesh, n, s, budget, &report) != OCCL_EXEC_DONE;
                    assert_true(report.slices <= budget);
                }
        }
        check_sums(3, 2, 300);
        if (moves == 0)
            moves = mesh.moves;
        assert_int_equal(mesh.moves, moves);
        free_all(programs, 3);
    }
}

/* One node with an inbound and an outbound wire to itself, and one fused step. */
static struct occl_step one_step;
static const struct occl_link self_links[2] = {{1, 0, OCCL_LINK_SEND, 0, 2},
                                               {1, 0, OCCL_LINK_RECV, 0, 2}};
static struct occl_strand one_strand;
static struct occl_program one_program;

static void one_step_start(uint32_t kind) {
    struct occl_geometry g = geometry_of(4, 1, 64);
    memset(&one_step, 0, sizeof one_step);
    memset(&one_program, 0, sizeof one_program);
    one_step.kind = (uint8_t)kind;
    one_step.chunks = 1;
    one_step.src_buffer = OCCL_BUFFER_INPUT;
    one_step.dst_buffer = OCCL_BUFFER_OUTPUT;
    one_step.dep_strand = OCCL_STEP_NONE;
    one_strand.first_step = 0;
    one_strand.step_count = 1;
    one_strand.send_link = 0;
    one_strand.recv_link = 1;
    one_program.steps = &one_step;
    one_program.strands = &one_strand;
    one_program.links = self_links;
    one_program.strand_count = 1;
    mesh_start(&mesh, 2, 2, &g);
    mesh_load(&mesh, 0, &one_program);
    for (uint32_t e = 0; e < 4; e++) {
        mesh.nodes[0].input[0][e] = 100 + e;
        mesh.nodes[0].input[1][e] = 1000;
        mesh.nodes[0].output[0][e] = 7;
    }
}

/* Puts a message of four elements (10, 20, 30, 40) on the inbound wire. */
static void land_message(void) {
    struct mesh_wire *wire = &mesh.wires[1][0];
    int64_t values[4] = {10, 20, 30, 40};
    memcpy(wire->slots[wire->sent % 2], values, sizeof values);
    wire->bytes[wire->sent % 2] = sizeof values;
    wire->sent++;
}

static int64_t sent_value(uint32_t element) {
    int64_t values[4];
    memcpy(values, mesh.wires[0][1].slots[0], sizeof values);
    return values[element];
}

static void every_kind_means_what_it_says(void **state) {
    struct occl_exec_report report;
    (void)state;
    for (uint32_t kind = 0; kind < OCCL_STEP_KIND_LIMIT; kind++) {
        bool local = kind == OCCL_STEP_SEND || kind == OCCL_STEP_COPY;
        bool writes =
            kind != OCCL_STEP_NOP && kind != OCCL_STEP_SEND && kind != OCCL_STEP_RECV_REDUCE_SEND;
        int64_t expected = kind == OCCL_STEP_REDUCE  ? 1102
                           : local                   ? 102
                           : occl_step_reduces(kind) ? 132
                                                     : 30;
        one_step_start(kind);
        one_step.src_count = kind == OCCL_STEP_REDUCE           ? 2
                             : local || occl_step_reduces(kind) ? 1
                                                                : 0;
        one_step.src_member_stride = 1;
        one_step.dst_count = writes;
        land_message();
        assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
        assert_int_equal(mesh.wires[1][0].received, occl_step_receives(kind));
        assert_int_equal(mesh.wires[0][1].sent, occl_step_sends(kind));
        assert_int_equal(report.received, occl_step_receives(kind));
        assert_int_equal(mesh.nodes[0].output[0][2], writes ? expected : 7);
        if (occl_step_sends(kind))
            assert_int_equal(sent_value(2), expected);
        assert_int_equal(mesh.nodes[0].published[0], 1);
    }
}

static void accumulate_takes_the_output_first(void **state) {
    struct occl_exec_report report;
    (void)state;
    one_step_start(OCCL_STEP_REDUCE);
    one_step.flags = OCCL_STEP_ACCUMULATE;
    one_step.src_count = one_step.dst_count = 1;
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
    assert_int_equal(mesh.nodes[0].output[0][3], 110);
}

/* Law 2: a fused step with only one guard true leaves no trace at all; law 1: it returns at once.
 */
static void a_slice_is_all_or_nothing(void **state) {
    struct occl_exec_report report;
    struct occl_exec_context before;
    (void)state;
    one_step_start(OCCL_STEP_RECV_REDUCE_COPY_SEND);
    one_step.src_count = one_step.dst_count = 1;
    mesh.wires[0][1].sent = 2; /* full */
    mesh.nodes[0].contexts[0].sent = 2;
    land_message();
    before = mesh.nodes[0].contexts[0];
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_BLOCKED);
    assert_int_equal(report.wait_kind, OCCL_WAIT_ROOM);
    assert_int_equal(report.wait_link, 0);
    assert_int_equal(report.slices, 0);
    assert_memory_equal(&before, &mesh.nodes[0].contexts[0], sizeof before);
    assert_int_equal(mesh.wires[1][0].received, 0);
    assert_int_equal(mesh.nodes[0].output[0][0], 7);
    assert_int_equal(mesh.trace_length, 0);
    assert_int_equal(mesh.looks, 2); /* each guard once, no waiting inside */
    mesh.wires[0][1].received = 1;
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
    one_step_start(OCCL_STEP_RECV_COPY_SEND);
    one_step.dst_count = 1;
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_BLOCKED);
    assert_int_equal(report.wait_kind, OCCL_WAIT_DATA);
    assert_int_equal(report.wait_link, 1);
    assert_int_equal(mesh.wires[0][1].sent, 0);
}

/* Law 3. */
static void published_after_the_data(void **state) {
    struct occl_exec_report report;
    (void)state;
    one_step_start(OCCL_STEP_RECV_REDUCE_COPY_SEND);
    one_step.src_count = one_step.dst_count = 1;
    land_message();
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
    assert_string_equal(mesh.trace, "msrp");
    assert_int_equal(report.payload_bytes, 32);
    assert_int_equal(report.traffic_bytes, 4 * 32);
}

static void a_failed_move_publishes_nothing(void **state) {
    struct occl_exec_report report;
    (void)state;
    one_step_start(OCCL_STEP_RECV_COPY_SEND);
    one_step.dst_count = 1;
    land_message();
    mesh.refuse_moves = 1;
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_FAULT);
    assert_int_equal(report.fault, -1);
    assert_int_equal(mesh.trace_length, 0);
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
}

/* A step waits for its target of the same iteration, not for an earlier one; NOPs complete in turn
 * and cost budget. */
static void dependencies_count_iterations(void **state) {
    struct occl_step steps[3];
    struct occl_strand strands[2] = {{0, 1, OCCL_STEP_NONE, OCCL_STEP_NONE},
                                     {1, 2, OCCL_STEP_NONE, OCCL_STEP_NONE}};
    struct occl_program program;
    struct occl_geometry g = geometry_of(16, 1, 64); /* two iterations */
    struct occl_exec_report report;
    (void)state;
    memset(steps, 0, sizeof steps);
    memset(&program, 0, sizeof program);
    steps[0].kind = OCCL_STEP_COPY;
    steps[0].src_buffer = OCCL_BUFFER_INPUT;
    steps[0].dst_buffer = OCCL_BUFFER_SCRATCH;
    steps[2].kind = OCCL_STEP_COPY;
    steps[2].src_buffer = OCCL_BUFFER_SCRATCH;
    steps[2].dst_buffer = OCCL_BUFFER_OUTPUT;
    for (int i = 0; i < 3; i++) {
        steps[i].src_count = steps[i].dst_count = i == 1 ? 0 : 1;
        steps[i].chunks = i == 1 ? 0 : 1;
        steps[i].dep_strand = OCCL_STEP_NONE;
    }
    steps[1].dep_strand = 0;
    steps[1].dep_step = 0;
    program.steps = steps;
    program.strands = strands;
    program.strand_count = 2;
    mesh_start(&mesh, 1, 1, &g);
    mesh_load(&mesh, 0, &program);
    mesh.nodes[0].input[0][15] = 5;
    assert_int_equal(g.iterations, 2);
    assert_int_equal(mesh_run(&mesh, 0, 1, 9, &report), OCCL_EXEC_BLOCKED);
    assert_int_equal(report.wait_kind, OCCL_WAIT_STEP);
    assert_int_equal(report.wait_strand, 0);
    assert_int_equal(mesh_run(&mesh, 0, 0, 1, &report), OCCL_EXEC_BUDGET);
    assert_int_equal(mesh_run(&mesh, 0, 1, 1, &report), OCCL_EXEC_BUDGET);
    assert_int_equal(mesh_run(&mesh, 0, 1, 9, &report), OCCL_EXEC_BLOCKED);
    assert_int_equal(report.slices, 1);
    assert_int_equal(mesh_run(&mesh, 0, 0, 9, &report), OCCL_EXEC_DONE);
    assert_int_equal(mesh_run(&mesh, 0, 1, 9, &report), OCCL_EXEC_DONE);
    assert_int_equal(mesh.nodes[0].output[0][15], 5);
    assert_int_equal(mesh_run(&mesh, 0, 1, 9, &report), OCCL_EXEC_DONE);
}

static void geometry_refuses_what_it_cannot_cut(void **state) {
    struct occl_geometry g;
    (void)state;
    assert_int_equal(occl_geometry_make(80, 8, 3, 64, 0, &g), 0);
    assert_int_equal(occl_geometry_make(80, 8, 3, 4, 1, &g), 0);
    assert_int_equal(occl_geometry_make(81, 8, 3, 64, 1, &g), 0);
    assert_int_equal(occl_geometry_make(80, 8, 0, 64, 1, &g), 0);
    assert_int_equal(occl_geometry_make(1ull << 50, 8, 1, 64, 1, &g), 0);
    assert_int_equal(occl_geometry_make(0, 8, 3, 64, 1, &g), 1);
    assert_int_equal(g.iterations, 0);
    for (uint64_t elements = 1; elements < 3000; elements += 13)
        for (uint32_t chunks = 1; chunks < 20; chunks++) {
            assert_int_equal(occl_geometry_make(elements * 4, 4, chunks, 256, 1, &g), 1);
            assert_true(g.chunk_bytes * chunks >= elements * 4);
            assert_int_equal(g.chunk_bytes % 4, 0);
            assert_int_equal(g.slice_bytes % 4, 0);
            assert_true(g.slice_bytes * g.iterations >= g.chunk_bytes);
            assert_true(g.slice_bytes * (g.iterations - 1) < g.chunk_bytes);
            assert_true(g.slice_bytes * g.chunks_per_message <= 256);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_matches_reference),
        cmocka_unit_test(chain_and_pair_match_reference),
        cmocka_unit_test(fused_ring_needs_two_slots),
        cmocka_unit_test(depth_needed_grows_with_splitting),
        cmocka_unit_test(resume_repeats_nothing),
        cmocka_unit_test(every_kind_means_what_it_says),
        cmocka_unit_test(accumulate_takes_the_output_first),
        cmocka_unit_test(a_slice_is_all_or_nothing),
        cmocka_unit_test(published_after_the_data),
        cmocka_unit_test(a_failed_move_publishes_nothing),
        cmocka_unit_test(dependencies_count_iterations),
        cmocka_unit_test(geometry_refuses_what_it_cannot_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
