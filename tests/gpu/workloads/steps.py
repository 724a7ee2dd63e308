"""A program that makes training steps when it is told to, line by line on stdin.

    rate SECONDS     {"rate": steps a second, "steps": n}
    share SECONDS    the same, and of its kernels: {"share": percent of the time, "seconds": of each
                     whole one, "step_ms": in a step, "kernels": of a step}; {"unseen": why not}
                     without CUPTI

It says "ready" once it is warm. Must not know which framework steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import kernel_records

WARM_UP_STEPS = 30
STEPS_AT_ONCE = 10
SECOND_NS = 10**9

Spans = Sequence[tuple[int, int]]


def run(step: Callable[[], None], wait: Callable[[], None], seconds: float) -> dict[str, float]:
    """Steps for so long, ten ahead of what is waited for."""
    began = time.monotonic()
    steps = 0
    while time.monotonic() - began < seconds:
        for _ in range(STEPS_AT_ONCE):
            step()
        steps += STEPS_AT_ONCE
        wait()
    return {"rate": steps / (time.monotonic() - began), "steps": steps}


def united(spans: Spans) -> list[tuple[int, int]]:
    """The moments in which any of them ran, as (begin, end) pairs in order."""
    result: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def covered_ns(busy: Spans, begin: int, end: int) -> int:
    """How much of [begin, end) united pairs cover."""
    return sum(max(0, min(last, end) - max(first, begin)) for first, last in busy)


def described(spans: Spans, steps: float) -> dict[str, object]:
    """What kernels' times say of so many steps: from the first one's begin to the last one's."""
    busy = united(spans)
    begin, end = busy[0][0], busy[-1][0]
    whole = range(begin, end - SECOND_NS + 1, SECOND_NS)
    return {
        "share": 100 * covered_ns(busy, begin, end) / (end - begin),
        "seconds": [100 * covered_ns(busy, at, at + SECOND_NS) / SECOND_NS for at in whole],
        "step_ms": sum(last - first for first, last in busy) / 1e6 / steps,
        "kernels": len(spans) / steps,
    }


def observed(
    records: kernel_records.KernelRecords,
    step: Callable[[], None],
    wait: Callable[[], None],
    seconds: float,
) -> dict[str, object]:
    """The same as run(), and what its kernels' times say."""
    records.begin()
    ran = run(step, wait, seconds)
    spans = records.end()
    return {**ran, **(described(spans, ran["steps"]) if spans else {})}


def serve(step: Callable[[], None], wait: Callable[[], None]) -> None:
    """Warms up and answers."""
    for _ in range(WARM_UP_STEPS):
        step()
    wait()
    print("ready", flush=True)
    records: kernel_records.KernelRecords | None = None
    for line in sys.stdin:
        what, seconds = line.split()
        if what == "rate":
            print(json.dumps(run(step, wait, float(seconds))), flush=True)
            continue
        try:
            records = records or kernel_records.KernelRecords()
            answer = observed(records, step, wait, float(seconds))
        except OSError as error:
            answer = {"unseen": str(error)}
        print(json.dumps(answer), flush=True)
