"""Memory behind a dma-buf stays charged until the last duplicate of its descriptor is closed."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB
from tests.support.handles import Handles, exporting, handles
from tests.support.machine import Sim

SIZE = 512 * MIB


def take(process: Handles, kind: str, size: int) -> tuple[int, list[tuple[str | int, ...]]]:
    """Memory at an address, and the commands that let go of it."""
    if kind == "linear":
        address = process.make("alloc", size)
        return address, [("free", address)]
    if kind == "pool":
        address = process.make("take", process.make("pool"), size)
        return address, [("free_async", address), ("sync",)]
    handle = process.make("create", kind, size)
    address = process.make("reserve", size)
    process.does("map", address, size, handle)
    return address, [("release", handle), ("unmap", address, size)]


def let_go(process: Handles, ends: list[tuple[str | int, ...]]) -> None:
    for command in ends:
        process.does(*command)


def let_go_but_for_a_range(process: Handles, kind: str = "linear", size: int = SIZE) -> int:
    """Memory of which only a dma-buf is left; its descriptor."""
    address, ends = take(process, kind, size)
    descriptor = process.make("range", address, size if kind == "pool" else 4096)
    let_go(process, ends)
    return descriptor


KINDS = ["linear", "device", "shared", "pool"]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_charged_while_a_page_of_it_is_in_a_dma_buf(
    bare: Sim, state: Path, kind: str
) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        descriptor = let_go_but_for_a_range(process, kind)

        assert process.used() >= SIZE
        assert process.charged() == start + SIZE
        process.refused("create", "device", SIZE + 2 * MIB)
        process.does("close", descriptor)
        process.make("create", "device", GIB - start)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dma_buf_that_was_closed_before_holds_nothing(bare: Sim, state: Path, kind: str) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        address, ends = take(process, kind, SIZE)
        process.does("close", process.make("range", address, SIZE))
        assert process.charged() == start + SIZE

        let_go(process, ends)

        assert process.charged() == start


def test_a_limit_is_not_passed_by_letting_go_of_memory_in_dma_bufs(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        descriptors = []
        while True:
            code, address, *_ = process.ask("alloc", 64 * MIB)
            if code != 0:
                break
            descriptors.append(process.make("range", address, 64 * MIB))
            process.does("free", address)

        assert process.used() <= GIB
        assert len(descriptors) == (GIB - start) // (64 * MIB)
        for descriptor in descriptors:
            process.does("close", descriptor)
        process.make("create", "device", GIB - start)


def test_every_dma_buf_of_a_memory_counts_and_the_memory_once(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        handle = process.make("create", "shared", SIZE)
        address = process.make("reserve", SIZE)
        process.does("map", address, SIZE, handle)
        holders = [
            process.make("range", address, SIZE),
            process.make("range", address + 4 * MIB, 4096),
            process.make("export", handle),
        ]
        process.does("release", handle)
        process.does("unmap", address, SIZE)

        for descriptor in holders:
            assert process.charged() == start + SIZE
            process.refused("create", "device", SIZE + 2 * MIB)
            rest = process.make("create", "device", GIB - SIZE - start)
            process.does("release", rest)
            process.does("close", descriptor)

        process.make("create", "device", GIB - start)


@pytest.mark.parametrize(
    ("offset", "size", "held"), [(0, 16, 16), (8, 16, 32), (8, 40, 48), (0, 64, 64), (20, 4, 16)]
)
def test_a_range_over_several_memories_holds_those_it_touches(
    bare: Sim, state: Path, offset: int, size: int, held: int
) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        address = process.make("reserve", 64 * MIB)
        parts = [process.make("create", "device", 16 * MIB) for _ in range(4)]
        for i, part in enumerate(parts):
            process.does("map", address + i * 16 * MIB, 16 * MIB, part)
        descriptor = process.make("range", address + offset * MIB, size * MIB)

        process.does("unmap", address, 64 * MIB)
        for part in parts:
            process.does("release", part)

        assert process.charged() == start + held * MIB
        process.refused("create", "device", GIB - start - held * MIB + 2 * MIB)
        process.does("close", descriptor)
        process.make("create", "device", GIB - start)


def test_more_locks_than_the_kernel_tells_at_once_are_counted(bare: Sim, state: Path) -> None:
    # A page of its list holds some sixty.
    with exporting(bare, state) as process:
        start = process.charged()
        size = 2 * MIB
        addresses = [process.make("alloc", size) for _ in range(200)]
        descriptors = [process.make("range", address, size) for address in addresses]
        for address in addresses:
            process.does("free", address)
        assert process.charged() == start + 200 * size

        for descriptor in descriptors[:150]:
            process.does("close", descriptor)

        process.refused("create", "device", GIB - start - 48 * size)
        process.make("create", "device", GIB - start - 50 * size)


CHURN = """
import fcntl, itertools, sys
with open(sys.argv[1], "wb") as file:
    for byte in range(0, 400, 2):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
    print("held", flush=True)
    for byte in itertools.cycle(range(0, 400, 2)):
        fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
        fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
"""


def test_descriptors_are_told_while_others_lock_and_unlock_all_the_time(
    bare: Sim, state: Path, tmp_path: Path
) -> None:
    """The list is never the same twice, and longer than what the kernel tells at once."""
    command = [sys.executable, "-c", CHURN, str(tmp_path / "locked")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as others:
        try:
            assert others.stdout is not None
            assert others.stdout.readline() == b"held\n"
            with exporting(bare, state) as process:
                start = process.charged()
                address = process.make("alloc", 512 * MIB)
                descriptor = process.make("range", address, 512 * MIB)
                process.does("free", address)
                for _ in range(20):
                    process.refused("create", "device", GIB - start - 256 * MIB)

                process.does("close", descriptor)

                process.make("create", "device", GIB - start)
        finally:
            others.kill()


def test_a_range_holds_those_blocks_of_a_pool_that_it_touches(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        address, ends = take(process, "pool", 256 * MIB)
        first = process.make("range", address + 31 * MIB, 2 * MIB)
        second = process.make("range", address + 128 * MIB, 4096)
        let_go(process, ends)
        assert process.used() >= 96 * MIB
        assert process.charged() == start + 96 * MIB

        process.does("close", first)

        process.refused("create", "device", GIB - start - 30 * MIB)
        process.does("close", second)
        process.make("create", "device", GIB - start)


def test_a_small_piece_of_a_pool_holds_its_block(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        address, ends = take(process, "pool", 8 * MIB)
        descriptor = process.make("range", address, 8 * MIB)
        let_go(process, ends)
        assert process.used() >= 32 * MIB
        assert process.charged() == start + 32 * MIB

        process.does("close", descriptor)

        process.make("create", "device", GIB - start)


def test_a_range_over_two_pieces_of_a_pool_holds_its_blocks_of_both(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        pool = process.make("pool")
        pieces = [process.make("take", pool, 64 * MIB) for _ in range(2)]
        assert pieces[1] == pieces[0] + 64 * MIB
        descriptor = process.make("range", pieces[0] + 32 * MIB, 64 * MIB)
        for piece in pieces:
            process.does("free_async", piece)
        process.does("sync")
        assert process.used() >= 64 * MIB
        assert process.charged() == start + 64 * MIB

        process.does("close", descriptor)

        process.make("create", "device", GIB - start)


def test_pieces_of_a_chunk_hold_the_chunk(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        pieces = [process.make("alloc", 65536) for _ in range(4)]
        descriptor = process.make("range", pieces[0], 65536)
        before = process.charged()

        for piece in pieces:
            process.does("free", piece)

        assert process.charged() == before
        process.does("close", descriptor)
        process.make("create", "device", GIB - before + 2 * MIB)


@pytest.mark.parametrize("released", [True, False])
def test_a_dma_buf_outlives_its_maker(bare: Sim, state: Path, released: bool) -> None:
    with exporting(bare, state) as other:
        start = other.charged()
        with exporting(bare, state) as maker:
            address, ends = take(maker, "linear", SIZE)
            descriptor = maker.make("range", address, SIZE)
            fetched = other.make("fetch", maker.make("pid"), descriptor)
            if released:
                let_go(maker, ends)

        other.refused("create", "device", SIZE + 2 * MIB)
        assert other.charged() == start + SIZE
        other.does("close", fetched)
        other.make("create", "device", GIB - start)


def test_a_forked_child_holds_a_dma_buf(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        descriptor = let_go_but_for_a_range(process)
        child = process.make("child")

        process.does("close", descriptor)

        process.refused("create", "device", SIZE + 2 * MIB)
        process.does("reap", child)
        process.make("create", "device", GIB - start)


def test_where_the_list_of_locks_cannot_be_read_it_stays_charged(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        descriptor = let_go_but_for_a_range(process)
        process.does("close", descriptor)
        process.does("few", 3)

        process.refused("create", "device", SIZE + 2 * MIB)

        process.does("few", 256)
        process.make("create", "device", GIB - start)


@pytest.mark.parametrize("kind", ["linear", "pool"])
def test_where_nobody_would_see_the_lock_it_stays_charged(
    bare: Sim, state: Path, tmp_path: Path, kind: str
) -> None:
    # As in a container whose /proc/locks is masked.
    program = tmp_path / "masked"
    inner = bare.build / "tests" / "exports_commands"
    program.write_text(
        f"#!/bin/sh\nexec unshare -m sh -c 'mount --bind /dev/null /proc/locks && exec {inner}'\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace of one's own")
    with handles(bare, state, program=str(program)) as process:
        start = process.charged()
        address, ends = take(process, kind, SIZE)
        process.does("close", process.make("range", address, SIZE))

        let_go(process, ends)

        assert process.charged() == start + SIZE
        process.refused("create", "device", SIZE + 2 * MIB)


def test_what_has_no_dma_buf_is_charged_as_ever(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        address = process.make("managed", SIZE)

        assert process.ask("range", address, SIZE)[0] == 1

        process.does("free", address)
        assert process.charged() == start


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_ranges_never_passes_the_limit(bare: Sim, state: Path, seed: int) -> None:
    rng = random.Random(seed)
    with exporting(bare, state) as one, exporting(bare, state) as two:
        start = one.charged()
        living: list[tuple[Handles, int, list[tuple[str | int, ...]]]] = []
        opened: list[tuple[Handles, int]] = []
        for _ in range(80):
            process = rng.choice([one, two])
            what = rng.choice(["take", "take", "range", "range", "end", "close"])
            if what == "take":
                kind = rng.choice(["linear", "device", "shared"])
                size = 2 * MIB * rng.randint(1, 40)
                code, made, *_ = process.ask(
                    *(("alloc", size) if kind == "linear" else ("create", kind, size))
                )
                if code == 0 and kind == "linear":
                    living.append((process, made, [("free", made)]))
                elif code == 0:
                    address = process.make("reserve", size)
                    process.does("map", address, size, made)
                    ends = [("release", made), ("unmap", address, size)]
                    living.append((process, address, ends))
            elif what == "range" and living:
                process, address, _ = rng.choice(living)
                opened.append((process, process.make("range", address, 4096)))
            elif what == "end" and living:
                process, _, ends = living.pop(rng.randrange(len(living)))
                let_go(process, ends)
            elif what == "close" and opened:
                process, descriptor = opened.pop(rng.randrange(len(opened)))
                process.does("close", descriptor)
            assert one.used() <= one.charged() <= GIB
        for process, _, ends in living:
            let_go(process, ends)
        for process, descriptor in opened:
            process.does("close", descriptor)
        one.make("create", "device", GIB - start)
