"""Graphs under the core limit, in virtual time: a launch pauses between its kernels' steps.

What a step is: lib/src/hooks/graphs/graph_needs.h. A shape counted by one step too few or too many
is off by a point and a half, or more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import POINTS, limited, pytestmark  # noqa: F401  (skips under sanitizers)

PERCENT = 50
RUN_MS = 400

SHAPES = (
    "one",
    "line",
    "wide",
    "ladder",
    "roots",
    "loose",
    "child_between",
    "child_beside",
    "memory",
    "captured",
    "updated",
    "uploaded",
    "crowded",
)
MACHINE = H200
AT_ONCE = ("overlapping",)  # its kernels pause between none
KERNEL_NS = 5_000
UNTOLD = ("backwards", "overlapping", "switched_off")  # count as one step, and get less


def share(sim: Sim, folder: Path, shape: str, percent: int = PERCENT) -> float:
    """What a program has that launches graphs of one shape.

    Pauses between kernels that are no steps of their own are charged: then it has less by those.
    """
    command = ("cores_graphs", shape, RUN_MS)
    (done,) = run_together(sim, folder, [command], env=limited(folder, percent))
    facts = done.facts
    busy_ns = facts["kernels"] * KERNEL_NS
    charged_ns = (facts["kernels"] - facts["steps"]) * H200["STEP_GAP_NS"]
    if shape in AT_ONCE or charged_ns < 0:
        charged_ns = 0
    return float(facts["share"]) * (busy_ns + charged_ns) / busy_ns


@pytest.mark.parametrize("shape", SHAPES)
def test_the_pauses_between_kernels_of_a_graph_cost_nothing(
    sim: Sim, tmp_path: Path, shape: str
) -> None:
    assert share(sim, tmp_path, shape) == pytest.approx(PERCENT, abs=POINTS)


@pytest.mark.parametrize("shape", UNTOLD)
def test_a_graph_whose_steps_cannot_be_told_counts_as_one(
    sim: Sim, tmp_path: Path, shape: str
) -> None:
    assert share(sim, tmp_path, shape) == pytest.approx(PERCENT, abs=POINTS)


@pytest.mark.parametrize("percent", [10, 70])
def test_other_limits_are_held_as_well(sim: Sim, tmp_path: Path, percent: int) -> None:
    assert share(sim, tmp_path, "line", percent) == pytest.approx(percent, abs=POINTS)


@pytest.mark.parametrize("percent", [25, 50])
def test_short_graphs_that_are_waited_for_are_not_charged_their_pauses(
    sim: Sim, tmp_path: Path, percent: int
) -> None:
    command = ("cores_graphs", "short", RUN_MS, "waits")

    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, percent))

    assert done.facts["share"] == pytest.approx(percent, abs=POINTS)


def test_an_executable_whose_end_the_driver_refuses_keeps_its_steps(
    sim: Sim, tmp_path: Path
) -> None:
    refusing = sim.with_env(FAULTS="cuGraphExecDestroy@1=999")

    assert share(refusing, tmp_path, "not_ended") == pytest.approx(PERCENT, abs=POINTS)


@pytest.mark.parametrize(("way", "both"), [("captured", False), ("captured", True), ("body", True)])
def test_kernels_of_a_graph_on_another_gpu_are_held_by_its_limit(
    sim: Sim, tmp_path: Path, way: str, both: bool
) -> None:
    # No marker of the stream's GPU tells what ran on the other: before, nothing held it there.
    env = limited(tmp_path, 80) | {"GPUFENCE_CORE_LIMIT_1": "20"}
    if not both:
        del env["GPUFENCE_CORE_LIMIT"]

    # Where the bodies of conditional nodes run no driver tells before 13.2.
    machine = Sim(sim.build, sim.state, sim.env, latest=way == "body").with_env(GPUS=2)
    command = ("cores_elsewhere", way, 2000, 5)
    (done,) = run_together(machine, tmp_path, [command], env=env)

    assert 15 <= done.facts["share"] <= 20 + POINTS


def test_a_graph_on_another_gpu_may_wait_for_what_the_host_does_behind_its_launch(
    sim: Sim, tmp_path: Path
) -> None:
    command = ("cores_elsewhere", "blocked")
    (done,) = run_together(
        sim.with_env(GPUS=2), tmp_path, [command], env=limited(tmp_path, 50), timeout=30
    )

    assert done.facts == {"done": 1}
