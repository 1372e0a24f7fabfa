#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/test_report counts: a run must not look green when cases failed, crashed or are missing."""

import json
import os
import subprocess
import sys
import tempfile

REPORT = os.path.join("tools", "test_report")

GREEN = """\
[==========] Running 2 test(s).
[ RUN      ] adds
[       OK ] adds
[ RUN      ] needs_gpu
SKIP needs_gpu: no GPU
[  SKIPPED ] needs_gpu
[==========] 2 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] needs_gpu
"""
FAILED = """\
[==========] Running 1 test(s).
[ RUN      ] adds
[  ERROR   ] --- 0x1 != 0x2
[  FAILED  ] adds
[==========] 1 test(s) run.
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] adds
"""
CRASHED = """\
[==========] Running 2 test(s).
[ RUN      ] adds
[       OK ] adds
[ RUN      ] crashes
"""
MUTE_SKIP = """\
[==========] Running 1 test(s).
[ RUN      ] quiet
[  SKIPPED ] quiet
[==========] 1 test(s) run.
"""
PART_SKIP = """\
[==========] Running 1 test(s).
[ RUN      ] loop
SKIP part: kernel too old
[       OK ] loop
[==========] 1 test(s) run.
"""
SETUP = """\
[==========] Running 1 test(s).
[  FAILED  ] GROUP SETUP
[  ERROR   ] group
[==========] 0 test(s) run.
"""
SCRIPT = "PASS one\nFAIL two: wrong\nSKIP three: no netns\nSKIP four\nnoise PASS five\n"


def close(folder, log, status="PASSED", expected=("//a:t",), seen=("//a:t",), config="gcc"):
    """The output of a report of one run; log is what each seen target printed."""
    paths = {name: os.path.join(folder, name) for name in ("log", "events", "expect", "totals")}
    with open(paths["log"], "w", encoding="utf-8") as file:
        file.write(log)
    with open(paths["events"], "w", encoding="utf-8") as file:
        file.write(json.dumps({"id": {"progress": {}}}) + "\n")
        for label in seen:
            output = {"name": "test.log", "uri": "file://" + paths["log"]}
            file.write(json.dumps({"id": {"testResult": {"label": label}},
                                   "testResult": {"status": status,
                                                  "testActionOutput": [output]}}) + "\n")
    with open(paths["expect"], "w", encoding="utf-8") as file:
        file.write("\n".join(expected) + "\n")
    open(paths["totals"], "w", encoding="utf-8").close()
    done = subprocess.run([sys.executable, REPORT, "--totals", paths["totals"], "--config", config,
                           "--events", paths["events"], "--expect", paths["expect"], "--close"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False)
    return done.stdout.splitlines(), done.returncode


def check(name, folder, closing, code, lines=(), **run):
    output, status = close(folder, **run)
    good = output[-1] == closing and status == code and all(line in output for line in lines)
    print("PASS " + name if good else "FAIL %s: status %d, output %r" % (name, status, output))
    return good


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = [
            check("cmocka_cases_are_counted_once", folder, "1 passed, 0 failed, 1 skipped", 0,
                  log=GREEN, lines=["SKIP needs_gpu: no GPU"]),
            check("configuration_marks_the_name", folder, "1 passed, 0 failed, 1 skipped", 0,
                  log=GREEN, config="asan", lines=["SKIP needs_gpu[asan]: no GPU"]),
            check("failed_case", folder, "0 passed, 1 failed, 0 skipped", 1, log=FAILED,
                  status="FAILED", lines=["FAIL a/t/adds"]),
            check("failed_case_of_a_passing_binary", folder, "0 passed, 1 failed, 0 skipped", 1,
                  log=FAILED),
            check("crash_counts_the_started_case", folder, "1 passed, 1 failed, 0 skipped", 1,
                  log=CRASHED, status="FAILED"),
            check("time_out_without_a_failed_case", folder, "1 passed, 1 failed, 1 skipped", 1,
                  log=GREEN, status="TIMEOUT"),
            check("binary_without_a_case", folder, "0 passed, 1 failed, 0 skipped", 1, log="hello\n"),
            check("target_without_a_result", folder, "1 passed, 1 failed, 1 skipped", 1, log=GREEN,
                  expected=("//a:t", "//a:gone"),
                  lines=["FAIL a/gone: has no result (does it build?)"]),
            check("skip_without_a_reason", folder, "0 passed, 1 failed, 0 skipped", 1,
                  log=MUTE_SKIP),
            check("skipped_part_of_a_case", folder, "1 passed, 0 failed, 1 skipped", 0,
                  log=PART_SKIP, lines=["SKIP part: kernel too old"]),
            check("group_setup_failed", folder, "0 passed, 1 failed, 0 skipped", 1, log=SETUP),
            check("script_cases", folder, "1 passed, 2 failed, 1 skipped", 1, log=SCRIPT,
                  status="FAILED", lines=["SKIP three: no netns", "FAIL a/t/two: wrong"]),
            check("nothing_ran", folder, "0 passed, 0 failed, 0 skipped", 1, log="", expected=(),
                  seen=()),
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
