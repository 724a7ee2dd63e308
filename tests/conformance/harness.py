"""Runs conformance programs and judges what they say.

Owns the shape of a program's output, of the recorded facts and of the list of deviations. Must not
know what any fact means. Standard library only: it also runs where nothing can be installed.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SKIPPED = 77  # exit status of a program that found no GPU

Fact = bool | int | str
Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one program did: how it ended and the facts it told until then.

    `status` is "ok", "skipped", "timeout", "signal N" or "exit N". Facts of a program that died
    are those it had printed.
    """

    status: str
    facts: Facts
    measured: Facts
    stderr: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that two runs told differently; None stands for a fact that was not told."""

    fact: str
    expected: Fact | None
    actual: Fact | None

    def __str__(self) -> str:
        """One line for reports."""
        return f"{self.fact}: expected {self.expected!r}, got {self.actual!r}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between simulator and hardware that is known and has a reason."""

    program: str
    fact: str
    reason: str

    def covers(self, program: str, fact: str) -> bool:
        """Both are shell patterns."""
        return fnmatch.fnmatchcase(program, self.program) and fnmatch.fnmatchcase(fact, self.fact)


def program_names() -> list[str]:
    """Every program of this folder, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.cpp"))


def parse(stdout: str) -> tuple[dict[str, Fact], dict[str, Fact]]:
    """Facts and measurements of a program's output, whole or cut off.

    Each entry has a line of its own (facts.h), so what a dying program had said can be read.
    """
    facts: dict[str, Fact] = {}
    measured: dict[str, Fact] = {}
    for line in stdout.splitlines():
        text = line.strip().rstrip(",")
        if not text.startswith('"'):
            continue
        try:
            entry = json.loads("{" + text + "}")
        except json.JSONDecodeError:
            continue
        for name, value in entry.items():
            if name == "program":
                continue
            target = measured if name.startswith("~") else facts
            target[name.removeprefix("~")] = value
    return facts, measured


def run_program(path: Path, env: Mapping[str, str], timeout_s: float) -> Outcome:
    """Runs one built program to its end, or kills it after `timeout_s` seconds."""
    started = time.monotonic()
    process = subprocess.Popen(
        [path],
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a program's children end with it
    )
    code: int | None
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        code = None
    facts, measured = parse(stdout)
    return Outcome(
        _status(code), facts, measured, stderr[-2000:], round(time.monotonic() - started, 2)
    )


def _status(code: int | None) -> str:
    if code is None:
        return "timeout"
    if code < 0:
        return f"signal {-code}"
    return {0: "ok", SKIPPED: "skipped"}.get(code, f"exit {code}")


def differences(expected: Facts, actual: Facts) -> list[Difference]:
    """Facts told differently or by one side only, sorted by name."""
    return [
        Difference(name, expected.get(name), actual.get(name))
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name) != actual.get(name)
    ]


def load_facts(path: Path) -> dict[str, dict[str, Fact]]:
    """Recorded facts of one GPU and driver: program name to facts."""
    programs: dict[str, dict[str, Fact]] = json.loads(path.read_text(encoding="utf-8"))["programs"]
    return programs


def unexplained(
    program: str, found: Iterable[Difference], deviations: Sequence[Deviation]
) -> list[Difference]:
    """The differences that no deviation covers."""
    return [
        difference
        for difference in found
        if not any(deviation.covers(program, difference.fact) for deviation in deviations)
    ]


def load_deviations(path: Path) -> list[Deviation]:
    """The [[deviation]] tables of a TOML file, each with the strings program, fact and reason.

    Only this subset of TOML is read, so that Python 3.10 without tomli can read it too.

    Raises:
        ValueError: a line outside that subset, or a table without all three keys.
    """
    tables: list[dict[str, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        pair = re.fullmatch(r'(program|fact|reason)\s*=\s*("(?:[^"\\]|\\.)*")(?:\s*#.*)?', text)
        if not text or text.startswith("#"):
            continue
        if text == "[[deviation]]":
            tables.append({})
        elif pair is not None and tables:
            tables[-1][pair[1]] = json.loads(pair[2])
        else:
            raise ValueError(f'{path.name}:{number}: neither [[deviation]] nor key = "text"')
    for table in tables:
        if table.keys() != {"program", "fact", "reason"} or not table["reason"]:
            raise ValueError(f"{path.name}: {table} needs program, fact and reason")
    return [Deviation(**table) for table in tables]
