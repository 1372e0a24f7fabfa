# SPDX-License-Identifier: Apache-2.0
"""The results of all rounds, and which setting of a peer is its best at a point."""

import json
from collections import defaultdict
from statistics import median

from points import MOVE_FROM_BYTES, Point

# With fewer quiet rounds than this the disturbed ones count too: better a doubtful median than none.
QUIET_ROUNDS_MIN = 3
# The meeting that all floors contain.
MEETING_BYTES = 8


class Results:
    """Times by (peer, setting, point) and round; later lines of the same round replace earlier."""

    def __init__(self):
        self.times = defaultdict(dict)  # (peer, setting, point) -> {round: (microseconds, noisy)}
        self.versions = {}
        self.wrong = defaultdict(int)  # (peer, setting, point) -> wrong elements, all rounds

    def add_line(self, line, noisy):
        """Takes one line that a program wrote."""
        row = json.loads(line)
        point = Point(row["op"], row["ranks"], row["bytes"], row["mode"])
        key = (row["peer"], row["setting"], point)
        self.versions[row["peer"]] = row["version"]
        self.wrong[key] += row["wrong"]
        self.times[key][row["round"]] = (row["p50_us"], noisy)

    def settings_of(self, peer, point):
        """Names of the settings that were measured, quickest first."""
        names = [s for (p, s, at) in self.times if p == peer and at == point]
        return sorted(names, key=lambda s: self.median_us(peer, s, point))

    def by_round(self, peer, setting, point):
        """{round: microseconds} of the quiet rounds, or of all if too few are quiet."""
        rounds = self.times[(peer, setting, point)]
        quiet = {r: us for r, (us, noisy) in rounds.items() if not noisy}
        if len(quiet) >= min(QUIET_ROUNDS_MIN, len(rounds)):
            return quiet
        return {r: us for r, (us, _) in rounds.items()}

    def median_us(self, peer, setting, point):
        return median(self.by_round(peer, setting, point).values())

    def noisy_rounds(self, peer, setting, point):
        return sum(noisy for _, noisy in self.times[(peer, setting, point)].values())

    def best_setting(self, peer, point):
        """The setting with the lowest median, or None. One that was dropped after the first round
        has a single value, which must not win against a median by luck."""
        names = self.settings_of(peer, point)
        if not names:
            return None
        most = max(len(self.times[(peer, s, point)]) for s in names)
        full = [s for s in names if 2 * len(self.times[(peer, s, point)]) >= most]
        return full[0]

    def best_peer(self, peers, point):
        """(peer, setting, microseconds) of the quickest of `peers`, or None."""
        found = []
        for peer in peers:
            setting = self.best_setting(peer, point)
            if setting is not None:
                found.append((self.median_us(peer, setting, point), peer, setting))
        if not found:
            return None
        time_us, peer, setting = min(found)
        return peer, setting, time_us

    def meeting_us(self, point):
        """The best way for this many processes to meet, bringing what the point brings."""
        for op, size_bytes, mode in (
            (point.op, point.bytes, point.mode),
            ("all_reduce", MEETING_BYTES, "loop"),
        ):
            wanted = Point(op, point.ranks, size_bytes, mode)
            times = [self.median_us("floor", s, wanted) for s in self.settings_of("floor", wanted)]
            if times:
                return min(times)
        return None

    def floor_us(self, point):
        """Meeting plus the bytes that one address space must move; None where not measured."""
        if point.bytes < MOVE_FROM_BYTES:
            return self.meeting_us(point)
        move = point._replace(mode="move")
        times = [self.median_us("floor", s, move) for s in self.settings_of("floor", move)]
        meeting_us = self.meeting_us(point._replace(op="all_reduce", bytes=MEETING_BYTES))
        if not times or meeting_us is None:
            return None
        return meeting_us + min(times)


def keep_best(results, peers, points, keep, hopeless):
    """After the first round: {peer: {point: [settings]}} worth measuring again.

    Of each peer the `keep` quickest settings stay, and nothing of a peer whose quickest is
    `hopeless` times slower than the quickest peer's: it cannot become the best there.
    """
    chosen = {peer: {} for peer in peers}
    for point in points:
        best = results.best_peer(peers, point)
        if best is None:
            continue
        for peer in peers:
            names = results.settings_of(peer, point)
            if names and results.median_us(peer, names[0], point) <= hopeless * best[2]:
                chosen[peer][point] = names[:keep]
    return chosen
