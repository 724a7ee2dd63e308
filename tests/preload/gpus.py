"""What GPUs take beside the time of their kernels, as variables of the simulated driver.

Must not know what is tested on them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

# An H200 with driver 580, in nanoseconds: docs/core-limiter.md says how each was measured.
H200: Mapping[str, int] = {
    "LAUNCH_GAP_NS": 1_700,
    "STEP_GAP_NS": 950,
    "WIDE_GAP_NS": 950,
    "START_NS": 460,
    "EVENT_NS": 1_540,
    "EVENT_GAP_NS": 960,
    "LAUNCH_NS": 2_500,
}

# Turns, of which a program alone takes none, and how late a wait for the GPU returns.
H200_TURNS: Mapping[str, int] = {"SLICE_NS": 2_091_000, "SWITCH_NS": 155_000}
LATE_WAKE_NS = 5_000


def drawn(seed: int) -> dict[str, int]:
    """A GPU and a host that nobody has measured: the same for a seed each time.

    Each of an H200's numbers times 0.5 to 2; a host 0.5 to 4 times as slow; a clock that moves in
    steps of 32 ns to a microsecond; 10 to 200 multiprocessors.
    """
    draw = random.Random(seed)
    pauses = {name: ns for name, ns in H200.items() if name != "LAUNCH_NS"} | H200_TURNS
    world = {name: round(ns * 2 ** draw.uniform(-1, 1)) for name, ns in pauses.items()}
    slow = 2 ** draw.uniform(-1, 2)
    world["LAUNCH_NS"] = round(H200["LAUNCH_NS"] * slow)
    world["WAKE_NS"] = round(LATE_WAKE_NS * slow)
    world["EVENT_STEP_NS"] = round(1_000 * 2 ** draw.uniform(-4.97, 0))
    world["SMS"] = draw.randint(10, 200)
    return world
