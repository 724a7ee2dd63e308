"""Shares of GPU time over the simulated driver, in virtual time: the same in every run.

The matrix of tests/gpu/core_matrix.py in small: every limit with every length of kernels, every
launch function of the model, streams, contexts, devices and processes. What is real here is the
library and all that it asks of the driver; what is not is the clock.
"""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import REPO, Finished, Sim
from tests.support.virtual_world import run_together

MACHINE = H200  # of all tests here: it pauses as one
LIMITS = (10, 25, 50, 75, 90)
LENGTHS_US = (10, 100, 1_000, 20_000, 200_000, 1_000_000)
REACHABLE = [pair for pair in product(LIMITS, LENGTHS_US) if pair != (90, 10)]  # gaps: 85 % at most
MANNERS = ("two", "legacy", "per_thread", "contexts", "devices", "sync", "copies")
KERNEL_US = 500
SLICE_US = 2_091  # for which a simulated GPU belongs to one process
RUN_MS = 2_000
SLOW_BUS = 500  # a copy takes as long as one of a hundred times its size over a real one
POINTS = 1.0  # what is queued ahead in two seconds, and the end of the last kernel
MOST_LOOKS = 650  # a second: one each 2 ms, and some where something ends
MOST_READ = 1_600  # times of markers a second
# A launch in each of 32 streams, and a burst of all together: paid for, and what ran meanwhile.
LONGEST_HELD_US = {10: 200_000, 50: 100_000}
# What a host does behind each launch: of programs that launch one each 15 and each 40 us, slower
# than their kernels of 5 us run.
SLOW_LAUNCH_NS = 15_000 - H200["LAUNCH_NS"]
SLOWER_LAUNCH_NS = 40_000 - H200["LAUNCH_NS"]
CAUGHT_UP_POINTS = 2.5
LATE_POINTS = 0.3  # the marked runs tell which of the others are late
WAITED_POINTS = 1.5  # what one gap in 60 tells about the others
SECOND_POINTS = 2.0  # a burst in a second, and launches that are queued in one and run in the next
SAVED_POINTS = 5.0  # what who was idle may use at once, in a second

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


def launch_functions() -> list[str]:
    """Every function by which kernels enter a stream, or by which a graph's kernels change."""
    model = json.loads((REPO / "lib" / "api" / "cuda.json").read_text(encoding="utf-8"))
    return [each["name"] for each in model["functions"] if each["kind"] == "launch"]


def limited(folder: Path, percent: int) -> dict[str, str]:
    """The variables of a container with a core limit and a region of its own."""
    return {
        "GPUFENCE_CORE_LIMIT": str(percent),
        "GPUFENCE_STATE_DIR": str(folder / "state"),
        "GPUFENCE_CONTAINER": "cores",
    }


def assert_held(
    facts: dict[str, float], percent: int, run_ms: int = RUN_MS, points: float = POINTS
) -> None:
    """The share is the limit, and at most what the container had saved when it began is more."""
    saved = SAVED_POINTS * 1_000 / run_ms
    assert percent - points <= facts["share"] <= percent + points + saved


def one(
    sim: Sim,
    folder: Path,
    percent: int,
    way: str,
    manner: str,
    kernel_us: int = KERNEL_US,
    run_ms: int = RUN_MS,
) -> Finished:
    """One process, alone in its container."""
    command = ("cores_run", way, manner, kernel_us, run_ms)
    return run_together(sim, folder, [command], env=limited(folder, percent))[0]


@pytest.mark.parametrize(("percent", "kernel_us"), REACHABLE)
def test_the_share_does_not_depend_on_the_kernels_length(
    sim: Sim, tmp_path: Path, percent: int, kernel_us: int
) -> None:
    cycle_ms = kernel_us / 1000 * 100 / percent
    run_ms = max(RUN_MS, round(3.5 * cycle_ms))

    facts = one(sim, tmp_path, percent, "cuLaunchKernel", "steady", kernel_us, run_ms).facts

    assert_held(facts, percent)
    if kernel_us <= 1_000:
        assert facts["least"] >= percent - SECOND_POINTS
        assert facts["most"] <= percent + SECOND_POINTS + SAVED_POINTS


@pytest.mark.parametrize("percent", [30, 75])
@pytest.mark.parametrize("way", launch_functions())
def test_every_launch_function_is_held(sim: Sim, tmp_path: Path, way: str, percent: int) -> None:
    done = one(sim, tmp_path, percent, way, "steady")

    assert done.returncode != 3, f"{way} launches and no test does: tests/gputime/cores_ways.h"
    assert_held(done.facts, percent)


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuLaunchKernelEx"])
def test_what_lies_around_large_grids_is_not_charged(
    sim: Sim, tmp_path: Path, name: str, suffix: str
) -> None:
    command = ("cores_run", name + suffix, "wide", 10, 1_000)

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 50))

    assert_held(done.facts, 50, 1_000)


@pytest.mark.parametrize("percent", [30, 75])
@pytest.mark.parametrize("manner", MANNERS)
def test_streams_contexts_and_devices_are_held(
    sim: Sim, tmp_path: Path, manner: str, percent: int
) -> None:
    wanted = 50 if manner == "copies" and percent > 50 else percent  # they take the other half
    machine = sim.with_env(GPUS=2, BUS_MB_PER_S=SLOW_BUS)

    facts = one(machine, tmp_path, percent, "cuLaunchKernel", manner).facts

    assert_held(facts, wanted)


@pytest.mark.parametrize("percent", [25, 75])
@pytest.mark.parametrize("manner", ["two", "handoff"])
def test_short_kernels_of_two_streams_are_held(
    sim: Sim, tmp_path: Path, manner: str, percent: int
) -> None:
    """Those of one fill the pauses of the other, unless each stream waits for the other one."""
    facts = one(sim, tmp_path, percent, "cuLaunchKernel", manner, 10, 1_000).facts

    points = POINTS if manner == "two" else 2 * POINTS  # events for each eight of them
    assert facts["between"] == pytest.approx(percent, abs=points)


@pytest.mark.parametrize("percent", [25, 50, 99])
@pytest.mark.parametrize(
    ("manner", "kernel_us"),
    [("sync", 1_000), ("event", 100), ("ahead", 100), ("ahead", 1_000), ("steady", 200_000)],
)
def test_a_busy_program_is_seldom_looked_at(
    sim: Sim, tmp_path: Path, manner: str, kernel_us: int, percent: int
) -> None:
    """A look costs some 15 us of a core, and each marker whose time it reads some 5 more."""
    log = tmp_path / "calls"

    facts = one(sim.with_env(LOG=log), tmp_path, percent, "cuLaunchKernel", manner, kernel_us).facts

    # A look sets the context of what it asks about, and none at its end.
    seconds = facts["us"] / 1e6
    calls = log.read_text(encoding="utf-8")
    assert calls.count("cuCtxSetCurrent ") / 2 <= MOST_LOOKS * seconds
    if percent <= 50:
        assert calls.count("cuEventElapsedTime ") <= MOST_READ * seconds


@pytest.mark.parametrize(
    ("manner", "kernel_us", "percent", "most"),
    [("two", 500, 30, 250), ("bursts", 500, 10, 115), ("steady", 20_000, 30, 185)],
)
def test_held_launches_are_looked_after_when_they_can_go(
    sim: Sim, tmp_path: Path, manner: str, kernel_us: int, percent: int, most: int
) -> None:
    """Nobody goes before what was charged is paid for; then half of what is queued may be done."""
    log = tmp_path / "calls"
    command = ("cores_run", "cuLaunchKernel", manner, kernel_us, 1_000)

    (done,) = run_together(
        sim.with_env(LOG=str(log)), tmp_path, [command], env=limited(tmp_path, percent)
    )

    calls = log.read_text(encoding="utf-8")
    assert_held(done.facts, percent, 1_000)
    assert calls.count("cuCtxSetCurrent ") / 2 <= most * done.facts["us"] / 1e6


# Kernels of 10 us have 2 points less: what the program's own events take is charged, 1.5 us each.
# A wait for more than 20 us sleeps, and is 50 us late.
@pytest.mark.parametrize(("kernel_us", "points"), [(10, 2 * POINTS), (21, POINTS), (100, POINTS)])
def test_runs_that_an_event_ends_are_held(
    sim: Sim, tmp_path: Path, kernel_us: int, points: float
) -> None:
    """Whoever begins a run settles the last one; one in eight is marked twice, and read."""
    log = tmp_path / "calls"

    done = one(sim.with_env(LOG=str(log)), tmp_path, 50, "cuLaunchKernel", "event", kernel_us, 500)

    calls = log.read_text(encoding="utf-8")
    runs = calls.count("cuEventSynchronize ")
    assert_held(done.facts, 50, 500, points)
    if kernel_us < 100:
        # For each run: whether the last one is over, a marker behind it, and the program's event.
        assert calls.count("cuEventQuery ") < 1.15 * runs
        # Both clocks are compared as often as one that NTP slews by 500 millionths needs.
        assert calls.count("cuEventElapsedTime ") < 0.41 * runs
        assert calls.count("cuEventRecord ") < 2.4 * runs


@pytest.mark.parametrize(("percent", "most"), [(50, MOST_LOOKS), (99, 180)])
def test_a_program_that_launches_as_fast_as_it_can_is_looked_at_rarely(
    sim: Sim, tmp_path: Path, percent: int, most: int
) -> None:
    """Each look makes it wait for the driver's locks; there is little to hold of 99 %.

    It keeps just ahead of a GPU that is busy for 80 %: never held.
    """
    log = tmp_path / "calls"
    command = ("cores_run", "cuLaunchKernel", "steady", 2, 300)
    fast = sim.with_env(LAUNCH_GAP_NS=500, START_NS=0, LAUNCH_NS=1_780, LOG=str(log))

    (done,) = run_together(fast, tmp_path, [command], env=limited(tmp_path, percent))

    calls = log.read_text(encoding="utf-8")
    assert done.facts["longest_us"] < 1_000
    assert calls.count("cuCtxSetCurrent ") / 2 <= most * done.facts["us"] / 1e6


@pytest.mark.parametrize("percent", [25, 60])
def test_four_processes_of_a_container_share_one_limit(
    sim: Sim, tmp_path: Path, percent: int
) -> None:
    ways = ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuLaunchCooperativeKernel")
    commands = [("cores_run", way, "steady", SLICE_US, RUN_MS) for way in ways]

    done = run_together(sim, tmp_path, commands, env=limited(tmp_path, percent))

    # The GPU is lost for 0.155 ms between two processes, every 2.1 ms at most: theirs as well.
    total = sum(each.facts["share"] for each in done)
    assert 0.9 * percent <= total <= percent + POINTS, [each.facts for each in done]


@pytest.mark.parametrize(("manner", "kernel_us"), [("steady", 10), ("pauses", 1_000)])
def test_what_cannot_reach_its_limit_is_not_held(
    sim: Sim, tmp_path: Path, manner: str, kernel_us: int
) -> None:
    # Kernels of 10 us cover 85 %, those with pauses of twice their length a third.
    percent = 90 if manner == "steady" else 50
    command = ("cores_run", "cuLaunchKernel", manner, kernel_us, 500)

    (bare,) = run_together(sim, tmp_path, [command], preload=False)
    (fenced,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, percent))

    assert fenced.facts["launches"] >= 0.99 * bare.facts["launches"]


@pytest.mark.parametrize(("percent", "kernel_us"), [(40, 500), (40, 100), (40, 10), (70, 2_000)])
def test_bursts_that_need_less_than_the_limit_are_not_held(
    sim: Sim, tmp_path: Path, percent: int, kernel_us: int
) -> None:
    """Sixty kernels, then a pause of seven thirds of their time: 30 %.

    Markers between kernels of 10 us cost them up to 2 % of their rate.
    """
    command = ("cores_run", "cuLaunchKernel", "bursts", kernel_us, 2_000)
    least = 0.98 if kernel_us == 10 else 0.99

    (bare,) = run_together(sim, tmp_path, [command], preload=False)
    (fenced,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, percent))

    assert fenced.facts["launches"] >= least * bare.facts["launches"]


@pytest.mark.parametrize("kernel_us", [500, 5_000])
def test_bursts_are_held_in_every_second(sim: Sim, tmp_path: Path, kernel_us: int) -> None:
    command = ("cores_run", "cuLaunchKernel", "bursts", kernel_us, 3_000)

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 20))

    assert done.facts["most"] <= 20 + SECOND_POINTS + SAVED_POINTS
    assert done.facts["share"] <= 20 + POINTS


@pytest.mark.parametrize(("percent", "share"), [(10, 10), (20, 20), (30, 30), (36, 33), (70, 33)])
def test_a_program_is_not_charged_while_the_gpu_waits_for_it(
    sim: Sim, tmp_path: Path, percent: int, share: int
) -> None:
    command = ("cores_run", "cuLaunchKernel", "steady", 5, 1_000, SLOW_LAUNCH_NS)

    (bare,) = run_together(sim, tmp_path, [command], preload=False)
    (fenced,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, percent))

    charged = fenced.facts["share"]
    assert share - WAITED_POINTS <= charged <= share + WAITED_POINTS + SAVED_POINTS
    if percent > share:
        assert fenced.facts["launches"] >= 0.99 * bare.facts["launches"]


def test_what_a_host_queues_behind_a_long_kernel_is_charged(sim: Sim, tmp_path: Path) -> None:
    """The GPU waits for it between the short kernels, but not while it catches up.

    What it waits is told too short by half a microsecond a launch.
    """
    command = ("cores_run", "cuLaunchKernel", "eager", 1, 1_500, SLOW_LAUNCH_NS)

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 50))

    assert_held(done.facts, 50, 1_500, CAUGHT_UP_POINTS)


def test_a_program_that_gets_ahead_of_the_gpu_is_charged_from_then_on(
    sim: Sim, tmp_path: Path
) -> None:
    command = ("cores_run", "cuLaunchKernel", "hastens", 5, 4_000, SLOW_LAUNCH_NS)

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 50))

    assert done.facts["least"] == pytest.approx(33, abs=POINTS)
    assert 50 - SECOND_POINTS <= done.facts["most"] <= 50 + SECOND_POINTS + SAVED_POINTS


def test_what_probes_found_long_ago_is_forgotten(sim: Sim, tmp_path: Path) -> None:
    """A launch each 40 us, and each 20 from half of the time on: an eighth, then a quarter."""
    command = ("cores_run", "cuLaunchKernel", "quickens", 5, 4_000, SLOWER_LAUNCH_NS)

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 16))

    assert done.facts["least"] == pytest.approx(12.5, abs=POINTS)
    assert done.facts["most"] <= 16 + SECOND_POINTS + SAVED_POINTS + POINTS


# A wait for 20 us sleeps and is 50 us late, one in front of a marker otherwise than one without.
@pytest.mark.parametrize("kernel_us", [10, 20, 100, 300])
def test_kernels_that_are_waited_for_are_measured_mostly_without_markers(
    sim: Sim, tmp_path: Path, kernel_us: int
) -> None:
    log = tmp_path / "calls"

    done = one(sim.with_env(LOG=str(log)), tmp_path, 25, "cuLaunchKernel", "sync", kernel_us, 1_000)

    calls = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    assert_held(done.facts, 25, 1_000)
    # Two for each run would be twice as many as launches.
    assert 0 < calls.count("cuEventRecord") < 0.75 * calls.count("cuLaunchKernel")


@pytest.mark.parametrize(
    ("kernel_us", "late_us", "run"),
    [(10, 20, 0), (10, 60, 0), (60, 20, 0), (10, 160, 40), (20, 160, 10), (60, 160, 10)],
)
def test_what_waits_are_late_is_not_charged(
    sim: Sim, tmp_path: Path, kernel_us: int, late_us: int, run: int
) -> None:
    """By anything from 0 on, as where they give the processor away: each anew, or some in a row."""
    log = tmp_path / "calls"
    late = sim.with_env(WAKE_NS=late_us * 1_000, WAKE_RUN=run, LOG=str(log))

    facts = one(late, tmp_path, 10, "cuLaunchKernel", "sync", kernel_us, 3_000).facts

    assert facts["share"] == pytest.approx(10, abs=LATE_POINTS)
    calls = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    assert calls.count("cuEventRecord") < 0.5 * calls.count("cuLaunchKernel")


@pytest.mark.parametrize(("manner", "kernel_us"), [("sync", 60), ("sync", 100), ("mixed", 21)])
def test_longer_kernels_that_are_waited_for_are_held(
    sim: Sim, tmp_path: Path, manner: str, kernel_us: int
) -> None:
    done = one(sim, tmp_path, 25, "cuLaunchKernel", manner, kernel_us, 1_000)

    assert_held(done.facts, 25, 1_000)


@pytest.mark.parametrize("percent", [10, 50])
def test_many_streams_queue_no_more_than_one(sim: Sim, tmp_path: Path, percent: int) -> None:
    done = one(sim, tmp_path, percent, "cuLaunchKernel", "many")

    assert_held(done.facts, percent)
    assert done.facts["most"] <= percent + SECOND_POINTS + SAVED_POINTS
    assert done.facts["longest_us"] <= LONGEST_HELD_US[percent]


@pytest.mark.parametrize("percent", [25, 50])
def test_kernels_of_many_lengths_are_held(sim: Sim, tmp_path: Path, percent: int) -> None:
    done = one(sim, tmp_path, percent, "cuLaunchKernel", "eager", kernel_us=10)

    assert_held(done.facts, percent)


def test_a_run_is_the_same_every_time(sim: Sim, tmp_path: Path) -> None:
    commands = [("cores_run", "cuLaunchKernel", "two", KERNEL_US, 500)]

    def texts(name: str) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        done = run_together(sim, folder, commands, env=limited(folder, 40))
        return [each.stdout for each in done]

    assert texts("first") == texts("second")
