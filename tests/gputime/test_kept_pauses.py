"""What is measured of a GPU's pauses is measured once, kept, and believed of few.

The real library over simulated GPUs in virtual time. Whether it measured is told by the driver's
log: nothing else asks for a module's variable.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.state import kept_pauses

from tests.support.gpus import CALIBRATES, H200
from tests.support.machine import Finished, Sim
from tests.support.virtual_world import run_together

from .test_matrix import pytestmark  # noqa: F401  (skips under sanitizers)

GAP_NS = H200["LAUNCH_GAP_NS"]
STRANGER = 12_345
PROBE = 7_000  # nanoseconds that no other test has
# A program that keeps the GPU busy, behind how long it does so.
BUSY = (1, 500, 3, "ahead", 120)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@pytest.fixture
def gpu(sim: Sim) -> Sim:
    """A GPU that pauses."""
    return sim.with_env(**H200)


def launch(
    sim: Sim, folder: Path, way: str = "launch", state: str = "state", **env: str
) -> tuple[Finished, int]:
    """A container of its own that launches: what it said, and how often it measured."""
    log = folder / f"calls{len(list(folder.glob('calls*')))}"
    names = {
        "GPUFENCE_CORE_LIMIT": "50",
        "GPUFENCE_STATE_DIR": str(folder / state),
        "GPUFENCE_CONTAINER": log.name,
        "GPUFENCE_LOG_LEVEL": "info",
        CALIBRATES: "1",
        **env,
    }
    command = ("cores_paces", way)
    (done,) = run_together(sim.with_env(LOG=str(log)), folder, [command], env=names)
    calls = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    # The program's own modules have no variable that it asks for.
    return done, calls.count("cuModuleGetGlobal_v2")


def kept(folder: Path) -> list[kept_pauses.KeptPauses]:
    """What is kept there, and no draft of it."""
    assert not list(folder.glob("*.new"))
    return kept_pauses.read_all([folder])


def only(folder: Path) -> Path:
    """The one file that is kept there."""
    (one,) = folder.glob("gpufence-pauses1-*")
    return one


def rewrite(path: Path, at: int, raw: bytes) -> None:
    """Other bytes, and a check that agrees with them."""
    old = path.read_bytes()
    new = old[:at] + raw + old[at + len(raw) :]
    path.write_bytes(new[:-8] + struct.pack("<Q", kept_pauses.check_of(new)))


def test_the_first_container_measures_and_the_next_knows(gpu: Sim, tmp_path: Path) -> None:
    done, measured = launch(gpu, tmp_path)
    (first,) = kept(tmp_path / "state")

    assert (done.returncode, measured) == (0, 1)
    assert first.pauses["launch_gap_ns"] == pytest.approx(GAP_NS, abs=50)
    assert first.driver.startswith("580.")
    for _ in range(2):
        done, measured = launch(gpu, tmp_path)
        assert (done.returncode, measured) == (0, 0)
    assert kept(tmp_path / "state") == [first]


def test_containers_of_a_node_measure_once(gpu: Sim, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()

    _, first = launch(gpu, tmp_path, state="one", GPUFENCE_NODE_DIR=str(node))
    _, second = launch(gpu, tmp_path, state="other", GPUFENCE_NODE_DIR=str(node))

    assert (first, second) == (1, 0)
    assert len(kept(node)) == 1
    assert kept(tmp_path / "one") == []


def test_what_is_kept_is_reckoned_with(gpu: Sim, tmp_path: Path) -> None:
    """And not what would be measured: of kernels of 10 us too much is taken for a pause."""
    launch(gpu, tmp_path)
    rewrite(only(tmp_path / "state"), 72, struct.pack("<I", PROBE))
    names = {
        "GPUFENCE_CORE_LIMIT": "30",
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        "GPUFENCE_CONTAINER": "wrong",
        CALIBRATES: "1",
    }
    command = ("cores_run", "cuLaunchKernel", "steady", 10, 1_000)

    (done,) = run_together(gpu, tmp_path, [command], env=names)

    assert done.facts["share"] > 50


def cut(path: Path) -> None:
    """A part of a file."""
    path.write_bytes(path.read_bytes()[:60])


def flip(path: Path) -> None:
    """One number is another one."""
    raw = bytearray(path.read_bytes())
    raw[72] ^= 1
    path.write_bytes(raw)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "flipped": flip,
    "empty": lambda path: path.write_bytes(b""),
    "long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another GPU's": lambda path: rewrite(path, 16, b"\xff" * 16),
    "another driver's": lambda path: rewrite(path, 32, b"999.9"),
    "another layout's": lambda path: rewrite(path, 8, b"\2"),
    "no GPU's": lambda path: rewrite(path, 72, struct.pack("<I", 1_000_000)),
    "without pauses": lambda path: rewrite(path, 72, struct.pack("<I", 0)),
    "open to all": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_believed_is_measured_anew(gpu: Sim, tmp_path: Path, name: str) -> None:
    launch(gpu, tmp_path)
    (first,) = kept(tmp_path / "state")
    DAMAGE[name](first.path)

    done, measured = launch(gpu, tmp_path)

    assert (done.returncode, measured) == (0, 1)
    (again,) = kept(tmp_path / "state")
    assert again.pauses == first.pauses


def test_a_link_is_not_followed(gpu: Sim, tmp_path: Path) -> None:
    launch(gpu, tmp_path)
    path = only(tmp_path / "state")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    _, measured = launch(gpu, tmp_path)

    assert measured == 1


@needs_root
def test_another_user_is_not_believed(gpu: Sim, tmp_path: Path) -> None:
    launch(gpu, tmp_path)
    os.chown(only(tmp_path / "state"), STRANGER, STRANGER)

    _, measured = launch(gpu, tmp_path)

    assert measured == 1


def test_another_driver_is_measured_for_itself(gpu: Sim, tmp_path: Path) -> None:
    launch(gpu, tmp_path)

    _, measured = launch(gpu.with_env(DRIVER=535), tmp_path)

    assert measured == 1
    assert len(kept(tmp_path / "state")) == 2


@pytest.mark.parametrize("driver", [390, 418, 450, 470, 550, 580])
def test_every_driver_can_be_measured(gpu: Sim, tmp_path: Path, driver: int) -> None:
    done, measured = launch(gpu.with_env(DRIVER=driver), tmp_path)

    assert done.returncode == 0, done.stderr
    assert measured == 1
    (told,) = kept(tmp_path / "state")
    assert told.pauses["launch_gap_ns"] == pytest.approx(GAP_NS, abs=50)


def test_each_instance_of_a_split_gpu_is_its_own(gpu: Sim, tmp_path: Path) -> None:
    done, measured = launch(gpu.with_env(MIG=2), tmp_path)

    assert (done.returncode, measured, len(kept(tmp_path / "state"))) == (0, 1, 1)


def test_a_gpu_without_pauses_is_none(sim: Sim, tmp_path: Path) -> None:
    done, measured = launch(sim, tmp_path)

    assert (done.returncode, measured, kept(tmp_path / "state")) == (0, 1, [])


FAULTS = [
    "cuModuleLoadData@1=222",  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    "cuModuleLoadData@1=221",  # the compiler is not there
    "cuModuleGetFunction@1=500",
    "cuModuleGetGlobal_v2@1=500",
    "cuEventCreate@3=2",
    "cuEventElapsedTime@3=999",
    "cuMemcpyDtoHAsync_v2@5=1",
    "cuGraphLaunch@1=1",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_where_measuring_fails_bounds_hold_and_it_is_said_once(
    gpu: Sim, tmp_path: Path, fault: str
) -> None:
    done, _ = launch(gpu.with_env(FAULTS=fault), tmp_path)

    assert done.returncode == 0
    assert done.stderr.count("not known") == 1
    assert kept(tmp_path / "state") == []
    _, again = launch(gpu, tmp_path)
    assert again == 1
    assert len(kept(tmp_path / "state")) == 1


def test_a_driver_that_makes_no_graphs_tells_all_else(gpu: Sim, tmp_path: Path) -> None:
    launch(
        gpu.with_env(FAULTS="cuGraphInstantiateWithFlags@*=801;cuGraphInstantiate_v2@*=801"),
        tmp_path,
    )

    (told,) = kept(tmp_path / "state")
    assert told.pauses["launch_gap_ns"] == pytest.approx(GAP_NS, abs=50)


@pytest.mark.parametrize("call", ["cuModuleLoadData@1", "cuEventElapsedTime@5", "cuModuleUnload@1"])
def test_who_is_killed_meanwhile_leaves_nothing(gpu: Sim, tmp_path: Path, call: str) -> None:
    done, _ = launch(gpu.with_env(FAULTS=f"{call}=kill"), tmp_path)

    assert done.returncode == -9
    assert kept(tmp_path / "state") == []
    done, measured = launch(gpu, tmp_path)
    assert (done.returncode, measured) == (0, 1)


def test_processes_that_come_at_once_keep_one_file(gpu: Sim, tmp_path: Path) -> None:
    names = {
        "GPUFENCE_CORE_LIMIT": "50",
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        "GPUFENCE_CONTAINER": "both",
        CALIBRATES: "1",
    }
    done = run_together(gpu, tmp_path, [("cores_paces", "launch")] * 3, env=names)

    assert [each.returncode for each in done] == [0, 0, 0]
    assert len(kept(tmp_path / "state")) <= 1  # somebody else used the GPU, perhaps all the time


def test_what_is_measured_in_part_is_not_kept(gpu: Sim, tmp_path: Path) -> None:
    """It is used, and whoever comes when the GPU is free measures all."""
    names = {"GPUFENCE_STATE_DIR": str(tmp_path / "state"), "GPUFENCE_LOG_LEVEL": "info"}
    limited = {"GPUFENCE_CORE_LIMIT": "50", "GPUFENCE_CONTAINER": "limited", CALIBRATES: "1"}
    busy = {"GPUFENCE_CONTAINER": "busy"}
    commands = [("cores_paces", "launch"), ("cores_tenant", 600, *BUSY)]

    done, _ = run_together(
        gpu.with_env(CONTEXT_BYTES=0), tmp_path, commands, env=names, own=[limited, busy]
    )

    assert done.returncode == 0
    assert done.stderr.count("pauses around kernels are not known") == 1
    assert kept(tmp_path / "state") == []
    _, again = launch(gpu, tmp_path)
    assert again == 1
    assert len(kept(tmp_path / "state")) == 1


def test_who_starts_beside_a_busy_container_has_its_share_all_the_same(
    gpu: Sim, tmp_path: Path
) -> None:
    """By bounds kernels of 10 us had 44 % at 50, also when the neighbour was gone."""
    limited = {
        "GPUFENCE_CORE_LIMIT": "50",
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        "GPUFENCE_CONTAINER": "limited",
        CALIBRATES: "1",
    }
    busy = {"GPUFENCE_STATE_DIR": str(tmp_path / "other"), "GPUFENCE_CONTAINER": "busy"}
    commands = [
        ("cores_tenant", 3_000, 50, 10, 3, "ahead", 4),
        ("cores_tenant", 200, *BUSY),
    ]

    done, _ = run_together(gpu.with_env(CONTEXT_BYTES=0), tmp_path, commands, own=[limited, busy])

    assert done.facts["seconds"][1:] == pytest.approx([50, 50], abs=1.5)


def test_what_others_measure_later_is_reckoned_with(gpu: Sim, tmp_path: Path) -> None:
    """Within some seconds, where a program has bounds since it started beside a busy one."""
    node = tmp_path / "node"
    node.mkdir()
    names = {CALIBRATES: "1", "GPUFENCE_LOG_LEVEL": "info", "GPUFENCE_NODE_DIR": str(node)}
    own = [
        {
            "GPUFENCE_CORE_LIMIT": limit,
            "GPUFENCE_CONTAINER": name,
            "GPUFENCE_STATE_DIR": str(tmp_path / name),
        }
        for name, limit in (("first", "10"), ("busy", "0"), ("later", "50"))
    ]
    # Launches that wait on the GPU have no pauses around them that matter.
    own[0]["GPUFENCE_SIM_FAULTS"] = "cuStreamBatchMemOp_v2@*=801"
    commands = [
        ("cores_tenant", 11_000, 250, 3.2, 14),
        ("cores_tenant", 200, *BUSY),
        ("cores_paces", "late"),
    ]

    first, _, later = run_together(
        gpu.with_env(CONTEXT_BYTES=0), tmp_path, commands, env=names, own=own
    )

    assert "as measured" in later.stderr
    assert first.stderr.count("pauses around kernels are not known") == 1
    assert first.stderr.count("as somebody measured them") == 1
    assert max(first.facts["seconds"][1:4]) < 9.2
    assert first.facts["seconds"][-1] == pytest.approx(10, abs=0.4)


def test_nobody_measures_while_a_capture_is_open(gpu: Sim, tmp_path: Path) -> None:
    """The first launches go on with bounds, and what is captured is left alone."""
    done, measured = launch(gpu, tmp_path, "captures")

    assert (done.returncode, measured) == (0, 1), done.stderr
    calls = (tmp_path / "calls0").read_text(encoding="utf-8")
    assert calls.index("cuStreamEndCapture") < calls.index("cuModuleGetGlobal_v2")
    assert len(kept(tmp_path / "state")) == 1


@pytest.mark.parametrize("way", ["threads", "cancelled"])
def test_one_thread_measures_for_all(gpu: Sim, tmp_path: Path, way: str) -> None:
    log = tmp_path / "calls"
    names = {
        "GPUFENCE_CORE_LIMIT": "50",
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        CALIBRATES: "1",
    }

    done = gpu.with_env(LOG=str(log)).run("cores_paces", way, preload=True, env=names)

    assert done.returncode == 0, done.stderr
    assert log.read_text(encoding="utf-8").count("cuModuleGetGlobal_v2 ") == 1


def test_a_full_container_is_not_measured_beyond_its_memory(gpu: Sim, tmp_path: Path) -> None:
    done, measured = launch(gpu, tmp_path, "full", GPUFENCE_MEMORY_LIMIT="2g")

    assert (done.returncode, measured) == (0, 0), done.stderr
    assert "leaves none" in done.stderr


def test_without_a_folder_to_keep_it_in_it_is_measured_all_the_same(
    gpu: Sim, tmp_path: Path
) -> None:
    node = tmp_path / "node"

    done, measured = launch(gpu, tmp_path, GPUFENCE_NODE_DIR=str(node))

    assert (done.returncode, measured) == (0, 1)
    assert not node.exists()
    assert len(kept(tmp_path / "state")) == 1
    shutil.rmtree(tmp_path / "state")


def test_no_program_launches_more_than_before_without_a_core_limit(
    gpu: Sim, tmp_path: Path
) -> None:
    done, measured = launch(gpu, tmp_path, GPUFENCE_CORE_LIMIT="0", GPUFENCE_MEMORY_LIMIT="4g")

    assert (done.returncode, measured) == (0, 0)


@pytest.fixture
def calibrate(gpu: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`gpufence calibrate`, whose process is in virtual time."""

    def run(*arguments: str, **env: str) -> int:
        world = tmp_path / f"world{len(list(tmp_path.glob('world*')))}"
        world.write_bytes(b"")
        names = gpu.environment(False, env) | {
            "LD_PRELOAD": str(gpu.build / "tests" / "virtual_time.so"),
            "GPUFENCE_NODE_DIR": str(tmp_path / "node"),
            "GPUFENCE_TEST_WORLD": str(world),
            "GPUFENCE_TEST_WORLD_SIZE": "1",
            "GPUFENCE_TEST_WORLD_PLACE": "0",
        }
        for name, text in names.items():
            monkeypatch.setenv(name, text)
        library = str(gpu.build / "lib" / "libgpufence.so")
        return cli.main(["calibrate", "--library", library, *arguments])

    (tmp_path / "node").mkdir()
    return run


def test_an_operator_measures_once_for_all_containers(
    gpu: Sim, tmp_path: Path, calibrate: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate("--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["gpus"]
    (found,) = kept(tmp_path / "node")

    assert (told["gpu"], told["pauses"], told["path"]) == (0, found.pauses, str(found.path))
    _, measured = launch(gpu, tmp_path, GPUFENCE_NODE_DIR=str(tmp_path / "node"))
    assert measured == 0


def test_the_operators_numbers_replace_what_was_kept(
    tmp_path: Path, calibrate: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate() == 0
    rewrite(only(tmp_path / "node"), 72, struct.pack("<I", PROBE))

    assert calibrate("--gpu", "0") == 0

    (found,) = kept(tmp_path / "node")
    assert found.pauses["launch_gap_ns"] == pytest.approx(GAP_NS, abs=50)
    assert capsys.readouterr().out.count("GPU 0: ") == 2


@pytest.mark.parametrize(
    ("arguments", "env", "status", "why"),
    [
        (("--gpu", "7"), {}, 3, "cuDeviceGet returned 101"),
        (("--gpu", "-1"), {}, 2, "count from 0"),
        ((), {"GPUFENCE_SIM_LAUNCH_GAP_NS": "0"}, 1, "without pauses"),
        ((), {"GPUFENCE_SIM_FAULTS": "cuModuleLoadData@1=221"}, 1, "cannot compile the kernel"),
    ],
)
def test_what_is_not_measured_is_said(
    tmp_path: Path,
    calibrate: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    env: dict[str, str],
    status: int,
    why: str,
) -> None:
    assert calibrate(*arguments, **env) == status

    assert why in capsys.readouterr().err
    assert kept(tmp_path / "node") == []
