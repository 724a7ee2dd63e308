"""The table that a real driver is compared with: the regression values of the headers, by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import lookup_model

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def table() -> lookup_model.Table:
    """What a 580 exports, with the thresholds of the committed model."""
    model = json.loads((REPO / "lib" / "api" / "cuda.json").read_text(encoding="utf-8"))
    names = REPO / "lib" / "api" / "symbols" / "libcuda-580.159.04.txt"
    return lookup_model.table_of(model, set(names.read_text("utf-8").split()), 13000)


@pytest.mark.parametrize(
    ("name", "version", "flags", "old", "new"),
    [
        ("cuMemAlloc", 2000, 0, "0/-/cuMemAlloc", "0/0/cuMemAlloc"),
        ("cuMemAlloc", 3019, 0, "0/-/cuMemAlloc", "0/0/cuMemAlloc"),
        ("cuMemAlloc", 3020, 0, "0/-/cuMemAlloc_v2", "0/0/cuMemAlloc_v2"),
        ("cuMemAlloc", 1999, 0, "500/-/-", "0/2/null"),
        ("cuMemAlloc", 0, 0, "500/-/-", "0/2/null"),
        ("cuMemAlloc", -1, 0, "0/-/cuMemAlloc_v2", "0/0/cuMemAlloc_v2"),
        ("cuMemAlloc", 13001, 0, "1/-/-", "1/-/-"),
        ("cuMemAlloc", 12000, 4, "1/-/-", "1/-/-"),
        ("cuMemAlloc_v2", 12000, 0, "500/-/-", "0/1/null"),
        ("cuMemcpyDtoH", 12000, 2, "0/-/cuMemcpyDtoH_v2_ptds", "0/0/cuMemcpyDtoH_v2_ptds"),
        ("cuLaunchKernel", 12000, 3, "0/-/cuLaunchKernel_ptsz", "0/0/cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 6050, 2, "500/-/-", "0/2/null"),
        ("cuLaunchKernel", 6050, 1, "0/-/cuLaunchKernel", "0/0/cuLaunchKernel"),
        ("cuMemAlloc", 12000, 2, "0/-/cuMemAlloc_v2", "0/0/cuMemAlloc_v2"),
        ("cuLogicalEndpointCreate", 13000, 0, "500/-/-", "0/1/null"),
    ],
)
def test_the_rule_gives_what_real_drivers_gave(
    table: lookup_model.Table, name: str, version: int, flags: int, old: str, new: str
) -> None:
    assert table.answer(1, name, version, flags) == old
    assert table.answer(2, name, version, flags) == new


def test_a_driver_before_13_accepts_versions_above_its_own(table: lookup_model.Table) -> None:
    older = lookup_model.Table(table.plain, table.per_thread, 12040)

    assert older.answer(1, "cuMemAlloc", 99999, 0) == "0/-/cuMemAlloc_v2"


def test_rows_hold_an_answer_until_the_next_change() -> None:
    output = "driver\t13000\nlookup\t1\tcuInit\t0\t0=500/-/-\t2000=0/-/cuInit\n"

    version, rows = lookup_model.decode(output, [0, 1, 2000, 12000])

    assert version == 13000
    assert rows == {(1, "cuInit", 0): ["500/-/-", "500/-/-", "0/-/cuInit", "0/-/cuInit"]}
