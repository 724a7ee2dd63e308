"""Words and groupings that all human-readable formats share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .diff import DRIVER, OVERRIDDEN, PASSTHROUGH, UNCOVERED, UNTYPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .diff import Report, Row

STATUS_WORDS = {
    OVERRIDDEN: "overridden",
    PASSTHROUGH: "passthrough",
    UNTYPED: "without prototype",
    DRIVER: "left to driver",
    UNCOVERED: "not covered",
}

KIND_WORDS = {
    "alloc": "allocates",
    "free": "frees",
    "launch": "launches",
    "copy": "copies/sets",
    "query": "reports memory",
    "context": "context",
    "lookup": "dispatch",
    "stream": "stream",
    "plain": "plain",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class HoleGroup:
    """The open variants of one base."""

    base: str
    kind: str
    names: tuple[str, ...]
    why: str


def hole_groups(rows: Iterable[Row]) -> tuple[HoleGroup, ...]:
    """One group per base, by kind and name."""
    by_base: dict[str, list[Row]] = {}
    for row in rows:
        by_base.setdefault(row.base, []).append(row)
    groups = [
        HoleGroup(base, KIND_WORDS[found[0].kind], tuple(r.name for r in found), _why(found))
        for base, found in by_base.items()
    ]
    return tuple(sorted(groups, key=lambda group: (group.kind, group.base)))


def _why(rows: list[Row]) -> str:
    sibling = next((row.hole for row in rows if "sibling" in row.hole), "")
    return sibling or rows[0].kind_reason


def coverage(report: Report) -> str:
    """`636 of 636 functions: 4 overridden, ...`, leaving out what is zero."""
    functions = report.functions
    counts = [(word, _count(functions, status)) for status, word in STATUS_WORDS.items()]
    parts = ", ".join(f"{count} {word}" for word, count in counts if count)
    covered = len(functions) - _count(functions, UNCOVERED)
    return f"{covered} of {len(functions)} functions: {parts or 'none'}"


def _count(rows: Iterable[Row], status: str) -> int:
    return sum(row.status == status for row in rows)


def plural(count: int, word: str) -> str:
    """`1 hole`, `2 holes`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
