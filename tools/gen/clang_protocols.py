"""The part of clang.cindex that this package uses, as types; the package itself has none.

Must not import clang: only headers.py may.
"""

# ruff: noqa: D102  (the methods are clang's; its documentation describes them)

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Named(Protocol):
    """A kind, a file, an access or storage class: all that is used is the name."""

    name: str


class Location(Protocol):
    """A place in a file; `file` is None for what the compiler defines itself."""

    file: Named | None
    line: int
    offset: int


class Extent(Protocol):
    """From the first to behind the last byte."""

    start: Location
    end: Location


class Cursor(Protocol):
    """A declaration."""

    spelling: str
    kind: Named
    location: Location
    extent: Extent
    storage_class: Named
    availability: Named
    enum_value: int
    type: Type
    enum_type: Type
    result_type: Type
    underlying_typedef_type: Type

    def get_children(self) -> Iterable[Cursor]: ...
    def get_arguments(self) -> Iterable[Cursor]: ...
    def get_definition(self) -> Cursor | None: ...
    def get_usr(self) -> str: ...
    def get_field_offsetof(self) -> int: ...
    def is_bitfield(self) -> bool: ...
    def get_bitfield_width(self) -> int: ...


class Type(Protocol):
    """A C type."""

    spelling: str
    kind: Named
    element_type: Type
    element_count: int

    def is_const_qualified(self) -> bool: ...
    def get_pointee(self) -> Type: ...
    def get_named_type(self) -> Type: ...
    def get_canonical(self) -> Type: ...
    def get_declaration(self) -> Cursor: ...
    def get_result(self) -> Type: ...
    def argument_types(self) -> Iterable[Type]: ...
    def get_fields(self) -> Iterable[Cursor]: ...
    def get_size(self) -> int: ...
    def get_align(self) -> int: ...


class Diagnostic(Protocol):
    """A message of the compiler."""

    severity: int
    spelling: str
    location: Location


class Unit(Protocol):
    """One parse."""

    cursor: Cursor
    diagnostics: Iterable[Diagnostic]
