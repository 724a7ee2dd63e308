"""Oversold memory under random use: against a model, with errors of the driver, with kill -9."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.charges import BLOCK, CHUNK, KIB, MIB, OUT_OF_MEMORY, Allocator
from tests.support.machine import Sim

from .oversold import LIMIT, SHARE, commands, fill, on_device

HOSTED = ["linear", "pitch", "managed", "physical", "mapped"]


@dataclass(slots=True)
class Model:
    """What the container holds, by the rules of docs/oversubscription.md."""

    charged: int = 0
    resident: int = 0
    held: list[tuple[str, int, int, bool]] = field(default_factory=list)

    def place(self, family: str, size: int) -> bool | None:
        """Whether it is device memory; None: there is no room."""
        if self.resident + size <= SHARE and self.charged + size <= LIMIT:
            return True
        return False if family in HOSTED and self.charged + size <= LIMIT else None

    def take(self, family: str, size: int, handle: int, on_the_device: bool) -> None:
        self.charged += size
        self.resident += size if on_the_device else 0
        self.held.append((family, size, handle, on_the_device))

    def give(self, index: int) -> tuple[str, int]:
        family, size, handle, on_the_device = self.held.pop(index)
        self.charged -= size
        self.resident -= size if on_the_device else 0
        return family, handle


@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_as_the_model_says(bare: Sim, state: Path, seed: int) -> None:
    """Whole chunks of every family that takes its memory at once: exact after every step."""
    chance = random.Random(seed)
    model = Model()
    with commands(bare, state) as fence:
        for _ in range(400):
            if model.held and chance.random() < 0.45:
                family, handle = model.give(chance.randrange(len(model.held)))
                fence.does("give", family, "free", handle)
            else:
                family = chance.choice([*HOSTED, "array"])
                # An array's layout is a power of two of rows.
                chunks = chance.choice([1, 2, 4, 8, 16, 32, 64])
                size = CHUNK * (chunks if family == "array" else chance.randint(1, 80))
                expected = model.place(family, size)
                code, handle = fence.ask("take", family, size)
                assert code == (OUT_OF_MEMORY if expected is None else 0), (family, size, model)
                if expected is not None:
                    model.take(family, size, handle, expected)
            assert (fence.charged(), fence.resident()) == (model.charged, model.resident)


def wander(fence: Allocator, chance: random.Random, steps: int, look: Callable[[], None]) -> None:
    """Any sizes, families, doors and moves."""
    families = [*HOSTED, "array", "async", "pool", "graph"]
    held: list[tuple[str, int, int]] = []
    for _ in range(steps):
        deed = chance.random()
        if held and deed < 0.4:
            family, handle, _ = held.pop(chance.randrange(len(held)))
            doors = ["free"] if family == "managed" else ["free", "free_async"]
            fence.does("give", family, chance.choice(doors), handle)
        elif held and deed < 0.5:
            family, handle, size = chance.choice(held)
            if family in ("linear", "managed"):
                how = chance.choice(["prefetch", "batch", "prefer_v2", "mostly", "unmap"])
                fence.ask("move", how, handle, size)
        elif deed < 0.55:
            fence.does("sync")
        else:
            family = chance.choice(families)
            whole = family in ("physical", "mapped", "array", "graph")
            size = CHUNK * chance.randint(1, 40) if whole else chance.randint(KIB, 80 * MIB)
            code, handle = fence.ask("take", family, size)
            assert code in (0, OUT_OF_MEMORY)
            if code == 0:
                held.append((family, handle, size))
        look()
    for family, handle, _ in held:
        fence.does("give", family, "free", handle)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_passes_limit_or_share(bare: Sim, state: Path, seed: int) -> None:
    with commands(bare, state) as fence:
        samples = []

        def look() -> None:
            assert fence.charged() <= LIMIT
            assert fence.resident() <= SHARE
            samples.append(1)
            if len(samples) % 40 == 0:
                assert on_device(bare) <= SHARE

        wander(fence, random.Random(seed), 400, look)
        fence.does("sync")
        fence.does("sync")
        # All of it can be had again, and stays where it should.
        assert len(fill(fence, "linear", BLOCK)) == LIMIT // BLOCK
        assert fence.resident() == SHARE == on_device(bare)


CALLS = [
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAdvise",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuArrayCreate_v2",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuGraphLaunch",
]


@pytest.mark.parametrize("nth", [1, 2, 5, "*"])
@pytest.mark.parametrize("call", CALLS)
def test_a_driver_out_of_memory_at_any_call_costs_nothing(
    bare: Sim, state: Path, call: str, nth: int | str
) -> None:
    """Whatever fails falls back or is refused, and nothing of it stays charged."""
    with commands(bare, state, faults=f"{call}@{nth}={OUT_OF_MEMORY}") as fence:

        def look() -> None:
            assert fence.charged() <= LIMIT
            assert fence.resident() <= SHARE

        wander(fence, random.Random(str(call)), 150, look)
        fence.does("sync")
        fence.does("sync")
        assert fence.resident() == 0 == on_device(bare)


def test_a_full_driver_is_no_refusal(bare: Sim, state: Path) -> None:
    """Every family that may lie on the host does, although the share has room."""
    calls = ["cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocAsync"]
    faults = ";".join(f"{call}@*={OUT_OF_MEMORY}" for call in calls)
    with commands(bare, state, setting="on", faults=faults) as fence:
        for family in ("linear", "pitch", "async"):
            assert fence.ask("take", family, BLOCK)[0] == 0
        assert fence.charged() == 3 * BLOCK
        assert fence.resident() == 0


@pytest.mark.parametrize("round_", range(4))
def test_killed_anywhere_nothing_is_lost(bare: Sim, state: Path, round_: int) -> None:
    chance = random.Random(round_)
    with commands(bare, state) as survivor:
        for _ in range(4):
            victim = commands(bare, state)
            fence = victim.__enter__()
            try:
                wander(fence, chance, chance.randint(20, 120), lambda: None)
                fill(fence, "linear", BLOCK)
                fill(fence, "async", BLOCK)
            finally:
                fence.to.write("kill\n")
                fence.to.flush()
                with pytest.raises((AssertionError, BrokenPipeError)):
                    victim.__exit__(None, None, None)
            taken = fill(survivor, "linear", BLOCK)
            assert len(taken) == LIMIT // BLOCK
            assert survivor.resident() == SHARE == on_device(bare)
            for handle in taken:
                survivor.does("give", "linear", "free", handle)
            assert (survivor.charged(), survivor.resident()) == (0, 0)
