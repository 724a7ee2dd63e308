"""How much of a GPU's time each tenant of a pair had, where its work does not tell.

A program that runs kernels of several streams at once does another amount of work in a second alone
than beside a neighbour: fewer kernels meet there, or more, where a limit holds its streams and
lets them go together. So for it work is no measure of time. Its kernels' records are none either: a
kernel that the driver interrupted lasts while the neighbour has the GPU. Together they say what its
time was at least and at most. Pure; must not know promises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AT_ONCE = 1.03  # times as much work as time, from which on a program alone overlaps itself


@dataclass(frozen=True, slots=True)
class Span:
    """Percent of the time in which the GPU was a tenant's: at least, and at most."""

    least: float
    most: float

    def up_to(self, value: float) -> Span:
        """No more than that."""
        return Span(min(self.least, value), min(self.most, value))


def overlaps_itself(alone: Mapping[str, Any] | None) -> bool:
    """Whether a program's kernels run at the same time; no where that was not measured."""
    if alone is None:
        return False
    work, ran = alone.get("rate", math.nan), alone.get("busy", math.nan)
    return bool(work > AT_ONCE * ran)


def spans(figures: Sequence[Mapping[str, Any]]) -> list[Span] | None:
    """What both tenants of a pair had, by `share`, `busy`, `overlaps` and, if told, the others.

    What a program has by its work is its time, or the least that it can have been if its work
    overlaps as it does alone; less if more of its kernels met than there (`rate` by `in_flight`).
    What the records cover is the most. In the time that both records cover, the GPU is whose work
    the other one's time leaves it to. Where kernels interrupt each other, the GPU also changes
    hands while they last, and nobody tells for how long: then only its work says what a program
    had at the least.

    Returns:
        None where it is no pair, or something was not measured.
    """
    if len(figures) != 2:
        return None
    busy = [float(one.get("busy", math.nan)) for one in figures]
    if any(map(math.isnan, [*busy, *(float(one["share"]) for one in figures)])):
        return None
    told = [_by_itself(one, covered) for one, covered in zip(figures, busy, strict=True)]
    most_shared = least_shared = figures[0].get("shared", math.nan)
    if math.isnan(most_shared):
        most_shared, least_shared = min(busy), max(0.0, sum(busy) - 100.0)
    found = []
    for mine, place in enumerate((1, 0)):
        other = told[place]
        if not figures[mine]["overlaps"]:
            found.append(told[mine])
            continue
        # The other one's time in what both cover: the rest is in what its records cover alone.
        most = min(most_shared, max(0.0, other.most - (busy[place] - most_shared)))
        least = max(0.0, other.least - (busy[place] - least_shared))
        low = told[mine].least if most_shared > 0 else max(told[mine].least, busy[mine] - most)
        high = min(told[mine].most, busy[mine] - least)
        found.append(Span(min(low, high), max(low, high)))
    return found


def _by_itself(figures: Mapping[str, Any], busy: float) -> Span:
    share = float(figures["share"])
    if not figures["overlaps"]:
        return Span(share, share)
    met = float(figures.get("rate", math.nan)) / float(figures.get("in_flight", math.nan))
    return Span(share if math.isnan(met) else min(share, met), max(share, busy))
