#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes known mistakes in executor, scheduler, pool, fabric and simulator, one at a time, and demands
that a test notices each. A mistake is a text to find in a file and what to put there instead; a text
that is not found is an error, so that the list follows the code.
"""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FOLDERS = ["gpu", "daemon/sched", "fabric", "tools/sim", "shm_ipc", "tests/gpu", "tests/sched",
           "tests/fabric", "tests/sim"]
SIM = ["tools/sim/%s.c" % name for name in
       ("check", "cluster", "lane", "member", "node", "options", "programs", "rank", "workload")]
SCHED = ["daemon/sched/%s.c" % name for name in ("sched", "share", "pool")]
BASE = ["shm_ipc/record.c", "shm_ipc/datatype.c", "gpu/local_program.c", "fabric/sim.c"]
TESTS = {
    "exec": (["tests/gpu/exec_test.c", "tests/gpu/mesh.c", "tools/sim/programs.c"], []),
    "sched": (["tests/sched/sched_test.c", "tests/sched/fixture.c"] + SCHED[:2],
              ["-Wl,--wrap=malloc,--wrap=calloc"]),
    "patience": (["tests/sched/patience_test.c", "tests/sched/fixture.c"] + SCHED[:2], []),
    "pool": (["tests/sched/pool_test.c", "daemon/sched/pool.c"], []),
    "fabric": (["tests/fabric/sim_test.c", "tests/fabric/conformance.c", "fabric/sim.c"], []),
    "cluster": (["tests/sim/cluster_test.c"] + SIM + SCHED + BASE, []),
}
SECONDS = 120

# name, test, file, text, replacement
MISTAKES = [
    # executor
    ("resume_restarts_the_step", "exec", "gpu/exec.h",
     "    report->slices = 0;\n", "    report->slices = 0;\n    context->message = 0;\n"),
    ("published_before_the_data", "exec", "gpu/exec.h",
     "    status = ops->move(env, &move);",
     "    if (move.send_link != OCCL_STEP_NONE)\n"
     "        ops->publish_send(env, move.send_link, context->sent, move.bytes);\n"
     "    status = ops->move(env, &move);"),
    ("room_is_not_asked_for", "exec", "gpu/exec.h",
     "if (occl_step_sends(step->kind) && !ops->has_room", "if (0 && !ops->has_room"),
    ("waits_inside", "exec", "gpu/exec.h",
     "        if (wait != OCCL_WAIT_NONE) {",
     "        for (int i = 0; i < 100; i++)\n"
     "            wait = occl_exec_guard(context, program, strand, step, ops, env);\n"
     "        if (wait != OCCL_WAIT_NONE) {"),
    ("iterations_do_not_count", "exec", "gpu/exec.h",
     "context->iteration * steps + step->dep_step + 1", "step->dep_step + 1 + 0 * steps"),
    ("nops_are_free", "exec", "gpu/exec.h",
     "        report->slices++;\n", "        report->slices += step->kind != OCCL_STEP_NOP;\n"),
    # scheduler
    ("urgent_classes_starve_others", "sched", "daemon/sched/sched.c",
     "bool by_time = top != OCCL_SCHED_NONE && c < top &&", "bool by_time = 0 && c < top &&"),
    ("floods_starve_others", "sched", "daemon/sched/sched.c",
     "bool by_count = s->stats.decisions", "bool by_count = 0 && s->stats.decisions"),
    ("last_in_first_out", "sched", "daemon/sched/sched.c",
     "link_age(op), OCCL_SCHED_NONE);\n    if (report->result == OCCL_SCHED_BLOCKED)",
     "link_age(op),\n                           sched->classes[o->op_class].age.head);\n"
     "    if (report->result == OCCL_SCHED_BLOCKED)"),
    ("ageing_takes_over", "sched", "daemon/sched/sched.c",
     "if (s->stats.decisions >= s->aged_decision + OCCL_SCHED_AGED_EVERY)", "if (1)"),
    ("patience_without_cap", "patience", "daemon/sched/sched.c",
     "ns > s->config.patience_max_ns ? s->config.patience_max_ns : ns", "ns"),
    ("progress_is_not_judged_per_visit", "patience", "daemon/sched/sched.c",
     "    if (report->slices > 0) {\n        learn", "    if (1) {\n        learn"),
    ("bytes_are_not_charged", "sched", "daemon/sched/share.c",
     "    share->deficit_bytes -= amount;\n", ""),
    ("blocked_ops_are_forgotten", "sched", "daemon/sched/sched.c",
     "count < OCCL_SCHED_LOOKS ? count : OCCL_SCHED_LOOKS", "0 * count"),
    # pool
    ("unarrived_ops_hold_for_good", "pool", "daemon/sched/pool.c",
     "h->state != HOLDER_HOLDING ||", "h->state != HOLDER_HOLDING || !h->arrived ||"),
    ("unarrived_ops_hold_for_good_in_a_cluster", "cluster", "daemon/sched/pool.c",
     "h->state != HOLDER_HOLDING ||", "h->state != HOLDER_HOLDING || !h->arrived ||"),
    ("older_ops_are_wounded", "pool", "daemon/sched/pool.c",
     "(h->arrived && !older(p, need, h))", "0"),
    ("units_are_lost", "pool", "daemon/sched/pool.c",
     "        p->stats.shared_free += h->units;", "        p->stats.shared_free += 0;"),
    ("tickets_are_not_distinct", "cluster", "tools/sim/node.c",
     "OCCL_POOL_TICKET(++op->node->ticket_clock, op->node->number)",
     "OCCL_POOL_TICKET(++op->node->ticket_clock, 0)"),
    # fabric
    ("control_waits_for_data", "fabric", "fabric/sim.c",
     "w->config.posts_max * (data ? 1 : 2)", "w->config.posts_max"),
    ("control_is_reordered", "fabric", "fabric/sim.c",
     "        if (flight.due_ns < f->control_due_ns[post->peer])", "        if (0)"),
    ("a_cut_loses_completions", "fabric", "fabric/sim.c",
     "    fail_between(world, a, b, OCCL_E_PEER_FAILED);\n",
     "    world->queues[b].count = 0;\n"),
    ("a_closed_landing_is_written", "fabric", "fabric/sim.c", "    l->open = 0;\n", ""),
    # a cluster's node and lane
    ("more_credits_than_places", "cluster", "tools/sim/node.c",
     "link->limit = link->received + op->op->depth;",
     "link->limit = link->received + op->op->depth + 1;"),
    ("revoked_before_all_has_landed", "cluster", "tools/sim/node.c",
     "op->links[i].landed != op->links[i].expected", "0"),
    ("a_sleeping_lane_misses_a_wake", "cluster", "tools/sim/lane.c",
     "void sim_lane_wake(struct sim_node *node) {\n    look_again(&node->lane);",
     "void sim_lane_wake(struct sim_node *node) {"),
    ("a_death_ends_nothing", "cluster", "tools/sim/node.c",
     "            end_op(op, OCCL_E_PEER_FAILED);", "            (void)op;"),
    ("a_slot_is_overwritten", "cluster", "tools/sim/lane.c",
     "&& !op->links[link].busy[message % op->op->depth]", ""),
    # records
    ("poison_alone_ends_an_op", "cluster", "shm_ipc/record.c",
     "    else if (out_look->first_missing < members)\n        out_look->outcome = OCCL_OUT_OPEN;",
     "    else if (poisoned)\n        out_look->outcome = OCCL_OUT_ABORTED;\n"
     "    else if (out_look->first_missing < members)\n        out_look->outcome = OCCL_OUT_OPEN;"),
    ("only_the_first_aborter_poisons", "cluster", "shm_ipc/record.c",
     "    if (occl_rec_kind(now) == OCCL_REC_ABORTED)\n        poison(", "    if (ours)\n        poison("),
    ("the_poisoned_arrive", "cluster", "shm_ipc/record.c",
     "while (!(occl_flag_bits_of(flag, print) & OCCL_FLAG_POISONED))", "while (1)"),
    ("a_run_is_reset_in_part", "cluster", "shm_ipc/record.c",
     "for (uint32_t i = 0; i < count; i++) {\n        struct occl_record *rec = occl_record_at(m,",
     "for (uint32_t i = 0; i < 1; i++) {\n        struct occl_record *rec = occl_record_at(m,"),
    ("a_chunk_is_taken_again_too_early", "cluster", "tools/sim/member.c",
     "              OCCL_FLAG_LEFT))\n            return false;",
     "              OCCL_FLAG_LEFT))\n            return true;"),
    ("a_run_is_left_too_early", "cluster", "tools/sim/member.c",
     "--m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 0)",
     "--m->rank->runs[index - OCCL_CLAIM_RUN_FIRST].remaining > 1)"),
    ("a_lane_is_not_waited_for", "cluster", "tools/sim/member.c",
     "    if (occl_look32(&m->request->record->lanes_busy) != 0) {", "    if (0) {"),
    ("completed_twice", "cluster", "tools/sim/rank.c",
     "    request->status = status;\n",
     "    request->status = status;\n    if (op == 3 && rank->rank == 0)\n"
     "        sim_rank_complete(cluster, rank, op, status);\n"),
    ("matched_by_place_and_not_by_key", "cluster", "tools/sim/workload.c",
     "op->key.tag == key.tag &&", "1 &&"),
    ("a_strand_is_skipped", "cluster", "gpu/local_program.c",
     "    step.src_chunk = index;\n    step.dst_chunk = index;\n",
     "    step.src_chunk = index;\n    step.dst_chunk = 0;\n"),
]


def build(folder, test):
    sources, extra = TESTS[test]
    command = ["gcc", "-std=gnu11", "-O1", "-w", "-D_GNU_SOURCE=", "-ffp-contract=off", "-I."]
    command += sources + extra + ["-o", "test", "-lcmocka", "-lm"]
    return subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)


def notices(folder):
    """Whether the test fails, crashes or does not end."""
    try:
        run = subprocess.run(["./test"], cwd=folder, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def attempt(folder, name, test, path, text, replacement):
    """An empty string, or why the mistake was not noticed."""
    full = os.path.join(folder, path)
    with open(full, encoding="utf-8") as file:
        right = file.read()
    if right.count(text) != 1:
        return "the text stands %d times in %s" % (right.count(text), path)
    with open(full, "w", encoding="utf-8") as file:
        file.write(right.replace(text, replacement))
    try:
        result = build(folder, test)
        if result.returncode != 0:
            return "does not compile: " + result.stderr[:300]
        return "" if notices(folder) else "the %s test passes" % test
    finally:
        with open(full, "w", encoding="utf-8") as file:
            file.write(right)


def main():
    wanted = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
        for mistake in MISTAKES:
            if wanted and mistake[0] not in wanted:
                continue
            why = attempt(folder, *mistake)
            failures += why != ""
            print("FAIL %s: %s" % (mistake[0], why) if why else "PASS " + mistake[0], flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
