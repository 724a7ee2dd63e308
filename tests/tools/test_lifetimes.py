"""What is told of containers that nobody named: whether they live, and what becomes of their files.

That the names are the library's own is the business of tests/host/test_container.py.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gpufence.container import leftovers, lifetimes
from gpufence.container.lifetimes import Life
from gpufence.state import limits_file

from .region_files import RegionFile, TimeFile, this_process

HOUR = 3600.0
DAY = 24 * HOUR
HASH = "0123456789abcdef"


class Proc:
    """A made-up /proc, in which namespaces are inodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add("self", [7])

    def add(self, pid: str, numbers: list[int], start: int = 1, like: str = "") -> int:
        own = self.folder / pid
        (own / "ns").mkdir(parents=True)
        namespace = own / "ns" / "pid"
        if like:
            os.link(self.folder / like / "ns" / "pid", namespace)
        else:
            namespace.touch()
        listed = "\t".join(map(str, numbers))
        (own / "status").write_text(f"Name:\tx\nNSpid:\t{listed}\nNSpgid:\t1\n")
        (own / "stat").write_text(f"{pid} (a b) c) S {' '.join(['0'] * 18)} {start} 0 0\n")
        return namespace.stat().st_ino


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    made = Proc(tmp_path / "proc")
    own = (made.folder / "self" / "ns" / "pid").stat().st_ino
    monkeypatch.setattr(lifetimes, "FIRST_NAMESPACE", own)
    return made


def name_of(namespace: int, start: int) -> str:
    return f"ns{namespace:x}-{start:x}-{HASH}"


def test_a_container_lives_while_its_first_process_does(proc: Proc) -> None:
    there = proc.add("400", [400, 1], start=77)
    proc.add("401", [401, 2], start=78, like="400")
    living = lifetimes.Living(proc.folder)

    assert living.of(name_of(there, 77)) is Life.ALIVE
    assert living.of(name_of(there, 76)) is Life.ENDED
    assert living.of(name_of(there + 10_000_000, 77)) is Life.ENDED


def test_what_nobody_can_tell_is_not_guessed(proc: Proc) -> None:
    there = proc.add("401", [401, 2], start=78)  # its process 1 is another user's
    living = lifetimes.Living(proc.folder)

    assert living.of(name_of(there, 77)) is Life.UNKNOWN
    assert living.of(name_of(lifetimes.FIRST_NAMESPACE, 77)) is Life.UNKNOWN
    assert living.of(name_of(0, 77)) is Life.UNKNOWN
    assert living.of("web") is Life.UNKNOWN
    # Of the names before lifetimes were told apart.
    assert living.of(f"ns{there + 10_000_000:x}-2c-1") is Life.UNKNOWN


def test_who_cannot_see_all_processes_calls_nobody_dead(proc: Proc) -> None:
    hidden = proc.folder / "400"
    hidden.mkdir()
    (hidden / "status").write_text("Name:\tx\nNSpid:\t400\t1\n")

    assert lifetimes.Living(proc.folder).of(name_of(12345, 77)) is Life.UNKNOWN


def test_a_process_of_our_own_namespace_hides_nothing(proc: Proc) -> None:
    (proc.folder / "400").mkdir()
    (proc.folder / "400" / "status").write_text("Name:\tx\nNSpid:\t400\n")

    assert lifetimes.Living(proc.folder).of(name_of(12345, 77)) is Life.ENDED


def leave(folder: Path, name: str) -> list[str]:
    """Files of every kind, with nobody in them; their names."""
    folder.mkdir(exist_ok=True)
    with RegionFile(folder, name) as region, TimeFile(folder, name) as core:
        for path in (region.path, core.path):
            path.chmod(0o666)
    limits = limits_file.prepare((folder,), name)
    limits_file.history_of(limits).write_text("{}\n", encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("life", "age", "kept"),
    [
        (Life.ENDED, 0.0, 0),
        (Life.ALIVE, 1000 * DAY, 4),
        (Life.UNKNOWN, 0.0, 4),
        (Life.UNKNOWN, 2 * HOUR, 2),
        (Life.UNKNOWN, 31 * DAY, 0),
    ],
)
def test_what_an_engines_container_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: Life, age: float, kept: int
) -> None:
    state = tmp_path / "state"
    assert len(leave(state, name_of(12345, 77))) == 4
    then = time.time() - age
    for path in state.iterdir():
        os.utime(path, (then, then))
    monkeypatch.setattr(lifetimes.Living, "of", lambda _, __: life)

    leftovers.sweep([state])

    left = sorted(path.name for path in state.iterdir())
    assert len(left) == kept
    assert kept != 2 or all(".limits" in name for name in left)


def test_files_in_use_stay_whatever_is_said_of_their_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetimes.Living, "of", lambda _, __: Life.ENDED)
    with RegionFile(tmp_path, name_of(12345, 77)) as region:
        region.process(0, this_process())
        leftovers.sweep([tmp_path])
        assert region.path.exists()
