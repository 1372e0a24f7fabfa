#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say, under a private daemon.

    examples_test.py OCCLD OCCLCTL EXAMPLE...
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

OCCLD, OCCLCTL = (os.path.abspath(path) for path in sys.argv[1:3])
PROGRAMS = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[3:]}
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client_lib/examples")
LINES_MAX = 99
RUN_S = 40


def every_rank(text, ranks):
    return [text % {"rank": rank, "n": ranks} for rank in range(ranks)]


# Example -> (exit status, the lines of its output as expressions, in any order) of so many ranks.
def hello_all_reduce(n):
    return 0, every_rank("rank %(rank)d of %(n)d: the sum is " + str(n * (n + 1) // 2), n)


def out_of_order_threads(n):
    return 0, every_rank("rank %(rank)d: 24 layers, 0 wrong", n)


def persistent_loop(n):
    return 0, every_rank("rank %%(rank)d: after 100 steps the weight is %g"
                         % (4950 + 100 * (n - 1) / 2), n)


def async_epoll(n):
    return 0, every_rank("rank %%(rank)d: 8 operations, the last sum is %d" % (7 * n), n)


def error_handling(n):
    lines = []
    for rank in range(n - 1):
        lines += [r"rank %d: .*: .*\b%d\b.*" % (rank, n - 1),            # late
                  r"rank %d: .*: .*rank %d\b.*pid \d+.*" % (rank, n - 1),  # dead
                  r"rank %d: %d of %d ranks go on" % (rank, n - 1, n)]
    return 128 + 9, lines


def check(example, ranks, folder):
    code, expected = globals()[example](ranks)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("OCCL_") and name != "XDG_RUNTIME_DIR"}
    environment.update(TMPDIR=folder, HOME=folder)
    command = [OCCLCTL, "run", "--occld", OCCLD, "--on-death=continue", "-n", str(ranks),
               PROGRAMS[example]]
    try:
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired:
        return ["it did not end within %d s" % RUN_S]
    problems = []
    if run.returncode != code:
        problems.append("exit status %d, expected %d" % (run.returncode, code))
    lines = run.stdout.splitlines()
    for pattern in expected:
        match = next((line for line in lines if re.fullmatch(pattern, line)), None)
        if match is None:
            problems.append("no line like: " + pattern)
        else:
            lines.remove(match)
    problems += ["unexpected line: " + line for line in lines]
    if code == 0 and run.stderr:
        problems.append("on standard error: " + run.stderr)
    if problems:
        problems += [run.stdout, run.stderr]
    return problems


def short(example):
    with open(os.path.join(SOURCES, example + ".c"), encoding="utf-8") as file:
        text = file.read()
    problems = []
    if len(text.splitlines()) > LINES_MAX:
        problems.append("more than %d lines" % LINES_MAX)
    if re.findall(r'#include "', text):
        problems.append("includes something that is not installed")
    return problems


def main():
    good = True
    for example in sorted(PROGRAMS):
        cases = [("example_%s_%d_ranks" % (example, ranks), ranks) for ranks in (2, 4)]
        for name, ranks in cases + [("example_%s_is_short" % example, 0)]:
            folder = tempfile.mkdtemp(prefix="occl-examples.", dir="/tmp")
            problems = check(example, ranks, folder) if ranks else short(example)
            for problem in problems:
                print("  " + problem)
            print(("FAIL " if problems else "PASS ") + name)
            good = good and not problems
            shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
