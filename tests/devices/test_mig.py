"""Limits on an instance of a GPU that is split (MIG), as NVIDIA documents what drivers show.

An instance has a UUID, memory and an engine of its own. NVML tells neither what a process holds of
it nor how busy it is: memory is measured around the calls that take it, and a soft core limit is
not used. No split GPU was at hand: the simulated one is made after NVIDIA's documents.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gputime.test_matrix import limited
from tests.support.machine import REPO, Sim
from tests.support.virtual_world import run_together

CONTEXT = 526
BOARD_MIB = 16384
INSTANCES = 2
NOT_SUPPORTED = 3
MIB = 1 << 20

# What NVML tells about every GPU and its instances: UUIDs, memory, load, and who is there.
TELL = """
import ctypes, json, struct
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0

def tell(handle):
    uuid = ctypes.create_string_buffer(96)
    memory = (ctypes.c_ulonglong * 3)()
    load = (ctypes.c_uint * 2)()
    pids = ctypes.create_string_buffer(24 * 64)
    count = ctypes.c_uint(64)
    assert nvml.nvmlDeviceGetUUID(handle, uuid, 96) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), pids) == 0
    entries = struct.iter_unpack("<I4xQII", pids.raw[: 24 * count.value])
    return {"uuid": uuid.value.decode(), "total": memory[0], "free": memory[1],
            "used": memory[2], "load": nvml.nvmlDeviceGetUtilizationRates(handle, load),
            "processes": [list(entry) for entry in entries]}

boards = []
count = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
for index in range(count.value):
    board, instance = ctypes.c_void_p(), ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(board))
    told = tell(board)
    told["instances"] = []
    place = 0
    while nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, place, ctypes.byref(instance)) == 0:
        told["instances"].append(tell(instance))
        place += 1
    boards.append(told)
print(json.dumps(boards))
"""


@pytest.fixture
def split(sim: Sim) -> Sim:
    """A GPU in two instances of 8 GiB."""
    return sim.with_env(MIG=INSTANCES, MEMORY=f"{BOARD_MIB}m")


def told(machine: Sim, **env: str) -> Any:  # noqa: ANN401 - JSON
    """What NVML tells, in a process without CUDA."""
    return machine.run(sys.executable, "-c", TELL, preload=bool(env), env=env).facts


def instances(machine: Sim) -> list[str]:
    """UUIDs of the first GPU's instances."""
    return [instance["uuid"] for instance in told(machine)[0]["instances"]]


def container(folder: Path, **more: str) -> dict[str, str]:
    """A container's variables; where its folder were missing, tests would share another."""
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True)
    return {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_CONTAINER": "mig", **more}


def test_the_simulator_splits_a_gpu(split: Sim) -> None:
    (board,) = told(split.with_env(GPUS=1))

    assert board["uuid"].startswith("GPU-")
    assert [each["uuid"][:4] for each in board["instances"]] == ["MIG-", "MIG-"]
    assert len({each["uuid"] for each in board["instances"]}) == INSTANCES
    assert {each["load"] for each in [board, *board["instances"]]} == {NOT_SUPPORTED}
    assert board["total"] == sum(each["total"] for each in board["instances"])


@pytest.mark.parametrize("visible", [None, "0", "first", "second"])
def test_a_process_sees_one_instance(split: Sim, tmp_path: Path, visible: str | None) -> None:
    names = instances(split)
    wanted = names[1] if visible == "second" else names[0]
    value = wanted if visible in ("first", "second") else visible
    env = container(tmp_path, GPUFENCE_MEMORY_LIMIT="2g")
    if value is not None:
        env["CUDA_VISIBLE_DEVICES"] = value

    (device,) = split.run("device_identity", "room", preload=True, env=env).facts

    assert device["uuid"].removeprefix("GPU-") == wanted.removeprefix("MIG-")
    assert device["room"] == 2048 - CONTEXT


def test_a_program_without_cuda_knows_which_instance_is_cudas_gpu_0(
    split: Sim, tmp_path: Path
) -> None:
    names = instances(split)
    whole = told(split)[0]["instances"][0]["total"]
    env = container(tmp_path, GPUFENCE_MEMORY_LIMIT_0="2g", CUDA_VISIBLE_DEVICES=names[1])

    first, second = told(split, **env)[0]["instances"]

    assert (first["total"], second["total"]) == (whole, 2 << 30)


def test_a_limit_names_an_instance_by_its_uuid(split: Sim, tmp_path: Path) -> None:
    first, second = instances(split)
    env = container(tmp_path, **{f"GPUFENCE_MEMORY_LIMIT_{second}": "3g"})

    other, named = (
        split.run("device_identity", "room", preload=True, env=env | {"CUDA_VISIBLE_DEVICES": name})
        for name in (first, second)
    )

    assert named.facts[0]["room"] == 3072 - CONTEXT
    # Whoever sees the other one alone has no limit that is for it, though one was meant.
    assert "is for a GPU that this process does not have" in other.stderr
    assert other.returncode == 1


def test_overhead_is_measured_around_the_calls_that_cause_it(
    split: Sim, sim: Sim, tmp_path: Path
) -> None:
    limit = {"GPUFENCE_MEMORY_LIMIT": "2g"}

    done = split.run("memory_room", preload=True, env=container(tmp_path / "split", **limit))

    assert done.stderr == ""
    whole = sim.run("memory_room", preload=True, env=container(tmp_path / "whole", **limit))
    assert done.facts == whole.facts


def test_neighbours_on_another_instance_are_not_taken_for_our_use(
    split: Sim, tmp_path: Path
) -> None:
    first, second = instances(split)
    neighbour = split.spawn("device_identity", "hold", env={"CUDA_VISIBLE_DEVICES": first})
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "held\n"
    env = container(tmp_path, GPUFENCE_MEMORY_LIMIT="4g", CUDA_VISIBLE_DEVICES=second)

    (device,) = split.run("device_identity", "room", preload=True, env=env).facts

    neighbour.communicate("end\n", timeout=30)
    assert device["room"] == 4096 - CONTEXT


def test_nvml_shows_an_instance_of_the_limits_size(split: Sim, tmp_path: Path) -> None:
    second = instances(split)[1]
    env = container(tmp_path, GPUFENCE_MEMORY_LIMIT="2g", CUDA_VISIBLE_DEVICES=second)
    worker = split.spawn("device_identity", "hold", preload=True, env=env)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "held\n"

    (board,) = told(split, **env)

    worker.communicate("end\n", timeout=30)
    other, own = board["instances"]
    assert own["total"] == 2048 * MIB
    assert own["used"] == own["total"] - own["free"] == (1024 + CONTEXT) * MIB
    assert [entry[0] for entry in own["processes"]] == [worker.pid]
    assert other["total"] > 8000 * MIB
    assert other["processes"] == []


@pytest.mark.parametrize("percent", [30, 75])
def test_a_share_of_an_instance_is_held(split: Sim, tmp_path: Path, percent: int) -> None:
    command = ("cores_run", "cuLaunchKernel", "steady", 500, 1_500)

    done = run_together(split, tmp_path, [command], env=limited(tmp_path, percent))[0]

    assert done.stderr == ""
    assert done.facts["share"] == pytest.approx(percent, abs=1.5)


def test_a_soft_limit_is_not_used_and_says_why(split: Sim, tmp_path: Path) -> None:
    env = limited(tmp_path, 20) | {"GPUFENCE_CORE_SOFT_LIMIT": "60"}
    command = ("cores_run", "cuLaunchKernel", "steady", 500, 1_500)

    (done,) = run_together(split, tmp_path, [command], env=env)

    (line,) = done.stderr.splitlines()
    assert "the soft core limit has no effect" in line
    assert done.facts["share"] == pytest.approx(20, abs=1.5)


def test_doctor_says_that_the_gpu_is_split(split: Sim, tmp_path: Path) -> None:
    words = ("-m", "gpufence", "doctor", "--json", "--probe")
    env = {"PYTHONPATH": str(REPO / "tools"), "GPUFENCE_STATE_DIR": str(tmp_path)}

    done = split.run(sys.executable, *words, env=env)

    (gpu,) = json.loads(done.stdout)["checks"]["nvml"]["gpus"]
    assert (gpu["mig"], gpu["we_are"]) == (True, "listed by our pid")
