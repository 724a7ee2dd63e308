"""Limits that an operator sets act on running processes, and hold for those that come later."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import Popen

import pytest
from gpufence.config.terms import Priority, Terms
from gpufence.state import limits_file, region
from gpufence.state import shared_layout as layout
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from tests.memory.test_views import CARD, GIB, MIB, Viewer, viewer
from tests.support.live import (
    NAME,
    ask,
    environment,
    limits_path,
    put,
    put_cores,
    put_memory,
    spinning,
)
from tests.support.machine import Sim

OUT_OF_MEMORY = 2
INVALID_VALUE = 1

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


def shown(program: Viewer) -> tuple[int, int]:
    """What cuMemGetInfo says: free and total."""
    rc, free, total, *_ = program.ask("info")
    assert rc == 0
    return free, total


def test_a_raised_limit_grants_the_next_request(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="1g")) as program:
        program.does("cuda", 0)
        assert program.ask("alloc", 3 * GIB // 2) == [OUT_OF_MEMORY]

        put_memory(state, 2 * GIB)

        assert shown(program) == (2 * GIB, 2 * GIB)
        assert program.ask("alloc", 3 * GIB // 2) == [0]


def test_a_limit_lowered_under_the_use_frees_nothing_and_refuses(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)
        program.does("alloc", 3 * GIB)

        put_memory(state, GIB)

        assert shown(program) == (0, GIB)
        assert program.ask("alloc", 1) == [OUT_OF_MEMORY]
        put_memory(state, 4 * GIB)
        assert shown(program) == (GIB, 4 * GIB)
        assert program.ask("alloc", GIB) == [0]


def test_what_is_taken_back_leaves_the_environments_limit(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="2g")) as program:
        program.does("cuda", 0)
        put_memory(state, GIB)
        assert shown(program)[1] == GIB

        put_memory(state, None)

        assert shown(program)[1] == 2 * GIB


def test_a_set_limit_holds_for_whoever_comes_later(bare: Sim, state: Path) -> None:
    env = environment(state, MEMORY_LIMIT="1g")
    with viewer(bare, state, limit=None, env=env) as first:
        first.does("cuda", 0)
        put_memory(state, 3 * GIB)
    with viewer(bare, state, limit=None, env=env) as second:
        second.does("cuda", 0)

        assert shown(second)[1] == 3 * GIB


def test_no_limit_can_be_set_too(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="1g")) as program:
        program.does("cuda", 0)

        put_memory(state, 0)

        assert shown(program)[1] > 100 * GIB
        assert program.ask("alloc", 8 * GIB) == [0]
        put_memory(state, 16 * GIB)
        assert shown(program) == (8 * GIB, 16 * GIB)


def test_a_part_of_the_gpu_is_a_part_of_the_gpu(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="1g")) as program:
        program.does("cuda", 0)

        put(state, {EVERY_GPU: Amounts(memory=25 * 10**9, memory_is_part=True)})

        (_, total) = shown(program)
        assert total == program.ask("totals", 0)[1]
        assert CARD // 4 - 200 * MIB < total <= CARD // 4


def test_a_gpu_that_is_named_is_limited_alone(bare: Sim, state: Path) -> None:
    two = bare.with_env(GPUS=2)
    with viewer(two, state, limit=None, env=environment(state, MEMORY_LIMIT="2g")) as program:
        program.does("cuda", 0)
        (path,) = region.find({}, str(state))
        uuid = region.read(path).devices[1].uuid
        named = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))

        put(state, {named: Amounts(memory=GIB), EVERY_GPU: Amounts(memory=3 * GIB)})

        assert program.ask("totals", 0)[:2] == [0, 3 * GIB]
        assert program.ask("totals", 1)[:2] == [0, GIB]


def test_a_prepared_container_needs_no_limit_of_its_own(bare: Sim, state: Path) -> None:
    limits_file.prepare((state,), NAME)
    with viewer(bare, state, limit=None, env=environment(state)) as program:
        program.does("cuda", 0)
        program.does("alloc", GIB)
        assert shown(program)[1] > 100 * GIB

        put_memory(state, 3 * GIB)

        assert shown(program) == (2 * GIB, 3 * GIB)
        assert program.ask("alloc", 5 * GIB // 2) == [OUT_OF_MEMORY]


def test_a_container_nobody_prepared_or_limited_is_left_alone(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state)) as program:
        program.does("cuda", 0)
        program.does("alloc", GIB)

        assert not state.exists()


def test_memory_taken_before_there_was_a_limit_counts(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, CORE_LIMIT="50")) as program:
        program.does("cuda", 0)
        program.does("alloc", 2 * GIB)

        put_memory(state, 3 * GIB)

        assert shown(program) == (GIB, 3 * GIB)


def test_a_monitor_without_cuda_shows_what_is_set(bare: Sim, state: Path) -> None:
    env = environment(state, MEMORY_LIMIT="2g")
    with (
        viewer(bare, state, limit=None, env=env) as program,
        viewer(bare, state, limit=None, env=env) as monitor,
    ):
        program.does("cuda", 0)
        program.does("alloc", GIB)
        assert monitor.ask("nvml", 0)[:4] == [0, 2 * GIB, GIB, GIB]

        put_memory(state, 4 * GIB)

        assert monitor.ask("nvml", 0)[:4] == [0, 4 * GIB, 3 * GIB, GIB]


def test_a_forked_child_is_under_what_is_set(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="2g")) as program:
        limits_file.prepare((state,), NAME)
        put_memory(state, GIB)
        program.does("fork")
        program.does("cuda", 0)

        assert shown(program)[1] == GIB


# ---- files that are not what they should be ----


def test_a_file_cut_short_changes_nothing_and_is_no_signal(bare: Sim, state: Path) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)
        put_memory(state, GIB)
        assert shown(program)[1] == GIB
        whole = limits_path(state).read_bytes()

        for length in (len(whole) - 1, 64 + 100, 63, 16, 0):
            os.truncate(limits_path(state), length)
            _announce_again(state)
            assert shown(program)[1] == GIB, length

        limits_path(state).unlink()
        _announce_again(state)
        assert shown(program)[1] == GIB
        put_memory(state, 2 * GIB)
        assert shown(program)[1] == 2 * GIB


@pytest.mark.parametrize("damage", ["zeros", "noise", "entry", "count", "generation", "short"])
def test_a_damaged_file_makes_cuinit_fail_with_one_line(
    bare: Sim, state: Path, damage: str
) -> None:
    state_of = limits_file.prepare((state,), NAME)
    put_memory(state, GIB)
    content = bytearray(state_of.read_bytes())
    bank = layout.structure("LimitsBytes").at("banks")  # generation 2: the first bank
    changed = {
        "zeros": bytes(len(content)),
        "noise": os.urandom(len(content)),
        "entry": content[: bank + 40] + b"\xff" + content[bank + 41 :],
        "count": content[: bank + 16] + b"\xff\xff" + content[bank + 18 :],
        "generation": content[:16] + b"\x09" + content[17:],
        "short": content[:100],
    }[damage]
    state_of.write_bytes(changed)

    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        assert program.ask("cuda", 0) == [INVALID_VALUE]
        said = program.said()

    assert said.count("\n") == 1
    assert "gpufence set NAME --reset" in said


@needs_root
@pytest.mark.parametrize("fault", ["owner", "group", "others", "link", "folder"])
def test_a_file_that_others_could_write_to_is_nobodys(bare: Sim, state: Path, fault: str) -> None:
    path = limits_file.prepare((state,), NAME)
    put_memory(state, GIB)
    if fault == "owner":
        os.chown(path, 12345, -1)
    elif fault == "group":
        path.chmod(0o664)
    elif fault == "others":
        path.chmod(0o646)
    elif fault == "link":
        path.rename(state / "elsewhere")
        path.symlink_to(state / "elsewhere")
    else:
        path.unlink()
        path.mkdir()

    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)

        assert shown(program)[1] == 4 * GIB
        said = program.said()
    assert said.count("\n") == (0 if fault == "link" else 1)


def test_another_layout_is_another_file(bare: Sim, state: Path) -> None:
    path = limits_file.prepare((state,), NAME)
    put_memory(state, GIB)
    path.rename(path.with_name(path.name + "7"))

    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)

        assert shown(program)[1] == 4 * GIB


def test_a_limit_set_for_the_process_alone_heeds_no_file(bare: Sim, state: Path) -> None:
    limits_file.prepare((state,), NAME)
    put_memory(state, GIB)
    env = environment(state, MEMORY_LIMIT="4g", SCOPE="process")
    with viewer(bare, state, limit=None, env=env) as program:
        program.does("cuda", 0)

        assert shown(program)[1] == 4 * GIB


def _announce_again(state: Path) -> None:
    """Make processes look again, as a writer does who ends its work."""
    (path,) = state.glob(f"gpufence-{NAME}.v*")
    limits_file.announce(path, limits_file.told(path) + 1)


# ---- GPU time ----

# Shares in real time on a machine that others use, too: far from each other, and nothing finer.
LOW, HIGH, FREE = (8, 38), (45, 85), (45, 101)
LOOKS = 6
KERNEL_US = 2000
LOOK_MS = 400


def comes_to(process: Popen[str], bounds: tuple[int, int]) -> bool:
    """Whether live_spin gets a share of GPU time within the bounds, sooner or later.

    Sooner than that a machine that is busy elsewhere may keep it from launching.
    """
    looks = (ask(process, "run", KERNEL_US, LOOK_MS) for _ in range(LOOKS))
    return any(bounds[0] < share < bounds[1] for share in looks)


def test_shares_change_while_launches_run(sim: Sim, state: Path) -> None:
    with spinning(sim, state, CORE_LIMIT="30") as process:
        assert comes_to(process, LOW)
        put_cores(state, 70)
        assert comes_to(process, HIGH)
        put_cores(state, 25)
        assert comes_to(process, LOW)
        put_cores(state, None)
        assert comes_to(process, LOW)


def test_a_share_can_begin_and_end_in_a_program_that_started_without(sim: Sim, state: Path) -> None:
    with spinning(sim, state, MEMORY_LIMIT="4g") as process:
        assert comes_to(process, FREE)
        put_cores(state, 30)
        assert comes_to(process, LOW)
        put_cores(state, 0)
        assert comes_to(process, FREE)
        put_cores(state, 30)
        assert comes_to(process, LOW)
        put_cores(state, None)
        assert comes_to(process, FREE)


def test_a_share_that_was_given_can_be_lifted(sim: Sim, state: Path) -> None:
    with spinning(sim, state, CORE_LIMIT="20") as process:
        assert comes_to(process, LOW)
        put_cores(state, 0)
        assert comes_to(process, FREE)


def test_idle_siblings_do_not_keep_an_old_share(sim: Sim, state: Path) -> None:
    with (
        spinning(sim, state, CORE_LIMIT="25") as process,
        spinning(sim, state, CORE_LIMIT="25") as sibling,
    ):
        ask(sibling, "run", KERNEL_US, 50)
        put_cores(state, 70)

        assert comes_to(process, HIGH)


def test_a_capture_survives_that_a_share_begins(sim: Sim, state: Path) -> None:
    with spinning(sim, state, MEMORY_LIMIT="4g") as process:
        assert ask(process, "capture") == 0

        put_cores(state, 30)

        assert ask(process, "end") == 0
        assert comes_to(process, LOW)


def test_a_later_process_starts_under_the_set_share(sim: Sim, state: Path) -> None:
    limits_file.prepare((state,), NAME)
    put_cores(state, 30)
    with spinning(sim, state) as process:
        assert comes_to(process, LOW)


def test_a_share_that_begins_leaves_the_programs_own_files_alone(sim: Sim, state: Path) -> None:
    """A daemon closes what it did not open, and gets the same numbers for its own files."""
    data = state.parent / "data"
    process = sim.with_env(GPUS=2).spawn(
        "closed_files", data, preload=True, env=environment(state, CORE_LIMIT_0="50")
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"

    put_cores(state, 30)
    out, said = process.communicate("\n", timeout=60)

    facts = json.loads(out)
    assert said == ""
    assert facts["bytes"] == 0
    assert facts["launches"] / facts["ms"] < HIGH[0] / 100


# ---- terms of core limits ----


def terms_held(log: Path) -> str:
    """What the library says last of the terms that hold."""
    lines = [line for line in log.read_text("utf-8").splitlines() if "core limits: " in line]
    return lines[-1].partition("core limits: ")[2] if lines else ""


def test_terms_change_while_a_program_runs_and_go_back(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    own = {"CORE_LIMIT": "50", "PRIORITY": "low", "WEIGHT": "3", "CORE_BURST": "20ms"}
    with spinning(sim, state, LOG_LEVEL="info", LOG_FILE=str(log), **own) as process:
        ask(process, "run", 100, 1)
        assert terms_held(log) == "priority low, weight 3, burst 20000000 ns, floor 0.000 %"

        put(state, {EVERY_GPU: Amounts(terms=Terms(Priority.HIGH, None, 0, 7_500))})
        ask(process, "run", 100, 1)
        assert terms_held(log) == "priority high, weight 3, burst 1 ns, floor 7.500 %"

        put(state, {})
        ask(process, "run", 100, 1)
        assert terms_held(log) == "priority low, weight 3, burst 20000000 ns, floor 0.000 %"


def test_a_later_process_starts_with_the_set_terms(sim: Sim, state: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits_file.prepare((state,), NAME)
    put(state, {EVERY_GPU: Amounts(cores=30_000, terms=Terms(weight=12))})
    with spinning(sim, state, LOG_LEVEL="info", LOG_FILE=str(log)):
        assert terms_held(log) == "priority normal, weight 12, burst 0 ns, floor 0.000 %"
