"""How a container that has ended is forgotten: all of its files, or none.

The same locks as leftovers.py takes keep a program from joining meanwhile. Must not know commands.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from gpufence.errors import ToolError

from . import leftovers
from .containers import Container

_KIND = re.compile(r"v[0-9]+|cores[0-9]+-[0-9a-f]{8}|limits[0-9]+(\.history)?(\.new)?")
_SHARED = re.compile(r"v[0-9]+|cores[0-9]+-[0-9a-f]{8}")


def files_of(name: str, folders: Iterable[Path]) -> list[Path]:
    """Every file that a container of this name has there; what programs share comes last."""
    beginning = f"gpufence-{name}."
    found = [
        path
        for folder in folders
        for path in _listed(folder)
        if path.name.startswith(beginning) and _KIND.fullmatch(path.name[len(beginning) :])
    ]
    return sorted(found, key=lambda path: (_is_shared(path, beginning), path))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_shared(path: Path, beginning: str) -> bool:
    return _SHARED.fullmatch(path.name[len(beginning) :]) is not None


def remove(container: Container, folders: Iterable[Path], *, dry_run: bool) -> list[Path]:
    """Remove its files, limits included; which ones.

    Raises:
        ToolError: 1, where a program of it lives, it is another user's, or a file stays.
    """
    beginning = f"gpufence-{container.name}."
    files = files_of(container.name, folders)
    _check_owner(container, files)
    with contextlib.ExitStack() as locks:
        for path in files:
            if _is_shared(path, beginning):
                _lock(container, path, locks)
        if not dry_run:
            _unlink(container, files)
    return files


def _unlink(container: Container, files: Iterable[Path]) -> None:
    try:
        for path in files:
            path.unlink(missing_ok=True)
    except OSError as error:
        why = f"{error.filename}: {(error.strerror or str(error)).lower()}"
        raise _kept(container, why, "Run this as root") from None


def _check_owner(container: Container, files: Iterable[Path]) -> None:
    for path in files:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise _kept(container, f"{path} is no regular file", "Remove that one by hand")
        if os.geteuid() not in (0, found.st_uid):
            why = f"it is user {found.st_uid}'s"
            raise _kept(container, why, "Run this as that user or as root")


def _lock(container: Container, path: Path, locks: contextlib.ExitStack) -> None:
    try:
        locks.enter_context(leftovers.locked(path))
    except FileNotFoundError:
        pass  # somebody else has just removed it
    except OSError:
        why = "a program of it is running"
        fix = f"End its programs, which `gpufence status {container.name}` lists"
        raise _kept(container, why, fix) from None


def _kept(container: Container, why: str, fix: str) -> ToolError:
    return ToolError(what=f"container '{container.name}' not removed", why=why, fix=fix)
