# SPDX-License-Identifier: Apache-2.0
"""Two jobs that share a daemon: starts them, sets classes and weights, opens windows, collects."""

import json
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import time
from types import SimpleNamespace

from machine import Watch

PROGRAMS = ("occld", "occlctl", "jobs_bench")
CLASSES = ("bulk", "normal", "high", "urgent")
# User ids of the two tenants where the caller is root; no such user need exist.
TENANT_UIDS = (60001, 60002)

_START_LIMIT_S = 120
_STOP_LIMIT_S = 120
# The daemon looks for competing jobs ten times a second; after a change the shares hold at once, but
# what was under way before it has to end. Nothing of this time is measured.
SETTLE_S = 0.5

# Of tools/bench/jobs_page.h, in words of 64 bits.
_READY, _PUBLISHED, _STOP, _STOP_BEFORE, _WINDOWS = 0, 1, 2, 3, 4
_PAGE_WORDS = 20
_NEVER = 2**64 - 1


class Failed(Exception):
    """A measurement could not be made; the text says why."""


def privileged():
    """Whether the two jobs can be those of two users."""
    return os.geteuid() == 0 and shutil.which("setpriv") is not None


class _Page:
    """One job's page; its ranks map the same file."""

    def __init__(self, path):
        with open(path, "wb") as file:
            words = [0] * _PAGE_WORDS
            words[_STOP_BEFORE] = _NEVER
            file.write(struct.pack("=%dQ" % _PAGE_WORDS, *words))
        os.chmod(path, 0o666)
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _PAGE_WORDS * 8)
        # A store through it is one aligned word.
        self.words = memoryview(self._map).cast("Q")

    def publish(self, index, begin_ns, end_ns):
        self.words[_WINDOWS + 2 * index] = begin_ns
        self.words[_WINDOWS + 2 * index + 1] = end_ns
        self.words[_PUBLISHED] = index + 1

    def ready(self):
        return self.words[_READY]

    def stop(self):
        self.words[_STOP] = 1


class Node:
    """A folder with programs, and a private daemon without configuration."""

    def __init__(self, programs):
        self.folder = tempfile.mkdtemp(prefix="occl-jobs-")
        os.chmod(self.folder, 0o755)
        self.programs = {}
        for name, path in programs.items():
            self.programs[name] = shutil.copy(os.path.realpath(path), os.path.join(self.folder, name))
            os.chmod(self.programs[name], 0o755)
        self.daemon = None
        self.jobs = []
        # A folder of its own with default rights: the daemon's rule for other users' access.
        self.run_folder = os.path.join(self.folder, "run")
        os.mkdir(self.run_folder, 0o755)
        self.socket = os.path.join(self.run_folder, "occld.sock")

    def start(self):
        with open(os.path.join(self.folder, "occld.log"), "wb") as log:
            self.daemon = subprocess.Popen(
                [self.programs["occld"], "--socket", self.socket],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait("occld", lambda: os.path.exists(self.socket), [self.daemon])

    def _wait(self, what, condition, processes):
        until_s = time.monotonic() + _START_LIMIT_S
        while not condition():
            if any(p.poll() is not None for p in processes):
                raise Failed("%s ended: %s" % (what, self._last_words()))
            if time.monotonic() > until_s:
                raise Failed("%s: not ready after %d s" % (what, _START_LIMIT_S))
            time.sleep(0.01)

    def _last_words(self):
        for name in ("B.log", "A.log", "occld.log"):
            path = os.path.join(self.folder, name)
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    lines = file.read().strip().splitlines()
                if lines: # the launcher's last words follow those of the rank that it tells of
                    return "%s: %s" % (name, "; ".join(lines[-4:]))
        return "it said nothing"

    def ctl(self, *arguments):
        """Output of occlctl; raises Failed with what it said."""
        done = subprocess.run(
            [self.programs["occlctl"], *arguments, "--socket", self.socket],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed("occlctl %s: %s" % (" ".join(arguments), done.stderr.strip()))
        return done.stdout

    def add_job(self, name, ranks, load, user, tag):
        """Starts a job and returns it; user and tag may be None. See wait_ready."""
        page = _Page(os.path.join(self.folder, name + ".page"))
        prefix, tenant = [], str(os.geteuid())
        if user is not None:
            ids = ["--reuid=%d" % user, "--regid=%d" % user, "--clear-groups"]
            prefix, tenant = ["setpriv"] + ids, str(user)
        argv = prefix + [self.programs["occlctl"], "run", "--socket", self.socket]
        argv += ["--job", name, "-n", str(ranks)]
        if tag is not None:
            argv += ["--tag", tag]
            tenant += ":" + tag
        argv += [self.programs["jobs_bench"], "--control", os.path.join(self.folder, name + ".page")]
        argv += ["--bytes", str(load.op_bytes), "--in-flight", str(load.in_flight)]
        argv += ["--pause-us", str(load.pause_us), "--memory", load.memory]
        with open(os.path.join(self.folder, name + ".log"), "wb") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd="/"
            )
        job = SimpleNamespace(
            name=name, tenant=tenant, page=page, process=process, ranks=ranks, load=load, lines=[]
        )
        self.jobs.append(job)
        return job

    def wait_ready(self):
        """Returns when each rank of each job has completed an operation."""
        ready = lambda: all(job.page.ready() >= job.ranks for job in self.jobs)
        self._wait("a job", ready, [self.daemon] + [job.process for job in self.jobs])

    def ledger(self):
        """{job: bytes that the daemon's lanes and the job's own threads have moved}."""
        usage = json.loads(self.ctl("usage", "--json"))
        moved = {}
        for tenant in usage["tenants"]:
            for job in tenant["jobs"]:
                moved[job["job"]] = job["bytes_moved_total"] + job["executed_bytes_total"]
        return moved

    def measure(self, index, seconds):
        """Opens window number `index` of all jobs; returns ledger bytes and the part others used."""
        watch = Watch(self._pids())
        begin_ns = time.monotonic_ns() + 20 * 10**6
        end_ns = begin_ns + int(seconds * 1e9)
        for job in self.jobs:
            job.page.publish(index, begin_ns, end_ns)
        _sleep_until(begin_ns)
        before = self.ledger()
        _sleep_until(end_ns)
        after = self.ledger()
        if any(job.process.poll() is not None for job in self.jobs):
            raise Failed("a job ended while it was measured: %s" % self._last_words())
        return {name: after[name] - before.get(name, 0) for name in after}, watch.others()[0]

    def _pids(self):
        """The daemon, and all processes below the launchers."""
        return [self.daemon.pid] + [pid for job in self.jobs for pid in _family(job.process.pid)]

    def finish(self):
        """Stops the jobs; fills each job's `lines`, one object a window."""
        for job in self.jobs:
            job.page.stop()
        for job in self.jobs:
            try:
                text = job.process.communicate(timeout=_STOP_LIMIT_S)[0].decode()
            except subprocess.TimeoutExpired:
                raise Failed("job %s does not end" % job.name) from None
            job.lines = [json.loads(line) for line in text.splitlines()]
            # 1: wrong values, which the lines tell.
            if job.process.returncode not in (0, 1) or not job.lines:
                raise Failed(
                    "job %s ended with %d: %s"
                    % (job.name, job.process.returncode, self._last_words())
                )

    def close(self):
        """Ends what still runs, launchers first, and removes the folder."""
        for process in [job.process for job in self.jobs] + [self.daemon]:
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for job in self.jobs:
            job.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _sleep_until(when_ns):
    time.sleep(max(0.0, (when_ns - time.monotonic_ns()) / 1e9))


def _family(pid):
    found = [pid]
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
            for child in file.read().split():
                found += _family(int(child))
    except OSError:
        pass  # it has ended, or the kernel has no such file: at worst the window counts as noisy
    return found


# ---- the two kinds of measurements ----


def _load(options, op_bytes, in_flight, pause_us):
    """What the ranks of a job do; in_flight 0: blocking calls."""
    return SimpleNamespace(
        op_bytes=op_bytes, in_flight=in_flight, pause_us=pause_us, memory=options.memory
    )


def _two_jobs(node, options, loads, two_tenants):
    """Starts jobs A and B, of one tenant or of two."""
    users, tags = (None, None), (None, None)
    if options.tenants == "uids":
        users = TENANT_UIDS if two_tenants else (TENANT_UIDS[0],) * 2
    elif two_tenants:
        tags = ("a", "b")
    node.start()
    for name, load, user, tag in zip("AB", loads, users, tags):
        node.add_job(name, options.ranks, load, user, tag)
    node.wait_ready()


def _records(node, ledgers, common):
    """One dictionary for each job and window; shares are those among the two."""
    found = []
    for window, (ledger, others) in enumerate(ledgers):
        total = sum(job.lines[window]["bytes"] for job in node.jobs) or 1.0
        ledger_total = sum(ledger.get(job.name, 0) for job in node.jobs) or 1
        for index, job in enumerate(node.jobs):
            line = job.lines[window]
            record = dict(common)
            record.update(
                title=common["title"][window],
                window=window,
                job=job.name,
                tenant=job.tenant,
                ranks=job.ranks,
                op_bytes=job.load.op_bytes,
                in_flight=job.load.in_flight,
                pause_us=job.load.pause_us,
                memory=job.load.memory,
                share=line["bytes"] / total,
                ledger_bytes=ledger.get(job.name, 0),
                ledger_share=ledger.get(job.name, 0) / ledger_total,
                others=round(others, 3),
            )
            record["class"] = common["class"][index]
            record["weight"] = common["weight"][window][index]
            for key in ("seconds", "ops", "bytes", "samples", "p50_us", "p99_us", "max_us", "wrong"):
                record[key] = line[key]
            found.append(record)
    return found


def measure_shares(programs, options, calls, scope):
    """Weights as asked for, then exchanged while the jobs run: a window for each."""
    flight = 0 if calls == "blocking" else options.in_flight
    load = _load(options, options.share_bytes, flight, 0)
    pairs = [options.weights, options.weights[::-1]]
    node = Node(programs)
    try:
        _two_jobs(node, options, (load, load), scope == "tenant")
        ledgers = []
        for index, pair in enumerate(pairs):
            for job, weight in zip(node.jobs, pair):
                name = job.name if scope == "job" else job.tenant
                node.ctl("set", scope, name, "weight", str(weight))
            time.sleep(SETTLE_S)
            ledgers.append(node.measure(index, options.seconds))
        node.finish()
        title = "share, weights of %ss, %s" % (scope, calls)
        common = {"kind": "share", "calls": calls, "scope": scope}
        common["title"] = (title, title + ", exchanged")
        common.update({"class": ("normal", "normal"), "weight": pairs})
        return _records(node, ledgers, common)
    finally:
        node.close()


def measure_latency(programs, options, calls, pause_us):
    """Small operations of job A beside large ones of job B, which has a lower class."""
    blocking = calls == "blocking"
    small = _load(options, options.small_bytes, 0 if blocking else 1, pause_us)
    large = _load(options, options.large_bytes, 0 if blocking else 2, 0)
    node = Node(programs)
    try:
        _two_jobs(node, options, (small, large), True)
        for job, name in zip(node.jobs, options.classes):
            node.ctl("set", "job", job.name, "class", name)
        time.sleep(SETTLE_S)
        ledgers = [node.measure(0, options.seconds)]
        node.finish()
        pauses = "pauses of %d us" % pause_us if pause_us else "no pauses"
        common = {"kind": "latency", "calls": calls, "scope": "class"}
        common["title"] = ("latency, %s, %s" % (calls, pauses),)
        common.update({"class": options.classes, "weight": [(1, 1)]})
        return _records(node, ledgers, common)
    finally:
        node.close()
