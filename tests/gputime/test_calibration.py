"""A GPU's pauses as the library measures them, by its own code, over simulated GPUs of all kinds.

tests/gputime/calibration.cpp is that code alone; in virtual time, so that the host is as fast as
it is told to be.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import pytestmark  # noqa: F401  (skips under sanitizers)

BATCHES = ["mean", "disturbed", "too_few", "rounded", "least", "late", "enough", "first"]
NOTHING, PARTLY, WHOLE = 0, 1, 2  # was measured
PARTS = (0.5, 1, 2)
HOSTS = (0.5, 4)
STEPS_NS = (0, 500, 1_000)  # of the GPU's clock
MOST_LEAD_NS = 10_000  # so much of the host's time is told apart
OFF_NS = 60  # of what is rounded to the clock's step in the mean of some ten: a part of a step
OFF_PART = 0.15
# Where nothing is known (lib/src/base/pauses.h).
BOUNDS = {
    "step_gap_ns": 280,
    "marker_gap_ns": 700,
    "around_run_ns": 900,
    "queued_gap_ns": 4_000,
    "start_ns": 1_400,
    "end_marker_ns": 3_300,
    "wide_gap_ns": 0,
}
ALONE = ("start_ns", "end_marker_ns")  # kernels in an idle stream tell
MOST_US = 150_000  # a tenth of a second, and the round that is under way then


def world(part: float, host: float, step_ns: int) -> dict[str, int]:
    """The variables of another GPU."""
    numbers = {name: round(ns * part) for name, ns in H200.items()}
    numbers["LAUNCH_NS"] = round(H200["LAUNCH_NS"] * host)
    return numbers | {"EVENT_STEP_NS": step_ns}


def expected(numbers: dict[str, int]) -> dict[str, int]:
    """What the library means by its numbers, of such a GPU."""
    behind_ns = numbers["EVENT_NS"]
    # A kernel behind a marker, from there on, where the one before has just ended.
    begins_ns = max(numbers["LAUNCH_NS"] + numbers["START_NS"], numbers["LAUNCH_GAP_NS"])
    told = {
        "launch_gap_ns": numbers["LAUNCH_GAP_NS"],
        "step_gap_ns": numbers["STEP_GAP_NS"],
        "wide_gap_ns": numbers["STEP_GAP_NS"],  # as on an H200
        "marker_gap_ns": behind_ns + numbers["EVENT_GAP_NS"],
        "queued_gap_ns": behind_ns * 3 // 2,
        "around_run_ns": begins_ns - min(numbers["LAUNCH_NS"], MOST_LEAD_NS) + behind_ns,
        "start_ns": begins_ns + behind_ns - numbers["LAUNCH_GAP_NS"],
    }
    # On a host that launches faster than the GPU begins a kernel, a wait also ends for the pause.
    if begins_ns > numbers["EVENT_GAP_NS"] + numbers["LAUNCH_GAP_NS"]:
        told["end_marker_ns"] = behind_ns
    return told


@pytest.mark.parametrize("case", BATCHES)
def test_batches_agree_on_what_is_undisturbed(build: Path, case: str) -> None:
    command = [str(build / "tests" / "pace_batches"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("step_ns", STEPS_NS)
def test_the_pauses_of_any_gpu_are_found(
    sim: Sim, tmp_path: Path, part: float, host: float, step_ns: int
) -> None:
    numbers = world(part, host, step_ns)

    (done,) = run_together(sim.with_env(**numbers), tmp_path, [("calibration",)], preload=False)

    assert done.returncode == 0, done.stderr
    assert done.facts["measured"] == WHOLE
    for name, ns in expected(numbers).items():
        off_ns = OFF_NS + step_ns * 0.15 + OFF_PART * ns
        assert done.facts[name] == pytest.approx(ns, abs=off_ns), name


def test_waits_that_sleep_change_nothing(sim: Sim, tmp_path: Path) -> None:
    numbers = world(1, 1, 0) | {"WAKE_NS": 40_000}

    command = ("calibration", 0, "sleeps")
    (done,) = run_together(sim.with_env(**numbers), tmp_path, [command], preload=False)

    assert done.returncode == 0, done.stderr
    for name, ns in expected(numbers).items():
        assert done.facts[name] == pytest.approx(ns, abs=OFF_NS + OFF_PART * ns), name


def test_slow_recording_changes_nothing(sim: Sim, tmp_path: Path) -> None:
    """What of it lies behind the moment when the GPU has a marker is no part of what follows.

    A kernel in a marker's place would begin sooner, which is told for less slow ones.
    """
    numbers = world(1, 1, 0) | {"RECORD_NS": 8_000}

    (done,) = run_together(sim.with_env(**numbers), tmp_path, [("calibration",)], preload=False)

    assert done.returncode == 0, done.stderr
    for name, ns in (expected(numbers) | {"start_ns": 0}).items():
        assert done.facts[name] == pytest.approx(ns, abs=OFF_NS + OFF_PART * ns), name


@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_neighbours_that_keep_the_gpu_busy_leave_what_a_queue_tells(
    sim: Sim, tmp_path: Path, neighbours: int
) -> None:
    """And bounds for the rest: no kernel finds the GPU idle there. Beside four less is told."""
    numbers = world(1, 1, 0) | {"CONTEXT_BYTES": 0}
    busy = [("cores_tenant", 600, 1, 500, 3, "ahead", 120, "seed", n) for n in range(neighbours)]
    programs = [("calibration",), *busy]

    done, *_ = run_together(sim.with_env(**numbers), tmp_path, programs, preload=False)

    assert done.facts["measured"] == PARTLY
    assert "another program uses the GPU" in done.stderr
    assert done.facts["us"] < MOST_US
    unknown = ALONE if neighbours < 4 else tuple(BOUNDS)
    told = {name: ns for name, ns in expected(numbers).items() if name not in unknown}
    if "around_run_ns" in told:
        told["around_run_ns"] = numbers["EVENT_NS"]  # the least that it can be
    for name, ns in told.items():
        assert done.facts[name] == pytest.approx(ns, abs=OFF_NS + OFF_PART * ns), name
    assert {name: done.facts[name] for name in unknown} == {name: BOUNDS[name] for name in unknown}


def test_a_host_that_is_late_now_and_then_is_measured_for_longer(sim: Sim, tmp_path: Path) -> None:
    numbers = world(1, 1, 0)
    late = ";".join(f"cuStreamSynchronize@{n}=late:5" for n in range(3, 1_200, 20))

    (done,) = run_together(
        sim.with_env(**numbers, FAULTS=late), tmp_path, [("calibration",)], preload=False
    )

    assert done.facts["measured"] == WHOLE
    for name, ns in expected(numbers).items():
        assert done.facts[name] == pytest.approx(ns, abs=OFF_NS + OFF_PART * ns), name


@pytest.mark.parametrize(
    ("a_second", "measured"), [(1_000, WHOLE), (2_000, WHOLE), (3_000, PARTLY)]
)
def test_short_kernels_of_a_neighbour_are_not_taken_for_pauses(
    sim: Sim, tmp_path: Path, a_second: int, measured: int
) -> None:
    """They make single intervals too long, or too short where they keep the marker in front."""
    numbers = world(1, 1, 0) | {"CONTEXT_BYTES": 0}
    programs = [("calibration",), ("cores_tenant", 300, 1, 20, 3, "rate", a_second, "seed", 5)]

    done, _ = run_together(sim.with_env(**numbers), tmp_path, programs, preload=False)

    assert done.facts["measured"] == measured
    unknown = (*ALONE, "around_run_ns") if measured == PARTLY else ()
    for name, ns in expected(numbers).items():
        if name not in unknown:
            assert done.facts[name] == pytest.approx(ns, abs=OFF_NS + OFF_PART * ns), name
