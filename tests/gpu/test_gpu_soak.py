"""The GPU's soak: what it calls lost, passed or grown, and some of it over the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufence.machine.gpus import User

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import part_soak
import soak_watch
from soak_members import MIB, Container
from soak_watch import Watch

SOAK = Path(part_soak.__file__).with_name("soak.py")
GPU = "GPU-1"


@dataclass
class Nvml:
    """NVML that says what the test wants."""

    listed: list[User] = field(default_factory=list)

    def users(self) -> list[User]:
        """As the tools ask it."""
        return self.listed


@dataclass
class Process:
    """Enough of a member."""

    pid: int


def watched(limit_mib: int, *pids: int) -> tuple[Nvml, Watch, Container]:
    nvml = Nvml()
    container = Container("c", "taker", limit_mib, 10, resident=False)
    container.members += [Process(pid) for pid in pids]  # type: ignore[misc]
    watch = Watch(nvml, GPU)  # type: ignore[arg-type]
    watch.know(container)
    return nvml, watch, container


def look(watch: Watch, times: int = soak_watch.LOOKS) -> list[str]:
    for _ in range(times):
        watch.look()
    return watch.problems()


def test_processes_that_together_hold_more_than_their_limit_are_a_problem() -> None:
    nvml, watch, _ = watched(100, 1, 2)
    nvml.listed = [User(1, GPU, 60 * MIB), User(2, GPU, 40 * MIB), User(3, GPU, 900 * MIB)]
    assert look(watch) == []
    assert watch.fullest == 1.0

    nvml.listed[1] = User(2, GPU, 41 * MIB)

    assert look(watch) == [f"c held {MIB} bytes more than it may"]


def test_memory_on_another_gpu_and_a_sum_above_the_limit_for_one_look_are_none() -> None:
    nvml, watch, _ = watched(100, 1)
    nvml.listed = [User(1, "GPU-2", 900 * MIB)]
    assert look(watch) == []

    nvml.listed = [User(1, GPU, 900 * MIB)]

    assert look(watch, soak_watch.LOOKS - 1) == []


def test_a_container_that_has_ended_is_still_told_of() -> None:
    nvml, watch, container = watched(100, 1)
    nvml.listed = [User(1, GPU, 101 * MIB)]
    look(watch)

    watch.forget(container)

    assert len(watch.problems()) == 1


def test_while_a_limit_changes_the_higher_one_holds() -> None:
    nvml, watch, container = watched(100, 1)
    nvml.listed = [User(1, GPU, 200 * MIB)]

    with watch.changing(container, 200 * MIB):
        assert look(watch) == []
    assert look(watch) == []


def started(build: Path, tmp_path: Path, *words: str) -> subprocess.Popen[bytes]:
    """A soak over the simulated driver, with all its files in the test's folder."""
    sim = {"LD_LIBRARY_PATH": str(build / "sim"), "GPUFENCE_SIM_STATE": str(tmp_path / "machine")}
    return subprocess.Popen(
        [
            sys.executable,
            SOAK,
            "--build",
            build,
            "--output",
            tmp_path / "soak.json",
            "--sim",
            *words,
        ],
        env={**os.environ, **sim, "TMPDIR": str(tmp_path)},
    )


def report(soak: subprocess.Popen[bytes], tmp_path: Path) -> dict[str, Any]:
    """What it leaves."""
    soak.wait(300)
    told: dict[str, Any] = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    return told


def test_some_seconds_of_it_lose_nothing_and_pass_nothing(build: Path, tmp_path: Path) -> None:
    told = report(started(build, tmp_path, "--seconds", "4", "--seed", "5"), tmp_path)

    assert told["problems"] == []
    assert told["ended"]
    assert told["counts"]["roll calls"] > 0
    assert told["counts"]["asked for memory"] > 0
    assert told["counts"]["trainings"] > 0
    assert told["counts"]["looks of NVML"] > 0
    assert "seed 5" in part_soak.told(told)


def test_what_nobody_gave_back_is_lost(build: Path, tmp_path: Path) -> None:
    """Here a stranger's memory, who comes while the soak runs and stays."""
    soak = started(build, tmp_path, "--seconds", "8", "--seed", "5")
    while soak.poll() is None and not list(tmp_path.glob("gpufence-soak-*/state/gpufence-*")):
        time.sleep(0.1)
    sim = {"LD_LIBRARY_PATH": str(build / "sim"), "GPUFENCE_SIM_STATE": str(tmp_path / "machine")}
    stranger = subprocess.Popen(
        [build / "tests" / "charge_addresses", "linked"],
        env={**os.environ, **sim},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        told = report(soak, tmp_path)
    finally:
        stranger.kill()
        stranger.communicate()

    assert "are held by nobody, as NVML says" in " ".join(told["problems"])
