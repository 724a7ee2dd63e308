"""`gpufence status` for people: what its table tells."""

from __future__ import annotations

import re

import pytest
from gpufence.commands import status_text


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
        "state": "prepared",
        "region": None,
        "set": {"all": amounts} if amounts else {},
        "gpus": [],
        "processes": [],
    }

    _, row = status_text.table([prepared])

    assert re.split(" {2,}", row) == ["train", "-", "0", "-", limit, cores, "-", "prepared"]


OF_A_POD = {"namespace": "ml", "pod": "train-0", "container": "main"}
OF_PODMAN = {"namespace": "", "pod": "", "container": "web"}


@pytest.mark.parametrize(
    ("name", "called", "running", "shown"),
    [
        ("nsf0000153-2c-0123456789abcdef", OF_A_POD, True, ["ml/train-0/main", "running"]),
        ("nsf0000153-2c-0123456789abcdef", OF_PODMAN, False, ["web", "idle"]),
        (
            "nsf0000153-2c-0123456789abcdef",
            None,
            False,
            ["nsf0000153-2c-0123456789abcdef", "ended"],
        ),
        ("train", OF_PODMAN, True, ["train", "running"]),
        ("train", OF_A_POD, True, ["ml/train-0/main", "running"]),
    ],
)
def test_a_container_that_nobody_named_is_shown_as_its_engine_calls_it(
    name: str, called: dict[str, str] | None, running: bool, shown: list[str]
) -> None:
    state = {
        "name": name,
        "running": running,
        "frozen": False,
        "called": called,
        "state": shown[1],
        "region": "/run/gpufence/x",
        "set": {},
        "gpus": [],
        "processes": [],
    }

    row = status_text.table([state])[1].split()
    first, *others = status_text.details(state)

    assert [row[0], row[-1]] == shown
    assert first.startswith(f"{shown[0]}: ")
    assert others == ([] if shown[0] == name else [f"  files of '{name}'"])
