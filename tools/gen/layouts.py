"""Record geometry: flat members, and how the layout of a record moved over the headers.

Pure functions over ir records. Must not know libclang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .facts import HeaderFacts
from .ir import Constant, Field, Layout, RecordType


@dataclass(frozen=True, slots=True)
class Member:
    """A leaf at any depth: dotted path from the record, absolute offset, and its field."""

    path: str
    offset: int
    field: Field
    spelling: str


def members(fields: Iterable[Field], offset: int = 0, prefix: str = "") -> Iterator[Member]:
    """Every named leaf of a record, members of anonymous records included, in source order."""
    for field in fields:
        at = offset + field.offset
        if isinstance(field.type, str):
            yield Member(prefix + field.name, at, field, field.type)
        else:
            inner = f"{prefix}{field.name}." if field.name else prefix
            yield from members(field.type.fields, at, inner)


def layouts(name: str, history: Sequence[HeaderFacts]) -> tuple[Layout, ...]:
    """The layouts of a touched record, oldest first; one per run of headers that agree.

    A header set that lacks the record does not end a run.
    """
    runs: list[Layout] = []
    for facts in history:
        decl = facts.types.get(name)
        if not isinstance(decl, RecordType):
            continue
        offsets = tuple(
            sorted(
                (Constant(member.path, member.offset) for member in members(decl.fields)),
                key=lambda item: (item.value, item.name),
            )
        )
        if runs and (runs[-1].size, runs[-1].offsets) == (decl.size, offsets):
            runs[-1] = Layout(runs[-1].first, facts.version, decl.size, offsets)
        else:
            runs.append(Layout(facts.version, facts.version, decl.size, offsets))
    return tuple(runs)
