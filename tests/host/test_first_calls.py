"""The first call of a process decides its limits, and may need the loader for that.

Another thread may hold the loader's lock meanwhile, in a constructor that makes a first call, too.
Neither waits for the other: no lock of ours is held while the driver is asked.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.machine import Sim

CALLS = ("cuInit", "cuMemAlloc", "nvmlInit", "forked")
LIMITS = {
    "bare": None,
    "none": {},
    "memory": {"GPUFENCE_MEMORY_LIMIT": "2g"},
    # Unequal limits by ordinal: NVML is opened to see whether its order is another one.
    "nvml": {"GPUFENCE_MEMORY_LIMIT_0": "1g", "GPUFENCE_MEMORY_LIMIT_1": "2g"},
    "cores": {"GPUFENCE_CORE_LIMIT": "30"},
}
ROUNDS = int(os.environ.get("GPUFENCE_FIRST_CALLS_ROUNDS", "1"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("limit", LIMITS)
def test_first_calls_of_two_threads_never_wait_for_each_other(
    sim: Sim, tmp_path: Path, limit: str, call: str
) -> None:
    board = sim.with_env(GPUS=2)
    plugin = sim.build / "tests" / "first_calls_plugin.so"
    settings = LIMITS[limit]
    env = {"GPUFENCE_STATE_DIR": str(tmp_path), **(settings or {})}

    for _ in range(ROUNDS):
        done = board.run(
            "first_calls", plugin, call, preload=settings is not None, env=env, timeout=20
        )
        assert done.facts == {"made": 2}
        assert done.stderr == ""
