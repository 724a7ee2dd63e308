"""Kernels that wait for their counterparts on other simulated GPUs, as those of a collective do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Sim
from tests.support.virtual_world import run_together

STEPS = 5
LENGTH_US = 200
HOST_US = 200  # launches, and until another process's kernel is seen to have begun


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("slower", [0, 1])
def test_all_end_when_the_last_has_begun(
    sim: Sim, tmp_path: Path, slower: int, processes: int
) -> None:
    """Each step takes as long as that of the slower one, whichever process that is of."""
    compute = (300, 1_000)
    command = ("cores_gang", STEPS, "kernels=1", f"length={LENGTH_US}")
    command += (f"compute{slower}={compute[1]}", f"compute{1 - slower}={compute[0]}")
    commands: list[tuple[str | int, ...]] = [command]
    if processes == 2:
        commands = [(*command, f"first={rank}", "ranks=1") for rank in range(2)]

    done = run_together(sim.with_env(GPUS=2), tmp_path, commands, preload=False)

    facts: dict[str, float] = {}
    for each in done:
        facts |= each.facts
    for rank in range(2):
        assert facts[f"us{rank}"] == pytest.approx(STEPS * (1_000 + LENGTH_US), abs=HOST_US)
        assert facts[f"share{rank}"] >= 95


def test_a_kernel_without_counterparts_waits_for_nobody(sim: Sim, tmp_path: Path) -> None:
    command = ("cores_gang", STEPS, "ranks=1", "devices=1", "kernels=1", f"length={LENGTH_US}")

    (done,) = run_together(sim.with_env(GPUS=2), tmp_path, [command], preload=False)

    assert done.facts["us0"] == pytest.approx(STEPS * (100 + LENGTH_US), abs=HOST_US)
