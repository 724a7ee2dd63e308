"""Collectives over several GPUs under a core limit: a container's ranks are held together.

A rank whose GPU waits for another one is charged meanwhile. Held at different collectives, two of
them make some steps a second; that is what these runs do without lib/src/policy/gang.h. All in
virtual time (tests/gputime/cores_gang.cpp); what is decided, words that went wrong included, one
by one (gang_cases.cpp).
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import pytestmark  # noqa: F401  (skips under sanitizers)

CASES = (
    "names",
    "members",
    "between",
    "lead",
    "together",
    "silent",
    "offset",
    "awaited",
    "garbage",
    "seats",
)
STEPS = 400
STEP_US = 1_200  # ten kernels of 100 us and a collective of 200
LONE_US = 12
LEAST = 0.9  # of the rate that the limit allows
POINTS = 2.0
SAVED_US = 50_000  # of GPU time, which who waited for its siblings may use at once
BURST_US = 24_000  # of what is owed, which a run that ends need not have paid
OWED_US = 400_000  # the same between two collectives, with what is queued
SILENT_US = 20_000  # until who does not say that it holds is forgotten
RANKS = range(2)  # that are asked what they did


def gang(
    sim: Sim,
    folder: Path,
    percent: int,
    *words: str,
    processes: int = 2,
    steps: int = STEPS,
) -> dict[str, float]:
    """What the ranks did, in one process or in one each; of one container.

    Of three, the last one's process is killed by itself.
    """
    command = ("cores_gang", steps, *words)
    commands: list[tuple[str | int, ...]] = [command]
    if processes > 1:
        commands = [(*command, f"first={rank}", "ranks=1") for rank in range(processes)]
    limits = {"GPUFENCE_CORE_LIMIT": str(percent), "GPUFENCE_STATE_DIR": str(folder / "state")}
    done = run_together(
        sim.with_env(**H200, GPUS=max(processes, 2)),
        folder,
        commands,
        env={**limits, "GPUFENCE_CONTAINER": "gang"},
    )
    facts: dict[str, float] = {}
    for each in done[: len(RANKS)]:
        facts |= each.facts
    assert [each.returncode for each in done[len(RANKS) :]] == [-signal.SIGKILL] * (processes - 2)
    return facts


def assert_rate(
    facts: dict[str, float], percent: int, bare_us: float, owed_us: float = BURST_US
) -> None:
    """The ranks were about as fast as the limit allows, and used no more than it."""
    for rank in RANKS:
        allowed_us = bare_us * 100 / percent
        burst = percent * owed_us / facts[f"us{rank}"]
        assert facts[f"us{rank}"] <= allowed_us / LEAST, facts
        saved = 100 * SAVED_US / facts[f"us{rank}"]
        assert facts[f"share{rank}"] <= percent + max(POINTS, burst, saved), facts


@pytest.mark.parametrize("case", CASES)
def test_what_a_rank_may_do_holds(build: Path, case: str) -> None:
    done = subprocess.run(
        [build / "tests" / "gang_cases", case], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("limit", ["MEMORY_LIMIT=1g", "CORE_LIMIT=50"])
def test_a_collective_that_nobody_follows_writes_nowhere(
    sim: Sim, tmp_path: Path, limit: str
) -> None:
    """Without a core limit, or in a capture, the library knows no stream of it."""
    name, _, value = limit.partition("=")
    limits = {f"GPUFENCE_{name}": value, "GPUFENCE_STATE_DIR": str(tmp_path / "state")}

    done = sim.run("soiled_collective", preload=True, env=limits)

    assert (done.returncode, done.facts) == (0, {"launched": 6}), done.stderr


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("percent", [25, 50, 90])
def test_ranks_have_their_share_and_no_less(
    sim: Sim, tmp_path: Path, percent: int, processes: int
) -> None:
    # The second one is launched later, so that its debt is never that of the first.
    facts = gang(sim, tmp_path, percent, "host1=20", processes=processes)

    assert_rate(facts, percent, STEPS * STEP_US)
    for rank in RANKS:
        assert facts[f"share{rank}"] == pytest.approx(percent, abs=POINTS)


@pytest.mark.parametrize(
    "words",
    [
        ("graph=1", "host1=15"),
        ("stream=1", "host1=15"),
        ("stream=2", "host0=15"),
        ("lone1=20",),
        ("lone0=200",),
        ("compute0=80", "host1=15"),
    ],
    ids=" ".join,
)
def test_ranks_need_not_be_alike(sim: Sim, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Graphs, streams of their own, launches ahead, other counts, less to do."""
    facts = gang(sim, tmp_path, 50, *words)

    assert_rate(facts, 50, STEPS * STEP_US)


def test_a_rank_that_begins_late_costs_the_wait_for_it(sim: Sim, tmp_path: Path) -> None:
    late_us = 30_000
    steps = 200

    facts = gang(sim, tmp_path, 50, f"late1={late_us}", steps=steps)

    # Once: each collective that the other one had queued meanwhile cost 10 ms where counts began
    # with those of others. It may owe a burst more, launched since others waited for it.
    assert_rate(facts, 50, steps * STEP_US + late_us, 2 * BURST_US)


@pytest.mark.parametrize(("percent", "compute_us"), [(50, 3_000), (10, 300)])
def test_long_steps_are_held_in_between(
    sim: Sim, tmp_path: Path, percent: int, compute_us: int
) -> None:
    """Of 300 ms at a half, 30 ms at a tenth: more than may be owed until the collective comes."""
    words = ("kernels=100", f"compute={compute_us}", f"compute1={compute_us * 9 // 10}")
    steps = 8 if percent == 50 else 20

    facts = gang(sim, tmp_path, percent, *words, steps=steps)

    assert_rate(facts, percent, steps * (100 * compute_us + 200), OWED_US)


@pytest.mark.parametrize("lone", [0, 1])
def test_collectives_of_one_rank_alone_cost_the_others_their_time(
    sim: Sim, tmp_path: Path, lone: int
) -> None:
    count = 2_000

    facts = gang(sim, tmp_path, 50, f"lone{lone}={count}")

    # Each second one cost 7 ms, until it was known that the other rank waits.
    assert_rate(facts, 50, STEPS * STEP_US + count * LONE_US)


@pytest.mark.parametrize(("percent", "pause_us"), [(50, 200_000), (10, 900_000)])
def test_a_rank_whose_host_sleeps_is_waited_for_and_paid_for(
    sim: Sim, tmp_path: Path, percent: int, pause_us: int
) -> None:
    facts = gang(sim, tmp_path, percent, f"pause1={pause_us}")

    # The other one's GPU waits meanwhile, which is charged as any kernel is.
    assert_rate(facts, percent, STEPS * STEP_US + pause_us)


@pytest.mark.parametrize("words", ["late1", "pause1", "stream=1 pause1"])
@pytest.mark.parametrize("percent", [10, 25, 50])
def test_a_wait_of_seconds_is_charged_for_one_second(
    sim: Sim, tmp_path: Path, percent: int, words: str
) -> None:
    """Debts of seconds were paid in turns, each a multiple of the one before, until nobody went on.

    Seen on two GPUs at a quarter, where one rank loaded its libraries a second longer.
    """
    steps, wait_us, charged_us = 40, 3_000_000, 1_000_000

    facts = gang(sim, tmp_path, percent, *f"{words}={wait_us}".split(), steps=steps)

    work_us = steps * STEP_US
    assert facts["us0"] <= wait_us + (work_us + charged_us) * 100 / percent
    # The one that let the other wait had its share and no more.
    busy_us = facts["share1"] * facts["us1"] / 100
    assert busy_us <= work_us + BURST_US


def test_what_comes_behind_a_collective_is_charged_in_full(sim: Sim, tmp_path: Path) -> None:
    """In the same stream, where waits told when collectives ran and no marker did."""
    kernel_us, percent = 3_000_000, 25
    words = ("lone=300", "waits=1", "kernels=1", f"compute={kernel_us}", "plain=2", "ranks=1")

    facts = gang(sim, tmp_path, percent, *words, processes=1, steps=0)

    # The second one begins when the first is paid for, but for the credit.
    assert facts["us0"] >= kernel_us * 100 / percent


def test_a_rank_that_stops_meeting_others_is_held_as_any_program(sim: Sim, tmp_path: Path) -> None:
    plain = 1_000

    facts = gang(sim, tmp_path, 50, f"plain0={plain}", steps=100)

    busy_us = 100 * STEP_US + plain * 1_000
    assert 2 * busy_us - OWED_US <= facts["us0"] <= 2 * busy_us / LEAST


def test_two_jobs_of_a_container_beside_each_other_get_on(sim: Sim, tmp_path: Path) -> None:
    """Two ranks each, on the same two devices, which meet those of their own job alone."""
    ranks: list[tuple[str, ...]] = [("first=0",), ("first=1",)]
    ranks += [
        (f"first={2 + gpu}", f"gpu{2 + gpu}={gpu}", f"place{2 + gpu}={gpu}") for gpu in (0, 1)
    ]
    commands = [
        ("cores_gang", STEPS, "ranks=1", "group2=1", "group3=1", f"host{place}=7", *words)
        for place, words in enumerate(ranks)
    ]
    limits = {"GPUFENCE_CORE_LIMIT": "50", "GPUFENCE_STATE_DIR": str(tmp_path / "state")}

    done = run_together(
        sim.with_env(**H200, GPUS=2),
        tmp_path,
        commands,
        env={**limits, "GPUFENCE_CONTAINER": "gang"},
    )

    for rank, each in enumerate(done):
        took_us = each.facts[f"us{rank}"]
        # What they compute alone, and twice the steps of both with their collectives.
        assert 2 * 2 * STEPS * 1_000 - 2 * BURST_US <= took_us <= 2 * 2 * STEPS * STEP_US / 0.6


@pytest.mark.parametrize("percent", [25, 50])
def test_two_stages_of_a_pipeline_have_their_share_and_no_less(
    sim: Sim, tmp_path: Path, percent: int
) -> None:
    """The second one meets the first before its kernels, not behind them."""
    facts = gang(sim, tmp_path, percent, "from1=0", "to0=0")

    assert_rate(facts, percent, STEPS * STEP_US)
    for rank in RANKS:
        assert facts[f"share{rank}"] == pytest.approx(percent, abs=POINTS)


@pytest.mark.parametrize("stops", [0, 1], ids=["killed", "stopped"])
@pytest.mark.parametrize(
    ("meets", "after_us"), [(0, 250_000), (1, 3_000)], ids=["holds", "in a collective"]
)
def test_a_rank_that_was_lost_holds_up_nobody(
    sim: Sim, tmp_path: Path, meets: int, after_us: int, stops: int
) -> None:
    """The others, who meet without it from then on, have their shares and no less.

    It is lost while it holds, for what it computed behind its last common collective, or in a
    collective that none of the others launches, where its further launches are held as well.
    """
    steps = 200
    words = ("devices=3", "shrinks=61", "ends2=60", f"meets2={meets}", f"after2={after_us}")

    facts = gang(sim, tmp_path, 50, *words, f"stops2={stops}", processes=3, steps=steps)

    assert_rate(facts, 50, steps * STEP_US)
    assert max(facts["us0"], facts["us1"]) <= 2 * steps * STEP_US + SILENT_US
