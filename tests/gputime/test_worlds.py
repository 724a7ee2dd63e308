"""Shares of GPUs that nobody has measured (gpus.drawn), in virtual time.

GPUFENCE_TEST_WORLDS says how many are drawn; the seed is a world's number, so a failure names it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import gpus
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import limited, pytestmark  # noqa: F401  (skips under sanitizers)

WORLDS = int(os.environ.get("GPUFENCE_TEST_WORLDS", "6"))
LIMITS = (25, 50, 75)
LENGTHS_US = (10, 20, 100, 1_000)
RUN_MS = 500
BARE_MS = 60
# The library measures the GPU's pauses: such a part of a limit may a share be off.
PART_OFF = {10: 0.025, 20: 0.005, 100: 0.005, 1_000: 0.005}
# A host that is slow as well: each waited for, and in two streams.
HOSTS_OFF = {"sync": 0.025, "two": 0.005}
UNMEASURED = "cuModuleGetGlobal_v2@1=500"  # which only what measures calls
POINTS = 2.0


def run(sim: Sim, folder: Path, kernel_us: int, percent: int | None, manner: str) -> float:
    """Percent of the time that kernels run of a program that launches as fast as it can."""
    run_ms = BARE_MS if percent is None else RUN_MS
    command = ("cores_run", "cuLaunchKernel", manner, kernel_us, run_ms)
    folder.mkdir()
    env = {} if percent is None else limited(folder, percent)
    (done,) = run_together(sim, folder, [command], env=env, preload=percent is not None)
    return float(done.facts["between"])


def errors(
    sim: Sim, folder: Path, kernel_us: int, manner: str = "steady"
) -> dict[int, tuple[float, float]]:
    """For each limit what the program has, and what it should have: the limit, or its need."""
    need = run(sim, folder / "bare", kernel_us, None, manner)
    return {
        percent: (run(sim, folder / str(percent), kernel_us, percent, manner), min(percent, need))
        for percent in LIMITS
    }


@pytest.mark.parametrize("kernel_us", LENGTHS_US)
@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_share_is_held_on_gpus_that_nobody_has_measured(
    sim: Sim, tmp_path: Path, seed: int, kernel_us: int
) -> None:
    world = sim.with_env(**gpus.drawn(seed))

    had = errors(world, tmp_path, kernel_us)

    for percent, (share, due) in had.items():
        assert share >= (1 - PART_OFF[kernel_us]) * due, gpus.drawn(seed)
        assert share <= (1 + PART_OFF[kernel_us]) * percent, gpus.drawn(seed)


@pytest.mark.parametrize("kernel_us", [10, 20])
@pytest.mark.parametrize("manner", HOSTS_OFF)
@pytest.mark.parametrize("seed", range(WORLDS))
def test_short_kernels_are_held_there_whatever_the_host_does(
    sim: Sim, tmp_path: Path, seed: int, manner: str, kernel_us: int
) -> None:
    """With waits by the host's clock less a mean, 19.5 of 25; two streams had 81.3 at 75."""
    world = sim.with_env(**gpus.drawn(seed))

    had = errors(world, tmp_path, kernel_us, manner)

    for percent, (share, due) in had.items():
        assert share >= (1 - HOSTS_OFF[manner]) * due, gpus.drawn(seed)
        assert share <= (1 + HOSTS_OFF["sync"]) * percent, gpus.drawn(seed)


def test_a_stream_that_runs_dry_while_a_launch_is_held_is_not_charged(
    sim: Sim, tmp_path: Path
) -> None:
    """There each hold was longer than what was queued and shorter than a look: 46.0 of 50."""
    world = sim.with_env(**gpus.drawn(9))

    share = run(world, tmp_path / "held", 60, 50, "two")

    assert share == pytest.approx(50, abs=0.5)


@pytest.mark.parametrize("kernel_us", LENGTHS_US)
@pytest.mark.parametrize("seed", range(WORLDS))
def test_where_nothing_can_be_measured_no_limit_is_passed(
    sim: Sim, tmp_path: Path, seed: int, kernel_us: int
) -> None:
    world = sim.with_env(**gpus.drawn(seed), FAULTS=UNMEASURED)

    for percent, (share, _) in errors(world, tmp_path, kernel_us).items():
        assert share <= percent + POINTS, gpus.drawn(seed)
