"""Inside a limit, CUDA and NVML show a GPU of that size, in processes with and without CUDA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest

from tests.support.machine import Sim

MIB = 1 << 20
GIB = 1 << 30
CARD = 143155 * MIB
RESERVED = 616 * MIB
CONTEXT = 526 * MIB

NOT_INITIALIZED = 3
ILLEGAL_ADDRESS = 700
CONTEXT_IS_DESTROYED = 709
INVALID_ARGUMENT = 2
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13  # how driver 580 answers an unknown version (nvml_basic/memory_v2.*)


@dataclass(frozen=True, slots=True)
class Viewer:
    """A running view_commands."""

    process: Popen[str]
    pid: int

    def tell(self, *words: str | int) -> str:
        """One command, its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"ended at {words}: {self.process.stderr and self.process.stderr.read()}"
        return answer.strip("\n")

    def ask(self, *words: str | int) -> list[int]:
        """One command, its numbers."""
        return [int(word) for word in self.tell(*words).split()]

    def does(self, *words: str | int) -> None:
        """A command that must succeed."""
        assert self.ask(*words)[0] == 0, words

    def said(self) -> str:
        """Ends it; what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=60)
        return errors


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The container's state directory."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@contextmanager
def viewer(
    sim: Sim, state: Path, limit: str | None = "4g", env: Mapping[str, str] | None = None
) -> Iterator[Viewer]:
    """Run view_commands; its container's state lies in `state`."""
    settings = {"GPUFENCE_STATE_DIR": str(state), **(env or {})}
    if limit is not None:
        settings["GPUFENCE_MEMORY_LIMIT"] = limit
    process = sim.spawn("view_commands", preload=True, env=settings)
    assert process.stdout
    try:
        ready, pid = process.stdout.readline().split()
        assert ready == "ready"
        yield Viewer(process, int(pid))
    finally:
        process.kill()
        process.communicate()


def test_cuda_shows_a_gpu_of_the_limits_size(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as program:
        program.does("cuda", 0)
        before = program.ask("info")
        program.does("alloc", 100 * MIB)

        after = program.ask("info")

        assert before[2] == after[2] == 4 * GIB
        assert before[1] - after[1] == 100 * MIB
        assert program.ask("totals", 0)[:2] == [0, 4 * GIB]


def test_the_32_bit_forms_never_show_more_than_the_limit(sim: Sim, state: Path) -> None:
    with viewer(sim, state, limit="1g") as program:
        program.does("cuda", 0)
        _, free, total, rc, free32, total32 = program.ask("info")

        assert (rc, total) == (0, GIB)
        assert (free32, total32) == (free, total)
        assert program.ask("totals", 0) == [0, GIB, 0, GIB]


def test_every_form_of_nvml_agrees_with_cuda(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as program:
        program.does("cuda", 0)
        program.does("alloc", 300 * MIB)

        _, free, total, *_ = program.ask("info")
        rc, total1, free1, used1, rc2, total2, reserved2, free2, used2 = program.ask("nvml", 0)

        assert (rc, rc2) == (0, 0)
        assert total1 == total2 == total == 4 * GIB
        assert free1 == free2 == free
        assert used1 == used2 == total - free
        assert used2 >= 300 * MIB
        assert total2 == reserved2 + free2 + used2


def test_a_process_without_cuda_sees_the_same(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as worker, viewer(sim, state) as monitor:
        worker.does("cuda", 0)
        worker.does("alloc", 200 * MIB)

        assert monitor.ask("nvml", 0) == worker.ask("nvml", 0)
        assert monitor.ask("nvml", 0)[3] >= 200 * MIB


def test_a_process_without_cuda_takes_no_part_and_makes_nothing(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as monitor:
        assert monitor.ask("nvml", 0)[:4] == [0, 4 * GIB, 4 * GIB, 0]
        assert list(state.iterdir()) == []

        with viewer(sim, state) as worker:
            worker.does("cuda", 0)
            worker.does("nvml", 0)
            (region,) = state.iterdir()
            monitor.ask("nvml", 0)

            slots = int.from_bytes(region.read_bytes()[20:24], "little")
            assert slots == 1


def test_the_dead_are_not_shown(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as worker, viewer(sim, state) as monitor:
        worker.does("cuda", 0)
        worker.does("alloc", 200 * MIB)
        assert monitor.ask("nvml", 0)[3] >= 200 * MIB

        worker.process.kill()
        worker.process.wait()

        assert monitor.ask("nvml", 0)[3] == 0


def test_without_a_limit_the_numbers_are_the_drivers(sim: Sim, state: Path) -> None:
    with viewer(sim, state, limit=None) as program:
        program.does("cuda", 0)

        _, free, total, *_ = program.ask("info")
        rc, total1, free1, used1, rc2, total2, reserved2, free2, used2 = program.ask("nvml", 0)

        assert total == CARD
        assert (total1, total2, reserved2) == (CARD + RESERVED, CARD + RESERVED, RESERVED)
        assert free == free1 == free2 == CARD - CONTEXT
        assert (used1, used2) == (CONTEXT + RESERVED, CONTEXT)
        assert (rc, rc2) == (0, 0)


def test_free_is_at_most_what_the_card_has_left(sim: Sim, state: Path, tmp_path: Path) -> None:
    small = sim.with_env(MEMORY="8g")
    other = tmp_path / "other"
    other.mkdir()
    with viewer(small, state) as program, viewer(small, other, limit=None) as neighbour:
        neighbour.does("cuda", 0)
        neighbour.does("alloc", 6 * GIB)
        program.does("cuda", 0)

        _, free, total, *_ = program.ask("info")
        _, total1, free1, used1, _, total2, reserved2, free2, used2 = program.ask("nvml", 0)

        assert total == total1 == total2 == 4 * GIB
        assert free == free1 == free2 == 2 * GIB - 2 * CONTEXT
        assert used1 == used2 < GIB
        assert reserved2 == total2 - free2 - used2 > 0


def asked(log: Path) -> int:  # times that the driver was
    return log.read_text("utf-8").count("cuMemGetInfo_v2")


def test_who_asks_again_at_once_gets_the_limits_answer(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with viewer(sim, state, env={"GPUFENCE_SIM_LOG": str(log)}) as program:
        program.does("cuda", 0)
        program.does("clock", 0)
        _, free, _ = program.ask("ask")
        before = asked(log)
        program.does("alloc", 100 * MIB)

        for _ in range(3):
            assert program.ask("ask") == [0, free - 100 * MIB, 4 * GIB]

        assert asked(log) == before
        program.does("clock", 100_000)
        assert program.ask("ask") == [0, free - 100 * MIB, 4 * GIB]
        assert asked(log) == before + 1


def test_the_driver_is_asked_while_it_may_have_less_than_the_limit_leaves(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    small = sim.with_env(MEMORY="12g")
    other = tmp_path / "other"
    other.mkdir()
    with viewer(small, state) as program, viewer(small, other, limit=None) as neighbour:
        neighbour.does("cuda", 0)
        program.does("cuda", 0)
        program.does("clock", 0)
        assert program.ask("ask")[1] > 3 * GIB
        neighbour.does("alloc", 10 * GIB)

        assert program.ask("ask") == [0, 2 * GIB - 2 * CONTEXT, 4 * GIB]


def test_an_answer_for_one_gpu_says_nothing_about_another(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    two = sim.with_env(GPUS=2)
    other = tmp_path / "other"
    other.mkdir()
    left = 2 * GIB + MIB  # so that whole chunks are taken
    with viewer(two, state) as program, viewer(two, other, limit=None) as neighbour:
        neighbour.does("cuda", 1)
        neighbour.does("alloc", CARD - left)
        program.does("clock", 0)
        program.does("cuda", 0)
        assert program.ask("ask")[1] > 3 * GIB

        program.does("cuda", 1)

        assert program.ask("ask") == [0, left - 2 * CONTEXT, 4 * GIB]


def test_a_context_that_ended_is_told_at_once(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as program:
        program.does("cuda", 0)
        program.does("clock", 0)
        assert program.ask("ask")[0] == 0

        program.does("elsewhere")

        assert program.ask("ask")[0] == CONTEXT_IS_DESTROYED


def test_a_context_that_failed_is_told_at_once(sim: Sim, state: Path) -> None:
    faults = "cuCtxGetStreamPriorityRange@2=700;cuMemGetInfo_v2@2=700"
    with viewer(sim, state, env={"GPUFENCE_SIM_FAULTS": faults}) as program:
        program.does("cuda", 0)
        program.does("clock", 0)

        codes = [program.ask("ask")[0] for _ in range(3)]

        assert codes == [0, 0, ILLEGAL_ADDRESS]


def test_a_forked_child_gets_the_drivers_code(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as program:
        program.does("cuda", 0)
        program.does("clock", 0)
        assert program.ask("ask")[0] == 0

        program.does("fork")

        assert program.ask("ask")[0] == NOT_INITIALIZED


def test_used_never_passes_a_limit_that_was_lowered(sim: Sim, state: Path) -> None:
    with viewer(sim, state, limit="4g") as first, viewer(sim, state, limit="1g") as second:
        first.does("cuda", 0)
        first.does("alloc", 2 * GIB)
        second.ask("cuda", 0)

        _, total1, free1, used1, _, total2, reserved2, free2, used2 = first.ask("nvml", 0)

        assert (total1, free1, used1) == (GIB, 0, GIB)
        assert (total2, reserved2, free2, used2) == (GIB, 0, 0, GIB)
        assert first.ask("info")[1:3] == [0, GIB]


def test_odd_arguments_get_the_drivers_answer(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as fenced, viewer(sim, state, limit=None) as bare:
        fenced.does("cuda", 0)
        bare.does("cuda", 0)

        assert fenced.ask("odd", 0) == bare.ask("odd", 0)
        assert fenced.ask("odd", 0)[0] == FUNCTION_NOT_FOUND
        assert fenced.ask("odd", 0)[4] == 0
        assert fenced.ask("nulls") == bare.ask("nulls")


def test_an_unreadable_limit_leaves_nvml_alone_and_says_so_once(sim: Sim, state: Path) -> None:
    with viewer(sim, state, limit="-1g") as program:
        for _ in range(3):
            assert program.ask("nvml", 0)[1] == CARD + RESERVED

        lines = program.said().splitlines()

    assert len(lines) == 1
    assert "NVML shows the whole GPU" in lines[0]
    assert "-1g" in lines[0]


def test_ordinals_mean_what_they_mean_to_the_processes_that_use_cuda(sim: Sim, state: Path) -> None:
    two = sim.with_env(GPUS=2)
    env = {"GPUFENCE_MEMORY_LIMIT_0": "2g"}
    with viewer(two, state, None, env) as monitor:
        assert monitor.ask("nvml", 0)[1] == 2 * GIB

        with viewer(two, state, None, env | {"CUDA_VISIBLE_DEVICES": "1"}) as worker:
            worker.does("cuda", 0)
            for program in (monitor, worker):
                assert program.ask("nvml", 1)[1] == 2 * GIB


def test_a_forked_child_looks_by_itself(sim: Sim, state: Path) -> None:
    with viewer(sim, state) as worker, viewer(sim, state) as monitor:
        worker.does("cuda", 0)
        worker.does("alloc", 200 * MIB)
        before = monitor.ask("nvml", 0)

        monitor.does("fork")

        assert monitor.ask("nvml", 0) == before


@pytest.mark.parametrize("command", ["processes 0 64 1", "details 0 64"])
def test_lists_hold_the_containers_processes_only(
    sim: Sim, state: Path, tmp_path: Path, command: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ExitStack() as stack:
        first, second, monitor = (stack.enter_context(viewer(sim, state)) for _ in range(3))
        neighbour = stack.enter_context(viewer(sim, other))
        for program in (first, second, neighbour):
            program.does("cuda", 0)

        for program in (first, monitor):
            rc, count, *pids = program.ask(*command.split())
            assert (rc, count, set(pids)) == (0, 2, {first.pid, second.pid})


def test_a_list_without_room_tells_how_many_of_ours_there_are(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ExitStack() as stack:
        first, second, monitor = (stack.enter_context(viewer(sim, state)) for _ in range(3))
        neighbour = stack.enter_context(viewer(sim, other))
        assert monitor.ask("processes", 0, 0, 0) == [0, 0]
        for program in (first, second, neighbour):
            program.does("cuda", 0)

        assert monitor.ask("processes", 0, 0, 0) == [INSUFFICIENT_SIZE, 2]
        assert monitor.ask("processes", 0, 1, 1) == [INSUFFICIENT_SIZE, 2]
        assert monitor.ask("processes", 0, 2, 1)[:2] == [0, 2]
        assert monitor.ask("processes", 0, 4, 0)[0] == INVALID_ARGUMENT


def test_without_a_limit_the_lists_are_the_drivers(sim: Sim, state: Path) -> None:
    with ExitStack() as stack:
        fenced = stack.enter_context(viewer(sim, state))
        bare = stack.enter_context(viewer(sim, state, limit=None))
        for program in (fenced, bare):
            program.does("cuda", 0)

        assert set(bare.ask("processes", 0, 64, 1)[2:]) == {fenced.pid, bare.pid}


def test_the_name_is_the_given_one_where_it_fits(sim: Sim, state: Path) -> None:
    with viewer(sim, state, env={"VCUDA_DEVICE_NAME": "Fenced 4G"}) as program:
        assert program.tell("name", 0, 96) == "0 Fenced 4G|#"
        assert program.tell("name", 0, 10) == "0 Fenced 4G|#"
        assert program.tell("name", 0, 9).startswith(f"{INSUFFICIENT_SIZE} ")


def test_the_name_is_the_given_one_without_a_limit_too(sim: Sim, state: Path) -> None:
    given = {"VCUDA_DEVICE_NAME": "Fenced 4G"}
    with viewer(sim, state, limit=None, env=given) as program:
        assert program.tell("name", 0, 96) == "0 Fenced 4G|#"
