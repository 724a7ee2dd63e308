"""A core limit in mode mps: MPS holds threads, the library holds memory and no GPU time.

What MPS makes of a percentage is the driver's and not imitated: here a program runs as if it had
none, so whatever holds it back is ours.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpufence.config import limits
from gpufence.config.sources import System

from tests.memory.test_views import GIB, viewer
from tests.support.live import ask
from tests.support.machine import Sim

from .tenants import Tenant, meet
from .test_frozen import freeze, launcher

INVALID_VALUE = 1
SERVER = {"GPUFENCE_SIM_MPS": "1"}
MODE = {"GPUFENCE_CORE_MODE": "mps"}
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def by_threads(percent: int) -> dict[str, str]:
    """What `gpufence run --mode mps` sets beside the limit."""
    return {**MODE, THREADS: str(percent)}


@pytest.fixture
def mps(sim: Sim) -> Sim:
    """A machine with a multi-process server."""
    return sim.with_env(MPS=1)


def test_no_gpu_time_is_charged_and_nothing_is_held(sim: Sim, tmp_path: Path) -> None:
    programs = (("decoder", 30), ("saturate 5", 10))
    by_time = [Tenant(program, limit) for program, limit in programs]
    ours = [Tenant(program, limit, by_threads(limit)) for program, limit in programs]

    bare = meet(sim, tmp_path, by_time, preload=False, machine=SERVER, ms=1_000)
    held = meet(sim, tmp_path, by_time, machine=SERVER, ms=1_000)
    fenced = meet(sim, tmp_path, ours, machine=SERVER, ms=1_000)

    assert [each["busy"] for each in fenced] == pytest.approx([each["busy"] for each in bare])
    assert fenced[0]["p99_ms"] == pytest.approx(bare[0]["p99_ms"], rel=0.01)
    # In mode time the same limit holds.
    assert held[1]["busy"] < 20 < bare[1]["busy"]


@pytest.mark.parametrize("given", ["30", "12.5"])
def test_the_memory_limit_is_the_same_in_mode_mps(mps: Sim, tmp_path: Path, given: str) -> None:
    facts = []
    for name, extra in (
        ("memory", {}),
        ("both", {**MODE, "GPUFENCE_CORE_LIMIT": "30", THREADS: given}),
    ):
        state = tmp_path / name
        env = {"GPUFENCE_MEMORY_LIMIT": "2g", "GPUFENCE_STATE_DIR": str(state), **extra}
        done = mps.run("memory_room", preload=True, env=env)
        assert done.stderr == ""
        facts.append(done.facts)

    assert facts[0] == facts[1]


def test_a_container_with_threads_alone_can_be_found_and_changed(mps: Sim, tmp_path: Path) -> None:
    env = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_STATE_DIR": str(tmp_path / "state")}
    env |= {"GPUFENCE_CONTAINER": "threads", **by_threads(30)}

    mps.run("limit_probe", preload=True, env=env)

    assert len(list((tmp_path / "state").glob("gpufence-threads.v*"))) == 1


def test_a_container_with_threads_alone_can_be_frozen(mps: Sim, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    machine = Sim(mps.build, mps.state, {**mps.env, THREADS: "60"})
    with launcher(machine, state, {"CORE_LIMIT": "60", "CORE_MODE": "mps"}) as process:
        freeze(state)
        ask(process, "start", "kernel")
        assert ask(process, "settled") == 0

        freeze(state, frozen=False)

        assert ask(process, "join") > 0


def test_what_mps_holds_is_logged_as_what_the_library_holds(mps: Sim, tmp_path: Path) -> None:
    env = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_STATE_DIR": str(tmp_path / "state")}

    done = mps.run(
        "limit_probe", preload=True, env={**env, **by_threads(20), "GPUFENCE_LOG_LEVEL": "info"}
    )

    said = "MPS gives 20.000 % of its threads, 30.000 at most (GPUFENCE_CORE_LIMIT=30)"
    assert f"gpufence: device 0: {said}" in done.stderr.splitlines()
    assert "core limit" not in done.stderr


@pytest.mark.parametrize(
    ("machine", "env", "why"),
    [
        ({}, {THREADS: "30"}, "no MPS server serves this program on GPU 0. Start "),
        ({"MPS": 1}, {}, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE says no percentage. Set it to 30 or"),
        ({"MPS": 1}, {THREADS: "half"}, "says no percentage"),
        ({"MPS": 1}, {THREADS: "0"}, "says no percentage"),
        ({"MPS": 1}, {THREADS: "30.5"}, "is above that. Set it to 30 or less"),
        ({"MPS": 1}, {THREADS: "30", "CUDA_DEVICE_SM_LIMIT": "20"}, "SM_LIMIT=20 allows 20 %"),
    ],
)
def test_a_program_that_mps_would_not_hold_is_refused_with_one_line(
    sim: Sim, tmp_path: Path, machine: dict[str, str | int], env: dict[str, str], why: str
) -> None:
    limit = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_STATE_DIR": str(tmp_path / "state"), **MODE}

    done = sim.with_env(**machine).run("limit_probe", preload=True, env={**limit, **env})

    assert done.facts == {"init": INVALID_VALUE}
    *warnings, line = done.stderr.splitlines()
    assert all("because it is lower than" in each for each in warnings)
    assert line.startswith("gpufence: cuInit fails on purpose: ")
    assert why in line


def test_a_program_of_nvml_alone_sees_the_memory_limit_without_mps(
    sim: Sim, tmp_path: Path
) -> None:
    """`nvidia-smi` has none of the container's variables for MPS, and uses none of its threads."""
    state = tmp_path / "state"
    state.mkdir()
    with viewer(sim, state, "2g", {"GPUFENCE_CORE_LIMIT": "30", **MODE}) as monitor:
        assert monitor.ask("nvml", 0)[1] == 2 * GIB
        assert monitor.said() == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be an operator")
@pytest.mark.parametrize(
    ("file", "mode", "holds"),
    [
        ("core_limit = 30\n", 0o644, ""),
        ("core_limit = 30\ncore_mode = time\n", 0o644, ""),
        ("core_limit = 30\ncore_mode = mps\n", 0o644, "GPUFENCE_CORE_MODE=mps"),
        ("memory_limit = 1g\n", 0o644, "GPUFENCE_CORE_MODE=mps"),
        ("core_limit = 30\n", 0o664, "GPUFENCE_CORE_MODE=mps"),
    ],
)
def test_an_operators_limit_of_gpu_time_stays_one(
    tmp_path: Path, file: str, mode: int, holds: str
) -> None:
    path = tmp_path / "etc" / "gpufence" / "gpufence.conf"
    path.parent.mkdir(parents=True)
    path.write_text(file, encoding="utf-8")
    path.chmod(mode)
    given = ("GPUFENCE_CORE_LIMIT=50", "GPUFENCE_CORE_MODE=mps")

    claims = limits.read(System(str(tmp_path), given))

    assert claims.mode_source == holds
    assert any("an operator's file limits GPU time" in each for each in claims.notes) == (not holds)
