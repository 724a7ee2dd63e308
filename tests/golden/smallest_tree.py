"""A checkout of this project with the invented API and the least source.

Owns what such a tree needs: the committed ci, cmake, generator and templates, and one small file
for each layer. Its ci/build is the real one and takes seconds. Must not know what a test changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .conftest import API, LAYOUTS, LIMITS, PROGRAMS, REPO

LIBRARY = "lib/libgpufence.so"

_COPIED = ("ci", "deploy", "lib/CMakeLists.txt", "lib/cmake", "lib/sim", "pyproject.toml",
           "templates", "tools/gen")  # fmt: skip
_EMPTY_LAYERS = ("addpath", "answers", "config", "device", "policy", "state")
_SOURCES = {
    "base/resolver.cpp": (PROGRAMS / "resolver.cpp").read_text(encoding="utf-8"),
    **{f"base/{name}.cpp": "" for name in ("forked", "log")},
    **{f"{layer}/{layer}.cpp": "" for layer in _EMPTY_LAYERS},
    **{f"{layer}/exports.map": "{ local: *; };\n" for layer in ("addpath", "answers")},
    "hooks/cores/cores.h": "#pragma once\n",
    "hooks/cores/streams.h": '#include "driver_abi.h"\n'
    "namespace gpufence {\n"
    "inline void LeaveAllKernels() {}\n"
    "inline void LeaveKernels(CUstream) {}\n"
    "struct CorePut { explicit CorePut(CUstream) {} ~CorePut() {} };\n"
    "inline CUstream PerThread(CUstream stream) { return stream; }\n"
    "}\n",
    # A hook that answers with the number by which it would call the driver.
    "hooks/memory/free.cpp": '#include "real.h"\n'
    'extern "C" CUresult cuGadgetFree(void*) {\n'
    "  return static_cast<CUresult>(gpufence::kSym_cuGadgetFree);\n"
    "}\n",
}


@dataclass(frozen=True, slots=True)
class SmallestTree:
    """The tree; its build lies in `build/`, as a checkout's does."""

    root: Path

    @property
    def api(self) -> Path:
        """The model folder."""
        return self.root / "lib" / "api"

    def build(self, target: str = LIBRARY) -> subprocess.CompletedProcess[str]:
        """Run the tree's ci/build; what it said is in stdout."""
        return self._run(str(self.root / "ci" / "build"), target)

    def link(self) -> subprocess.CompletedProcess[str]:
        """Link the objects that are there, whatever ninja thinks of them."""
        ninja = self.root / ".venv" / "bin" / "ninja"
        words = [ninja, "-C", self.root / "build", "-t", "commands", "-s", LIBRARY]
        command = subprocess.check_output(words, text=True)
        return self._run("/bin/sh", "-c", command)

    def objects(self, target: str) -> Path:
        """The folder of one target's objects."""
        return self.root / "build" / "CMakeFiles" / f"{target}.dir"

    def answer(self, name: str) -> int:
        """What an exported function answers, called with a null pointer.

        In a process of its own: what is no hook looks for a driver, which is not there.
        """
        library = str(self.root / "build" / LIBRARY)
        call = f"import ctypes; print(ctypes.CDLL({library!r}).{name}(None))"
        return int(subprocess.check_output([sys.executable, "-c", call], timeout=20))

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {name: os.environ[name] for name in os.environ if not name.startswith("GPUFENCE_")}
        return subprocess.run(
            words,
            cwd=self.root / "build" if (self.root / "build").is_dir() else self.root,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )


def plant(root: Path) -> SmallestTree:
    """Write the tree into a folder."""
    for part in _COPIED:
        source, target = REPO / part, root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, target)
        if source.is_file():
            shutil.copymode(source, target)
    shutil.copytree(API, root / "lib" / "api")
    shutil.copytree(LIMITS, root / "lib" / "limits")
    shutil.copytree(LAYOUTS, root / "lib" / "layouts")
    headers = shutil.ignore_patterns("*.cpp")  # rendered files include some of these
    shutil.copytree(REPO / "lib/src/base", root / "lib/src/base", ignore=headers)
    for name, text in _SOURCES.items():
        path = root / "lib" / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / ".venv").symlink_to(REPO / ".venv")
    return SmallestTree(root)
