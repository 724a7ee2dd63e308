"""Oversold memory, family by family: how much, where, what it is, and every way back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.charges import BLOCK, CHUNK, INVALID_VALUE, MIB, OUT_OF_MEMORY
from tests.support.handles import handles
from tests.support.machine import Sim

from .oversold import LIMIT, SHARE, commands, fill, on_device

NOT_SUPPORTED = 801
DEVICE_ONLY = ["array", "graph"]
DOORS = {
    "linear": ["free", "free_async"],
    "pitch": ["free", "free_async"],
    "managed": ["free"],
    "async": ["free", "free_async"],
    "pool": ["free", "free_async"],
    "physical": ["release"],
    "mapped": ["unmap"],
    "array": ["destroy"],
    "graph": ["destroy"],
}


@pytest.mark.parametrize(("family", "door"), [(f, d) for f, doors in DOORS.items() for d in doors])
def test_the_limit_is_reached_and_all_of_it_comes_back(
    bare: Sim, state: Path, family: str, door: str
) -> None:
    with commands(bare, state) as fence:
        before = fence.charged()

        taken = fill(fence, family, BLOCK)

        most = SHARE if family in DEVICE_ONLY else LIMIT
        assert len(taken) == (most - before) // BLOCK
        assert fence.charged() == most
        assert fence.resident() == SHARE
        # Managed memory that may move is charged before anybody touches it.
        assert on_device(bare) == (0 if family == "managed" else SHARE)
        for handle in taken:
            fence.does("give", family, door, handle)
        fence.does("sync")
        fence.does("sync")
        assert fence.resident() == 0 == on_device(bare)
        # What an overflow pool keeps is charged until somebody needs the room.
        kept = SHARE if family in ("async", "pool") else 0
        assert fence.charged() == kept
        assert len(fill(fence, "linear", BLOCK)) == LIMIT // BLOCK


@pytest.mark.parametrize("family", ["linear", "pitch", "managed", "async", "pool", "mapped"])
def test_what_memory_is_told_to_be(bare: Sim, state: Path, family: str) -> None:
    """Device memory looks as ever; overflow says that it is managed, or the host's."""
    with commands(bare, state) as fence:
        before, after = (fence.ask("take", family, SHARE - CHUNK)[1] for _ in range(2))

        managed = int(family == "managed")
        exports = int(family in ("linear", "pitch"))
        advised = {"linear": -1, "pitch": -1, "managed": -1}.get(family, -3)
        assert fence.ask("tell", before) == [0, 2, managed, exports, -2 if managed else -3]
        hosted = [0, 1, 0, 0, -3] if family == "mapped" else [0, 2, 1, 0, advised]
        assert fence.ask("tell", after) == hosted


MOVES = ["prefetch", "prefetch_v2", "batch", "prefer", "prefer_v2", "mostly"]


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("family", ["linear", "managed", "async"])
def test_nothing_moves_overflow_to_the_device(
    bare: Sim, state: Path, family: str, how: str
) -> None:
    with commands(bare, state) as fence:
        fence.does("take", "linear", SHARE)
        _, overflow = fence.ask("take", family, 64 * MIB)

        code = fence.ask("move", how, overflow, 64 * MIB)

        if family != "async":  # the simulated driver takes no advice about pools
            assert code == [0]
            assert fence.ask("tell", overflow) == [0, 2, 1, 0, -1]
        fence.does("sync")
        assert on_device(bare) == SHARE


def test_what_has_room_may_still_move(bare: Sim, state: Path) -> None:
    with commands(bare, state) as fence:
        fence.does("take", "linear", SHARE - 128 * MIB)
        _, movable = fence.ask("take", "managed", 64 * MIB)
        fence.does("take", "linear", LIMIT - SHARE)

        fence.does("move", "prefetch", movable, 64 * MIB)

        assert on_device(bare) == SHARE - 64 * MIB


def test_small_managed_pieces_stay_on_the_host(bare: Sim, state: Path) -> None:
    with commands(bare, state) as fence:
        _, small = fence.ask("take", "managed", MIB)

        fence.does("move", "prefetch", small, MIB)

        assert (fence.charged(), fence.resident(), on_device(bare)) == (CHUNK, 0, 0)


def test_an_export_of_overflow_fails_with_the_reason(bare: Sim, state: Path) -> None:
    process = bare.spawn(
        "oversold_commands",
        preload=True,
        env={
            "GPUFENCE_STATE_DIR": str(state.parent),
            "GPUFENCE_MEMORY_LIMIT": "1g",
            "GPUFENCE_OVERSUBSCRIBE": "2",
        },
    )
    process.stdin.write(f"take linear {SHARE}\ntake linear {CHUNK}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    first, second = (process.stdout.readline().split()[1] for _ in range(2))

    out, err = process.communicate(f"export {first}\nexport {second}\n", timeout=30)

    assert out.split() == ["0", "1"]
    assert err.startswith("gpufence: cuIpcGetMemHandle fails: this memory lies on the host")


@pytest.mark.parametrize("door", ["free_async", "free_other"])
def test_a_free_in_a_streams_order_waits_for_nobody(bare: Sim, state: Path, door: str) -> None:
    """Overflow of plain memory has no stream order of its own; it goes when the device is idle."""
    with commands(bare, state) as fence:
        fence.does("query_other")
        fence.does("take", "linear", SHARE - fence.charged())
        _, overflow = fence.ask("take", "linear", 64 * MIB)
        fence.does("hold")

        fence.does("give", "linear", door, overflow)
        assert fence.ask("query") == [600]
        fence.does("query_other")  # would never answer if it waited for the device

        assert fence.charged() == SHARE + 64 * MIB
        assert fence.ask("tell", overflow)[0] == 0
        fence.does("go")
        fence.does("sync")
        assert fence.charged() == SHARE
        assert fence.ask("tell", overflow)[0] == INVALID_VALUE


@pytest.mark.parametrize("call", ["cuStreamGetCtx", "cuEventCreate", "cuEventRecord"])
def test_overflow_whose_free_cannot_wait_for_its_stream_is_kept(
    bare: Sim, state: Path, call: str
) -> None:
    """Without an event nobody knows when the stream gets there, and the driver does not free it."""
    with commands(bare, state, faults=f"{call}@*=999") as fence:
        fence.does("take", "linear", SHARE - fence.charged())
        _, overflow = fence.ask("take", "linear", 64 * MIB)

        assert fence.ask("give", "linear", "free_async", overflow) == [NOT_SUPPORTED]

        fence.does("sync")
        assert fence.charged() == SHARE + 64 * MIB
        assert fence.ask("tell", overflow)[0] == 0
        fence.does("give", "linear", "free", overflow)
        assert fence.charged() == SHARE


@pytest.mark.parametrize("call", ["cuEventQuery", "cuEventSynchronize", "cuMemFree_v2"])
def test_overflow_that_the_driver_keeps_is_charged_until_it_lets_go(
    bare: Sim, state: Path, call: str
) -> None:
    with commands(bare, state, faults=f"{call}@1=999") as fence:
        fence.does("take", "linear", SHARE - fence.charged())
        _, overflow = fence.ask("take", "linear", 64 * MIB)
        fence.does("give", "linear", "free_async", overflow)

        fence.does("sync")
        assert fence.charged() == SHARE + 64 * MIB
        assert fence.ask("tell", overflow)[0] == 0

        fence.does("sync")
        assert fence.charged() == SHARE
        assert fence.ask("tell", overflow)[0] == INVALID_VALUE


def test_overflow_freed_in_a_stream_that_ends_first_is_freed_all_the_same(
    bare: Sim, state: Path
) -> None:
    """The driver fails once, just as the stream's context ends, and the event goes with it."""
    oversold = replace(bare, env={**bare.env, "GPUFENCE_OVERSUBSCRIBE": "2"})
    with handles(oversold, state, program="exports_commands", cuMemFree_v2="1=999") as process:
        home = process.make("here")
        other = process.make("context", 0)
        process.does("enter", home)
        process.make("alloc", SHARE - process.charged())
        overflow = process.make("alloc", 64 * MIB)
        process.does("enter", other)
        process.does("in", process.make("stream"))
        process.does("free_async", overflow)
        process.does("enter", home)

        process.does("end", other)
        assert process.charged() == SHARE + 64 * MIB

        process.make("alloc", SHARE)
        assert process.charged() == 2 * SHARE


def test_views_are_virtual(sim: Sim, state: Path) -> None:
    """More than the GPU has, and nobody can tell."""
    small = sim.with_env(CONTEXT_BYTES=0, MEMORY="512m")
    with commands(small, state, setting="4", limit="1g") as fence:
        assert fence.ask("view") == [0, LIMIT, LIMIT, 0, LIMIT]
        fence.does("take", "linear", 640 * MIB)
        assert fence.ask("view") == [0, 384 * MIB, LIMIT, 640 * MIB, LIMIT]


def test_a_device_that_cannot_is_limited_to_its_share(bare: Sim, state: Path) -> None:
    process = bare.spawn(
        "oversold_commands",
        preload=True,
        env={
            "GPUFENCE_STATE_DIR": str(state.parent),
            "GPUFENCE_MEMORY_LIMIT": "1g",
            "GPUFENCE_OVERSUBSCRIBE": "2",
            "GPUFENCE_SIM_FAULTS": "cuDeviceGetAttribute@*=801",
        },
    )

    out, err = process.communicate(f"view\ntake linear {SHARE}\ntake linear 1\n", timeout=30)

    ready, view, first, second = out.splitlines()
    assert (ready, view) == ("ready", f"0 {SHARE} {SHARE} 0 {SHARE}")
    assert (first.split()[0], second) == ("0", "2 0")
    assert err.startswith("gpufence: GPUFENCE_OVERSUBSCRIBE=2 has no effect on device 0")


def test_an_old_driver_without_such_pools_refuses_their_overflow(sim: Sim, state: Path) -> None:
    old = sim.with_env(CONTEXT_BYTES=0, DRIVER=535)
    with commands(old, state) as fence:
        assert len(fill(fence, "async", BLOCK)) == SHARE // BLOCK
        assert fence.ask("take", "async", BLOCK)[0] == OUT_OF_MEMORY
        assert len(fill(fence, "linear", BLOCK)) == (LIMIT - SHARE) // BLOCK
