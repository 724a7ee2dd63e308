"""What the tests of findsyms share: hand-made ELF files, a small API folder, a compiler.

The ELF writer needs no compiler, so that damage can be placed byte by byte.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from findsyms import cli

REPOSITORY = Path(__file__).resolve().parents[3]
FUNC, OBJECT = 2, 1
GLOBAL = 1

DEBUGGER = ("cudbgApiInit", "cudbgIpcFlag")
DEBUGGER_DATA = ("cudbgIpcFlag",)


@dataclass(frozen=True)
class ElfSpec:
    """A shared library to be written: (name, type, binding) per export, and what surrounds them."""

    exports: Sequence[tuple[str, int, int]]
    soname: str = "libcuda.so.1"
    machine: int = 62
    symbolic: bool = False
    self_calls: Sequence[str] = ()  # exports with a JUMP_SLOT of the library's own
    hidden: Sequence[str] = ()  # of the exports, those that visibility takes back
    text: bytes = b""  # bytes that stand for .rodata
    extra_dynamic: Sequence[tuple[int, int]] = field(default=())


def elf_bytes(spec: ElfSpec) -> bytes:
    """Lay the library out: headers, dynamic, symbols, strings, hash, relocations, text."""
    strings = b"\0"
    offsets: dict[str, int] = {}
    for name in [spec.soname, *(e[0] for e in spec.exports)]:
        offsets[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = bytes(24)
    for name, kind, binding in spec.exports:
        other = 2 if name in spec.hidden else 0
        symbols += struct.pack("<IBBHQQ", offsets[name], binding << 4 | kind, other, 1, 0x1000, 8)
    count = len(spec.exports) + 1
    order = [e[0] for e in spec.exports]
    relocations = b"".join(
        struct.pack("<QQq", 0x2000 + 8 * i, (order.index(name) + 1) << 32 | 7, 0)
        for i, name in enumerate(spec.self_calls)
    )
    # DT_HASH with one bucket: the chain leads through all symbols.
    chain = [0, *range(2, count), 0][:count]
    table = struct.pack(f"<III{count}I", 1, count, int(count > 1), *chain)

    tags = 8 + 2 * bool(spec.symbolic) + len(spec.extra_dynamic) + 4 * bool(relocations)
    dynamic_at = 64 + 2 * 56
    symbols_at = dynamic_at + 16 * tags
    strings_at = symbols_at + len(symbols)
    hash_at = -(-(strings_at + len(strings)) // 8) * 8
    relocations_at = -(-(hash_at + len(table)) // 8) * 8
    text_at = relocations_at + len(relocations)
    size = text_at + len(spec.text)

    entries = [(14, offsets[spec.soname])] if spec.soname else []
    entries += [(4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24)]
    if relocations:
        entries += [(23, relocations_at), (2, len(relocations)), (20, 7), (3, 0x2000)]
    entries += [(16, 0)] if spec.symbolic else []
    entries += list(spec.extra_dynamic)
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries).ljust(16 * tags, b"\0")

    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, spec.machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x1000)
    segment = struct.pack(
        "<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8
    )
    out = (header + load + segment + dynamic + symbols + strings).ljust(hash_at, b"\0")
    return (out + table).ljust(relocations_at, b"\0") + relocations + spec.text


def functions(*names: str, binding: int = GLOBAL) -> list[tuple[str, int, int]]:
    """Exports that are functions, but for the debugger's variables."""
    return [(name, OBJECT if name in DEBUGGER_DATA else FUNC, binding) for name in names]


WriteElf = Callable[..., Path]


@pytest.fixture
def write_elf(tmp_path: Path) -> WriteElf:
    """`write_elf(name, spec)` writes a library below tmp_path and returns its path."""

    def write(name: str, spec: ElfSpec) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(elf_bytes(spec))
        return path

    return write


def _function(
    name: str, base: str, kind: str, first: str | None, params: str = ""
) -> dict[str, Any]:
    listed = [p.rsplit(" ", 1) for p in params.split(", ")] if params else []
    return {
        "name": name,
        "base": base,
        "version": 1,
        "stream": "",
        "header": "cuda.h" if name.startswith("cu") else "nvml.h",
        "returns": "CUresult" if name.startswith("cu") else "nvmlReturn_t",
        "params": [{"name": n, "type": t, "direction": "in"} for t, n in listed],
        "kind": kind,
        "reason": f"{kind} of {base}",
        "deprecated": False,
        "headers": {"first": "11.8", "last": "13.5"},
        "drivers": {"first": first, "last": "550.163.01"} if first else None,
        "architectures": ["x86_64"],
    }


CUDA_FUNCTIONS = [
    _function("cuDriverGetVersion", "cuDriverGetVersion", "plain", "535.261.03", "int * version"),
    _function("cuLaunchKernel", "cuLaunchKernel", "launch", "535.261.03", "CUfunction f"),
    _function("cuLaunchKernel_ptsz", "cuLaunchKernel", "launch", "535.261.03", "CUfunction f"),
    _function("cuMemAlloc", "cuMemAlloc", "alloc", "535.261.03", "size_t bytesize"),
    _function("cuMemAlloc_v2", "cuMemAlloc", "alloc", "550.163.01", "size_t bytesize"),
    _function("cuMemcpyHtoD_v2", "cuMemcpyHtoD", "copy", "535.261.03", "size_t ByteCount"),
    _function("cuTheForecast", "cuTheForecast", "alloc", None),
]
NVML_FUNCTIONS = [
    _function("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo", "query", "535.261.03"),
    _function("nvmlInit_v2", "nvmlInit", "plain", "535.261.03"),
    _function("nvmlSystemGetDriverVersion", "nvmlSystemGetDriverVersion", "plain", "535.261.03"),
]


def _model(library: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    first = {"drivers": {"first": "535.261.03", "last": "550.163.01"}}
    cuda = library == "cuda"
    alias = {"name": "nvmlOldInit", "target": "nvmlInit_v2", **first}
    return {
        "schema": 2,
        "library": library,
        "soname": "libcuda.so.1" if cuda else "libnvidia-ml.so.1",
        "functions": found,
        "aliases": [] if cuda else [alias],
        "untyped": [{"name": "cuEGLApiInit", "reason": "in no header", **first}] if cuda else [],
        "thresholds": [],
        "types": [],
    }


@pytest.fixture
def api_folder(tmp_path: Path) -> Path:
    """A small API: two drivers' lists, a model of each library, both exception lists."""
    folder = tmp_path / "api"
    (folder / "symbols").mkdir(parents=True)
    for library, found in (("cuda", CUDA_FUNCTIONS), ("nvml", NVML_FUNCTIONS)):
        (folder / f"{library}.json").write_text(json.dumps(_model(library, found)))
        for driver in ("535.261.03", "550.163.01"):
            names = [f["name"] for f in found if f["drivers"] and f["drivers"]["first"] <= driver]
            names += [*DEBUGGER, "cuEGLApiInit"] if library == "cuda" else ["nvmlOldInit"]
            stem = "libcuda" if library == "cuda" else "libnvidia-ml"
            path = folder / "symbols" / f"{stem}-{driver}.txt"
            path.write_text("".join(f"{name}\n" for name in sorted(names)))
    (folder / "left-to-driver.txt").write_text("# why\ncudbg* : the debugger's\n")
    (folder / "passthrough.txt").write_text("nvmlDeviceGetMemoryInfo* : tested elsewhere\n")
    return folder


@pytest.fixture
def cuda_550() -> list[tuple[str, int, int]]:
    """Everything that the small API's newest libcuda exports."""
    names = [f["name"] for f in CUDA_FUNCTIONS if f["drivers"]]
    return functions(*names, "cuEGLApiInit", *DEBUGGER)


@dataclass(frozen=True)
class Finished:
    """A run of the tool that came to an end."""

    status: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401 - whatever the document holds
        return json.loads(self.out)


RunTool = Callable[..., Finished]


@pytest.fixture
def run_tool(
    api_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunTool:
    """`run_tool(argument, ..., env=...)` runs the tool on the small API in tmp_path.

    In this process, where lief is loaded already: its children then start in no time.
    """
    importlib.import_module("lief")
    monkeypatch.chdir(tmp_path)
    for name in ("LD_LIBRARY_PATH", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Finished:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        try:
            status = cli.main([*map(str, arguments), "--api", str(api_folder)])
        except SystemExit as end:  # argparse's own way out
            status = int(end.code or 0)
        shown = capsys.readouterr()
        return Finished(status, shown.out, shown.err)

    return run


Compile = Callable[..., Path]


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
    """`compile_library(source, *flags)` builds a shared library with the system's compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    counter = iter(range(1000))

    def build(source: str, *flags: str, name: str = "") -> Path:
        number = next(counter)
        text = tmp_path / f"source{number}.c"
        text.write_text(source)
        path = tmp_path / (name or f"library{number}.so")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(text), *flags]
        subprocess.run(command, check=True, capture_output=True)
        return path

    return build


@pytest.fixture
def driver_library() -> Callable[[str, str], Path]:
    """`driver_library("550", "libcuda")`: a real driver's file, or a skip."""
    root = Path(os.environ.get("GPUFENCE_TEST_DRIVERS") or REPOSITORY / ".drivers")

    def find(branch: str, library: str) -> Path:
        path = root / branch / f"{library}.so.1"
        if not path.exists():
            pytest.skip(f"no {library} {branch} in {root}; run ci/fetch-drivers")
        return path

    return find
