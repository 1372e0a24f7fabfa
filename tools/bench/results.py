# SPDX-License-Identifier: Apache-2.0
"""The results of all rounds, and which setting of a peer is its best at a point."""

import json
from collections import Counter, defaultdict, namedtuple
from statistics import median

import distance
from points import MOVE_FROM_BYTES, Point
from settings import PEERS

# With fewer quiet rounds than this the disturbed ones count too: better a doubtful median than none.
QUIET_ROUNDS_MIN = 3
# The meeting that all floors contain.
MEETING_BYTES = 8

# What a program measured at a point in one round. noisy: others disturbed it, or the cores were
# moved meanwhile; line_ns: how far apart they were, or None.
Sample = namedtuple("Sample", "us noisy line_ns")


class Results:
    """Times by (peer, setting, point) and round; later lines of the same round replace earlier."""

    def __init__(self):
        self.times = defaultdict(dict)  # (peer, setting, point) -> {round: Sample}
        self.versions = {}
        self.wrong = defaultdict(int)  # (peer, setting, point) -> wrong elements, all rounds

    def add_line(self, line, noisy):
        """Takes one line that a program wrote."""
        row = json.loads(line)
        point = Point(row["op"], row["ranks"], row["bytes"], row["mode"])
        key = (row["peer"], row["setting"], point)
        self.versions[row["peer"]] = row["version"]
        self.wrong[key] += row["wrong"]
        pair = row.get("line_ns")
        noisy = noisy or distance.moved(pair)
        self.times[key][row["round"]] = Sample(row["p50_us"], noisy, distance.line_of(pair))

    def only(self, keeps):
        """The results of the rounds whose distance (nanoseconds or None) satisfies `keeps`."""
        found = Results()
        found.versions = self.versions
        found.wrong = self.wrong
        for key, rounds in self.times.items():
            kept = {r: sample for r, sample in rounds.items() if keeps(sample.line_ns)}
            if kept:
                found.times[key] = kept
        return found

    def lines_ns(self, point, kind):
        """All distances at which what counts for a point was measured; `kind`: occl's memory."""
        floor = (point, point._replace(mode="move"), meeting_of(point))
        found = []
        for (peer, setting, at), rounds in self.times.items():
            counts = at == point and (peer != "occl" or setting == kind)
            if at in floor if peer == "floor" else counts:
                found += [sample.line_ns for sample in rounds.values()]
        return [line_ns for line_ns in found if line_ns is not None]

    def line_ns(self, peer, setting, point):
        """Median of the distances in the rounds that count, or None."""
        rounds = self.times[(peer, setting, point)]
        lines_ns = [rounds[r].line_ns for r in self.by_round(peer, setting, point)]
        return median([ns for ns in lines_ns if ns is not None] or [None])

    def peers_at(self, point):
        """The peers that were measured at a point."""
        return [p for p in PEERS if any(k[0] == p and k[2] == point for k in self.times)]

    def settings_of(self, peer, point):
        """Names of the settings that were measured, quickest first."""
        names = [s for (p, s, at) in self.times if p == peer and at == point]
        return sorted(names, key=lambda s: self.median_us(peer, s, point))

    def by_round(self, peer, setting, point):
        """{round: microseconds} of the quiet rounds, or of all if too few are quiet."""
        rounds = self.times[(peer, setting, point)]
        quiet = {r: sample.us for r, sample in rounds.items() if not sample.noisy}
        if len(quiet) >= min(QUIET_ROUNDS_MIN, len(rounds)):
            return quiet
        return {r: sample.us for r, sample in rounds.items()}

    def median_us(self, peer, setting, point):
        return median(self.by_round(peer, setting, point).values())

    def noisy_rounds(self, peer, setting, point):
        return sum(s.noisy for s in self.times.get((peer, setting, point), {}).values())

    def best_setting(self, peer, point):
        """The setting with the lowest median, or None."""
        names = self._full(peer, point)
        return names[0] if names else None

    def _full(self, peer, point):
        """Names of the settings that have enough rounds, quickest first: half of those of the
        setting with most, and three if that one has. One that was dropped after the first round,
        or was at this distance once, must not win against a median by luck."""
        names = self.settings_of(peer, point)
        counts = {s: len(self.by_round(peer, s, point)) for s in names}
        most = max(counts.values(), default=0)
        least = max(most / 2, min(distance.ROUNDS_MIN, most))
        return [s for s in names if counts[s] >= least]

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
        for wanted in (point, meeting_of(point)):
            names = self._full("floor", wanted)
            if names:
                return self.median_us("floor", names[0], wanted)
        return None

    def floor_us(self, point):
        """Meeting plus the bytes that one address space must move; None where not measured."""
        if point.bytes < MOVE_FROM_BYTES:
            return self.meeting_us(point)
        move = point._replace(mode="move")
        names = self._full("floor", move)
        meeting_us = self.meeting_us(meeting_of(point))
        if not names or meeting_us is None:
            return None
        return meeting_us + self.median_us("floor", names[0], move)


def meeting_of(point):
    """The meeting that the floors of all points of this many processes contain."""
    return Point("all_reduce", point.ranks, MEETING_BYTES, "loop")


def keep_best(results, peers, points, keep, hopeless):
    """After the first round: {peer: {point: [settings]}} worth measuring again.

    Of each peer the `keep` quickest settings of each distance stay, and nothing of a peer that is
    `hopeless` times slower than the quickest peer: it cannot become the best there. One that was
    measured with the cores farther apart is given what the distance can have cost it at most.
    """
    chosen = {peer: {} for peer in peers}
    for point in points:
        best = results.best_peer(peers, point)
        if best is None:
            continue
        lines_ns = [ns for p in peers for ns in _lines_ns(results, p, point).values()]
        borders_ns = distance.borders_of(lines_ns)
        best_ns = _lines_ns(results, best[0], point).get(best[1])
        for peer in peers:
            own_ns = _lines_ns(results, peer, point)
            kept = []
            counts = Counter()
            near_us = []
            for name in results.settings_of(peer, point):
                # Where it is unknown, the cores may have been as far apart as at any time.
                line_ns = own_ns.get(name, max(lines_ns, default=1))
                cost = max(1, line_ns / (best_ns or min(lines_ns, default=1)))
                near_us.append(results.median_us(peer, name, point) / cost)
                group = distance.group_of(borders_ns, line_ns)
                counts[group] += 1
                if counts[group] <= keep:
                    kept.append(name)
            if near_us and min(near_us) <= hopeless * best[2]:
                chosen[peer][point] = kept
    return chosen


def _lines_ns(results, peer, point):
    """{setting: distance} where it is known."""
    found = {s: results.line_ns(peer, s, point) for s in results.settings_of(peer, point)}
    return {s: ns for s, ns in found.items() if ns is not None}
