"""A program that makes training steps when it is told to, line by line on stdin.

    rate SECONDS     {"rate": steps a second, "steps": n}
    share SECONDS    {"share": percent of the time that kernels ran}; {} where nobody saw them

It says "ready" once it is warm. Must not know which framework steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

WARM_UP_STEPS = 30
STEPS_AT_ONCE = 10


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


def covered_percent(spans: Sequence[tuple[int, int]]) -> float:
    """What (begin, end) pairs cover, from the first begin to the last, united."""
    at = first = min(spans)[0]
    last = max(begin for begin, _ in spans)
    covered = 0
    for begin, end in sorted(spans):
        covered += max(0, min(end, last) - max(begin, at))
        at = max(at, end)
    return 100 * covered / (last - first)


def serve(
    step: Callable[[], None],
    wait: Callable[[], None],
    spans: Callable[[float], Sequence[tuple[int, int]]],
) -> None:
    """Warms up and answers; `spans` steps for so many seconds and tells when kernels ran."""
    for _ in range(WARM_UP_STEPS):
        step()
    wait()
    print("ready", flush=True)
    for line in sys.stdin:
        what, seconds = line.split()
        if what == "share":
            seen = spans(float(seconds))
            answer = {"share": covered_percent(seen)} if seen else {}
        else:
            answer = run(step, wait, float(seconds))
        print(json.dumps(answer), flush=True)
