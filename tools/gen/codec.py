"""The model as JSON text, and back.

Owns the keys of `lib/api/{cuda,nvml}.json`: those of the dataclasses, but for constants and
offsets, which are name → value objects, and `is`, which tells the sorts of types apart. Most names
are in the newest driver, which stands once: a span of drivers says `last` only where it ended
before, so that the list of a new driver changes no line of a name that it still has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .canonical import JsonValue, dumps_json
from .drivers import version_key
from .ir import (
    SCHEMA,
    AliasType,
    Api,
    Constant,
    EnumType,
    Field,
    Function,
    FunctionType,
    HandleType,
    Inline,
    Layout,
    MacroAlias,
    Param,
    RecordType,
    Result,
    Source,
    Span,
    Threshold,
    TypeDecl,
    Untyped,
)

_Symbol = Function | MacroAlias | Untyped


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
    newest = _newest_driver(api)
    return dumps_json(
        {
            "schema": SCHEMA,
            "library": api.library,
            "soname": api.soname,
            "header_version": api.header_version,
            "newest_driver": newest,
            "sources": _plain(api.sources),
            "result": _plain(api.result),
            "functions": [_symbol_to_json(item, newest) for item in api.functions],
            "aliases": [_symbol_to_json(item, newest) for item in api.aliases],
            "untyped": [_symbol_to_json(item, newest) for item in api.untyped],
            "thresholds": _plain(api.thresholds),
            "types": [_type_to_json(decl) for decl in api.types],
            "constants": _plain(api.constants),
        }
    )


# Implementation: writing.


def _newest_driver(api: Api) -> str:
    """The newest that has any of the names; "" where no driver has one."""
    named: tuple[_Symbol, ...] = (*api.functions, *api.aliases, *api.untyped)
    return max((i.drivers.last for i in named if i.drivers), key=version_key, default="")


def _symbol_to_json(item: _Symbol, newest: str) -> JsonValue:
    """As `_plain`, but for the last driver, which is left out where it is the newest."""
    drivers = item.drivers
    plain = {name: _plain(getattr(item, name)) for name in item.__slots__}
    if drivers and drivers.last == newest:
        plain["drivers"] = {"first": drivers.first}
    return plain


def _plain(value: object) -> JsonValue:
    """A flat dataclass (and what it holds) as JSON values; keys are the field names."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {name: _plain(getattr(value, name)) for name in getattr(value, "__slots__", ())}


def _table(constants: tuple[Constant, ...]) -> dict[str, int]:
    return {constant.name: constant.value for constant in constants}


def _type_to_json(decl: TypeDecl) -> dict[str, JsonValue]:
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


def _field_to_json(field: Field) -> dict[str, JsonValue]:
    """`dims` and `bits` are written only where a field has them."""
    out: dict[str, JsonValue] = {
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


def _inline_to_json(inline: Inline) -> dict[str, JsonValue]:
    fields = [_field_to_json(field) for field in inline.fields]
    return {"union": inline.union, "size": inline.size, "align": inline.align, "fields": fields}


# Implementation: reading.


def _api(raw: Mapping[str, Any]) -> Api:
    newest = raw["newest_driver"]
    return Api(
        library=raw["library"],
        soname=raw["soname"],
        header_version=raw["header_version"],
        sources=tuple(Source(**item) for item in raw["sources"]),
        result=Result(**raw["result"]),
        functions=tuple(_function(item, newest) for item in raw["functions"]),
        aliases=tuple(_alias(item, newest) for item in raw["aliases"]),
        untyped=tuple(_untyped(item, newest) for item in raw["untyped"]),
        thresholds=tuple(Threshold(**item) for item in raw["thresholds"]),
        types=tuple(_type(item) for item in raw["types"]),
        constants=tuple(Constant(**item) for item in raw["constants"]),
    )


def _drivers(raw: Mapping[str, str], newest: str) -> Span:
    return Span(**{"last": newest, **raw})


def _maybe_drivers(raw: Mapping[str, str] | None, newest: str) -> Span | None:
    return None if raw is None else _drivers(raw, newest)


def _function(raw: Mapping[str, Any], newest: str) -> Function:
    return Function(
        **{
            **raw,
            "params": tuple(Param(**param) for param in raw["params"]),
            "headers": Span(**raw["headers"]),
            "drivers": _maybe_drivers(raw["drivers"], newest),
            "architectures": tuple(raw["architectures"]),
        }
    )


def _alias(raw: Mapping[str, Any], newest: str) -> MacroAlias:
    drivers = _maybe_drivers(raw["drivers"], newest)
    return MacroAlias(**{**raw, "headers": Span(**raw["headers"]), "drivers": drivers})


def _untyped(raw: Mapping[str, Any], newest: str) -> Untyped:
    drivers, architectures = _drivers(raw["drivers"], newest), tuple(raw["architectures"])
    return Untyped(**{**raw, "drivers": drivers, "architectures": architectures})


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
