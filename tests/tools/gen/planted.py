"""Changes planted into the text of real headers, each with a mark by which a report shows it.

The generator is seeded: the same seed plants the same changes. What is planted stays C, so that
libclang reads it as it reads NVIDIA's own text. Nothing of it is written to a file.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gen.facts import HeaderSet

VERSION = "99.0"
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TYPE = re.compile(r"typedef\s+(?P<sort>enum|struct|union)(?:\s+\w+)?\s*\{")
_NUMBER = re.compile(r"(?P<name>\w+)\s*=\s*(?P<value>0[xX][0-9a-fA-F]+|\d+)\b(?=\s*[,}\n])")
_MACRO = re.compile(r"^#define\s+(?P<name>(?:CU|NVML)_\w+)\s+(?P<value>0x[0-9a-fA-F]+|\d+)$", re.M)


@dataclass(frozen=True, slots=True)
class Plant:
    """One change: what sort it is of, and the text that a report of it holds."""

    sort: str
    mark: str


@dataclass(frozen=True, slots=True)
class Body:
    """A type's definition in the text: the positions behind `{` and of `}`."""

    sort: str
    name: str
    start: int
    end: int


@dataclass(slots=True)
class Garden:
    """The text of one header while it is changed.

    `reached`: the types that reach an enforced function; `enforced`: those functions; `is_open`:
    whether a function of a name would be enforced, and nothing handles it.
    """

    text: str
    reached: frozenset[str]
    enforced: tuple[str, ...]
    is_open: Callable[[str], bool]
    rng: random.Random
    plants: list[Plant] = field(default_factory=list)
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    code: str = ""
    bodies: tuple[Body, ...] = ()

    def __post_init__(self) -> None:
        """Find what can be changed; comments are blanked, so that positions keep."""
        self.code = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), self.text)
        self.bodies = tuple(b for b in _bodies(self.code) if b.name in self.reached)

    def grown(self) -> str:
        """The text with every change in it."""
        text = self.text
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def mark(self) -> str:
        """A word that no header has."""
        return f"planted_{len(self.plants):03}_end"

    def number(self) -> str:
        """A value that no header has."""
        return str(1770000000 + len(self.plants))

    def put(self, sort: str, mark: str, start: int, end: int, new: str) -> bool:
        """Remember a change, unless it meets another one."""
        if any(start < other_end and other < end for other, other_end, _ in self.edits):
            return False
        self.plants.append(Plant(sort, mark))
        self.edits.append((start, end, new))
        return True


def name(garden: Garden) -> bool:
    """A new function: a variant of an enforced one, or one that sounds like it."""
    base = garden.rng.choice(garden.enforced)
    new = f"{base}{garden.mark()}" if garden.rng.random() < 0.5 else f"{base}_v{garden.number()}"
    at = _declaration(garden, garden.rng.choice(garden.enforced))
    if at is None or not garden.is_open(new):
        return False
    return garden.put("name", new, at[0], at[0], f"int {new}(int one, unsigned long long two);\n")


def parameter(garden: Garden) -> bool:
    """One parameter more, before or behind the others."""
    at = _declaration(garden, garden.rng.choice(garden.enforced))
    if at is None:
        return False
    mark, (_, opening, closing) = garden.mark(), at
    inside = garden.code[opening:closing].strip()
    if inside in ("", "void"):
        return garden.put("parameter", mark, opening, closing, f"float {mark}")
    if garden.rng.random() < 0.5:
        return garden.put("parameter", mark, opening, opening, f"float {mark}, ")
    return garden.put("parameter", mark, closing, closing, f", float {mark}")


def enumerator(garden: Garden) -> bool:
    """A new enumerator, or another value of one."""
    body = _any(garden, "enum")
    if body is None:
        return False
    if garden.rng.random() < 0.5:
        mark = garden.mark()
        new = f" {mark} = {garden.number()},"
        return garden.put("enumerator", mark, body.start, body.start, new)
    return _revalue(garden, "enumerator", list(_NUMBER.finditer(garden.code, body.start, body.end)))


def flag(garden: Garden) -> bool:
    """A new macro, or another value of one."""
    macros = list(_MACRO.finditer(garden.code))
    if garden.rng.random() < 0.5:
        return _revalue(garden, "flag", macros)
    at, mark = garden.rng.choice(macros).start(), f"CU_{garden.mark()}"
    return garden.put("flag", mark, at, at, f"#define {mark} 0x40\n")


def union_member(garden: Garden) -> bool:
    """Another member of a union."""
    unions = [b.start for b in garden.bodies if b.sort == "union"]
    for body in garden.bodies:
        if body.sort == "struct":
            inner = re.finditer(r"\bunion\s*\{", garden.code[body.start : body.end])
            unions += [body.start + match.end() for match in inner]
    if not unions:
        return False
    at, mark = garden.rng.choice(unions), garden.mark()
    return garden.put("union member", mark, at, at, f" int {mark};")


def layout(garden: Garden) -> bool:
    """A member before all others of a record, which moves them."""
    body = _any(garden, "struct")
    if body is None:
        return False
    mark = garden.mark()
    return garden.put("layout", mark, body.start, body.start, f" long long {mark};")


SORTS: dict[str, Callable[[Garden], bool]] = {
    "name": name,
    "parameter": parameter,
    "enumerator": enumerator,
    "flag": flag,
    "union member": union_member,
    "layout": layout,
}


def plant(garden: Garden, counts: Mapping[str, int]) -> None:
    """Plant so many changes of each sort."""
    for sort, count in counts.items():
        goal = len(garden.plants) + count
        for _ in range(100 * count):
            if len(garden.plants) < goal:
                SORTS[sort](garden)
        assert len(garden.plants) == goal, sort


def replanted(headers: HeaderSet, file: str, garden: Garden) -> HeaderSet:
    """The header set with the changed text of one file."""
    return HeaderSet(VERSION, {**headers.files, file: garden.grown().encode()})


# Implementation.


def _any(garden: Garden, sort: str) -> Body | None:
    bodies = [body for body in garden.bodies if body.sort == sort]
    return garden.rng.choice(bodies) if bodies else None


def _revalue(garden: Garden, sort: str, matches: list[re.Match[str]]) -> bool:
    if not matches:
        return False
    match, number = garden.rng.choice(matches), garden.number()
    return garden.put(sort, number, match.start("value"), match.end("value"), number)


def _bodies(code: str) -> Iterator[Body]:
    for match in _TYPE.finditer(code):
        depth, at = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        named = re.compile(r"\s*(\w+)\s*;").match(code, at)
        if named:
            yield Body(match["sort"], named[1], match.end(), at - 1)


def _declaration(garden: Garden, function: str) -> tuple[int, int, int] | None:
    """The only declaration of a function: where its line starts, and its parentheses."""
    pattern = rf"\b(?:CUDAAPI|DECLDIR)\s+{function}\s*\((?P<args>[^();]*)\)\s*;"
    found = list(re.finditer(pattern, garden.code))
    if len(found) != 1:
        return None
    start = max(garden.code.rfind(end, 0, found[0].start()) for end in (";", "}", "{"))
    directive = garden.code.rfind("\n#", 0, found[0].start())
    if directive > start:  # behind the whole line of a directive
        start = garden.code.index("\n", directive + 1)
    return start + 1, found[0].start("args"), found[0].end("args")
