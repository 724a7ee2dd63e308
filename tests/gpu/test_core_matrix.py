"""The runs of the core limit's matrix cover what they stand for. Needs no GPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from core_matrix import (
    BLOCKS,
    LENGTHS_US,
    LIMITS,
    MOST_COOPERATIVE_BLOCKS,
    PATHS,
    Cell,
    cells,
    waited_cells,
)
from part_cores import TURNS, run_matrix
from report import Report
from setup import Setup

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


# Answers as cores_spin does. The rate is the next one of its file, with a limit and without.
SPIN = """#!{python}
import json, os, sys
limit = os.environ.get("GPUFENCE_CORE_LIMIT")
name = "{folder}/" + ("held" if limit else "bare")
rates = open(name).read().split()
open(name, "w").write(" ".join(rates[1:]))
print("ready", flush=True)
for line in sys.stdin:
    said = {{"rate": float(rates[0]), "share": {share}, "seconds": [{share}], "longest_ms": 0}}
    print(json.dumps(said), flush=True)
"""


def judged(folder: Path, cell: Cell, bare: str, held: str) -> dict[str, Any]:
    """The matrix's one verdict, with these rates from one process to the next."""
    spin = folder / "spin"
    spin.write_text(SPIN.format(python=sys.executable, folder=folder, share=60))
    spin.chmod(0o755)
    (folder / "bare").write_text(bare)
    (folder / "held").write_text(held)
    report = Report(folder)
    setup = Setup(folder, folder, simulated=False, deadline=time.monotonic() + 1000)

    run_matrix(setup, report, spin, [cell])

    (verdict,) = report.details["parts"]["cores"].values()
    return dict(verdict)


@pytest.mark.parametrize(
    ("held", "verdict"),
    [("97.6 99.5 98.1", "same"), ("97.6 99.5 97.9", "different"), ("98 98 60", "same")],
)
def test_what_needs_less_than_its_limit_is_judged_by_medians(
    tmp_path: Path, held: str, verdict: str
) -> None:
    thrice = TURNS // 3
    # The first one tells what it needs.
    bare = " ".join(["90", *["100 96 104"] * thrice])
    found = judged(tmp_path, Cell(95, 20, "sync", 132), bare, " ".join([held] * thrice))

    assert found["verdict"] == verdict
    assert "95        20    132 sync" in (tmp_path / "cores.txt").read_text()


def test_what_reaches_its_limit_is_judged_by_its_share(tmp_path: Path) -> None:
    found = judged(tmp_path, Cell(50, 20, "sync", 132), "100", "99")

    assert found["verdict"] == "different"
    assert "off by +10.0 points" in found["text"]
