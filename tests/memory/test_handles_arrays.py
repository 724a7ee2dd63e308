"""Arrays: charged what their layout takes, and nothing while they own no memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import CHUNK, GIB, KIB, MIB
from tests.support.handles import Handles, handles
from tests.support.machine import Sim

FORMS = ["flat_v1", "flat", "deep_v1", "deep", "mipmap"]
SPARSE = 64
DEFERRED = 128


def make(fence: Handles, form: str, width: int, height: int, depth: int = 0) -> int:
    """An array of float4 with one level."""
    return fence.make("array", form, width, height, depth, 0, 1)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_held_at_the_limit(bare: Sim, state: Path, form: str) -> None:
    # 2048 x 2048 elements of 16 bytes: 64 MiB without any padding.
    with handles(bare, state) as fence:
        start = fence.charged()
        made = [make(fence, form, 2048, 2048) for _ in range((GIB - start) // (64 * MIB))]

        fence.refused("array", form, 2048, 2048 + 128, 0, 0, 1)

        assert fence.charged() == start + len(made) * 64 * MIB
        assert fence.charged() == fence.used() + start
        for array in made:
            fence.does("drop", form, array)
        assert fence.charged() == start


# Width, height, depth, levels, and what an H200 with driver 580 took for it.
MEASURED = [
    (1000, 1000, 0, 1, 16384 * KIB),
    (1000, 1000, 0, 5, 22528 * KIB),
    (100000, 0, 0, 1, 14336 * KIB),
    (65536, 129, 0, 1, 262144 * KIB),
    (129, 129, 129, 1, 40960 * KIB),
    (1000, 1000, 9, 1, 251904 * KIB),
    (1500, 1500, 0, 11, 49152 * KIB),
]


@pytest.mark.parametrize(("width", "height", "depth", "levels", "taken"), MEASURED)
def test_the_charge_is_what_hardware_takes(
    bare: Sim, state: Path, width: int, height: int, depth: int, levels: int, taken: int
) -> None:
    form = "mipmap" if levels > 1 else "deep"
    with handles(bare, state) as fence:
        start = fence.charged()

        array = fence.make("array", form, width, height, depth, 0, levels)

        assert fence.charged() == start + taken
        fence.does("drop", form, array)
        assert fence.charged() == start


def test_small_arrays_that_come_and_go_leave_nothing(bare: Sim, state: Path) -> None:
    # 640 x 128 elements of 16 bytes: 1.25 MiB, of which no chunk holds two.
    with handles(bare, state) as fence:
        start = fence.charged()

        for _ in range(3):
            made = [make(fence, "deep", 640, 128) for _ in range(3)]
            assert fence.charged() == start + 3 * CHUNK
            for array in reversed(made):
                fence.does("drop", "deep", array)
                made.pop()
                assert fence.charged() == start + len(made) * CHUNK


def test_small_arrays_share_a_chunk(bare: Sim, state: Path) -> None:
    # 64 x 64 elements of 16 bytes: 64 KiB, of which a chunk holds 32.
    with handles(bare, state) as fence:
        start = fence.charged()
        made = [make(fence, "deep", 64, 64) for _ in range(32)]
        assert fence.charged() == start + CHUNK

        made.append(make(fence, "deep", 64, 64))
        assert fence.charged() == start + 2 * CHUNK

        for array in made:
            fence.does("drop", "deep", array)
        assert fence.charged() == start


@pytest.mark.parametrize("flag", [SPARSE, DEFERRED])
def test_arrays_without_memory_cost_nothing(bare: Sim, state: Path, flag: int) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()

        array = fence.make("array", "deep", 16384, 16384, 0, flag, 1)

        assert fence.charged() == start
        fence.does("drop", "deep", array)
        assert fence.charged() == start


@pytest.mark.parametrize("last", ["unmap", "array"])
def test_a_tile_keeps_physical_memory_charged(bare: Sim, state: Path, last: str) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        array = fence.make("array", "deep", 1024, 1024, 0, SPARSE, 1)
        handle = fence.make("create", "device", 8 * MIB)
        for x in (0, 64):
            fence.does("tile", 1, array, handle, x)
        fence.does("release", handle)
        assert fence.charged() == start + 8 * MIB

        fence.does("tile", 2, array, 0, 0)
        assert fence.charged() == start + 8 * MIB
        if last == "unmap":
            fence.does("tile", 2, array, 0, 64)
        else:
            fence.does("drop", "deep", array)

        assert fence.charged() == start


def test_mapping_a_tile_anew_lets_go_of_what_was_there(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        array = fence.make("array", "deep", 1024, 1024, 0, SPARSE, 1)
        first = fence.make("create", "device", 8 * MIB)
        second = fence.make("create", "device", 4 * MIB)
        fence.does("tile", 1, array, first, 0)
        fence.does("release", first)

        fence.does("tile", 1, array, second, 0)

        assert fence.charged() == start + 4 * MIB
        fence.does("release", second)
        fence.does("drop", "deep", array)
        assert fence.charged() == start


def test_a_tile_that_the_driver_refuses_changes_nothing(bare: Sim, state: Path) -> None:
    with handles(bare, state, cuMemMapArrayAsync="1=999") as fence:
        start = fence.charged()
        array = fence.make("array", "deep", 1024, 1024, 0, SPARSE, 1)
        handle = fence.make("create", "device", 8 * MIB)

        assert fence.ask("tile", 1, array, handle, 0) == [999]
        fence.does("release", handle)

        assert fence.charged() == start


@pytest.mark.parametrize(
    ("call", "form"),
    [
        ("cuArrayCreate", "flat_v1"),
        ("cuArrayCreate_v2", "flat"),
        ("cuArray3DCreate", "deep_v1"),
        ("cuArray3DCreate_v2", "deep"),
        ("cuMipmappedArrayCreate", "mipmap"),
    ],
)
def test_a_creation_that_fails_in_the_driver_gives_back(
    bare: Sim, state: Path, call: str, form: str
) -> None:
    with handles(bare, state, **{call: "1=999"}) as fence:
        start = fence.charged()

        assert fence.ask("array", form, 2048, 2048, 0, 0, 1)[0] == 999
        assert fence.charged() == start

        fence.does("drop", form, make(fence, form, 2048, 2048))
        assert fence.charged() == start


@pytest.mark.parametrize(
    ("call", "form"), [("cuArrayDestroy", "deep"), ("cuMipmappedArrayDestroy", "mipmap")]
)
def test_a_destruction_that_fails_in_the_driver_keeps_the_charge(
    bare: Sim, state: Path, call: str, form: str
) -> None:
    with handles(bare, state, **{call: "1=999"}) as fence:
        start = fence.charged()
        array = make(fence, form, 2048, 2048)

        assert fence.ask("drop", form, array) == [999]

        assert fence.charged() == start + 64 * MIB
        fence.does("drop", form, array)
        assert fence.charged() == start
