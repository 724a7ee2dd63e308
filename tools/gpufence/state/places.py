"""Where a container's files belong: the library's rule, for commands that make files or explain.

As StandingOf and FolderOf in lib/src/state/shared_file.cpp and hooks/container.h have it: what
decides is the same for every user. Must not know what is in the files. Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from . import shared_layout as layout

# Where no folder is named.
USUAL = ("/run/gpufence", "/dev/shm", "/tmp")
_FOR_EVERYBODY = stat.S_IWOTH | stat.S_IXOTH


def of(named: str | None) -> tuple[Path, ...]:
    """The folders that the library looks into; a named one is the only one.

    Args:
        named: GPUFENCE_STATE_DIR or the config file's; empty or None where there is none.
    """
    return (Path(named),) if named else tuple(map(Path, USUAL))


def why_passed_by(folder: Path) -> str:
    """Why no process of any container keeps files in one of several folders; "" if they do.

    Raises:
        OSError: this user cannot find out; the library refuses then.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if found.st_mode & _FOR_EVERYBODY != _FOR_EVERYBODY:
        return "is not for every user to write to"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "is on a read-only file system"
    return ""


def home(folders: tuple[Path, ...], container: str) -> Path | None:
    """The folder of the container's region, or the one where the library would make it now.

    Returns:
        None where none of several folders is for every user.

    Raises:
        OSError: this user cannot find out.
    """
    if len(folders) == 1:
        return folders[0]
    usable = [folder for folder in folders if not why_passed_by(folder)]
    name = f"gpufence-{container}.v{layout.REGION_VERSION}"
    holding = [folder for folder in usable if os.path.lexists(folder / name)]
    return next(iter(holding or usable), None)
