"""The core limit while what is launched into ends, and while events are refused; in virtual time.

Streams, contexts and the device end under load, by several threads: nothing hangs, every kernel is
paid for, and nobody is held for what did not run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.machine import Finished, Sim
from tests.support.virtual_world import run_together

from .test_matrix import limited

THREADS = 4
RUN_MS = 1_500
PERCENT = 30
POINTS = 1.5  # the burst of 10 ms, and the end of the last kernel
BLIND_POINTS = 3  # what is waited for comes in order; what failed once is charged a look late
REFUSED = 801  # as events may be under a profiler
INVALID_CONTEXT = 201  # a primary context is not destroyed
DEAD = 700  # every call about a context in which a kernel went astray

EVENT_CALLS = (
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuStreamQuery",
)
FAULTS_OF_EACH = 12  # of 64 that a plan can hold
AMONG = 300  # calls

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


def ends(sim: Sim, folder: Path, what: str, kernel_us: int, run_ms: int = RUN_MS) -> Finished:
    """One run of cores_ends."""
    command = ("cores_ends", what, THREADS, kernel_us, run_ms)
    return run_together(sim, folder, [command], env=limited(folder, PERCENT))[0]


def random_faults(seed: int) -> str:
    """Calls about events that fail once each, wherever they are made."""
    chance = random.Random(seed)
    places = {name: chance.sample(range(1, AMONG), FAULTS_OF_EACH) for name in EVENT_CALLS}
    return ";".join(f"{name}@{n}=999" for name, calls in places.items() for n in sorted(calls))


@pytest.mark.parametrize("kernel_us", [200, 5_000])
@pytest.mark.parametrize("what", ["streams", "contexts", "primary", "reset", "mixed"])
def test_the_share_is_held_while_all_that_runs_ends(
    sim: Sim, tmp_path: Path, what: str, kernel_us: int
) -> None:
    done = ends(sim, tmp_path, what, kernel_us)

    assert done.stderr == ""
    assert done.facts["ended"] > THREADS
    assert done.facts["gone"] == 0
    assert done.facts["share"] == pytest.approx(PERCENT, abs=POINTS)


def test_calls_in_a_device_that_others_reset_hang_nobody(sim: Sim, tmp_path: Path) -> None:
    done = ends(sim, tmp_path, "races", 200)

    assert done.stderr == ""
    assert done.facts["gone"] > 0
    assert done.facts["ended"] > THREADS


@pytest.mark.parametrize("call", EVENT_CALLS)
@pytest.mark.parametrize("what", ["two", "streams"])
def test_a_call_that_always_fails_leaves_the_limit_and_is_told_once(
    sim: Sim, tmp_path: Path, what: str, call: str
) -> None:
    blind = sim.with_env(FAULTS=f"{call}@*={REFUSED}")
    command = ("cores_run", "cuLaunchKernel", "two", 500, RUN_MS)
    if what == "streams":
        command = ("cores_ends", what, THREADS, 500, RUN_MS)

    (done,) = run_together(blind, tmp_path, [command], env=limited(tmp_path, PERCENT))

    assert done.facts["share"] == pytest.approx(PERCENT, abs=BLIND_POINTS)
    assert done.stderr.count("\n") <= 1
    if call != "cuStreamQuery":  # events tell all that it does
        assert "cannot be measured by events" in done.stderr


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["steady", "two", "streams", "mixed"])
def test_calls_that_fail_at_random_lose_nothing(
    sim: Sim, tmp_path: Path, what: str, seed: int
) -> None:
    faulty = sim.with_env(FAULTS=random_faults(seed))
    command = ("cores_run", "cuLaunchKernel", what, 1_000, RUN_MS)
    if what in ("streams", "mixed"):
        command = ("cores_ends", what, THREADS, 1_000, RUN_MS)

    (done,) = run_together(faulty, tmp_path, [command], env=limited(tmp_path, PERCENT))

    assert done.facts["share"] == pytest.approx(PERCENT, abs=BLIND_POINTS)
    assert done.stderr.count("\n") <= 1


def test_a_stream_without_a_last_marker_is_paid_for_when_it_ends(sim: Sim, tmp_path: Path) -> None:
    # The first one is there; those behind the kernel and before the destruction are refused.
    faults = ";".join(f"cuEventRecord@{n}={REFUSED}" for n in range(2, 4))
    command = ("cores_ends", "spaced", 1, 200_000, 600)

    (done,) = run_together(
        sim.with_env(FAULTS=faults), tmp_path, [command], env=limited(tmp_path, PERCENT)
    )

    # What is waited for is charged from before its launch, and so for more than it ran.
    assert PERCENT / 2 <= done.facts["share"] <= PERCENT + POINTS


def test_a_call_that_may_end_a_context_stays_so_while_others_return(
    sim: Sim, tmp_path: Path
) -> None:
    """Of what is being ended nobody asks anything; the first call knew of nothing to ask."""
    log = tmp_path / "calls"
    slow = sim.with_env(LOG=str(log), FAULTS="cuDevicePrimaryCtxRelease_v2@1=block:20")

    (done,) = run_together(slow, tmp_path, [("cores_edges", "twice")], env=limited(tmp_path, 50))

    calls = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    begun = calls.index("cuCtxDestroy_v2")
    asked = calls[begun : calls.index("cuDriverGetVersion", begun)]
    assert done.facts["code"] == INVALID_CONTEXT
    assert not {*asked} & {*EVENT_CALLS}


def test_a_context_that_died_is_not_charged_for_ever(sim: Sim, tmp_path: Path) -> None:
    # The first marker is there; then no call about the context succeeds.
    calls = ("cuEventQuery", "cuStreamQuery", "cuStreamSynchronize")
    faults = [f"{name}@*={DEAD}" for name in calls]
    faults += [f"cuEventRecord@{n}={DEAD}" for n in range(THREADS + 1, 60)]
    dead = sim.with_env(FAULTS=";".join(faults))

    done = ends(dead, tmp_path, "lingers", 1_000)

    assert done.stderr == ""
    # Charged for all of it, the container would owe five seconds.
    assert done.facts["us"] < (RUN_MS + 100) * 1000
