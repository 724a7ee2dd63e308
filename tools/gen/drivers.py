"""What real drivers export: the lists under lib/api/symbols, and which exports stay the driver's.

Owns reading those two sources. Must not know headers or prototypes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import rules
from .errors import HookgenError
from .ir import Span
from .rules import Rule

LEFT = "left-to-driver.txt"

_LIBRARIES = {"cuda": "libcuda", "nvml": "libnvidia-ml"}
_ARCHITECTURES = {"": "x86_64", "-arm64": "aarch64"}
_LIST = re.compile(r"(?P<driver>\d+(?:\.\d+)+)(?P<arch>-arm64)?\.txt")


@dataclass(frozen=True, slots=True)
class Exports:
    """The names of one library file; data symbols are among them."""

    driver: str
    architecture: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a name was seen: first and last driver, and every architecture."""

    drivers: Span
    architectures: tuple[str, ...]


def version_key(version: str) -> tuple[int, ...]:
    """Order `535.261.03` and `13.5` by number."""
    return tuple(int(part) for part in version.split("."))


def names(text: str) -> tuple[str, ...]:
    """The names of a list: one a line, or what `nm -D` prints, less what it calls undefined."""
    found = []
    for line in text.splitlines():
        *before, name = line.split() or [""]
        is_header = name.endswith(":")
        if name and not is_header and len(before) != 1:  # one word before a name: undefined
            found.append(name.partition("@")[0])
    return tuple(found)


def read_exports(folder: Path, library: str) -> tuple[Exports, ...]:
    """Every list of one library, oldest driver first.

    Raises:
        HookgenError: exit 1; there is none, or a file name is not understood.
    """
    prefix = _LIBRARIES[library] + "-"
    lists = []
    for path in sorted(folder.glob(prefix + "*.txt")):
        match = _LIST.fullmatch(path.name.removeprefix(prefix))
        if match is None:
            raise HookgenError(
                f"symbol list '{path.name}' is not understood",
                "its name is not <library>-<driver>[-arm64].txt",
                "Rename or remove it.",
            )
        exported = frozenset(names(path.read_text(encoding="ascii")))
        lists.append(Exports(match["driver"], _ARCHITECTURES[match["arch"] or ""], exported))
    if not lists:
        raise HookgenError(
            f"no symbol list of {_LIBRARIES[library]} in '{folder}'",
            "first and last driver of a name come from those lists",
            "Restore lib/api/symbols or name another folder with --api.",
        )
    return tuple(sorted(lists, key=lambda item: (version_key(item.driver), item.architecture)))


def read_left_to_driver(folder: Path) -> tuple[Rule, ...]:
    """Which exports stay the driver's own.

    Raises:
        HookgenError: exit 1; the table is damaged.
        OSError: it cannot be read.
    """
    return rules.read((folder / LEFT).read_text(encoding="utf-8"), LEFT)


def seen(exports: Iterable[Exports]) -> Mapping[str, Seen]:
    """First and last driver and the architectures of every exported name."""
    where: dict[str, list[Exports]] = {}
    for item in exports:
        for name in item.names:
            where.setdefault(name, []).append(item)
    return {
        name: Seen(
            Span(items[0].driver, items[-1].driver),
            tuple(sorted({item.architecture for item in items})),
        )
        for name, items in where.items()
    }
