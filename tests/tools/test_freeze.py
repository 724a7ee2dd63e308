"""`gpufence freeze` and `resume`: what they write, what they say, and who may."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gpufence.checks import surroundings
from gpufence.config.terms import Priority, Terms
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from .test_gpufence_set import NAME, UUID, entries, folder, gpufence, needs_root, said
from .test_json_schemas import check
from .test_surroundings import scene

__all__ = ["folder"]

FROZEN = {EVERY_GPU: Amounts(frozen=True)}


def test_a_container_is_frozen_until_it_is_resumed(folder: Path) -> None:
    done = gpufence(folder, "freeze", NAME)
    assert (done.returncode, done.stdout) == (0, "web: frozen\n"), done.stderr
    assert entries(folder) == FROZEN

    done = gpufence(folder, "resume", NAME)
    assert (done.returncode, done.stdout, done.stderr) == (0, "web: not frozen\n", "")
    assert entries(folder) == {}


@pytest.mark.parametrize(("word", "frozen"), [("freeze", True), ("resume", False)])
def test_what_is_so_already_is_no_error(folder: Path, word: str, frozen: bool) -> None:
    gpufence(folder, word, NAME)
    done = gpufence(folder, word, NAME)

    assert (done.returncode, done.stderr) == (0, "web: nothing changed\n")
    assert entries(folder) == (FROZEN if frozen else {})


def test_limits_stay_as_they_are(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--cores", "30", "--priority", "low")
    gpufence(folder, "set", NAME, "--memory", "1g", "--gpu", UUID)
    before = entries(folder)

    gpufence(folder, "freeze", NAME)
    assert entries(folder)[EVERY_GPU] == Amounts(
        cores=30_000, terms=Terms(Priority.LOW), frozen=True
    )
    gpufence(folder, "set", NAME, "--cores", "40")
    assert entries(folder)[EVERY_GPU].frozen
    gpufence(folder, "set", NAME, "--cores", "30")
    gpufence(folder, "resume", NAME)

    assert entries(folder) == before


def test_a_reset_leaves_it_frozen(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--cores", "30")
    gpufence(folder, "freeze", NAME)
    gpufence(folder, "set", NAME, "--reset")

    assert entries(folder) == FROZEN


@pytest.mark.parametrize(("word", "frozen"), [("freeze", True), ("resume", False)])
def test_json_keeps_to_its_schema(folder: Path, word: str, frozen: bool) -> None:
    if not frozen:
        gpufence(folder, "freeze", NAME)
    first, second = (json.loads(gpufence(folder, word, NAME, "--json").stdout) for _ in range(2))

    check(word, first)
    assert (first["frozen"], first["changed"], second["changed"]) == (frozen, True, False)


def test_status_says_so(folder: Path) -> None:
    gpufence(folder, "freeze", NAME)

    assert gpufence(folder, "status").stdout.splitlines()[1].endswith("prepared, frozen")
    details = gpufence(folder, "status", NAME).stdout.splitlines()
    assert details[0] == "web: no program of it has used a GPU yet, frozen"
    told = json.loads(gpufence(folder, "status", "--json").stdout)
    check("status", told)
    assert told["containers"][0]["frozen"] is True
    gpufence(folder, "resume", NAME)
    assert "frozen" not in gpufence(folder, "status").stdout


def test_the_history_says_when_and_who(folder: Path) -> None:
    gpufence(folder, "freeze", NAME)
    gpufence(folder, "resume", NAME)
    told = json.loads(gpufence(folder, "status", NAME, "--history", "--json").stdout)

    check("status-history", told)
    assert [(each["old"], each["new"]) for each in told["changes"]] == [
        ({}, {"all": {"frozen": True}}),
        ({"all": {"frozen": True}}, {}),
    ]
    assert "all: frozen" in gpufence(folder, "status", NAME, "--history").stdout


def test_doctor_says_so(tmp_path: Path) -> None:
    state = tmp_path / "state"
    limits_file.prepare((state,), NAME)
    here = scene(tmp_path, GPUFENCE_STATE_DIR="/state", GPUFENCE_CONTAINER=NAME)
    claims = surroundings.limits(here)[1]
    assert not surroundings.folders(here, claims).notes
    gpufence(state, "freeze", NAME)

    (note,) = surroundings.folders(here, claims).notes

    assert note.what == "container 'web' is frozen"
    assert note.fix == "Let them go on with `gpufence resume web`"


@pytest.mark.parametrize("word", ["freeze", "resume"])
def test_an_unknown_container_is_one_line(folder: Path, word: str) -> None:
    assert "no container 'nobody'" in said(gpufence(folder, word, "nobody"), 1)


@needs_root
@pytest.mark.parametrize("word", ["freeze", "resume"])
def test_only_the_owner_and_root_may(folder: Path, word: str) -> None:
    # The user may not be able to read this interpreter: what it needs is loaded before.
    code = f"""
import contextlib, io, os
from gpufence import cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    cli.main(["{word}", "nobody", "--state-dir", "/nowhere"])
os.setuid(12345)
"""
    folder.chmod(0o1777)
    for place in folder.parents:
        if os.stat(place).st_uid == 0 and "pytest" in str(place):
            place.chmod(0o755)

    assert "it is user 0's" in said(gpufence(folder, word, NAME, code=code), 1)
    assert entries(folder) == {}
