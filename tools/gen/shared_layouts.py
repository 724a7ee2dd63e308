"""The files that processes share: lib/layouts/shared_files.txt, which describes its own form.

Owns the reading of that list and where each member comes to stand. Must not know what the library
does with a word, nor what is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import options
from .errors import HookgenError

FILE = "shared_files.txt"
# Each type's bytes, and its name in C++.
TYPES = {
    "atomic64": (8, "Word"),
    "atomic32": (4, "std::atomic<uint32_t>"),
    "u64": (8, "uint64_t"),
    "u32": (4, "uint32_t"),
    "u8": (1, "uint8_t"),
    "char": (1, "char"),
}
_LINE_BYTES = 64
_TYPE = re.compile(r"(line )?(\w+)((?:\[\w+\])*)")


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that both sides use; name and type as C++ spells them."""

    name: str
    type: str
    value: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a structure, its type and counts as C++ spells them."""

    name: str
    type: str
    counts: tuple[str, ...]
    at: int
    begins_line: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class Structure:
    """One structure; members stand without a gap."""

    name: str
    bytes: int
    align: int
    members: tuple[Member, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Layouts:
    """The whole list, in its order."""

    constants: tuple[Constant, ...]
    structures: tuple[Structure, ...]


NO_LAYOUTS = Layouts((), ())


def path(api_dir: Path) -> Path:
    """The list that belongs to a model folder: beside it, or else this project's own."""
    return options.list_path(api_dir, "layouts", FILE)


def read(text: str) -> Layouts:
    """Take the list apart.

    Raises:
        HookgenError: names the line that is not of the list's form, or where it does not fit.
    """
    reader = _Reader()
    for parts in _rows(text):
        kind, _, name = parts[0].partition(" ")
        if len(parts) != 3:
            raise _wrong(parts[0], "it has no three parts")
        if kind == "constant":
            reader.add_constant(name, parts[1], parts[2])
        elif kind == "struct":
            reader.end()
            reader.begin(name, parts[1], parts[2])
        elif kind == "file":
            reader.end()
        else:
            reader.add_member(parts[0], parts[1], parts[2])
    reader.end()
    return Layouts(tuple(reader.constants.values()), tuple(reader.structures.values()))


# Implementation.


class _Reader:
    """What is read already, and the structure that is being read."""

    def __init__(self) -> None:
        self.constants: dict[str, Constant] = {}
        self.structures: dict[str, Structure] = {}
        self._begun: tuple[str, int, str] | None = None
        self._members: dict[str, Member] = {}
        self._at, self._align = 0, 1

    def add_constant(self, name: str, text: str, meaning: str) -> None:
        if name in self.constants:
            raise _wrong(name, "it is there already")
        kind = "uint32_t" if text.isdigit() else "uint64_t"
        value = _value(text.removeprefix("u64 "))
        self.constants[name] = Constant(options.constant(name), kind, value, meaning)

    def begin(self, name: str, text: str, meaning: str) -> None:
        if name in self.structures:
            raise _wrong(name, "it is there already")
        self._begun = (name, _value(text), meaning)
        self._members, self._at, self._align = {}, 0, 1

    def end(self) -> None:
        """What was begun is whole."""
        if self._begun is None:
            return
        name, expected, meaning = self._begun
        if self._at != expected:
            raise _wrong(f"struct {name}", f"its members come to {self._at} bytes")
        if self._at % self._align:
            raise _wrong(f"struct {name}", f"it is no multiple of {self._align} bytes")
        members = tuple(self._members.values())
        self.structures[name] = Structure(name, self._at, self._align, members, meaning)
        self._begun = None

    def add_member(self, name: str, text: str, meaning: str) -> None:
        form = _TYPE.fullmatch(text)
        if self._begun is None or form is None or not name.isidentifier() or name in self._members:
            raise _wrong(name, "it is no line of the form that the list's head describes")
        item, align, spelled = self._type(form[2])
        align = _LINE_BYTES if form[1] else align
        if self._at % align:
            raise _wrong(name, f"it would stand at byte {self._at}, no multiple of {align}")
        counts = re.findall(r"\w+", form[3])
        cpp_counts = tuple(options.constant(each) if _named(each) else each for each in counts)
        member = Member(name, spelled, cpp_counts, self._at, bool(form[1]), meaning)
        self._members[name] = member
        self._align = max(self._align, align)
        for count in counts:
            item *= self._count(count)
        self._at += item

    def _type(self, name: str) -> tuple[int, int, str]:
        """Bytes, alignment and C++ name."""
        if name in TYPES:
            size, spelled = TYPES[name]
            return size, size, spelled
        if name in self.structures:
            known = self.structures[name]
            return known.bytes, known.align, name
        raise _wrong(name, "there is no such type above")

    def _count(self, text: str) -> int:
        if not _named(text):
            return int(text)
        if text not in self.constants:
            raise _wrong(text, "there is no such constant above")
        return self.constants[text].value


def _named(count: str) -> bool:
    return not count.isdigit()


def _value(text: str) -> int:
    """A number, or eight letters as they stand in a file."""
    if re.fullmatch(r'"[ -~]{8}"', text):
        return int.from_bytes(text[1:-1].encode(), "little")
    if re.fullmatch(r"\d+|0x[0-9a-f]+", text):
        return int(text, 0)
    raise _wrong(text, "it is neither a number nor eight letters")


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    """Each line's three parts; indented lines go on with the meaning of the one above."""
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and rows:
            rows[-1] += f" {line.strip()}"
        elif line.strip() and not line.startswith("#"):
            rows.append(line)
    for row in rows:
        yield tuple(part.strip() for part in row.split("|", 2))


def _wrong(what: str, why: str) -> HookgenError:
    return HookgenError(
        f"{FILE}: '{what[:60]}' cannot be read", why, f"Correct lib/layouts/{FILE}."
    )
