#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark must count wrong results, pick the right setting and compute what it says."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import xml.dom.minidom
from types import SimpleNamespace

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join("tools", "bench"))

# pylint: disable=wrong-import-position
import campaign
import intervals
import plot
import points
import report
import results
import settings

FAKE = os.path.join("tests", "bench", "fake_bench")
FLOOR = os.path.join("tools", "bench", "floor_bench")
POINT = points.Point("all_reduce", 4, 65536, "loop")
JSON_KEYS = ("op", "ranks", "bytes", "occl_us", "occl_lo_us", "occl_hi_us", "best_peer")
JSON_KEYS += ("best_peer_us", "floor_us", "ratio_to_best_peer", "ratio_lo", "ratio_hi")


def expect(found, wanted):
    if found != wanted:
        raise AssertionError("%r instead of %r" % (found, wanted))


def run(program, *arguments):
    """([result lines as dictionaries], exit status) of a program of the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [program, "--control", os.path.join(folder, "control"), "--budget-ms", "2"]
        done = subprocess.run(
            argv + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def fake(backend, where, *arguments):
    return run(FAKE, "--ranks", "3", "--backend", backend, "--points", where, *arguments)


def right_results_of_all_operations():
    where = [points.Point(op, 3, size, "loop") for op in points.OPS for size in (8, 4096)]
    where += [points.Point(op, 3, 8, "sync") for op in points.ROOTED_OPS]
    lines, status = fake("right", points.argument_of(where))
    expect(status, 0)
    found = [points.Point(r["op"], r["ranks"], r["bytes"], r["mode"]) for r in lines]
    expect(found, where)
    expect([r["wrong"] for r in lines], [0] * len(where))


def one_wrong_element_is_counted():
    for op in points.OPS:
        lines, status = fake("flipped", op + ":4096")
        expect((op, lines[0]["wrong"], status), (op, 1, campaign.EXIT_WRONG))


def displaced_elements_are_counted():
    for op in points.OPS:
        if op == "broadcast":  # rank 0, which is shifted, gives
            continue
        lines, status = fake("shifted", op + ":4096")
        if lines[0]["wrong"] < 100 or status != campaign.EXIT_WRONG:
            raise AssertionError("%s: %r" % (op, lines))


def untouched_output_is_counted():
    lines, status = fake("unwritten", "all_reduce:4096")
    expect((lines[0]["wrong"], status), (3 * 1024, campaign.EXIT_WRONG))


def stride_looks_at_every_nth():
    lines, _ = fake("unwritten", "all_reduce:4096", "--check-stride", "4")
    expect(lines[0]["wrong"], 3 * 256)


def failing_call_ends_the_run():
    lines, status = fake("failing", "all_reduce:8")
    expect((lines, status), ([], 1))


def bad_arguments_are_refused():
    for bad in ("all_reduce", "all_reduce:x", "nothing:8", "all_reduce:8:fast", ""):
        expect((bad, fake("right", bad)), (bad, ([], 2)))


def slow_library_measures_slow():
    lines, _ = fake("slow", "all_reduce:8,broadcast:8:sync")
    for line in lines:
        if not 2000 <= line["min_us"] <= line["p50_us"] <= line["p99_us"]:
            raise AssertionError("%r" % line)


def floor_meets_and_moves():
    for ranks, backend in (("2", "sleep"), ("3", "sleep"), ("3", "yield"), ("2", "spin")):
        where = [points.Point(op, 0, size, mode) for op in points.OPS for size, mode in
                 ((8, points.mode_of(op, 2, 8)), (4096, "loop"))]  # fmt: skip
        argument = points.argument_of(where)
        lines, status = run(FLOOR, "--ranks", ranks, "--backend", backend, "--points", argument)
        expect((len(lines), sum(r["wrong"] for r in lines), status), (len(where), 0, 0))
    where = ",".join(op + ":131072" for op in points.OPS)
    lines, status = run(FLOOR, "--ranks", "4", "--backend", "move", "--points", where)
    expect(({r["op"] for r in lines}, status), (set(points.OPS), 0))
    if any(r["wrong"] or r["p50_us"] <= 0 or r["mode"] != "move" for r in lines):
        raise AssertionError("%r" % lines)


def interval_of_order_statistics():
    expect(intervals.interval_of_median([5, 1, 3, 2, 4]), (1, 5))
    expect(intervals.interval_of_median(range(9)), (1, 7))
    expect(intervals.interval_of_median(range(20)), (5, 14))
    expect(round(intervals.coverage(6, 0), 3), 0.969)
    expect(round(intervals.coverage(9, 1), 3), 0.961)


def ratio_pairs_rounds():
    # The machine slows down from round to round, but the peer stays twice as slow.
    own = {1: 1.0, 2: 2.0, 3: 4.0, 4: 8.0, 5: 16.0, 6: 32.0}
    ratio = intervals.ratio_of({r: 2 * us for r, us in own.items()}, own)
    expect(ratio, (2.0, 2.0, 2.0))
    # Without rounds in common, or with few: the ends of both intervals.
    peer = {7: 2.0, 8: 3.0, 9: 4.0}
    expect(intervals.ratio_of(peer, {1: 1.0, 2: 1.0, 3: 2.0}), (3.0, 1.0, 4.0))
    expect(intervals.ratio_of(peer, {9: 1.0, 10: 1.0, 11: 2.0}), (3.0, 1.0, 4.0))


def sizes_and_points():
    expect([points.size_of(s) for s in ("8", "1K", "16M")], [8, 1024, 16 << 20])
    for bad in ("", "K", "1.5M", "-8", "0"):
        try:
            points.size_of(bad)
        except ValueError:
            continue
        raise AssertionError("%r was taken" % bad)
    expect(points.mode_of("broadcast", 2, 65535), "sync")
    expect(points.mode_of("broadcast", 8, 65536), "loop")
    expect(points.mode_of("all_reduce", 2, 8), "loop")
    expect({points.mode_of(op, 4, 1024) for op in points.ROOTED_OPS}, {"sync"})
    expect([points.mode_of("gather", n, 262144) for n in (2, 4, 8)], ["loop", "loop", "sync"])
    expect(points.mode_of("reduce", 8, 65536), "loop")
    if not set(points.ROOTED_OPS) < set(points.OPS) or points.OPS[:5] != points.QUICK_OPS:
        raise AssertionError("%r" % (points.OPS,))
    found = points.argument_of(points.points_of(["broadcast"], [2], [65536, 8]))
    expect(found, "broadcast:8:sync,broadcast:65536")


def filled(rows):
    """Results from (peer, setting, point, [microseconds of round 1, 2, ...])."""
    found = results.Results()
    for peer, setting, point, times in rows:
        for number, time_us in enumerate(times, 1):
            noisy = isinstance(time_us, str)
            line = dict(point._asdict(), peer=peer, setting=setting, version="1", wrong=0)
            line.update(round=number, p50_us=float(time_us))
            found.add_line(json.dumps(line), noisy)
    return found


def sample_results():
    meeting = POINT._replace(bytes=8)
    move = POINT._replace(mode="move")
    return filled(
        [
            ("openmpi", "cma", POINT, [30, 31, 29, 30, 32, 30]),
            ("openmpi", "ucx", POINT, [20, 40, 41, 39, 40, 42]),
            ("openmpi", "dropped", POINT, [10]),
            ("mpich", "yield", POINT, [45, 46, 44, 45, 45, 45]),
            ("gloo", "ring", POINT, [900]),
            ("occl", "zero-copy", POINT, [10, 11, 9, 10, 12, 10]),
            ("occl", "private", POINT, [40, 40, 40, 40, 40, 40]),
            ("floor", "yield-free", meeting, [2, 3, 2]),
            ("floor", "sleep-free", meeting, [4, 4, 4]),
            ("floor", "lines-1", move, [7, 7, 7]),
            ("floor", "lines-2", move, [5, 5, 5]),
        ]
    )


def best_setting_needs_more_than_one_lucky_round():
    found = sample_results()
    expect(found.best_setting("openmpi", POINT), "cma")
    expect(found.best_peer(settings.PEERS, POINT), ("openmpi", "cma", 30))
    expect(found.best_setting("openmpi", POINT._replace(bytes=8)), None)


def disturbed_rounds_count_only_without_quiet_ones():
    found = filled(
        [
            ("occl", "zero-copy", POINT, [10, "90", 11, "90", 12]),
            ("occl", "private", POINT, ["90", "91", "92", "93", 1]),
        ]
    )
    expect(found.median_us("occl", "zero-copy", POINT), 11)
    expect(found.noisy_rounds("occl", "zero-copy", POINT), 2)
    expect(found.median_us("occl", "private", POINT), 91)


def hopeless_settings_are_dropped():
    found = sample_results()
    kept = results.keep_best(found, settings.PEERS, [POINT], 2, 2.0)
    expect(kept["openmpi"], {POINT: ["dropped", "cma"]})
    expect(kept["mpich"], {POINT: ["yield"]})
    expect(kept["gloo"], {})


def floor_is_meeting_plus_move():
    found = sample_results()
    expect(found.floor_us(POINT), 7)
    expect(found.floor_us(POINT._replace(bytes=8)), 2)
    expect(found.floor_us(POINT._replace(bytes=1 << 20)), None)


def json_has_the_keys():
    found = report.records(sample_results(), [POINT])
    expect([r["memory"] for r in found], ["zero-copy", "private"])
    for line in report.json_lines(found).splitlines():
        missing = [key for key in JSON_KEYS if key not in json.loads(line)]
        expect(missing, [])
    first = found[0]
    wanted = {"op": "all_reduce", "ranks": 4, "bytes": 65536, "occl_us": 10, "occl_lo_us": 9}
    wanted.update({"occl_hi_us": 12, "best_peer": "openmpi", "best_peer_us": 30, "floor_us": 7})
    wanted.update({"ratio_to_best_peer": 3, "rounds": 6, "wrong": 0})
    expect({key: first[key] for key in wanted}, wanted)
    if not first["ratio_lo"] <= first["ratio_to_best_peer"] <= first["ratio_hi"]:
        raise AssertionError("%r" % first)
    expect((report.is_slower(first), report.is_slower(found[1])), (False, True))


def records_without_occl():
    found = report.records(filled([("mpich", "yield", POINT, [4, 5, 6])]), [POINT])
    expect((len(found), found[0]["occl_us"], found[0]["best_peer_us"]), (1, None, 5))
    expect(found[0]["ratio_to_best_peer"], None)


def tables_and_plot():
    found = report.records(sample_results(), [POINT])
    if "SLOWER" not in report.table(found) or "64 KiB" not in report.table(found):
        raise AssertionError(report.table(found))
    lines = report.markdown(found, "a machine", {"openmpi": "1"}).splitlines()
    expect(len([line for line in lines if line.startswith("| 4 | 64 KiB | - | 10.0 (9.00–12.0)")]), 1)
    picture = xml.dom.minidom.parseString(plot.svg(found))
    # One curve each for occl, three peers and the floor.
    expect(len(picture.getElementsByTagName("polyline")), 5)


def without_line(arguments):
    """Not to measure how far the cores are apart: a host that moves them would choose among settings."""
    if "--line-cores" not in arguments:
        return arguments
    at = arguments.index("--line-cores")
    return arguments[:at] + arguments[at + 2 :]


def fake_settings(_peer, _ranks, _cores, _private=False):
    def command(backend):
        own = [FAKE, "--ranks", "2", "--backend", backend]
        return lambda _programs, arguments: own + without_line(arguments)

    names = ("right", "slow", "flipped")
    applies = (lambda p: True, lambda p: True, lambda p: p.bytes == 1024)
    return [
        settings.Setting("openmpi", n, use, command(n), {}) for n, use in zip(names, applies)
    ]


def rounds_keep_the_quick_setting():
    where = [points.Point("all_reduce", 2, size, "loop") for size in (8, 1024)]
    plan = SimpleNamespace(
        programs=["openmpi"], ranks=[2], points=where, private=False, rounds_min=3, rounds_max=3,
        end_s=None, hard_end_s=None, budget_ms=2, keep=1, hopeless=2.0, retries=0, looks=0, verbose=False,
    )  # fmt: skip
    original = campaign.settings_of
    campaign.settings_of = fake_settings
    try:
        tour = campaign.Campaign(plan, {}, lambda text: None)
        found = tour.run()
    finally:
        campaign.settings_of = original
    expect((tour.failures, tour.rounds_done), ([], 3))
    expect(found.best_setting("openmpi", where[0]), "right")
    expect(len(found.by_round("openmpi", "slow", where[0])), 1)
    record = report.records(found, where)[1]
    if record["wrong"] < 1:
        raise AssertionError("wrong elements are missing from %r" % record)


def late_rounds_get_less_time():
    plan = SimpleNamespace(programs=[], ranks=[], private=False, rounds_min=5, budget_ms=40)
    said = []
    tour = campaign.Campaign(plan, {}, said.append)
    for left_s, round_s, wanted_ms in ((None, 99, 40), (99, 20, 40), (40, 20, 25), (-5, 20, 8)):
        plan.budget_ms = 40
        plan.hard_end_s = None if left_s is None else time.monotonic() + left_s
        tour._hurry(1, round_s)  # pylint: disable=protected-access
        if abs(plan.budget_ms - wanted_ms) > 1:
            raise AssertionError("%r: %d ms" % (left_s, plan.budget_ms))
    expect(len(said), 2)
    plan.budget_ms = 40
    tour._hurry(5, 20)  # pylint: disable=protected-access
    expect(plan.budget_ms, 40)


def runs_are_bounded():
    environment = dict(os.environ)
    expect(campaign.run_limited(["/bin/true"], environment, 10), None)
    expect(campaign.run_limited(["/bin/sleep", "60"], environment, 0.2), "no end after 0 s")
    told = campaign.run_limited(["/bin/sh", "-c", "echo why; exit 7"], environment, 10)
    expect(told, "exit status 7: why")
    expect(campaign.run_limited(["/bin/sh", "-c", "exit 3"], environment, 10), None)
    if campaign.run_limited(["/no/such/program"], environment, 10) is None:
        raise AssertionError("a missing program was started")


def script(folder, text):
    path = os.path.join(folder, "script")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n" + text + "\n")
    os.chmod(path, 0o755)
    return path


def daemon_is_started_and_stopped():
    with tempfile.TemporaryDirectory() as folder:
        daemon = campaign.Daemon({"occld": script(folder, ': >"$2"; exec sleep 60')})
        expect(daemon.process.poll(), None)
        daemon.stop()
        expect((daemon.process.returncode, os.path.exists(daemon.folder)), (-15, False))


def daemon_that_fails_says_why():
    with tempfile.TemporaryDirectory() as folder:
        try:
            campaign.Daemon({"occld": script(folder, "echo no memory; exit 1")})
        except RuntimeError as error:
            expect(str(error), "occld did not start: no memory")
            return
    raise AssertionError("it started")


def settings_fit_their_points():
    for ranks in (2, 4, 8):
        for peer in settings.PROGRAMS:
            found = settings.settings_of(peer, ranks, 2, True)
            names = [setting.name for setting in found]
            expect(len(set(names)), len(names))
            for op in points.OPS:
                if (peer, op) == ("gloo", "reduce_scatter"):  # which it does not have
                    continue
                for size in (8, 16 << 20):
                    point = points.Point(op, ranks, size, points.mode_of(op, ranks, size))
                    if not any(setting.applies(point) for setting in found):
                        raise AssertionError("%s: nothing for %r" % (peer, point))


def occl_and_the_floor_are_always_measured():
    loader = importlib.machinery.SourceFileLoader("bench_peers", os.path.join("tools", "bench-peers"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_peers", loader))
    loader.exec_module(tool)
    expect(tool.parse([]).programs, ["floor", "openmpi", "mpich", "gloo", "occl"])
    expect(tool.parse(["--peers", "mpich"]).programs, ["floor", "mpich", "occl"])
    expect(tool.parse(["--peers", "occl,openmpi"]).programs, ["floor", "openmpi", "occl"])


CASES = (
    right_results_of_all_operations,
    one_wrong_element_is_counted,
    displaced_elements_are_counted,
    untouched_output_is_counted,
    stride_looks_at_every_nth,
    failing_call_ends_the_run,
    bad_arguments_are_refused,
    slow_library_measures_slow,
    floor_meets_and_moves,
    interval_of_order_statistics,
    ratio_pairs_rounds,
    sizes_and_points,
    best_setting_needs_more_than_one_lucky_round,
    disturbed_rounds_count_only_without_quiet_ones,
    hopeless_settings_are_dropped,
    floor_is_meeting_plus_move,
    json_has_the_keys,
    records_without_occl,
    tables_and_plot,
    rounds_keep_the_quick_setting,
    late_rounds_get_less_time,
    runs_are_bounded,
    daemon_is_started_and_stopped,
    daemon_that_fails_says_why,
    settings_fit_their_points,
    occl_and_the_floor_are_always_measured,
)


def main():
    failed = 0
    for case in CASES:
        try:
            case()
            print("PASS bench_" + case.__name__)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print("FAIL bench_%s: %s" % (case.__name__, error))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
