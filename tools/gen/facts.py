"""What one parse of one header set says, before it is compared with drivers or other headers.

Plain data between headers.py (which fills it through libclang) and extract.py (which turns it into
the model). Must not know libclang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ir import Param, TypeDecl


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """The text of every header of one CUDA release, by include name (`cuda.h`)."""

    version: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Touched:
    """Names whose layout, constants or value the model must hold in full (touched.json)."""

    records: tuple[str, ...]
    enums: tuple[str, ...]
    macros: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RawFunction:
    """A declaration as the header has it."""

    name: str
    header: str
    returns: str
    params: tuple[Param, ...]
    deprecated: bool

    @property
    def shape(self) -> tuple[str, ...]:
        """Return type and parameter types: what a caller's machine code depends on."""
        return (self.returns, *(param.type for param in self.params))


@dataclass(frozen=True, slots=True)
class Shapes:
    """Every prototype, and every named type that one of them mentions, in full.

    Parameters of these prototypes have no direction.
    """

    functions: Mapping[str, RawFunction]
    types: Mapping[str, TypeDecl]


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """Everything read from one header set.

    `pointers` maps a PFN typedef name to (return type, parameter types...). `types` holds every
    named type reachable from a function or a touched name, records with their true size, and
    fields for the touched ones. `macros` are the object-like ones, with their
    replacement text. A set read as history has empty prototypes. `shapes` is the same, and whole,
    for every set.
    """

    version: str
    functions: Mapping[str, RawFunction]
    pointers: Mapping[str, tuple[str, ...]]
    macros: Mapping[str, str]
    types: Mapping[str, TypeDecl]
    shapes: Shapes
