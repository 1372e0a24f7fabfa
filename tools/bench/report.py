# SPDX-License-Identifier: Apache-2.0
"""What the results say: one record a point, as JSON, as a table for people, as Markdown."""

import json
from statistics import median

from distance import split
from intervals import interval_of_median, ratio_of
from points import name_of_size
from settings import OCCL_PRIVATE, OCCL_ZERO_COPY, PEERS

# A point counts as slower only when all of the interval is below this.
SLOWER_BELOW = 0.9


def records(results, points, kinds=(OCCL_ZERO_COPY, OCCL_PRIVATE)):
    """One dictionary for each point, and one more where occl was measured with private memory."""
    found = []
    for point in points:
        for kind in kinds:
            if kind == OCCL_ZERO_COPY or kind in results.settings_of("occl", point):
                found.append(_record(results, point, kind))
    return found


def _record(results, point, kind):
    view, others = split(results, point, kind)
    record = {
        "op": point.op,
        "ranks": point.ranks,
        "bytes": point.bytes,
        "mode": point.mode,
        "memory": kind,
    }
    record.update(_figures(results, view, point, kind))
    names = results.settings_of("occl", point)
    key = ("occl", kind, point)
    if kind not in names:
        key = (record["best_peer"], record["best_peer_setting"], point)
    record["rounds_other_distance"] = _rounds_elsewhere(results, view, key)
    record["noisy_rounds"] = results.noisy_rounds(*key)
    record["wrong"] = sum(n for (_, _, at), n in results.wrong.items() if at == point)
    record["other_distances"] = [_figures(results, other, point, kind) for other in others]
    return record


def _rounds_elsewhere(results, view, key):
    """Rounds whose distance is known, and that do not count since it is another one."""
    known = [r for r, sample in results.times.get(key, {}).items() if sample.line_ns is not None]
    return 0 if view.results is results else len(set(known) - set(view.results.times.get(key, ())))


def _figures(results, view, point, kind):
    """What was found at one distance (or at all of them, where the View is mixed)."""
    at = view.results
    best = at.best_peer(PEERS, point)
    floor_us = at.floor_us(point)
    elsewhere = floor_us is None and at is not results
    figures = {
        "line_ns": None,
        "mixed_distances": view.mixed,
        "occl_us": None,
        "occl_lo_us": None,
        "occl_hi_us": None,
        "best_peer": best[0] if best else None,
        "best_peer_setting": best[1] if best else None,
        "best_peer_us": _rounded(best[2]) if best else None,
        "floor_us": _rounded(results.floor_us(point) if elsewhere else floor_us),
        "floor_other_distance": elsewhere and results.floor_us(point) is not None,
        "ratio_to_best_peer": None,
        "ratio_lo": None,
        "ratio_hi": None,
        "rounds": 0,
        "peers_us": _peers_us(results, at, point),
    }
    if kind in at.settings_of("occl", point):
        own = at.by_round("occl", kind, point)
        low, high = interval_of_median(own.values())
        figures["occl_us"] = _rounded(median(own.values()))
        figures["occl_lo_us"] = _rounded(low)
        figures["occl_hi_us"] = _rounded(high)
        figures["line_ns"] = _rounded(at.line_ns("occl", kind, point))
        figures["rounds"] = len(own)
        if best:
            ratio, low, high = ratio_of(at.by_round(best[0], best[1], point), own)
            figures["ratio_to_best_peer"] = _rounded(ratio)
            figures["ratio_lo"] = _rounded(low)
            figures["ratio_hi"] = _rounded(high)
    elif best:
        figures["line_ns"] = _rounded(at.line_ns(best[0], best[1], point))
        figures["rounds"] = len(at.by_round(best[0], best[1], point))
    return figures


def _peers_us(results, at, point):
    """Each peer at this distance, or, if it was too slow to be measured more than once, as it was
    then. The best peer is never one of those."""
    found = {}
    for peer in PEERS:
        source = at if at.best_setting(peer, point) is not None else results
        setting = source.best_setting(peer, point)
        if setting is not None:
            found[peer] = _rounded(source.median_us(peer, setting, point))
    return found


def _rounded(number):
    """Five significant digits: more than any of the numbers is worth."""
    return None if number is None else float("%.5g" % number)


def json_lines(found):
    return "".join(json.dumps(record) + "\n" for record in found)


def _us(number):
    if number is None:
        return "-"
    return "%.2f" % number if number < 10 else "%.1f" % number if number < 100 else "%.0f" % number


def _ratio(number):
    return "-" if number is None else "%.2f" % number


def rows_of(record):
    """The record, and one like it for each further distance: everything that is judged."""
    return [record] + [dict(record, **other) for other in record["other_distances"]]


def is_slower(record):
    """Whether even the favourable end of the interval is worse than the best peer."""
    return record["ratio_hi"] is not None and record["ratio_hi"] < SLOWER_BELOW


def verdict_counts(found):
    """How many points are slower by the interval, and by the medians below 0.9 and below 1; how many
    mix distances, and how many have nothing to be compared with. A point counts with its worst
    distance."""
    worst = [[r["ratio_to_best_peer"] for r in rows_of(record)] for record in found]
    worst = [[ratio for ratio in ratios if ratio is not None] for ratios in worst]
    worst = [min(ratios) for ratios in worst if ratios]
    return {
        "not_compared": len(found) - len(worst),
        "slower": sum(any(map(is_slower, rows_of(record))) for record in found),
        "median_below_0.9": sum(ratio < SLOWER_BELOW for ratio in worst),
        "median_below_1": sum(ratio < 1 for ratio in worst),
        "mixed": sum(record["mixed_distances"] for record in found),
    }


def _verdict(record):
    notes = []
    if is_slower(record):
        notes.append("SLOWER")
    if record["wrong"]:
        notes.append("WRONG")
    if record["mixed_distances"]:
        notes.append("mixed distances")
    if record["floor_other_distance"]:
        notes.append("floor of another distance")
    if record["noisy_rounds"]:
        notes.append("noisy %d" % record["noisy_rounds"])
    return ", ".join(notes)


def line_name(record):
    """The distance for people."""
    if record["mixed_distances"]:
        return "mixed"
    return "-" if record["line_ns"] is None else "%.0f" % record["line_ns"]


def _above_floor(record):
    if record["occl_us"] is None or not record["floor_us"]:
        return None
    return record["occl_us"] / record["floor_us"]


def table(found):
    """Fixed columns, for a terminal."""
    head = ("operation", "ranks", "size", "line ns", "rounds", "occl us", "95 % of the median", "best peer us")
    head += ("peer", "ratio", "95 %", "floor us", "occl/floor", "notes")
    rows = [head]
    for record in (row for record in found for row in rows_of(record)):
        private = " (private)" if record["memory"] == OCCL_PRIVATE else ""
        mode = " sync" if record["mode"] == "sync" else ""
        rows.append(
            (
                record["op"] + mode + private,
                str(record["ranks"]),
                name_of_size(record["bytes"]),
                line_name(record),
                str(record["rounds"]),
                _us(record["occl_us"]),
                "%s..%s" % (_us(record["occl_lo_us"]), _us(record["occl_hi_us"])),
                _us(record["best_peer_us"]),
                "%s %s" % (record["best_peer"] or "-", record["best_peer_setting"] or ""),
                _ratio(record["ratio_to_best_peer"]),
                "%s..%s" % (_ratio(record["ratio_lo"]), _ratio(record["ratio_hi"])),
                _us(record["floor_us"]),
                _ratio(_above_floor(record)),
                _verdict(record),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def markdown(found, facts, versions):
    """Tables for a README: one for each operation."""
    names = ", ".join("%s %s" % (p, v) for p, v in sorted(versions.items()) if v)
    text = ["Measured on %s; %s. Median microseconds a call; line: "
            "round trip of a cache line between the first two cores, ns.\n" % (facts, names)]
    for op in dict.fromkeys((r["op"], r["memory"]) for r in found):
        rows = [r for r in found if (r["op"], r["memory"]) == op]
        private = ", private memory" if op[1] == OCCL_PRIVATE else ""
        text.append("### %s%s\n" % (op[0], private))
        peers = [p for p in PEERS if any(p in r["peers_us"] for r in rows)]
        head = ["ranks", "size", "line", "occl (95 %)"] + peers
        head += ["best peer / occl (95 %)", "floor", "occl / floor"]
        text.append("| " + " | ".join(head) + " |")
        text.append("|" + " --- |" * len(head))
        for r in (row for record in rows for row in rows_of(record)):
            own = "%s (%s–%s)" % tuple(_us(r[k]) for k in ("occl_us", "occl_lo_us", "occl_hi_us"))
            ratio = "%s (%s–%s)" % tuple(
                _ratio(r[k]) for k in ("ratio_to_best_peer", "ratio_lo", "ratio_hi")
            )
            cells = [str(r["ranks"]), name_of_size(r["bytes"]), line_name(r), own]
            cells += [_us(r["peers_us"].get(p)) for p in peers]
            cells += [ratio, _us(r["floor_us"]), _ratio(_above_floor(r))]
            text.append("| " + " | ".join(cells) + " |")
        text.append("")
    return "\n".join(text)
