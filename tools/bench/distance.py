# SPDX-License-Identifier: Apache-2.0
"""Compares like with like: the results of a point, by how far apart the cores were.

A program of the benchmark measures the round trip of a cache line between the first two cores
before and after each point. On a virtual machine it takes one of a few times, as the host moves
the cores, and short operations follow it. Pure functions: lists and results go in and come out.
"""

from bisect import bisect_right
from collections import namedtuple
from math import sqrt

# Two distances that follow each other in order are different ones if they differ by more than this.
GAP = 1.6
# A point before and after which the distance differs by more than this belongs to none.
MOVED = 1.5
# With fewer rounds at one distance neither occl nor a peer is judged there.
ROUNDS_MIN = 3

# The results at one distance, or all of them (mixed: because no distance has enough of them).
View = namedtuple("View", "results mixed")


def moved(pair):
    """Whether the cores were moved while a point was measured; pair: [before, after] or None."""
    return pair is not None and max(pair) > MOVED * min(pair)


def line_of(pair):
    """The distance at which a point was measured, in nanoseconds; None: unknown, or it changed.
    The smaller one, since a disturbance only lengthens a round trip."""
    return None if pair is None or moved(pair) else min(pair)


def borders_of(lines_ns):
    """The borders between the distances that occur: the geometric middle of each gap."""
    ordered = sorted(lines_ns)
    return [sqrt(a * b) for a, b in zip(ordered, ordered[1:]) if b > GAP * a]


def group_of(borders_ns, line_ns):
    """The number of the distance, nearest first."""
    return bisect_right(borders_ns, line_ns)


def split(results, point, kind):
    """(the View that the figures of a point come from, [Views of the other distances]).

    `kind` is occl's memory. A distance can be used if occl, and each peer that was measured in at
    least half of the rounds, has ROUNDS_MIN rounds there (or as many as there are, if fewer). Of
    those, the one counts in which occl and the peers' settings have most rounds in common; the
    nearer one if two have as many. The others that can be used follow, nearest first. If there is
    more than one distance and none can be used, all rounds count and the View is mixed.
    """
    borders_ns = borders_of(results.lines_ns(point, kind))
    if not borders_ns:
        return View(results, False), []
    usable = []
    for number in range(len(borders_ns) + 1):
        at = results.only(lambda ns, n=number: ns is not None and group_of(borders_ns, ns) == n)
        if _is_usable(results, at, point, kind):
            usable.append((-_common(at, point, kind), number, at))
    if not usable:
        return View(results, True), []
    best = min(usable)[1]
    others = [View(at, False) for _, number, at in usable if number != best]
    return View(next(at for _, number, at in usable if number == best), False), others


def _rounds(results, peer, point, kind):
    """{setting: set of rounds} of a peer, or of occl with one kind of memory."""
    names = results.settings_of(peer, point)
    wanted = [s for s in names if peer != "occl" or s == kind]
    return {s: set(results.by_round(peer, s, point)) for s in wanted}


def _most(results, peer, point, kind):
    return max(map(len, _rounds(results, peer, point, kind).values()), default=0)


def _is_usable(results, at, point, kind):
    names = results.peers_at(point) + ["occl"]
    all_rounds = {name: _most(results, name, point, kind) for name in names}
    most = max(all_rounds.values())
    needed = min(ROUNDS_MIN, most)
    return all(
        _most(at, name, point, kind) >= needed
        for name, count in all_rounds.items()
        if 2 * count >= most
    )


def _common(at, point, kind):
    """Rounds that occl and a setting of a peer have in common, summed over the settings; where occl
    or all peers are missing, the rounds there are."""
    own = _rounds(at, "occl", point, kind).get(kind, set())
    peers = [r for p in at.peers_at(point) for r in _rounds(at, p, point, kind).values()]
    if not own or not peers:
        return len(own) + sum(map(len, peers))
    return sum(len(own & rounds) for rounds in peers)
