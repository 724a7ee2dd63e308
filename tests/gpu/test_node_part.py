"""The GPU run's part about a node: what it calls wrong, and how time is told. Needs no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import node_bypass
import node_freeze
import node_series
import part_node
from colocation.figures import Records
from node_series import Phase

MS = 1_000_000
TWO, THREE, _, FROZEN, _ = part_node.PHASES


@pytest.mark.parametrize(
    ("promised", "shares", "complaint"),
    [
        (TWO, (74.0, 25.5, 0.0), ""),
        (
            TWO,
            (70.0, 29.0, 0.0),
            "the first has 70.0 instead of 74.2; the second has 29.0 instead of 24.8",
        ),
        (TWO, (69.0, 23.0, 0.0), "only 92.0 % in sum"),
        (TWO, (74.0, 25.0, 1.0), "the third has 1.0"),
        (THREE, (56.0, 19.0, 25.0), ""),
        (THREE, (51.0, 17.0, 25.0), ""),
        (THREE, (48.0, 16.0, 25.0), "only 89.0 % in sum"),
        (THREE, (75.0, 25.0, 0.0), "the third has 0.0"),
        (THREE, (51.0, 17.0, 32.0), "the third has 32.0"),
        (FROZEN, (0.0, 98.0, 0.0), ""),
        (FROZEN, (1.0, 98.0, 0.0), "1.0 % while it is frozen"),
        (FROZEN, (0.0, 25.0, 0.0), "the other has 25.0 %"),
    ],
)
def test_shares_are_held_against_weights_priority_and_freeze(
    promised: part_node.Promised, shares: tuple[float, float, float], complaint: str
) -> None:
    found = part_node.wrong_shares(promised, dict(zip("abc", shares, strict=True)))

    assert "; ".join(found) == complaint


def test_what_was_charged_is_told_for_each_tenth_of_a_second() -> None:
    looks = [(-0.05, 0), (0.05, 50 * MS), (0.15, 100 * MS), (0.25, 100 * MS), (0.35, 100 * MS)]

    assert node_series.of_charges(looks, 0.3) == [50.0, 25.0, 0.0]


def test_work_of_kernels_is_told_for_each_tenth_of_a_second() -> None:
    zero = 7_000_000_000
    kernels = [(zero, zero + 50 * MS, 50 * MS), (zero + 150 * MS, zero + 250 * MS, 100 * MS)]

    assert node_series.of_records(Records.of(kernels), zero, 0.3) == [50.0, 50.0, 50.0]
    assert node_series.mean([50.0, 50.0, 20.0], Phase("", 0.1, 0.3)) == 35.0


def test_a_request_lasts_from_its_first_kernels_begin_to_its_last_ones_end() -> None:
    bursts = [(at + step, at + step + MS, MS) for at in (MS, 80 * MS) for step in (0, 2 * MS)]

    told = node_series.requests_ms(Records.of(bursts))

    assert told == {"count": 2, "p50_ms": 3.0, "p99_ms": 3.0}


def test_the_picture_has_a_line_for_each_container_and_names_each_phase() -> None:
    picture = node_series.drawn("T", {"one": [1.0, 2.0], "two": [3.0, 4.0]}, [Phase("P", 0, 0.1)])

    assert picture.count("<polyline") == 2
    assert all(f">{word}</text>" in picture for word in ("T", "one", "two", "P"))


def told(**other: object) -> dict[str, object]:
    """What a training says that was held from 1 to 2 s."""
    done = [500 * MS, 1_020 * MS, 2_100 * MS]
    same = {"losses": "1", "weights": "2", "last": "3", "done_ns": done, "libgpufence": True}
    return {**same, **other}


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({}, ""),
        ({"losses": "9"}, "losses differ: 1 / 9"),
        ({"weights": "9"}, "weights differ: 2 / 9"),
        ({"libgpufence": False}, "the library was not in one of the two alone"),
        ({"done_ns": [500 * MS, 1_500 * MS, 2_100 * MS]}, "1 steps ended while it was frozen"),
        ({"done_ns": [500 * MS]}, "it had ended before it was frozen"),
    ],
)
def test_a_frozen_training_stands_still_and_computes_the_same(
    other: dict[str, object], complaint: str
) -> None:
    bare = told(libgpufence=False)

    found = node_freeze.wrong_training(bare, told(**other), 1_000 * MS, 2_000 * MS)

    assert "; ".join(found) == complaint


def test_who_goes_around_the_library_must_be_named_in_time_and_nobody_else() -> None:
    line = "gpufence: GPU-1: process 7 (python) has 300 MiB without the library"

    assert node_bypass.wrong_names(line, line, {8}, 1.4) == []
    assert node_bypass.wrong_names("", "", {8}, 1.4) == ["nobody was named in 1.4 s"]
    assert node_bypass.wrong_names(line, line, {8}, 2.4) == ["that is more than 2 s"]
    assert node_bypass.wrong_names(line, line.replace("7", "8"), {8}, 1.4) == [
        "process 8 has the library and is named"
    ]
