"""lief reads what nm reads, and whatever happens to it happens in a child process."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from findsyms import reader, vet
from findsyms.errors import UnreadableError

from .conftest import Compile, ElfSpec, WriteElf, elf_bytes, functions

SOURCE = """
int cuInit(unsigned f); int shared_state = 3; __thread int per_thread;
__attribute__((weak)) int cuFree(void) { return cuInit(0); }
int cuInit(unsigned f) { return f + shared_state; }
int (*table)(unsigned) = cuInit;
__attribute__((visibility("hidden"))) int hidden_one(void) { return 1; }
static int chosen(void) { return 1; }
static void* choose(void) { return chosen; }
int cuChosen(void) __attribute__((ifunc("choose")));
"""


def request(path: Path, *, shape: bool = False) -> reader.Request:
    return reader.Request(path, vet.vet(path), shape)


def test_exports_are_those_of_nm(compile_library: Compile) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm on PATH")
    path = compile_library(SOURCE, "-ftls-model=global-dynamic")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    )

    library = reader.read_all([request(path)])[0].facts()

    assert [s.name for s in library.symbols] == sorted(
        line.split()[-1] for line in listed.stdout.splitlines()
    )
    assert {s.name: (s.type, s.binding) for s in library.symbols} == {
        "cuInit": ("func", "global"),
        "cuFree": ("func", "weak"),
        "cuChosen": ("ifunc", "global"),
        "shared_state": ("object", "global"),
        "per_thread": ("tls", "global"),
        "table": ("object", "global"),
    }


def test_self_calls_are_told_apart_by_their_slots(compile_library: Compile) -> None:
    plain = compile_library(SOURCE, "-fno-inline", "-fsemantic-interposition")
    bound = compile_library(SOURCE, "-Wl,-Bsymbolic")

    found, symbolic = reader.read_all([request(plain), request(bound)])

    assert found.facts().plt_self == ("cuInit",)
    assert {"cuInit", "shared_state"} <= set(found.facts().data_self)
    assert symbolic.facts().symbolic
    assert symbolic.facts().plt_self == symbolic.facts().data_self == ()


def test_a_build_id_is_read(compile_library: Compile) -> None:
    path = compile_library(SOURCE, "-Wl,--build-id=0xabad1dea")

    assert reader.read_all([request(path)])[0].facts().build_id == "abad1dea"


def test_a_library_without_sections_is_read_as_ld_so_would(write_elf: WriteElf) -> None:
    spec = ElfSpec(functions("cuInit", "cuFree", "cudbgIpcFlag"), self_calls=["cuFree"])

    library = reader.read_all([request(write_elf("a.so", spec))])[0].facts()

    assert [s.name for s in library.symbols] == ["cuFree", "cuInit", "cudbgIpcFlag"]
    assert library.plt_self == ("cuFree",)


def test_hidden_symbols_are_not_exports(write_elf: WriteElf) -> None:
    path = write_elf("a.so", ElfSpec(functions("cuInit", "cuInner"), hidden=["cuInner"]))

    assert [s.name for s in reader.read_all([request(path)])[0].facts().symbols] == ["cuInit"]


def section(data: bytes, kind: int) -> tuple[int, int, int]:
    """Place of the first section header of a type, and offset and size of its section."""
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    for at in range(table, table + 64 * count, 64):
        if struct.unpack_from("<I", data, at + 4)[0] == kind:
            return (at, *struct.unpack_from("<QQ", data, at + 24))
    raise LookupError(kind)


def test_a_section_header_that_contradicts_ld_so_is_refused(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    data = bytearray(path.read_bytes())
    at, offset, size = section(data, 11)
    struct.pack_into("<QQ", data, at + 24, offset + 24, size - 24)
    path.write_bytes(data)

    with pytest.raises(UnreadableError, match=r"corrupt symbol table: .* disagree"):
        vet.vet(path)


def test_initialisers_are_named_by_their_relocations(compile_library: Compile) -> None:
    path = compile_library(
        "static int started; int cuInit(void) { return started; }"
        "__attribute__((constructor)) static void starter(void) { started = 1; }"
    )
    data = bytearray(path.read_bytes())
    # With RELA, what stands in the array itself may be anything; aarch64 linkers leave zeros.
    _, offset, size = section(data, 14)
    data[offset : offset + size] = bytes(size)
    path.write_bytes(data)

    shape = reader.read_all([request(path, shape=True)])[0].form()

    assert shape.initialisers == ("frame_dummy", "starter")


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGSEGV, "crashes on it (SIGSEGV)"), (signal.SIGABRT, "SIGABRT")]
)
def test_a_crash_costs_one_library_only(
    write_elf: WriteElf, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    paths = [write_elf(f"{n}.so", ElfSpec(functions("cuInit"))) for n in ("a", "bad", "c")]
    answer = reader._answer

    def crash_on_bad(asked: reader.Request) -> dict[str, Any]:
        if asked.path.name == "bad.so":
            os.kill(os.getpid(), number)
        return answer(asked)

    monkeypatch.setattr(reader, "_answer", crash_on_bad)

    first, bad, last = reader.read_all([request(path) for path in paths])

    assert first.facts().symbols == last.facts().symbols
    with pytest.raises(UnreadableError) as caught:
        bad.facts()
    assert words in caught.value.why


def test_a_stall_is_ended(write_elf: WriteElf, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write_elf(f"{n}.so", ElfSpec(functions("cuInit"))) for n in ("stall", "b")]
    answer = reader._answer

    def stall(asked: reader.Request) -> dict[str, Any]:
        if asked.path.name == "stall.so":
            time.sleep(60)
        return answer(asked)

    monkeypatch.setattr(reader, "_answer", stall)

    # Loaded here, lief costs the children nothing, and the second one answers well in time.
    importlib.import_module("lief")
    stalled, other = reader.read_all([request(path) for path in paths], timeout_s=2)

    assert stalled.error is not None
    assert "does not come to an end" in stalled.error.why
    assert other.library is not None


def test_no_child_is_left_behind(write_elf: WriteElf) -> None:
    reader.read_all([request(write_elf("a.so", ElfSpec(functions("cuInit"))))])

    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


# Fuzzing. GPUFENCE_TEST_FUZZ_ROUNDS asks for more than the default, which keeps the suite quick.
ROUNDS = int(os.environ.get("GPUFENCE_TEST_FUZZ_ROUNDS", "1500"))
EXTREMES = (0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 20, 1 << 32, 1 << 63, (1 << 64) - 1)


def damage(data: bytes, chance: random.Random) -> bytes:
    """Flip bits, set bytes, plant extreme numbers; sometimes cut the end off."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(out) - 8)
        extreme = (chance.choice(EXTREMES) + chance.randrange(-2, 3)) % (1 << 64)
        how = chance.randrange(4)
        if how == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            out[at] = chance.randrange(256)
        elif how == 2:
            struct.pack_into("<Q", out, at & ~7, extreme)
        else:
            struct.pack_into("<I", out, at & ~3, extreme & 0xFFFFFFFF)
    return bytes(out[: chance.randrange(len(out))] if chance.random() < 0.05 else out)


def survivors(data: bytes, folder: Path, seed: int, rounds: int) -> int:
    """Damage a file again and again; returns how many damaged ones were still readable."""
    chance = random.Random(seed)
    requests = []
    for number in range(rounds):
        path = folder / f"{number}.so"
        path.write_bytes(damage(data, chance))
        try:
            requests.append(request(path, shape=True))
        except UnreadableError:
            continue  # seen by the pre-check, as most damage is
    readings = reader.read_all(requests)
    assert len(readings) == len(requests)
    for asked, reading in zip(requests, readings, strict=True):
        if reading.library is not None:
            # Whatever lief makes of a damaged file, it never makes up or loses an export.
            assert {s.name for s in reading.library.symbols} == asked.vetted.exported
        else:
            assert reading.error is not None
    return sum(reading.library is not None for reading in readings)


def test_fuzz_hand_made_library(tmp_path: Path) -> None:
    spec = ElfSpec(functions(*(f"cuName{n}" for n in range(12))), self_calls=["cuName3"])

    # Most of this file is tables, so most damage is seen; some is not, and lief must bear it.
    assert 0 < survivors(elf_bytes(spec), tmp_path, 1, ROUNDS // 2) < ROUNDS // 2


def test_fuzz_linked_library(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE, "-s")
    data = path.read_bytes()

    assert 0 < survivors(data, tmp_path, 2, ROUNDS // 2) < ROUNDS // 2
