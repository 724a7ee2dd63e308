"""Header facts and driver lists → the model of a library.

Owns the joining: families, kinds, spans, aliases, untyped names, what is written in full. Pure but
for `load_inputs`; must not know libclang or where headers come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import kinds, rules
from .drivers import Exports, Seen, read_exports, read_left_to_driver, seen
from .errors import HookgenError
from .facts import HeaderFacts, RawFunction, Touched
from .ir import (
    Api,
    Constant,
    EnumType,
    Function,
    MacroAlias,
    Result,
    Source,
    Span,
    Untyped,
)
from .macros import value_of
from .naming import split
from .rules import Rule
from .selection import check_touched, select_types
from .typedefs import check_prefixes, thresholds

LIBRARIES = ("cuda", "nvml")
_SONAMES = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
_PREFIXES = {"cuda": ("CU", "cu"), "nvml": ("nvml", "NVML")}
_RESULTS = {
    "cuda": ("CUresult", "CUDA_SUCCESS", "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_INVALID_VALUE"),
    "nvml": (
        "nvmlReturn_t",
        "NVML_SUCCESS",
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_INVALID_ARGUMENT",
    ),
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a person or a driver says about one library."""

    touched: Touched
    exports: tuple[Exports, ...]
    left: tuple[Rule, ...]


def load_inputs(api: Path, library: str) -> Inputs:
    """Read touched.json, left-to-driver.txt and the symbol lists of one library.

    Raises:
        HookgenError: exit 1; a file is missing or malformed.
    """
    try:
        raw = json.loads((api / "touched.json").read_text(encoding="utf-8"))
        own = {key: _own(raw[key], library) for key in ("records", "enums", "macros")}
        left = read_left_to_driver(api)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HookgenError(
            f"the inputs in '{api}' cannot be read",
            str(error),
            "Name the folder that holds touched.json with --api.",
        ) from error
    touched = Touched(own["records"], own["enums"], own["macros"])
    return Inputs(touched, read_exports(api / "symbols", library), left)


def _own(names: Sequence[str], library: str) -> tuple[str, ...]:
    """The names of one library; ValueError for one that belongs to neither."""
    strangers = [name for name in names if not name.startswith(sum(_PREFIXES.values(), ()))]
    if strangers:
        raise ValueError(f"'{strangers[0]}' in touched.json belongs to no library")
    return tuple(name for name in names if name.startswith(_PREFIXES[library]))


def build(
    library: str, history: Sequence[HeaderFacts], inputs: Inputs, sources: Sequence[Source]
) -> Api:
    """Join everything known about one library.

    Args:
        library: cuda or nvml.
        history: one parse a header set, oldest first; the last is the source of truth.
        inputs: from `load_inputs`.
        sources: the pinned wheels, empty for an installed toolkit.

    Raises:
        HookgenError: exit 1; a touched name does not exist, or a rule of the model is broken.
    """
    newest = history[-1]
    where = seen(inputs.exports)
    check_touched(newest, inputs.touched)
    if library == "cuda":
        check_prefixes(newest.functions, inputs.exports)
    types = select_types(history, inputs.touched)
    aliases = _aliases(history, where)
    known = newest.functions.keys() | {alias.name for alias in aliases}
    return Api(
        library=library,
        soname=_SONAMES[library],
        header_version=newest.version,
        sources=tuple(sources),
        result=_result(library, newest),
        functions=tuple(
            _function(newest.functions[name], history, where.get(name))
            for name in sorted(newest.functions)
        ),
        aliases=aliases,
        untyped=_untyped(where, known, inputs.left),
        thresholds=thresholds(newest.pointers, newest.functions, newest.types)
        if library == "cuda"
        else (),
        types=tuple(types[name] for name in sorted(types)),
        constants=_constants(newest, inputs.touched),
    )


# Implementation.


def _function(raw: RawFunction, history: Sequence[HeaderFacts], where: Seen | None) -> Function:
    name = split(raw.name)
    kind, reason = kinds.classify(name.base)
    declared = [facts.version for facts in history if raw.name in facts.functions]
    return Function(
        name=raw.name,
        base=name.base,
        version=name.version,
        stream=name.stream,
        header=raw.header,
        returns=raw.returns,
        params=raw.params,
        kind=kind,
        reason=reason,
        deprecated=raw.deprecated,
        headers=Span(declared[0], declared[-1]),
        drivers=where.drivers if where else None,
        architectures=where.architectures if where else (),
    )


def _aliases(history: Sequence[HeaderFacts], where: Mapping[str, Seen]) -> tuple[MacroAlias, ...]:
    newest = history[-1]
    found = []
    for name, target in newest.macros.items():
        if name in newest.functions or target not in newest.functions or name not in where:
            continue
        defined = [facts.version for facts in history if facts.macros.get(name) == target]
        span = Span(defined[0], defined[-1])
        found.append(MacroAlias(name, target, span, where[name].drivers))
    return tuple(sorted(found, key=lambda alias: alias.name))


def _untyped(
    where: Mapping[str, Seen], known: set[str], left: Sequence[Rule]
) -> tuple[Untyped, ...]:
    out = []
    for name in sorted(where.keys() - known):
        if rules.naming(name, left):
            continue
        kind, reason = kinds.classify(split(name).base)
        out.append(Untyped(name, kind, reason, where[name].drivers, where[name].architectures))
    return tuple(out)


def _result(library: str, facts: HeaderFacts) -> Result:
    type_name, *constants = _RESULTS[library]
    decl = facts.types.get(type_name)
    values = (
        {item.name: item.value for item in decl.constants} if isinstance(decl, EnumType) else {}
    )
    missing = [name for name in constants if name not in values]
    if missing:
        raise HookgenError(
            f"{type_name} has no {missing[0]}",
            "rendered code answers with it",
            f"List {type_name} under enums in touched.json.",
        )
    return Result(type_name, *(values[name] for name in constants))


def _constants(facts: HeaderFacts, touched: Touched) -> tuple[Constant, ...]:
    values = {name: value_of(name, facts.macros) for name in sorted(touched.macros)}
    wrong = sorted(name for name, value in values.items() if value is None)
    if wrong:
        raise HookgenError(
            f"touched.json names {', '.join(repr(name) for name in wrong)}",
            f"headers {facts.version} give no such macro an integer value",
            "Correct the names in touched.json, or teach tools/gen/macros.py the expression.",
        )
    return tuple(Constant(name, value) for name, value in values.items() if value is not None)
