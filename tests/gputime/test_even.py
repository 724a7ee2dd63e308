"""A program that waits for each piece of its work is held for a little behind each.

It would rather wait for 2 ms behind each of its pieces than for 20 behind each tenth. In virtual
time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import SECOND_POINTS, limited

EVEN_US = 1_000  # even_ns of base/tuning.h: so much may be owed before it is held
LATE_US = 500  # from the end of what is owed to the next launch, and of what the piece itself takes


@pytest.mark.parametrize("percent", [10, 25, 50, 75])
@pytest.mark.parametrize(
    ("kernel_us", "count"), [(200, 1), (200, 10), (500, 1), (500, 4), (3_000, 1)]
)
def test_the_pieces_of_a_program_that_waits_are_even(
    sim: Sim, tmp_path: Path, percent: int, kernel_us: int, count: int
) -> None:
    command = ("cores_even", kernel_us, count)

    (done,) = run_together(
        sim.with_env(**H200), tmp_path, [command], env=limited(tmp_path, percent)
    )

    piece_us = kernel_us * count
    owed_us = piece_us * 100 / percent
    # One that owes less than that goes on, and pays with the next.
    assert done.facts["longest_us"] <= owed_us + EVEN_US + LATE_US
    assert abs(done.facts["share"] - percent) <= SECOND_POINTS
