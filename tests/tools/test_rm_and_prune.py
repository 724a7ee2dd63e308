"""`gpufence rm`, `prune` and what `status` hides: over files alone."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpufence.commands import prune
from gpufence.container import containers, removal
from gpufence.errors import ToolError
from gpufence.state import limits_file
from gpufence.state import shared_layout as layout

from .gpufence_command import gpufence
from .region_files import RegionFile, TimeFile, this_process

OTHERS = ("gpufence-train2.v5", "gpufence-train.v5.v5", "gpufence-train.txt", "gpufence-turns3-1")

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


def ended(folder: Path, name: str, *, limit: str = "") -> list[str]:
    """A container with files of every kind and nobody in them; their names."""
    folder.mkdir(exist_ok=True)
    before = names(folder)
    with RegionFile(folder, name), TimeFile(folder, name):
        pass
    limits_file.prepare((folder,), name)
    if limit:
        done = gpufence("set", name, "--memory", limit, "--state-dir", folder)
        assert done.returncode == 0, done.stderr
    return sorted(set(names(folder)) - set(before))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def used(path: Path) -> Iterator[None]:
    """As a program that has a place in the file."""
    with path.open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        yield


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return gpufence(*words, "--state-dir", folder)


# ---- rm ----


def test_an_ended_container_is_removed_with_its_limits_and_no_other_file(tmp_path: Path) -> None:
    own = ended(tmp_path, "train", limit="4g")
    for other in OTHERS:
        (tmp_path / other).touch()

    done = run(tmp_path, "rm", "train")

    assert (done.returncode, done.stdout, done.stderr) == (0, "train: removed\n", "")
    assert len(own) == 4  # region, time file, limits and their history
    assert names(tmp_path) == sorted(OTHERS)
    assert "no container 'train'" in run(tmp_path, "rm", "train").stderr


def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    core, limits, region = own = ended(tmp_path, "train")

    done = run(tmp_path, "rm", "train", "--dry-run", "--json")

    told = json.loads(done.stdout)
    assert (told["dry_run"], told["files"]) == (
        True,
        [str(tmp_path / name) for name in (limits, core, region)],
    )
    assert names(tmp_path) == own


@pytest.mark.parametrize("kind", ["region", "core"])
def test_a_container_whose_program_runs_keeps_every_file(tmp_path: Path, kind: str) -> None:
    own = ended(tmp_path, "train", limit="4g")
    (shared,) = tmp_path.glob("*.v*" if kind == "region" else "*.cores*")

    with used(shared):
        done = run(tmp_path, "rm", "train")

    assert (done.returncode, done.stdout) == (1, "")
    assert "not removed: a program of it is running. End its programs" in done.stderr
    assert names(tmp_path) == own


def test_the_beginning_of_a_name_removes_nothing(tmp_path: Path) -> None:
    own = ended(tmp_path, "train")

    done = run(tmp_path, "rm", "tra")

    assert (done.returncode, names(tmp_path)) == (1, own)
    assert "no container 'tra'" in done.stderr


@needs_root
def test_nobody_removes_another_users_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ended(tmp_path, "train")
    container = containers.one("train", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1234)

    with pytest.raises(ToolError, match="it is user 0's"):
        removal.remove(container, [tmp_path], dry_run=False)

    assert names(tmp_path) == own


def test_a_link_in_the_place_of_a_file_is_no_file_of_ours(tmp_path: Path) -> None:
    ended(tmp_path, "train")
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "gpufence-train.v4").symlink_to(target)

    done = run(tmp_path, "rm", "train")

    assert done.returncode == 1
    assert "is no regular file" in done.stderr
    assert target.exists()


# ---- prune ----


def test_prune_removes_what_ended_and_leaves_limits_prepared_and_running_ones(
    tmp_path: Path,
) -> None:
    ended(tmp_path, "old")
    ended(tmp_path, "held", limit="4g")
    limits_file.prepare((tmp_path,), "prepared")
    with RegionFile(tmp_path, "alive") as alive:
        alive.process(0, this_process())
        done = run(tmp_path, "prune")
        left = {container.name for container in containers.find(str(tmp_path))}

    assert (done.returncode, done.stdout) == (0, "old: removed\n")
    assert "1 with limits set for them stay: held. Remove them with" in done.stderr
    assert left == {"alive", "held", "prepared"}


def test_prune_all_removes_those_with_limits_too(tmp_path: Path) -> None:
    ended(tmp_path, "held", limit="4g")

    dry = run(tmp_path, "prune", "--all", "--dry-run")
    done = run(tmp_path, "prune", "--all", "--json")

    assert dry.stdout == "held: would be removed\n"
    assert json.loads(done.stdout) == {
        "schema": 1,
        "dry_run": False,
        "removed": ["held"],
        "kept": [],
        "problems": [],
    }
    assert names(tmp_path) == []


def test_prune_says_where_there_is_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "prune")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "gpufence: no ended container to remove\n"


@needs_root
def test_prune_leaves_other_users_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ended(tmp_path, "old")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    from gpufence.console import parsers

    status = prune.run(
        parsers.of_command("prune", prune).parse_args(["--state-dir", str(tmp_path)])
    )

    assert (status, capsys.readouterr().out, names(tmp_path)) == (0, "", own)


# ---- status ----


def test_status_hides_what_ended_and_says_so(tmp_path: Path) -> None:
    ended(tmp_path, "old")
    limits_file.prepare((tmp_path,), "prepared")

    shown, everything = run(tmp_path, "status"), run(tmp_path, "status", "--all")
    machine = json.loads(run(tmp_path, "status", "--json").stdout)

    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["NAME", "prepared"]
    assert "1 container that has ended not shown. See `gpufence status --all`" in shown.stderr
    assert "old" in everything.stdout
    assert everything.stderr == ""
    assert [(each["name"], each["state"]) for each in machine["containers"]] == [
        ("old", "ended"),
        ("prepared", "prepared"),
    ]


def test_status_of_ended_ones_alone_has_no_empty_table(tmp_path: Path) -> None:
    ended(tmp_path, "old")

    done = run(tmp_path, "status")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)


def test_a_command_that_lives_keeps_its_container_between_two_programs(tmp_path: Path) -> None:
    command = this_process()
    name = f"run-{command.pid}-{command.ticks:x}-{command.namespace:x}-00ff"
    own = ended(tmp_path, name)

    done = run(tmp_path, "prune")

    assert (done.returncode, done.stdout, names(tmp_path)) == (0, "", own)
    assert run(tmp_path, "status").stdout.split()[-1] == "idle"


# ---- names ----


def test_completion_names_what_a_shell_may_take_for_a_word(tmp_path: Path) -> None:
    for name in ("web.1", "a-b", "x$(id)"):
        ended(tmp_path, name)

    done = gpufence("completion", "names", GPUFENCE_STATE_DIR=str(tmp_path))

    offered = done.stdout.splitlines()
    assert {"web.1", "a-b"} <= set(offered)
    assert "x$(id)" not in offered
