"""One header set → HeaderFacts, through libclang. The only file that imports clang.

Owns the hermetic parse: headers and stubs are handed over as text under invented paths, so that
neither the machine's own headers nor its paths can reach the result. Must not know the model,
drivers or wheels.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from . import quirks
from .clang_protocols import Cursor, Diagnostic, Unit
from .ctype import TypeReader
from .docs import comment_before, returned_params
from .errors import HookgenError
from .facts import HeaderFacts, HeaderSet, RawFunction, Shapes, Touched
from .ir import Param
from .naming import split
from .stubs import STUBS

HEADERS = {
    "cuda": ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaProfiler.h", "cudaVDPAU.h"),
    "nvml": ("nvml.h",),
}
TYPEDEF_HEADERS = (
    "cudaTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
)
EVERY_HEADER = frozenset({*HEADERS["cuda"], *HEADERS["nvml"], *TYPEDEF_HEADERS})
# One pass in which every variant is declared: v1, vN, _ptds and _ptsz (both are needed: see
# cuda.h and nvml.h, where the default mode renames or hides the older ones).
ALL_VARIANTS = ("-D__CUDA_API_VERSION_INTERNAL", "-DNVML_NO_UNVERSIONED_FUNC_DEFS")
_ROOT = "/hookgen"
# The target is fixed: the widths of the model are those of 64-bit Linux on every machine.
_ARGUMENTS = (
    *("-x", "c", "-std=c11", "-nostdinc", "--target=x86_64-linux-gnu"),
    *(f"-I{_ROOT}/headers", f"-I{_ROOT}/stubs"),
)


def read(headers: HeaderSet, library: str, touched: Touched, full: bool = True) -> HeaderFacts:
    """Parse the headers of one library.

    Args:
        headers: the text of the headers; a missing one is an error, never fewer functions.
        library: cuda or nvml.
        touched: what to read in full.
        full: False for a header set that serves as history only: function names, macros and
            touched types, without prototypes and PFN typedefs.

    Raises:
        HookgenError: exit 1; libclang is missing or broken, a header has an error, or a type
            cannot be modelled.
    """
    cindex = _load_libclang()
    own = HEADERS[library]
    extra = [name for name in TYPEDEF_HEADERS if full and library == "cuda"]
    variants = _parse(cindex, headers, [*own, *extra], ALL_VARIANTS)
    default = _parse(cindex, headers, own, ())
    return _collect(variants, default, headers, touched, full)


def _load_libclang() -> ModuleType:
    try:
        import clang.cindex

        cindex: ModuleType = clang.cindex
        _ = cindex.conf.lib  # loads the shared object and binds every function
    except ImportError as error:
        raise HookgenError(
            "libclang cannot be imported", str(error), "Install it with `pip install libclang`."
        ) from error
    except Exception as error:  # cindex raises its own, AttributeError or OSError
        raise HookgenError("libclang cannot be loaded", *_diagnose(error)) from error
    return cindex


def _diagnose(error: Exception) -> tuple[str, str]:
    """Why and fix: the usual cause is the bindings-only package, which overwrites cindex."""
    try:
        bindings = importlib.metadata.version("clang")
    except importlib.metadata.PackageNotFoundError:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        return detail, "Reinstall it with `pip install --force-reinstall libclang`."
    return (
        f"package 'clang' {bindings} (bindings only) is installed beside 'libclang' and breaks it",
        "Run `pip uninstall clang libclang`, then `pip install libclang`.",
    )


def _parse(
    cindex: ModuleType, headers: HeaderSet, names: Iterable[str], macros: Iterable[str]
) -> _Unit:
    main = f"{_ROOT}/main.c"
    text = "".join(f"#include <{name}>\n" for name in quirks.include_list(names))
    files = [(main, text.encode())]
    files += [(f"{_ROOT}/headers/{name}", body) for name, body in sorted(headers.files.items())]
    files += [(f"{_ROOT}/stubs/{name}", body) for name, body in STUBS.items()]
    options = (
        cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
        | cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES
    )
    try:
        unit = cindex.Index.create().parse(main, [*_ARGUMENTS, *macros], files, options)
    except cindex.TranslationUnitLoadError as error:
        raise HookgenError(
            f"headers {headers.version} cannot be parsed", str(error), "Check the libclang version."
        ) from error
    for diagnostic in unit.diagnostics:
        if diagnostic.severity >= cindex.Diagnostic.Error:
            raise _fatal(headers.version, diagnostic)
    return _sort(unit)


def _fatal(version: str, diagnostic: Diagnostic) -> HookgenError:
    where = diagnostic.location
    file = where.file.name.removeprefix(_ROOT + "/") if where.file else "command line"
    return HookgenError(
        f"headers {version} have an error at {file}:{where.line}",
        diagnostic.spelling,
        "A parse with an error would turn types into int, so nothing was written; "
        "complete the header set.",
    )


@dataclass(frozen=True, slots=True)
class _Unit:
    """The top-level cursors of one parse that lie inside the header set, by kind."""

    functions: list[tuple[str, Cursor]]
    typedefs: list[Cursor]
    macros: list[tuple[str, Cursor]]


def _sort(unit: Unit) -> _Unit:
    """Sort cursors by kind, each with the name of its header; typedefs of the stubs stay in."""
    sorted_unit = _Unit([], [], [])
    prefix = f"{_ROOT}/headers/"
    for cursor in unit.cursor.get_children():
        kind = cursor.kind.name
        if kind == "TYPEDEF_DECL":
            sorted_unit.typedefs.append(cursor)
        elif kind in ("FUNCTION_DECL", "MACRO_DEFINITION"):
            file = cursor.location.file  # the costly question of this loop
            if file is not None and file.name.startswith(prefix):
                header = file.name.removeprefix(prefix)
                into = sorted_unit.functions if kind[0] == "F" else sorted_unit.macros
                into.append((header, cursor))
    return sorted_unit


def _collect(
    variants: _Unit, default: _Unit, headers: HeaderSet, touched: Touched, full: bool
) -> HeaderFacts:
    reader = TypeReader((*touched.records, *touched.enums))
    for cursor in variants.typedefs:
        reader.note_typedef(cursor)
    exported = [(h, c) for h, c in variants.functions if c.storage_class.name != "STATIC"]
    if full:
        functions = _functions(exported, headers, reader, _deprecated(default))
    else:
        functions = {c.spelling: RawFunction(c.spelling, h, "", (), False) for h, c in exported}
    pointers = {
        cursor.spelling: reader.shape(cursor.underlying_typedef_type)
        for cursor in variants.typedefs
        if cursor.spelling.startswith("PFN_")
    }
    macros = quirks.all_macros(_macros(default, headers), _macros(variants, headers))
    for name in (*touched.records, *touched.enums):
        reader.want(name)
    types = reader.declarations()
    return HeaderFacts(headers.version, functions, pointers, macros, types, _shapes(variants))


def _shapes(unit: _Unit) -> Shapes:
    """Every prototype and the whole of every type that one mentions."""
    reader = TypeReader(None)
    for cursor in unit.typedefs:
        reader.note_typedef(cursor)
    functions = {}
    for header, cursor in unit.functions:
        if cursor.storage_class.name != "STATIC":
            functions[cursor.spelling] = RawFunction(
                name=cursor.spelling,
                header=header,
                returns=reader.spell(cursor.result_type),
                params=tuple(
                    Param(child.spelling, reader.spell_param(child.type), "")
                    for child in cursor.get_arguments()
                ),
                deprecated=False,
            )
    return Shapes(functions, reader.declarations())


def _deprecated(unit: _Unit) -> frozenset[str]:
    """Functions with a deprecation attribute; only the default mode spells it out."""
    return frozenset(
        cursor.spelling for _, cursor in unit.functions if cursor.availability.name == "DEPRECATED"
    )


def _macros(unit: _Unit, headers: HeaderSet) -> dict[str, str]:
    """Object-like macros: what follows the name, blanks folded; tokens cost ten times as much."""
    found = {}
    for header, cursor in unit.macros:
        name, extent = cursor.spelling, cursor.extent
        text = headers.files[header][extent.start.offset : extent.end.offset].decode("utf-8")
        value = text.removeprefix(name)
        if not value.startswith("("):  # a blank parts an object-like one from its value
            found[name] = " ".join(value.replace("\\\n", " ").split())
    return found


def _functions(
    exported: Iterable[tuple[str, Cursor]],
    headers: HeaderSet,
    reader: TypeReader,
    deprecated: frozenset[str],
) -> dict[str, RawFunction]:
    """Every prototype. One variant of a base carries the comment, the others learn from it."""
    exported = list(exported)
    own: dict[str, frozenset[str]] = {}
    of_base: dict[str, frozenset[str]] = {}
    for header, cursor in exported:
        comment = comment_before(headers.files[header], cursor.extent.start.offset)
        if comment:
            name, base = cursor.spelling, split(cursor.spelling).base
            own[name] = returned_params(comment)
            of_base[base] = of_base.get(base, frozenset()) | own[name]
    functions = {}
    for header, cursor in exported:
        name = cursor.spelling
        returned = own.get(name, of_base.get(split(name).base, frozenset()))
        functions[name] = RawFunction(
            name=name,
            header=header,
            returns=reader.spell(cursor.result_type),
            params=tuple(_param(child, reader, returned) for child in cursor.get_arguments()),
            deprecated=name in deprecated,
        )
    return functions


def _param(cursor: Cursor, reader: TypeReader, returned: frozenset[str]) -> Param:
    spelling = reader.spell_param(cursor.type)
    direction = "inout"
    if not spelling.endswith("*") or (spelling.startswith("const ") and spelling.count("*") == 1):
        direction = "in"
    elif cursor.spelling in returned and not reader.is_versioned(cursor.type):
        direction = "out"
    return Param(cursor.spelling, spelling, direction)
