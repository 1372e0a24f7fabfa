# SPDX-License-Identifier: Apache-2.0
"""Medians over rounds, and how far they can be trusted.

A round is the unit: samples inside one round share its disturbances, so thousands of them say
little about the next round. The interval of the median comes from order statistics alone and
assumes nothing about the distribution.
"""

from math import comb
from statistics import median

CONFIDENCE = 0.95
# Fewer ratios than this say less about the next round than the two intervals do.
PAIRS_MIN = 5


def coverage(count, left_out):
    """Probability that the true median lies between the values that remain when `left_out` of
    `count` independent values are dropped at each end."""
    below = sum(comb(count, k) for k in range(left_out + 1))
    return 1 - 2 * below / 2**count


def interval_of_median(values):
    """(low, high): the narrowest symmetric interval of at least 95 %, or all of the values when
    there are too few for that (five give 93.75 %, six 96.9 %)."""
    ordered = sorted(values)
    left_out = 0
    while coverage(len(ordered), left_out + 1) >= CONFIDENCE:
        left_out += 1
    return ordered[left_out], ordered[len(ordered) - 1 - left_out]


def ratio_of(peer_by_round, own_by_round):
    """(ratio, low, high) of peer time to own time.

    The ratio is that of the medians. The interval is that of the ratios within each round, where
    slow drift of the machine hits both alike, widened to hold the ratio of the medians. With few
    rounds in common it goes from the lowest peer time over the highest own time to the opposite,
    each of its interval: wider, and never too narrow for want of pairs.
    """
    ratio = median(peer_by_round.values()) / median(own_by_round.values())
    paired = [peer_by_round[r] / own_by_round[r] for r in own_by_round if r in peer_by_round]
    if len(paired) >= min(PAIRS_MIN, len(peer_by_round), len(own_by_round)):
        low, high = interval_of_median(paired)
    else:
        peer_low, peer_high = interval_of_median(peer_by_round.values())
        own_low, own_high = interval_of_median(own_by_round.values())
        low, high = peer_low / own_high, peer_high / own_low
    return ratio, min(low, ratio), max(high, ratio)
