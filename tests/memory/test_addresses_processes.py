"""Several processes of a container: one limit, shared memory paid once, and nothing lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select

import pytest

from tests.support.charges import (
    BLOCK,
    GIB,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    Allocator,
    allocator,
    charged,
)
from tests.support.machine import Sim

PROCESSES = 8
THREADS = 4


@pytest.mark.parametrize(
    ("family", "size"),
    [("linear", 6 * MIB), ("async", 3 * BLOCK), ("managed_global", 2 * MIB), ("pitch", 10 * MIB)],
)
def test_processes_fill_the_limit_together_and_not_more(
    bare: Sim, state: Path, family: str, size: int
) -> None:
    """Whoever is first: the sum of what was granted is all that fits."""
    with ExitStack() as stack:
        fences = [stack.enter_context(allocator(bare, state)) for _ in range(PROCESSES)]
        room = GIB - charged(state)

        for fence in fences:
            fence.to.write(f"race {family} {size} {THREADS}\n")
            fence.to.flush()
        answers = [[int(word) for word in fence.answers.readline().split()] for fence in fences]

        assert [code for code, _ in answers] == [OUT_OF_MEMORY] * PROCESSES
        assert sum(grants for _, grants in answers) == room // size
        assert charged(state) == GIB - room + room // size * size


@dataclass(slots=True)
class Watcher:
    """A process without us that reads, as NVML sees it, what the machine holds."""

    process: subprocess.Popen[str]
    most: int = 0  # bytes, once it has ended

    def has_seen_enough(self) -> bool:
        """True once it has read a hundred times."""
        assert self.process.stderr
        return bool(select([self.process.stderr], [], [], 0)[0])


@contextmanager
def watched(sim: Sim) -> Iterator[Watcher]:
    """Somebody watches meanwhile."""
    process = sim.spawn("charge_watch")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    watcher = Watcher(process)
    try:
        yield watcher
    finally:
        watcher.most = int(process.communicate(timeout=60)[0].split()[0])


@pytest.mark.parametrize(
    ("family", "door", "size"),
    [("linear", "free", 40 * MIB), ("async", "free_async", 32 * MIB), ("pitch", "free", MIB)],
)
def test_a_storm_never_passes_the_limit_and_leaves_nothing(
    bare: Sim, state: Path, family: str, door: str, size: int
) -> None:
    with ExitStack() as stack:
        fences = [stack.enter_context(allocator(bare, state)) for _ in range(PROCESSES)]
        before = charged(state)

        codes: set[int] = set()
        with watched(bare) as watcher:
            # Once, and until a loaded machine has let the watcher look.
            while not (codes and watcher.has_seen_enough()):
                for fence in fences:
                    fence.to.write(f"churn {family} {door} {size} {THREADS} 300\n")
                    fence.to.flush()
                codes |= {int(fence.answers.readline().split()[0]) for fence in fences}

        assert codes <= {0, OUT_OF_MEMORY}
        assert watcher.most <= GIB
        for fence in fences:
            fence.does("sync", "context")
        assert charged(state) == before


def test_a_killed_process_makes_room(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as survivor:
        before = survivor.charged()
        victim = bare.spawn(
            "charge_addresses",
            "linked",
            preload=True,
            env={"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_MEMORY_LIMIT": "1g"},
        )
        assert victim.stdin
        assert victim.stdout
        assert victim.stdout.readline() == "ready\n"
        held = Allocator(victim.stdin, victim.stdout, state)
        held.take("async", 400 * MIB)
        held.take("linear", 400 * MIB)
        victim.kill()
        victim.communicate()

        survivor.take("linear", GIB - before)


@pytest.mark.parametrize("door", ["close", "free", "free_async"])
def test_the_exporter_pays_for_memory_between_processes(bare: Sim, state: Path, door: str) -> None:
    with allocator(bare, state) as owner, allocator(bare, state) as guest:
        address = owner.take("linear", 700 * MIB)
        exported, handle = owner.tell("export", address)
        assert exported == "0"
        held = charged(state)

        code, mapped = guest.ask("import", handle)
        assert code == 0
        assert charged(state) == held
        freed = guest.ask("free", door, mapped)[0]

        # The driver closes it by its own door only; none gives anything back.
        assert freed == (0 if door == "close" else INVALID_VALUE)
        assert charged(state) == held
        owner.give("free", address)
        if door != "close":  # the guest still holds what the owner freed
            assert charged(state) == held
            assert guest.ask("free", "close", mapped)[0] == 0
        owner.take("linear", 2 * MIB)  # whoever asks next notices
        assert charged(state) == held - 698 * MIB


def test_a_piece_that_another_process_holds_keeps_its_chunk(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as owner, allocator(bare, state) as guest:
        before = charged(state)
        owner.take("linear", 4096)
        address = owner.take("linear", MIB // 2)
        _, handle = owner.tell("export", address)
        code, mapped = guest.ask("import", handle)
        assert code == 0

        owner.give("free", address)

        # The chunk twice: its other piece's, and what the guest holds.
        assert charged(state) == before + 4 * MIB
        guest.give("close", mapped)
        owner.take("linear", 2 * MIB)  # whoever asks next notices
        assert charged(state) == before + 4 * MIB


def test_the_exporter_pays_for_pool_memory_between_processes(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as owner, allocator(bare, state) as guest:
        owner.does("pool", "shared")
        address = owner.take("pool", 640 * MIB)
        _, descriptor, process = owner.ask("export_pool")
        _, ticket = owner.tell("export_pointer", address)
        held = charged(state)

        guest.does("import_pool", descriptor, process)
        code, mapped = guest.ask("import_pointer", ticket)
        assert code == 0
        assert charged(state) == held
        guest.give("free_async", mapped)
        guest.does("sync", "stream")
        assert charged(state) == held
