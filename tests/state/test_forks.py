"""Children of a process that allocates: charged for what is theirs, whichever way they are made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.machine import Sim, without_refusals
from tests.support.region_file import read_charges


@pytest.mark.parametrize("way", ["fork", "exec", "spawn", "vfork"])
def test_children_made_while_threads_allocate_change_nothing(
    sim: Sim, tmp_path: Path, way: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    env = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_MEMORY_LIMIT": "64m"}
    parent = sim.with_env(CONTEXT_BYTES="2m").spawn(
        "memory_forks", way, 20, 4, preload=True, env=env
    )
    assert parent.stdout
    answer = parent.stdout.readline()

    try:
        assert json.loads(answer) == {"failed": 0}
        (left,) = [charge for charge in read_charges(state) if charge.pid != 0]
        assert left.pid == parent.pid
        assert left.held == left.overhead
    finally:
        _, errors = parent.communicate("\n", timeout=60)
    assert (parent.returncode, without_refusals(errors)[1]) == (0, "")


CHILDREN = 3
SHARE = 30
POINTS = 3.0  # the burst of 10 ms in a run of 600, and a kernel more or less


@pytest.mark.parametrize("way", ["fork", "exec", "spawn", "vfork"])
def test_children_of_a_process_that_launches_share_its_limit(
    sim: Sim, tmp_path: Path, way: str
) -> None:
    env = {
        "GPUFENCE_CORE_LIMIT": str(SHARE),
        "GPUFENCE_STATE_DIR": str(tmp_path),
        "GPUFENCE_CONTAINER": "forks",
    }
    done = sim.run("cores_forks", way, CHILDREN, 2_000, 600, preload=True, env=env)

    assert done.stderr == ""
    assert (done.facts["failed"], done.facts["own_watchers"]) == (0, 1)
    # Each has a watcher of its own once it launches; a child that cannot launch has none.
    assert done.facts["watchers"] == (0 if way == "fork" else CHILDREN)
    assert done.facts["launches"] > 0
    assert (done.facts["of_children"] > 0) == (way != "fork")
    assert done.facts["share"] <= SHARE + POINTS
