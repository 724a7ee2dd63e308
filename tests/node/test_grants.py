"""What is given out: the checkpoint before the files, and nothing left of what is over."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from gpufence.container import containers
from gpufence.errors import ToolError
from gpufence.node import checkpoint
from gpufence.node.book import Grant
from gpufence.node.boxes import Boxes
from gpufence.node.grants import Grants

NAME = "given.json"


def grant(key: str) -> Grant:
    return Grant(key, f"ns/pod/{key}", {}, ("GPU-a",), 1 << 30, 0)


def fits(_: Collection[Grant]) -> str:
    return ""


@pytest.fixture
def given(tmp_path: Path) -> Grants:
    there = Boxes(tmp_path, tmp_path / "cdi", "/turns", "/lib.so", "/preload", "environment")
    return Grants(there, NAME)


def have(given: Grants, *keys: str) -> None:
    """Each has a grant and its files."""
    for key in keys:
        given.add(grant(key))
        given.boxes.fill(given.held[key])


def test_what_is_given_out_in_place_of_others_leaves_nothing_of_them(given: Grants) -> None:
    have(given, "a", "b", "c")

    given.add(grant("d"), instead_of=["a", "b"])

    assert set(given.held) == {"c", "d"}
    assert set(checkpoint.read(given.boxes.folder / NAME)) == {"c", "d"}
    assert given.boxes.keys() == {"c"}


def test_a_container_that_takes_its_own_place_keeps_its_files(given: Grants) -> None:
    have(given, "a")

    given.add(grant("a"), instead_of=["a"])

    assert (set(given.held), given.boxes.keys()) == ({"a"}, {"a"})


def test_what_is_over_is_forgotten_and_its_files_are_removed(
    given: Grants, capsys: pytest.CaptureFixture[str]
) -> None:
    have(given, "a", "b")

    given.end(["a"])

    assert set(checkpoint.read(given.boxes.folder / NAME)) == {"b"}
    assert given.boxes.keys() == {"b"}
    assert capsys.readouterr().err.endswith("gpufence: ns/pod/a is over\n")


def test_the_checkpoint_forgets_before_the_files_go(
    given: Grants, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other way round an agent that is killed in between would know a grant without its files.
    have(given, "a")
    left = []
    empty = Boxes.empty

    def emptied(boxes: Boxes, key: str) -> None:
        left.append(set(checkpoint.read(given.boxes.folder / NAME)))
        empty(boxes, key)

    monkeypatch.setattr(Boxes, "empty", emptied)

    given.end(["a"])

    assert left == [set()]


def test_files_without_a_grant_are_removed_when_an_agent_starts(given: Grants) -> None:
    have(given, "a")
    given.boxes.fill(grant("left"))

    again = Grants(given.boxes, NAME)
    again.open(fits)

    assert (set(again.held), again.boxes.keys()) == ({"a"}, {"a"})


def test_grants_that_do_not_fit_are_refused_and_their_files_stay(given: Grants) -> None:
    have(given, "a")

    with pytest.raises(ToolError, match="checkpoint"):
        Grants(given.boxes, NAME).open(lambda held: f"{len(held)} too many")

    assert given.boxes.keys() == {"a"}


def test_the_ledgers_of_its_containers_are_found(given: Grants) -> None:
    have(given, "a", "b")

    found = containers.of_agent(str(given.boxes.folder))

    assert [str(each) for each in found] == [
        outside
        for key in ("a", "b")
        for inside, outside, _ in given.boxes.mounts(key)
        if inside == "/run/gpufence"
    ]
