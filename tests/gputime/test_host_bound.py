"""Programs whose host is slower than the GPU, alone in a container, in virtual time.

The GPU waits between their launches, and that time is not theirs: such a program has all that it
needs below its limit, and its limit above. Python does such things between the layers of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.machine import Sim

from .tenants import Tenant, meet
from .test_matrix import pytestmark  # noqa: F401  (skips under sanitizers)

MS = 2_000
# Kernels of a request, microseconds of each, and of the host's time from launch to launch. It is
# waited for: the wait alone does not tell what the kernels took.
EVEN = (
    (2, 5, 60),
    (2, 5, 150),
    (2, 20, 80),
    (3, 10, 40),
    (4, 5, 30),
    (4, 5, 60),
    (5, 60, 150),
    (10, 5, 30),
    (50, 5, 10),  # with what its own markers take deducted twice it had 14.5 at 10
    (100, 5, 90),
    (100, 5, 100),
    (100, 20, 100),
    (240, 7.4, 36),
    (30, 2, 15, "long", 29, 400),
)
UNEVEN = ((4, 20, 60), (10, 7, 36), (60, 7.4, 23), (240, 6, 44), (240, 7.4, 36))
EVENLY = 0.92  # of what it needs or may have, from its first launch on
# The host is about as fast as the GPU in the mean: the GPU waits behind short kernels alone.
NEARLY = (
    (13, 8.1, 6.0, "ahead", 379, "spread"),
    (11, 9.1, 11.2, "ahead", 399),
    (16, 6.6, 6.0, "ahead", 378, "spread"),
    (152, 6.1, 6.0, "ahead", 4, "spread"),
)
NEARLY_LIMIT = 40
NEARLY_LEAST = 0.86
UNEVENLY = 0.72  # as much as 64 probes tell of gaps of which one in five is long
OVER_POINTS = 0.25
# An event behind a few launches, which the program waits for much later; or a wait for each. The
# first launch of a piece and the last may differ much from the others.
PIECES = (
    ((16, 7, 12, "ahead", 4, "spread"), 25),
    ((5, 7, 12, "ahead", 4, "spread"), 10),
    ((5, 3, 6, "ahead", 300), 25),
    ((16, 15, 12, "ahead", 4, "spread"), 25),
    ((2, 3, 6, "spread"), 10),
)
PIECES_LEAST = 0.86
# Longer kernels, and pauses that are longer yet: charged, they made launches look so long that none
# was probed.
PAUSES_LEAST = 0.86
PAUSES = ((20, 40, 200, "uneven", "ahead", 4), (20, 100, 300, "uneven", "ahead", 2))
# A driver, or a host, that stands still now and then.
LATE = ((50, 5, 20, "ahead", 4), (250, 3.2, 14), (16, 7, 12, "ahead", 4))
LATE_LIMIT = 8
LATE_LEAST = 0.65
# Where each launch waits for its kernel.
BLOCKING = (
    (50, 5, 20, "ahead", 4),
    (100, 20, 100),
    (20, 5, 20, "long", 11, 300, "ahead", 4),
    (20, 100, 30, "spread", "ahead", 4),
    (10, 40, 20, "spread", "uneven"),
)
BLOCKING_LEAST = 0.75  # what a call takes without its kernel is charged
# PyTorch on an H100: the driver's calls take so long, in addition to the times above.
SLOW_CALLS = {"GPUFENCE_SIM_LAUNCH_NS": "6000", "GPUFENCE_SIM_RECORD_NS": "2500"}
SLOWLY = (
    *(
        (words, 0.9)
        for words in ((4, 5, 60), (10, 5, 30), (100, 5, 90), (240, 4, 40), (240, 7.4, 36))
    ),
    ((4, 20, 60, "uneven"), 0.78),
    ((240, 7.4, 36, "uneven"), 0.9),
)


def assert_only_kernels_count(
    sim: Sim,
    folder: Path,
    words: tuple[str | float, ...],
    limit: int,
    least: float,
    machine: Mapping[str, str] | None = None,
) -> None:
    """Alone at that limit, it has so much of what it needs or may have, and no more than it may."""
    tenant = Tenant(words, limit)

    (bare,) = meet(sim, folder, [tenant], preload=False, ms=MS, machine=machine)
    (ours,) = meet(sim, folder, [tenant], ms=MS, machine=machine)

    saved = 100 * min(50, 500 * limit / 100) / MS  # may be used at once
    assert ours["busy"] <= limit + saved + OVER_POINTS
    assert ours["busy"] >= least * min(limit, bare["busy"])


@pytest.mark.parametrize("limit", [8, 25])
@pytest.mark.parametrize(
    ("words", "least"),
    [
        *((words, EVENLY) for words in EVEN),
        *(((*words, "uneven"), UNEVENLY) for words in UNEVEN),
    ],
)
def test_the_gpus_waiting_for_the_host_is_nobodys_time(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...], least: float, limit: int
) -> None:
    assert_only_kernels_count(sim, tmp_path, words, limit, least)


@pytest.mark.parametrize("words", NEARLY)
def test_nor_what_it_waits_behind_short_kernels_among_long_ones(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...]
) -> None:
    """A marker keeps it busy as long as it would wait: they had 27 to 32 of 40."""
    assert_only_kernels_count(sim, tmp_path, words, NEARLY_LIMIT, NEARLY_LEAST)


@pytest.mark.parametrize(("words", "limit"), PIECES)
def test_nor_is_the_gap_between_pieces(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...], limit: int
) -> None:
    """Where only launches within a piece were probed they had 5.6 of 10, and 18.5 of 25."""
    assert_only_kernels_count(sim, tmp_path, words, limit, PIECES_LEAST)


@pytest.mark.parametrize("limit", [8, 25])
@pytest.mark.parametrize("words", PAUSES)
def test_nor_are_pauses_behind_long_kernels(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...], limit: int
) -> None:
    """They had 2.9 of 8, and 8.8 and 14.9 of 25."""
    assert_only_kernels_count(sim, tmp_path, words, limit, PAUSES_LEAST)


@pytest.mark.parametrize("limit", [8, 25])
@pytest.mark.parametrize(("words", "least"), SLOWLY)
def test_nor_is_what_the_hosts_calls_take(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...], least: float, limit: int
) -> None:
    assert_only_kernels_count(sim, tmp_path, words, limit, least, SLOW_CALLS)


def test_nor_are_first_calls_that_load_code(sim: Sim, tmp_path: Path) -> None:
    """They take 60 to 100 ms each in PyTorch. Charged, the ten had seven seconds of waiting."""
    loads = ";".join(f"cuLaunchKernel@{call}=block:60" for call in range(2, 12))

    assert_only_kernels_count(
        sim, tmp_path, LATE[0], LATE_LIMIT, EVENLY, {"GPUFENCE_SIM_FAULTS": loads}
    )


@pytest.mark.parametrize("how", ["block", "late"])
@pytest.mark.parametrize("words", LATE)
def test_nor_is_a_call_that_takes_a_millisecond(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...], how: str
) -> None:
    """One in 37, before it launches or behind: they had 1.8 to 3.1 of 7.3 or 8."""
    late = {"GPUFENCE_SIM_FAULTS": f"cuLaunchKernel@17/37={how}:1"}

    assert_only_kernels_count(sim, tmp_path, words, LATE_LIMIT, LATE_LEAST, late)


@pytest.mark.parametrize("words", BLOCKING)
def test_launches_that_wait_for_their_kernels_are_held(
    sim: Sim, tmp_path: Path, words: tuple[str | float, ...]
) -> None:
    """Calls were taken for a slow host, in which the GPU waits: nobody was held at all."""
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}

    assert_only_kernels_count(sim, tmp_path, words, LATE_LIMIT, BLOCKING_LEAST, blocking)


def test_the_simulated_driver_can_wait_in_launches(sim: Sim, tmp_path: Path) -> None:
    tenant = Tenant((20, 100, 30, "ahead", 4), 100)

    rates = [
        meet(sim, tmp_path, [tenant], preload=False, ms=200, machine=machine)[0]["rate"]
        for machine in ({}, {"CUDA_LAUNCH_BLOCKING": "0"}, {"CUDA_LAUNCH_BLOCKING": "1"})
    ]

    assert rates[0] == rates[1]
    assert rates[2] < 0.9 * rates[0]
