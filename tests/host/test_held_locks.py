"""No lock of ours is held across a call of the driver, whatever a program does.

The library of `build/checked` counts the locks that each thread holds, and ends a program in which
the driver is called with one held. These programs go through it once: first calls, every family of
memory, contexts, graphs, forks, many threads, and launches under a core limit.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.machine import Sim

LIMITS = {
    "memory": {"GPUFENCE_MEMORY_LIMIT": "4g"},
    "oversold": {"GPUFENCE_MEMORY_LIMIT": "8g", "GPUFENCE_OVERSUBSCRIBE": "2"},
    "cores": {"GPUFENCE_MEMORY_LIMIT": "4g", "GPUFENCE_CORE_LIMIT": "30"},
}
PROGRAMS = {
    "limit_probe": (),
    "memory_contexts": ("contents",),
    "memory_ends": ("late", "array", "destroy"),
    "memory_forks": ("fork", 2, 4),
    "memory_storm": ("work", 200, 4, "modules"),
    "pool_storm": (1, 4, 200),
    "cores_run": ("cuLaunchKernel", "copies", 500, 50),
    "cores_graphs": ("short", 50),
    "cores_forks": ("exec", 2, 500, 50),
    "nvml_query": ("devices",),
}


@pytest.fixture
def checked(sim: Sim) -> dict[str, str]:
    """Variables that put the checking library in front."""
    library = sim.build / "checked" / "libgpufence.so"
    if not library.exists():
        pytest.skip("this build has no checking library beside its own")
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_driver_is_called_with_no_lock_held(
    sim: Sim, checked: dict[str, str], tmp_path: Path, limit: str, program: str
) -> None:
    env = {"GPUFENCE_STATE_DIR": str(tmp_path), **checked, **LIMITS[limit]}

    done = sim.run(program, *PROGRAMS[program], preload=True, env=env)

    assert "locks of ours" not in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("held", ["spin", "futex", "counted"])
def test_a_call_under_a_lock_is_seen(sim: Sim, held: str) -> None:
    done = sim.run("held_locks", held)

    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "gpufence: cuMemAlloc_v2 is called with 1 locks of ours held\n"


def test_a_call_after_all_locks_is_none_of_that(sim: Sim) -> None:
    done = sim.run("held_locks", "none")

    assert done.facts == {"called": 1}
