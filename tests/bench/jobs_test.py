#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench-jobs on a real daemon, with small operations and short windows. What it measures is not
judged here, only that it measures, adds up, reports a missed bound and refuses wrong options."""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

TOOL = os.path.join("tools", "bench-jobs")
PLACES = {
    "occld": os.path.join("daemon", "occld"),
    "occlctl": os.path.join("tools", "occlctl", "occlctl"),
    "jobs_bench": os.path.join("tools", "bench", "jobs_bench"),
}
# Nothing that this machine does can be so far off.
LOOSE = ["--max-p99-us", "1e9", "--tolerance", "1000"]
SHORT = ["--tenants", "tags", "--rounds", "1", "--seconds", "0.1", "--ranks", "2"]
SHORT += ["--share-bytes", "64K", "--large-bytes", "1M", "--in-flight", "2"]
KEYS = ("kind", "calls", "scope", "title", "round", "window", "job", "tenant", "class", "weight")
KEYS += ("ranks", "op_bytes", "in_flight", "seconds", "ops", "bytes", "share", "ledger_bytes")
KEYS += ("ledger_share", "samples", "p50_us", "p99_us", "max_us", "wrong", "others", "schema")


def expect(found, wanted):
    if found != wanted:
        raise AssertionError("%r instead of %r" % (found, wanted))


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def tool(folder, *arguments):
    """What the tool printed, what it complained of, and its exit status."""
    environment = dict(os.environ, TMPDIR=folder)
    done = subprocess.run(
        [sys.executable, TOOL, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


def measure(folder, *arguments):
    """(objects of measurements, objects of verdicts, exit status)."""
    out, err, status = tool(folder, "--binaries", folder, "--json", *SHORT, *arguments)
    if status not in (0, 1):
        raise AssertionError("status %d: %s" % (status, err))
    lines = [json.loads(line) for line in out.splitlines()]
    records = [line for line in lines if line["kind"] != "verdict"]
    left = [name for name in os.listdir(folder) if name.startswith("occl-")]
    expect(left, [])
    return records, [line for line in lines if line["kind"] == "verdict"], status


def shares_are_measured_for_both_scopes(folder):
    # Long enough that a job of little weight moves something on a busy machine, too.
    arguments = ("--only", "share", "--calls", "blocking", "--seconds", "0.4", *LOOSE)
    records, verdicts, status = measure(folder, *arguments)
    expect(status, 0)
    expect(len(records), 8)  # two scopes, two windows, two jobs
    for record in records:
        expect([key for key in KEYS if key not in record], [])
        expect((record["wrong"], record["in_flight"]), (0, 0))
        # A part of an operation counts; that one ended within is not said on a busy machine.
        check(record["ops"] > 0, record)
        check(0 <= record["p50_us"] <= record["p99_us"] <= record["max_us"], record)
        check(abs(record["bytes"] - record["ops"] * 65536) <= 100, record)
    for first, second in zip(records[0::2], records[1::2]):
        expect((first["job"], second["job"]), ("A", "B"))
        check(abs(first["share"] + second["share"] - 1) < 1e-9, (first, second))
        one_tenant = first["scope"] == "job"
        expect(first["tenant"] == second["tenant"], one_tenant)
    expect([r["weight"] for r in records], [3, 1, 1, 3] * 2)
    expect([v["ok"] for v in verdicts], [True] * 4)


def latency_is_measured_with_and_without_pauses(folder):
    records, verdicts, status = measure(folder, "--only", "latency", "--calls", "nonblocking", *LOOSE)
    expect(status, 0)
    expect([(r["job"], r["class"], r["pause_us"]) for r in records],
           [("A", "high", 0), ("B", "bulk", 0), ("A", "high", 500), ("B", "bulk", 0)])
    expect([(r["op_bytes"], r["in_flight"], r["wrong"]) for r in records],
           [(8, 1, 0), (1 << 20, 2, 0)] * 2)
    expect([(v["what"], v["ok"], v["bound"]) for v in verdicts], [("p99_us", True, 1e9)] * 2)
    # A pause of 500 us leaves at most 2000 operations a second.
    check(0 < records[2]["ops"] <= 210, records[2])
    for record, verdict in zip(records[0::2], verdicts):
        check(abs(verdict["found"] - record["p99_us"]) < 1e-2, verdict)


def a_missed_bound_is_reported_and_ends_with_1(folder):
    impossible = ("--only", "latency", "--calls", "blocking", "--max-p99-us", "0")
    _, verdicts, status = measure(folder, *impossible)
    expect((status, [v["ok"] for v in verdicts]), (1, [False, False]))
    # Weights that no such window can show: the daemon always lets the other job live.
    few = ("--only", "share", "--calls", "nonblocking", "--weights", "1000:1", "--tolerance", "0")
    out, err, status = tool(folder, "--binaries", folder, *SHORT, *few)
    expect(status, 1)
    check("MISSED  share, weights of tenants, nonblocking, exchanged: " in out, out)
    check("4 of 4 bounds missed" in err, err)


def wrong_options_say_what_was_expected_and_found(folder):
    for arguments, expected in (
        (["--weights", "3"], "expected weights as in 3:1, found '3'"),
        (["--weights", "3:0"], "expected a number from 1 to 1000, found '0'"),
        (["--classes", "high:low"], "expected one of bulk, normal, high, urgent, found 'low'"),
        (["--only", "shares"], "expected some of latency, share, found 'shares'"),
        (["--calls", "async"], "expected some of blocking, nonblocking, found 'async'"),
        (["--ranks", "1"], "expected a number from 2 to 64, found '1'"),
        (["--rounds", "x"], "expected a number from 1 to 1000, found 'x'"),
        (["--seconds", "0"], "expected a number from 0.05 to 3600, found '0'"),
        (["--tolerance", "nan"], "expected a number from 0 to 1000, found 'nan'"),
        (["--share-bytes", "1T"], "expected a size such as 8, 64K or 16M, found '1T'"),
        (["--small-bytes", "2"], "expected a size such as 8, 64K or 16M, found '2'"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ):
        out, err, status = tool(folder, *arguments)
        expect((arguments, status, out), (arguments, 2, ""))
        check(expected in err, "%r is not in %r" % (expected, err))
    expect(tool(folder, "--help")[2], 0)


def what_cannot_be_measured_is_3(folder):
    _, err, status = tool(folder, "--binaries", os.path.join(folder, "nowhere"))
    expect(status, 3)
    check("expected the program occld in " in err, err)
    # No memory of this size is to be had; the tool says so and leaves nothing.
    huge = ("--only", "share", "--calls", "blocking", "--share-bytes", "1023G")
    _, err, status = tool(folder, "--binaries", folder, "--tenants", "tags", *huge)
    expect(status, 3)
    check("memory" in err, err)
    expect([name for name in os.listdir(folder) if name.startswith("occl-")], [])


def an_interrupted_tool_leaves_nothing(folder):
    arguments = ["--binaries", folder, *SHORT, "--seconds", "600"]
    with subprocess.Popen(
        [sys.executable, TOOL, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, TMPDIR=folder),
    ) as process:
        until_s = time.monotonic() + 60
        while not any(name.startswith("occl-jobs-") for name in os.listdir(folder)):
            check(time.monotonic() < until_s and process.poll() is None, "it does not start")
            time.sleep(0.05)
        time.sleep(0.5)
        process.terminate()
        expect(process.wait(timeout=60), 128 + 15)
    expect([name for name in os.listdir(folder) if name.startswith("occl-")], [])


def main():
    cases = (
        shares_are_measured_for_both_scopes,
        latency_is_measured_with_and_without_pauses,
        a_missed_bound_is_reported_and_ends_with_1,
        wrong_options_say_what_was_expected_and_found,
        what_cannot_be_measured_is_3,
        an_interrupted_tool_leaves_nothing,
    )
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, place in PLACES.items():
            os.symlink(os.path.abspath(place), os.path.join(folder, name))
        for case in cases:
            try:
                case(folder)
                print("PASS bench_jobs_%s" % case.__name__)
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print("FAIL bench_jobs_%s: %s" % (case.__name__, error))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
