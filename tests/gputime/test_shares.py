"""Shares of GPU time and turns without any driver: models, cases, a simulation in virtual time.

GPUFENCE_TEST_CORE_ROUNDS makes the long run; the default is a short one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.state.test_state import folder, needs_root, run, small_folder  # noqa: F401  (folder: a fixture)

ROUNDS = int(os.environ.get("GPUFENCE_TEST_CORE_ROUNDS", "10"))

CASES = (
    "alone",
    "siblings",
    "soft",
    "sights",
    "beside_each_other",
    "short_beside_deep",
    "two_containers",
    "any_user",
    "long_turns",
    "not_again",
    "stolen_turn",
    "many_containers",
    "crowded",
    "together",
    "damaged",
    "rules",
)

WORLDS = (
    "saturating",
    "saturating_members",
    "too_much",
    "soft_share",
    "coming_back",
    "storm",
    "lost_holder",
    "lost_waiter",
    "garbage",
    "wild_leads",
    "usurper",
    "from_the_future",
    "dog",
    "hundred",
    "vandal",
    "throttled",
)


def test_charges_agree_with_arithmetic_without_limits(build: Path) -> None:
    run(build / "tests" / "core_share", ROUNDS * 20000, 1)


@pytest.mark.parametrize("case", CASES)
def test_a_seat_keeps_its_promise(build: Path, folder: Path, case: str) -> None:  # noqa: F811
    assert run(build / "tests" / "core_cases", case, folder).endswith("ok\n")


@pytest.mark.parametrize("case", ["changed_at_once", "no_shares"])
def test_a_debt_is_worth_the_same_at_every_share(
    build: Path,
    folder: Path,  # noqa: F811
    case: str,
) -> None:
    run(build / "tests" / "core_changes", case, folder)


@needs_root
@pytest.mark.parametrize("kib", [4, 64, 240, 300, 420])
def test_a_full_folder_is_an_error_and_no_signal(
    build: Path,
    folder: Path,  # noqa: F811
    kib: int,
) -> None:
    with small_folder(folder, kib):
        run(build / "tests" / "core_cases", "full_folder", folder)


@pytest.mark.parametrize("world", WORLDS)
def test_containers_share_a_device_in_virtual_time(build: Path, world: str) -> None:
    for seed in range(1, 2 + ROUNDS // 20):
        run(build / "tests" / "core_turns", world, seed)


@pytest.mark.parametrize("mix", ["half_idle", "light", "any_mix"])
def test_containers_have_what_they_would_have_without_limits(build: Path, mix: str) -> None:
    for seed in range(1, 2 + ROUNDS // 20):
        run(build / "tests" / "core_mixes", mix, seed)


@pytest.mark.parametrize("case", ["launching", "waiting", "pausing"])
def test_who_did_not_run_keeps_its_claim_and_who_paused_does_not(build: Path, case: str) -> None:
    run(build / "tests" / "core_stalls", case)


@pytest.mark.parametrize(
    "case", ["waited", "seen", "behind", "held", "beside", "pieces", "pieces_beside"]
)
def test_who_rests_takes_no_turns(build: Path, case: str) -> None:
    run(build / "tests" / "core_rests", case)


@pytest.mark.parametrize(
    "case",
    [
        "late_look",
        "wait_tells_the_end",
        "earlier_wait",
        "who_ran",
        "while_another_thread_looks",
        "while_another_thread_ends",
        "shared_once",
    ],
)
def test_neighbours_hear_what_is_so_whatever_other_threads_do(build: Path, case: str) -> None:
    run(build / "tests" / "core_tells", case)


def test_everybody_gets_on_when_processes_are_killed_and_stopped(
    build: Path,
    folder: Path,  # noqa: F811
) -> None:
    run(build / "tests" / "core_storm", folder, 64, ROUNDS, 1, timeout=60 + 20 * ROUNDS)
