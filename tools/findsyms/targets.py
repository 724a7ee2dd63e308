"""Turns LIB arguments into targets: a vetted driver library, or a shipped list of names.

Owns what a LIB may be. Must not know what is reported about it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import drivers, history, locate, vet
from .elf import Symbol
from .errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A driver library on disk that passed the pre-check."""

    asked: str
    library: str  # cuda | nvml
    path: Path
    vetted: vet.Vetted

    @property
    def machine(self) -> str:
        """Architecture."""
        return self.vetted.machine

    def driver(self) -> str:
        """Driver version, "" if unknown; may read the whole file."""
        return drivers.driver_version(self.path)


@dataclass(frozen=True, slots=True)
class ListTarget:
    """A list of exported names, shipped or the user's own."""

    asked: str
    listed: history.DriverList

    @property
    def library(self) -> str:
        """Which driver library: cuda or nvml."""
        return self.listed.library

    @property
    def machine(self) -> str:
        """Architecture."""
        return self.listed.machine

    def driver(self) -> str:
        """Driver version, from the file name."""
        return self.listed.driver

    def symbols(self) -> tuple[Symbol, ...]:
        """The names as symbols."""
        names = sorted(self.listed.names())
        return tuple(
            Symbol(name, "object" if history.is_data(name) else "func", "global") for name in names
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where sonames are looked up."""

    machine: str  # x86_64 | aarch64 | any
    environ: Mapping[str, str]
    root: Path = Path("/")

    @property
    def searched_machine(self) -> str:
        """The architecture whose folders are searched."""
        return vet.this_machine() if self.machine == "any" else self.machine


def find(asked: str, places: Places) -> FileTarget | ListTarget:
    """Find a LIB: a path, a list of names, or a soname where ld.so would find it.

    Raises:
        UnreadableError: it is missing, or no driver library.
    """
    if locate.is_path(asked):
        return of_file(asked, Path(asked), places.machine)
    passed_by: UnreadableError | None = None
    found = locate.candidates(asked, places.searched_machine, places.environ, places.root)
    for path in found:
        try:
            return of_file(asked, path, places.machine)
        except UnreadableError as error:  # noqa: PERF203 - the first file that fits ends the loop
            named = UnreadableError(f"{path}: {error.why}", error.fix)
            if not error.look_further:
                raise named from None
            passed_by = passed_by or named
    raise passed_by or UnreadableError(
        "not found on LD_LIBRARY_PATH, in the ldconfig cache or in a driver folder",
        f"Write ./{asked} for the file here."
        if os.path.exists(asked)  # False, too, for a name that is none
        else "Install a driver, name a file, or pass --driver.",
    )


def of_file(asked: str, path: Path, machine: str) -> FileTarget | ListTarget:
    """Recognise a file: a list of names by its extension, else an ELF library.

    Raises:
        UnreadableError: it is neither, or no driver library.
    """
    if path.suffix != ".txt":
        vetted = vet.vet(path, machine)
        return FileTarget(asked, drivers.library_of(path, vetted), path, vetted)
    listed = history.parse_name(path)
    if listed is None:
        raise UnreadableError(
            "a list of names is told by its file name",
            "Call it like libcuda-580.159.04.txt, with -arm64 before the dot for aarch64.",
        )
    try:
        listed.names()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not plain text"
        raise UnreadableError(why.lower(), "Check the path.") from None
    return ListTarget(asked, listed)


def of_driver(
    soname: str, driver: str, places: Places, lists: Sequence[history.DriverList]
) -> ListTarget:
    """The shipped list of a driver, for people who do not have that driver.

    Raises:
        UnreadableError: the soname is no driver library's.
        ToolError: exit 2, there is no such list.
    """
    for library, name in drivers.SONAMES.items():
        if name == soname:
            machine = places.searched_machine
            return ListTarget(soname, history.choose(lists, library, machine, driver))
    raise UnreadableError(
        "--driver goes with a soname", f"Name {' or '.join(drivers.SONAMES.values())}."
    )
