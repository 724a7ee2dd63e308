"""What is charged and not held any more never hides what the driver took for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB
from tests.support.handles import Handles, exporting
from tests.support.machine import Sim

GLOBALS = 256 * MIB  # of a module: overhead that stays
PIECE = 256 * MIB


def fill(process: Handles, room: int) -> None:
    """All that is left can be had, and nothing beyond; the limit is not passed."""
    process.make("create", "device", room)
    process.refused("create", "device", 2 * MIB)
    assert process.used() <= GIB


@pytest.mark.parametrize("end", ["free_async", "free"])
def test_a_destroyed_pools_last_piece_hides_no_overhead(bare: Sim, state: Path, end: str) -> None:
    """A module goes in between, which has the overhead read."""
    with exporting(bare, state) as process:
        start = process.charged()
        process.make("load", GLOBALS)
        small = process.make("load", 8 * MIB)
        pool = process.make("pool")
        process.does("keep", pool)
        piece = process.make("take", pool, PIECE)
        process.does("sync")
        process.does("end_pool", pool)

        process.does(end, piece)
        process.does("unload", small)

        process.does("sync")
        assert process.charged() == start + GLOBALS
        fill(process, GIB - start - GLOBALS)


def test_an_import_reads_the_overhead_behind_a_destroyed_pool(bare: Sim, state: Path) -> None:
    """It reads without measuring a call."""
    with exporting(bare, state) as process:
        start = process.charged()
        process.make("load", GLOBALS)
        original = process.make("create", "shared", 2 * MIB)
        descriptor = process.make("export", original)
        pool = process.make("pool")
        process.does("keep", pool)
        piece = process.make("take", pool, PIECE)
        process.does("sync")
        process.does("end_pool", pool)
        process.does("free_async", piece)

        imported = process.make("import", descriptor)

        process.does("sync")
        assert process.charged() == start + GLOBALS + 2 * MIB
        process.does("close", descriptor)
        process.does("release", imported)
        process.does("release", original)
        fill(process, GIB - start - GLOBALS)


@pytest.mark.parametrize("what", ["destroyed_pool", "plain"])
def test_a_load_is_measured_though_freed_memory_goes_within_it(
    bare: Sim, state: Path, what: str
) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool = process.make("pool")
        process.does("keep", pool)
        piece = (
            process.make("alloc", PIECE) if what == "plain" else process.make("take", pool, PIECE)
        )
        process.does("sync")
        if what == "destroyed_pool":
            process.does("end_pool", pool)
        process.does("free_async", piece)

        process.make("load", GLOBALS)

        process.does("sync")
        assert process.charged() == start + GLOBALS
        fill(process, GIB - start - GLOBALS)


def shared(process: Handles) -> tuple[int, int]:
    """Physical memory, and an import of it by its own process."""
    original = process.make("create", "shared", PIECE)
    descriptor = process.make("export", original)
    imported = process.make("import", descriptor)
    process.does("close", descriptor)
    return original, imported


# Beside another import, one that ended before its memory's release is counted until both are over.
@pytest.mark.parametrize(
    ("first", "kept"), [("original", False), ("original", True), ("import", False)]
)
@pytest.mark.parametrize("size", [GLOBALS, 8 * MIB])
def test_imports_of_ones_own_hide_no_overhead(
    bare: Sim, state: Path, first: str, kept: bool, size: int
) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        process.make("load", size)
        others = []
        if kept:
            other = process.make("create", "shared", 2 * MIB)
            descriptor = process.make("export", other)
            others = [other, process.make("import", descriptor)]
            process.does("close", descriptor)
        for _ in range(6):
            original, imported = shared(process)
            assert process.used() <= process.charged() <= GIB
            for handle in (original, imported) if first == "original" else (imported, original):
                process.does("release", handle)
                assert process.used() <= process.charged() <= GIB
        for handle in others:
            process.does("release", handle)

        fill(process, GIB - start - size)


def test_what_is_held_by_an_import_of_ones_own_is_charged_once(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        original, imported = shared(process)
        assert process.charged() == start + PIECE

        process.does("release", original)

        assert process.charged() == start + PIECE
        process.does("release", process.make("create", "device", GIB - start - PIECE))
        process.does("release", imported)
        fill(process, GIB - start)
