"""A release packed from this checkout's build, and where there is one, a release of ci/release.

The first is packed in seconds, because nothing is compiled: this machine's library stands for all
machines'. Its files are those of the working tree, so that a test needs no commit.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from releasing import commit, files

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")).resolve()
EPOCH = 1_700_000_000
MACHINE = platform.machine()
VERSION = commit.version_of(REPO)


@dataclass(frozen=True, slots=True)
class Release:
    """Its files, by name, in a folder."""

    folder: Path
    content: Mapping[str, bytes]

    def one(self, pattern: str) -> Path:
        """The only file whose name matches."""
        (found,) = [name for name in self.content if re.search(pattern, name)]
        return self.folder / found


def pack(work: Path) -> dict[str, bytes]:
    """Pack this checkout's build below a folder."""
    if not (BUILD / "sim" / "libnvidia-ml.so.1").is_file():
        pytest.skip(f"{BUILD} holds no build: run ci/build first")
    source = work / "source"
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPO, text=True
    )
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, source / name)
    files.plant(source, work / "tree")
    prefix = work / "installed"
    cmake = REPO / ".venv" / "bin" / "cmake"
    words = [cmake, "--install", BUILD, "--prefix", prefix]
    subprocess.run(words, check=True, capture_output=True)
    built = files.Built(prefix / "gpufence", b"a program")
    machines = {name: built for name in ("x86_64", "aarch64")}
    made = commit.Commit(REPO, "0123456789" * 4, EPOCH)
    return files.pack(made, source, work / "tree", machines, work)


def written(folder: Path, content: Mapping[str, bytes]) -> Release:
    """The files in a folder."""
    folder.mkdir()
    for name, each in content.items():
        (folder / name).write_bytes(each)
    return Release(folder, content)


def c_compiler() -> str:
    """CC, or the system's."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if found := shutil.which(candidate) if candidate else None:
            return found
    pytest.skip("no C compiler: neither CC, cc, gcc nor clang")


def runs_alone(wheel: Path, folder: Path) -> None:
    """Install the wheel and nothing else, and hold a program to a limit with it."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", wheel], check=True)
    gpufence = venv / "bin" / "gpufence"
    fill = [sys.executable, REPO / "ci" / "demo_program.py", "--fill"]
    env = {"PATH": f"{venv}/bin:/usr/bin:/bin", "GPUFENCE_STATE_DIR": str(folder),
           "GPUFENCE_SIM_STATE": str(folder / "machine")}  # fmt: skip

    def told(*words: str | Path) -> str:
        done = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert told(gpufence, "--version") == f"gpufence {VERSION}\n"
    doctor = told(gpufence, "run", "--sim", "--memory", "1GiB", "--", gpufence, "doctor")
    assert re.search(rf"^library  {venv}/lib/.*/gpufence/lib/libgpufence\.so$", doctor, re.M)
    assert "\nlookups  fenced\n" in doctor
    filled = told(gpufence, "run", "--sim", "--memory", "1GiB", "--", *fill)
    assert re.search(r"^device .* 1024 MiB,", filled, re.M)
    assert "then cuMemAlloc_v2 returned 2\n" in filled
    assert (venv / "share" / "man" / "man1" / "gpufence-run.1").is_file()


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Packed from this checkout's build."""
    work = tmp_path_factory.mktemp("packed")
    return written(work / "dist", pack(work))


@pytest.fixture(scope="session")
def released() -> Release:
    """What ci/release made, in the folder that GPUFENCE_RELEASE names."""
    folder = os.environ.get("GPUFENCE_RELEASE", "")
    if not folder:
        pytest.skip("GPUFENCE_RELEASE names no release: run `ci/release DIR` and set it to DIR")
    found = {path.name: path.read_bytes() for path in Path(folder).resolve().iterdir()}
    return Release(Path(folder).resolve(), found)
