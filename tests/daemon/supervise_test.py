#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon under a service manager: what it says on NOTIFY_SOCKET, when its watchdog is fed, and
the listening sockets it is handed.

    supervise_test.py OCCLD OCCLCTL HELLO
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

OCCLD, OCCLCTL, HELLO = (os.path.abspath(path) for path in sys.argv[1:4])
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
# Liveness is asserted generously (sanitizers, loaded machines).
PATIENCE_S = 30


class Manager:
    """A folder with a notification socket, and daemons started as a service manager starts them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="occl-supervise.", dir="/tmp")
        self.path = self.folder + "/occld.sock"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.folder + "/notify")
        self.log = open(self.folder + "/log", "w+", encoding="utf-8")
        self.pid = 0

    def start(self, *flags, environment=None, passed=None):
        """occld with these flags; `passed` is a socket that it finds as descriptor 3."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("OCCL_")}
        env.update(NOTIFY_SOCKET=self.folder + "/notify", **(environment or {}))
        self.pid = os.fork()
        if self.pid == 0:
            if passed is not None:
                env.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
                os.dup2(passed.fileno(), 3)
            if env.get("WATCHDOG_PID") == "self":
                env["WATCHDOG_PID"] = str(os.getpid())
            os.dup2(self.log.fileno(), 2)
            os.execve(OCCLD, [OCCLD, *flags], env)

    def hear(self, word, within_s=PATIENCE_S):
        """The next message with the word, or None when none comes; others are passed over."""
        end = time.monotonic() + within_s
        while (left := end - time.monotonic()) > 0:
            self.notify.settimeout(left)
            try:
                text = self.notify.recv(4096).decode()
            except socket.timeout:
                return None
            if word in text:
                return text
        return None

    def forget(self):
        self.notify.setblocking(False)
        try:
            while True:
                self.notify.recv(4096)
        except BlockingIOError:
            pass

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        return self.end()

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.notify.close()
        self.log.close()
        shutil.rmtree(self.folder)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, *words):
        return subprocess.run([OCCLCTL, "--socket", self.path, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def ready_comes_when_it_serves(m):
    m.start("--socket", m.path)
    check("STATUS=serving" in (m.hear("READY=1") or ""), "no READY with a status")
    check(m.ask("ping").returncode == 0, "READY came, but nobody answers")
    check(m.stop() == 0, "exit status")


def the_status_follows_jobs_and_the_end_is_announced(m):
    m.start("--socket", m.path)
    m.hear("READY=1")
    run = subprocess.run([OCCLCTL, "run", "--socket", m.path, "-n", "2", "sh", "-c",
                          HELLO + " && sleep 2.5"], stdout=subprocess.PIPE, check=False)
    check(run.returncode == 0, "the job failed")
    check(m.hear("STATUS=serving: 0 jobs, 0 processes"), "no status after the job")
    check(m.stop() == 0, "exit status")
    text = m.hear("STOPPING=1", 1)
    check(text and "STATUS=draining" in text, "no STOPPING")
    # 30 s of drain_timeout and 10 s to end.
    check("EXTEND_TIMEOUT_USEC=40000000" in text, "the drain is not announced: %s" % text)
    check(not m.hear("STOPPING=1", 0.1), "STOPPING came twice")


def a_reload_is_announced_and_ends(m):
    m.start("--socket", m.path)
    m.hear("READY=1")
    os.kill(m.pid, signal.SIGHUP)
    check("MONOTONIC_USEC=" in (m.hear("RELOADING=1") or ""), "no RELOADING")
    check(m.hear("READY=1"), "no READY after the reload")
    check(m.stop() == 0, "exit status")


def the_watchdog_is_fed(m):
    m.start("--socket", m.path, environment={"WATCHDOG_USEC": "400000", "WATCHDOG_PID": "self"})
    m.hear("READY=1")
    for _ in range(10):
        check(m.hear("WATCHDOG=1", PATIENCE_S), "not fed")
    check(m.stop() == 0, "exit status")


def a_stuck_loop_starves_the_watchdog(m):
    """The negative control: the loop's thread is held by a tracer, the lanes run on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    m.start("--socket", m.path, environment={"WATCHDOG_USEC": "400000", "WATCHDOG_PID": "self"})
    m.hear("READY=1")
    if libc.ptrace(PTRACE_SEIZE, m.pid, None, None) != 0:
        m.stop()
        return "ptrace: " + os.strerror(ctypes.get_errno())
    check(libc.ptrace(PTRACE_INTERRUPT, m.pid, None, None) == 0, "not interrupted")
    os.waitpid(m.pid, WALL)
    m.forget()
    check(not m.hear("WATCHDOG=1", 2), "fed although the loop stands")
    check(libc.ptrace(PTRACE_DETACH, m.pid, None, None) == 0, "not let go")
    check(m.hear("WATCHDOG=1"), "not fed after the loop goes on")
    check(m.stop() == 0, "exit status")
    return None


def switches(pid):
    """How often threads of the process have slept or been preempted: it has run in between."""
    count = 0
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, thread), encoding="utf-8") as file:
            count += sum(int(line.split()[1]) for line in file if "voluntary_ctxt_switches" in line)
    return count


def without_a_deadline_an_idle_daemon_never_wakes(m):
    # A deadline of another process is none of ours.
    m.start("--socket", m.path, environment={"WATCHDOG_USEC": "400000", "WATCHDOG_PID": "1"})
    m.hear("READY=1")
    time.sleep(1)
    before = switches(m.pid)
    time.sleep(4)
    woken = switches(m.pid) - before
    check(woken == 0, "%d wake-ups in 4 s without work" % woken)
    check(not m.hear("WATCHDOG=1", 0.1), "fed a watchdog of another process")
    check(m.stop() == 0, "exit status")


def listening(path, kind=socket.SOCK_SEQPACKET):
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(path)
    if kind != socket.SOCK_DGRAM:
        sock.listen(16)
    return sock


def a_passed_socket_is_served_and_outlives_the_daemon(m):
    passed = listening(m.path)
    # It waits in the socket until there is a daemon.
    early = subprocess.Popen([OCCLCTL, "--socket", m.path, "--timeout", "60", "ping"],
                             stdout=subprocess.DEVNULL)
    time.sleep(0.2)
    check(early.poll() is None, "the early client did not wait")
    m.start(passed=passed)
    check(m.hear("READY=1"), "no READY: " + m.said())
    check(early.wait() == 0, "the early client got no answer")
    config = json.loads(m.ask("config", "--json").stdout)
    entry = next(entry for entry in config["config"] if entry["name"] == "socket")
    check(entry["value"] == m.path and entry["origin"] == "service manager",
          "config says %s" % entry)
    inode = os.stat(m.path).st_ino
    check(m.stop() == 0, "exit status")
    check(os.stat(m.path).st_ino == inode, "the socket's file is gone")
    m.start(passed=passed)
    m.hear("READY=1")
    check(m.ask("ping").returncode == 0, "the second daemon does not answer")
    check(m.stop() == 0, "exit status")
    passed.close()


def a_socket_of_another_kind_is_refused(m):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        passed = listening("%s/%d" % (m.folder, kind), kind)
        m.start(passed=passed)
        check(m.end() == 1, "it started")
        check("ListenSequentialPacket=" in m.said(), "it says: " + m.said())
        passed.close()


def a_passed_socket_and_another_in_the_configuration_are_an_error(m):
    passed = listening(m.path)
    m.start("--socket", m.folder + "/other", passed=passed)
    check(m.end() == 1, "it started")
    check("flag: socket is %s/other, but the service manager passes %s" % (m.folder, m.path)
          in m.said(), "it says: " + m.said())
    # The same path in both is fine.
    m.start("--socket", m.path, passed=passed)
    check(m.hear("READY=1"), "no READY: " + m.said())
    check(m.stop() == 0, "exit status")
    passed.close()


CASES = (
    ready_comes_when_it_serves,
    the_status_follows_jobs_and_the_end_is_announced,
    a_reload_is_announced_and_ends,
    the_watchdog_is_fed,
    a_stuck_loop_starves_the_watchdog,
    without_a_deadline_an_idle_daemon_never_wakes,
    a_passed_socket_is_served_and_outlives_the_daemon,
    a_socket_of_another_kind_is_refused,
    a_passed_socket_and_another_in_the_configuration_are_an_error,
)


def main():
    good = True
    for case in CASES:
        manager = Manager()
        try:
            reason = case(manager)
            print("SKIP %s: %s" % (case.__name__, reason) if reason else "PASS " + case.__name__)
        except Exception as error:  # each case reports, whatever it ran into
            print("  %r\n  %s" % (error, manager.said()))
            print("FAIL " + case.__name__)
            good = False
        finally:
            manager.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
