"""A GPU's pauses and its clock's steps, by the kernel that gpufence measures them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..conftest import Sim  # noqa: TID252 - the fixtures are one folder up

FLOAT_NS = 1  # what a float of milliseconds cannot say, up to 16 ms

PACES = {
    "first": 5_000,
    "second": 7_000,
    "between": 0,
    "read again": 0,
    "all by events": 1_000_000 + 5_000 + 7_000 + 5_000,
    "captured": 0,
    "in a graph": 5_000,
    "later than before": 1,
    "unloaded": 0,
}


def paces(build: Path, folder: Path, **variables: int) -> Any:  # noqa: ANN401 - JSON
    """What time_paces prints where the machine has such pauses."""
    sim = Sim(build, folder / "machine").with_env(SPEED="virtual", **variables)
    return sim.run("time_paces").facts


def test_the_pace_kernel_leaves_its_begin_and_its_end(build: Path, tmp_path: Path) -> None:
    facts = paces(build, tmp_path)

    assert {name: facts[name] for name in PACES} == pytest.approx(PACES, abs=FLOAT_NS)


def test_the_gpus_clock_moves_in_steps(build: Path, tmp_path: Path) -> None:
    """Four thousand nanoseconds each: what the kernel reads, and the times of events."""
    facts = paces(build, tmp_path, EVENT_STEP_NS=4_000)

    for name in ("first", "second", "in a graph", "all by events"):
        assert round(facts[name]) % 4_000 == 0
        assert 0 < abs(facts[name] - PACES[name]) < 4_000
