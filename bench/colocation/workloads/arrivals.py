"""When requests arrive. Pure: the same seed, the same requests."""

from __future__ import annotations

import random

BURST_S = 1.0  # of requests between two pauses


def poisson(rate: float, begin_s: float, end_s: float, dice: random.Random) -> list[float]:
    """Seconds from `begin_s` on at which requests of so many a second arrive, sorted."""
    times = []
    at = begin_s + dice.expovariate(rate)
    while at < end_s:
        times.append(at)
        at += dice.expovariate(rate)
    return times


def arrivals(rate: float, seconds: float, pause_s: float, seed: int) -> list[tuple[float, bool]]:
    """Requests of a run: when, and whether it is the first one after a pause.

    Without a pause all come as one stream; with one, a second of requests, a pause, and so on. The
    first request of each comes at once.
    """
    dice = random.Random(seed)
    if pause_s <= 0:
        return [(at, False) for at in poisson(rate, 0, seconds, dice)]
    result: list[tuple[float, bool]] = []
    begin = 0.0
    while begin < seconds:
        result.append((begin, begin > 0))
        end = min(seconds, begin + BURST_S)
        result += [(at, False) for at in poisson(rate, begin, end, dice)]
        begin += BURST_S + pause_s
    return result
