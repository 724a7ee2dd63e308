"""Files of unnamed containers, from the first program to the sweep: none stays, none goes early.

The commands are real, the programs run over the simulated driver.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.charges import MIB
from tests.support.machine import REPO, Sim, without_refusals

LIMIT = str(64 * MIB)


class Node:
    """A machine with one state folder, on which jobs are started without a name."""

    def __init__(self, sim: Sim, state: Path) -> None:
        """Keep what every command needs."""
        self.sim = sim
        self.state = state
        own = {"PYTHONPATH": str(REPO / "tools"), "GPUFENCE_STATE_DIR": str(state)}
        self.env = sim.environment(preload=False, extra=own)
        self.library = str(sim.build / "lib" / "libgpufence.so")

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "gpufence", *map(str, words)]

    def job(self, *command: str | Path) -> list[str]:
        """A job under a memory and a core limit, so that it has a file of each kind."""
        limits = ("--memory", LIMIT, "--cores", "50")
        return self.command("run", "--lib", self.library, *limits, "--", *command)

    def run(self, command: list[str]) -> str:
        """Run to the end, which must be a good one; what it printed."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, without_refusals(done.stderr)[1]) in (
            (0, ""),
            (0, "gpufence: no container has used a GPU under a limit here\n"),
        )
        return done.stdout

    def status(self) -> str:
        return self.run(self.command("status", "--state-dir", self.state))

    @contextmanager
    def started(self, *command: str | Path) -> Iterator[subprocess.Popen[str]]:
        """A job whose program has said that it is ready."""
        job = subprocess.Popen(
            self.job(*command),
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert job.stdin
        assert job.stdout
        try:
            assert job.stdout.readline() == "ready\n"
            yield job
        finally:
            job.kill()
            job.communicate()  # the end of its input is the end of whom it left behind

    def files(self) -> list[str]:
        """Whatever lies in the state folder."""
        return sorted(path.name for path in self.state.iterdir())

    def kinds(self) -> list[str]:
        """By their last names, such as cores2-0af3c1d2, limits3 and v5, without the numbers."""
        return [re.split("[0-9]", name.rpartition(".")[2])[0] for name in self.files()]


@pytest.fixture
def node(bare: Sim, state: Path) -> Node:
    """A node with an empty state folder."""
    return Node(bare, state)


@pytest.fixture
def worker(sim: Sim) -> tuple[Path, str]:
    """A program that is killed or ends when its input does."""
    return (sim.build / "tests" / "kill_worker", "1")


@pytest.fixture
def probe(sim: Sim) -> Path:
    """A program that ends by itself."""
    return sim.build / "tests" / "limit_probe"


def test_a_job_that_was_killed_is_swept_by_the_next_one(
    node: Node, worker: tuple[Path, str], probe: Path
) -> None:
    with node.started(*worker) as job:
        left = node.files()
        node.run(node.job(probe))
        assert set(left) < set(node.files())
        job.kill()
        job.wait(60)

        node.run(node.job("true"))

    assert [name.split("-")[0:2] for name in left] == [["gpufence", "run"]] * 2
    assert node.files() == []


def test_status_shows_who_runs_and_sweeps_who_ended(
    node: Node, worker: tuple[Path, str], probe: Path
) -> None:
    with node.started(*worker) as job:
        node.run(node.job(probe))
        ended = set(node.files())

        shown = node.status()

        assert f"run-{job.pid}-" in shown
        assert shown.count("run-") == 1
        assert node.kinds() == ["cores", "v"]
        assert set(node.files()) < ended

    node.status()
    assert node.files() == []


def test_a_daemon_that_was_left_behind_keeps_its_container(
    node: Node, worker: tuple[Path, str]
) -> None:
    with node.started("sh", "-c", 'exec 3<&0; "$0" 1 <&3 &', worker[0]) as job:
        assert job.wait(60) == 0

        shown = node.status()

        assert f"run-{job.pid}-" in shown
        assert node.kinds() == ["cores", "v"]

    node.status()
    assert node.files() == []


def test_a_command_that_lives_keeps_its_container_between_two_programs(
    node: Node, probe: Path
) -> None:
    with node.started("sh", "-c", '"$0" >/dev/null; echo ready; read line', probe) as job:
        node.status()
        node.run(node.job("true"))
        assert node.kinds() == ["cores", "v"]
        name = f"run-{job.pid}-"
        node.run(node.command("set", name, "--memory", "1g", "--state-dir", node.state))
        node.status()
        assert node.kinds() == ["core", "limits", "limits3.history", "v"] or len(node.files()) == 4

    node.status()
    assert node.files() == []


def test_of_jobs_that_come_and_go_at_once_nothing_is_left(node: Node, probe: Path) -> None:
    jobs = [
        subprocess.Popen(node.job(probe), env=node.env, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    jobs[0].kill()
    granted = [job.communicate(timeout=60)[0] for job in jobs][1:]

    node.status()

    assert [job.returncode for job in jobs[1:]] == [0] * 5
    assert all(f'"granted 0": {64 * MIB}' in text for text in granted)
    assert node.files() == []
