"""Which types the model declares, and how much of each.

Owns the choice: reachable types only; records in full if touched, sized if they travel by value,
else opaque. Must not know libclang, drivers or functions' kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .errors import HookgenError
from .facts import HeaderFacts, Touched
from .ir import AliasType, EnumType, RecordType, TypeDecl
from .layouts import layouts
from .reach import field_types, reached

# Up to here a record may travel in registers, chosen by its fields: 16 bytes on x86-64 and
# aarch64, 32 bytes on aarch64 if it is up to four doubles. Beyond, only size and alignment count.
_REGISTER_BYTES = 32


def check_touched(facts: HeaderFacts, touched: Touched) -> None:
    """Every touched name is the first typedef name of a record or an enum.

    Raises:
        HookgenError: exit 1; naming all that are not.
    """
    wrong = [name for name in touched.records if not isinstance(facts.types.get(name), RecordType)]
    wrong += [name for name in touched.enums if not isinstance(facts.types.get(name), EnumType)]
    if wrong:
        raise HookgenError(
            f"touched.json names {', '.join(repr(name) for name in wrong)}",
            f"headers {facts.version} have no such record or enum, or only as another name of one",
            "Correct the names in touched.json.",
        )


def select_types(history: Sequence[HeaderFacts], touched: Touched) -> dict[str, TypeDecl]:
    """The declarations of the newest headers that the model needs, with layouts over all headers.

    Raises:
        HookgenError: exit 1; an untouched record travels in registers, so its fields are needed.
    """
    newest = history[-1]
    passed = _records_in(newest, _signatures(newest))
    embedded = _records_in(newest, _embedded(newest))
    out: dict[str, TypeDecl] = {}
    for name in _reachable(newest, touched):
        decl = newest.types[name]
        if isinstance(decl, RecordType):
            if name in touched.records:
                decl = replace(decl, layouts=layouts(name, history))
            elif name in passed and decl.size <= _REGISTER_BYTES:
                raise HookgenError(
                    f"record {name} ({decl.size} bytes) is passed by value",
                    "how it travels in registers depends on its fields",
                    "List it under records in touched.json.",
                )
            elif name not in passed | embedded:
                decl = replace(decl, size=0, align=0)
        out[name] = decl
    return out


# Implementation.


def _signatures(facts: HeaderFacts) -> list[str]:
    return [spelling for function in facts.functions.values() for spelling in function.shape]


def _embedded(facts: HeaderFacts) -> list[str]:
    return [spelling for decl in facts.types.values() for spelling in field_types(decl)]


def _reachable(facts: HeaderFacts, touched: Touched) -> set[str]:
    """Named types that a signature, a touched name, or another reachable type mentions.

    The facts hold more: names that only a PFN typedef uses.
    """
    return reached([*_signatures(facts), *touched.records, *touched.enums], facts.types)


def _records_in(facts: HeaderFacts, spellings: Iterable[str]) -> set[str]:
    """Records that these spellings mean by value, through any number of aliases."""
    found = set()
    for spelling in spellings:
        name = spelling.removeprefix("const ")
        decl = facts.types.get(name)
        while isinstance(decl, AliasType):
            name = decl.of
            decl = facts.types.get(name)
        if isinstance(decl, RecordType):
            found.add(name)
    return found
