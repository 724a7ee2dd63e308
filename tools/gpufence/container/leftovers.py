"""What unnamed containers leave behind: found and removed once they have ended.

`gpufence run` becomes its command, so nobody stays to tidy up behind it, and a kill -9 leaves no
chance to; an engine's container just ends. The next `run` or `status` tidies up, or the next scrape
of `export --listen`. An unnamed container's name says which process its command is, or which
process 1 it began with (lifetimes.py). Owns the former and the removal; must not know what is in
the files. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from gpufence.state import shared_layout as layout
from gpufence.state.shared_file import FLOCK, is_gone, own_namespace, start_ticks

from . import lifetimes

# run-PID-TICKS-NAMESPACE-RANDOM; the last part tells apart what one process becomes by turns.
_FILE = re.compile(
    r"gpufence-(?P<name>run-(?P<pid>[0-9]+)-(?P<ticks>[0-9a-f]+)-(?P<namespace>[0-9a-f]+)"
    r"-[0-9a-f]{4})\.(?P<kind>.+)",
    re.DOTALL,
)
_OF_ENGINE = re.compile(
    r"gpufence-(?P<name>ns[0-9a-f]+-[0-9a-f]+-[0-9a-f]+)\.(?P<kind>.+)", re.DOTALL
)
_SHARED = re.compile(r"v[0-9]+|cores[0-9]+-[0-9a-f]{8}")

# For how long a file stays that nobody uses, where nobody can tell whether the command has ended:
# what processes share is worth nothing without one, but what an operator set is.
_SHARED_SECONDS = 3600.0
_SET_SECONDS = 30 * 86400.0
# An older draft has no maker any more.
_DRAFT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Left:
    """One file of an unnamed container.

    `is_shared` is what processes have places in; `seconds` is for how long it stays unused.
    """

    path: Path
    container: str
    is_shared: bool
    seconds: float


def new_name() -> str:
    """The name of a container whose command this process becomes."""
    return f"run-{os.getpid()}-{start_ticks():x}-{own_namespace():x}-{os.urandom(2).hex()}"


def command_lives(name: str) -> bool:
    """Whether it is a container of `gpufence run` whose command is known to live."""
    match = _FILE.fullmatch(f"gpufence-{name}.any")
    return match is not None and _is_here(match) and not _is_gone(match)


def _is_here(match: re.Match[str]) -> bool:
    return int(match["namespace"], 16) == own_namespace() != 0


def _is_gone(match: re.Match[str]) -> bool:
    return is_gone(int(match["pid"]), int(match["ticks"], 16))


def sweep(folders: Collection[Path]) -> None:
    """Remove the files of unnamed containers that have ended; what cannot be removed stays.

    Another user's are left to that user and to root.
    """
    found = [left for folder in folders for left in _left_in(folder)]
    found += _left_by_engines(folders)
    found.sort(key=attrgetter("container"))
    for _, files in itertools.groupby(found, attrgetter("container")):
        with contextlib.suppress(OSError):
            _remove(list(files))


def _named_in(folder: Path, beginning: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The files there whose name is one of that pattern, sorted."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith(beginning))
    except OSError:
        return []
    return [match for match in map(pattern.fullmatch, names) if match]


def _left_in(folder: Path) -> Iterator[_Left]:
    """The files there of containers whose command is not known to live."""
    for match in _named_in(folder, "gpufence-run", _FILE):
        here = _is_here(match)
        if here and not _is_gone(match):
            continue
        yield _left(folder, match, has_ended=here)


def _left_by_engines(folders: Iterable[Path]) -> Iterator[_Left]:
    """The same of containers that nobody named."""
    found = [
        (folder, match)
        for folder in folders
        for match in _named_in(folder, "gpufence-ns", _OF_ENGINE)
    ]
    if not found:
        return
    living = lifetimes.Living()
    for folder, match in found:
        life = living.of(match["name"])
        if life is not lifetimes.Life.ALIVE:
            yield _left(folder, match, has_ended=life is lifetimes.Life.ENDED)


def _left(folder: Path, match: re.Match[str], has_ended: bool) -> _Left:
    is_shared = _SHARED.fullmatch(match["kind"]) is not None
    seconds = _SHARED_SECONDS if is_shared else _SET_SECONDS
    if match["kind"].endswith(".new"):
        seconds = _DRAFT_SECONDS
    elif has_ended:
        seconds = 0.0
    return _Left(folder / match.string, match["name"], is_shared, seconds)


def _remove(files: list[_Left]) -> None:
    """Remove one container's files if nobody has a place in any, or is about to take one.

    They are locked all together, and those that are shared go last: whoever is killed in here
    leaves what the next one finds.
    """
    states = [file.path.lstat() for file in files]
    if any(not stat.S_ISREG(state.st_mode) for state in states):
        return
    if os.geteuid() != 0 and any(state.st_uid != os.geteuid() for state in states):
        return
    now = time.time()
    old = [f for f, state in zip(files, states, strict=True) if now - state.st_mtime >= f.seconds]
    with contextlib.ExitStack() as locks:
        for file in files:
            if file.is_shared:
                locks.enter_context(locked(file.path))
        for file in sorted(old, key=attrgetter("is_shared")):
            file.path.unlink()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep everybody from joining; the other side is in lib/src/state/shared_file.cpp.

    Raises:
        OSError: somebody has a place in it or is coming, or its name leads elsewhere by now.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        whole = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE, 0, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
        if not os.path.samestat(path.lstat(), os.fstat(fd)):
            raise FileNotFoundError
        yield
    finally:
        os.close(fd)
