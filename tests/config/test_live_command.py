"""`gpufence run`, `status` and `set` together, over running programs and the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.memory.test_views import GIB, MIB, Viewer, viewer
from tests.support.live import NAME, environment
from tests.support.machine import REPO, Sim


class Operator:
    """Runs the command on the containers of one folder."""

    def __init__(self, state: Path) -> None:
        """Keep where to look."""
        self.state = state

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command, which must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "gpufence", *words, "--state-dir", str(self.state)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def gpu(self, number: int = 0) -> Any:  # noqa: ANN401 - JSON
        """What `status --json` tells of a GPU of the container."""
        (state,) = json.loads(self.run("status", NAME, "--json").stdout)["containers"]
        return state["gpus"][number]


@pytest.fixture
def operator(state: Path) -> Operator:
    """Whoever sets limits in the test's state folder."""
    return Operator(state)


def test_status_tells_what_a_program_uses(bare: Sim, state: Path, operator: Operator) -> None:
    env = environment(state, MEMORY_LIMIT="4g", CORE_LIMIT="30", CORE_SOFT_LIMIT="60")
    with viewer(bare, state, limit=None, env=env) as program:
        program.does("cuda", 0)
        program.does("alloc", 3 * GIB)
        assert program.ask("alloc", 2 * GIB) == [2]

        gpu = operator.gpu()

        memory, cores = gpu["memory"], gpu["cores"]
        assert (memory["used_bytes"], memory["device_bytes"]) == (3 * GIB, 3 * GIB)
        assert (memory["limit_bytes"], memory["limit_from"]) == (4 * GIB, "environment")
        assert (memory["over_bytes"], memory["oversold"]) == (0, False)
        assert (cores["core_limit_ratio"], cores["core_soft_limit_ratio"]) == (0.3, 0.6)
        assert (cores["share_millipercent"], cores["soft_share_millipercent"]) == (30_000, 60_000)
        (process,) = gpu["processes"]
        assert (process["pid"], process["used_bytes"]) == (program.pid, 3 * GIB)
        assert "view_commands" in process["command"]
        assert gpu["refusals"] >= 1


def test_a_limit_lowered_under_the_use_is_told(bare: Sim, state: Path, operator: Operator) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)
        program.does("alloc", 3 * GIB)

        done = operator.run("set", NAME, "--memory", "1g", "--gpu", "0")

        assert done.stdout.endswith(": memory 1 GiB (was 4 GiB by its own variables or files)\n")
        assert "is 2 GiB over 1 GiB: nothing is freed" in done.stderr
        assert operator.gpu()["memory"]["over_bytes"] == 2 * GIB
        assert program.ask("info")[:3] == [0, 0, GIB]
        operator.run("set", NAME, "--reset")
        assert program.ask("info")[:3] == [0, GIB, 4 * GIB]
        assert operator.gpu()["memory"]["limit_from"] == "environment"


def test_a_named_run_is_known_and_changed_before_it_uses_a_gpu(
    bare: Sim, state: Path, operator: Operator
) -> None:
    library = str(bare.build / "lib" / "libgpufence.so")
    inner = str(bare.build / "tests" / "view_commands")
    command = ["run", "--lib", library, "--name", NAME, "--memory", "2g", "--", inner]
    process = subprocess.Popen(
        [sys.executable, "-m", "gpufence", *command],
        env={
            **bare.environment(False, {}),
            "PYTHONPATH": str(REPO / "tools"),
            "GPUFENCE_STATE_DIR": str(state),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        ready, pid = process.stdout.readline().split()
        program = Viewer(process, int(pid))
        assert (ready, program.pid) == ("ready", process.pid)
        assert NAME in operator.run("status").stdout

        operator.run("set", NAME, "--memory", "3g")
        program.does("cuda", 0)

        assert program.ask("info")[2] == 3 * GIB
        operator.run("set", NAME, "--memory", "512m")
        assert program.ask("info")[2] == 512 * MIB
    finally:
        process.kill()
        process.communicate()


def test_an_ended_container_is_shown_as_such(bare: Sim, state: Path, operator: Operator) -> None:
    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)
        program.does("alloc", GIB)

    (state_of,) = json.loads(operator.run("status", "--json").stdout)["containers"]

    assert (state_of["running"], state_of["processes"]) == (False, [])
    assert state_of["gpus"][0]["memory"]["used_bytes"] == 0
    assert "ended" in operator.run("status", "--all").stdout
