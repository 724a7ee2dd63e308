"""Pools are charged what the driver reserves for them, for as long as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import (
    BLOCK,
    CHUNK,
    GIB,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    Allocator,
    allocator,
)
from tests.support.machine import Sim


def test_a_pool_is_charged_in_the_drivers_blocks(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        fence.take("async", 1)
        assert fence.charged() == before + BLOCK
        fence.take("async", 31 * MIB)
        assert fence.charged() == before + BLOCK
        fence.take("async", 100 * MIB)
        assert fence.charged() == before + 5 * BLOCK


@pytest.mark.parametrize("kind", ["stream", "stream_ptsz", "context", "context_v2", "event"])
def test_freed_memory_is_charged_until_the_driver_lets_it_go(
    bare: Sim, state: Path, kind: str
) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        fence.give("free_async", fence.take("async", 100 * MIB))
        assert fence.charged() == before + 4 * BLOCK
        fence.does("sync", kind)
        assert fence.charged() == before


@pytest.mark.parametrize("size", [MIB, 100 * MIB])
@pytest.mark.parametrize("kind", ["stream", "stream_ptsz", "context", "context_v2", "event"])
def test_plain_memory_freed_in_order_is_charged_until_somebody_waits(
    bare: Sim, state: Path, kind: str, size: int
) -> None:
    """The driver holds it until then, however long ago the stream got there."""
    with allocator(bare, state) as fence:
        before = fence.charged()

        fence.give("free_async", fence.take("linear", size))
        assert fence.charged() == before + max(size, CHUNK)
        fence.give("free", fence.take("linear", 2 * MIB))
        assert fence.charged() == before + max(size, CHUNK)
        fence.does("sync", kind)
        assert fence.charged() == before


def test_plain_memory_freed_in_order_makes_room(bare: Sim, state: Path) -> None:
    """Nobody waits, but the room is needed: it is fetched before the request is refused."""
    with allocator(bare, state) as fence:
        room = GIB - fence.charged()

        for _ in range(5):
            fence.give("free_async", fence.take("linear", room))
        assert fence.charged() == GIB


def test_the_synchronous_free_lets_pool_memory_go_at_once(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        fence.give("free", fence.take("async", 100 * MIB))

        assert fence.charged() == before


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("size", [MIB, 3 * MIB])
def test_small_pieces_fill_every_block(bare: Sim, state: Path, size: int, threads: int) -> None:
    """They lie across blocks; the last one's rest is given out, too, though no further one fits."""
    with allocator(bare, state) as fence:
        room = (GIB - fence.charged()) // BLOCK * BLOCK

        code, grants = fence.ask("race", "async", size, threads)

        assert (code, grants) == (OUT_OF_MEMORY, room // size)
        assert fence.charged() == room


def test_what_a_threshold_keeps_stays_charged_until_a_trim(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("threshold", GIB)

        fence.give("free_async", fence.take("async", 100 * MIB))
        fence.does("sync", "stream")
        assert fence.charged() == before + 4 * BLOCK
        fence.does("trim", 0)
        assert fence.charged() == before


def test_a_full_pool_still_serves_what_it_keeps(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        fence.does("threshold", 4 * GIB)
        most = (GIB - fence.charged()) // BLOCK * BLOCK

        for _ in range(20):
            fence.give("free_async", fence.take("async", most))

        fence.refused("async", most + BLOCK)


@pytest.mark.parametrize("family", ["linear", "managed_host", "pool", "linear_v1"])
def test_idle_pool_memory_makes_way_before_anybody_is_refused(
    bare: Sim, state: Path, family: str
) -> None:
    with allocator(bare, state) as fence:
        fence.does("threshold", 4 * GIB)
        fence.give("free_async", fence.take("async", 800 * MIB))
        fence.does("sync", "stream")
        fence.does("pool", "device")

        fence.take(family, 900 * MIB)


def test_pool_memory_makes_way_only_when_somebody_has_waited(bare: Sim, state: Path) -> None:
    """A trim lets go of nothing that was freed since the last wait, and we never wait ourselves."""
    with allocator(bare, state) as fence:
        fence.does("threshold", 4 * GIB)
        fence.give("free_async", fence.take("async", 800 * MIB))

        fence.refused("linear", 900 * MIB)
        fence.does("sync", "stream")
        fence.take("linear", 900 * MIB)


def test_a_pool_drops_fragments_before_it_outgrows_the_limit(bare: Sim, state: Path) -> None:
    """512 MiB kept in one piece cannot serve 800 MiB, and both together are too much."""
    with allocator(bare, state) as fence:
        fence.does("threshold", 4 * GIB)
        before = fence.charged()
        fence.give("free_async", fence.take("async", 512 * MIB))
        fence.does("sync", "stream")

        fence.take("async", 800 * MIB)

        assert fence.charged() == before + 800 * MIB


def test_pieces_cross_the_borders_of_blocks(bare: Sim, state: Path) -> None:
    """20 MiB in blocks of 32: the second begins in the first one's block."""
    with allocator(bare, state) as fence:
        before = fence.charged()
        room = (GIB - before) // BLOCK * BLOCK

        fence.take("async", 20 * MIB)
        fence.take("async", 20 * MIB)
        fence.take("async", 20 * MIB)
        assert fence.charged() == before + 2 * BLOCK
        assert fence.ask("race", "async", 20 * MIB, 1) == [OUT_OF_MEMORY, room // (20 * MIB) - 3]
        assert fence.charged() == before + room


def test_blocks_that_a_request_took_before_it_failed_are_charged(bare: Sim, state: Path) -> None:
    """The driver keeps the first block of two when there is no memory for the second."""
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "limited")

        fence.refused("pool", 40 * MIB, by_the_driver=True)
        assert fence.charged() == before + BLOCK
        fence.take("pool", 20 * MIB)
        assert fence.charged() == before + BLOCK


def test_a_pool_that_lost_blocks_is_not_trusted(bare: Sim, state: Path) -> None:
    """The driver may put a request at bare addresses although mapped ones would serve."""
    with allocator(bare, state) as fence:
        fence.does("threshold", 4 * GIB)
        before = fence.charged()
        first = fence.take("async", BLOCK)
        fence.take("async", 12 * MIB)
        last = fence.take("async", 10 * MIB)
        fence.give("free_async", first)
        fence.does("sync", "stream")
        fence.does("trim", 0)
        assert fence.charged() == before + BLOCK
        fence.does("physical", GIB - fence.charged() - 30 * MIB)
        fence.give("free_async", last)

        fence.refused("async", 10 * MIB)

        assert fence.charged() <= GIB


def test_an_own_pool_ends_with_its_charge(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "device")
        fence.does("threshold", GIB)
        fence.give("free_async", fence.take("pool", 200 * MIB))
        assert fence.charged() == before + 7 * BLOCK

        fence.does("destroy")

        assert fence.charged() == before


def test_the_pool_that_the_device_uses_pays(bare: Sim, state: Path) -> None:
    """Chosen after another one served, and no longer once it is destroyed."""
    with allocator(bare, state) as fence:
        fence.take("async", 32 * MIB)
        fence.does("pool", "device")
        before = fence.charged()

        fence.does("use")
        chosen = fence.take("async", 200 * MIB)
        assert fence.charged() == before + 7 * BLOCK
        fence.give("free_async", chosen)
        fence.does("destroy")
        fence.does("sync", "stream")
        assert fence.charged() == before
        fence.take("async", 200 * MIB)
        assert fence.charged() == before + 7 * BLOCK


def test_a_destroyed_pool_is_charged_until_its_last_allocation_goes(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "device")
        first, second = fence.take("pool", 40 * MIB), fence.take("pool", 40 * MIB)
        held = fence.charged()

        fence.does("destroy")
        assert fence.charged() == held
        fence.give("free_async", first)
        fence.give("free_async", second)
        fence.does("sync", "stream")
        assert fence.charged() == before


def test_hundreds_of_pools_come_and_go(bare: Sim, state: Path) -> None:
    """More than one slab of accounts, every one used again."""
    with allocator(bare, state) as fence:
        before = fence.charged()
        for _ in range(300):
            fence.does("pool", "device")
            fence.give("free_async", fence.take("pool", MIB))
            fence.does("destroy")
        assert fence.charged() == before


def test_the_default_pool_cannot_be_destroyed_and_keeps_its_charge(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        address = fence.take("async", MIB)

        assert fence.ask("destroy") == [INVALID_VALUE]
        assert fence.charged() == before + BLOCK
        fence.give("free_async", address)
        fence.does("sync", "stream")
        assert fence.charged() == before


def test_the_current_pool_of_the_device_pays(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "device")
        fence.does("threshold", GIB)
        fence.does("use")

        fence.give("free_async", fence.take("async", 64 * MIB))
        fence.does("sync", "stream")
        assert fence.charged() == before + 64 * MIB
        fence.does("destroy")
        assert fence.charged() == before


def test_host_pools_are_free_of_charge(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "host")

        address = fence.take("pool", 2 * GIB)

        assert fence.charged() == before
        fence.give("free_async", address)
        assert fence.charged() == before


def test_the_hosts_default_pool_is_free_of_charge(sim: Sim, state: Path) -> None:
    state.mkdir()
    env = {"GPUFENCE_MEMORY_LIMIT": "2g", "GPUFENCE_STATE_DIR": str(state)}

    facts = sim.run("memory_lives", preload=True, env=env).facts

    assert facts["host_pool.alloc"] == "SUCCESS"
    assert (facts["host_pool.takes"], facts["host_pool.freed_leaves"]) == (0, 0)


def test_a_pool_with_a_ceiling_is_charged_what_it_has(bare: Sim, state: Path) -> None:
    """A ceiling of 8 MiB is one of a block."""
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("pool", "limited")

        fence.take("pool", 8 * MIB)
        assert fence.charged() == before + BLOCK
        fence.take("pool", 24 * MIB)
        fence.refused("pool", MIB, by_the_driver=True)
        assert fence.charged() == before + BLOCK


def test_a_captured_allocation_costs_nothing_yet(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()
        fence.does("begin")

        address = fence.take("async", 64 * MIB)

        assert fence.charged() == before
        fence.give("free_async", address)
        fence.does("end")
        assert fence.charged() == before


def test_a_refusal_inside_a_capture_leaves_the_capture_whole(bare: Sim, state: Path) -> None:
    """Looking for room reads and trims pools, which a global capture forbids."""
    with allocator(bare, state) as fence:
        fence.does("threshold", GIB)
        fence.give("free_async", fence.take("async", 900 * MIB))
        fence.does("sync", "stream")
        fence.does("begin")

        fence.does("physical", 900 * MIB)

        fence.does("end")


@pytest.mark.parametrize("family", ["linear", "pitch"])
@pytest.mark.parametrize("door", ["free_async", "free_async_ptsz"])
def test_plain_memory_freed_in_stream_order_is_charged_until_the_stream_gets_there(
    bare: Sim, state: Path, family: str, door: str
) -> None:
    with allocator(bare.with_env(SPEED=1), state) as fence:
        before = fence.charged()
        address = fence.take(family, 600 * MIB)
        fence.does("hold")

        fence.give(door, address)
        fence.refused("linear", 600 * MIB)
        assert fence.charged() == before + 600 * MIB
        fence.does("go")
        fence.does("sync", "stream_ptsz" if door.endswith("ptsz") else "stream")
        assert fence.charged() == before


def test_plain_memory_freed_in_stream_order_makes_room_without_a_synchronisation(
    bare: Sim, state: Path
) -> None:
    with allocator(bare, state) as fence:
        for _ in range(50):
            fence.give("free_async", fence.take("linear", 600 * MIB))


def fill(fence: Allocator) -> int:
    code, grants = fence.ask("race", "async", BLOCK, 8)
    assert code == OUT_OF_MEMORY
    return grants


def test_threads_fill_the_limit_and_not_more(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        blocks = (GIB - fence.charged()) // BLOCK

        assert fill(fence) == blocks


def test_threads_on_one_pool_leave_nothing(bare: Sim, state: Path) -> None:
    with allocator(bare, state) as fence:
        before = fence.charged()

        assert fence.ask("churn", "async", "free_async", 5 * MIB, 8, 500) == [0, 0]
        fence.does("sync", "stream")

        assert fence.charged() == before


def test_a_captured_allocation_needs_no_room_yet(bare: Sim, state: Path) -> None:
    """It is a node of the graph, whether or not it was the process's first capture."""
    with allocator(bare, state) as fence:
        fence.take("linear", 900 * MIB)
        before = fence.charged()

        for _ in range(2):
            fence.refused("async", 500 * MIB)
            fence.does("begin")
            fence.take("async", 500 * MIB)
            fence.does("end")
            assert fence.charged() == before
