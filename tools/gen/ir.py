"""The API model: frozen dataclasses, their JSON form, and its one canonical spelling.

Owns the shape of `lib/api/{cuda,nvml}.json` (docs/interfaces.md section 1). Must not know where
the facts come from (libclang, wheels) nor what is made of them (templates).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .canonical import dumps_json

SCHEMA = 1

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
    """A function type; `pointer` says that the name is a pointer to it (all but VdpGetProcAddress)."""

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

    def type_named(self, name: str) -> TypeDecl:
        """The declaration of a named type; KeyError when the model has none."""
        for decl in self.types:
            if decl.name == name:
                return decl
        raise KeyError(name)


def load(path: Path) -> Api:
    """Read a model file.

    Raises:
        OSError: no such file.
        ValueError: not JSON, another schema, or a missing or unknown key.
    """
    return loads(path.read_text(encoding="utf-8"))


def loads(text: str) -> Api:
    """Read a model from its JSON text; ValueError as in `load`."""
    raw = json.loads(text)
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise ValueError(f"not an API model of schema {SCHEMA}")
    try:
        return _api(raw)
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed API model: {error!r}") from error


def dumps(api: Api) -> str:
    """The canonical text of a model: `loads(dumps(api)) == api`, and equal models spell equally."""
    return dumps_json(
        {
            "schema": SCHEMA,
            "library": api.library,
            "soname": api.soname,
            "header_version": api.header_version,
            "sources": [_plain(source) for source in api.sources],
            "result": _plain(api.result),
            "functions": [_plain(function) for function in api.functions],
            "aliases": [_plain(alias) for alias in api.aliases],
            "untyped": [_plain(untyped) for untyped in api.untyped],
            "thresholds": [_plain(threshold) for threshold in api.thresholds],
            "types": [_type_to_json(decl) for decl in api.types],
            "constants": [_plain(constant) for constant in api.constants],
        }
    )


# Implementation: writing. Constants become a name → value object where names are unique keys.


def _plain(value: Any) -> Any:
    """A flat dataclass (and what it holds) as JSON values; keys are the field names."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | bool) or value is None:
        return value
    return {name: _plain(getattr(value, name)) for name in value.__slots__}


def _table(constants: tuple[Constant, ...]) -> dict[str, int]:
    return {constant.name: constant.value for constant in constants}


def _type_to_json(decl: TypeDecl) -> dict[str, Any]:
    match decl:
        case AliasType():
            return {"is": "alias", "name": decl.name, "of": decl.of}
        case HandleType():
            return {"is": "handle", "name": decl.name, "tag": decl.tag}
        case EnumType():
            return {
                "is": "enum",
                "name": decl.name,
                "underlying": decl.underlying,
                "constants": _table(decl.constants),
            }
        case FunctionType():
            shape = {"is": "function", "name": decl.name, "returns": decl.returns}
            extra = {} if decl.pointer else {"pointer": False}
            return {**shape, "params": list(decl.params), **extra}
        case RecordType():
            return {
                "is": "record",
                "name": decl.name,
                "union": decl.union,
                "size": decl.size,
                "align": decl.align,
                "fields": [_field_to_json(field) for field in decl.fields],
                "layouts": [
                    {
                        "first": layout.first,
                        "last": layout.last,
                        "size": layout.size,
                        "offsets": _table(layout.offsets),
                    }
                    for layout in decl.layouts
                ],
            }


def _field_to_json(field: Field) -> dict[str, Any]:
    """`dims` and `bits` are written only where a field has them."""
    out: dict[str, Any] = {
        "name": field.name,
        "type": field.type if isinstance(field.type, str) else _inline_to_json(field.type),
        "offset": field.offset,
        "size": field.size,
        "count": field.count,
    }
    if len(field.dims) > 1:
        out["dims"] = list(field.dims)
    if field.bits:
        out["bits"] = field.bits
    return out


def _inline_to_json(inline: Inline) -> dict[str, Any]:
    fields = [_field_to_json(field) for field in inline.fields]
    return {"union": inline.union, "size": inline.size, "align": inline.align, "fields": fields}


# Implementation: reading.


def _api(raw: Mapping[str, Any]) -> Api:
    return Api(
        library=raw["library"],
        soname=raw["soname"],
        header_version=raw["header_version"],
        sources=tuple(Source(**item) for item in raw["sources"]),
        result=Result(**raw["result"]),
        functions=tuple(_function(item) for item in raw["functions"]),
        aliases=tuple(_alias(item) for item in raw["aliases"]),
        untyped=tuple(_untyped(item) for item in raw["untyped"]),
        thresholds=tuple(Threshold(**item) for item in raw["thresholds"]),
        types=tuple(_type(item) for item in raw["types"]),
        constants=tuple(Constant(**item) for item in raw["constants"]),
    )


def _span(raw: Mapping[str, str] | None) -> Span | None:
    return None if raw is None else Span(**raw)


def _function(raw: Mapping[str, Any]) -> Function:
    return Function(
        **{
            **raw,
            "params": tuple(Param(**param) for param in raw["params"]),
            "headers": Span(**raw["headers"]),
            "drivers": _span(raw["drivers"]),
            "architectures": tuple(raw["architectures"]),
        }
    )


def _alias(raw: Mapping[str, Any]) -> MacroAlias:
    return MacroAlias(
        **{**raw, "headers": Span(**raw["headers"]), "drivers": _span(raw["drivers"])}
    )


def _untyped(raw: Mapping[str, Any]) -> Untyped:
    architectures = tuple(raw["architectures"])
    return Untyped(**{**raw, "drivers": Span(**raw["drivers"]), "architectures": architectures})


def _constants(raw: Mapping[str, int]) -> tuple[Constant, ...]:
    ordered = sorted(raw.items(), key=lambda item: (item[1], item[0]))
    return tuple(Constant(name, value) for name, value in ordered)


def _type(raw: Mapping[str, Any]) -> TypeDecl:
    name, what = raw["name"], raw["is"]
    match what:
        case "alias":
            return AliasType(name, raw["of"])
        case "handle":
            return HandleType(name, raw["tag"])
        case "enum":
            return EnumType(name, raw["underlying"], _constants(raw["constants"]))
        case "function":
            return FunctionType(
                name, raw["returns"], tuple(raw["params"]), raw.get("pointer", True)
            )
        case "record":
            layouts = tuple(
                Layout(item["first"], item["last"], item["size"], _constants(item["offsets"]))
                for item in raw["layouts"]
            )
            fields = tuple(_field(item) for item in raw["fields"])
            return RecordType(name, raw["union"], raw["size"], raw["align"], fields, layouts)
    raise ValueError(f"type {name} is of unknown sort {what!r}")


def _field(raw: Mapping[str, Any]) -> Field:
    kind = raw["type"]
    return Field(
        name=raw["name"],
        type=kind if isinstance(kind, str) else _inline(kind),
        offset=raw["offset"],
        size=raw["size"],
        count=raw["count"],
        dims=tuple(raw.get("dims", ())),
        bits=raw.get("bits", 0),
    )


def _inline(raw: Mapping[str, Any]) -> Inline:
    fields = tuple(_field(item) for item in raw["fields"])
    return Inline(raw["union"], raw["size"], raw["align"], fields)
