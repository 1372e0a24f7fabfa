# SPDX-License-Identifier: Apache-2.0
"""What is measured: operations, rank counts, sizes, and the points that they make."""

from collections import namedtuple

# The order is that of the report; those of a quick run come first.
QUICK_OPS = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all")
OPS = QUICK_OPS + ("reduce", "gather", "scatter")
# One rank only gives or only takes: who gives need not wait.
ROOTED_OPS = ("broadcast", "reduce", "gather", "scatter")
QUICK_SIZES = ("8", "1K", "64K", "1M", "16M")
FULL_SIZES = ("8", "1K", "4K", "64K", "256K", "1M", "4M", "16M", "256M")
# Below this size a call is all latency; from it on the bytes count, and the floor has a part for them.
MOVE_FROM_BYTES = 64 << 10

# mode is "loop" or "sync", as tools/bench/harness.h explains.
Point = namedtuple("Point", "op ranks bytes mode")

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text):
    """Bytes of a size such as 8, 64K or 16M."""
    unit = _UNITS.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    if not digits.isdigit() or int(digits) == 0:
        raise ValueError("not a size: %r (expected for example 8, 64K or 16M)" % text)
    return int(digits) * unit


def name_of_size(size_bytes):
    """A size for people: 64 KiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return "%g %s" % (size_bytes / unit, name)
    return "%d B" % size_bytes


def mode_of(op, ranks, size_bytes):
    """In a loop those who only give a little run ahead: it would show a rate, not a time. What goes
    from one rank to another counts, which in a gather and a scatter is a block."""
    message_bytes = size_bytes // ranks if op in ("gather", "scatter") else size_bytes
    return "sync" if op in ROOTED_OPS and message_bytes < MOVE_FROM_BYTES else "loop"


def points_of(ops, rank_counts, sizes_bytes):
    """All points, those of one rank count together, small sizes first."""
    return [
        Point(op, ranks, size_bytes, mode_of(op, ranks, size_bytes))
        for ranks in rank_counts
        for op in ops
        for size_bytes in sorted(sizes_bytes)
    ]


def argument_of(points):
    """The value of --points for the programs."""
    return ",".join(
        "%s:%d%s" % (p.op, p.bytes, ":sync" if p.mode == "sync" else "") for p in points
    )
