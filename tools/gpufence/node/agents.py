"""One agent for each folder: the lock that says so, and whether somebody holds it.

Must not know what an agent does.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

from gpufence.errors import ToolError

_LOCK = "lock"
_LOCKS = Path("/proc/locks")


def only_one(folder: Path) -> TextIO:
    """Hold the folder's lock while the answer is open.

    Raises:
        ToolError: exit 1, another agent has it.
    """
    file = (folder / _LOCK).open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ToolError(
            what=f"'{folder}' refused",
            why="another agent runs with it",
            fix="End that one, or name another folder in the configuration",
        ) from None
    return file


def is_running(folder: Path) -> bool:
    """Whether an agent has this folder, for who sees the machine's process numbers.

    It is read off, never tried: an agent that starts at that moment would be refused.
    """
    try:
        found = (folder / _LOCK).stat()
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    mark = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(_holds(line.split(), mark) for line in lines)


def _holds(words: list[str], mark: str) -> bool:
    """Of `1: FLOCK  ADVISORY  WRITE 4711 08:02:12345 0 EOF`; who waits has "->" in between."""
    return words[1:2] == ["FLOCK"] and mark in words
