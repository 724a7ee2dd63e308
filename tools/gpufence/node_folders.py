"""Node folders that only a program's own environment or file names: found by what it has mapped.

A program that holds a core limit has the core file mapped, wherever that lies. Must not know what
such a file says (core_file.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import core_file
from .region import Region
from .shared_file import Life

_MAPPED = re.compile(r" (/\S.*)/gpufence-[^/]+\.cores[^/]*$", re.MULTILINE)


def core_files(
    environment: Mapping[str, str], folder: str | None, regions: Iterable[Region]
) -> list[Path]:
    """Every core file of the usual folders, and of those that living processes use.

    Args:
        environment: as core_file.find takes it.
        folder: the only one to look into; None for the usual ones and the processes' own.
        regions: of the containers whose processes are asked.
    """
    found = core_file.find(environment, folder)
    if folder is not None:
        return found
    pids = {
        owner.pid
        for each in regions
        for owner in each.owners
        if owner.life is Life.ALIVE and not owner.foreign
    }
    known = {_identity(path) for path in found}
    for own in sorted({each for pid in pids for each in _folders(pid)}):
        for path in core_file.find({}, str(own)):
            if _identity(path) not in known:
                known.add(_identity(path))
                found.append(path)
    return found


def _folders(pid: int) -> set[Path]:
    """Where a process has core files from, as this process can reach them."""
    try:
        maps = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    except OSError:
        return set()
    # Its own root: the path is of its mount namespace.
    return {Path(f"/proc/{pid}/root{text}") for text in _MAPPED.findall(maps)}


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino
