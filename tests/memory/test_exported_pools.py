"""Blocks of pools that went out by a pointer stay charged for as long as the device keeps them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB
from tests.support.handles import Handles, exporting, handles
from tests.support.machine import Sim

BLOCK = 32 * MIB
SIZE = 512 * MIB


def opened_pool(process: Handles) -> tuple[int, int]:
    """A pool and the descriptor that leads to it."""
    pool = process.make("pool")
    return pool, process.make("export_pool", pool)


def freed_after_export(process: Handles, pool: int, size: int) -> None:
    """Memory of a pool that was exported, and that the pool has lost again."""
    address = process.make("take", pool, size)
    process.does("export_pointer", address)
    process.does("free_async", address)
    process.does("sync")


def test_what_a_pointer_put_into_the_file_stays_charged(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, descriptor = opened_pool(process)
        freed_after_export(process, pool, SIZE)
        process.does("close", descriptor)
        assert process.used() >= SIZE
        assert process.charged() == start + SIZE

        process.refused("create", "device", GIB - SIZE - start + 2 * MIB)
        rest = process.make("create", "device", GIB - SIZE - start)
        assert process.used() <= GIB
        process.does("release", rest)
        process.does("end_pool", pool)

        assert process.charged() == start
        process.make("create", "device", GIB - start)


def test_a_pool_whose_pointers_stay_at_home_costs_nothing_more(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        address = process.make("take", pool, SIZE)

        process.does("free_async", address)
        process.does("sync")

        assert process.charged() == start


def test_a_descriptor_holds_the_blocks_of_a_pool_that_is_gone(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, descriptor = opened_pool(process)
        freed_after_export(process, pool, SIZE)

        process.does("end_pool", pool)

        assert process.charged() == start + SIZE
        process.refused("create", "device", SIZE + 2 * MIB)
        process.does("close", descriptor)
        process.make("create", "device", GIB - start)

        # Nothing is taken for overhead now that the driver lists all that is charged.
        process.refused("create", "device", BLOCK)
        assert process.charged() == GIB


def test_who_imported_the_pool_holds_its_blocks(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as owner, exporting(bare, state) as importer:
        start = owner.charged()
        pool, descriptor = opened_pool(owner)
        address = owner.make("take", pool, SIZE)
        pointer = owner.ask("export_pointer", address)
        fetched = importer.make("fetch", owner.make("pid"), descriptor)
        imported = importer.make("import_pool", fetched)
        importer.make("import_pointer", imported, *pointer[1:])
        importer.does("close", fetched)
        assert owner.charged() == start + SIZE

        owner.does("close", descriptor)
        owner.does("free_async", address)
        owner.does("end_pool", pool)

        assert owner.charged() == start + SIZE
        owner.refused("create", "device", SIZE + 2 * MIB)
        importer.refused("create", "device", SIZE + 2 * MIB)
        importer.does("end_pool", imported)
        importer.make("create", "device", GIB - start)


@pytest.mark.parametrize("is_freed", [True, False])
def test_the_blocks_of_a_dead_exporter_stay_charged(bare: Sim, state: Path, is_freed: bool) -> None:
    with exporting(bare, state) as other:
        start = other.charged()
        with exporting(bare, state) as maker:
            pool, descriptor = opened_pool(maker)
            address = maker.make("take", pool, SIZE)
            maker.does("export_pointer", address)
            if is_freed:
                maker.does("free_async", address)
                maker.does("sync")
            fetched = other.make("fetch", maker.make("pid"), descriptor)

        other.refused("create", "device", SIZE + 2 * MIB)
        assert other.charged() == start + SIZE
        other.does("close", fetched)
        other.make("create", "device", GIB - start)


def test_a_block_is_charged_once_however_often_it_is_exported(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        for _ in range(5):
            first = process.make("take", pool, MIB)
            second = process.make("take", pool, MIB)
            process.does("export_pointer", first)
            process.does("export_pointer", second)
            process.does("export_pointer", first)
            assert process.charged() == start + BLOCK
            process.does("free_async", first)
            process.does("free_async", second)
            process.does("sync")
            assert process.charged() == start + BLOCK
        assert process.used() <= process.charged()


def test_another_block_at_the_same_address_costs_as_much_again(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        freed_after_export(process, pool, SIZE // 2)

        address = process.make("take", pool, SIZE // 2)

        assert process.charged() == start + SIZE
        process.refused("create", "device", GIB - SIZE - start + 2 * MIB)
        process.does("export_pointer", address)
        assert process.charged() == start + SIZE // 2
        process.make("create", "device", GIB - SIZE // 2 - start)


def test_blocks_that_the_pool_keeps_are_not_charged_twice(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        process.does("keep", pool)
        freed_after_export(process, pool, SIZE)
        assert process.charged() == start + SIZE

        process.make("take", pool, SIZE)

        assert process.charged() == start + SIZE


def test_a_free_that_fails_ends_no_export(bare: Sim, state: Path) -> None:
    faults = {"cuMemFreeAsync": "1=700"}
    with handles(bare, state, program="exports_commands", **faults) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        address = process.make("take", pool, SIZE)
        process.does("export_pointer", address)
        assert process.ask("free_async", address)[0] == 700

        # Still exported, so that what the pool loses now was none of it.
        process.does("free_async", process.make("take", pool, SIZE // 2))
        process.does("sync")
        assert process.charged() == start + SIZE

        process.does("free_async", address)
        process.does("sync")

        assert process.charged() == start + SIZE
        process.does("end_pool", pool)
        process.does("sync")


def test_where_nothing_can_be_locked_only_what_was_exported_stays_charged(
    bare: Sim, state: Path
) -> None:
    faults = {"cuMemPoolExportToShareableHandle": "2=999"}
    with handles(bare, state, program="exports_commands", **faults) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        exported = process.make("take", pool, SIZE // 2)
        kept = process.make("take", pool, SIZE // 2)
        process.does("export_pointer", exported)

        process.does("free_async", exported)
        process.does("free_async", kept)
        process.does("end_pool", pool)

        assert process.charged() == start + SIZE // 2


def test_what_stays_in_files_hides_no_overhead(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool, _ = opened_pool(process)
        freed_after_export(process, pool, SIZE)

        process.refused("create", "device", GIB)

        assert process.charged() == start + SIZE
        assert process.used() <= process.charged()


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_exports_never_passes_the_limit(bare: Sim, state: Path, seed: int) -> None:
    rng = random.Random(seed)
    with exporting(bare, state) as process:
        start = process.charged()
        pools: dict[int, int] = {}
        living: list[tuple[int, int]] = []
        for _ in range(120):
            what = rng.choice(["pool", "take", "take", "take", "export", "free", "trim", "end"])
            if what == "pool" and len(pools) < 3:
                pool, descriptor = opened_pool(process)
                pools[pool] = descriptor
                if rng.random() < 0.5:
                    process.does("keep", pool)
            elif what == "take" and pools:
                pool = rng.choice(list(pools))
                code, address, *_ = process.ask("take", pool, MIB * rng.randint(1, 100))
                if code == 0:
                    living.append((pool, address))
            elif what == "export" and living:
                process.does("export_pointer", rng.choice(living)[1])
            elif what == "free" and living:
                _, address = living.pop(rng.randrange(len(living)))
                process.does(rng.choice(["free", "free_async"]), address)
            elif what == "trim" and pools:
                process.does("sync")
                process.does("trim_pool", rng.choice(list(pools)))
            elif what == "end" and pools and rng.random() < 0.3:
                pool = rng.choice(list(pools))
                for entry in [entry for entry in living if entry[0] == pool]:
                    living.remove(entry)
                    process.does("free_async", entry[1])
                process.does("sync")
                process.does("end_pool", pool)
                process.does("close", pools.pop(pool))
            assert process.used() <= process.charged() <= GIB
        for _, address in living:
            process.does("free_async", address)
        process.does("sync")
        for pool, descriptor in pools.items():
            process.does("end_pool", pool)
            process.does("close", descriptor)
        process.make("create", "device", GIB - start)
