"""A program that makes training steps when it is told to, line by line on stdin.

    rate SECONDS     {"rate": steps a second, "steps": n}
    share SECONDS    the same, and of its kernels: {"share": percent of the time, "seconds": of each
                     whole one, "step_ms": in a step, "kernels": of a step}; {"unseen": why not}
                     without CUPTI

and what else a program answers by name. It says "ready" once it is warm. Must not know which
framework steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

import kernel_records

WARM_UP_STEPS = 30
STEPS_AT_ONCE = 10
SECOND_NS = 10**9

Spans = Sequence[tuple[int, int]]


def run(
    step: Callable[[], object],
    wait: Callable[[], object],
    seconds: float,
    at_once: int = STEPS_AT_ONCE,
) -> dict[str, float]:
    """Steps for so long, `at_once` ahead of what is waited for."""
    began = time.monotonic()
    steps = 0
    while time.monotonic() - began < seconds:
        for _ in range(at_once):
            step()
        steps += at_once
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
    step: Callable[[], object],
    wait: Callable[[], object],
    seconds: float,
    at_once: int,
) -> dict[str, object]:
    """The same as run(), and what its kernels' times say."""
    records.begin()
    ran = run(step, wait, seconds, at_once)
    spans = records.end()
    return {**ran, **(described(spans, ran["steps"]) if spans else {})}


def serve(
    step: Callable[[], object],
    wait: Callable[[], object],
    answers: TextIO | None = None,
    others: Mapping[str, Callable[[], object]] | None = None,
    *,
    at_once: int = STEPS_AT_ONCE,
    warm_up: int = WARM_UP_STEPS,
) -> None:
    """Warms up and answers on `answers` (stdout); `others`: more that can be asked for, by name."""
    for _ in range(warm_up):
        step()
    wait()
    print("ready", file=answers, flush=True)
    records: kernel_records.KernelRecords | None = None
    for line in sys.stdin:
        what, *seconds = line.split()
        answer: object
        if others and what in others:
            answer = others[what]()
        elif what == "rate":
            answer = run(step, wait, float(seconds[0]), at_once)
        else:
            try:
                records = records or kernel_records.KernelRecords()
                answer = observed(records, step, wait, float(seconds[0]), at_once)
            except OSError as error:
                answer = {"unseen": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
