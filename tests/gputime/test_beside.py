"""Containers that use a GPU at once, without any driver: whose the time was, and who takes turns.

GPUFENCE_TEST_CORE_ROUNDS makes the long run; the default is a short one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.state.test_state import folder, run  # noqa: F401  (folder: a fixture)

ROUNDS = int(os.environ.get("GPUFENCE_TEST_CORE_ROUNDS", "10"))

RUNS = (
    "packed",
    "packed_odd",
    "packed_garbage",
    "joined",
    "joined_parts",
    "replaced",
    "stretches",
)

MEETINGS = (
    "by_slices",
    "three",
    "whole",
    "surely_ours",
    "parts",
    "stretched",
    "in_pieces",
    "nothing_twice",
    "crowded",
)


@pytest.mark.parametrize(
    "case",
    [
        *RUNS,
        *MEETINGS,
        "depths",
        "least_rests",
        "mean_densities",
        "densities",
        "mean_runs",
        "mean_runs_behind_pieces",
    ],
)
def test_the_time_of_the_gpu_is_somebodys(build: Path, case: str) -> None:
    for seed in range(1, 2 + ROUNDS // 20):
        run(build / "tests" / "core_beside", case, seed)
