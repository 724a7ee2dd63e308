"""Reads a vetted library with lief, the only place that imports it (about 0.3 s, so lazily).

Owns the `Library` and `Shape` facts. Must not know drivers, the API model, or how a crash of lief
is survived (see `reader.py`). Only tables are read, never code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .errors import UnreadableError
from .rawfile import COPY_AGAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lief

    from .vet import Vetted

_TYPES = {0: "notype", 1: "object", 2: "func", 5: "object", 6: "tls", 10: "ifunc"}
_BINDINGS = {1: "global", 2: "weak", 10: "unique"}


class Symbol(NamedTuple):
    """One exported name, with its ELF type and binding in lower case."""

    name: str
    type: str
    binding: str


class Import(NamedTuple):
    """One undefined name, its version ("" if none), and whether it may stay undefined."""

    name: str
    version: str
    weak: bool


@dataclass(frozen=True, slots=True)
class Library:
    """What a report needs to know of one library; names byte-sorted."""

    soname: str
    machine: str
    build_id: str
    symbolic: bool
    symbols: tuple[Symbol, ...]
    plt_self: tuple[str, ...]  # own exports reached through the PLT
    data_self: tuple[str, ...]  # own exports reached through the GOT or a pointer in data


@dataclass(frozen=True, slots=True)
class Shape:
    """What `findsyms check` needs to know beside the exports."""

    needed: tuple[str, ...]
    search_path: tuple[str, ...]
    imports: tuple[Import, ...]
    required_versions: tuple[str, ...]  # e.g. GLIBC_2.34
    defined_versions: tuple[str, ...]
    initialisers: tuple[str, ...]  # .preinit_array and .init_array, named where .symtab allows
    finalisers: tuple[str, ...]
    relro: bool
    bind_now: bool
    text_relocations: bool
    executable_stack: bool
    indirect_functions: int  # relocations that run code of ours while the library is loaded


def read_library(path: Path, vetted: Vetted) -> Library:
    """Read exports and self-references.

    Raises:
        UnreadableError: lief cannot read the file, or sees other exports than the pre-check did.
    """
    # Bound to DT_SYMBOLIC itself, no relocation can lead to a self-call: spare lief 35,000 of them.
    binary = _parse(path, relocations=not vetted.symbolic, static_symbols=False)
    symbols = _exports(binary)
    names = {symbol.name for symbol in symbols}
    if names != vetted.exported:
        odd = sorted(names ^ vetted.exported)
        raise UnreadableError(
            f"corrupt symbol table: two readings disagree on {len(odd)} names, first '{odd[0]}'",
            COPY_AGAIN,
        )
    plt = _targets(binary.pltgot_relocations) & names
    data = set() if vetted.symbolic else _targets(binary.dynamic_relocations) & names
    return Library(
        soname=vetted.soname,
        machine=vetted.machine,
        build_id=_build_id(binary),
        symbolic=vetted.symbolic,
        symbols=tuple(sorted(symbols)),
        plt_self=tuple(sorted(plt)),
        data_self=tuple(sorted(data)),
    )


def read_shape(path: Path) -> Shape:
    """Read everything that the rules of `findsyms check` look at.

    Raises:
        UnreadableError: lief cannot read the file.
    """
    import lief

    elf = lief.ELF
    tag, kind = elf.DynamicEntry.TAG, elf.Segment.TYPE
    binary = _parse(path, relocations=True, static_symbols=True)
    entries = {entry.tag: entry for entry in binary.dynamic_entries}
    flags = entries[tag.FLAGS].value if tag.FLAGS in entries else 0
    flags_1 = entries[tag.FLAGS_1].value if tag.FLAGS_1 in entries else 0
    segments = {segment.type: segment for segment in binary.segments}
    stack = segments.get(kind.GNU_STACK)
    rpaths = (elf.DynamicEntryRpath, elf.DynamicEntryRunPath)
    paths = [entry for entry in binary.dynamic_entries if isinstance(entry, rpaths)]
    indirect = {elf.Relocation.TYPE.X86_64_IRELATIVE, elf.Relocation.TYPE.AARCH64_IRELATIVE}
    return Shape(
        needed=tuple(
            str(e.name) for e in binary.dynamic_entries if isinstance(e, elf.DynamicEntryLibrary)
        ),
        search_path=tuple(str(path) for entry in paths for path in entry.paths),
        imports=tuple(sorted(_imports(binary))),
        required_versions=_required_versions(binary),
        defined_versions=_defined_versions(binary),
        initialisers=_array(binary, entries, (tag.PREINIT_ARRAY, tag.INIT_ARRAY)),
        finalisers=_array(binary, entries, (tag.FINI_ARRAY,)),
        relro=kind.GNU_RELRO in segments,
        bind_now=tag.BIND_NOW in entries or bool(flags & 0x8) or bool(flags_1 & 0x1),
        text_relocations=tag.TEXTREL in entries or bool(flags & 0x4),
        executable_stack=stack is None or stack.has(elf.Segment.FLAGS.X),
        indirect_functions=sum(r.type in indirect for r in binary.relocations),
    )


def _parse(path: Path, *, relocations: bool, static_symbols: bool) -> lief.ELF.Binary:
    import lief

    lief.logging.disable()
    config = lief.ELF.ParserConfig()
    config.parse_relocations = relocations
    config.parse_symtab_symbols = static_symbols
    config.parse_overlay = False
    # The caller must keep the Binary in a name: lief's iterators do not keep it alive.
    binary = lief.ELF.parse(str(path), config)
    if not isinstance(binary, lief.ELF.Binary):
        raise UnreadableError("lief cannot parse it", COPY_AGAIN)
    return binary


def _exports(binary: lief.ELF.Binary) -> list[Symbol]:
    """Defined, visible dynamic symbols; `exported_symbols` would add .symtab and drop TLS."""
    found = []
    for symbol in binary.dynamic_symbols:
        information = symbol.information
        binding = _BINDINGS.get(information >> 4)
        if binding and symbol.shndx and symbol.other & 3 in (0, 3):
            kind = _TYPES.get(information & 15, "other")
            found.append(Symbol(str(symbol.name), kind, binding))
    return found


def _targets(relocations: Iterable[lief.ELF.Relocation]) -> set[str]:
    return {str(r.symbol.name) for r in relocations if r.has_symbol and r.symbol is not None}


def _build_id(binary: lief.ELF.Binary) -> str:
    import lief

    note = binary.get(lief.ELF.Note.TYPE.GNU_BUILD_ID)
    return bytes(note.description).hex() if isinstance(note, lief.ELF.Note) else ""


def _imports(binary: lief.ELF.Binary) -> list[Import]:
    found = []
    for symbol in binary.dynamic_symbols:
        if symbol.shndx or not symbol.name:
            continue
        version = symbol.symbol_version
        auxiliary = version.symbol_version_auxiliary if version is not None else None
        name = str(auxiliary.name) if auxiliary is not None else ""
        found.append(Import(str(symbol.name), name, symbol.information >> 4 == 2))
    return found


def _required_versions(binary: lief.ELF.Binary) -> tuple[str, ...]:
    found = set()
    for requirement in binary.symbols_version_requirement:
        found |= {str(auxiliary.name) for auxiliary in requirement.get_auxiliary_symbols()}
    return tuple(sorted(found))


def _defined_versions(binary: lief.ELF.Binary) -> tuple[str, ...]:
    found = set()
    for definition in binary.symbols_version_definition:
        found |= {str(auxiliary.name) for auxiliary in definition.auxiliary_symbols}
    return tuple(sorted(found))


def _array(
    binary: lief.ELF.Binary,
    entries: dict[lief.ELF.DynamicEntry.TAG, lief.ELF.DynamicEntry],
    tags: tuple[lief.ELF.DynamicEntry.TAG, ...],
) -> tuple[str, ...]:
    """The functions of initialiser arrays, by name, or by address where .symtab is stripped."""
    import lief

    names = {s.value: str(s.name) for s in binary.symtab_symbols if s.information & 15 == 2}
    addends = {r.address: r.addend for r in binary.relocations}
    found = []
    for tag in tags:
        entry = entries.get(tag)
        if not isinstance(entry, lief.ELF.DynamicEntryArray):
            continue
        for index, word in enumerate(entry.array):
            # The word in the file may be zero: with RELA, the relocation's addend is the function.
            address = addends.get(entry.value + 8 * index, 0) or word
            found.append(names.get(address, f"{address:#x}"))
    return tuple(found)
