"""Containers on one GPU as they are to each other, without any driver.

Ranks, weights, floors, what may be saved up, and what is given back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.state.test_state import folder, run  # noqa: F401  (folder: a fixture)

CASES = (
    "claims",
    "soft_alone",
    "soft_by_weight",
    "soft_filled",
    "soft_together",
    "soft_crowded",
    "rates",
    "yielding",
    "yielding_to_nobody",
    "ranks",
    "floors",
    "floors_above_shares",
    "rank_garbage",
    "odd_terms",
    "floors_in_peace",
    "soft_seats",
    "hard_beside_soft",
    "bursts",
    "calm",
)


@pytest.mark.parametrize("case", CASES)
def test_containers_keep_their_terms(build: Path, folder: Path, case: str) -> None:  # noqa: F811
    run(build / "tests" / "core_terms", case, folder)


@pytest.mark.parametrize("case", ["once", "beside_pauses", "beside_idle_time"])
def test_what_neighbours_had_is_given_back(build: Path, folder: Path, case: str) -> None:  # noqa: F811
    run(build / "tests" / "core_given_back", case, folder)
