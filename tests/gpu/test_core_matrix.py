"""The runs of the core limit's matrix cover what they stand for. Needs no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from core_matrix import (
    BLOCKS,
    LENGTHS_US,
    LIMITS,
    MOST_COOPERATIVE_BLOCKS,
    PATHS,
    cells,
    waited_cells,
)

MOST_S = 240.0


def test_every_pair_of_limit_length_and_path_is_run() -> None:
    chosen = cells()

    assert {(c.limit, c.length_us) for c in chosen} == {(a, b) for a in LIMITS for b in LENGTHS_US}
    assert {(c.limit, c.path) for c in chosen} == {(a, b) for a in LIMITS for b in PATHS}
    assert {(c.length_us, c.blocks) for c in chosen} == {(a, b) for a in LENGTHS_US for b in BLOCKS}


def test_no_run_asks_for_more_than_a_gpu_can_do() -> None:
    for cell in cells():
        assert cell.path != "cooperative" or cell.blocks <= MOST_COOPERATIVE_BLOCKS
        assert cell.path != "gap" or cell.length_us < 200_000


def test_the_runs_fit_into_their_time() -> None:
    assert sum(cell.seconds for cell in (*cells(), *waited_cells())) <= MOST_S
