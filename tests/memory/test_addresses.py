"""Memory behind an address: charged when it is taken, given back once, by whichever door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import BLOCK, CHUNK, GIB, INVALID_VALUE, KIB, MIB, Allocator, allocator
from tests.support.machine import Sim

WAYS = ["linked", "dlsym", "address", "address_v2", "per_thread"]

# How each family is freed in the most usual way, and what it is charged in.
FREED_BY = {
    "linear": "free",
    "linear_v1": "free_v1",
    "pitch": "free",
    "pitch_v1": "free_v1",
    "managed_global": "free",
    "managed_host": "free",
    "async": "free_async",
    "async_ptsz": "free_async_ptsz",
    "pool": "free_async",
    "pool_ptsz": "free_async_ptsz",
}
POOLED = ["async", "async_ptsz", "pool", "pool_ptsz"]
PLAIN = [family for family in FREED_BY if family not in POOLED]


def room(fence: Allocator) -> int:
    """What is left of 1 GiB."""
    return GIB - fence.charged()


def prepare(fence: Allocator, family: str) -> None:
    if family.startswith("pool"):
        fence.does("pool", "device")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FREED_BY)
def test_every_family_is_held_at_the_limit_by_every_way(
    bare: Sim, state: Path, family: str, way: str
) -> None:
    unit = BLOCK if family in POOLED else CHUNK
    with allocator(bare, state, way) as fence:
        prepare(fence, family)
        before = fence.charged()
        most = room(fence) // unit * unit

        fence.refused(family, most + KIB)
        assert fence.charged() == before
        address = fence.take(family, most)
        assert fence.charged() == before + most
        fence.refused(family, KIB)
        assert fence.charged() == before + most
        fence.give(FREED_BY[family], address)
        fence.does("sync", "stream")
        assert fence.charged() == before


@pytest.mark.parametrize("family", FREED_BY)
def test_a_thousand_cycles_leave_nothing(bare: Sim, state: Path, family: str) -> None:
    with allocator(bare, state) as fence:
        prepare(fence, family)
        before = fence.charged()

        fence.does("churn", family, FREED_BY[family], 3 * MIB, 1, 1000)
        fence.does("sync", "stream")

        assert fence.charged() == before


@pytest.mark.parametrize("size", [512, 700, 1000 * KIB, MIB, 1536 * KIB])
def test_small_allocations_share_chunks(bare: Sim, state: Path, size: int) -> None:
    """As many as the chunks hold, and no chunk more than they need."""
    with allocator(bare, state, limit="16m") as fence:
        before = fence.charged()
        step = -(-size // 512) * 512
        fitting = (16 * MIB - before) // CHUNK * (CHUNK // step)

        code, grants = fence.ask("race", "linear", size, 1)

        assert code == 2
        assert grants == fitting


@pytest.mark.parametrize("family", ["linear", "pitch"])
def test_a_chunk_is_charged_until_its_last_piece_is_freed(
    bare: Sim, state: Path, family: str
) -> None:
    """Half of the pieces freed, the driver still holds every chunk."""
    with allocator(bare, state) as fence:
        before = fence.charged()
        pieces = [fence.take(family, MIB) for _ in range(16)]
        assert fence.charged() == before + 8 * CHUNK

        for piece in pieces[::2]:
            fence.give("free", piece)
        assert fence.charged() == before + 8 * CHUNK
        for kept, piece in enumerate(pieces[1::2], 1):
            fence.give("free", piece)
            assert fence.charged() == before + (8 - kept) * CHUNK


def test_holes_are_filled_when_not_a_chunk_is_left(bare: Sim, state: Path) -> None:
    with allocator(bare, state, limit="16m") as fence:
        while fence.charged() < 16 * MIB:
            pieces = [fence.take("linear", 512 * KIB) for _ in range(4)]
        full = fence.charged()
        fence.refused("linear", 512 * KIB)

        fence.give("free", pieces[1])
        fence.refused("linear", 513 * KIB)
        fence.take("linear", 256 * KIB)
        fence.take("pitch", 256 * KIB)
        fence.refused("linear", 512)
        fence.give("free", pieces[2])
        fence.refused("managed_global", 4 * KIB)  # never in a chunk of linear memory
        fence.take("linear", 512 * KIB)

        assert fence.charged() == full


def test_what_follows_a_large_piece_lies_in_its_chunk(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        large = fence.take("linear", 1536 * KIB)
        small = fence.take("linear", 512 * KIB)
        assert fence.charged() == before + CHUNK
        fence.give("free", large)
        assert fence.charged() == before + CHUNK
        fence.give("free", small)
        assert fence.charged() == before


def test_a_free_that_fails_keeps_its_place_in_the_chunk(bare: Sim, state: Path) -> None:
    with allocator(bare, state, limit="16m", cuMemFree_v2="1=700") as fence:
        while fence.charged() < 16 * MIB:
            pieces = [fence.take("linear", MIB) for _ in range(2)]

        assert fence.ask("free", "free", pieces[0]) == [700]

        fence.refused("linear", MIB)
        fence.give("free", pieces[0])
        fence.take("linear", MIB)


def test_a_pitch_is_charged_with_its_padding(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        fence.take("pitch", 64 * MIB)  # 65536 rows of 1000 bytes

        assert fence.charged() == before + 64 * MIB


@pytest.mark.parametrize("family", ["linear", "managed_global", "managed_host"])
def test_what_the_driver_refuses_it_refuses_in_its_own_words(
    bare: Sim, state: Path, family: str
) -> None:
    """Even where the limit would have refused as well."""
    with allocator(bare, state) as fence:
        before = fence.charged()

        assert fence.ask("null", family, 4 * GIB) == [INVALID_VALUE]
        assert fence.ask("alloc", family, 0)[0] == INVALID_VALUE
        assert fence.ask("null", "async", 4 * GIB) == [INVALID_VALUE]
        assert fence.charged() == before


def test_a_pointer_that_nobody_charged_gets_the_drivers_answer(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        address = fence.take("linear", 8 * MIB)
        before = fence.charged()

        for door in ["free", "free_v1", "free_async", "free_async_ptsz", "close"]:
            assert fence.ask("free", door, address + 512) == [INVALID_VALUE]
        assert fence.ask("free", "free", 0) == [0]
        assert fence.charged() == before

        fence.give("free", address)
        assert fence.ask("free", "free", address) == [INVALID_VALUE]
        assert fence.charged() == before - 8 * MIB


@pytest.mark.parametrize(
    ("family", "door"),
    [
        ("async", "free"),
        ("async_ptsz", "free_async"),
        ("pool", "free"),
        ("pool_ptsz", "free"),
        ("linear", "free_async"),
        ("linear", "free_async_ptsz"),
        ("pitch", "free_async"),
        ("linear_v1", "free"),
        ("pitch_v1", "free"),
    ],
)
def test_other_doors_give_the_same_charge_back(
    bare: Sim, state: Path, family: str, door: str
) -> None:
    with allocator(bare, state) as fence:
        prepare(fence, family)
        before = fence.charged()

        for _ in range(3):
            fence.give(door, fence.take(family, 100 * MIB))
            fence.does("sync", "context")
            assert fence.charged() == before


@pytest.mark.parametrize(
    ("family", "function"),
    [
        ("linear", "cuMemAlloc_v2"),
        ("linear_v1", "cuMemAlloc"),
        ("pitch", "cuMemAllocPitch_v2"),
        ("pitch_v1", "cuMemAllocPitch"),
        ("managed_global", "cuMemAllocManaged"),
        ("async", "cuMemAllocAsync"),
        ("async_ptsz", "cuMemAllocAsync_ptsz"),
        ("pool", "cuMemAllocFromPoolAsync"),
        ("pool_ptsz", "cuMemAllocFromPoolAsync_ptsz"),
    ],
)
def test_a_failed_call_gives_its_charge_back(
    bare: Sim, state: Path, family: str, function: str
) -> None:
    with allocator(bare, state, **{function: "1=700"}) as fence:
        prepare(fence, family)
        before = fence.charged()

        assert fence.ask("alloc", family, 900 * MIB)[0] == 700
        assert fence.charged() == before
        fence.take(family, 900 * MIB)


@pytest.mark.parametrize(
    ("family", "door", "function"),
    [
        ("linear", "free", "cuMemFree_v2"),
        ("linear_v1", "free_v1", "cuMemFree"),
        ("async", "free_async", "cuMemFreeAsync"),
        ("async", "free_async_ptsz", "cuMemFreeAsync_ptsz"),
    ],
)
def test_a_failed_free_keeps_the_charge(
    bare: Sim, state: Path, family: str, door: str, function: str
) -> None:
    with allocator(bare, state, **{function: "1=700"}) as fence:
        before = fence.charged()
        address = fence.take(family, 64 * MIB)

        assert fence.ask("free", door, address) == [700]
        assert fence.charged() == before + 64 * MIB
        fence.give(door, address)
        fence.does("sync", "stream")
        assert fence.charged() == before


def test_without_a_limit_nothing_is_kept(bare: Sim, state: Path) -> None:
    with allocator(bare, state, limit=None) as fence:
        for family, door in FREED_BY.items():
            prepare(fence, family)
            fence.give(door, fence.take(family, 3 * GIB))
    assert not list(state.iterdir())
