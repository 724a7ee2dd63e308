"""The shipped lists: what earlier drivers exported, so that none of them need be on disk.

Owns the file names in `lib/api/symbols` and the choice of a baseline. Must not know ELF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .drivers import version_key
from .errors import Exit, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILE = re.compile(r"(libcuda|libnvidia-ml)-(\d+(?:\.\d+)+)(-arm64)?\.txt")
_LIBRARIES = {"libcuda": "cuda", "libnvidia-ml": "nvml"}

# A list has no column for kinds. All data ever exported is the debugger's; these are functions.
_DEBUGGER_FUNCTIONS = frozenset(
    f"cudbg{name}"
    for name in (
        "ApiAttach",
        "ApiDetach",
        "ApiInit",
        "GetAPI",
        "GetAPIVersion",
        "Main",
        "ReportDriverApiError",
        "ReportDriverInternalError",
    )
)


@dataclass(frozen=True, slots=True)
class DriverList:
    """One shipped list; its names are read when asked for."""

    library: str  # cuda | nvml
    driver: str
    machine: str  # x86_64 | aarch64
    path: Path

    def names(self) -> frozenset[str]:
        """All exported names, functions and data alike."""
        return frozenset(listed(self.path.read_text(encoding="ascii")))


def listed(text: str) -> tuple[str, ...]:
    """The names of a list: one a line, or what `nm -D` prints, less what it calls undefined.

    The same as drivers.names of hookgen, which reads these lists, too.
    """
    found = []
    for line in text.splitlines():
        *before, name = line.split() or [""]
        is_header = name.endswith(":")
        if name and not is_header and len(before) != 1:  # one word before a name: undefined
            found.append(name.partition("@")[0])
    return tuple(found)


def parse_name(path: Path) -> DriverList | None:
    """Recognise a list by its file name; None for any other file."""
    match = _FILE.fullmatch(path.name)
    if not match:
        return None
    machine = "aarch64" if match.group(3) else "x86_64"
    return DriverList(_LIBRARIES[match.group(1)], match.group(2), machine, path)


def shipped(folder: Path) -> tuple[DriverList, ...]:
    """All lists of a folder, oldest driver first."""
    found = [parse_name(path) for path in folder.glob("*.txt")]
    lists = [entry for entry in found if entry is not None]
    return tuple(sorted(lists, key=lambda e: (e.library, version_key(e.driver), e.machine)))


def is_data(name: str) -> bool:
    """Whether a listed name is a data symbol."""
    return name.startswith("cudbg") and name not in _DEBUGGER_FUNCTIONS


def choose(lists: Iterable[DriverList], library: str, machine: str, driver: str) -> DriverList:
    """Pick the list that a user names: `550.163.01`, or the newest of `550` or `550.163`.

    Raises:
        ToolError: exit 2, naming the drivers that have a list for this library and architecture.
    """
    fitting = [e for e in lists if e.library == library and e.machine == machine]
    wanted = version_key(driver)
    matches = [e for e in fitting if wanted and version_key(e.driver)[: len(wanted)] == wanted]
    exact = [e for e in matches if e.driver == driver]
    if exact or matches:
        return (exact or matches)[-1]
    choices = ", ".join(e.driver for e in fitting)
    raise ToolError(
        what=f"driver '{driver}' refused",
        why=f"no shipped list of {library} on {machine} matches it",
        fix=f"Choose one of: {choices}." if fitting else "Name a library file instead.",
        status=Exit.USAGE,
    )


def nearest(
    lists: Iterable[DriverList], library: str, machine: str, driver: str, names: frozenset[str]
) -> DriverList | None:
    """The baseline when none is named: the newest list that is not newer than the driver.

    A driver older than all lists gets the oldest one; a driver of unknown version gets the list
    whose names differ least. None if no list is of this library and architecture.
    """
    fitting = [e for e in lists if e.library == library and e.machine == machine]
    if not fitting:
        return None
    if not driver:
        return min(reversed(fitting), key=lambda e: len(e.names() ^ names))
    older = [e for e in fitting if version_key(e.driver) <= version_key(driver)]
    return older[-1] if older else fitting[0]


def first_drivers(lists: Iterable[DriverList], machine: str) -> Mapping[str, str]:
    """The oldest listed driver per name, for names that the API model does not describe."""
    first: dict[str, str] = {}
    for entry in lists:
        if entry.machine == machine:
            for name in entry.names():
                first.setdefault(name, entry.driver)
    return first
