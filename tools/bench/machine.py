# SPDX-License-Identifier: Apache-2.0
"""The machine: what it is, and whether somebody else is using it while we measure."""

import os
import platform
import resource
import time

# Others may take this part of all cores before a run counts as disturbed.
NOISE_LIMIT = 0.10
# Clock ticks are coarse; a run of a few milliseconds must not be called noisy for one of them.
NOISE_SLACK_S = 0.05
# How long one look at the machine takes, and how many looks in vain are made before a run.
LOOK_S = 0.2
LOOKS_MAX = 10

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cores():
    return len(os.sched_getaffinity(0))


def facts():
    """One line: processor, cores, memory, kernel."""
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = platform.release().split("-")[0]
    return "%s, %d cores, %.0f GiB, Linux %s" % (model, cores(), memory_gib, kernel)


def _busy_s():
    """CPU time that all cores spent on anything, also for other guests of the host."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def _own_s(pids):
    """CPU time of children that have ended, of this process, and of the running `pids`."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
                # The name in parentheses may hold spaces, so fields are counted after it.
                fields = file.read().rsplit(")", 1)[1].split()
            used += (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        except OSError:
            pass  # it has ended: its time is lost, which at worst marks one run as noisy
    return used


class Watch:
    """Measures what others used between its creation and `others`."""

    def __init__(self, pids=()):
        self.pids = list(pids)
        self.start_s = time.monotonic()
        self.busy_s = _busy_s()
        self.own_s = _own_s(self.pids)

    def others(self):
        """(share of the machine that others used, whether that is too much)."""
        elapsed_s = time.monotonic() - self.start_s
        used_s = (_busy_s() - self.busy_s) - (_own_s(self.pids) - self.own_s)
        share = max(0.0, used_s) / (elapsed_s * cores())
        return share, used_s > NOISE_LIMIT * elapsed_s * cores() + NOISE_SLACK_S


def wait_for_quiet(pids=(), looks=LOOKS_MAX):
    """Returns as soon as others leave the machine alone, or after `looks` looks. True if quiet."""
    for _ in range(looks):
        watch = Watch(pids)
        time.sleep(LOOK_S)
        if watch.others()[0] <= NOISE_LIMIT:
            return True
    return False
