"""Oversold memory: the limit is virtual, the share is what may be device memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import GIB, KIB, MIB, OUT_OF_MEMORY, Allocator, allocator
from tests.support.machine import Sim

LIMIT = GIB
SHARE = GIB // 2

FREED_BY = {
    "linear": "free",
    "pitch": "free",
    "managed_global": "free",
    "managed_host": "free",
}


def fill(fence: Allocator, family: str, piece: int) -> list[int]:
    """Take pieces until there is no more; what they are."""
    taken = []
    while True:
        code, address, written = fence.ask("alloc", family, piece)
        if code != 0:
            assert (code, written) == (OUT_OF_MEMORY, 0)
            return taken
        taken.append(address)


@pytest.mark.parametrize("piece", [MIB, 32 * MIB])
@pytest.mark.parametrize("family", FREED_BY)
def test_a_family_gets_the_limit_and_no_more_than_the_share_of_the_device(
    bare: Sim, state: Path, family: str, piece: int
) -> None:
    with allocator(bare, state, oversubscribe="2") as fence:
        before = fence.charged()

        taken = fill(fence, family, piece)

        assert len(taken) == (LIMIT - before) // piece
        assert fence.charged() <= LIMIT
        assert fence.resident() <= SHARE
        for address in taken:
            fence.give(FREED_BY[family], address)
        assert (fence.charged(), fence.resident()) == (before, before)


def test_the_device_comes_first_and_again_after_a_free(bare: Sim, state: Path) -> None:
    with allocator(bare, state, oversubscribe="2") as fence:
        on_device = fence.take("linear", SHARE)
        assert fence.resident() == SHARE
        beyond = fence.take("linear", 64 * MIB)
        assert (fence.charged(), fence.resident()) == (SHARE + 64 * MIB, SHARE)

        fence.give("free", on_device)
        assert (fence.charged(), fence.resident()) == (64 * MIB, 0)
        fence.take("linear", 32 * MIB)
        assert (fence.charged(), fence.resident()) == (96 * MIB, 32 * MIB)
        fence.give("free", beyond)
        assert (fence.charged(), fence.resident()) == (32 * MIB, 32 * MIB)


def test_one_allocation_may_be_larger_than_the_share(bare: Sim, state: Path) -> None:
    with allocator(bare, state, oversubscribe="2") as fence:
        fence.take("linear", LIMIT - 64 * MIB)
        assert fence.resident() == 0
        fence.take("linear", 64 * MIB)
        assert fence.resident() == 64 * MIB
        fence.refused("linear", KIB)


@pytest.mark.parametrize("setting", ["on", "1.5", "3"])
def test_what_a_setting_leaves_on_the_device(bare: Sim, state: Path, setting: str) -> None:
    share = LIMIT if setting == "on" else int(LIMIT / float(setting))
    with allocator(bare, state, oversubscribe=setting) as fence:
        taken = fill(fence, "linear", 32 * MIB)

        assert len(taken) == LIMIT // (32 * MIB)
        assert fence.resident() == share // (32 * MIB) * 32 * MIB


def test_a_full_gpu_overflows_where_memory_is_oversold(sim: Sim, state: Path) -> None:
    """The neighbours left 256 MiB; nobody is told so."""
    small = sim.with_env(CONTEXT_BYTES=0, MEMORY="256m")
    with allocator(small, state, limit="1g", oversubscribe="on") as fence:
        taken = fill(fence, "linear", 32 * MIB)

        assert len(taken) == LIMIT // (32 * MIB)
        assert fence.resident() <= 256 * MIB


def test_two_processes_share_limit_and_device(bare: Sim, state: Path) -> None:
    with (
        allocator(bare, state, oversubscribe="2") as one,
        allocator(bare, state, oversubscribe="2") as other,
    ):
        own = [one.take("linear", 32 * MIB) for _ in range(20)]
        rest = fill(other, "linear", 32 * MIB)

        assert len(own) + len(rest) == LIMIT // (32 * MIB)
        assert one.resident() == SHARE


def test_what_a_killed_process_held_is_free_again(bare: Sim, state: Path) -> None:
    with allocator(bare, state, oversubscribe="2") as survivor:
        victim = allocator(bare, state, oversubscribe="2")
        fence = victim.__enter__()
        fill(fence, "linear", 32 * MIB)
        with pytest.raises(AssertionError):
            fence.does("kill")
        with pytest.raises((AssertionError, BrokenPipeError)):
            victim.__exit__(None, None, None)

        assert len(fill(survivor, "linear", 32 * MIB)) == LIMIT // (32 * MIB)
        assert survivor.resident() == SHARE
