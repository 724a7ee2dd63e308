"""Percentiles, and the shares that records of kernels tell."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest
from colocation.figures import (
    Records,
    common,
    common_window,
    covered_percent,
    own_window,
    percentile,
    united,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5], 99, 5),
        ([3, 1, 2], 50, 2),
        ([4, 3, 2, 1], 50, 2),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 101)), 100, 100),
        (list(range(1, 101)), 0, 1),
    ],
)
def test_a_percentile_is_a_value_that_occurred(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 99))


def test_time_that_two_kernels_share_counts_once() -> None:
    assert united([(5, 9), (0, 2), (1, 4), (9, 10)]) == [(0, 4), (5, 10)]
    assert covered_percent([(0, 4), (5, 10)], (2, 12)) == 70


def test_the_time_that_both_cover_is_found() -> None:
    assert common([(0, 4), (5, 10), (20, 30)], [(2, 6), (8, 9), (25, 40)]) == [
        (2, 4),
        (5, 6),
        (8, 9),
        (25, 30),
    ]
    assert common([(0, 4)], [(4, 8)]) == []
    assert common([], [(4, 8)]) == []


def test_records_that_the_gpu_did_not_write_are_none() -> None:
    # ~0 and 0 are what a zeroed record holds.
    assert Records.of([(2**64 - 1, 0, 500)]).kernels == []
    assert Records.of([(2**64 - 1, 0, 500)]).busy == []


def test_records_are_read_as_the_program_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(array("Q", [30, 40, 7, 10, 20, 5]).tobytes())

    assert Records.read(path).kernels == [(10, 20, 5), (30, 40, 7)]
    assert Records.read(tmp_path / "none").kernels == []


def test_a_kernel_that_was_interrupted_counts_by_its_work() -> None:
    # Ten of work took twenty, since a neighbour had the GPU for the other ten.
    records = Records.of([(0, 20, 10), (20, 30, 10)])

    assert records.work_percent((0, 30)) == pytest.approx(100 * 20 / 30)
    assert records.work_percent((10, 20)) == 50
    assert records.work_percent((20, 30)) == 100


def test_a_long_kernel_reaches_into_a_window_past_shorter_ones() -> None:
    records = Records.of([(0, 100, 100), (10, 20, 10), (30, 40, 10)])

    assert records.work_percent((50, 100)) == 100


def test_kernels_at_a_time_are_those_in_flight_while_any_is() -> None:
    records = Records.of([(0, 20, 20), (10, 30, 20), (50, 60, 10)])

    assert records.in_flight((0, 100)) == pytest.approx(50 / 40)
    assert records.in_flight((10, 20)) == 2
    assert math.isnan(records.in_flight((30, 50)))


def test_whole_seconds_alone_are_told() -> None:
    second = 10**9
    records = Records.of([(0, second, second), (second, 2 * second, second // 2)])

    assert records.seconds((0, 2 * second + second // 2)) == [100, 50]


def test_a_window_of_bursts_reaches_from_begin_to_begin() -> None:
    # A pause counts with the work in front of it: 10 of every 20 is a half, wherever the run ends.
    bursts = [(at * 20 * MS, at * 20 * MS + 10 * MS, 10 * MS) for at in range(10)]
    records = Records.of(bursts)

    window = own_window(records)

    assert window == (20 * MS, 180 * MS)
    assert records.work_percent(window) == 50


def test_without_pauses_the_window_leaves_out_the_credit_of_an_idle_gpu() -> None:
    records = Records.of([(at * MS, (at + 1) * MS, MS) for at in range(100)])

    assert own_window(records) == (10 * MS, 100 * MS)


def test_neighbours_are_compared_while_both_are_under_way() -> None:
    first = Records.of([(0, 1000 * MS, 1)])
    second = Records.of([(200 * MS, 1200 * MS, 1)])

    assert common_window([first, second]) == (280 * MS, 1000 * MS)


def test_neighbours_that_hardly_met_have_no_window() -> None:
    first, second = Records.of([(0, 100 * MS, 1)]), Records.of([(90 * MS, 300 * MS, 1)])

    assert common_window([first, second]) is None
    assert common_window([Records.of([])]) is None
