"""Model plus symbol lists, as templates see them: symbols in their final order, spelled in C++.

Owns the order of the index space (CUDA, then NVML; by name inside each), which names a simulated
driver exports, and the hash that banners carry. Must not know jinja2 nor any output file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from . import branches, codec, drivers, ir, options, rules, shared_layouts, stream_order
from .branches import Branch
from .drivers import version_key
from .errors import HookgenError
from .filters import cpp_type, param_list, param_names, type_list
from .options import NO_OPTIONS, Options
from .rules import Rule
from .shared_layouts import NO_LAYOUTS, Layouts
from .type_order import OrderedTypes, order_types, record_takers

LIBRARIES = ("cuda", "nvml")

# The debugger's functions; every other export that is left to the driver is data.
# Source: facts on the exports of 340 to 580; symbol lists have no kind column.
DEBUGGER_FUNCTIONS = frozenset(
    {
        "cudbgApiAttach",
        "cudbgApiDetach",
        "cudbgApiInit",
        "cudbgGetAPI",
        "cudbgGetAPIVersion",
        "cudbgMain",
        "cudbgReportDriverApiError",
        "cudbgReportDriverInternalError",
    }
)
_DEBUGGER_DATA_BYTES = {"cudbgInjectionPath": 4096}
_SMALL_DATA_BYTES = 8


@dataclass(frozen=True, slots=True)
class Symbol:
    """One exported name with its place in the index space.

    `returns`, `params`, `types` and `names` are C++ text, all empty for an untyped export. `tail`
    is false where a record is passed by value: where that means the address of a copy (aarch64),
    clang's guaranteed tail call passes the address of a frame that is gone. `leaves` is what a
    rendered hook says before it forwards; empty where none is rendered.
    """

    index: int
    name: str
    library: str
    kind: str
    reason: str
    typed: bool
    gives_result: bool
    tail: bool
    returns: str
    params: str
    types: str
    names: str
    leaves: tuple[str, ...]
    function: ir.Function | None
    alias_of: str
    drivers: ir.Span | None
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataSymbol:
    """A data export of the driver that only the simulator defines."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Library:
    """One of the two libraries; its symbols fill the index range [first, end)."""

    api: ir.Api
    first: int
    symbols: tuple[Symbol, ...]
    debugger_functions: tuple[str, ...]
    data: tuple[DataSymbol, ...]
    newest_driver: str
    newest_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """`cuda` or `nvml`."""
        return self.api.library

    @property
    def stem(self) -> str:
        """The soname without its suffix: how symbol lists are named."""
        return self.api.soname.partition(".so")[0]

    @property
    def end(self) -> int:
        """One past the index of the last symbol."""
        return self.first + len(self.symbols)

    @property
    def latest_names(self) -> tuple[str, ...]:
        """Every name that the headers know or the newest driver exports, byte-sorted."""
        return tuple(sorted({symbol.name for symbol in self.symbols} | set(self.newest_names)))


@dataclass(frozen=True, slots=True)
class Model:
    """All that templates may read."""

    libraries: tuple[Library, ...]
    types: OrderedTypes
    drivers: tuple[str, ...]
    lists: Mapping[str, frozenset[str]]
    exempt: tuple[Rule, ...]
    branches: tuple[Branch, ...]
    options: Options
    layouts: Layouts
    digest: str

    @property
    def cuda(self) -> Library:
        """The driver API."""
        return self.libraries[0]

    @property
    def nvml(self) -> Library:
        """The management library."""
        return self.libraries[1]

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol, in index order."""
        return tuple(symbol for library in self.libraries for symbol in library.symbols)

    @property
    def constants(self) -> tuple[ir.Constant, ...]:
        """The integer macros of both libraries, by name."""
        found = {c for library in self.libraries for c in library.api.constants}
        return tuple(sorted(found, key=lambda constant: constant.name))

    def find(self, name: str) -> Symbol | None:
        """The symbol with exactly this name."""
        return next((symbol for symbol in self.symbols if symbol.name == name), None)

    def span_in_lists(self, library: Library, name: str) -> ir.Span | None:
        """First and last listed driver that exports `name`, on any architecture."""
        having = [
            driver
            for driver in self.drivers
            if any(
                name in self.lists.get(f"{library.stem}-{driver}{arch}", ())
                for arch in ("", "-arm64")
            )
        ]
        return ir.Span(having[0], having[-1]) if having else None


def input_files(api_dir: Path) -> tuple[Path, ...]:
    """The files that `load` reads, sorted: what a build must watch."""
    files = ("cuda.json", "nvml.json", drivers.LEFT, stream_order.FILE, branches.FILE)
    named = (api_dir / file for file in files)
    lists = (options.path(api_dir), shared_layouts.path(api_dir))
    return (*named, *sorted((api_dir / "symbols").glob("*.txt")), *lists)


def load(api_dir: Path) -> Model:
    """Read the model folder.

    Raises:
        HookgenError: a file is missing or damaged, or the libraries contradict each other.
    """
    texts = {path: _read(path) for path in input_files(api_dir)}
    digest = hashlib.sha256()
    # No driver's function depends on these, so no digest either.
    limits = options.read(texts.pop(options.path(api_dir)))
    layouts = shared_layouts.read(texts.pop(shared_layouts.path(api_dir)))
    for path, text in texts.items():
        digest.update(f"{path.name}\0{text}\0".encode())
    apis = tuple(_parse(api_dir / f"{name}.json", texts) for name in LIBRARIES)
    lists = {path.stem: drivers.names(text) for path, text in texts.items() if _is_list(path)}
    left, exempt = (
        rules.read(texts[api_dir / file], file) for file in (drivers.LEFT, stream_order.FILE)
    )
    known = branches.read(texts[api_dir / branches.FILE])
    return build(apis, lists, left, digest.hexdigest()[:16], exempt, known, limits, layouts)


def build(
    apis: tuple[ir.Api, ...],
    lists: Mapping[str, tuple[str, ...]],
    left_to_driver: tuple[Rule, ...],
    digest: str,
    exempt: tuple[Rule, ...] = (),
    known: tuple[Branch, ...] = (),
    limits: Options = NO_OPTIONS,
    layouts: Layouts = NO_LAYOUTS,
) -> Model:
    """Put the parts together; pure.

    Args:
        apis: CUDA, then NVML.
        lists: `libcuda-580.159.04` (and `…-arm64`) to exported names.
        left_to_driver: names of exports that are never ours.
        digest: hash of everything that was read.
        exempt: functions about streams that no hook is rendered for.
        known: the branches of drivers and their CUDA releases.
        limits: what limits are read from.
        layouts: the files that processes share.
    """
    libraries: list[Library] = []
    first = 0
    for api in apis:
        libraries.append(_library(api, first, lists, left_to_driver, exempt))
        first = libraries[-1].end
    versions = {stem.split("-")[-1] for stem in lists if not stem.endswith("-arm64")}
    return Model(
        libraries=tuple(libraries),
        types=order_types(
            (decl for api in apis for decl in api.types),
            tuple(function for api in apis for function in api.functions),
        ),
        drivers=tuple(sorted(versions, key=version_key)),
        lists={stem: frozenset(names) for stem, names in lists.items()},
        exempt=exempt,
        branches=known,
        options=limits,
        layouts=layouts,
        digest=digest,
    )


# Implementation.


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise HookgenError(
            f"model file {path} cannot be read",
            getattr(error, "strerror", None) or str(error),
            "Name the folder with --api, or run `hookgen extract`.",
        ) from error


def _parse(path: Path, texts: Mapping[Path, str]) -> ir.Api:
    try:
        return codec.loads(texts[path])
    except ValueError as error:
        raise HookgenError(
            f"model file {path} is damaged", str(error), "Restore it or run `hookgen extract`."
        ) from error


def _is_list(path: Path) -> bool:
    return path.parent.name == "symbols"


def _library(
    api: ir.Api,
    first: int,
    lists: Mapping[str, tuple[str, ...]],
    left: tuple[Rule, ...],
    exempt: tuple[Rule, ...],
) -> Library:
    stem = api.soname.partition(".so")[0]
    versions = sorted(
        (name[len(stem) + 1 :] for name in lists if _lists_library(name, stem)), key=version_key
    )
    newest = versions[-1] if versions else ""
    names = lists.get(f"{stem}-{newest}", ())
    kept = [name for name in names if rules.naming(name, left)]
    data = [name for name in kept if _is_debugger_data(name)]
    spelled = sorted(_symbols(api, exempt), key=lambda symbol: symbol.name)
    _refuse_duplicates(spelled)
    return Library(
        api=api,
        first=first,
        symbols=tuple(
            replace(symbol, index=first + offset) for offset, symbol in enumerate(spelled)
        ),
        debugger_functions=tuple(name for name in kept if not _is_debugger_data(name)),
        data=tuple(
            DataSymbol(name, _DEBUGGER_DATA_BYTES.get(name, _SMALL_DATA_BYTES)) for name in data
        ),
        newest_driver=newest,
        newest_names=names,
    )


def _is_debugger_data(name: str) -> bool:
    return name.startswith("cudbg") and name not in DEBUGGER_FUNCTIONS


def _refuse_duplicates(symbols: list[Symbol]) -> None:
    for one, other in pairwise(symbols):
        if one.name == other.name:
            raise HookgenError(
                f"symbol {one.name} cannot be rendered",
                "the model has it twice (as function, alias or untyped export)",
                "Run `hookgen extract`.",
            )


def _lists_library(name: str, stem: str) -> bool:
    return name.startswith(f"{stem}-") and not name.endswith("-arm64")


def _symbols(api: ir.Api, exempt: tuple[Rule, ...]) -> Iterator[Symbol]:
    functions = {function.name: function for function in api.functions}
    takers = record_takers(api.types, api.functions)
    for function in api.functions:
        tail = function.name not in takers
        leaves = stream_order.leaves(function.name, function, exempt)
        yield _typed(api, function.name, function, function.drivers, leaves, tail=tail)
    for alias in api.aliases:
        if alias.target not in functions:
            raise HookgenError(
                f"alias {alias.name} cannot be rendered",
                f"its target {alias.target} is no function of {api.soname}",
                "Run `hookgen extract`.",
            )
        yield _typed(
            api,
            alias.name,
            functions[alias.target],
            alias.drivers,
            stream_order.leaves(alias.name, functions[alias.target], exempt),
            tail=alias.target not in takers,
            alias_of=alias.target,
        )
    for untyped in api.untyped:
        yield Symbol(
            index=0,
            name=untyped.name,
            library=api.library,
            kind=untyped.kind,
            reason=untyped.reason,
            typed=False,
            gives_result=True,
            tail=True,
            returns="",
            params="",
            types="",
            names="",
            leaves=(),
            function=None,
            alias_of="",
            drivers=untyped.drivers,
            architectures=untyped.architectures,
        )


def _typed(
    api: ir.Api,
    name: str,
    function: ir.Function,
    drivers: ir.Span | None,
    leaves: tuple[str, ...],
    *,
    tail: bool,
    alias_of: str = "",
) -> Symbol:
    return Symbol(
        index=0,
        name=name,
        library=api.library,
        kind=function.kind,
        reason=function.reason,
        typed=True,
        gives_result=function.returns == api.result.type,
        tail=tail,
        returns=cpp_type(function.returns),
        params=param_list(function.params),
        types=type_list(function.params),
        names=", ".join(param_names(function.params)),
        leaves=leaves,
        function=function,
        alias_of=alias_of,
        drivers=drivers,
        architectures=function.architectures,
    )
