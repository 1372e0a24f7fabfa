# SPDX-License-Identifier: Apache-2.0
"""A plot as SVG: time over size, both logarithmic; a row for each operation, a panel for each rank
count."""

from math import ceil, floor, log10
from xml.sax.saxutils import escape

from points import name_of_size
from settings import OCCL_ZERO_COPY, PEERS

PANEL_W, PANEL_H = 300, 240
LEFT, TOP, GAP_X, GAP_Y, BOTTOM = 70, 60, 60, 70, 60

# Colours that differ also in grey and for people who see red and green alike.
STYLES = {
    "occl": ("#0b3c8c", 3, ""),
    "openmpi": ("#d9730d", 1.5, ""),
    "mpich": ("#2e8b57", 1.5, "6 3"),
    "gloo": ("#8a8a8a", 1.5, "2 3"),
    "floor": ("#b0123b", 1.5, "8 3 2 3"),
}


def _series(records):
    """{name: [(bytes, microseconds)]} of one panel."""
    found = {name: [] for name in STYLES}
    for r in sorted(records, key=lambda r: r["bytes"]):
        found["occl"].append((r["bytes"], r["occl_us"]))
        found["floor"].append((r["bytes"], r["floor_us"]))
        for peer in PEERS:
            found[peer].append((r["bytes"], r["peers_us"].get(peer)))
    return {
        name: [(x, y) for x, y in points if y is not None and y > 0]
        for name, points in found.items()
    }


class _Scale:
    """Maps a logarithmic range to pixels."""

    def __init__(self, values, start, end):
        self.low = floor(log10(min(values)))
        self.high = max(ceil(log10(max(values))), self.low + 1)
        self.start, self.end = start, end

    def __call__(self, value):
        part = (log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def decades(self):
        return [10.0**k for k in range(self.low, self.high + 1)]


def _text(x, y, text, anchor="middle", size=11, extra=""):
    form = '<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d"%s>%s</text>'
    return form % (x, y, anchor, size, extra, escape(text))


def _time_name(time_us):
    for unit, name in ((1e6, "s"), (1e3, "ms"), (1, "µs")):
        if time_us >= unit:
            return "%g %s" % (time_us / unit, name)
    return "%g ns" % round(time_us * 1e3)


def _panel(records, left, top, title):
    series = _series(records)
    sizes = sorted({r["bytes"] for r in records})
    times = [y for points in series.values() for _, y in points]
    if not times:
        return []
    x_of = _Scale(sizes, left, left + PANEL_W)
    y_of = _Scale(times, top + PANEL_H, top)
    parts = [
        '<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#444"/>'
        % (left, top, PANEL_W, PANEL_H),
        _text(left + PANEL_W / 2, top - 10, title, size=13),
    ]
    for time_us in y_of.decades():
        y = y_of(time_us)
        parts.append(
            '<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>'
            % (left, y, left + PANEL_W, y)
        )
        parts.append(_text(left - 5, y + 4, _time_name(time_us), "end", 10))
    for size_bytes in sizes:
        x = x_of(size_bytes)
        turn = ' transform="rotate(-40 %.1f %d)"' % (x, top + PANEL_H + 14)
        parts.append(_text(x, top + PANEL_H + 14, name_of_size(size_bytes), "end", 10, turn))
    for name, points in series.items():
        parts += _curve(name, [(x_of(x), y_of(y)) for x, y in points])
    return parts


def _curve(name, pixels):
    colour, width, dash = STYLES[name]
    if not pixels:
        return []
    path = " ".join("%.1f,%.1f" % at for at in pixels)
    style = 'fill="none" stroke="%s" stroke-width="%g" stroke-dasharray="%s"'
    parts = ['<polyline points="%s" %s/>' % (path, style % (colour, width, dash))]
    parts += ['<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>' % (x, y, colour) for x, y in pixels]
    return parts


def _legend(names, left, top):
    parts = []
    for number, name in enumerate(names):
        colour, width, dash = STYLES[name]
        x = left + number * 95
        parts.append(
            '<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="%g" '
            'stroke-dasharray="%s"/>' % (x, top, x + 28, top, colour, width, dash)
        )
        parts.append(_text(x + 33, top + 4, name, "start"))
    return parts


def svg(records):
    """The text of the file."""
    records = [r for r in records if r["memory"] == OCCL_ZERO_COPY]
    ops = list(dict.fromkeys(r["op"] for r in records))
    ranks = sorted({r["ranks"] for r in records})
    parts = []
    names = set()
    for row, op in enumerate(ops):
        for column, count in enumerate(ranks):
            panel = [r for r in records if r["op"] == op and r["ranks"] == count]
            left = LEFT + column * (PANEL_W + GAP_X)
            top = TOP + row * (PANEL_H + GAP_Y)
            parts += _panel(panel, left, top, "%s, %d ranks" % (op, count))
            names |= {name for name, points in _series(panel).items() if points}
    parts += _legend([n for n in STYLES if n in names], LEFT, 22)
    width = LEFT + len(ranks) * (PANEL_W + GAP_X)
    height = TOP + len(ops) * (PANEL_H + GAP_Y) + BOTTOM - GAP_Y
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        'font-family="sans-serif">' % (width, height, width, height)
    )
    background = '<rect width="%d" height="%d" fill="white"/>' % (width, height)
    return "\n".join([head, background] + parts + ["</svg>", ""])
