"""Tenants of one simulated GPU in virtual time (tests/gputime/cores_tenant.cpp), bare and limited.

Must not know what is promised to them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

# An H200; a context that costs no memory.
GPU = {f"GPUFENCE_SIM_{name}": str(value) for name, value in {**H200, "CONTEXT_BYTES": 0}.items()}

HIGH = {"GPUFENCE_PRIORITY": "high"}
LOW = {"GPUFENCE_PRIORITY": "low"}
# A machine on which threads wake as late as an H200's host has them.
LATE = {"GPUFENCE_TEST_WAKE_NS": "50000"}

# What people put side by side: kernels of a request, microseconds of each, and of the host's time
# from launch to launch.
PROGRAMS: Mapping[str, tuple[str | float, ...]] = {
    "serve": (170, 9, 16, "rate", 60),
    "train": (25, 150, 12, "spread", "ahead", 5),
    "eager training": (25, 15, 22, "long", 3, 380, "ahead", 8),
    "event by event": (1, 300, 10, "ahead", 4),
    "pieces": (11, 5, 20, "long", 11, 1_000),
    "pieces ahead": (55, 5, 20, "long", 11, 1_000, "ahead", 4),
    "generate": (250, 3.2, 14),
    "decoder": (1, 1_980, 10, "graph"),
    "copied pieces": (1, 100, 10, "copies"),
    "foreground": (10, 153, 10, "graph", "rate", 131),
    "eager foreground": (170, 9, 26, "rate", 131),
    "three long kernels": (3, 7_100, 10, "graph"),
    "deep, then sparse": (20, 313, 3, "ahead", 4, "burst", 40, 116, "sparse", 211, 150),
    "saturate 0.5": (1, 500, 3, "ahead", 120),
    "saturate 5": (1, 5_000, 3, "ahead", 12),
    "saturate 25": (1, 25_000, 3, "ahead", 4),
    "bursts 130 130": (26, 5_000, 5, "burst", 130, 130),
    "bursts 90 70": (18, 5_000, 5, "burst", 90, 70),
    "bursts 100 230": (4, 25_000, 5, "burst", 100, 230),
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A program, by its name or its words, and the core limit that it has where it has one."""

    program: str | tuple[str | float, ...]
    limit: int
    settings: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int = 0

    @property
    def words(self) -> tuple[str | float, ...]:
        """The program's arguments."""
        words = PROGRAMS[self.program] if isinstance(self.program, str) else self.program
        return (*words, "delay", self.delay_ms)


def meet(
    sim: Sim,
    folder: Path,
    tenants: Sequence[Tenant],
    *,
    preload: bool = True,
    ms: int = 3_000,
    machine: Mapping[str, str] | None = None,
) -> list[Any]:
    """What each tenant says of itself after so many virtual milliseconds beside the others."""
    folder = folder / f"meeting{len(list(folder.iterdir()))}"
    node = folder / "node"
    node.mkdir(parents=True)
    own = [
        {
            "GPUFENCE_CORE_LIMIT": str(tenant.limit),
            "GPUFENCE_CONTAINER": f"tenant{place}",
            "GPUFENCE_STATE_DIR": str(folder / f"state{place}"),
            "GPUFENCE_NODE_DIR": str(node),
            **tenant.settings,
        }
        for place, tenant in enumerate(tenants)
    ]
    commands = [
        ("cores_tenant", ms, *map(str, tenant.words), "seed", place + 5)
        for place, tenant in enumerate(tenants)
    ]
    env = {**GPU, **(machine or {})}
    own = own if preload else []
    done = run_together(sim, folder, commands, env=env, own=own, preload=preload, timeout=300)
    return [each.facts for each in done]


def meet_counted(
    sim: Sim, folder: Path, tenants: Sequence[Tenant], faults: str = "", ms: int = 1_000
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """As meet, over a driver with such faults: also how often each of its functions was called."""
    log = folder / "calls"
    machine = {"GPUFENCE_SIM_LOG": str(log), "GPUFENCE_SIM_FAULTS": faults}
    said = meet(sim, folder, tenants, ms=ms, machine=machine)
    lines = log.read_text(encoding="utf-8").splitlines()
    return said, Counter(line.split()[0] for line in lines)


def drawn(dice: random.Random) -> tuple[str | float, ...]:
    """A program at random: how long its kernels are, how many a request has, and how it waits."""
    kernel_us = round(math.exp(dice.uniform(math.log(5), math.log(20_000))), 1)
    launch_us = round(dice.choice((3, 3, 6, 12, 18)) * dice.uniform(0.8, 1.2), 1)
    if kernel_us < 20:
        launch_us = max(launch_us, 6.0)
    most = max(1, min(300, int(60_000 / kernel_us)))
    kernels = max(1, int(math.exp(dice.uniform(0, math.log(most)))), math.ceil(100 / kernel_us))
    request_us = kernels * kernel_us
    busy_us = kernels * max(kernel_us, launch_us)
    manner: tuple[str | float, ...] = dice.choice(
        (
            (),
            ("graph",),
            ("ahead", dice.choice((1, 2, 4))),
            ("ahead", max(2, int(40_000 / request_us))),
            ("rate", round(dice.uniform(0.05, 0.5) * 1e6 / busy_us, 2)),
        )
    )
    spread = ("spread",) if kernels >= 4 and dice.random() < 0.5 else ()
    length_us = round(dice.uniform(100, 3_000))
    is_mixed = kernel_us < 30 and kernels >= 10 and dice.random() < 0.5
    long = ("long", dice.choice((3, 10, kernels)), length_us) if is_mixed else ()
    return (kernels, kernel_us, launch_us, *manner, *spread, *long)
