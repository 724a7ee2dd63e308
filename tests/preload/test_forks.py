"""Children of a process that allocates: charged for what is theirs, whichever way they are made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Sim
from .region_file import read_charges


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
    assert (parent.returncode, errors) == (0, "")
