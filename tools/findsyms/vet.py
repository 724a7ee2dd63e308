"""Looks a file over with `struct` before lief may see it: is it a whole ELF shared library?

Owns every refusal that concerns the file's format, and an independent reading of the exported names
that lief's answer is held against. Must not know drivers, the API model or lief.
"""

from __future__ import annotations

import platform
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from .errors import UnreadableError
from .rawfile import COPY_AGAIN, RawFile, open_regular, truncated

MACHINES = {62: "x86_64", 183: "aarch64"}
_OTHER_MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm"}
_OTHER_MACHINES |= {43: "sparc64", 243: "riscv", 258: "loongarch"}
_KINDS = {1: "an object file", 2: "a program", 4: "a core dump"}

_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_NOBITS, _SHT_DYNSYM = 8, 11
_DT_PLTRELSZ, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ = 2, 4, 5, 6, 7, 8
_DT_STRSZ, _DT_SONAME, _DT_SYMBOLIC, _DT_JMPREL, _DT_FLAGS = 10, 14, 16, 23, 30
_DT_GNU_HASH = 0x6FFFFEF5
_DF_SYMBOLIC = 2
_BINDINGS_SEEN_OUTSIDE = {1, 2, 10}  # global, weak, unique
_SYMBOL = struct.Struct("<IBBHQQ")
_NAME = re.compile(rb"[!-~]+")


@dataclass(frozen=True, slots=True)
class Vetted:
    """What the pre-check learnt about a file that is fit to be parsed."""

    machine: str
    soname: str
    symbolic: bool  # exports bind inside the library first, so nobody can stand in for them
    exported: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Header:
    machine: str
    programs: tuple[int, int]  # file offset, count
    sections: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Segments:
    loads: tuple[tuple[int, int, int], ...]  # virtual address, file offset, bytes in the file
    dynamic: tuple[int, int]  # file offset, bytes

    def offset(self, address: int, length: int, what: str) -> int:
        """Translate an address range to a file offset, or refuse the file."""
        for start, offset, size in self.loads:
            if start <= address and address + length <= start + size:
                return offset + address - start
        raise _corrupt(f"{what} at {address:#x} lies in no loaded segment")


def this_machine() -> str:
    """The architecture whose libraries this machine can load, as ELF spells it."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def vet(path: Path, machine: str = "any", *, must_export: bool = True) -> Vetted:
    """Check that a path holds a whole shared library, reading its tables as ld.so would.

    Args:
        path: the file; a FIFO or device is refused, never waited for.
        machine: the only architecture to accept (`x86_64`, `aarch64`), or `any`.
        must_export: refuse a library without exports, which is no driver.

    Raises:
        UnreadableError: with the reason and what to do about it.
    """
    with open_regular(path) as file:
        header = _header(file, machine)
        segments = _segments(file, header)
        dynsym = _dynsym_section(file, header)
        entries = _dynamic_entries(file, segments)
        count = _symbol_count(file, segments, entries, dynsym)
        symbols, strings = _symbol_table(file, segments, entries, count)
        _check_relocations(segments, entries)
        exported = _exported_names(symbols, strings)
    if must_export and not exported:
        raise UnreadableError("it exports no symbol", "Name a driver library.")
    return Vetted(
        machine=header.machine,
        soname=_name_at(strings, entries[_DT_SONAME], "the soname")
        if _DT_SONAME in entries
        else "",
        symbolic=_DT_SYMBOLIC in entries or bool(entries.get(_DT_FLAGS, 0) & _DF_SYMBOLIC),
        exported=exported,
    )


def _corrupt(detail: str) -> UnreadableError:
    return UnreadableError(f"corrupt symbol table: {detail}", COPY_AGAIN)


def _header(file: RawFile, machine: str) -> _Header:
    start = file.read(0, min(file.size, 4096), "the start")
    if start[:4] != b"\x7fELF":
        raise _not_elf(start)
    if len(start) > 4 and start[4] == 1:
        raise UnreadableError("it is a 32-bit library", "Name the 64-bit one.", look_further=True)
    if len(start) < 64:
        raise truncated(f"the ELF header needs 64 bytes, the file has {file.size}")
    if start[4] != 2 or start[5] not in (1, 2):
        raise UnreadableError("unknown ELF class or byte order", COPY_AGAIN)
    _check_machine(start, machine)
    kind, number = struct.unpack_from("<HH", start, 16)
    if kind != 3:
        what = _KINDS.get(kind, f"ELF type {kind}")
        raise UnreadableError(f"it is {what}, not a shared library", "Name a .so file.")
    program_offset, section_offset = struct.unpack_from("<QQ", start, 32)
    program_size, programs, section_size, sections, _ = struct.unpack_from("<5H", start, 54)
    if program_size != 56 or not 0 < programs < 0xFFFF or (sections and section_size != 64):
        raise UnreadableError("corrupt ELF header: impossible table sizes", COPY_AGAIN)
    return _Header(MACHINES[number], (program_offset, programs), (section_offset, sections))


def _not_elf(start: bytes) -> UnreadableError:
    text = start.lstrip()
    if text.startswith(b"/*") or re.match(rb"(INPUT|GROUP|OUTPUT_FORMAT)\s*\(", text):
        return UnreadableError(
            "it is a linker script, not a library", "Name the file that the script points to."
        )
    if start.startswith(b"!<arch>"):
        return UnreadableError("it is a static archive", "Name a .so file.")
    if start.startswith(b"\x7fELF"[: len(start)]):
        return truncated(f"the ELF header needs 64 bytes, the file has {len(start)}")
    return UnreadableError("it is not an ELF file", "Name a .so file.")


def _check_machine(start: bytes, machine: str) -> None:
    (number,) = struct.unpack_from("<H" if start[5] == 1 else ">H", start, 18)
    found = MACHINES.get(number) if start[5] == 1 else None
    if found and machine in ("any", found):
        return
    wanted = " or ".join(MACHINES.values()) if machine == "any" else machine
    name = found or _OTHER_MACHINES.get(number, f"ELF machine {number}")
    raise UnreadableError(
        f"it is for another machine: {name}, not {wanted}",
        f"Pass --arch {found} to read it here." if found else f"Name a library for {wanted}.",
        look_further=True,
    )


def _segments(file: RawFile, header: _Header) -> _Segments:
    offset, count = header.programs
    table = file.read(offset, 56 * count, "the program header table")
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for kind, _, at, address, _, size, memory, _ in struct.iter_unpack("<IIQQQQQQ", table):
        if kind in (_PT_LOAD, _PT_DYNAMIC) and at + size > file.size:
            raise truncated(f"a segment ends at byte {at + size}, the file at {file.size}")
        if kind == _PT_LOAD:
            if size > memory:
                raise UnreadableError("corrupt ELF header: a segment overflows", COPY_AGAIN)
            loads.append((address, at, size))
        elif kind == _PT_DYNAMIC:
            dynamic = (at, size)
    if dynamic is None or not loads:
        raise UnreadableError("it has no dynamic section", "Name a shared library.")
    return _Segments(tuple(loads), dynamic)


def _dynsym_section(file: RawFile, header: _Header) -> tuple[int, int] | None:
    """File offset and size of .dynsym, None where the section table was stripped."""
    offset, count = header.sections
    if not offset or not count:
        return None
    table = file.read(offset, 64 * count, "the section header table")
    found = None
    for _, kind, _, _, at, size, _, _, _, _ in struct.iter_unpack("<IIQQQQIIQQ", table):
        if kind != _SHT_NOBITS and at + size > file.size:
            raise truncated(f"a section ends at byte {at + size}, the file at {file.size}")
        if kind == _SHT_DYNSYM:
            found = (at, size)
    return found


def _dynamic_entries(file: RawFile, segments: _Segments) -> dict[int, int]:
    offset, size = segments.dynamic
    table = file.read(offset, size - size % 16, "the dynamic section")
    entries: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<QQ", table):
        if tag == 0:
            break
        entries[tag] = value
    if not {_DT_SYMTAB, _DT_STRTAB, _DT_STRSZ} <= entries.keys():
        raise UnreadableError("it has no symbol table", "Name a driver library.")
    return entries


def _symbol_count(
    file: RawFile,
    segments: _Segments,
    entries: dict[int, int],
    dynsym: tuple[int, int] | None,
) -> int:
    """How many entries the symbol table has: the hash table knows, the section header confirms."""
    counts: set[int] = set()
    if _DT_HASH in entries:
        at = segments.offset(entries[_DT_HASH], 8, "the hash table")
        buckets, chains = struct.unpack("<II", file.read(at, 8, "the hash table"))
        segments.offset(entries[_DT_HASH], 8 + 4 * (buckets + chains), "the hash table")
        counts.add(chains)
    if dynsym is not None:
        if dynsym[0] != segments.offset(entries[_DT_SYMTAB], 24, "the symbol table"):
            raise _corrupt("the section header and the dynamic section disagree on its place")
        counts.add(dynsym[1] // 24)
    if not counts and _DT_GNU_HASH in entries:
        counts.add(_gnu_hash_count(file, segments, entries[_DT_GNU_HASH]))
    if len(counts) != 1:
        raise _corrupt(f"its tables disagree on the number of symbols: {sorted(counts)}")
    return counts.pop()


def _gnu_hash_count(file: RawFile, segments: _Segments, address: int) -> int:
    """Count symbols through the GNU hash table: the end of the last chain."""
    what = "the GNU hash table"
    at = segments.offset(address, 16, what)
    buckets: int
    first: int
    words: int
    buckets, first, words, _ = struct.unpack("<4I", file.read(at, 16, what))
    body = 16 + 8 * words + 4 * buckets
    segments.offset(address, body, what)
    table = file.read(at + 16 + 8 * words, 4 * buckets, what)
    last: int = max(struct.unpack(f"<{buckets}I", table), default=0)
    if last < first:
        return first
    while True:
        chain = segments.offset(address + body + 4 * (last - first), 4, what)
        last += 1
        if file.read(chain, 4, what)[0] & 1:
            return last


def _symbol_table(
    file: RawFile, segments: _Segments, entries: dict[int, int], count: int
) -> tuple[bytes, bytes]:
    where = segments.offset(entries[_DT_SYMTAB], 24 * count, "the symbol table")
    symbols = file.read(where, 24 * count, "the symbol table")
    size = entries[_DT_STRSZ]
    where = segments.offset(entries[_DT_STRTAB], size, "the string table")
    strings = file.read(where, size, "the string table")
    if not strings.endswith(b"\0"):
        raise _corrupt("its string table is not terminated")
    return symbols, strings


def _check_relocations(segments: _Segments, entries: dict[int, int]) -> None:
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table in entries:
            segments.offset(entries[table], entries.get(size, 0), "the relocation table")


def _exported_names(symbols: bytes, strings: bytes) -> frozenset[str]:
    names = set()
    for name, info, other, section, _, _ in _SYMBOL.iter_unpack(symbols):
        if section and info >> 4 in _BINDINGS_SEEN_OUTSIDE and other & 3 in (0, 3):
            names.add(_name_at(strings, name, "a symbol's name"))
    return frozenset(names)


def _name_at(strings: bytes, offset: int, what: str) -> str:
    if offset >= len(strings):
        raise _corrupt(f"{what} lies outside the string table")
    text = strings[offset : strings.index(b"\0", offset)]
    if not _NAME.fullmatch(text):
        raise _corrupt(f"{what} is not plain text: {text[:40]!r}")
    return text.decode("ascii")
