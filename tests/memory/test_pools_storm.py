"""Pools beside everything else at the limit: the sum the driver reports never passes it.

Processes and threads take and give stream-ordered, physical, linear and array memory, make streams,
which take memory, too, and let pools lose blocks while requests are under way, as fast as they can;
another process reads the device's memory in use as fast as NVML answers.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.charges import CHUNK
from tests.support.machine import Sim, without_refusals
from tests.support.region_file import read_charges

LIMIT = 384
PROCESSES = 4
THREADS = 4
STEPS = 600
CHANNELS = 2 * CHUNK  # of two streams for each thread


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_sum_never_passes_the_limit(sim: Sim, tmp_path: Path, seed: int) -> None:
    sim = sim.with_env(CONTEXT_BYTES=0, SPEED=1000)
    state = tmp_path / "state"
    env = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_MEMORY_LIMIT": f"{LIMIT}m"}
    watcher = sim.spawn("memory_storm", "watch")
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "watching\n"

    workers = [
        sim.spawn("pool_storm", seed * PROCESSES + index, THREADS, STEPS, preload=True, env=env)
        for index in range(PROCESSES)
    ]
    lines = [worker.stdout.readline() for worker in workers if worker.stdout is not None]
    ends = [worker.communicate("\n", timeout=240) for worker in workers]
    seen = json.loads(watcher.communicate("\n", timeout=60)[0])

    assert [
        (worker.returncode, without_refusals(end[1])[1])
        for worker, end in zip(workers, ends, strict=True)
    ] == [(0, "")] * PROCESSES, ends
    counts = [json.loads(line) for line in lines]
    assert sum(count["failed"] for count in counts) == 0, counts
    assert sum(count["refused"] for count in counts) > STEPS, counts
    assert min(count["granted"] for count in counts) > STEPS, counts
    assert LIMIT - 64 < seen["most"] <= LIMIT, (seen, counts)
    # A context keeps its streams' channels, and what the driver was found to hold beyond all
    # requests may be left where a process ended.
    left = [charge.held - charge.overhead for charge in read_charges(state)]
    assert max(left) <= CHANNELS, left


@pytest.mark.parametrize("case", ["served", "emptied", "missed", "displaced"])
def test_nobody_relies_on_memory_that_is_gone_or_anothers(build: Path, case: str) -> None:
    """Orders of threads that a storm comes to once in a hundred runs."""
    subprocess.run([build / "tests" / "pool_holes", case], check=True, timeout=60)
