"""Hold points (docs/core-limiter-details.md): launches that wait for budget on the GPU.

In virtual time. What stands there runs without a pause afterwards, so that markers tell exactly
what it took.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .tenants import Tenant, meet_counted

STEPS = Path(__file__).parent / "steps"
RUN_MS = 3_000
# Of programs whose GPU waits for their host most of the time. Before, they had 8.8 and 9.5 of 10,
# 10.8 of 10 and 33.4 of 35.
RECORDED = (("generation", 10), ("compiled", 10), ("compiled", 35), ("adapters", 10))
POINTS = 0.7
CALLS = {"LAUNCH_NS": 5_500, "RECORD_NS": 2_500}  # what they take an H200's host
POINT = "cuStreamBatchMemOp_v2"
WORDS = "cuMemHostRegister_v2"
NOT_SUPPORTED, NO_MEMORY = 801, 2
LIMIT = 5
HOST_BOUND = (100, 5, 20)  # needs a fifth of the GPU
MOST_QUEUED = 500  # half of what a stream's queue holds, and what has run

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


def limited(folder: Path, limit: int) -> dict[str, str]:
    """The variables of a container with that core limit."""
    return {"GPUFENCE_CORE_LIMIT": str(limit), "GPUFENCE_STATE_DIR": str(folder / "state")}


def stands(sim: Sim, folder: Path, way: str) -> dict[str, float]:
    """What a program says that stands at a hold point, and does something meanwhile."""
    command = ("cores_holds", way)
    machine = sim.with_env(**H200)
    (done,) = run_together(machine, folder, [command], env=limited(folder, LIMIT))
    return done.facts


@pytest.mark.parametrize(("program", "limit"), RECORDED)
def test_recorded_programs_have_their_limits(
    sim: Sim, tmp_path: Path, program: str, limit: int
) -> None:
    command = ("cores_replay", STEPS / f"{program}.txt", RUN_MS)
    machine = sim.with_env(**{**H200, **CALLS})

    (done,) = run_together(machine, tmp_path, [command], env=limited(tmp_path, limit))

    assert done.facts["share"] == pytest.approx(limit, abs=POINTS)


def test_points_are_only_where_the_gpu_waits_for_a_host_that_is_held(
    sim: Sim, tmp_path: Path
) -> None:
    busy = Tenant("saturate 0.5", 60)
    programs = {
        "held": [Tenant(HOST_BOUND, LIMIT)],
        "not held": [Tenant(HOST_BOUND, 60)],
        "never waits": [Tenant("saturate 0.5", LIMIT)],
        "beside others": [Tenant(HOST_BOUND, LIMIT), busy],
    }
    calls = {}
    for name, tenants in programs.items():
        (tmp_path / name).mkdir()
        _, calls[name] = meet_counted(sim, tmp_path / name, tenants)

    points = {name: count[POINT] for name, count in calls.items()}
    assert points["held"] > 20
    assert points["never waits"] == points["beside others"] == calls["never waits"][WORDS] == 0
    assert points["not held"] <= 1  # all is charged before it is known what the GPU waits


@pytest.mark.parametrize(
    ("faults", "most"),
    [(f"{POINT}@*={NOT_SUPPORTED}", 1), (f"{WORDS}@*={NO_MEMORY}", 0)],
)
def test_a_driver_that_refuses_points_is_asked_once(
    sim: Sim, tmp_path: Path, faults: str, most: int
) -> None:
    """Then the program's thread waits, as that of any other program."""
    (said,), calls = meet_counted(sim, tmp_path, [Tenant(HOST_BOUND, 10)], faults, ms=2_000)

    assert calls[POINT] <= most
    assert calls[WORDS] == 1
    assert 8.5 <= said["busy"] <= 10 + 2.5  # what may be used at once


def test_the_thread_goes_on_while_the_gpu_stands(sim: Sim, tmp_path: Path) -> None:
    """As far as half a queue: then a launch waits, as long as half of what is owed at most."""
    said = stands(sim, tmp_path, "queues")

    assert 100 < said["launches"] <= MOST_QUEUED


@pytest.mark.parametrize(
    ("way", "most_ms"),
    [
        ("leaves", 10),  # 50 launches; at 5 % they would be held for another 4
        ("destroys", 200),
        ("handshake", 800),  # the stream that waits is charged as well, as before
        ("threads", 1_000),
    ],
)
def test_what_stands_keeps_nobody_for_longer_than_a_hold_would(
    sim: Sim, tmp_path: Path, way: str, most_ms: float
) -> None:
    assert stands(sim, tmp_path, way)["ms"] <= most_ms


def test_the_limit_holds_whatever_a_program_does_there(sim: Sim, tmp_path: Path) -> None:
    said = stands(sim, tmp_path, "works")

    assert said["launches"] * 5 / 1_000 / said["ms"] == pytest.approx(LIMIT / 100, rel=0.1)
