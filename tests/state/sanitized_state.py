"""Programs of the memory limit's account under a sanitizer, whose common part is compiled once.

Workers that test side by side share what is built. Must not know what the programs do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.machine import REPO

_SOURCE = REPO / "lib" / "src"
_TESTS = REPO / "tests"
_BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))
# What the account is made of, and not what the core limit adds to both layers.
_PARTS = {
    "base": ("forked",),
    "policy": ("account", "arrays", "chunks"),
    "state": ("exported", "holdings", "identity", "ledger", "limits_file", "owner", "region",
              "shared_file", "sharing", "slots"),
}  # fmt: skip
# The fences of the ledger are beyond what the thread sanitizer models, and gcc says so.
_FLAGS = ("-std=c++20", "-g", "-O1", "-fno-rtti", "-pthread", "-Wno-tsan",
          f"-I{_SOURCE}", f"-I{_TESTS}", f"-I{_BUILD / 'gen'}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sanitized:
    """What is built under one sanitizer, in a folder of its own."""

    compiler: str
    sanitizer: str
    folder: Path

    def program(self, name: str) -> Path:
        """One of tests/state with the two layers; built when it is asked for first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        built = self.folder / name
        with _alone_in(self.folder):
            if not built.exists():
                objects = self._layers()
                link = [
                    *map(str, objects),
                    str(_TESTS / "state" / f"{name}.cpp"),
                    "-o",
                    f"{built}.new",
                ]
                self._compile(link, self.folder)
                Path(f"{built}.new").rename(built)
        return built

    def _layers(self) -> list[Path]:
        for layer, parts in _PARTS.items():
            folder = self.folder / layer
            if not folder.exists():
                sources = [str(_SOURCE / layer / f"{part}.cpp") for part in parts]
                compiled = self.folder / f"{layer}.new"
                shutil.rmtree(compiled, ignore_errors=True)
                compiled.mkdir()
                self._compile(["-c", *sources], compiled)
                compiled.rename(folder)
        return sorted(self.folder.glob("*/*.o"))

    def _compile(self, words: Sequence[str], folder: Path) -> None:
        sanitize = (f"-fsanitize={self.sanitizer}", "-fno-sanitize-recover=all")
        command = [self.compiler, *_FLAGS, *sanitize, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0 and "cannot find -l" in done.stderr:
            pytest.skip(f"the compiler has no {self.sanitizer} sanitizer")
        assert done.returncode == 0, done.stderr


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of the tests, the same for every worker."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "sanitized"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other worker is in it; the lock ends with whoever has it."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
