"""What a driver's headers take by value that a baseline's did not, and nobody has judged.

Owns the reading of `lib/api/{branches,judged}.txt` and of the surfaces, as docs/interfaces.md
section 1a describes them. Must not know symbols: names are diff's affair.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .drivers import version_key
from .errors import ToolError

_FACT = re.compile(
    r"  (?P<name>\S+) = (?P<value>.*?)(?: \[(?P<first>[\d.]+)\.\.(?P<last>[\d.]*)\])?"
)


@dataclass(frozen=True, slots=True)
class Value:
    """An enumerator, macro, member or layout that reaches an enforced function."""

    name: str  # CU_LIMIT_STACK_SIZE, CUmemLocation_v1.id
    value: str
    headers: str  # the first that have it
    reaches: str
    judged: str  # why it is no hole; "" if nobody said so


def between(folder: Path, library: str, old: str, new: str) -> tuple[Value, ...]:
    """What came after the headers of one driver, up to those of another.

    Args:
        folder: the API model.
        library: cuda or nvml.
        old: the baseline's version; nothing is told of one that the table of branches lacks.
        new: the driver's version; of an unknown one, everything up to the newest headers came.

    Raises:
        ToolError: a file of the model cannot be read.
    """
    if not (folder / "branches.txt").is_file():  # a model of names alone
        return ()
    branches = _table(folder / "branches.txt")
    releases = {int(branch): release for branch, release in branches}
    since, until = _release(releases, old), _release(releases, new)
    if not since:
        return ()
    judged = _table(folder / "judged.txt")
    found = []
    for value in _new(_read(folder / f"{library}.surface.txt"), judged):
        headers = version_key(value.headers)
        if headers > version_key(since) and (not until or headers <= version_key(until)):
            found.append(value)
    return tuple(found)


# Implementation.


def _release(releases: dict[int, str], driver: str) -> str:
    branch = driver.partition(".")[0]
    return releases.get(int(branch), "") if branch.isdigit() else ""


def _new(text: str, judged: Sequence[tuple[str, str]]) -> list[Value]:
    """Every fact but a function's that is not of the oldest headers and reaches something."""
    found = []
    sort = owner = reaches = ""
    for line in text.splitlines():
        fact = _FACT.fullmatch(line)
        if fact is None:
            words = line.split()
            sort = words[0]
            owner = words[1] if len(words) > 1 else ""
            reaches = words[-1] if ">" in words else ""
        elif fact["first"] and sort != "function" and (reaches or sort == "macros"):
            name = _name(sort, owner, fact["name"])
            reason = _reason(f"{name}@{fact['first']}", judged)
            found.append(Value(name, fact["value"], fact["first"], reaches, reason))
    oldest = next(line for line in text.splitlines() if line.startswith("headers ")).split()[1]
    return [value for value in found if value.headers != oldest]


def _name(sort: str, owner: str, member: str) -> str:
    if member == ".":
        return owner
    return f"{owner}.{member}" if sort == "record" else member


def _reason(name: str, judged: Sequence[tuple[str, str]]) -> str:
    return next((why for pattern, why in judged if fnmatch.fnmatchcase(name, pattern)), "")


def _table(path: Path) -> list[tuple[str, str]]:
    lines = (line for line in _read(path).splitlines() if " : " in line and line[0] != "#")
    return [(left.strip(), right.strip()) for left, _, right in (x.partition(" : ") for x in lines)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ToolError(
            what=f"API model file '{path}' refused",
            why=str(error),
            fix="Install gpufence again, or name another folder with --api.",
        ) from error
