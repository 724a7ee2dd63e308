"""`gpufence top` and `export` over the simulated driver: NVML's figures beside the container's."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.charges import GIB, MIB
from tests.support.handles import handles
from tests.support.machine import REPO, Sim

PYTHON = {"PYTHONPATH": str(REPO / "tools")}


def top(sim: Sim, state: Path, **env: str) -> Any:  # noqa: ANN401 - JSON
    words = ("-m", "gpufence", "top", "--json", "--state-dir", str(state))
    return sim.run(sys.executable, *words, env={**PYTHON, **env}).facts


def test_the_gpu_is_told_by_nvml_and_the_container_by_its_region(bare: Sim, state: Path) -> None:
    with handles(bare, state, "1g") as fence:
        fence.does("alloc", 64 * MIB)
        fence.refused("alloc", 2 * GIB)

        (gpu,) = top(bare, state)["gpus"]

    assert (gpu["index"], gpu["name"]) == (0, "gpufence simulated GPU")
    assert gpu["memory_total_bytes"] > 100 * GIB
    assert gpu["memory_used_bytes"] >= 64 * MIB
    assert 0 <= gpu["busy_ratio"] <= 1
    assert gpu["temperature_celsius"] > 0
    (container,) = gpu["containers"]
    assert (container["memory_limit_bytes"], container["memory_used_bytes"]) == (GIB, 64 * MIB)
    assert (container["refusals"], container["core_limit_ratio"]) == (1, None)
    (process,) = container["processes"]
    assert process["command"] == "handles_command"  # the kernel keeps 15 characters


def test_a_machine_without_fences_still_shows_its_gpus(sim: Sim, state: Path) -> None:
    found = top(sim.with_env(GPUS=2), state)

    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert [gpu["containers"] for gpu in found["gpus"]] == [[], []]


def test_share_waiting_and_priority_are_told_while_it_is_used(sim: Sim, state: Path) -> None:
    env = {
        "GPUFENCE_CORE_LIMIT": "40",
        "GPUFENCE_PRIORITY": "high",
        "GPUFENCE_STATE_DIR": str(state),
        "GPUFENCE_CONTAINER": "busy",
    }
    words = ("cores_run", "cuLaunchKernel", "steady", 2000, 20_000)
    worker = sim.spawn(*words, preload=True, env=env)
    try:
        for _ in range(40):  # it starts when the machine lets it
            containers = [c for gpu in top(sim, state)["gpus"] for c in gpu["containers"]]
            told = ("core_share_ratio", "launches_wait_ratio")
            if containers and all(containers[0][each] for each in told):
                break
    finally:
        worker.kill()
        worker.communicate()

    (container,) = containers
    assert container["core_limit_ratio"] == 0.4
    # A look lasts a quarter of a second, and the limiter lets a burst of 10 ms through.
    assert 0 < container["core_share_ratio"] < 0.6
    assert container["gpu_time_ns"] > 0
    assert container["launches_wait_mean_ns"] * container["launches_held"] > 0
    assert container["priority"] == "high"


def test_metrics_tell_the_gpu_too(sim: Sim, state: Path) -> None:
    words = ("-m", "gpufence", "export", "--once", "--names", "hami", "--state-dir", str(state))

    printed = sim.run(sys.executable, *words, env=PYTHON).stdout

    assert re.search(r'^hami_host_gpu_memory_used_bytes\{device_index="0",.*"GPU-', printed, re.M)
    assert 'device_type="NVIDIA-gpufence simulated GPU"' in printed
    assert json.loads(printed.splitlines()[2].rpartition(" ")[2]) >= 0
