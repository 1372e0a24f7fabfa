#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Results must be compared at one distance of the cores: else whoever was near more often wins."""

import json
import os
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join("tools", "bench"))

# pylint: disable=wrong-import-position
import distance
import points
import report
import results
import settings

FAKE = os.path.join("tests", "bench", "fake_bench")
FLOOR = os.path.join("tools", "bench", "floor_bench")
POINT = points.Point("all_reduce", 2, 8, "loop")
LARGE = points.Point("all_reduce", 2, 1 << 20, "loop")
NEAR, FAR = 110.0, 500.0
SKIPPED = "SKIP"


def expect(found, wanted):
    if found != wanted:
        raise AssertionError("%r instead of %r" % (found, wanted))


def filled(rows):
    """Results from (peer, setting, point, {round: (microseconds, distance or [before, after])})."""
    found = results.Results()
    for peer, setting, point, rounds in rows:
        for number, (time_us, pair) in rounds.items():
            line = dict(point._asdict(), peer=peer, setting=setting, version="1", wrong=0)
            pair = [pair, pair * 1.02] if isinstance(pair, float) else pair
            line.update(round=number, p50_us=time_us, line_ns=pair)
            found.add_line(json.dumps(line), False)
    return found


def rounds_of(states, near_us, far_us):
    """{round: (microseconds, distance)}; states: n or f, one letter a round; - where not measured."""
    of = {"n": (near_us, NEAR), "f": (far_us, FAR)}
    return {number: of[s] for number, s in enumerate(states, 1) if s != "-"}


def point_record(rows, point=POINT):
    return report.records(filled(rows), [point], ("zero-copy",))[0]


def borders_lie_in_gaps():
    expect(distance.borders_of([]), [])
    expect(distance.borders_of([100, 159, 101, 159.5]), [])
    borders_ns = distance.borders_of([52, 500, 110, 54, 480, 115])
    groups = [distance.group_of(borders_ns, ns) for ns in (50, 54, 110, 115, 480, 700)]
    expect(groups, [0, 0, 1, 1, 2, 2])
    if not 54 < borders_ns[0] < 110 < 115 < borders_ns[1] < 480:
        raise AssertionError("%r" % borders_ns)


def what_moved_has_no_distance():
    expect((distance.moved(None), distance.line_of(None)), (False, None))
    expect((distance.moved([100, 149]), distance.line_of([149, 100])), (False, 100))
    expect((distance.moved([500, 110]), distance.line_of([110, 500])), (True, None))


def moved_rounds_count_as_disturbed():
    rounds = rounds_of("nnnn", 0.15, 0.5)
    rounds[5] = (0.4, [NEAR, FAR])
    found = filled([("occl", "zero-copy", POINT, rounds)])
    expect(found.noisy_rounds("occl", "zero-copy", POINT), 1)
    expect(sorted(found.by_round("occl", "zero-copy", POINT)), [1, 2, 3, 4])


# occl and the peer need the same time at each distance, but occl was far, and the peer near, in
# seven of ten rounds: medians of all rounds say 0.3.
OWN_STATES = "fffffffnnn"
PEER_STATES = "nnnnfffnnn"


def bimodal_rows():
    return [
        ("occl", "zero-copy", POINT, rounds_of(OWN_STATES, 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of(PEER_STATES, 0.15, 0.5)),
        ("floor", "spin-bound", POINT, rounds_of("nnffnnffnn", 0.09, 0.3)),
    ]


def equal_at_each_distance_is_equal():
    record = point_record(bimodal_rows())
    expect((record["ratio_to_best_peer"], record["ratio_lo"], record["ratio_hi"]), (1, 1, 1))
    expect((record["mixed_distances"], report.is_slower(record)), (False, False))
    # Three rounds in common at either distance: the nearer one stands in the record.
    expect((record["line_ns"], record["occl_us"], record["floor_us"]), (NEAR, 0.15, 0.09))
    expect((record["rounds"], record["rounds_other_distance"]), (3, 7))
    other = record["other_distances"]
    expect([(o["line_ns"], o["occl_us"], o["ratio_to_best_peer"]) for o in other], [(FAR, 0.5, 1)])
    expect((other[0]["rounds"], other[0]["floor_us"]), (7, 0.3))


def without_distances_the_same_rounds_mislead():
    """The negative control: the same times, but nobody measured how far apart the cores were."""
    blind = [
        (peer, setting, point, {r: (us, None) for r, (us, _) in rounds.items()})
        for peer, setting, point, rounds in bimodal_rows()
    ]
    record = point_record(blind)
    expect((record["ratio_to_best_peer"], record["line_ns"]), (0.3, None))
    expect((record["mixed_distances"], record["other_distances"]), (False, []))


def slow_at_each_distance_is_slow():
    rows = bimodal_rows()
    rows[0] = ("occl", "zero-copy", POINT, rounds_of("nnnnnfffff", 0.30, 1.0))
    rows[1] = ("openmpi", "cma", POINT, rounds_of("fffffnnnnn", 0.15, 0.5))
    record = point_record(rows)
    expect([r["ratio_to_best_peer"] for r in report.rows_of(record)], [0.5, 0.5])
    expect([report.is_slower(r) for r in report.rows_of(record)], [True, True])


def most_rounds_in_common_count():
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("ffffffnnn", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("ffffffnnn", 0.15, 0.4)),
    ]
    record = point_record(rows)
    expect((record["line_ns"], record["ratio_to_best_peer"], record["rounds"]), (FAR, 0.8, 6))
    expect([o["line_ns"] for o in record["other_distances"]], [NEAR])


def setting_that_was_near_more_often_does_not_win():
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("ffffffnnn", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("fffffffnn", 0.14, 0.45)),
        ("openmpi", "ucx", POINT, rounds_of("nnnnnnfff", 0.16, 0.6)),
        # The quickest in its only round of that distance.
        ("openmpi", "no-cma", POINT, rounds_of("nnnnnnnnf", 0.15, 0.1)),
    ]
    expect(filled(rows).best_setting("openmpi", POINT), "no-cma")
    record = point_record(rows)
    expect((record["line_ns"], record["best_peer_setting"]), (FAR, "cma"))
    expect(record["ratio_to_best_peer"], 0.9)


def one_distance_is_as_before():
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("nnnnn", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("nnnnn", 0.18, 0.5)),
    ]
    record = point_record(rows)
    expect((record["line_ns"], record["ratio_to_best_peer"]), (NEAR, 1.2))
    expect((record["rounds"], record["rounds_other_distance"], record["other_distances"]), (5, 0, []))


def too_few_rounds_are_mixed_and_say_so():
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("fffnn", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("nnnnf", 0.15, 0.5)),
    ]
    record = point_record(rows)
    expect((record["mixed_distances"], record["rounds"], record["ratio_to_best_peer"]), (True, 5, 0.3))
    for text in (report.table([record]), report.markdown([record], "a machine", {})):
        if "mixed" not in text:
            raise AssertionError(text)


def quick_peer_elsewhere_makes_no_easy_win():
    """A distance at which the quickest peer is missing must not compare occl with the next one."""
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("fffnn", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("nnnnn", 0.15, 0.5)),
        ("mpich", "default", POINT, rounds_of("fffff", 0.3, 1.0)),
    ]
    expect(point_record(rows)["mixed_distances"], True)
    # But one that was dropped after the first round is not waited for, and is shown all the same.
    rows[1] = ("openmpi", "cma", POINT, rounds_of("n", 2, 5))
    record = point_record(rows)
    expect((record["line_ns"], record["best_peer"], record["ratio_to_best_peer"]), (FAR, "mpich", 2))
    expect(record["peers_us"], {"openmpi": 2, "mpich": 1})


def floor_comes_from_the_same_distance():
    move = LARGE._replace(mode="move")
    rows = [
        ("occl", "zero-copy", LARGE, rounds_of("fffnnnn", 20, 30)),
        ("openmpi", "cma", LARGE, rounds_of("fffnnnn", 80, 90)),
        ("floor", "spin-bound", POINT, rounds_of("ffffnnn", 1, 3)),
        ("floor", "lines-2", move, rounds_of("fnnnnnn", 15, 25)),
    ]
    record = point_record(rows, LARGE)
    expect((record["line_ns"], record["floor_us"], record["floor_other_distance"]), (NEAR, 16, False))
    expect([o["floor_us"] for o in record["other_distances"]], [28])
    rows[3] = ("floor", "lines-2", move, rounds_of("fffffff", 15, 25))
    record = point_record(rows, LARGE)
    expect((record["floor_us"], record["floor_other_distance"]), (28, True))


def first_round_drops_nobody_for_the_distance():
    rows = [
        ("openmpi", "cma", POINT, rounds_of("n", 0.15, 0)),
        ("openmpi", "ucx", POINT, rounds_of("f", 0, 0.5)),
        ("openmpi", "no-cma", POINT, rounds_of("f", 0, 0.6)),
        ("mpich", "default", POINT, rounds_of("f", 0, 0.9)),
        ("gloo", "ring", POINT, rounds_of("f", 0, 90)),
    ]
    kept = results.keep_best(filled(rows), settings.PEERS, [POINT], 1, 2.0)
    # The quickest of each distance; mpich may be level with the best, gloo cannot.
    wanted = {"openmpi": {POINT: ["cma", "ucx"]}, "mpich": {POINT: ["default"]}, "gloo": {}}
    expect(kept, wanted)


def other_distances_are_shown_and_counted():
    rows = [
        ("occl", "zero-copy", POINT, rounds_of("nnnnnnfff", 0.15, 0.5)),
        ("openmpi", "cma", POINT, rounds_of("nnnnnnfff", 0.16, 0.4)),
    ]
    record = point_record(rows)
    text = report.table([record]).splitlines()
    expect(("  110  " in text[1], "  500  " in text[2], "SLOWER" in text[2]), (True, True, True))
    lines = report.markdown([record], "a machine", {}).splitlines()
    expect(len([x for x in lines if x.startswith("| 2 | 8 B | 110 |")]), 1)
    expect(len([x for x in lines if x.startswith("| 2 | 8 B | 500 |")]), 1)
    expect(len(report.json_lines([record]).splitlines()), 1)
    wanted = {"slower": 1, "median_below_0.9": 1, "median_below_1": 1, "mixed": 0, "not_compared": 0}
    expect(report.verdict_counts([record]), wanted)


def medians_are_counted_beside_intervals():
    own = {r: (us, NEAR) for r, us in enumerate((0.2, 0.2, 0.2, 0.2, 0.1), 1)}
    rows = [("occl", "zero-copy", POINT, own)]
    rows.append(("openmpi", "cma", POINT, rounds_of("nnnnn", 0.15, 0)))
    wanted = {"slower": 0, "median_below_0.9": 1, "median_below_1": 1, "mixed": 0, "not_compared": 0}
    expect(report.verdict_counts([point_record(rows)]), wanted)


def records_of_nothing_but_a_floor():
    record = point_record([("floor", "spin-bound", POINT, rounds_of("nf", 0.1, 0.3))])
    expect((record["occl_us"], record["best_peer"], record["rounds"]), (None, None, 0))
    counts = report.verdict_counts([record])
    expect((counts["median_below_1"], counts["not_compared"]), (0, 1))


def run(program, *arguments):
    """([result lines as dictionaries], exit status) of a program of the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [program, "--control", os.path.join(folder, "control"), "--budget-ms", "2"]
        done = subprocess.run(
            argv + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def programs_measure_the_distance():
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("SKIP bench_programs_measure_the_distance: one core")
        return SKIPPED
    where = ["--line-cores", "%d,%d" % tuple(cores)]
    fake = ["--ranks", "3", "--backend", "right", "--points", "all_reduce:8,broadcast:8:sync"]
    move = ["--ranks", "2", "--backend", "move", "--points", "all_reduce:65536"]
    for program, arguments in ((FAKE, fake), (FLOOR, move)):
        # The made-up library also fails if its ranks stay bound.
        lines, status = run(program, *arguments, *where)
        expect((program, status, len(lines) > 1), (program, 0, True))
        for line in lines:
            if not all(5 < ns < 100000 for ns in line["line_ns"]):
                raise AssertionError("%r" % line)
    return None


def unknown_distance_is_null():
    fake = ["--ranks", "2", "--backend", "right", "--points", "all_reduce:8"]
    first = min(os.sched_getaffinity(0))
    for where in ([], ["--line-cores", "0,0"], ["--line-cores", "%d,1000000" % first]):
        lines, status = run(FAKE, *fake, *where)
        expect((where, lines[0]["line_ns"], status), (where, None, 0))
    for bad in ("0", "0,", "a,b", "0,-1"):
        expect((bad, run(FAKE, *fake, "--line-cores", bad)), (bad, ([], 2)))


CASES = (
    borders_lie_in_gaps,
    what_moved_has_no_distance,
    moved_rounds_count_as_disturbed,
    equal_at_each_distance_is_equal,
    without_distances_the_same_rounds_mislead,
    slow_at_each_distance_is_slow,
    most_rounds_in_common_count,
    setting_that_was_near_more_often_does_not_win,
    one_distance_is_as_before,
    too_few_rounds_are_mixed_and_say_so,
    quick_peer_elsewhere_makes_no_easy_win,
    floor_comes_from_the_same_distance,
    first_round_drops_nobody_for_the_distance,
    other_distances_are_shown_and_counted,
    medians_are_counted_beside_intervals,
    records_of_nothing_but_a_floor,
    programs_measure_the_distance,
    unknown_distance_is_null,
)


def main():
    failed = 0
    for case in CASES:
        try:
            if case() != SKIPPED:
                print("PASS bench_" + case.__name__)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print("FAIL bench_%s: %s" % (case.__name__, error))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
