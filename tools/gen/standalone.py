"""`hookgen render --standalone DIR`: a source tree that builds with cmake and without Python.

Owns which parts of a checkout such a tree needs. Must not know what the build does with them:
lib/CMakeLists.txt takes the rendered files from `gen/` beside `lib/` when they are there.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from .errors import HookgenError
from .written import write_if_changed

_LIBRARY_PARTS = ("CMakeLists.txt", "cmake", "sim", "src")
# What `cmake --install` puts beside the library.
_ROOT_PARTS = ("LICENSE", "deploy/ld.so.preload", "deploy/ld.so.preload.addpath")

_BUILD_TEXT = """\
gpufence, as plain sources: rendered for one API model, no Python needed.

    cmake -S lib -B build -G Ninja && cmake --build build

gives build/lib/libgpufence.so and the simulated driver in build/sim. The exports are those of
gen/exports.map. `cmake --install build --prefix DIR` puts them into DIR/gpufence.

To change what is rendered, work in a checkout: `hookgen render --standalone`.
"""


def checkout_for(folder: Path) -> Path:
    """The checkout whose sources a tree in this folder would have.

    Raises:
        HookgenError: DIR is in use, or there is no checkout to copy from.
    """
    checkout = Path(__file__).resolve().parent.parent.parent
    if not (checkout / "lib" / "CMakeLists.txt").is_file():
        raise HookgenError(
            "no standalone tree written",
            "this hookgen is installed without the library's sources",
            "Run it from a checkout: `python -m gen render` with PYTHONPATH=tools.",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HookgenError(
            f"no standalone tree written to {folder}",
            "something is there already, and stale sources would be built too",
            "Name a new folder or remove this one.",
        )
    return checkout


def write_tree(checkout: Path, folder: Path, texts: Mapping[str, str]) -> None:
    """Write the tree.

    Args:
        checkout: as checkout_for.
        folder: new or empty.
        texts: the rendered files, by name.

    Raises:
        HookgenError: writing fails.
    """
    try:
        _copy(checkout, folder)
    except OSError as error:
        raise HookgenError(
            f"{error.filename or folder} cannot be written",
            error.strerror or str(error),
            "Name a folder that can be written.",
        ) from error
    for name, text in texts.items():
        write_if_changed(folder / "gen" / name, text)
    write_if_changed(folder / "BUILD.txt", _BUILD_TEXT)


# Implementation.


def _copy(checkout: Path, folder: Path) -> None:
    for source, target in (
        *((checkout / "lib" / part, folder / "lib" / part) for part in _LIBRARY_PARTS),
        *((checkout / part, folder / part) for part in _ROOT_PARTS),
    ):
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
