"""Put the library where programs load it from, so that no program starts without it meanwhile.

    gpufence install /opt/gpufence                                   # a node, for its containers
    gpufence install /usr/lib/gpufence --preload /etc/ld.so.preload  # every program of this system
    gpufence install /usr/lib/gpufence --preload /etc/ld.so.preload --remove

Each file is written beside its place and renamed over the old one: a program that starts meanwhile
loads the old library or the new one, and running programs keep theirs. The preload file is written
last and taken back first, so that it never names a library that is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpufence import locate
from gpufence.errors import ExitCode, ToolError

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "done, or nothing had to change",
    1: "a file cannot be written, or the library is missing",
    2: "wrong usage, or a DIR that the loader cannot name",
}

_MODE = 0o644
_FOLDER_MODE = 0o755
_LIBRARY = "libgpufence.so"
_NAMES = (_LIBRARY, "libgpufence-addpath.so", "ld.so.preload", "ld.so.preload.addpath")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; no variable stands for one."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="where the files go")
    parser.add_argument("--lib", metavar="FILE", help="another libgpufence.so than the package's")
    parser.add_argument(
        "--preload",
        metavar="FILE",
        help="also name the library in this file, such as /etc/ld.so.preload; other lines stay",
    )
    parser.add_argument("--remove", action="store_true", help="take everything away again")
    parser.add_argument("--json", action="store_true", help="one object, schema 1")


def run(args: argparse.Namespace) -> ExitCode:
    """Install or remove, and say what changed.

    Raises:
        ToolError: 1 or 2, as the module says; what was not reached is as it was.
    """
    folder = Path(os.path.abspath(args.folder))
    preload = Path(os.path.abspath(args.preload)) if args.preload else None
    try:
        changed = remove(folder, preload) if args.remove else install(folder, args.lib, preload)
    except OSError as error:
        raise ToolError(
            what=f"'{error.filename2 or error.filename or folder}' cannot be changed",
            why=(error.strerror or str(error)).lower(),
            fix="Run this as a user who may write there",
        ) from None
    if args.json:
        done = "removed" if args.remove else "installed"
        print(json.dumps({"schema": 1, done: [str(path) for path in changed]}, indent=2))
        return ExitCode.OK
    for path in changed:
        print(f"{'removed' if args.remove else 'installed'}  {path}")
    if not changed:
        print("nothing to change")
    return ExitCode.OK


def install(folder: Path, library: str | None, preload: Path | None) -> list[Path]:
    """Write what differs, the preload file last; the paths that were written."""
    sources = _sources(library)
    _refuse_unnameable(folder)
    _make_folder(folder)
    changed = [
        folder / name
        for name in _NAMES
        if replace(folder / name, sources[name].read_bytes(), mode=_MODE)
    ]
    if preload is not None and _rewrite(preload, folder / _LIBRARY, named=True):
        changed.append(preload)
    return changed


def remove(folder: Path, preload: Path | None) -> list[Path]:
    """Take the preload file's line away first, then the files; the paths that changed."""
    changed = []
    if preload is not None and _rewrite(preload, folder / _LIBRARY, named=False):
        changed.append(preload)
    for name in _NAMES:
        path = folder / name
        if path.exists():
            path.unlink()
            changed.append(path)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return changed


def replace(path: Path, content: bytes, *, mode: int) -> bool:
    """Give a file this content and mode by a rename; False where it has both already.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    if _is(path, content, mode):
        return False
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # Readable by everybody and on the disk before it gets the name that programs load.
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    _sync_folder(path.parent)
    return True


# Implementation.


def _sources(library: str | None) -> dict[str, Path]:
    try:
        found = locate.library(library)
    except ToolError as error:
        raise ToolError(what=error.what, why=error.why, fix=error.fix) from None
    return {
        _LIBRARY: found,
        "libgpufence-addpath.so": locate.addpath(found),
        "ld.so.preload": locate.preload_file(found, with_addpath=False),
        "ld.so.preload.addpath": locate.preload_file(found, with_addpath=True),
    }


def _refuse_unnameable(folder: Path) -> None:
    problem = locate.unnameable(folder)
    if problem:
        raise ToolError(
            what=f"'{folder}' refused",
            why=problem,
            fix="Choose another folder",
            status=ExitCode.USAGE,
        )


def _make_folder(folder: Path) -> None:
    """The folder and those above it, open to every user whatever the umask is."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir()
    folder.chmod(_FOLDER_MODE)


def _is(path: Path, content: bytes, mode: int) -> bool:
    try:
        status = path.lstat()
        return (
            stat.S_ISREG(status.st_mode)
            and stat.S_IMODE(status.st_mode) == mode
            and path.read_bytes() == content
        )
    except OSError:
        return False


def _rewrite(preload: Path, library: Path, *, named: bool) -> bool:
    """Let the preload file name the library or not; False where it does already.

    A file in which nothing is left is removed.
    """
    try:
        lines = preload.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    kept = _without(lines, str(library))
    if named and kept != lines:
        return False
    wanted = [*lines, str(library)] if named else kept
    if wanted == lines:
        return False
    if not wanted:
        preload.unlink()
        _sync_folder(preload.parent)
        return True
    return replace(preload, "".join(f"{line}\n" for line in wanted).encode(), mode=_MODE)


def _without(lines: Sequence[str], library: str) -> list[str]:
    """The lines without that library; the loader splits them at blanks and colons, too."""
    kept = []
    for line in lines:
        text = line.partition("#")[0]
        words = text.replace(":", " ").split()
        if library not in words:
            kept.append(line)
        elif others := [word for word in words if word != library]:
            kept.append(" ".join(others))
    return kept


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
