"""Physical memory: charged until the last of handle, retained reference and mapping is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import CHUNK, GIB, INVALID_VALUE, MIB
from tests.support.handles import Handles, handles
from tests.support.machine import Sim

FAR = 128 * GIB  # beyond what is walked address by address (lib/src/hooks/memory/vmm.cpp)


def mapped(fence: Handles, size: int, pieces: int = 1) -> tuple[int, list[int]]:
    """A range of `pieces` mappings side by side: its address, and the handles."""
    address = fence.make("reserve", size * pieces)
    handles_made = []
    for piece in range(pieces):
        handle = fence.make("create", "device", size)
        fence.does("map", address + piece * size, size, handle)
        handles_made.append(handle)
    return address, handles_made


def test_physical_memory_is_held_at_the_limit_exactly(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        made = [fence.make("create", "device", 256 * MIB) for _ in range(3)]
        made.append(fence.make("create", "device", 256 * MIB - start))

        assert fence.charged() == GIB
        assert fence.used() == GIB
        fence.refused("create", "device", CHUNK)
        for handle in made:
            fence.does("release", handle)
        assert fence.charged() == start


@pytest.mark.parametrize("where", ["host", "host_numa"])
def test_host_memory_is_never_charged_or_refused(bare: Sim, state: Path, where: str) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()

        handle = fence.make("create", where, 2 * GIB)

        assert fence.charged() == start
        fence.does("release", handle)
        assert fence.charged() == start


def test_what_the_driver_refuses_it_refuses_in_its_own_words(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()

        assert fence.ask("create", "null", CHUNK)[0] == INVALID_VALUE
        assert fence.ask("create", "device", CHUNK // 2)[0] == INVALID_VALUE
        assert fence.ask("create", "device", 0)[0] == INVALID_VALUE
        assert fence.ask("release", 12345)[0] == INVALID_VALUE
        assert fence.ask("unmap", 0x7000_0000_0000, CHUNK)[0] == INVALID_VALUE

        assert fence.charged() == start


def test_a_second_device_is_charged_to_itself(bare: Sim, state: Path) -> None:
    two = bare.with_env(GPUS=2)
    with handles(two, state) as fence:
        start = fence.charged()

        fence.make("create", "device1", GIB)

        assert fence.charged() == start
        fence.refused("create", "device1", CHUNK)
        fence.make("create", "device", 512 * MIB)


def test_a_mapping_keeps_the_charge_of_a_released_handle(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        address, (handle,) = mapped(fence, 512 * MIB)

        fence.does("release", handle)

        assert fence.charged() == start + 512 * MIB
        fence.refused("create", "device", 768 * MIB)
        fence.does("unmap", address, 512 * MIB)
        assert fence.charged() == start


def test_a_handle_keeps_the_charge_of_an_unmapped_range(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        address, (handle,) = mapped(fence, 512 * MIB)

        fence.does("unmap", address, 512 * MIB)

        assert fence.charged() == start + 512 * MIB
        fence.does("release", handle)
        assert fence.charged() == start


def test_two_mappings_of_one_handle_both_keep_it(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        handle = fence.make("create", "device", 64 * MIB)
        address = fence.make("reserve", 128 * MIB)
        fence.does("map", address, 64 * MIB, handle)
        fence.does("map", address + 64 * MIB, 64 * MIB, handle)
        fence.does("release", handle)

        fence.does("unmap", address, 64 * MIB)
        assert fence.charged() == start + 64 * MIB
        fence.does("unmap", address + 64 * MIB, 64 * MIB)

        assert fence.charged() == start


def test_a_retained_reference_keeps_the_charge(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        address, (handle,) = mapped(fence, 64 * MIB)
        fence.does("release", handle)

        # Found by an address inside the mapping, when no handle is left but the mapping's.
        again = fence.make("retain", address + 3 * MIB)
        fence.does("unmap", address, 64 * MIB)

        assert again == handle
        assert fence.charged() == start + 64 * MIB
        fence.does("release", again)
        assert fence.charged() == start


@pytest.mark.parametrize("pieces", [3, 40])
def test_one_unmap_gives_back_every_mapping_in_its_range(
    bare: Sim, state: Path, pieces: int
) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        address, made = mapped(fence, CHUNK, pieces)
        for handle in made:
            fence.does("release", handle)
        assert fence.charged() == start + pieces * CHUNK

        fence.does("unmap", address, pieces * CHUNK)

        assert fence.charged() == start


def test_a_range_of_any_length_costs_what_is_mapped_in_it(bare: Sim, state: Path) -> None:
    """Nothing walks through addresses where nothing can be: 2^62 bytes would take hours."""
    with handles(bare, state) as fence:
        start = fence.charged()
        below = fence.make("reserve", FAR + 2 * CHUNK)
        first, behind = below + CHUNK, below + CHUNK + FAR
        for place in (below, first, first + FAR // 2, behind - CHUNK, behind):
            handle = fence.make("create", "device", CHUNK)
            fence.does("map", place, CHUNK, handle)
            fence.does("release", handle)

        for length in (1 << 62, (1 << 64) - first, (1 << 64) - first - 1):
            assert fence.ask("unmap", first, length) == [INVALID_VALUE]
        assert fence.ask("unmap", (1 << 64) - CHUNK // 2, CHUNK // 2 - 1) == [INVALID_VALUE]
        assert fence.charged() == start + 5 * CHUNK

        fence.does("unmap", first, FAR)
        assert fence.charged() == start + 2 * CHUNK


def test_an_unmap_that_the_driver_refuses_changes_nothing(bare: Sim, state: Path) -> None:
    with handles(bare, state, cuMemUnmap="1=1") as fence:
        start = fence.charged()
        address, made = mapped(fence, CHUNK, 12)
        for handle in made:
            fence.does("release", handle)

        assert fence.ask("unmap", address, 12 * CHUNK) == [INVALID_VALUE]
        assert fence.charged() == start + 12 * CHUNK

        fence.does("unmap", address, 12 * CHUNK)
        assert fence.charged() == start


def test_half_a_mapping_cannot_be_unmapped_and_stays_charged(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        address, (handle,) = mapped(fence, 8 * MIB)
        fence.does("release", handle)

        assert fence.ask("unmap", address, 4 * MIB) == [INVALID_VALUE]

        assert fence.charged() == start + 8 * MIB
        fence.does("unmap", address, 8 * MIB)
        assert fence.charged() == start


@pytest.mark.parametrize(
    ("call", "command"),
    [("cuMemCreate", "create"), ("cuMemRelease", "release"), ("cuMemMap", "map")],
)
def test_a_call_that_fails_in_the_driver_changes_nothing(
    bare: Sim, state: Path, call: str, command: str
) -> None:
    with handles(bare, state, **{call: "2=999"}) as fence:
        start = fence.charged()
        address, (handle,) = mapped(fence, 64 * MIB)
        spare = 0 if command == "create" else fence.ask("create", "device", CHUNK)[1]
        if command == "release":
            fence.does("release", spare)
        before = fence.charged()
        words: dict[str, tuple[str | int, ...]] = {
            "create": ("create", "device", CHUNK),
            "release": ("release", handle),
            "map": ("map", fence.make("reserve", CHUNK), CHUNK, spare),
        }

        assert fence.ask(*words[command])[0] == 999

        assert fence.charged() == before
        if command == "map":
            fence.does("release", spare)
        fence.does("release", handle)
        fence.does("unmap", address, 64 * MIB)
        assert fence.charged() == start


def test_releasing_twice_gives_back_once(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        other = fence.make("create", "device", 64 * MIB)
        handle = fence.make("create", "device", 64 * MIB)

        fence.does("release", handle)
        assert fence.ask("release", handle) == [INVALID_VALUE]

        assert fence.charged() == start + 64 * MIB
        fence.does("release", other)


def test_an_imported_handle_is_paid_by_its_owner_once(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        owner = fence.make("create", "shared", 512 * MIB)
        descriptor = fence.make("export", owner)

        imported = [fence.make("import", descriptor) for _ in range(4)]

        assert fence.charged() == start + 512 * MIB
        address = fence.make("reserve", 512 * MIB)
        fence.does("map", address, 512 * MIB, imported[0])
        for handle in imported:
            fence.does("release", handle)
        fence.does("unmap", address, 512 * MIB)
        assert fence.charged() == start + 512 * MIB


def test_two_processes_share_one_limit(bare: Sim, state: Path) -> None:
    with handles(bare, state) as first, handles(bare, state) as second:
        start = first.charged()
        handle = first.make("create", "device", 768 * MIB)

        second.refused("create", "device", 256 * MIB - start + CHUNK)
        second.make("create", "device", 256 * MIB - start)

        assert second.charged() == GIB
        first.does("release", handle)
        second.make("create", "device", 768 * MIB)


def test_a_dead_process_gives_its_handles_back(bare: Sim, state: Path) -> None:
    with handles(bare, state) as survivor:
        start = survivor.charged()
        with handles(bare, state) as victim:
            mapped(victim, 896 * MIB)
        survivor.make("create", "device", GIB - start)


def test_without_a_limit_nothing_is_refused(bare: Sim, state: Path) -> None:
    with handles(bare, state, limit=None) as free:
        free.make("create", "device", 4 * GIB)


def test_multicast_calls_reach_the_driver(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()

        fenced = fence.ask("multicast")

        assert fence.charged() == start
    with handles(bare, state, limit=None) as free:
        assert free.ask("multicast") == fenced
