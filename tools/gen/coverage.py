"""The figures and rows of the coverage page.

Owns how a symbol's provenance is worded. Must not know which symbols are overridden nor how the
page is laid out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .ir import KINDS, Span
from .model import Library, Model, Symbol


@dataclass(frozen=True, slots=True)
class Row:
    """One symbol, in words."""

    name: str
    kind: str
    why: str
    leaves: str
    declared: str
    drivers: str


@dataclass(frozen=True, slots=True)
class CoveragePage:
    """One library: counts, and a row per symbol."""

    soname: str
    header_version: str
    typed: int
    aliases: int
    untyped: int
    forecast: int
    rendered_hooks: int
    left: tuple[str, ...]
    kinds: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]


def context(model: Model) -> Mapping[str, object]:
    """What `coverage.md.j2` needs."""
    return {"pages": [_page(library) for library in model.libraries]}


def declared_in(symbol: Symbol) -> str:
    """The header and its first version: `cuda.h, from 11.8`, and until when if it is gone."""
    function = symbol.function
    if function is None:
        return "no header"
    where = f"{function.header}, from {function.headers.first}"
    if symbol.alias_of:
        where += f", as a macro for {symbol.alias_of}"
    return where


def driver_range(span: Span | None, newest: str) -> str:
    """`from 470.256.02`, `470.256.02 to 525.147.05`, or that no listed driver has it."""
    if span is None:
        return "none yet"
    if span.last == newest:
        return f"from {span.first}"
    return span.first if span.first == span.last else f"{span.first} to {span.last}"


# Implementation.


def _page(library: Library) -> CoveragePage:
    symbols = library.symbols
    counts = Counter(symbol.kind for symbol in symbols)
    return CoveragePage(
        soname=library.api.soname,
        header_version=library.api.header_version,
        typed=len(library.api.functions),
        aliases=len(library.api.aliases),
        untyped=len(library.api.untyped),
        forecast=sum(symbol.drivers is None for symbol in symbols),
        rendered_hooks=sum(bool(symbol.leaves) for symbol in symbols),
        left=tuple(sorted((*library.debugger_functions, *(data.name for data in library.data)))),
        kinds=tuple((kind, counts[kind]) for kind in KINDS if counts[kind]),
        rows=tuple(
            Row(
                symbol.name,
                symbol.kind,
                symbol.reason,
                "; ".join(symbol.leaves),
                declared_in(symbol),
                driver_range(symbol.drivers, library.newest_driver),
            )
            for symbol in symbols
        ),
    )
