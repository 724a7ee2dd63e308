"""A GPU's pauses and its clock's steps, by the kernel that gpufence measures them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Sim

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
    "over an event": 0,
    "over a word": 0,
    "wide": 0,
    "less wide": 0,
    "behind a wide one": 0,
    "alone by events": 5_000,
    "launched at an end": 0,
    "own pause": 1_000,  # the other stream's kernel came first
    "other in it": 1_000,
    "before a graph": 0,
    "in it": 0,
    "behind it": 0,
    "before a child": 0,
    "unloaded": 0,
}

# Twice of the pauses that an H200 has, so that no two sums are the same.
PAUSES = {
    "EVENT_NS": 3_000,
    "EVENT_GAP_NS": 1_800,
    "MEMOP_GAP_NS": 5_900,
    "LAUNCH_GAP_NS": 3_410,
    "STEP_GAP_NS": 1_910,
    "START_NS": 920,
    "WIDE_GAP_NS": 2_000,
}
PAUSED = {
    "between": 3_410,
    "over an event": 3_000 + 1_800 + 3_410,
    "over a word": 5_900 + 3_410,  # of two operations the last one's
    "wide": 3_410 + 2_000,
    "less wide": 3_410 + 500,
    "behind a wide one": 3_410,
    "alone by events": 920 + 5_000 + 3_000,  # the first event is in an idle stream
    "launched at an end": 3_410,
    "own pause": 3_410 + 2_000 * 1_024 // 65_536,  # of so many blocks
    "other in it": 1_000,
    "before a graph": 3_000 + 1_800 + 3_410,  # behind an event
    "in it": 1_910,
    "behind it": 3_410,
    "before a child": 1_910,
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


def test_a_gpu_pauses_between_kernels_as_it_is_told(build: Path, tmp_path: Path) -> None:
    facts = paces(build, tmp_path, **PAUSES)

    assert {name: facts[name] for name in PAUSED} == pytest.approx(PAUSED, abs=FLOAT_NS)


@pytest.mark.parametrize("start_ns", [0, 6_000])
def test_a_kernel_begins_so_long_after_its_launch(
    build: Path, tmp_path: Path, start_ns: int
) -> None:
    facts = paces(build, tmp_path, START_NS=start_ns, LAUNCH_GAP_NS=2_000)

    assert facts["alone by events"] == pytest.approx(start_ns + 5_000, abs=FLOAT_NS)
    assert facts["launched at an end"] == max(start_ns, 2_000)
    assert facts["between"] == 2_000
