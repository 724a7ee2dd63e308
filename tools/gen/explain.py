"""`hookgen explain SYMBOL`: all that the model knows about one symbol, and an override to paste.

Owns the wording. Must not know jinja2, nor change anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from . import filters, hooks, model, rules, stream_order
from .coverage import declared_in, driver_range
from .errors import ExitCode, HookgenError
from .ir import ENFORCED_KINDS, Function, Param
from .model import Library, Model, Symbol
from .render import default_api_dir

_COLUMNS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hookgen explain`."""
    parser.add_argument("symbol", metavar="SYMBOL", help="an exported name, like cuMemAlloc_v2")
    parser.add_argument(
        "--api", type=Path, metavar="DIR", help="the model folder (default: lib/api)"
    )
    parser.add_argument(
        "--hooks",
        type=Path,
        metavar="DIR",
        help="where hand-written hooks are (default: lib/src/hooks of the checkout)",
    )


def run(args: argparse.Namespace) -> int:
    """Print to stdout.

    Raises:
        HookgenError: exit 1 for a name that is no symbol, with the nearest ones, and for a damaged
            model.
    """
    api_dir = args.api or default_api_dir()
    loaded = model.load(api_dir)
    symbol = _find(loaded, args.symbol)
    hooks_dir = args.hooks or api_dir.resolve().parent / "src" / "hooks"
    overridden = _overridden(loaded, symbol, api_dir, hooks_dir)
    print("\n".join(explain(loaded, symbol, overridden)))
    return ExitCode.OK


def explain(loaded: Model, symbol: Symbol, overridden: str) -> Iterator[str]:
    """The lines of the answer; `overridden` says who overrides the symbol."""
    library = next(one for one in loaded.libraries if one.name == symbol.library)
    yield from _facts(library, symbol, overridden)
    relatives = [one for one in _family(library, symbol) if one.name != symbol.name]
    if relatives:
        yield ""
        yield "Variants, and how they differ from it:"
        for relative in relatives:
            yield f"  {relative.name} ({driver_range(relative.drivers, library.newest_driver)})"
            yield from (f"    {line}" for line in differences(symbol, relative))
    yield ""
    if symbol.typed:
        yield "An override, for lib/src/hooks/<family>/:"
        if symbol.leaves:
            yield f"(with a line `{symbol.name} : by hand, REASON` in lib/api/{stream_order.FILE})"
        yield ""
        yield from override_stub(symbol)
    else:
        yield "It has no prototype, so it is forwarded by a trampoline and cannot be overridden."


def differences(symbol: Symbol, other: Symbol) -> list[str]:
    """What a caller of `other` must do differently, one line each."""
    ours, theirs = symbol.function, other.function
    if ours is None or theirs is None:
        return ["no prototype to compare"]
    lines = []
    if ours.returns != theirs.returns:
        lines.append(f"returns {other.returns} instead of {symbol.returns}")
    mine = {param.name: param for param in ours.params}
    for param in theirs.params:
        before = mine.get(param.name)
        if before is None:
            lines.append(f"adds {_declared(param)}")
        elif before.type != param.type:
            was = filters.cpp_type(before.type)
            lines.append(f"{param.name} is {filters.cpp_type(param.type)} instead of {was}")
    kept = {param.name for param in theirs.params}
    lines += [f"drops {_declared(param)}" for param in ours.params if param.name not in kept]
    shared = [param.name for param in ours.params if param.name in kept]
    if shared != [param.name for param in theirs.params if param.name in mine]:
        lines.append("takes them in another order")
    if theirs.stream and not ours.stream:
        lines.append("uses the per-thread default stream")
    elif ours.stream and not theirs.stream:
        lines.append("uses the legacy default stream")
    return lines or ["the same parameters"]


def override_stub(symbol: Symbol) -> Iterator[str]:
    """A strong definition that compiles beside the rendered headers and forwards the call."""
    yield '#include "real.h"'
    yield ""
    head = f'extern "C" {symbol.returns} {symbol.name}('
    params = symbol.function.params if symbol.function else ()
    yield from _wrapped(head, [_declared(param) for param in params], ") {")
    forwards = "  return " if symbol.returns != "void" else "  "
    names = list(filters.param_names(params))
    yield from _wrapped(f"{forwards}real::{symbol.name}(", names, ");")
    yield "}"


# Implementation.


def _facts(library: Library, symbol: Symbol, overridden: str) -> Iterator[str]:
    enforced = "enforced" if symbol.kind in ENFORCED_KINDS else "not enforced"
    drivers = driver_range(symbol.drivers, library.newest_driver)
    architectures = f" ({', '.join(symbol.architectures)})" if symbol.architectures else ""
    yield f"{symbol.name}, in {library.api.soname}"
    yield ""
    if symbol.typed:
        yield from (f"  {line}" for line in _prototype(symbol))
        yield ""
    yield f"kind        {symbol.kind}, {enforced}: {symbol.reason}"
    yield f"declared    {declared_in(symbol)}"
    if symbol.function is not None:
        yield f"            last in the headers of {symbol.function.headers.last}"
        if symbol.function.deprecated:
            yield "            deprecated there"
        directions = [f"{p.name} {p.direction}" for p in symbol.function.params]
        yield from _wrapped("parameters  ", directions or ["none"], "")
    yield f"drivers     {drivers}{architectures}"
    for row in library.api.thresholds:
        if row.symbol == symbol.name:
            flag = ", per-thread default stream" if row.stream else ""
            yield f'lookup      cuGetProcAddress("{row.base}") from {row.cuda_version}{flag}'
    yield f"overridden  {overridden}"


def _overridden(loaded: Model, symbol: Symbol, api_dir: Path, hooks_dir: Path) -> str:
    place = hooks.find_definition(hooks_dir, symbol.name)
    if place is not None:
        return f"in hooks/{place.file}, line {place.line}"
    if symbol.leaves:
        return f"rendered into {stream_order.RENDERED}: {'; '.join(symbol.leaves)}"
    reason = hooks.passthrough_reason(api_dir, symbol.name)
    if reason:
        return f"no, on purpose: {reason}"
    exempt = rules.naming(symbol.name, loaded.exempt)
    if exempt is not None and not stream_order.is_by_hand(exempt):
        return f"no, on purpose: {exempt.reason}"
    if not hooks_dir.is_dir():
        return "unknown: name the folder of the hooks with --hooks"
    return "no, passed through"


def _find(loaded: Model, name: str) -> Symbol:
    exact = loaded.find(name)
    if exact is not None:
        return exact
    members = [s for s in loaded.symbols if s.function is not None and s.function.base == name]
    if members:
        return max(members, key=_variant_order)
    import difflib

    near = difflib.get_close_matches(name, [symbol.name for symbol in loaded.symbols], 3, 0.6)
    raise HookgenError(
        f"no symbol is called '{name}'",
        "neither header nor listed driver of the model has it",
        f"Did you mean {' or '.join(near)}?" if near else "Names are spelled like cuMemAlloc_v2.",
    )


def _variant_order(symbol: Symbol) -> tuple[bool, int]:
    """Plain variants after per-thread ones, newer after older: the last is the usual one."""
    function = symbol.function
    return (False, 0) if function is None else (not function.stream, function.version)


def _family(library: Library, symbol: Symbol) -> list[Symbol]:
    if symbol.function is None:
        return []
    base = symbol.function.base
    members = [s for s in library.symbols if s.function is not None and s.function.base == base]
    return sorted(members, key=lambda member: _family_order(member.function, member.name))


def _family_order(function: Function | None, name: str) -> tuple[int, str, str]:
    return (function.version, function.stream, name) if function else (0, "", name)


def _declared(param: Param) -> str:
    return filters.declare(param.type, param.name)


def _prototype(symbol: Symbol) -> Iterator[str]:
    params = symbol.function.params if symbol.function else ()
    head = f"{symbol.returns} {symbol.name}("
    yield from _wrapped(head, [_declared(param) for param in params], ");", _COLUMNS - 2)


def _wrapped(head: str, items: list[str], tail: str, columns: int = _COLUMNS) -> Iterator[str]:
    """`head item, item tail`, broken at commas and aligned behind `head`."""
    line = head
    for position, item in enumerate(items):
        text = item + ("," if position + 1 < len(items) else tail)
        if len(line) + len(text) > columns and line.strip() and position:
            yield line.rstrip()
            line = " " * len(head)
        line += text + ("" if position + 1 == len(items) else " ")
    yield line if items else head + tail
