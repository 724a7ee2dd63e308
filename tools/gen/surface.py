"""The surface of a library: every value and layout through which a caller can ask for something.

Owns its facts (prototypes, enumerators, integer macros, members and sizes of records), over which
headers each of them holds, which enforced function each of them reaches, and the text of
`lib/api/{cuda,nvml}.surface.txt`. Must not know libclang, nor which facts were judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import kinds
from .errors import HookgenError
from .facts import HeaderFacts
from .ir import (
    ENFORCED_KINDS,
    EnumType,
    RecordType,
)
from .layouts import members
from .macros import value_of
from .naming import split
from .reach import reached

FUNCTION, MACROS = "function", "macros"
_ANY = "any"  # what a macro reaches: it has no type that would tell
_WHOLE = "."  # the fact about an owner itself: a prototype, or the size of a record
_FACT = re.compile(
    r"  (?P<name>\S+) = (?P<value>.*?)(?: \[(?P<first>[\d.]+)\.\.(?P<last>[\d.]*)\])?"
)
_OWNER = re.compile(
    r"(?P<sort>function|enum|record|macros)(?: (?P<owner>\S+))?(?: > (?P<via>\S+))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a fact is about: the member of an owner, or (`.`) the owner itself."""

    sort: str  # function | enum | record | macros
    owner: str  # empty for macros
    member: str

    @property
    def name(self) -> str:
        """As people name it: `CUmemLocation_v1.id`, `CU_LIMIT_STACK_SIZE`, `cuMemCreate`."""
        if self.member == _WHOLE:
            return self.owner
        return f"{self.owner}.{self.member}" if self.sort == "record" else self.member


@dataclass(frozen=True, slots=True)
class Fact:
    """One value, over an unbroken range of headers.

    `via` is an enforced function that the owner reaches, as a parameter or inside one; empty when
    it reaches none. A macro has no type, so that it may reach any.
    """

    key: Key
    value: str
    first: str
    last: str
    via: str


@dataclass(frozen=True, slots=True)
class Surface:
    """All facts of one library; `versions` are its headers, oldest first."""

    versions: tuple[str, ...]
    facts: tuple[Fact, ...]

    def at(self, version: str) -> dict[Key, Fact]:
        """What holds in one set of headers; KeyError for one that is not known."""
        place = {known: index for index, known in enumerate(self.versions)}
        wanted = place[version]
        return {
            fact.key: fact for fact in self.facts if place[fact.first] <= wanted <= place[fact.last]
        }


def file_of(library: str) -> str:
    """The name of a library's file below lib/api."""
    return f"{library}.surface.txt"


def build(history: Sequence[HeaderFacts]) -> Surface:
    """The facts of every set of headers, oldest first, joined."""
    versions = tuple(facts.version for facts in history)
    runs: dict[Key, list[tuple[str, str, str]]] = {}
    for index, facts in enumerate(history):
        for key, value in _facts_of(facts):
            known = runs.setdefault(key, [])
            if known and known[-1][0] == value and known[-1][2] == versions[max(index - 1, 0)]:
                known[-1] = (value, known[-1][1], facts.version)
            else:
                known.append((value, facts.version, facts.version))
    via = _reach(history)
    return Surface(
        versions,
        tuple(
            Fact(key, value, first, last, _via(key, via))
            for key in sorted(runs)
            for value, first, last in runs[key]
        ),
    )


def dumps(library: str, surface: Surface) -> str:
    """The text of a surface: an owner, then its facts, one a line."""
    oldest, newest = surface.versions[0], surface.versions[-1]
    lines = [
        f"# The surface of {library}, by `hookgen extract`; docs/interfaces.md explains it.",
        f"headers {' '.join(surface.versions)}",
    ]
    owner: tuple[str, str] | None = None
    for fact in surface.facts:
        key = fact.key
        if owner != (key.sort, key.owner):
            owner = (key.sort, key.owner)
            reach = f" > {fact.via}" if fact.via and key.sort != MACROS else ""
            lines.append(" ".join(filter(None, owner)) + reach)
        first = "" if fact.first == oldest else fact.first
        last = "" if fact.last == newest else fact.last
        span = f" [{first or oldest}..{last}]" if first or last else ""
        lines.append(f"  {key.member} = {fact.value}{span}")
    return "\n".join(lines) + "\n"


def loads(text: str, file: str) -> Surface:
    """Read a surface; `file` is its name for messages.

    Raises:
        HookgenError: exit 1; a line is not understood.
    """
    versions: tuple[str, ...] = ()
    found: list[Fact] = []
    owner: re.Match[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        if line.startswith("headers "):
            versions = tuple(line.split()[1:])
            continue
        match = _FACT.fullmatch(line) if line.startswith(" ") else None
        if match is None:
            owner = _OWNER.fullmatch(line)
        if owner is None or not versions or (line.startswith(" ") and match is None):
            raise HookgenError(
                f"{file} is damaged", f"line {number} is no fact", "Run `hookgen extract`."
            )
        if match is not None:
            found.append(_read(owner, match, versions))
    return Surface(versions, tuple(found))


# Implementation.


def _read(owner: re.Match[str], fact: re.Match[str], versions: tuple[str, ...]) -> Fact:
    sort = owner["sort"]
    return Fact(
        Key(sort, owner["owner"] or "", fact["name"]),
        fact["value"],
        fact["first"] or versions[0],
        fact["last"] or versions[-1],
        _ANY if sort == MACROS else owner["via"] or "",
    )


def _facts_of(facts: HeaderFacts) -> Iterator[tuple[Key, str]]:
    for name, function in facts.shapes.functions.items():
        params = ", ".join(f"{param.type} {param.name}" for param in function.params)
        yield Key(FUNCTION, name, _WHOLE), f"{function.returns} ({params})"
    for name, decl in facts.shapes.types.items():
        match decl:
            case EnumType():
                for constant in decl.constants:
                    yield Key("enum", name, constant.name), str(constant.value)
            case RecordType() if decl.size:
                sort = "union" if decl.union else "struct"
                yield Key("record", name, _WHOLE), f"{sort}, {decl.size} bytes, align {decl.align}"
                yield from _members(name, decl)
    for name in facts.macros:
        value = value_of(name, facts.macros)
        if value is not None:
            yield Key(MACROS, "", name), str(value)


def _members(name: str, decl: RecordType) -> Iterator[tuple[Key, str]]:
    for member in members(decl.fields):
        count = f"[{member.field.count}]" if member.field.count else ""
        bits = f":{member.field.bits}" if member.field.bits else ""
        size = member.field.size
        text = f"{member.spelling}{count}{bits} at {member.offset}, {size} bytes"
        yield Key("record", name, member.path), text


def _via(key: Key, reach: Mapping[str, str]) -> str:
    return _ANY if key.sort == MACROS else reach.get(key.owner, "")


def _reach(history: Iterable[HeaderFacts]) -> dict[str, str]:
    """Owner → the first enforced function, by name, that it reaches in any of the headers."""
    reach: dict[str, str] = {}
    for facts in history:
        for name in sorted(facts.shapes.functions):
            if kinds.classify(split(name).base)[0] in ENFORCED_KINDS:
                spellings = [param.type for param in facts.shapes.functions[name].params]
                for owner in (name, *reached(spellings, facts.shapes.types)):
                    reach[owner] = min(reach.get(owner, name), name)
    return reach
