"""The API model: frozen dataclasses of `lib/api/{cuda,nvml}.json` (docs/interfaces.md section 1).

Owns what the model says; codec.py owns how a file spells it. Must not know where the facts come
from (libclang, wheels) nor what is made of them (templates).
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = 2

KINDS = ("alloc", "free", "launch", "copy", "query", "context", "lookup", "stream", "plain")
ENFORCED_KINDS = frozenset({"alloc", "free", "launch", "query", "context", "lookup"})


@dataclass(frozen=True, slots=True)
class Span:
    """An inclusive range of header or driver versions, as text."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Source:
    """One pinned header wheel."""

    header_version: str
    project: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Result:
    """The status type of a library and the three values that rendered code needs."""

    type: str
    success: int
    not_found: int
    invalid_value: int


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter; `direction` is in, out or inout, `type` a C spelling like `size_t *`."""

    name: str
    type: str
    direction: str


@dataclass(frozen=True, slots=True)
class Function:
    """One exported name with its prototype; variants of a base are separate functions."""

    name: str
    base: str
    version: int
    stream: str
    header: str
    returns: str
    params: tuple[Param, ...]
    kind: str
    reason: str
    deprecated: bool
    headers: Span
    drivers: Span | None
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MacroAlias:
    """An exported name whose only declaration is `#define name target`."""

    name: str
    target: str
    headers: Span
    drivers: Span | None


@dataclass(frozen=True, slots=True)
class Untyped:
    """An exported function that no header declares; forwarded by a trampoline."""

    name: str
    kind: str
    reason: str
    drivers: Span
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Threshold:
    """From `cuda_version` on, cuGetProcAddress(base) answers `symbol` (stream: "" or pt)."""

    base: str
    cuda_version: int
    stream: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Constant:
    """An enum constant or an object-like integer macro."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a record; sizes and offsets in bytes, counted from the enclosing record.

    A member of an anonymous struct or union counts its offset from that anonymous member.
    """

    name: str
    type: str | Inline
    offset: int
    size: int
    count: int = 0
    dims: tuple[int, ...] = ()
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Inline:
    """An anonymous struct or union, spelled where it is used."""

    union: bool
    size: int
    align: int
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Size and member offsets of a touched record, equal over a range of headers."""

    first: str
    last: str
    size: int
    offsets: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class AliasType:
    """`typedef of name;` for a scalar, a pointer, or another named type."""

    name: str
    of: str


@dataclass(frozen=True, slots=True)
class HandleType:
    """`typedef struct tag *name;` to a struct that no header defines."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum; constants are listed for touched enums only, ordered by value, then name."""

    name: str
    underlying: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class FunctionType:
    """A function type; `pointer`: the name is a pointer to it (all but VdpGetProcAddress)."""

    name: str
    returns: str
    params: tuple[str, ...]
    pointer: bool = True


@dataclass(frozen=True, slots=True)
class RecordType:
    """A struct or union; fields and layouts are listed for touched records only."""

    name: str
    union: bool
    size: int
    align: int
    fields: tuple[Field, ...]
    layouts: tuple[Layout, ...]


TypeDecl = AliasType | HandleType | EnumType | FunctionType | RecordType


@dataclass(frozen=True, slots=True)
class Api:
    """Everything known about one library."""

    library: str
    soname: str
    header_version: str
    sources: tuple[Source, ...]
    result: Result
    functions: tuple[Function, ...]
    aliases: tuple[MacroAlias, ...]
    untyped: tuple[Untyped, ...]
    thresholds: tuple[Threshold, ...]
    types: tuple[TypeDecl, ...]
    constants: tuple[Constant, ...]
