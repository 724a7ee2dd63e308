"""What a process that was given no limit takes over from its container, and what it does not.

Users, namespaces and cleared environments: test_container.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.host.test_container import set_limit
from tests.memory.test_views import GIB, MIB, Viewer
from tests.support.machine import Sim

OUT_OF_MEMORY = 2


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The container's folder."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@contextmanager
def started(sim: Sim, state: Path, **limits: str) -> Iterator[Viewer]:
    """A program of the container that uses the GPU."""
    env = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_LOG_LEVEL": "info", **limits}
    process = sim.spawn("view_commands", preload=True, env=env)
    assert process.stdout
    assert process.stdout.readline().startswith("ready ")
    viewer = Viewer(process, process.pid)
    try:
        viewer.does("cuda", 0)
        yield viewer
    finally:
        process.communicate(timeout=30)


def test_a_newcomer_takes_over_the_lowest_limit(bare: Sim, state: Path) -> None:
    with (
        started(bare, state, GPUFENCE_MEMORY_LIMIT="2g"),
        started(bare, state, GPUFENCE_MEMORY_LIMIT="1g"),
        started(bare, state) as newcomer,
    ):
        total = newcomer.ask("info")[2]

    assert total == GIB


def test_a_newcomer_with_a_limit_of_its_own_keeps_that(bare: Sim, state: Path) -> None:
    with (
        started(bare, state, GPUFENCE_MEMORY_LIMIT="1g") as first,
        started(bare, state, GPUFENCE_MEMORY_LIMIT="2g") as newcomer,
    ):
        between = newcomer.ask("info")[2]
        first.process.communicate(timeout=30)
        # Queries look for the dead.
        while newcomer.ask("info")[2] == between:
            pass
        after = newcomer.ask("info")[2]

    assert (between, after) == (GIB, 2 * GIB)


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_those_who_have_ended_hold_nobody(bare: Sim, state: Path, end: str) -> None:
    with started(bare, state, GPUFENCE_MEMORY_LIMIT="1g") as first:
        getattr(first.process, end)()
        first.process.wait(30)

    with started(bare, state) as newcomer:
        granted = newcomer.ask("alloc", 2 * GIB)
        said = newcomer.said()

    assert (granted, said) == ([0], "")


def test_who_counts_for_itself_takes_over_nothing(bare: Sim, state: Path) -> None:
    limited = started(bare, state, GPUFENCE_MEMORY_LIMIT="1g")
    with limited, started(bare, state, GPUFENCE_SCOPE="process") as newcomer:
        granted = newcomer.ask("alloc", 2 * GIB)

    assert granted == [0]


def test_what_is_set_holds_for_a_newcomer_as_well(bare: Sim, state: Path) -> None:
    """A limit that was taken over is none of an operator's file: it can be raised."""
    with started(bare, state, GPUFENCE_MEMORY_LIMIT="1g"), started(bare, state) as newcomer:
        refused = newcomer.ask("alloc", GIB + MIB)
        (region,) = state.glob("gpufence-ns*.v*")
        set_limit(region.name.removeprefix("gpufence-").rpartition(".v")[0], "3GiB", state)
        granted = newcomer.ask("alloc", 2 * GIB)

    assert (refused, granted) == ([OUT_OF_MEMORY], [0])
