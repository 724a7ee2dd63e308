"""The table of outputs: which file is rendered from which template with what beside the model.

Owns the list of rendered files and the extra context of each. Must not know jinja2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import coverage, lookup_tables, stream_order
from .branches import cuda_version
from .errors import HookgenError
from .ir import KINDS, Constant, EnumType, Span, Threshold
from .model import Library, Model, Symbol

Context = Mapping[str, object]

_ARCHITECTURES = {"x86_64": 1, "aarch64": 2}
_NEVER = 0xFF


@dataclass(frozen=True, slots=True)
class Output:
    """One rendered file; `context` adds to `model` and `banner` what its template names."""

    file: str
    template: str
    context: Callable[[Model], Context]


@dataclass(frozen=True, slots=True)
class Presence:
    """A row of the simulator's table: positions in the list of drivers, architectures as bits.

    `cuda_version`: of the first headers that declare it; 0: none does.
    """

    name: str
    first: int
    last: int
    architectures: int
    cuda_version: int


def nothing(_model: Model) -> Context:
    """The model is all that the template needs."""
    return {}


def names(model: Model) -> Context:
    """Kinds, and where each name lies in the blob of names."""
    return {"kinds": KINDS, "name_offsets": _name_offsets(model)}


def lookup(model: Model) -> Context:
    """The perfect hash, and cuGetProcAddress's thresholds in search order."""
    found = [symbol.name for symbol in model.symbols]
    offsets = _name_offsets(model)
    return {
        "table": lookup_tables.build(found),
        "name_offsets": offsets,
        "name_bytes": sum(len(name) + 1 for name in found),
        "longest": max((len(name) for name in found), default=0),
        "starts": sorted({name[:2] for name in found}),
        "thresholds": _thresholds(model, offsets),
    }


def sim_exports(library: str) -> Callable[[Model], Context]:
    """The library, and the enumerator that says "not supported" in it."""

    def context(model: Model) -> Context:
        chosen = _library(model, library)
        return {"library": chosen, "unsupported": _unsupported(chosen).name}

    return context


def sim_map(library: str, *, latest: bool) -> Callable[[Model], Context]:
    """The names of the newest listed driver, or of everything known."""

    def context(model: Model) -> Context:
        chosen = _library(model, library)
        return {"names": chosen.latest_names if latest else chosen.newest_names}

    return context


def sim_symbols(model: Model) -> Context:
    """Which driver has which name."""
    extras = [
        _presence(model, name, model.span_in_lists(library, name), (), 0)
        for library in model.libraries
        for name in sorted((*library.debugger_functions, *(data.name for data in library.data)))
    ]
    presence = [
        _presence(model, symbol.name, symbol.drivers, symbol.architectures, _declared(symbol))
        for symbol in model.symbols
    ]
    newest = cuda_version(model.cuda.api.header_version)
    return {"presence": presence, "extras": extras, "headers_cuda_version": newest}


def echo_driver(library: str) -> Callable[[Model], Context]:
    """The library that one fake driver pretends to be."""
    return lambda model: {"library": _library(model, library)}


OUTPUTS = (
    Output("model.h", "model.h.j2", nothing),
    Output("driver_abi.h", "driver_abi.h.j2", nothing),
    Output("symbols.h", "symbols.h.j2", names),
    Output("real.h", "real.h.j2", nothing),
    Output("lookup.h", "lookup.h.j2", lookup),
    Output("passthrough.cpp", "passthrough.cpp.j2", nothing),
    Output(stream_order.RENDERED, "stream_order.cpp.j2", nothing),
    Output("entries.cpp", "entries.cpp.j2", nothing),
    Output("trampolines.S", "trampolines.S.j2", nothing),
    Output("exports.map", "exports.map.j2", nothing),
    Output("sim_exports.cpp", "sim_exports.cpp.j2", sim_exports("cuda")),
    Output("sim_nvml_exports.cpp", "sim_exports.cpp.j2", sim_exports("nvml")),
    Output("sim_data.cpp", "sim_data.cpp.j2", nothing),
    Output("sim_symbols.h", "sim_symbols.h.j2", sim_symbols),
    Output("sim_cuda.map", "sim.map.j2", sim_map("cuda", latest=False)),
    Output("sim_nvml.map", "sim.map.j2", sim_map("nvml", latest=False)),
    Output("sim_cuda_latest.map", "sim.map.j2", sim_map("cuda", latest=True)),
    Output("sim_nvml_latest.map", "sim.map.j2", sim_map("nvml", latest=True)),
    Output("echo.h", "echo.h.j2", nothing),
    Output("echo_cuda.cpp", "echo_driver.cpp.j2", echo_driver("cuda")),
    Output("echo_nvml.cpp", "echo_driver.cpp.j2", echo_driver("nvml")),
    Output("echo_caller.cpp", "echo_caller.cpp.j2", nothing),
    Output("option_names.h", "option_names.h.j2", nothing),
    Output("option_table.h", "option_table.h.j2", nothing),
    Output("shared_layouts.h", "shared_layouts.h.j2", nothing),
    Output("coverage.md", "coverage.md.j2", coverage.context),
)


# Implementation.


def _library(model: Model, name: str) -> Library:
    return next(library for library in model.libraries if library.name == name)


def _name_offsets(model: Model) -> dict[str, int]:
    offsets: dict[str, int] = {}
    position = 0
    for symbol in model.symbols:
        offsets[symbol.name] = position
        position += len(symbol.name) + 1
    return offsets


def _thresholds(model: Model, offsets: Mapping[str, int]) -> list[Threshold]:
    rows = [row for library in model.libraries for row in library.api.thresholds]
    for row in rows:
        for name in (row.base, row.symbol):
            if name not in offsets:
                raise HookgenError(
                    f"threshold of {row.base} cannot be rendered",
                    f"{name} is no symbol of the model",
                    "Run `hookgen extract`.",
                )
    return sorted(rows, key=lambda row: (row.base, bool(row.stream), row.cuda_version))


def _unsupported(library: Library) -> Constant:
    """The status that says "not supported"; both APIs spell it alike."""
    result = library.api.result.type
    decl = next((d for d in library.api.types if d.name == result), None)
    constants = decl.constants if isinstance(decl, EnumType) else ()
    for constant in constants:
        if constant.name.endswith("_ERROR_NOT_SUPPORTED"):
            return constant
    raise HookgenError(
        f"{result} cannot be rendered",
        "the model has no constant of it that ends in _ERROR_NOT_SUPPORTED",
        "Add the enum to lib/api/touched.json and run `hookgen extract`.",
    )


def _declared(symbol: Symbol) -> int:
    """The oldest headers that declare a symbol, as a CUDA version."""
    return cuda_version(symbol.function.headers.first) if symbol.function else 0


def _presence(
    model: Model, name: str, span: Span | None, architectures: tuple[str, ...], declared: int
) -> Presence:
    if span is None:
        return Presence(name, _NEVER, _NEVER, 0, declared)
    return Presence(
        name,
        _driver_position(model, name, span.first),
        _driver_position(model, name, span.last),
        sum(_ARCHITECTURES[architecture] for architecture in architectures),
        declared,
    )


def _driver_position(model: Model, name: str, driver: str) -> int:
    if driver not in model.drivers:
        raise HookgenError(
            f"symbol {name} cannot be rendered",
            f"the model says that driver {driver} has it, and no list of that driver is there",
            "Restore lib/api/symbols, or run `hookgen extract`.",
        )
    return model.drivers.index(driver)
