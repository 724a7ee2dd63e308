"""Whose a process is: the state folder that it sees at the library's place says so.

The kernel shows it, so nothing that a process says counts. Needs the machine's process numbers and
SYS_PTRACE; must not know what the answer is for.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gpufence.cdi import cdi_spec


def identity(path: Path) -> tuple[int, int] | None:
    """Which folder or namespace it is; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def seen_by(pid: int) -> tuple[int, int] | None:
    """The state folder that a process sees. Its own links lead nowhere, least of all to ours."""
    if pid <= 0:
        return None
    flags = os.O_PATH | os.O_DIRECTORY
    with contextlib.ExitStack() as opened:
        try:
            folder = os.open(f"/proc/{pid}/root", flags)
            opened.callback(os.close, folder)
            for name in Path(cdi_spec.STATE_PATH).parts[1:]:
                folder = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
                opened.callback(os.close, folder)
            found = os.fstat(folder)
        except OSError:
            return None
    return found.st_dev, found.st_ino
