"""Which named types the spellings of types mention, to any depth.

Pure functions over ir types. Must not know libclang, nor what the types are wanted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .ir import AliasType, FunctionType, RecordType, TypeDecl
from .layouts import members
from .typedefs import WORD


def reached(spellings: Iterable[str], types: Mapping[str, TypeDecl]) -> set[str]:
    """Names of `types` that a spelling, or another reached type, mentions."""
    found: set[str] = set()
    todo = list(spellings)
    while todo:
        for name in WORD.findall(todo.pop()):
            if name in types and name not in found:
                found.add(name)
                todo += _mentions(types[name])
    return found


def field_types(decl: TypeDecl) -> list[str]:
    """The spellings of a record's members at any depth; none for any other type."""
    if not isinstance(decl, RecordType):
        return []
    return [member.spelling for member in members(decl.fields)]


# Implementation.


def _mentions(decl: TypeDecl) -> list[str]:
    match decl:
        case AliasType():
            return [decl.of]
        case FunctionType():
            return [decl.returns, *decl.params]
        case _:
            return field_types(decl)
