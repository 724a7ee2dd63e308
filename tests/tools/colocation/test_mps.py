"""MPS is started where a way needs it, each time alone, and is gone where none does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from colocation import mps
from colocation.mps import CONTROL, MpsDaemon
from colocation.scenes import Scene, Tenant
from colocation.session import Line, Session
from colocation.ways import BARE, Machine, Way
from scoreboard import command

OVER_MPS = Way("mps", mps=True)
SAYS_NO = 'echo "An instance of this daemon is already running" >&2; exit 1'

# One daemon to a folder, as NVIDIA's; it ends FAKE_ENDS_S after it was told to, if it hears.
FAKE_MPS = f"""#!/bin/sh
pipes=$CUDA_MPS_PIPE_DIRECTORY
case $1 in
serve)
  echo $$ >"$pipes/lives"
  for _ in $(seq 1000); do [ -e "$pipes/quit" ] && break; sleep 0.02; done
  sleep $FAKE_ENDS_S
  rm "$pipes/lives" "$pipes/quit"
  ;;
-d)
  echo "-d $pipes" >>"$FAKE_LOG"
  [ -n "$FAKE_FAILS" ] && exit 1
  kill -0 "$(cat "$pipes/lives")" 2>/dev/null && {{ {SAYS_NO}; }}
  rm -f "$pipes/quit" "$pipes/lives"
  "$0" serve </dev/null >/dev/null 2>&1 &
  for _ in $(seq 100); do [ -e "$pipes/lives" ] && break; sleep 0.02; done
  [ -n "$FAKE_HANGS" ] && exec sleep 20
  exit 0
  ;;
*)
  echo "$(cat) $pipes" >>"$FAKE_LOG"
  [ -n "$FAKE_DEAF" ] || touch "$pipes/quit"
  ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A folder, and a stand-in for NVIDIA's control program in the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / CONTROL).write_text(FAKE_MPS, encoding="utf-8")
    (programs / CONTROL).chmod(0o755)
    (tmp_path / "log").touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    settings = {"LOG": str(tmp_path / "log"), "ENDS_S": "0", "FAILS": "", "DEAF": "", "HANGS": ""}
    for name, text in settings.items():
        monkeypatch.setenv(f"FAKE_{name}", text)
    machine = Machine(tmp_path)
    yield machine
    MpsDaemon(machine)._leave_none(0.0)


def log_of(machine: Machine) -> list[str]:
    """What the control program was told."""
    return (machine.folder / "log").read_text(encoding="utf-8").splitlines()


def lives(machine: Machine) -> bool:
    """Whether the stand-in's daemon is there."""
    return bool(MpsDaemon(machine)._processes())


def test_it_runs_from_the_first_scene_that_needs_it_to_the_next_that_does_not(
    machine: Machine,
) -> None:
    daemon, seen = MpsDaemon(machine), []

    for needed in (False, True, True, False, False):
        daemon.wanted(needed)
        seen.append(lives(machine))

    assert seen == [False, True, True, False, False]
    assert log_of(machine) == [f"-d {machine.folder}/mps", f"quit -t 5 {machine.folder}/mps"]


def test_it_has_gone_before_anything_else_is_measured(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENDS_S", "0.5")
    daemon = MpsDaemon(machine)
    daemon.wanted(True)

    daemon.wanted(False)

    assert not lives(machine)
    # Nobody had to be killed: the folder was tidied.
    assert not (machine.mps_pipes / "lives").exists()


def test_it_starts_again_as_soon_as_the_last_one_has_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENDS_S", "0.5")
    daemon = MpsDaemon(machine)
    daemon.wanted(True)
    with monkeypatch.context() as blind:
        blind.setattr(MpsDaemon, "_processes", lambda _: [])
        daemon.wanted(False)
    assert lives(machine)

    daemon.wanted(True)

    assert (daemon.missing, lives(machine)) == ("", True)
    assert len(log_of(machine)) > 3  # it was refused, and asked again
    daemon.end()
    assert not lives(machine)


def test_one_that_never_ends_is_killed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEAF", "1")
    monkeypatch.setattr(mps, "GONE_S", 0.3)
    daemon = MpsDaemon(machine)
    daemon.wanted(True)

    daemon.wanted(False)
    daemon.wanted(True)

    assert (daemon.missing, lives(machine)) == ("", True)


def test_a_start_that_is_always_refused_is_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "START_S", 0.3)
    (machine.folder / "bin" / CONTROL).write_text(f"#!/bin/sh\n{SAYS_NO}\n", encoding="utf-8")
    daemon, began = MpsDaemon(machine), time.monotonic()

    daemon.wanted(True)

    assert "already running" in daemon.missing
    assert time.monotonic() - began < 10


def test_a_start_that_hangs_leaves_nothing_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_HANGS", "1")
    monkeypatch.setattr(mps, "ANSWER_S", 1.0)
    daemon = MpsDaemon(machine)

    daemon.wanted(True)

    assert "TimeoutExpired" in daemon.missing
    assert (machine.mps_pipes / "lives").exists()
    assert not lives(machine)


def test_what_was_killed_is_gone_before_anything_else_is_measured(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process is there until the kernel has come to it: here, until it is killed again."""
    monkeypatch.setenv("FAKE_DEAF", "1")
    monkeypatch.setattr(mps, "GONE_S", 0.5)
    kill, killed = os.kill, list[int]()

    def slowly(pid: int, number: int) -> None:
        killed.append(pid)
        if killed.count(pid) > 1:
            kill(pid, number)

    monkeypatch.setattr(mps.os, "kill", slowly)
    daemon = MpsDaemon(machine)
    daemon.wanted(True)

    daemon.wanted(False)

    assert len(killed) > 1
    assert not lives(machine)


def test_another_folders_daemon_is_left_alone(machine: Machine) -> None:
    (machine.folder / "other").mkdir()
    other = Machine(machine.folder / "other")
    first, second = MpsDaemon(machine), MpsDaemon(other)
    first.wanted(True)
    second.wanted(True)

    first.end()

    assert (lives(machine), lives(other)) == (False, True)
    second.end()


def test_where_it_does_not_start_its_lines_are_left_out_with_a_word(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    fake = Path(__file__).with_name("fake_program.py")
    session = Session(machine, None, [sys.executable, str(fake)])
    over_mps = Line(Scene("a scene", (Tenant("fine", 30),)), OVER_MPS, 0.05)

    figures = session.measure(over_mps, None)
    session.close()

    assert f"{CONTROL} failed" in figures["error"]
    # Nothing is told to end that has not begun.
    assert [line for line in log_of(machine) if "quit" in line] == []
    assert f"{CONTROL} failed" in session.why_not(over_mps)


def test_without_it_its_lines_are_left_out_with_a_word(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.folder))

    session = Session(machine, None)

    scene = Scene("a scene", (Tenant("serve", 30),))
    assert session.why_not(Line(scene, OVER_MPS, 1.0)).endswith("is not installed")
    assert session.why_not(Line(scene, BARE, 1.0)) == ""
    kernels = Scene("another", (Tenant("saturate 500", 30),))
    assert session.why_not(Line(kernels, BARE, 1.0)) == "needs a compiler"


def test_the_scoreboard_starts_it_for_each_of_its_parts_that_need_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def told(part: str, bench: command.Bench, way: Way) -> command.Told:
        seen.append(f"{part} {way.name} {'with' if lives(bench.machine) else 'without'}")
        return command.Told({})

    for part in command.MEASURES:
        each = lambda bench, way, part=part: told(part, bench, way)  # noqa: E731
        monkeypatch.setitem(command.MEASURES, part, each)  # type: ignore[arg-type]
    monkeypatch.setenv("FAKE_ENDS_S", "0.2")
    build = machine.folder / "build"
    (build / "lib").mkdir(parents=True)
    (build / "lib" / "libgpufence.so").touch()

    words = ["--build", str(build), "--real", "--way", "mps", "--only", "memory", "tokens", "calls"]
    command.main(words)

    parts = ("memory", "tokens", "calls")
    assert seen == [f"{part} {way}" for part in parts for way in ("bare without", "mps with")]
