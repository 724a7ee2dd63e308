"""How the bench and its programs talk: a line each way, so that all tenants begin together.

The program says "loaded" (imports are done, the GPU was not touched), hears "prepare", says "ready"
(warmed up), hears "go SECONDS DELAY", and says its figures as one line of JSON; then it may hear
"go" again. kernels.cpp speaks the same, once. Must not know what a program does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable

Figures = dict[str, float | str]
Run = Callable[[float], Figures]


def own_stdout() -> int:
    """The bench's end of stdout; what libraries print there goes to stderr from now on."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def follow(prepare: Callable[[], Run]) -> int:
    """One conversation; returns the exit status.

    Args:
        prepare: takes the GPU, warms up and returns what runs for a number of seconds.
    """
    out = own_stdout()

    def say(line: str) -> None:
        os.write(out, f"{line}\n".encode())

    def hears(word: str) -> list[str] | None:
        words = sys.stdin.readline().split()
        return words[1:] if words[:1] == [word] else None

    say("loaded")
    if hears("prepare") is None:
        return 2
    run = prepare()
    gc.collect()
    gc.freeze()  # a collection would be a request's latency
    say("ready")
    numbers = hears("go")
    if numbers is None:
        return 2
    while numbers is not None:
        seconds, delay = (float(number) for number in numbers)
        time.sleep(delay)
        say(json.dumps(run(seconds - delay)))
        numbers = hears("go")
    return 0
