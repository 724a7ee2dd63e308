"""Programs that would get round the core limit, or suffer from it, in virtual time.

Each is a case in which what is usual misled the limiter (tests/programs/cores_corners.cpp).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Sim
from .virtual_world import Words, run_together

POINTS = 1.0


def limited(folder: Path, percent: int) -> dict[str, str]:
    """The variables of a container with a core limit and a region of its own."""
    return {
        "GPUFENCE_CORE_LIMIT": str(percent),
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_CONTAINER": "corners",
    }


def corner(sim: Sim, folder: Path, percent: int, *words: str | int) -> float:
    """The one figure that a case tells."""
    command: Words = ("cores_corners", *words)
    (done,) = run_together(sim, folder, [command], env=limited(folder, percent))
    (figure,) = done.facts.values()
    return float(figure)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_kernels_of_seconds_are_held(sim: Sim, tmp_path: Path, streams: int) -> None:
    """A minute holds twenty of three seconds; some go before it is known how long they are."""
    assert corner(sim, tmp_path, 10, "long", streams) <= 5 + streams


def test_a_stream_that_waits_for_ever_lets_no_launch_of_another_go(
    sim: Sim, tmp_path: Path
) -> None:
    """In a minute six of a second, and two that go before it is known how long they are."""
    assert corner(sim, tmp_path, 10, "blocked") <= 6 + 2


def test_what_exit_handlers_launch_is_held(sim: Sim, tmp_path: Path) -> None:
    assert corner(sim, tmp_path, 30, "handler") == pytest.approx(30, abs=POINTS)


def test_a_long_kernel_behind_short_ones_is_paid_for_in_a_per_thread_stream(
    sim: Sim, tmp_path: Path
) -> None:
    assert corner(sim, tmp_path, 30, "hidden") == pytest.approx(30, abs=2 * POINTS)
