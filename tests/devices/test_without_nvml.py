"""Limits where NVML is missing, or there and of no use: held by the best means left.

Memory is measured around the calls that take it, shares by the driver's events; only a soft core
limit needs NVML, and the hard one holds without it, with one warning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gputime.test_matrix import limited
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

HARD = 20
SOFT = 60
POINTS = 1.5

UNINITIALIZED = 1
NOT_SUPPORTED = 3
DRIVER_NOT_LOADED = 9

OPENING = ("nvmlInit_v2", "nvmlInitWithFlags")
ASKING = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
)
LACKS = {
    "absent": (),
    "uninitialized": [f"{name}@*={UNINITIALIZED}" for name in OPENING],
    "not-loaded": [f"{name}@*={DRIVER_NOT_LOADED}" for name in OPENING],
    "not-supported": [f"{name}@*={NOT_SUPPORTED}" for name in ASKING],
}

Machine = Callable[[str], tuple[Sim, dict[str, str]]]


@pytest.fixture
def machine(sim: Sim, tmp_path: Path) -> Machine:
    """A machine whose NVML lacks something, and the variables that belong to it."""

    def make(lack: str) -> tuple[Sim, dict[str, str]]:
        if lack != "absent":
            return sim.with_env(FAULTS=";".join(LACKS[lack])), {}
        folder = tmp_path / "cuda-only"
        folder.mkdir()
        (folder / "libcuda.so.1").symlink_to(sim.build / "sim" / "libcuda.so.1")
        return sim, {"LD_LIBRARY_PATH": str(folder)}

    return make


def lines_but_absence(lack: str, text: str) -> list[str]:
    """What else was said where the library's absence is said once."""
    lines = text.splitlines()
    absence = [line for line in lines if "libnvidia-ml.so.1 cannot be opened" in line]
    assert len(absence) == (lack == "absent"), text
    return [line for line in lines if line not in absence]


@pytest.mark.parametrize("lack", LACKS)
def test_memory_is_held_by_measuring_around_calls(
    sim: Sim, machine: Machine, tmp_path: Path, lack: str
) -> None:
    bare, env = machine(lack)
    limit = {"GPUFENCE_MEMORY_LIMIT": "2g"}
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    limit_here = limit | env | {"GPUFENCE_STATE_DIR": str(tmp_path / "here")}
    limit_there = limit | {"GPUFENCE_STATE_DIR": str(tmp_path / "there")}

    done = bare.run("memory_room", preload=True, env=limit_here)

    assert lines_but_absence(lack, done.stderr) == []
    assert done.facts == sim.run("memory_room", preload=True, env=limit_there).facts


@pytest.mark.parametrize("lack", LACKS)
def test_a_core_limit_needs_no_nvml(machine: Machine, tmp_path: Path, lack: str) -> None:
    bare, env = machine(lack)
    command = ("cores_run", "cuLaunchKernel", "steady", 500, 1_500)

    (done,) = run_together(bare, tmp_path, [command], env=limited(tmp_path, HARD) | env)

    assert lines_but_absence(lack, done.stderr) == []
    assert done.facts["share"] == pytest.approx(HARD, abs=POINTS)


@pytest.mark.parametrize("lack", LACKS)
def test_a_soft_limit_without_sight_is_the_hard_one_with_one_warning(
    machine: Machine, tmp_path: Path, lack: str
) -> None:
    bare, env = machine(lack)
    env |= limited(tmp_path, HARD) | {"GPUFENCE_CORE_SOFT_LIMIT": str(SOFT)}
    command = ("cores_run", "cuLaunchKernel", "steady", 500, 2_000)

    (done,) = run_together(bare, tmp_path, [command], env=env)

    (line,) = lines_but_absence(lack, done.stderr)
    assert "the soft core limit has no effect: NVML does not report how busy" in line
    assert "Set GPUFENCE_NODE_DIR" in line
    assert done.facts["share"] == pytest.approx(HARD, abs=POINTS)


def test_with_nvml_the_same_soft_limit_is_used(sim: Sim, tmp_path: Path) -> None:
    env = limited(tmp_path, HARD) | {"GPUFENCE_CORE_SOFT_LIMIT": str(SOFT)}
    command = ("cores_run", "cuLaunchKernel", "steady", 500, 2_000)

    (done,) = run_together(sim, tmp_path, [command], env=env)

    assert done.stderr == ""
    assert done.facts["most"] > 2 * HARD
