"""Plain memory freed in a stream's order is charged until the driver lets go, wherever it was done.

The driver lets go when somebody waits for the stream behind the free. Which context is current
makes no difference, nor whether one is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB, OUT_OF_MEMORY
from tests.support.handles import Handles, exporting, handles
from tests.support.machine import Sim

from .test_contexts import LIMIT, limited

SIZE = 256 * MIB


def elsewhere(process: Handles, where: str) -> tuple[int, int]:
    """The context of the memory, and one that is current while it is freed: 0 for none."""
    home = process.make("here")
    if where == "nowhere":
        return home, 0
    other = process.make("context", 1 if where == "other_gpu" else 0)
    process.does("enter", home)
    return home, other


def free_while(process: Handles, address: int, home: int, other: int) -> None:
    process.does("enter", other)
    process.does("free_async", address)
    process.does("enter", home)


PLACES = ["nowhere", "other_context", "other_gpu"]


@pytest.mark.parametrize("where", PLACES)
def test_memory_freed_elsewhere_is_charged_until_somebody_waits(
    bare: Sim, state: Path, where: str
) -> None:
    with exporting(bare.with_env(GPUS=2), state) as process:
        start = process.charged()
        home, other = elsewhere(process, where)

        free_while(process, process.make("alloc", SIZE), home, other)

        assert process.charged() == start + SIZE
        process.does("wait")
        assert process.charged() == start


@pytest.mark.parametrize("where", PLACES)
def test_a_limit_is_not_passed_by_freeing_elsewhere(bare: Sim, state: Path, where: str) -> None:
    with exporting(bare.with_env(GPUS=2), state) as process:
        start = process.charged()
        home, other = elsewhere(process, where)
        for _ in range(12):
            free_while(process, process.make("alloc", SIZE), home, other)
            assert process.used() <= process.charged() <= GIB
        process.does("wait")
        assert process.charged() == start


def test_room_is_made_from_many_small_frees_at_once(bare: Sim, state: Path) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        room = GIB - start
        for address in [process.make("alloc", 2 * MIB) for _ in range(room // (2 * MIB))]:
            process.does("free_async", address)

        process.make("alloc", room)


@pytest.mark.parametrize("size", [65536, SIZE])
@pytest.mark.parametrize("end", ["destroyed", "reset", "released"])
def test_a_context_that_was_current_leaves_nothing_charged(
    bare: Sim, state: Path, end: str, size: int
) -> None:
    with exporting(bare, state) as process:
        start = process.charged()
        home = process.make("here")
        other = process.make("context", 0) if end == "destroyed" else process.make("retain", 0)
        process.does("enter", home)
        free_while(process, process.make("alloc", size), home, other)

        if end == "destroyed":
            process.does("end", other)
        else:
            process.does("reset" if end == "reset" else "release_primary", 0)
        process.does("enter", home)
        process.does("wait")

        assert process.charged() == start


@pytest.mark.parametrize("end", ["destroyed", "reset", "released"])
def test_memory_freed_in_a_stream_of_a_context_that_ends_goes_with_it(
    bare: Sim, state: Path, end: str
) -> None:
    """Nobody could make the driver let go of it later: so it is waited for before."""
    with exporting(bare, state) as process:
        start = process.charged()
        home = process.make("here")
        other = process.make("context", 0) if end == "destroyed" else process.make("retain", 0)
        process.does("enter", other)
        process.does("in", process.make("stream"))
        process.does("enter", home)
        free_while(process, process.make("alloc", SIZE), home, other)
        assert process.charged() == start + SIZE

        if end == "destroyed":
            process.does("end", other)
        else:
            process.does("reset" if end == "reset" else "release_primary", 0)

        assert process.charged() == start
        process.does("enter", home)
        process.make("alloc", GIB - start)


def test_memory_goes_with_its_context_though_another_ones_stream_was_to_free_it(
    bare: Sim, state: Path
) -> None:
    with exporting(bare, state) as process:
        home = process.make("here")
        start = process.charged()
        owner = process.make("context", 0)
        free_while(process, process.make("alloc", SIZE), owner, home)
        assert process.charged() == start + SIZE

        process.does("end", owner)

        assert process.charged() == start


@pytest.mark.parametrize(
    "call",
    ["cuStreamGetCtx", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize"],
)
def test_where_nobody_can_tell_a_reading_of_the_driver_does(
    bare: Sim, state: Path, call: str
) -> None:
    with handles(bare, state, program="exports_commands", **{call: "*=999"}) as process:
        start = process.charged()
        for _ in range(12):
            code, address, *_ = process.ask("alloc", SIZE)
            assert process.used() <= GIB
            if code != 0:
                break
            process.does("free_async", address)
        process.does("sync")

        process.make("alloc", GIB - start)


def test_a_free_on_a_capturing_stream_changes_nothing(bare: Sim, state: Path) -> None:
    """A capture takes the memory of its own graph alone."""
    with exporting(bare, state) as process:
        start = process.charged()
        pool = process.make("pool")
        plain = process.make("alloc", SIZE)
        pooled = process.make("take", pool, SIZE)
        process.does("begin")

        assert process.ask("free_async", plain)[0] == 1
        assert process.ask("free_async", pooled)[0] == 1

        process.ask("end_capture")
        assert process.charged() == start + 2 * SIZE
        process.does("free", plain)
        process.does("free_async", pooled)
        process.does("sync")
        assert process.charged() == start


@pytest.mark.parametrize("call", ["load", "alloc"])
def test_memory_that_goes_during_a_comparison_hides_no_overhead(
    sim: Sim, tmp_path: Path, call: str
) -> None:
    """The driver holds less by then, and the ledger counts it still."""
    done = sim.run("late_looks", call, preload=True, env=limited(tmp_path))

    assert (done.facts["gone"], done.facts["refused"]) == (1, OUT_OF_MEMORY)
    assert done.facts["held"] <= LIMIT
