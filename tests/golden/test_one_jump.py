"""A passthrough costs one jump: read from the machine code that our own compiler made of it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gen import filters, ir, model

from .conftest import REPO

PADDING = ("nop", "cs nop", "data16", "xchg   %ax,%ax")

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 machine code"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump"),
]


def disassemble(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each function with its instructions, without padding and landing pad."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for block in re.split(r"\n(?=[0-9a-f]+ <)", text)[1:]:
        name = block[block.index("<") + 1 : block.index(">")]
        lines = (line.partition("\t")[2].strip() for line in block.splitlines()[1:])
        yield (
            name,
            [line for line in lines if line and not line.startswith((*PADDING, "endbr64"))],
        )


def is_rearranged(function: ir.Function, narrow_or_large: frozenset[str]) -> bool:
    """True when the ABI makes the compiler touch an argument: widen it, or copy a large struct."""
    types = (filters.cpp_type(param.type) for param in function.params)
    return any(spelling in narrow_or_large for spelling in types)


@pytest.fixture(scope="module")
def bodies(real_library: Path) -> dict[str, list[str]]:
    return dict(disassemble(real_library.parent / "passthrough.cpp.o"))


@pytest.fixture(scope="module")
def is_gcc(compiler: str) -> bool:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return "Free Software Foundation" in done.stdout


def test_each_passthrough_is_one_jump(bodies: dict[str, list[str]], is_gcc: bool) -> None:
    most = 1 if is_gcc else 2  # clang does not fold an atomic load into the jump
    loaded = model.load(REPO / "lib" / "api")
    functions = [s for s in loaded.symbols if s.typed and s.function]
    touched = frozenset({"unsigned char", "unsigned short"} | large_records(loaded))
    plain = [s.name for s in functions if s.function and not is_rearranged(s.function, touched)]

    slow = {name: bodies[name] for name in plain if len(bodies[name]) > most}

    assert slow == {}
    assert len(plain) > 1100
    assert all(bodies[name][-1].startswith("jmp") for name in plain)


def test_no_passthrough_calls_or_builds_a_frame(bodies: dict[str, list[str]], is_gcc: bool) -> None:
    # clang copies a large record into a frame of its own; these four functions are no hot path.
    loaded = model.load(REPO / "lib" / "api")
    excused = set() if is_gcc else {s.name for s in loaded.symbols if not s.tail}

    heavy = {
        name: body
        for name, body in bodies.items()
        if any(re.match(r"call|ret|push|sub .*%rsp", line) for line in body)
        or not body[-1].startswith("jmp")
    }

    assert set(heavy) <= excused


def test_export_without_a_prototype_is_one_jump(real_library: Path) -> None:
    untyped = {s.name for s in model.load(REPO / "lib" / "api").symbols if not s.typed}

    bodies = dict(disassemble(real_library.parent / "trampolines.S.o"))

    assert {"cuEGLApiInit", "cuMemGetAttribute_v2", "nvmlInternalGetExportTable"} <= untyped
    for name in untyped:
        (only,) = bodies[name]
        assert re.match(r"jmp +\*0x\w+\(%rip\)", only)


def large_records(loaded: model.Model) -> set[str]:
    """Records that travel in memory, with their aliases."""
    declared = {decl.name: decl for library in loaded.libraries for decl in library.api.types}
    names = {n for n, d in declared.items() if isinstance(d, ir.RecordType) and d.size > 16}
    while True:
        more = {n for n, d in declared.items() if isinstance(d, ir.AliasType) and d.of in names}
        if more <= names:
            return names
        names |= more
