"""What a container pays for code, heaps, stacks and first launches.

Every figure is what still fits below a limit of 4 GiB, in MiB. An empty context of the simulated
driver takes 526 MiB, and small code fits beside it (small modules leave an H200's free memory as it
is, too); a byte of stack costs 132 x 2048 bytes.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.charges import MIB
from tests.support.machine import Sim
from tests.support.region_file import charged

from .test_contexts import limited

ROOM = 4096 - 526
DEEP = 1848  # 7 KiB above the 1 KiB that every context has, for 132 x 2048 threads


def facts(sim: Sim, tmp_path: Path, case: str, **more: str) -> dict[str, int]:
    """Run one case of the program under a limit of 4 GiB."""
    done = sim.run("memory_code", case, preload=True, env=limited(tmp_path, **more))
    assert done.stderr == ""
    answer: dict[str, int] = done.facts
    return answer


def test_globals_are_paid_while_their_module_is_loaded(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "globals") == {
        "before": ROOM,
        "loaded": ROOM - 64,
        "unloaded": ROOM,
    }


def test_module_that_brings_the_container_above_its_limit_is_undone(
    sim: Sim, tmp_path: Path
) -> None:
    assert facts(sim, tmp_path, "globals_refused") == {
        "module": 2,
        "untouched": 1,
        "room": 32,
        "listed": 4096 - 32,
    }


def test_globals_of_a_library_are_paid_when_they_appear(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "library") == {
        "loaded": ROOM,
        "free": ROOM - 64,
        "asked": ROOM - 64,
        "unloaded": ROOM,
    }


def test_globals_of_a_library_come_with_whatever_is_asked_of_it_first(
    sim: Sim, tmp_path: Path
) -> None:
    assert facts(sim, tmp_path, "placed") == {
        "function": ROOM - 64,
        "launch": ROOM - 64,
        "module": ROOM - 64,
        "unloaded": ROOM,
    }


def test_who_brings_globals_that_do_not_fit_is_given_nothing(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "placed_refused") == {
        "function": 2,
        "launch": 2,
        "module": 2,
        "variable": 2,
        "untouched": 1,
    }


def charged_mib(sim: Sim, tmp_path: Path, case: str, **more: str) -> int:
    """What the region says when the program is killed at the case's end, in MiB."""
    env = limited(tmp_path, **more)
    assert sim.run("memory_code", case, preload=True, env=env).returncode == -signal.SIGKILL
    return charged(Path(env["GPUFENCE_STATE_DIR"])) // MIB


def test_many_small_libraries_are_counted_though_nobody_asks_for_memory(
    sim: Sim, tmp_path: Path
) -> None:
    """A sibling that fills the container up reads only what it holds itself."""
    assert charged_mib(sim, tmp_path, "many_libraries") == 526 + 16 * 24


def test_code_of_many_functions_is_counted_though_nobody_asks_for_memory(
    sim: Sim, tmp_path: Path
) -> None:
    """Asking for the same function again costs no look at the driver."""
    log = tmp_path / "calls"
    lazy = {"CUDA_MODULE_LOADING": "LAZY", "GPUFENCE_SIM_LOG": str(log)}

    assert charged_mib(sim, tmp_path, "many_functions", **lazy) > 526 + 15 * 24 - 3 * 24

    assert log.read_text(encoding="utf-8").count("cuMemGetInfo_v2") < 100


def test_a_kernel_takes_its_stack_in_every_context(sim: Sim, tmp_path: Path) -> None:
    """Two of 1848 MiB and two contexts do not fit into 4 GiB."""
    assert facts(sim, tmp_path, "launched_in_both") == {
        "first": 0,
        "after first": ROOM - DEEP,
        "second": 2,
        "second again": 2,
        "after second": ROOM - DEEP - 526,
    }


def test_heap_and_stack_limits_are_refused_before_and_paid_while_set(
    sim: Sim, tmp_path: Path
) -> None:
    assert facts(sim, tmp_path, "heap") == {
        "before": ROOM,
        "heap of 264 MiB": ROOM - 256,
        "heap of 8 MiB": ROOM,
        "heap of 8 GiB": 2,
        "stack of 64 KiB": 2,
        "heap": 8,
        "driver's own refusal": 1,
        "after": ROOM,
    }


def test_a_view_shows_what_went_back_beside_managed_memory(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "heap_beside_managed") == {"free": ROOM}


def test_stack_of_a_first_launch_is_reserved_and_paid_once(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "launches") == {
        "plain": 0,
        "after plain": ROOM,
        "deep": 0,
        "after deep": ROOM - DEEP,
        "deep again": 0,
        "deep_too": 0,
        "after deep_too": ROOM - DEEP,
        "deepest": 2,
        "after deepest": ROOM - DEEP,
        "stack back": ROOM,
        "deep once more": 0,
        "after deep once more": ROOM - DEEP,
    }


def test_capture_survives_first_launches_and_their_refusal(sim: Sim, tmp_path: Path) -> None:
    assert facts(sim, tmp_path, "captured") == {
        "plain": 0,
        "deep": 0,
        "deepest": 2,
        "end": 0,
        "nodes": 2,
    }


def test_every_launch_refuses_a_stack_that_does_not_fit(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    codes = facts(sim, tmp_path, "doors", GPUFENCE_SIM_LOG=str(log))

    assert set(codes.values()) == {2}
    assert not [name for name in log.read_text(encoding="utf-8").split() if "cuLaunch" in name]


def test_without_a_process_list_every_step_is_measured_by_itself(sim: Sim, tmp_path: Path) -> None:
    blind = {"GPUFENCE_SIM_FAULTS": "nvmlDeviceGetComputeRunningProcesses_v3@*=3"}

    assert facts(sim, tmp_path, "globals", **blind)["loaded"] == ROOM - 64
    assert facts(sim, tmp_path, "globals", **blind)["unloaded"] == ROOM
    assert facts(sim, tmp_path, "library", **blind)["asked"] == ROOM - 64
    assert facts(sim, tmp_path, "heap", **blind)["after"] == ROOM
    assert facts(sim, tmp_path, "launches", **blind)["after deep once more"] == ROOM - DEEP
