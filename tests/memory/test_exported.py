"""Memory that nothing but an exported descriptor keeps alive stays charged, for just as long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB
from tests.support.handles import Handles, handles
from tests.support.machine import Sim

SIZE = 512 * MIB


def let_go_but_for_a_descriptor(process: Handles, size: int = SIZE) -> int:
    """Physical memory of which only the descriptor is left; the descriptor."""
    handle = process.make("create", "shared", size)
    descriptor = process.make("export", handle)
    process.does("release", handle)
    return descriptor


def test_memory_is_charged_while_its_descriptor_is_open(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        handle = process.make("create", "shared", SIZE)
        descriptor = process.make("export", handle)
        assert process.charged() == start + SIZE

        process.does("release", handle)

        assert process.used() >= SIZE
        assert process.charged() == start + SIZE
        process.refused("create", "device", SIZE + 32 * MIB)
        process.does("close", descriptor)
        process.make("create", "device", GIB - start)
        assert process.charged() == GIB


def test_a_limit_is_not_passed_by_letting_go_of_exported_memory(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        descriptors = []
        while True:
            code, handle, *_ = process.ask("create", "shared", 64 * MIB)
            if code != 0:
                break
            descriptors.append(process.make("export", handle))
            process.does("release", handle)

        assert process.used() <= GIB
        for descriptor in descriptors:
            process.does("close", descriptor)
        for _ in descriptors:
            process.make("create", "device", 64 * MIB)


def test_a_descriptor_that_was_closed_before_holds_nothing(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        handle = process.make("create", "shared", SIZE)
        process.does("close", process.make("export", handle))

        process.does("release", handle)

        assert process.charged() == start


def test_every_descriptor_of_a_memory_counts(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        handle = process.make("create", "shared", SIZE)
        first, second = process.make("export", handle), process.make("export", handle)
        process.does("release", handle)

        process.does("close", first)
        process.refused("create", "device", SIZE + 32 * MIB)
        process.does("close", second)

        process.make("create", "device", GIB - start)


def test_charged_and_held_memory_is_not_counted_twice(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        kept = process.make("create", "shared", SIZE // 2)
        process.make("export", kept)
        descriptor = let_go_but_for_a_descriptor(process, SIZE // 2)
        assert process.charged() == start + SIZE

        process.make("create", "device", GIB - SIZE - start)
        process.refused("create", "device", 32 * MIB)
        process.does("close", descriptor)

        process.make("create", "device", SIZE // 2)


def test_a_descriptor_in_another_process_holds_as_well(bare: Sim, state: Path) -> None:
    with handles(bare, state) as owner, handles(bare, state) as other:
        start = owner.charged()
        descriptor = let_go_but_for_a_descriptor(owner)
        fetched = other.make("fetch", owner.make("pid"), descriptor)

        owner.does("close", descriptor)

        owner.refused("create", "device", SIZE + 32 * MIB)
        other.does("close", fetched)
        # The maker does nothing about it; whoever needs the room finds it.
        other.make("create", "device", GIB - start)


def test_a_forked_child_holds_what_it_inherited(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        descriptor = let_go_but_for_a_descriptor(process)
        child = process.make("child")

        process.does("close", descriptor)

        process.refused("create", "device", SIZE + 32 * MIB)
        process.does("reap", child)
        process.make("create", "device", GIB - start)


@pytest.mark.parametrize("released", [True, False])
def test_a_descriptor_outlives_its_maker(bare: Sim, state: Path, released: bool) -> None:
    with handles(bare, state) as other:
        start = other.charged()
        with handles(bare, state) as maker:
            handle = maker.make("create", "shared", SIZE)
            descriptor = maker.make("export", handle)
            fetched = other.make("fetch", maker.make("pid"), descriptor)
            if released:
                maker.does("release", handle)

        other.refused("create", "device", SIZE + 32 * MIB)
        assert other.charged() == start + SIZE
        other.does("close", fetched)
        other.make("create", "device", GIB - start)


def test_the_dead_leave_nothing_where_no_descriptor_is_open(bare: Sim, state: Path) -> None:
    with handles(bare, state) as other:
        start = other.charged()
        with handles(bare, state) as maker:
            maker.make("export", maker.make("create", "shared", SIZE))

        other.make("create", "device", GIB - start)


def test_an_importer_pays_nothing_more_when_the_descriptor_is_closed(
    bare: Sim, state: Path
) -> None:
    with handles(bare, state) as owner, handles(bare, state) as importer:
        start = owner.charged()
        descriptor = let_go_but_for_a_descriptor(owner)
        fetched = importer.make("fetch", owner.make("pid"), descriptor)
        owner.does("close", descriptor)
        imported = importer.make("import", fetched)

        importer.does("close", fetched)

        importer.refused("create", "device", SIZE + 32 * MIB)
        owner.refused("create", "device", SIZE + 32 * MIB)
        assert owner.charged() == start + SIZE
        importer.does("release", imported)
        owner.make("create", "device", GIB - start)


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_importer_pays_nothing_while_the_descriptor_is_open(
    bare: Sim, state: Path, is_killed: bool
) -> None:
    # The driver lists it under nobody then, as seen on an H200.
    with handles(bare, state) as importer:
        start = importer.charged()
        with handles(bare, state) as owner:
            handle = owner.make("create", "shared", SIZE)
            descriptor = owner.make("export", handle)
            fetched = importer.make("fetch", owner.make("pid"), descriptor)
            imported = importer.make("import", fetched)
            if not is_killed:
                owner.does("release", handle)

        importer.refused("create", "device", SIZE + 2 * MIB)
        rest = importer.make("create", "device", SIZE - start)
        assert importer.charged() == GIB
        importer.does("release", rest)
        importer.does("close", fetched)
        importer.does("release", imported)
        importer.make("create", "device", GIB - start)


def test_closing_every_descriptor_loses_and_keeps_nothing(bare: Sim, state: Path) -> None:
    with handles(bare, state) as other:
        start = other.charged()
        with handles(bare, state) as process:
            handle = process.make("create", "shared", SIZE)
            process.make("export", handle)
            let_go_but_for_a_descriptor(process, 64 * MIB)

            process.does("close_from", 3)

            rest = other.make("create", "device", GIB - SIZE - start)
            other.refused("create", "device", 32 * MIB)
            other.does("release", rest)
        other.make("create", "device", GIB - start)


def test_where_no_descriptor_can_be_had_it_stays_charged(bare: Sim, state: Path) -> None:
    with handles(bare, state) as process:
        start = process.charged()
        descriptor = let_go_but_for_a_descriptor(process)
        process.does("close_from", 200)
        process.does("few", 3)

        process.refused("create", "device", SIZE + 32 * MIB)

        process.does("few", 256)
        process.does("close", descriptor)
        process.make("create", "device", GIB - start)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_exports_and_ends_is_charged_exactly(
    bare: Sim, state: Path, seed: int
) -> None:
    rng = random.Random(seed)
    with handles(bare, state) as one, handles(bare, state) as two:
        start = one.charged()
        living: list[tuple[Handles, int, int]] = []  # process, handle, memory
        opened: dict[tuple[int, int], tuple[Handles, int]] = {}  # (process, fd) -> memory
        sizes: dict[int, int] = {}
        makers: dict[int, bool] = {}

        def held() -> int:
            alive = {memory for _, memory in opened.values()}
            return sum(size for memory, size in sizes.items() if makers[memory] or memory in alive)

        for step in range(60):
            process = rng.choice([one, two])
            what = rng.choice(["create", "export", "release", "close", "close"])
            if what == "create":
                size = 2 * MIB * rng.randint(1, 40)
                code, handle, *_ = process.ask("create", "shared", size)
                assert (code == 0) == (start + held() + size <= GIB)
                if code == 0:
                    sizes[step], makers[step] = size, True
                    living.append((process, handle, step))
            elif what == "export" and living:
                process, handle, memory = rng.choice(living)
                descriptor = process.make("export", handle)
                opened[id(process), descriptor] = (process, memory)
            elif what == "release" and living:
                process, handle, memory = living.pop(rng.randrange(len(living)))
                process.does("release", handle)
                makers[memory] = False
            elif what == "close" and opened:
                key = rng.choice(list(opened))
                process, _ = opened.pop(key)
                process.does("close", key[1])
            room = GIB - start - held()
            assert one.charged() >= start + held()
            if room > 0:
                filler = process.make("create", "device", room)
                assert one.charged() == GIB
                process.does("release", filler)
