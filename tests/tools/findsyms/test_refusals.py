"""Whatever file is named, findsyms answers with one line that says why, and goes on."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from findsyms import rawfile, vet
from findsyms.errors import UnreadableError

from .conftest import ElfSpec, WriteElf, elf_bytes, functions

GOOD = elf_bytes(ElfSpec(functions("cuInit", "cuMemAlloc_v2", "cudbgIpcFlag"), text=b"x" * 64))


def patched(offset: int, code: str, value: int) -> bytes:
    out = bytearray(GOOD)
    struct.pack_into(code, out, offset, value)
    return bytes(out)


def refusal(path: Path, machine: str = "x86_64") -> str:
    with pytest.raises(UnreadableError) as caught:
        vet.vet(path, machine)
    assert caught.value.fix.endswith(".")
    assert "\n" not in caught.value.why + caught.value.fix
    return caught.value.why


DYNAMIC_AT = 64 + 2 * 56  # entries: soname, hash, strtab, symtab, strsz, ...
SYMBOLS_AT = struct.unpack_from("<Q", GOOD, DYNAMIC_AT + 16 * 3 + 8)[0]
STRINGS_AT = struct.unpack_from("<Q", GOOD, DYNAMIC_AT + 16 * 2 + 8)[0]
HASH_AT = struct.unpack_from("<Q", GOOD, DYNAMIC_AT + 16 * 1 + 8)[0]

BAD_FILES = {
    "empty": (b"", "empty"),
    "text": (b"hello\n", "not an ELF file"),
    "linker script": (b"/* GNU ld script */\nGROUP ( libc.so.6 )\n", "linker script"),
    "bare linker script": (b"INPUT(libcuda.so.1)\n", "linker script"),
    "archive": (b"!<arch>\n", "static archive"),
    "three bytes": (b"\x7fEL", "truncated"),
    "header cut": (GOOD[:40], "truncated"),
    "half": (GOOD[: len(GOOD) // 2], "truncated"),
    "last byte gone": (GOOD[:-1], "truncated"),
    "32-bit": (patched(4, "<B", 1), "32-bit"),
    "class 7": (patched(4, "<B", 7), "unknown ELF class"),
    "aarch64": (patched(18, "<H", 183), "another machine: aarch64, not x86_64"),
    "riscv": (patched(18, "<H", 243), "another machine: riscv"),
    "unheard-of": (patched(18, "<H", 9999), "another machine: ELF machine 9999"),
    "big endian": (patched(5, "<B", 2), "another machine"),
    "program": (patched(16, "<H", 2), "a program"),
    "object file": (patched(16, "<H", 1), "an object file"),
    "no segments": (patched(56, "<H", 0), "corrupt ELF header"),
    "odd segments": (patched(54, "<H", 3), "corrupt ELF header"),
    "segments outside": (patched(32, "<Q", 1 << 62), "truncated"),
    "sections outside": (patched(40, "<Q", 1 << 40)[:60] + b"\x05\0" + GOOD[62:], "truncated"),
    "no dynamic": (patched(64 + 56, "<I", 0), "no dynamic section"),
    "symbols outside": (patched(DYNAMIC_AT + 56, "<Q", 1 << 50), "corrupt symbol table"),
    "no symbol table": (patched(DYNAMIC_AT + 48, "<Q", 0x6FFF0000), "no symbol table"),
    "count too large": (patched(HASH_AT + 4, "<I", 0xFFFFFFFF), "corrupt symbol table"),
    "name outside": (patched(SYMBOLS_AT + 24, "<I", 0xFFFFFF), "corrupt symbol table"),
    "name is binary": (patched(STRINGS_AT + 16, "<B", 0x07), "corrupt symbol table"),
    "strings unterminated": (patched(DYNAMIC_AT + 16 * 4 + 8, "<Q", 20), "not terminated"),
    "nothing exported": (elf_bytes(ElfSpec([])), "exports no symbol"),
}


@pytest.mark.parametrize(("content", "words"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_refused_by_name_of_its_defect(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(content)

    assert words in refusal(path)


def test_every_prefix_of_a_good_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.1"
    for length in range(len(GOOD)):
        path.write_bytes(GOOD[:length])

        assert refusal(path)


def test_the_good_file_itself_passes(write_elf: WriteElf) -> None:
    path = write_elf("a.so", ElfSpec(functions("cuInit", "cudbgIpcFlag"), symbolic=True))

    found = vet.vet(path)

    assert found == vet.Vetted(
        "x86_64", "libcuda.so.1", True, frozenset(["cuInit", "cudbgIpcFlag"])
    )


def test_another_machine_is_welcome_when_asked_for(write_elf: WriteElf) -> None:
    path = write_elf("a.so", ElfSpec(functions("cuInit"), machine=183))

    assert vet.vet(path, "aarch64").machine == "aarch64"
    assert vet.vet(path, "any").machine == "aarch64"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_dangling(path: Path) -> None:
    path.symlink_to("libcuda.so.999.1")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, rawfile.MAX_BYTES + 1)


ODD_PATHS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda path: None, "no such file"),
    "directory": (Path.mkdir, "directory"),
    "fifo": (make_fifo, "not a regular file"),
    "dangling link": (make_dangling, "a link to 'libcuda.so.999.1'"),
    "link to itself": (make_loop, "symbolic links"),
    "huge": (make_huge, "more than any driver library"),
}


@pytest.mark.parametrize(("make", "words"), ODD_PATHS.values(), ids=ODD_PATHS.keys())
def test_an_odd_path_is_refused_without_waiting(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "libcuda.so.1"
    make(path)

    assert words in refusal(path)


def test_a_name_with_a_zero_byte_is_refused() -> None:
    assert "zero byte" in refusal(Path("a\0b"))


def test_a_file_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The superuser may read anything, so the kernel's answer is put in its mouth.
    def deny(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)

    assert refusal(tmp_path / "libcuda.so.1") == "permission denied"


def test_a_device_is_refused() -> None:
    assert refusal(Path("/dev/zero")) == "it is not a regular file"
