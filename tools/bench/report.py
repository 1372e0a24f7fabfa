# SPDX-License-Identifier: Apache-2.0
"""What the results say: one record a point, as JSON, as a table for people, as Markdown."""

import json
from statistics import median

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
    best = results.best_peer(PEERS, point)
    floor_us = results.floor_us(point)
    record = {
        "op": point.op,
        "ranks": point.ranks,
        "bytes": point.bytes,
        "mode": point.mode,
        "memory": kind,
        "occl_us": None,
        "occl_lo_us": None,
        "occl_hi_us": None,
        "best_peer": best[0] if best else None,
        "best_peer_setting": best[1] if best else None,
        "best_peer_us": _rounded(best[2]) if best else None,
        "floor_us": _rounded(floor_us),
        "ratio_to_best_peer": None,
        "ratio_lo": None,
        "ratio_hi": None,
        "rounds": 0,
        "noisy_rounds": 0,
        "wrong": sum(n for (_, _, at), n in results.wrong.items() if at == point),
        "peers_us": _peers_us(results, point),
    }
    if kind in results.settings_of("occl", point):
        own = results.by_round("occl", kind, point)
        low, high = interval_of_median(own.values())
        record["occl_us"] = _rounded(median(own.values()))
        record["occl_lo_us"] = _rounded(low)
        record["occl_hi_us"] = _rounded(high)
        record["rounds"] = len(own)
        record["noisy_rounds"] = results.noisy_rounds("occl", kind, point)
        if best:
            ratio, low, high = ratio_of(results.by_round(best[0], best[1], point), own)
            record["ratio_to_best_peer"] = _rounded(ratio)
            record["ratio_lo"] = _rounded(low)
            record["ratio_hi"] = _rounded(high)
    elif best:
        record["rounds"] = len(results.by_round(best[0], best[1], point))
        record["noisy_rounds"] = results.noisy_rounds(best[0], best[1], point)
    return record


def _peers_us(results, point):
    found = {}
    for peer in PEERS:
        setting = results.best_setting(peer, point)
        if setting is not None:
            found[peer] = _rounded(results.median_us(peer, setting, point))
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


def is_slower(record):
    """Whether even the favourable end of the interval is worse than the best peer."""
    return record["ratio_hi"] is not None and record["ratio_hi"] < SLOWER_BELOW


def _verdict(record):
    notes = []
    if is_slower(record):
        notes.append("SLOWER")
    if record["wrong"]:
        notes.append("WRONG")
    if record["noisy_rounds"]:
        notes.append("noisy %d" % record["noisy_rounds"])
    return ", ".join(notes)


def _above_floor(record):
    if record["occl_us"] is None or not record["floor_us"]:
        return None
    return record["occl_us"] / record["floor_us"]


def table(found):
    """Fixed columns, for a terminal."""
    head = ("operation", "ranks", "size", "occl us", "95 % of the median", "best peer us")
    head += ("peer", "ratio", "95 %", "floor us", "occl/floor", "notes")
    rows = [head]
    for record in found:
        private = " (private)" if record["memory"] == OCCL_PRIVATE else ""
        mode = " sync" if record["mode"] == "sync" else ""
        rows.append(
            (
                record["op"] + mode + private,
                str(record["ranks"]),
                name_of_size(record["bytes"]),
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
    text = ["Measured on %s; %s. Median microseconds a call.\n" % (facts, names)]
    for op in dict.fromkeys((r["op"], r["memory"]) for r in found):
        rows = [r for r in found if (r["op"], r["memory"]) == op]
        private = ", private memory" if op[1] == OCCL_PRIVATE else ""
        text.append("### %s%s\n" % (op[0], private))
        peers = [p for p in PEERS if any(p in r["peers_us"] for r in rows)]
        head = ["ranks", "size", "occl (95 %)"] + peers
        head += ["best peer / occl (95 %)", "floor", "occl / floor"]
        text.append("| " + " | ".join(head) + " |")
        text.append("|" + " --- |" * len(head))
        for r in rows:
            own = "%s (%s–%s)" % tuple(_us(r[k]) for k in ("occl_us", "occl_lo_us", "occl_hi_us"))
            ratio = "%s (%s–%s)" % tuple(
                _ratio(r[k]) for k in ("ratio_to_best_peer", "ratio_lo", "ratio_hi")
            )
            cells = [str(r["ranks"]), name_of_size(r["bytes"]), own]
            cells += [_us(r["peers_us"].get(p)) for p in peers]
            cells += [ratio, _us(r["floor_us"]), _ratio(_above_floor(r))]
            text.append("| " + " | ".join(cells) + " |")
        text.append("")
    return "\n".join(text)
