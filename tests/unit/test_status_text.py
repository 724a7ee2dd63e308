"""`gpufence status` for people: what its table tells."""

from __future__ import annotations

import re

import pytest
from gpufence import status_text


@pytest.mark.parametrize(
    ("amounts", "limit", "cores"),
    [
        ({}, "-", "-"),
        ({"memory_bytes": 6 << 30}, "6 GiB", "-"),
        ({"memory_percent_billionths": 50 * 10**9}, "50 % of the GPU", "-"),
        (
            {"cores_millipercent": 40_000, "soft_cores_millipercent": 80_000},
            "-",
            "40 %, soft 80 %",
        ),
        ({"memory_bytes": 0, "cores_millipercent": 0}, "no limit", "no limit"),
        ({"soft_cores_millipercent": 80_000}, "-", "-, soft 80 %"),
    ],
)
def test_a_container_without_a_program_shows_what_is_set_for_it(
    amounts: dict[str, int], limit: str, cores: str
) -> None:
    prepared = {
        "name": "train",
        "running": False,
        "frozen": False,
        "called": None,
        "region": None,
        "set": {"all": amounts} if amounts else {},
        "gpus": [],
        "processes": [],
    }

    _, row = status_text.table([prepared])

    assert re.split(" {2,}", row) == ["train", "-", "0", "-", limit, cores, "-", "prepared"]
