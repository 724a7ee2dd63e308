"""Random programs (bench/colocation/random_plan.h), alone and in pairs, in virtual time.

Up to three threads and four streams each, which wait in five ways, copy, pause and work in bursts.
Of a program alone the simulated GPU tells when each kernel ran, and kernels of several streams at
once count once; in a pair every kernel fills the GPU. The same in every run;
GPUFENCE_TEST_RANDOM=1000 draws as many of either kind.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpus import H200, H200_TURNS
from tests.support.machine import Sim
from tests.support.virtual_world import Words, run_together

# A host whose waits return late, as those do that give their processor away.
GPU = {
    f"GPUFENCE_SIM_{name}": str(value)
    for name, value in {
        **H200,
        **H200_TURNS,
        "CONTEXT_BYTES": 0,
        "WAKE_NS": 20_000,
        "BUS_MB_PER_S": 50_000 // 512,  # cores_random copies as much less, since that takes time
    }.items()
}
COUNT = int(os.environ.get("GPUFENCE_TEST_RANDOM", "12"))
# Programs that had less than their limit once:
CAUGHT = (1_002_227,)  # two streams whose kernels come while the copies in front of them run
ALONE_LIMITS = (25, 30, 60)
PAIR_LIMITS = (40, 60)
MS = 3_000
SAVED = 50 / MS * 100  # percent of the run: GPU time that is saved up, and may be used at once
POINTS = 2.0
ENOUGH = 0.94  # of what it has under the bare driver, in so few seconds

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


def run(
    sim: Sim, folder: Path, commands: Sequence[Words], limits: Sequence[int], **variables: str
) -> list[Any]:
    """What each program says, beside the others; without limits under the bare driver."""
    (folder / "node").mkdir(parents=True)
    own = [
        {
            "GPUFENCE_CORE_LIMIT": str(limit),
            "GPUFENCE_CONTAINER": f"tenant{place}",
            "GPUFENCE_STATE_DIR": str(folder / f"state{place}"),
            "GPUFENCE_NODE_DIR": str(folder / "node"),
        }
        for place, limit in enumerate(limits)
    ]
    done = run_together(
        sim, folder, commands, env=GPU | variables, own=own, preload=bool(limits), timeout=300
    )
    return [each.facts for each in done]


def busy_percent(file: Path) -> float:
    """Of the time from the first kernel's begin to the last one's end, that in which any ran."""
    lines = file.read_text(encoding="utf-8").splitlines()
    spans = sorted((int(begin), int(end)) for begin, end, _ in map(str.split, lines))
    first = seen = spans[0][0]
    busy = 0
    for begin, end in spans:
        busy += max(0, end - max(begin, seen))
        seen = max(seen, end)
    return 100 * busy / (seen - first)


def alone(sim: Sim, folder: Path, seed: int, *limit: int) -> tuple[float, str]:
    """Percent of the time in which a program's kernels ran, and what it does."""
    ran = folder / "kernels"
    command = ("cores_random", MS, seed)
    (facts,) = run(sim, folder, [command], limit, GPUFENCE_SIM_KERNELS=str(ran))
    return busy_percent(ran), facts["plan"]


@pytest.mark.parametrize("seed", [*range(COUNT), *CAUGHT])
def test_a_random_program_has_its_limit_or_what_it_needs(
    sim: Sim, tmp_path: Path, seed: int
) -> None:
    limit = random.Random(seed).choice(ALONE_LIMITS)

    needs, plan = alone(sim, tmp_path / "bare", seed)
    has, _ = alone(sim, tmp_path / "held", seed, limit)

    # Held, it pauses at other moments, and may use more than it needs alone.
    assert min(limit, needs) - POINTS <= has <= limit + POINTS + SAVED, plan


@pytest.mark.parametrize("seed", range(COUNT))
def test_of_two_random_programs_each_has_its_limit_or_what_the_driver_gives_it(
    sim: Sim, tmp_path: Path, seed: int
) -> None:
    commands = [("cores_random", MS, 10_000 + 2 * seed + place, "full") for place in range(2)]
    limits = random.Random(seed).sample(PAIR_LIMITS, 2)

    bare = run(sim, tmp_path / "bare", commands, ())
    held = run(sim, tmp_path / "held", commands, limits)

    for before, now, limit in zip(bare, held, limits, strict=True):
        allowed = min(limit, before["share"])
        assert ENOUGH * allowed - POINTS / 2 <= now["share"], now["plan"]
        assert now["share"] <= limit + POINTS + SAVED, now["plan"]
