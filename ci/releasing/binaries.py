"""The libraries and the simulated driver of one machine, compiled from the standalone tree.

Owns how zig is asked for binaries without a path of the build in them. Must not know what they are
packed into.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .commit import ReleaseError

MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"


@dataclass(frozen=True, slots=True)
class Tools:
    """The checkout whose .venv holds zig, cmake and ninja; with a compiler cache or without."""

    checkout: Path
    cached: bool = True

    def program(self, name: str) -> str:
        """The path of a pinned tool."""
        return str(self.checkout / ".venv" / "bin" / name)

    def environment(self) -> dict[str, str]:
        """What the tools may know of this machine."""
        kept = ["PATH", "HOME", "TMPDIR"]
        if self.cached:
            kept += ["CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"]
        chosen = {
            name: value
            for name, value in os.environ.items()
            if name in kept or (self.cached and name.startswith("CCACHE_"))
        }
        # The compiler is a script that never changes in front of a zig that does.
        return {**chosen, "LC_ALL": "C", "CCACHE_COMPILERCHECK": "%compiler% --version"}


def build(tree: Path, machine: str, folder: Path, tools: Tools) -> Path:
    """Compile and install.

    Args:
        tree: the standalone tree.
        machine: one of MACHINES.
        folder: where objects and the result go.
        tools: what compiles.

    Returns:
        The folder with lib/ and sim/, as cmake installs them.

    Raises:
        ReleaseError: a command failed; its output was printed.
    """
    objects, installed = folder / "objects", folder / "installed"
    mapped = f"-ffile-prefix-map={folder}=. -ffile-prefix-map={tree}=."
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": tools.program("ninja"),
        "CMAKE_TOOLCHAIN_FILE": tools.checkout / "ci" / "zig.cmake",
        "GPUFENCE_ZIG_TARGET": f"{machine}-linux-gnu.{GLIBC}",
        # zig adds debug information unasked, and with it the paths of the build and of zig itself;
        # its start files bring theirs along, hence also the linker.
        "CMAKE_C_FLAGS": f"-g0 {mapped}",
        "CMAKE_CXX_FLAGS": f"-g0 {mapped}",
        "CMAKE_ASM_FLAGS": f"-g0 {mapped}",
        "CMAKE_SHARED_LINKER_FLAGS": "-Wl,--strip-debug",
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    _run(tools, "cmake", "-S", tree / "lib", "-B", objects, "-G", "Ninja",
         "--log-level=WARNING", "-Wno-dev", *defined)  # fmt: skip
    _run(tools, "cmake", "--build", objects)
    _run(tools, "cmake", "--install", objects, "--prefix", installed)
    return installed / "gpufence"


def static_program(source: Path, machine: str, target: Path, tools: Tools) -> Path:
    """One C file as a program that needs nothing of the system; returns its path."""
    words = (f"--target={machine}-linux-musl", "-static", "-Os", "-g0", "-s", "-Wall", "-Wextra",
             f"-ffile-prefix-map={source.parent}=.", source, "-o", target)  # fmt: skip
    _run(tools, str(tools.checkout / ".venv" / "zig" / "cc"), *words)
    return target


def prove(found: Iterable[Path], checkout: Path, work: Path) -> None:
    """Let nothing pass that needs a newer glibc or tells where it was built.

    Raises:
        ReleaseError: names the file and what is wrong with it.
    """
    ceiling = tuple(map(int, GLIBC.split(".")))
    for path in sorted(found):
        content = path.read_bytes()
        for place in (checkout, work):
            if str(place).encode() in content:
                raise ReleaseError(f"{path.name} holds the path {place}. Map it, or strip it.")
        needed = {
            tuple(map(int, text.split(b"."))) for text in re.findall(rb"GLIBC_([\d.]+)\0", content)
        }
        if max(needed, default=ceiling) > ceiling:
            raise ReleaseError(f"{path.name} needs glibc {max(needed)}. See which function it is.")


# Implementation.


def _run(tools: Tools, name: str, *words: str | Path) -> None:
    done = subprocess.run(
        [tools.program(name), *map(str, words)],
        env=tools.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout)
        raise ReleaseError(f"`{name} {words[0]}` failed with status {done.returncode}, as above.")
