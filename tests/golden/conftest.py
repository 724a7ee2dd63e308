"""Fixtures of the golden tests: the invented API, the rendered texts, and a compiler to build them.

`Workshop` builds rendered text outside of CMake, so that a test can spoil one line of it and see
who notices. Must not know what is spoilt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from gen import model, render
from gen.written import write_if_changed

REPO = Path(__file__).resolve().parents[2]
API = Path(__file__).parent / "api"
LIMITS = Path(__file__).parent / "limits"
LAYOUTS = Path(__file__).parent / "layouts"
PROGRAMS = Path(__file__).parent / "programs"

# As lib/cmake/flags.cmake has them, and warnings are errors: rendered code has none.
LIBRARY_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fomit-frame-pointer",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wmissing-declarations",
    "-Werror",
)
PROGRAM_FLAGS = ("-std=c++20", "-O0", "-fno-exceptions", "-Wall", "-Wextra", "-Werror")
LINK_FLAGS = ("-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-Bsymbolic")


class BuildFailed(Exception):
    """The compiler or the linker refused; the text is what it said, `by` says which."""

    def __init__(self, by: str, text: str) -> None:
        super().__init__(text)
        self.by = by


@dataclass(frozen=True, slots=True)
class Workshop:
    """A folder and a compiler; every path it returns lies inside the folder."""

    folder: Path
    compiler: str

    def write(self, name: str, texts: Mapping[str, str]) -> Path:
        """Rendered files in a folder of their own."""
        folder = self.folder / name
        for file, text in texts.items():
            write_if_changed(folder / file, text)
        return folder

    def compile(self, sources: Path, *files: str, flags: tuple[str, ...] = LIBRARY_FLAGS) -> None:
        """Each file to an object beside it, seeing the folder and lib/src."""
        for file in files:
            self._run(
                *flags,
                *("-I", str(sources), "-I", str(REPO / "lib" / "src")),
                *("-c", file if file.startswith("/") else str(sources / file)),
                *("-o", str(sources / (Path(file).name + ".o"))),
            )

    def library(self, sources: Path, *extra_flags: str, compiled: Path | None = None) -> Path:
        """The rendered library with the smallest resolver, linked as CMake links the real one.

        `compiled` names a folder of equal C++ sources whose objects are taken instead.
        """
        files = ("passthrough.cpp", "entries.cpp", "resolver.cpp", "trampolines.S")
        if compiled is None:
            flags = (*LIBRARY_FLAGS, *extra_flags)
            self.compile(sources, *files[:2], str(PROGRAMS / "resolver.cpp"), flags=flags)
        else:
            for file in files[:3]:
                shutil.copyfile(compiled / f"{file}.o", sources / f"{file}.o")
        self.compile(sources, "trampolines.S", flags=())
        # dlsym and dlvsym are the hooks' business, which this library does without.
        lines = (sources / "exports.map").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.strip() not in ("dlsym;", "dlvsym;")]
        (sources / "test.map").write_text("\n".join(kept) + "\n", encoding="utf-8")
        target = sources / "libforward.so"
        objects = [str(sources / f"{file}.o") for file in files]
        version_script = f"-Wl,--version-script={sources / 'test.map'}"
        self._run(
            "-shared",
            *extra_flags,
            *LINK_FLAGS,
            version_script,
            *objects,
            "-o",
            str(target),
            "-ldl",
        )
        return target

    def echo(self, sources: Path) -> Path:
        """The fake drivers and the caller; returns the folder that holds all three."""
        for source, soname in (
            ("echo_cuda.cpp", "libcuda.so.1"),
            ("echo_nvml.cpp", "libnvidia-ml.so.1"),
        ):
            target = str(sources / soname)
            self._run(*PROGRAM_FLAGS, "-fPIC", "-shared", str(sources / source), "-o", target)
        caller = (str(sources / "echo_caller.cpp"), "-rdynamic", "-ldl")
        self._run(*PROGRAM_FLAGS, *caller, "-o", str(sources / "echo_caller"))
        return sources

    def program(self, sources: Path, name: str, *flags: str) -> Path:
        """One of tests/golden/programs around the rendered headers."""
        target = sources / Path(name).stem
        include = ("-I", str(sources), "-I", str(REPO / "lib" / "src"))
        self._run(*PROGRAM_FLAGS, *include, *flags, str(PROGRAMS / name), "-o", str(target))
        return target

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [self.compiler, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BuildFailed("compiler" if "-c" in arguments else "linker", done.stderr)


@pytest.fixture(scope="session")
def compiler() -> str:
    """CXX, the system's compiler, or the one that ci/compiler chose for the build."""
    zig = str(REPO / ".venv" / "zig" / "c++")
    for candidate in (os.environ.get("CXX", ""), "c++", "g++", "clang++", zig):
        found = shutil.which(candidate) if candidate else None
        if found:
            return found
    pytest.skip("no C++ compiler: neither CXX, c++, g++, clang++ nor .venv/zig/c++")


@pytest.fixture
def workshop(tmp_path: Path, compiler: str) -> Workshop:
    return Workshop(tmp_path, compiler)


@pytest.fixture(scope="session")
def invented() -> model.Model:
    """The small API that holds every awkward shape."""
    return model.load(API)


@pytest.fixture(scope="session")
def rendered(invented: model.Model) -> dict[str, str]:
    """Every output of the invented API."""
    return render.render(invented)


@pytest.fixture(scope="session")
def real_texts() -> dict[str, str]:
    """Every output of the committed model."""
    return render.render(model.load(REPO / "lib" / "api"))


@pytest.fixture(scope="session")
def real_library(
    tmp_path_factory: pytest.TempPathFactory, compiler: str, real_texts: dict[str, str]
) -> Path:
    """The library of the committed model with the smallest resolver; its objects lie beside it."""
    workshop = Workshop(tmp_path_factory.mktemp("real_library"), compiler)
    return workshop.library(workshop.write("lib", real_texts))
