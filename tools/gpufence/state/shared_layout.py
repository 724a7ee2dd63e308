"""Where each word of the shared files stands: lib/layouts/shared_files.txt, as numbers and formats.

A constant of the list is an attribute of this module: `shared_layout.MAX_DEVICES`. Must not know
files, processes or commands. Standard library only.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLACES = (
    f"{_PACKAGE}/layouts/shared_files.txt",
    f"{_PACKAGE}/../../lib/layouts/shared_files.txt",
)
_CODES = {"atomic64": "Q", "atomic32": "I", "u64": "Q", "u32": "I", "u8": "s", "char": "s"}


class File(NamedTuple):
    """A file that processes share, and the structures that belong to it; the last is the whole."""

    name: str
    on_disk: str
    shared_by: str
    structures: list[Structure]


class Member(NamedTuple):
    """A member of a structure; `code` is the struct module's, "" where it is a structure itself."""

    at: int
    type: str
    bytes: int
    code: str
    meaning: str


class Structure:
    """One structure: its bytes, and its members by name."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name, self.meaning = name, meaning
        self.bytes = 0
        self.members: dict[str, Member] = {}

    def at(self, name: str) -> int:
        """Where a member begins; `gpu.uuid` is one of a member that is a structure."""
        return self._find(name)[0]

    def fields(self, *names: str) -> struct.Struct:
        """A form that packs and unpacks these members, in their order, and passes over the rest."""
        form, end = "<", 0
        for name in names:
            at, member = self._find(name)
            form += f"{at - end}x" * (at > end) + member.code
            end = at + member.bytes
        return struct.Struct(form + f"{self.bytes - end}x" * (self.bytes > end))

    def _find(self, name: str) -> tuple[int, Member]:
        first, _, rest = name.partition(".")
        member = self.members[first]
        if not rest:
            return member.at, member
        at, inner = structure(member.type.partition("[")[0])._find(rest)
        return member.at + at, inner


class Table(NamedTuple):
    """The whole list."""

    constants: dict[str, int]
    structures: dict[str, Structure]
    files: list[File]


def structure(name: str) -> Structure:
    """A structure of the list."""
    return table().structures[name]


@functools.cache
def table() -> Table:
    """The list, read."""
    made = Table({}, {}, [])
    for first, second, meaning in _rows():
        kind, _, name = first.partition(" ")
        if kind == "file":
            made.files.append(File(name, second, meaning, []))
        elif kind == "constant":
            made.constants[name] = _value(second)
        elif kind == "struct":
            begun = made.structures[name] = Structure(name, meaning)
            if made.files:
                made.files[-1].structures.append(begun)
        else:
            begun.members[first] = member = _member(begun.bytes, second, meaning, made)
            begun.bytes += member.bytes
    return made


def __getattr__(name: str) -> int:
    """A constant of the list."""
    found: Mapping[str, int] = {} if name.startswith("_") else table().constants
    if name not in found:
        raise AttributeError(f"lib/layouts/shared_files.txt has no constant {name}")
    return found[name]


def _member(at: int, text: str, meaning: str, made: Table) -> Member:
    kind = text.removeprefix("line ").partition("[")[0]
    count = 1
    for each in re.findall(r"\[(\w+)\]", text):
        count *= int(each) if each.isdigit() else made.constants[each]
    if kind in made.structures:
        return Member(at, text, made.structures[kind].bytes * count, "", meaning)
    code = f"{count}{_CODES[kind]}" if "[" in text else _CODES[kind]
    return Member(at, text, struct.calcsize("<" + code), code, meaning)


def _value(text: str) -> int:
    """A number, or eight letters as they stand in a file."""
    if text.startswith('"'):
        return int.from_bytes(text[1:-1].encode(), "little")
    return int(text.removeprefix("u64 "), 0)


def _rows() -> Iterator[list[str]]:
    """Each line's three parts; indented lines go on with the meaning of the one above."""
    path = next((place for place in _PLACES if os.path.exists(place)), _PLACES[0])
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\n    ", " ")
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            yield [part.strip() for part in line.split("|", 2)]
