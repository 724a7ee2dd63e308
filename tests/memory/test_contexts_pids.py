"""By which number the process list calls us: learned, so that no neighbour is taken for us.

Each program runs in a pid namespace of its own, where it is process 1. The simulated NVML tells
that number, as driver 580 does, or GPUFENCE_SIM_PID, as drivers that count in the host's.
"""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import Sim

from .test_contexts import GIB, ROOM, limited

UNSHARE = ("/usr/bin/env", "unshare", "--pid", "--fork", "--mount-proc")
HOST_NUMBER = "777777"
FREE_MEMORY = "nvmlDeviceGetMemoryInfo"
LIST = "nvmlDeviceGetComputeRunningProcesses_v3"


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a pid namespace")


def run_inside(sim: Sim, tmp_path: Path, program: str, case: str, **more: str) -> dict[str, int]:
    """The facts of a program of the container, in a namespace of its own."""
    command = [*UNSHARE, str(sim.build / "tests" / program), case]
    done = sim.run(command[0], *command[1:], preload=True, env=limited(tmp_path, **more))
    assert done.stderr == ""
    answer: dict[str, int] = done.facts
    return answer


def asked_after_load(log: Path) -> list[str]:
    """What was called from the first module load on."""
    names = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    return names[names.index("cuModuleLoadData") :]


@pytest.mark.parametrize("number", ["", HOST_NUMBER], ids=["ours", "the host's"])
def test_the_number_is_learned_from_the_first_context(
    sim: Sim, tmp_path: Path, number: str
) -> None:
    log = tmp_path / "calls"
    more = {"GPUFENCE_SIM_PID": number} if number else {}

    facts = run_inside(sim, tmp_path, "memory_code", "globals", GPUFENCE_SIM_LOG=str(log), **more)

    assert facts == {"before": ROOM, "loaded": ROOM - 64, "unloaded": ROOM}
    # The list answers; what is free, which neighbours change, too, is not asked for.
    assert FREE_MEMORY not in asked_after_load(log)


def test_a_first_context_is_listed_once_before_and_once_behind(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    run_inside(sim, tmp_path, "memory_code", "globals", GPUFENCE_SIM_LOG=str(log))

    names = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    made = names.index("cuCtxCreate_v2")
    behind = list(itertools.takewhile(lambda name: name.startswith("nvml"), names[made + 1 :]))
    assert names[:made].count(LIST) == 1
    # Our own pid is new in the list: nobody needs to ask what the device lost.
    assert behind == [LIST]


def test_what_was_not_learned_is_measured_by_free_memory(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    silent = "nvmlDeviceGetComputeRunningProcesses_v3@1=3"

    facts = run_inside(
        sim, tmp_path, "memory_code", "globals", GPUFENCE_SIM_LOG=str(log),
        GPUFENCE_SIM_FAULTS=silent,
    )  # fmt: skip

    assert facts == {"before": ROOM, "loaded": ROOM - 64, "unloaded": ROOM}
    assert FREE_MEMORY in asked_after_load(log)


@pytest.mark.parametrize("number", ["", HOST_NUMBER], ids=["ours", "the host's"])
def test_a_neighbour_that_bears_our_number_is_not_taken_for_us(
    sim: Sim, tmp_path: Path, number: str
) -> None:
    neighbour = sim.with_env(PID=1).spawn("memory_contexts", "hold")
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "held\n"
    more = {"GPUFENCE_SIM_PID": number} if number else {}

    facts = run_inside(sim, tmp_path, "memory_contexts", "primary", **more)

    neighbour.communicate("end\n", timeout=30)
    assert facts == {
        "retained": ROOM,
        "retained twice": ROOM,
        "released once": ROOM - GIB,
        "released twice": ROOM,
    }


@pytest.mark.parametrize(
    ("number", "listed"), [("", {1}), (HOST_NUMBER, {int(HOST_NUMBER)})], ids=["ours", "the host's"]
)
def test_lists_hold_this_process_and_no_neighbour(
    sim: Sim, tmp_path: Path, number: str, listed: set[int]
) -> None:
    # Where NVML counts in the host's namespace, our own pid is a neighbour's number.
    neighbour = sim.with_env(PID=1 if number else 4711).spawn("memory_contexts", "hold")
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "held\n"
    env = limited(tmp_path) | ({"GPUFENCE_SIM_PID": number} if number else {})

    program = str(sim.build / "tests" / "view_commands")
    asker = sim.spawn(UNSHARE[0], *UNSHARE[1:], program, preload=True, env=env)
    told = asker.communicate("cuda 0\nprocesses 0 64 1\n", timeout=30)[0].splitlines()

    neighbour.communicate("end\n", timeout=30)
    assert told[1].strip() == "0"
    code, count, *pids = map(int, told[2].split())
    assert (code, count, set(pids)) == (0, 1, listed)
