"""The named types of both APIs in an order in which C++ accepts them.

Owns dependency order and the choice between a full, an opaque and an incomplete record. Must not
know how a declaration is spelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .errors import HookgenError
from .filters import is_by_value, words
from .ir import (
    AliasType,
    EnumType,
    Field,
    Function,
    FunctionType,
    HandleType,
    Inline,
    RecordType,
    TypeDecl,
)

# Up to this size a struct travels in registers, by rules that look at its fields.
_REGISTER_BYTES = 16


@dataclass(frozen=True, slots=True)
class OrderedTypes:
    """Declarations by sort; `rest` holds aliases, function types and defined records, in order."""

    records: tuple[RecordType, ...]
    handles: tuple[HandleType, ...]
    enums: tuple[EnumType, ...]
    rest: tuple[AliasType | FunctionType | RecordType, ...]


def order_types(types: Iterable[TypeDecl], functions: Sequence[Function]) -> OrderedTypes:
    """Sort the types of all libraries for one header.

    Raises:
        HookgenError: one name with two meanings, a definition that contains itself, or an opaque
            record passed by value in registers (its fields would decide in which).
    """
    known = _merge(types)
    passed = _records_by_value(known, _passed_types(functions))
    _refuse_small_opaque(passed)
    embedded = _records_by_value(known, _embedded_types(known.values()))
    defined = {record.name for record in (*passed, *embedded)}
    defined |= {d.name for d in known.values() if isinstance(d, RecordType) and d.fields}
    ordered = [known[name] for name in sorted(known)]
    return OrderedTypes(
        records=tuple(decl for decl in ordered if isinstance(decl, RecordType)),
        handles=tuple(decl for decl in ordered if isinstance(decl, HandleType)),
        enums=tuple(decl for decl in ordered if isinstance(decl, EnumType)),
        rest=tuple(_Walk(known, defined).ordered()),
    )


def record_takers(types: Iterable[TypeDecl], functions: Sequence[Function]) -> frozenset[str]:
    """The names of the functions that a record is passed to by value."""
    known = {decl.name: decl for decl in types}
    return frozenset(
        function.name
        for function in functions
        if any(_record_behind(known, param.type) for param in function.params)
    )


# Implementation.


def _merge(types: Iterable[TypeDecl]) -> dict[str, TypeDecl]:
    known: dict[str, TypeDecl] = {}
    for decl in types:
        if known.setdefault(decl.name, decl) != decl:
            raise HookgenError(
                f"type {decl.name} cannot be declared",
                "the two libraries give it different meanings",
                "Rename one of them in tools/gen/quirks.py.",
            )
    return known


def _passed_types(functions: Sequence[Function]) -> Iterator[str]:
    for function in functions:
        yield function.returns
        for param in function.params:
            yield param.type


def _embedded_types(types: Iterable[TypeDecl]) -> Iterator[str]:
    for decl in types:
        if isinstance(decl, RecordType):
            yield from (spelling for spelling in _member_types(decl.fields))


def _member_types(fields: Iterable[Field]) -> Iterator[str]:
    for field in fields:
        if isinstance(field.type, Inline):
            yield from _member_types(field.type.fields)
        else:
            yield field.type


def _record_behind(known: Mapping[str, TypeDecl], spelling: str) -> RecordType | None:
    """The record that a by-value spelling denotes, through any chain of aliases."""
    while is_by_value(spelling):
        decl = next((known[word] for word in words(spelling) if word in known), None)
        if isinstance(decl, RecordType):
            return decl
        if not isinstance(decl, AliasType):
            return None
        spelling = decl.of
    return None


def _records_by_value(
    known: Mapping[str, TypeDecl], spellings: Iterable[str]
) -> tuple[RecordType, ...]:
    found = (_record_behind(known, spelling) for spelling in spellings)
    return tuple(record for record in found if record is not None)


def _refuse_small_opaque(passed: Iterable[RecordType]) -> None:
    for record in passed:
        if not record.fields and record.size <= _REGISTER_BYTES:
            raise HookgenError(
                f"record {record.name} cannot be passed by value",
                f"it has {record.size} bytes, so its fields decide how, and the model has none",
                "Add it to lib/api/touched.json and run `hookgen extract`.",
            )


class _Walk:
    """Depth-first emission in name order: what a declaration needs comes before it."""

    def __init__(self, known: Mapping[str, TypeDecl], defined: set[str]) -> None:
        self._known = known
        self._defined = defined
        self._done: set[str] = set()
        self._open: list[str] = []

    def ordered(self) -> Iterator[AliasType | FunctionType | RecordType]:
        for name in sorted(self._known):
            yield from self._visit(self._known[name])

    def _visit(self, decl: TypeDecl) -> Iterator[AliasType | FunctionType | RecordType]:
        if decl.name in self._done or not self._is_emitted(decl):
            return
        if decl.name in self._open:
            raise HookgenError(
                f"type {decl.name} cannot be declared",
                f"it contains itself through {' -> '.join(self._open)}",
                "The model is damaged; run `hookgen extract` again.",
            )
        self._open.append(decl.name)
        for needed in self._needs(decl):
            yield from self._visit(needed)
        self._open.pop()
        self._done.add(decl.name)
        if isinstance(decl, AliasType | FunctionType | RecordType):
            yield decl

    def _is_emitted(self, decl: TypeDecl) -> bool:
        """Handles, enums and incomplete records are declared before the walk begins."""
        if isinstance(decl, RecordType):
            return decl.name in self._defined
        return isinstance(decl, AliasType | FunctionType)

    def _needs(self, decl: TypeDecl) -> Iterator[TypeDecl]:
        """What must be declared earlier; of records only those contained by value."""
        if isinstance(decl, RecordType):
            spellings: tuple[str, ...] = tuple(_member_types(decl.fields))
            yield from _records_by_value(self._known, spellings)
        elif isinstance(decl, FunctionType):
            spellings = (decl.returns, *decl.params)
        elif isinstance(decl, AliasType):
            spellings = (decl.of,)
        else:
            spellings = ()
        for spelling in spellings:
            for word in words(spelling):
                needed = self._known.get(word)
                if needed is not None and not isinstance(needed, RecordType):
                    yield needed
