"""One header set → HeaderFacts, through libclang. The only file that imports clang.

Owns the hermetic parse: headers and stubs are handed over as text under invented paths, so that
neither the machine's own headers nor its paths can reach the result. Must not know the model,
drivers or wheels.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .ctype import TypeReader
from .docs import returned_params
from .errors import HookgenError
from .facts import HeaderFacts, HeaderSet, RawFunction, Touched
from .ir import Param
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
# One pass in which every variant is declared: v1, vN, _ptds and _ptsz (both are needed: see
# cuda.h and nvml.h, where the default mode renames or hides the older ones).
_ALL_VARIANTS = ("-D__CUDA_API_VERSION_INTERNAL", "-DNVML_NO_UNVERSIONED_FUNC_DEFS")
_ROOT = "/hookgen"
_ARGUMENTS = ("-x", "c", "-std=c11", "-nostdinc", f"-I{_ROOT}/headers", f"-I{_ROOT}/stubs")


def read(headers: HeaderSet, library: str, touched: Touched, typedefs: bool = True) -> HeaderFacts:
    """Parse the headers of one library.

    Args:
        headers: the text of the headers; names that the set lacks are left out.
        library: cuda or nvml.
        touched: what to read in full.
        typedefs: also read the PFN typedef headers.

    Raises:
        HookgenError: exit 1; libclang is missing or broken, a header has an error, or a type
            cannot be modelled.
    """
    wanted = HEADERS[library] + (TYPEDEF_HEADERS if typedefs and library == "cuda" else ())
    names = [name for name in wanted if name in headers.files]
    cindex = _load_libclang()
    variants = _parse(cindex, headers, names, _ALL_VARIANTS)
    default = _parse(cindex, headers, [name for name in names if name in HEADERS[library]], ())
    return _collect(variants, default, headers, touched)


def _load_libclang() -> Any:
    try:
        import clang.cindex as cindex

        cindex.conf.lib  # noqa: B018  (loads the shared object and binds every function)
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


def _parse(cindex: Any, headers: HeaderSet, names: Iterable[str], macros: Iterable[str]) -> Any:
    main = f"{_ROOT}/main.c"
    # cudaVDPAU.h uses the types of vdpau.h without including it.
    text = "".join(f"#include <{name}>\n" for name in ("vdpau/vdpau.h", *names))
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
    return unit


def _fatal(version: str, diagnostic: Any) -> HookgenError:
    where = diagnostic.location
    file = where.file.name.removeprefix(_ROOT + "/") if where.file else "command line"
    return HookgenError(
        f"headers {version} have an error at {file}:{where.line}",
        diagnostic.spelling,
        "A parse with an error would turn types into int, so nothing was written; "
        "complete the header set.",
    )


def _declared(unit: Any, headers: HeaderSet) -> Iterator[tuple[str, Any]]:
    """Top-level cursors inside the header set, with the name of their header, in source order."""
    known = {f"{_ROOT}/headers/{name}": name for name in headers.files}
    for cursor in unit.cursor.get_children():
        file = cursor.location.file
        if file is not None and file.name in known:
            yield known[file.name], cursor


def _deprecated(unit: Any) -> frozenset[str]:
    """Functions with a deprecation attribute; only the default mode spells it out."""
    return frozenset(
        cursor.spelling
        for cursor in unit.cursor.get_children()
        if cursor.kind.name == "FUNCTION_DECL" and cursor.availability.name == "DEPRECATED"
    )


def _collect(variants: Any, default: Any, headers: HeaderSet, touched: Touched) -> HeaderFacts:
    reader = TypeReader((*touched.records, *touched.enums))
    for cursor in variants.cursor.get_children():
        if cursor.kind.name == "TYPEDEF_DECL":
            reader.note_typedef(cursor)
    deprecated = _deprecated(default)
    functions: dict[str, RawFunction] = {}
    pointers: dict[str, tuple[str, ...]] = {}
    # nvml.h defines some names for an older spelling of a function in the default mode only.
    macros = dict(_macros(default, headers))
    macros.update(_macros(variants, headers))
    for header, cursor in _declared(variants, headers):
        kind, name = cursor.kind.name, cursor.spelling
        if kind == "FUNCTION_DECL" and cursor.storage_class.name != "STATIC":
            functions[name] = _function(header, cursor, reader, name in deprecated)
        elif kind == "TYPEDEF_DECL" and name.startswith("PFN_"):
            pointers[name] = reader.shape(cursor.underlying_typedef_type)
    for name in (*touched.records, *touched.enums):
        reader.want(name)
    return HeaderFacts(headers.version, functions, pointers, macros, reader.declarations())


def _macros(unit: Any, headers: HeaderSet) -> Iterator[tuple[str, str]]:
    """Macros with their tokens; a function-like one has a parenthesis where a name would be."""
    for _, cursor in _declared(unit, headers):
        if cursor.kind.name == "MACRO_DEFINITION":
            tokens = [token.spelling for token in cursor.get_tokens()]
            yield cursor.spelling, " ".join(tokens[1:])


def _function(header: str, cursor: Any, reader: TypeReader, deprecated: bool) -> RawFunction:
    returned = returned_params(cursor.raw_comment)
    params = tuple(_param(child, reader, returned) for child in cursor.get_arguments())
    returns = reader.spell(cursor.result_type)
    return RawFunction(cursor.spelling, header, returns, params, deprecated)


def _param(cursor: Any, reader: TypeReader, returned: frozenset[str]) -> Param:
    spelling = reader.spell_param(cursor.type)
    if not spelling.endswith("*") or spelling.startswith("const ") and spelling.count("*") == 1:
        direction = "in"
    else:
        direction = "out" if cursor.spelling in returned else "inout"
    return Param(cursor.spelling, spelling, direction)
