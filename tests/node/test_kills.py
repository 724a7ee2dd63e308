"""An agent that is killed at any step: no limit is wrong, none is lost, nothing is given out twice.

First every step of the files by itself, in this process; then real agents by kill -9.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from gpufence.node import book, boxes, checkpoint, config, desk

from .conftest import GPUS, HAMI, MIB, Node
from .kubelet import FullError
from .test_device_plugin import hami

STEPS = ("replace", "fsync", "unlink", "mkdir", "chmod")


class KilledError(BaseException):
    """The process ends here: no handler of the agent may see it as a failure."""


@dataclass(slots=True)
class Killer:
    """Ends the process at the n-th step that changes a file; 0: never."""

    at: int = 0
    steps: int = 0

    def guard(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """A system call that may be the last one."""

        def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self.steps += 1
            if self.steps == self.at:
                raise KilledError
            return real(*args, **kwargs)

        return step


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    made = Killer()
    for name in STEPS:
        monkeypatch.setattr(os, name, made.guard(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", made.guard(shutil.rmtree))
    opened = Path.open

    def emptied(path: Path, mode: str = "r", **kwargs: Any) -> Any:  # noqa: ANN401
        file = opened(path, mode, **kwargs)
        return made.guard(lambda: file)() if "w" in mode else file

    monkeypatch.setattr(Path, "open", emptied)
    yield made
    made.at = 0


@dataclass(slots=True)
class Story:
    """Containers that come, start, start again, end and are followed by others of their units."""

    folder: Path
    killer: Killer
    pods: dict[str, desk.Listed] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    agent: desk.Desk | None = None
    kills: int = 0

    def run(self) -> None:
        """From begin to end; where the agent is killed, another one goes on."""
        self._does(lambda agent: None)
        self.comes("ns/first/main", ["g0"], range(3000), range(30))
        self.comes("ns/second/main", ["g1"], range(3000, 6000), range(30, 60))
        self._starts("ns/first/main")
        del self.pods["ns/second/main"]
        self.comes("ns/third/main", ["g1", "g2"], range(3000, 5000), range(30, 90))
        del self.pods["ns/first/main"]
        self.comes("ns/first/main", ["g0"], range(2000), range(20))
        self._starts("ns/third/main")

    def comes(self, owner: str, slots: list[str], memory: range, cores: range) -> None:
        """A container is admitted and starts."""
        units = {
            HAMI[0]: tuple(slots),
            HAMI[1]: tuple(f"m{number:x}" for number in memory),
            HAMI[2]: tuple(f"c{number:x}" for number in cores),
        }
        for kind, names in zip(("gpu", "memory", "cores"), units.values(), strict=True):
            # An admission that fails leaves no container behind; the next one has the same units.
            while not self._does(lambda agent, k=kind, n=names: agent.allocated(k, n)):
                pass
        if (self._box(owner, slots[0]) / "state" / "left").exists():
            self.wrong.append(f"{owner} finds what another one left")
        self.pods[owner] = desk.Listed(owner, dict(sorted(units.items())))
        self._starts(owner)
        # As a program of the container, which no kill of the agent can hit.
        with open(self._box(owner, slots[0]) / "state" / "left", "w", encoding="utf-8") as file:
            file.write(owner)

    def _starts(self, owner: str) -> None:
        kept = self._left(owner)
        while not self._does(lambda agent: agent.start("cores", self.pods[owner].units[HAMI[2]])):
            pass
        if self._left(owner) != kept:
            self.wrong.append(f"{owner} has lost its ledger")
        key = self.pods[owner].units[HAMI[0]][0]
        told = (self._box(owner, key) / "gpufence.conf").read_text()
        memory = len(self.pods[owner].units[HAMI[1]]) * MIB
        if f"memory_limit = {memory}\n" not in told:
            self.wrong.append(f"{owner} has another limit")

    def _does(self, work: Callable[[desk.Desk], object]) -> bool:
        """Whether it was done; else the agent was killed, and a new one is there."""
        try:
            if self.agent is None:
                self.agent = self._agent()
            work(self.agent)
        except KilledError:
            self.kills += 1
            self.agent = None
            return False
        self.wrong += book.overbooked(
            self.agent.gpus, self.agent.grants.held.values(), self.agent.config.slots
        )
        return True

    def _agent(self) -> desk.Desk:
        made = config.of_table({"preset": "hami", "gpus": GPUS})
        there = boxes.Boxes(
            self.folder, self.folder / "cdi", "/run/gpufence-node", "/lib", "/pre", "environment"
        )
        assert made.gpus
        agent = desk.Desk(made, made.gpus, there, lambda: list(self.pods.values()), lambda: True)
        self.folder.mkdir(exist_ok=True)
        agent.open()
        return agent

    def _box(self, owner: str, key: str) -> Path:
        return self.folder / "containers" / key

    def _left(self, owner: str) -> str:
        with suppress(OSError):
            key = self.pods[owner].units[HAMI[0]][0]
            return (self._box(owner, key) / "state" / "left").read_text()
        return ""


def test_an_agent_that_is_killed_at_any_step_goes_on_as_if_it_had_not_been(
    tmp_path: Path, killer: Killer
) -> None:
    whole = Story(tmp_path / "whole", killer)
    whole.run()
    steps = killer.steps
    assert (whole.kills, whole.wrong) == (0, [])
    assert steps > 40

    for step in range(1, steps + 1):
        killer.at, killer.steps = step, 0
        story = Story(tmp_path / str(step), killer)
        story.run()
        assert (story.kills, story.wrong) == (1, []), f"killed at step {step}"


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, r=real, n=name: (calls.append(n), r(*a)))

    checkpoint.write(tmp_path / "grants.json", [])

    assert calls == ["fsync", "replace", "fsync"]


def test_what_could_not_be_removed_is_removed_before_the_next_container_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path / "agent", Killer())
    story.comes("ns/first/main", ["g0"], range(100), range(10))
    del story.pods["ns/first/main"]
    left = tmp_path / "agent" / "containers" / "g0" / "state" / "left"

    def busy(path: Path) -> None:
        raise OSError(16, "Device or resource busy")

    assert story.agent
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", busy)
        with pytest.raises(OSError, match="busy"):
            story.agent.allocated("gpu", ["g0"])
    still = left.exists()
    story.comes("ns/second/main", ["g0"], range(100), range(10))

    assert still
    assert story.wrong == []
    assert left.read_text() == "ns/second/main"


def test_a_container_cannot_keep_its_folder_by_folders_in_folders(tmp_path: Path) -> None:
    story = Story(tmp_path / "agent", Killer())
    story.comes("ns/first/main", ["g0"], range(100), range(10))
    state = tmp_path / "agent" / "containers" / "g0" / "state"
    here = os.open(state, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    del story.pods["ns/first/main"]

    left = []
    try:
        story.comes("ns/second/main", ["g0"], range(100), range(10))
        left = [path.name for path in state.iterdir()]
    finally:  # pytest could not remove it, either
        subprocess.run(["rm", "-rf", state / "d"], check=True)

    assert story.wrong == []
    assert left == ["left"]


def test_units_that_must_be_among_the_preferred_ones_are(tmp_path: Path) -> None:
    story = Story(tmp_path / "agent", Killer())
    story.run()
    assert story.agent

    found = story.agent.preferred("gpu", ["g10", "g9", "g5", "g1"], ["g1"], 3)

    assert found == ["g1", "g5", "g9"]
    # Who has it goes on: an init container hands its units on to the pod's containers.
    assert "ns/third/main" in {grant.owner for grant in story.agent.grants.held.values()}


def test_agents_that_are_killed_at_random_moments_give_nothing_out_twice(node: Node) -> None:
    dice = random.Random(33)
    kubelet = node.kubelet
    node.start()
    known: dict[str, tuple[tuple[str, ...], int, int]] = {}
    wanted: dict[str, dict[str, int]] = {}
    kills = 0
    for turn in range(40):
        # Most calls take a few milliseconds.
        timer = threading.Timer(dice.uniform(0, 0.03), node.kill)
        if killing := turn % 5 == 4:
            timer.start()
        for owner in dice.sample(sorted(kubelet.containers), k=len(kubelet.containers) // 4):
            kubelet.end(owner)
            known.pop(owner, None)
        owner = f"ns/pod{turn}/main"
        asked = hami(dice.choice((100, 700, 1900)), dice.choice((0, 10, 40)))
        with suppress(grpc.RpcError, FullError):
            kubelet.admit(owner, asked)
            wanted[owner] = asked
        waiting = [each for each in sorted(kubelet.containers) if each not in known]
        for each in [*waiting, *dice.sample(sorted(known), k=min(1, len(known)))]:
            with suppress(grpc.RpcError):
                kubelet.begin(each)
                _compare(node, each, wanted[each], known)
        if killing:
            timer.join()
            kills += 1
            node.start()
        for each in known:
            assert node.held(each) == known[each], "what a container had is lost"
        _nothing_twice(known)

    assert kills == 8
    assert len(known) > 1


def _compare(
    node: Node,
    owner: str,
    asked: dict[str, int],
    known: dict[str, tuple[tuple[str, ...], int, int]],
) -> None:
    gpus, memory, cores = node.held(owner)
    assert (len(gpus), memory, cores) == (1, asked[HAMI[1]] * MIB, asked.get(HAMI[2], 0))
    assert known.setdefault(owner, (gpus, memory, cores)) == (gpus, memory, cores)


def _nothing_twice(known: dict[str, tuple[tuple[str, ...], int, int]]) -> None:
    for gpu in GPUS:
        there = [each for each in known.values() if gpu["uuid"] in each[0]]
        assert sum(memory for _, memory, _ in there) <= int(gpu["memory"][:-3]) * MIB
        assert sum(cores for *_, cores in there) <= 100
        assert len(there) <= 10
