"""The wheel of each machine and the sdist.

The project's build backend packs the Python parts, so that pyproject.toml stays the one list of
them; the libraries of ci/release go in here, and the tag says what they need. Must not know how a
library is compiled.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from . import archives
from .archives import Entry
from .binaries import GLIBC
from .commit import ReleaseError

_BACKEND = (
    "import sys; from scikit_build_core import build;"
    " print(getattr(build, sys.argv[1])(sys.argv[2], {'wheel.cmake': 'false'}))"
)


def pure_wheel(source: Path, folder: Path, epoch: int) -> dict[str, Entry]:
    """What the wheel holds beside the libraries, by its path in the wheel."""
    name = _backend("build_wheel", source, folder, epoch)
    with zipfile.ZipFile(folder / name) as wheel:
        return {each: Entry(wheel.read(each)) for each in wheel.namelist()}


def sdist(source: Path, folder: Path, epoch: int) -> tuple[str, bytes]:
    """Its name and its bytes: the backend's, in an order and with owners that never change."""
    name = _backend("build_sdist", source, folder, epoch)
    with tarfile.open(folder / name) as archive:
        tree = {
            member.name: Entry(_content(archive, member), program=bool(member.mode & 0o100))
            for member in archive
            if member.isfile()
        }
    return name, archives.compressed(archives.tar(tree, epoch))


def platform_wheel(
    pure: dict[str, Entry], libraries: Path, machine: str, manuals: dict[str, bytes], epoch: int
) -> tuple[str, bytes]:
    """The wheel for one machine.

    Args:
        pure: of pure_wheel().
        libraries: the folder with lib/ and sim/.
        machine: as the tag calls it.
        manuals: pages by their file's name.
        epoch: the time of every file.

    Returns:
        Its file name and its bytes.
    """
    (info,) = {name.split("/")[0] for name in pure if name.endswith(".dist-info/WHEEL")}
    major, minor = GLIBC.split(".")
    # The older name of the same promise is the one that pip before 20.3 knows.
    platforms = (f"manylinux_{major}_{minor}_{machine}", f"manylinux2014_{machine}")
    tree = {name: entry for name, entry in pure.items() if name != f"{info}/RECORD"}
    for name, entry in archives.read_tree(libraries).items():
        tree[f"gpufence/{name}"] = entry
    data = info.replace(".dist-info", ".data")
    for name, page in manuals.items():
        tree[f"{data}/data/share/man/man1/{name}"] = Entry(page)
    head = _with_tags(pure[f"{info}/WHEEL"].content.decode(), platforms)
    tree[f"{info}/WHEEL"] = Entry(head.encode())
    tree[f"{info}/RECORD"] = Entry(_record(tree, f"{info}/RECORD"))
    last = [name for name in tree if name.startswith(f"{info}/")]
    stem = info.removesuffix(".dist-info")
    return f"{stem}-py3-none-{'.'.join(platforms)}.whl", archives.zip_file(tree, epoch, last)


# Implementation.


def _backend(function: str, source: Path, folder: Path, epoch: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _BACKEND, function, str(folder)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout + done.stderr)
        raise ReleaseError(f"`{function}` of scikit-build-core failed, as above.")
    return done.stdout.split()[-1]


def _with_tags(head: str, platforms: tuple[str, ...]) -> str:
    kept = [
        line for line in head.splitlines() if line and not line.startswith(("Tag:", "Root-Is-"))
    ]
    tags = [f"Tag: py3-none-{platform}" for platform in platforms]
    return "\n".join([*kept, "Root-Is-Purelib: false", *tags]) + "\n"


def _record(tree: dict[str, Entry], own: str) -> bytes:
    lines = []
    for name, entry in sorted(tree.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.content).digest()).rstrip(b"=")
        lines.append(f"{name},sha256={digest.decode()},{len(entry.content)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""
