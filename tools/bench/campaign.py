# SPDX-License-Identifier: Apache-2.0
"""Runs the rounds: in each one every program has its turn, so drift of the machine hits all."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from statistics import median

import distance
import machine
from points import MOVE_FROM_BYTES, Point, argument_of
from results import MEETING_BYTES, Results, keep_best
from settings import PEERS, PROGRAMS, settings_of

EXIT_WRONG = 3
# Verification looks at all elements in the first round and at every n-th in the later ones.
LATER_CHECK_STRIDE = 7
# A program that takes longer hangs.
LAUNCH_LIMIT_S = 120
LAUNCH_LIMIT_LARGE_S = 600
LARGE_BYTES = 64 << 20
DAEMON_START_LIMIT_S = 20
# With less than this a point of a millisecond a call has no more than a handful of samples.
BUDGET_MIN_MS = 8
# In a timed run, second tries of the first round end when this part of the time is over.
RETRY_PART = 0.25
# Later rounds leave out the settings that the first one dropped; so much of it remains at most.
LATER_PART = 0.8


class Daemon:
    """A private occld, so that the benchmark disturbs nobody's daemon and nobody's disturbs it."""

    def __init__(self, programs):
        self.folder = tempfile.mkdtemp(prefix="occl-bench-")
        self.socket = os.path.join(self.folder, "occld.sock")
        self.log = os.path.join(self.folder, "occld.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [programs["occld"], "--socket", self.socket],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + DAEMON_START_LIMIT_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > until_s:
                message = self._last_words()
                self.stop()
                raise RuntimeError("occld did not start: %s" % message)
            time.sleep(0.05)

    def _last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or ["no message"])[-1]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Campaign:
    """All rounds of one call of the tool."""

    def __init__(self, plan, programs, say):
        self.plan = plan
        self.programs = programs
        self.say = say
        self.results = Results()
        self.failures = []
        self.noisy_launches = 0
        self.launches = 0
        self.rounds_done = 0
        self.began_s = time.monotonic()
        self.chosen = {}
        self.settings = {}
        self.daemon = None
        for ranks in plan.ranks:
            for peer in plan.programs:
                found = settings_of(peer, ranks, machine.cores(), plan.private)
                self.settings[(peer, ranks)] = found

    def run(self):
        """Rounds until the plan has enough, or its time is up."""
        if "occl" in self.plan.programs:
            self._start_daemon()
        try:
            for number in range(1, self.plan.rounds_max + 1):
                began_s = time.monotonic()
                self._round(number)
                self.rounds_done = number
                took_s = time.monotonic() - began_s
                self.say(
                    "round %d: %.0f s, line %s ns, %d of %d runs disturbed so far"
                    % (number, took_s, self._lines(number), self.noisy_launches, self.launches)
                )
                self._hurry(number, took_s)
                if number == 1:
                    self._choose()
                elif number >= self.plan.rounds_min and self._is_late(took_s):
                    break
        finally:
            if self.daemon is not None:
                self.daemon.stop()
        return self.results

    def _start_daemon(self):
        """Without a daemon the peers are measured all the same."""
        try:
            self.daemon = Daemon(self.programs)
        except (OSError, RuntimeError) as error:
            self._fail("occl: %s" % error)
            self.plan.programs = [name for name in self.plan.programs if name != "occl"]

    def _hurry(self, number, round_s):
        """Gives each point less time, where the rounds that must be made would end too late. The
        number of samples in a round shrinks, and nothing else: a round stays one value a point."""
        left = self.plan.rounds_min - number
        if self.plan.hard_end_s is None or left <= 0:
            return
        expected_s = round_s * (LATER_PART if number == 1 else 1)
        allowed_s = (self.plan.hard_end_s - time.monotonic()) / left
        if expected_s > allowed_s and self.plan.budget_ms > BUDGET_MIN_MS:
            shorter_ms = int(self.plan.budget_ms * max(allowed_s, 0) / expected_s)
            self.plan.budget_ms = max(BUDGET_MIN_MS, shorter_ms)
            text = "a round may take %.0f s from here on: %d ms a point"
            self.say(text % (max(allowed_s, 0), self.plan.budget_ms))

    def _is_late(self, round_s):
        end_s = self.plan.end_s
        return end_s is not None and time.monotonic() + round_s > end_s

    def _lines(self, number):
        """For people: the distances of a round, and how many measurements were made at each."""
        samples = [rounds[number] for rounds in self.results.times.values() if number in rounds]
        lines_ns = sorted(s.line_ns for s in samples if s.line_ns is not None)
        borders_ns = distance.borders_of(lines_ns)
        groups = [[] for _ in range(len(borders_ns) + 1)]
        for line_ns in lines_ns:
            groups[distance.group_of(borders_ns, line_ns)].append(line_ns)
        found = ["%.0f (%d times)" % (median(group), len(group)) for group in groups if group]
        return ", ".join(found) or "unknown"

    def _choose(self):
        peers = [p for p in PEERS if p in self.plan.programs]
        points = self.plan.points
        self.chosen = keep_best(self.results, peers, points, self.plan.keep, self.plan.hopeless)

    def _round(self, number):
        for ranks in self.plan.ranks:
            # Another order each time: no program always follows the same one.
            turn = (number - 1) % len(self.plan.programs)
            order = self.plan.programs[turn:] + self.plan.programs[:turn]
            for peer in order:
                for setting in self.settings[(peer, ranks)]:
                    points = self._points(setting, ranks, number)
                    if points:
                        self._launch(setting, ranks, points, number)

    def _points(self, setting, ranks, number):
        points = [p for p in self.plan.points if p.ranks == ranks and setting.applies(p)]
        if setting.peer == "floor":
            return _floor_points(setting, ranks, points)
        if number == 1 or setting.peer == "occl":
            return points
        chosen = self.chosen.get(setting.peer, {})
        return [p for p in points if setting.name in chosen.get(p, ())]

    def _launch(self, setting, ranks, points, number):
        """Runs a program once, and a second time if others disturbed it."""
        for _ in range(2 if number == 1 and self._has_time() else 1 + self.plan.retries):
            pids = [self.daemon.process.pid] if self.daemon is not None else []
            machine.wait_for_quiet(pids, self.plan.looks)
            watch = machine.Watch(pids)
            lines, error = self._execute(setting, points, number)
            share, noisy = watch.others()
            if not noisy:
                break
        self.launches += 1
        self.noisy_launches += noisy
        for line in lines:
            self.results.add_line(line, noisy)
        if error is not None:
            self._fail("%s %s, %d ranks: %s" % (setting.peer, setting.name, ranks, error))
        if noisy and self.plan.verbose:
            text = "%s %s, %d ranks: others used %.0f %% of the machine"
            self.say(text % (setting.peer, setting.name, ranks, 100 * share))

    def _has_time(self):
        """The first round decides which settings go on, so there a second try is worth its time."""
        if self.plan.hard_end_s is None:
            return True
        spent_s = time.monotonic() - self.began_s
        return spent_s < RETRY_PART * (self.plan.hard_end_s - self.began_s)

    def _fail(self, text):
        if text not in self.failures:
            self.failures.append(text)
            self.say("failed: " + text)

    def _execute(self, setting, points, number):
        """([result lines], None or what went wrong)."""
        with tempfile.TemporaryDirectory(prefix="occl-bench-", dir=_memory_dir()) as folder:
            out = os.path.join(folder, "out")
            arguments = [
                "--control", os.path.join(folder, "control"),
                "--out", out,
                "--setting", setting.name,
                "--round", str(number),
                "--budget-ms", str(self.plan.budget_ms),
                "--check-stride", "1" if number == 1 else str(LATER_CHECK_STRIDE),
                "--points", argument_of(points),
            ]  # fmt: skip
            cores = sorted(os.sched_getaffinity(0))[:2]
            if len(cores) == 2:
                arguments += ["--line-cores", "%d,%d" % tuple(cores)]
            large = any(p.bytes >= LARGE_BYTES for p in points)
            limit_s = LAUNCH_LIMIT_LARGE_S if large else LAUNCH_LIMIT_S
            environment = dict(os.environ, **setting.environment)
            if self.daemon is not None:
                environment["OCCL_SOCKET"] = self.daemon.socket
            error = run_limited(setting.command(self.programs, arguments), environment, limit_s)
            lines = []
            if os.path.exists(out):
                with open(out, encoding="ascii") as file:
                    lines = file.read().splitlines()
        return lines, error


def _floor_points(setting, ranks, points):
    """Every way to meet is measured in every round: a lucky first round must not choose."""
    if setting.name == "move":
        return [p for p in points if p.bytes >= MOVE_FROM_BYTES]
    meeting = Point("all_reduce", ranks, MEETING_BYTES, "loop")
    return points if meeting in points else [meeting] + points


def run_limited(argv, environment, limit_s):
    """Runs a command in a process group of its own; None, or what went wrong. Wrong results are
    no failure of the run: they stand in its lines."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return str(error)
        try:
            status = process.wait(timeout=limit_s)
            text = None
        except subprocess.TimeoutExpired:
            # The group holds only what we started; the leader is not reaped yet, so it is ours.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "no end after %d s" % limit_s
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if status not in (0, EXIT_WRONG):
            output.seek(0)
            words = output.read().decode("utf-8", "replace").strip().splitlines()
            text = "exit status %d: %s" % (status, (words or ["no message"])[0])
    return text


def _memory_dir():
    """Where a file costs no disk traffic: the control file is shared memory."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def default_say(text):
    print(text, file=sys.stderr, flush=True)


def ordered_programs(names):
    """The programs of a round in their fixed order."""
    return [name for name in PROGRAMS if name in names]
