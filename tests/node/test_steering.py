"""What pods say comes into force in their containers' files, once, and is taken back with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpufence.container import setting
from gpufence.container.containers import Container
from gpufence.node import config
from gpufence.node.book import Grant
from gpufence.node.boxes import Boxes
from gpufence.node.pods import Pod
from gpufence.node.steering import Steering
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from .conftest import library_like

GIB = 1 << 30
KEY, OWNER = "g0", "ml/train/main"


class World:
    """One container of the agent, which has begun to use its GPU."""

    def __init__(self, folder: Path, **keys: Any) -> None:  # noqa: ANN401 - of any key
        library = str(library_like(folder))
        self.boxes = Boxes(folder / "agent", folder / "cdi", "/turns", library, library, "cdi")
        self.held = [Grant(KEY, OWNER, {}, ("GPU-x",), 4 * GIB, 0)]
        self.state = self.boxes.path(KEY) / "state"
        self.state.mkdir(parents=True)
        self.config = config.of_table({"annotations": list(config.pod_limits.NAMES), **keys})
        self.steering = self.restarted()
        self.use("c1")

    def restarted(self) -> Steering:
        """An agent that knows nothing but its files."""
        return Steering(self.config, self.boxes, lambda: self.held)

    def use(self, name: str) -> Container:
        """A container of this name has files from now on."""
        path = limits_file.path_of(self.state, name)
        container = Container(name, None, path, os.geteuid())
        setting.apply(container, lambda entries: entries)
        return container

    def say(self, **annotations: str) -> None:
        """The pod says this, and the agent looks."""
        said = {f"gpufence.io/{name.replace('_', '-')}": each for name, each in annotations.items()}
        self.steering.tell({"ml/train": Pod("ml/train", "BestEffort", said, ("ml/claim-1",))})
        self.steering.look()

    def set(self, name: str = "c1") -> Amounts:
        """What is set for the container."""
        found = limits_file.read(limits_file.path_of(self.state, name), os.geteuid())
        return found.entries.get(EVERY_GPU, Amounts()) if found else Amounts()

    def generation(self) -> int:
        """How often it was set."""
        found = limits_file.read(limits_file.path_of(self.state, "c1"), os.geteuid())
        return found.generation if found else 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_a_pod_says_is_set_and_with_it_taken_back(world: World) -> None:
    world.say(memory="2GiB", frozen="true")
    assert world.set() == Amounts(memory=2 * GIB, frozen=True)

    world.say(cores="30")
    assert world.set() == Amounts(cores=30_000)
    world.say()
    assert world.set() == Amounts()


def test_it_is_set_once_and_what_is_set_by_hand_stays(world: World) -> None:
    world.say(memory="2GiB")
    container = world.use("c1")
    setting.apply(container, lambda _: {EVERY_GPU: Amounts(memory=GIB, cores=20_000)})
    before = world.generation()
    world.say(memory="2GiB")

    assert world.generation() == before
    world.say()
    assert world.set() == Amounts(cores=20_000)


def test_an_agent_that_was_killed_knows_what_it_had_set(world: World) -> None:
    world.say(memory="2GiB")
    world.steering = world.restarted()
    world.say()

    assert world.set() == Amounts()


@pytest.mark.parametrize("after", [False, True], ids=["before it set", "after it set"])
def test_an_agent_that_is_killed_while_it_sets_leaves_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    world.say(cores="30")
    apply = setting.apply

    def die(*words: Any) -> None:  # noqa: ANN401 - of any call
        if after:
            apply(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(setting, "apply", die)
    with pytest.raises(KeyboardInterrupt):
        world.say(memory="2GiB")
    monkeypatch.undo()
    world.steering = world.restarted()
    world.say(memory="2GiB", frozen="true")
    assert world.set() == Amounts(memory=2 * GIB, frozen=True)
    world.say()

    assert world.set() == Amounts()


def test_a_container_that_begins_later_gets_it_too(world: World) -> None:
    world.say(cores="30")
    world.use("c2")
    world.say(cores="30")

    assert world.set("c2") == Amounts(cores=30_000)


def test_what_no_server_has_told_changes_nothing(world: World) -> None:
    world.say(cores="30")
    world.steering = world.restarted()
    world.steering.look()

    assert world.set() == Amounts(cores=30_000)


def test_a_pod_that_is_gone_keeps_its_limits_until_it_is_over(world: World) -> None:
    world.say(cores="30")
    world.steering.tell({})
    world.steering.look()

    assert world.set() == Amounts(cores=30_000)


def test_a_text_that_is_none_changes_nothing_and_is_told_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.say(cores="30")
    capsys.readouterr()
    world.say(cores="much")
    world.say(cores="much")

    assert world.set() == Amounts(cores=30_000)
    assert capsys.readouterr().err.count("gpufence.io/cores 'much' refused") == 1


def test_a_claims_container_hears_its_pod(world: World) -> None:
    world.held = [Grant(KEY, "ml/claim-1", {}, ("GPU-x",), 4 * GIB, 0)]
    world.say(cores="30")

    assert world.set() == Amounts(cores=30_000)


def test_a_class_says_what_its_pods_do_not(tmp_path: Path) -> None:
    world = World(tmp_path, annotations=[], qos_besteffort=["priority=low", "cores=20"])
    world.say(priority="high", memory="1GiB")

    assert world.set().terms.words() == {"priority": "low"}
    assert (world.set().memory, world.set().cores) == (None, 20_000)


@pytest.mark.parametrize("damage", ["", "[]", '{"c1": 3}', "{"])
def test_a_damaged_record_counts_as_none(world: World, damage: str) -> None:
    world.say(cores="30")
    record = world.boxes.path(KEY) / "said.json"
    assert json.loads(record.read_text()) == {"c1": {"cores": "30"}}
    record.write_text(damage)
    world.say(cores="40")

    assert world.set() == Amounts(cores=40_000)


def test_a_container_that_ends_meanwhile_is_no_failure(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.say(cores="30")
    capsys.readouterr()

    def end(*_: Any) -> None:  # noqa: ANN401 - of any call
        world.boxes.empty(KEY)
        raise FileNotFoundError

    monkeypatch.setattr(setting, "apply", end)
    world.say(cores="40")

    assert capsys.readouterr().err == ""
    assert not world.boxes.path(KEY).exists()
