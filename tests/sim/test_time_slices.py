"""How processes alternate on one simulated GPU, against what an H200 did (driver 580.159.04).

There, two or three processes kept queues full ("deep") or waited for each kernel, and their kernels
recorded when they were interrupted. The programs here do the same in virtual time. Figures are
microseconds; all of them must be met within 3 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Sim
from tests.support.virtual_world import run_together

# What calls and events took there beside the kernels themselves: a process alone waited 23 us for a
# kernel of 10 us, of which 13.2 passed between the events around it.
HOST = {"GPUFENCE_SIM_LAUNCH_NS": "10000", "GPUFENCE_SIM_EVENT_NS": "3200"}
MS = 500
DEEP = ("deep", 20, MS + 20)
QUEUED = 51.85  # a kernel of 50 us, and the gap behind it when the next one is queued

Process = tuple[str | int | float, ...]


def within(value: float) -> Any:  # noqa: ANN401 - what pytest.approx returns
    """The measured figure, as exactly as it has to be met."""
    return pytest.approx(value, rel=0.03)


def run(sim: Sim, folder: Path, *processes: Process) -> list[Any]:
    """What time_slices says in each process."""
    commands = [("time_slices", *map(str, process)) for process in processes]
    # Deep queues read the GPU's time off their kernels' ends: events between them take nothing.
    own = [HOST if process[0] == "waits" else {} for process in processes]
    return [done.facts for done in run_together(sim, folder, commands, own=own, preload=False)]


@pytest.mark.parametrize(("processes", "away_us", "percent"), [(2, 2_402, 46.5), (3, 4_645, 31.0)])
def test_deep_queues_take_turns(
    sim: Sim, tmp_path: Path, processes: int, away_us: float, percent: float
) -> None:
    for facts in run(sim, tmp_path, *[DEEP] * processes):
        assert facts["on_us"] == within(2_091)
        assert facts["away_us"] == within(away_us)
        assert facts["percent"] == within(percent)


@pytest.mark.parametrize(
    ("kernel_us", "count", "pause_us", "host_us", "events_us", "away_us"),
    [
        (10, 1, 0, 2_390, 13.3, 305),
        (100, 1, 0, 2_480, 103.3, 395),
        (1_300, 1, 0, 3_680, 1_303, 1_596),
        (QUEUED, 20, 0, 3_420, 1_040, None),
        (5_000, 1, 0, 12_170, 9_800, None),
        (20_000, 1, 0, 43_900, 41_577, None),
        (1_000, 1, 10_000, 1_680, None, None),
        (10, 1, 3_000, 1_420, 13.3, None),
    ],
)
def test_who_waits_beside_a_deep_queue_waits_for_what_is_left_of_a_slice(
    sim: Sim,
    tmp_path: Path,
    kernel_us: float,
    count: int,
    pause_us: int,
    host_us: float,
    events_us: float | None,
    away_us: float | None,
) -> None:
    facts, deep = run(sim, tmp_path, ("waits", kernel_us, MS, count, pause_us), DEEP)

    assert facts["host_us"] == within(host_us)
    # The event in front is stamped when the process gets the GPU, not when it is recorded.
    assert events_us is None or facts["events_us"] == within(events_us)
    assert away_us is None or deep["away_us"] == within(away_us)
    assert pause_us != 0 or deep["on_us"] == within(2_091)


@pytest.mark.parametrize(
    ("before", "least_us", "most_us"), [("copied", 1_500, 2_500), ("filled", 57, 66)]
)
def test_an_event_behind_a_copy_to_the_host_needs_no_slice(
    sim: Sim, tmp_path: Path, before: str, least_us: float, most_us: float
) -> None:
    """From it to one behind a kernel of 57 us: 1,920 us there, and 61 with a fill between."""
    facts, _ = run(sim, tmp_path, ("waits", 57, MS, 1, 400, before), DEEP)

    assert least_us <= facts["events_us"] <= most_us


@pytest.mark.parametrize(
    ("open_us", "least", "most"), [(30, 0, 5), (1_000, 30, 60), (2_300, 100, 100)]
)
def test_a_wait_for_a_word_ends_in_its_process_s_slice(
    sim: Sim, tmp_path: Path, open_us: int, least: float, most: float
) -> None:
    """Beside a deep queue none of 40 ended there in 30 us, 21 in 1 ms, and all in 2 ms."""
    facts, _ = run(sim, tmp_path, ("gate", 300, MS, open_us), DEEP)

    assert least <= facts["passed"] <= most


def test_a_wait_for_a_word_ends_at_once_on_an_idle_gpu(sim: Sim, tmp_path: Path) -> None:
    (facts,) = run(sim, tmp_path, ("gate", 300, 100, 30))

    assert facts["passed"] == 100


@pytest.mark.parametrize(("kernel_us", "host_us"), [(10, 23), (1_300, 1_322)])
def test_a_process_alone_waits_for_its_kernel_only(
    sim: Sim, tmp_path: Path, kernel_us: int, host_us: float
) -> None:
    (facts,) = run(sim, tmp_path, ("waits", kernel_us, 100))

    assert facts["host_us"] == within(host_us)


@pytest.mark.parametrize(
    ("kernel_us", "host_us", "events_us"),
    [(10, 1_585, 13.3), (1_300, 2_870, 1_303), (5_000, None, 8_186)],
)
def test_who_runs_dry_makes_way_at_once(
    sim: Sim, tmp_path: Path, kernel_us: int, host_us: float | None, events_us: float
) -> None:
    """Two processes that wait for each of their kernels, one of them of 1.3 ms."""
    other, facts = run(sim, tmp_path, ("waits", 1_300, MS), ("waits", kernel_us, MS))

    assert host_us is None or facts["host_us"] == within(host_us)
    assert facts["events_us"] == within(events_us)
    assert other["events_us"] == within(1_303)


@pytest.mark.parametrize("pause_ns", [0, 14_000, 5_000_000])
def test_an_event_is_reached_behind_its_kernel_whatever_the_host_does(
    sim: Sim, tmp_path: Path, pause_ns: int
) -> None:
    """A process seemed to run dry between the two, and had the GPU again at its next call."""
    words = ("event_behind_kernel", 20_000, pause_ns)

    (done,) = run_together(sim, tmp_path, [words], own=[HOST], preload=False)

    assert done.facts["us"] == within(10 + 20 + 3.2)  # the launch, the kernel, the event


@pytest.mark.parametrize("gap_ns", [2_000, 4_500])
def test_a_process_keeps_the_gpu_between_its_kernels(sim: Sim, tmp_path: Path, gap_ns: int) -> None:
    """Nor do pauses lengthen a turn: two deep queues, of which events tell pauses as running."""
    paused = sim.with_env(LAUNCH_GAP_NS=gap_ns)
    kernel_us = 40
    pause_us = gap_ns / 1e3

    for facts in run(paused, tmp_path, *[("deep", kernel_us, MS + 20)] * 2):
        # The program counts kernels, and what is longer than one as time without the GPU.
        assert facts["on_us"] == within(2_091 * kernel_us / (kernel_us + pause_us))
