"""What is granted to one thread while another ends the context is given back once, or kept.

The simulated driver returns late from the call that grants, so that the context ends between its
deed and the booking.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import OUT_OF_MEMORY
from tests.support.machine import Sim

from .test_contexts import CONTEXT, LIMIT, limited

LATE_MS = 400  # long enough for the other thread; should it not be, the promise holds all the same
ROOM = LIMIT - CONTEXT  # one context is there to look from

# What is made, by which call, and the MiB that it takes.
MADE = {
    "linear": ("cuMemAlloc_v2", 64),
    "pitched": ("cuMemAllocPitch_v2", 10),
    "piece": ("cuMemAlloc_v2", 2),
    "array": ("cuArrayCreate_v2", 16),
    "small-array": ("cuArrayCreate_v2", 2),
}


def free_after(sim: Sim, tmp_path: Path, what: str, call: str, end: str) -> int:
    """What is free below the limit once both threads are done."""
    late = sim.with_env(FAULTS=f"{call}@1=late:{LATE_MS}")
    done = late.run("memory_ends", "late", what, end, preload=True, env=limited(tmp_path))
    assert done.stderr == ""
    free: int = done.facts["free"]
    return free


@pytest.mark.parametrize("end", ["reset", "release", "destroy"])
@pytest.mark.parametrize("what", MADE)
def test_what_a_context_took_with_it_is_not_charged(
    sim: Sim, tmp_path: Path, what: str, end: str
) -> None:
    assert free_after(sim, tmp_path, what, MADE[what][0], end) == ROOM


@pytest.mark.parametrize("what", MADE)
def test_a_primary_context_made_anew_brings_nothing_along(
    sim: Sim, tmp_path: Path, what: str
) -> None:
    assert free_after(sim, tmp_path, what, MADE[what][0], "renew") == ROOM - CONTEXT


@pytest.mark.parametrize("what", MADE)
def test_the_end_of_another_context_takes_nothing_away(sim: Sim, tmp_path: Path, what: str) -> None:
    call, mib = MADE[what]

    assert free_after(sim, tmp_path, what, call, "other") == ROOM - CONTEXT - mib


@pytest.mark.parametrize(("end", "held"), [("reset", 0), ("renew", CONTEXT), ("other", CONTEXT)])
def test_a_primary_context_is_charged_while_it_lives(
    sim: Sim, tmp_path: Path, end: str, held: int
) -> None:
    assert free_after(sim, tmp_path, "primary", "cuDevicePrimaryCtxRetain", end) == ROOM - held


@pytest.mark.parametrize("end", ["reset", "destroy"])
def test_what_ended_behind_a_look_at_the_driver_is_not_shown(
    sim: Sim, tmp_path: Path, end: str
) -> None:
    # Managed memory, which is charged before it is touched, keeps figures from being lowered.
    late = sim.with_env(FAULTS=f"nvmlDeviceGetComputeRunningProcesses_v3@*=late:{LATE_MS // 4}")

    done = late.run("memory_ends", "looked-at", end, preload=True, env=limited(tmp_path))

    assert (done.facts["code"], done.facts["free"]) == (OUT_OF_MEMORY, ROOM - 2)


def test_resets_beside_threads_that_allocate_leave_nothing(sim: Sim, tmp_path: Path) -> None:
    fast = sim.with_env(SPEED=1000)

    done = fast.run("memory_ends", "storm", 3, 500, preload=True, env=limited(tmp_path))

    assert done.facts == {"left": 0}
