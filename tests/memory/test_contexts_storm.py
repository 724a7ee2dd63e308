"""The container's sum, as the driver itself reports it, never passes the limit; nothing is lost.

Processes and threads make and end contexts, load modules and allocate at random while another
process reads the device's memory in use as fast as NVML answers. The size of a module's globals is
not known before it is loaded, so while one is loaded, measured and undone, its 64 MiB may stand
above the limit, once for each thread.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Sim, without_refusals

from .test_contexts import CONTEXT, facts, limited

LIMIT = 4096


@pytest.mark.parametrize(("kind", "unforeseen"), [("plain", 0), ("modules", 5 * 4 * 64)])
def test_sum_of_all_processes_never_passes_the_limit(
    sim: Sim, tmp_path: Path, kind: str, unforeseen: int
) -> None:
    sim = sim.with_env(SPEED=1000)
    env = limited(tmp_path)
    watcher = sim.spawn("memory_storm", "watch")
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "watching\n"

    workers = [
        sim.spawn("memory_storm", "work", 3000, 4, kind, preload=True, env=env) for _ in range(5)
    ]
    ends = [worker.communicate(timeout=120) for worker in workers]
    seen = watcher.communicate("\n", timeout=60)[0]

    assert [
        (worker.returncode, without_refusals(end[1])[1])
        for worker, end in zip(workers, ends, strict=True)
    ] == [(0, "")] * len(workers), ends
    assert '"failed": 0' in ends[0][0]
    most = int(seen.split('"most": ')[1].split(",")[0])
    assert CONTEXT < most <= LIMIT + unforeseen, (most, ends)
    assert facts(sim, tmp_path, "one")["room"] == LIMIT - CONTEXT
