"""Files that the library's processes share: found, opened and read without trusting a byte.

Owns where they may be, how their bytes are taken, and whether who signed a slot still lives. Opens
for reading only and makes nothing: looking must not change what is looked at. Must not know what
the tables mean (region.py, time_file.py). Standard library only.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from gpufence.errors import ToolError

from . import places
from . import shared_layout as layout

FLOCK = "hhqqi4x"  # struct flock of a 64-bit system

_PROCESS = layout.structure("ProcessRecord").fields("pid", "uid", "start_ticks", "pid_namespace")

_Read = TypeVar("_Read")


class RegionError(ToolError):
    """A file that cannot be read as what its name says; exit status 1."""

    def __init__(self, path: Path, why: str, fix: str) -> None:
        super().__init__(what=f"cannot read {path}", why=why, fix=fix)
        self.path = path


class Life(enum.Enum):
    """Whether the process that signed a slot still lives."""

    ALIVE = "alive"
    GONE = "gone"  # its lock is free, or its number belongs to nobody or to another process


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that signed a slot.

    `pid` is its number in its own pid namespace, of which `pid_namespace` is the inode (0:
    unknown); `foreign` says that this is not ours, so that the number means another process here,
    or none. `start_ticks` is field 22 of /proc/PID/stat (0: unknown).
    """

    slot: int
    pid: int
    uid: int
    start_ticks: int
    pid_namespace: int
    foreign: bool
    life: Life


def folders(environment: Mapping[str, str], given: str | None = None) -> tuple[Path, ...]:
    """Where containers' files may be, in the library's order: of all containers, not of one.

    Args:
        environment: GPUFENCE_STATE_DIR and GPUFENCE_NODE_DIR are looked at.
        given: the only folder to look into; None for the usual ones.
    """
    if given is not None:
        return (Path(given),)
    own = (environment.get("GPUFENCE_STATE_DIR", ""), environment.get("GPUFENCE_NODE_DIR", ""))
    named = [text for text in own if text.startswith("/")]
    return tuple(dict.fromkeys(Path(text) for text in (*named, *places.USUAL)))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of shared file, as its names and its first words tell it from others.

    Of a name that `name` matches, the first group is the container's, and the second the number of
    the layout. `pattern` finds candidates; `whose` are the containers whose library wrote the file.
    """

    title: str
    pattern: str
    name: re.Pattern[str]
    magic: int
    version: int
    whose: str

    def find(self, environment: Mapping[str, str], folder: str | None = None) -> list[Path]:
        """Files of this kind, of any version, in the usual folders or the given one."""
        found = matching(folders(environment, folder), self.pattern)
        return [path for path in found if self.name.fullmatch(path.name)]

    def named(self, path: Path) -> re.Match[str] | None:
        """The parts of a file's name; None where it is called otherwise.

        Raises:
            RegionError: the name is one of another version.
        """
        found = self.name.fullmatch(path.name)
        if found is not None and int(found[2]) != self.version:
            raise self._of_other_version(path, int(found[2]))
        return found

    def check(self, file: SharedFile, magic: int, version: int) -> None:
        """Whether a file begins as this kind does.

        Raises:
            RegionError: it does not, or is of another version.
        """
        if magic != self.magic:
            raise file.broken(f"it does not begin as a {self.title} does")
        if version != self.version:
            raise self._of_other_version(file.path, version)

    def _of_other_version(self, path: Path, found: int) -> RegionError:
        return RegionError(
            path,
            f"its layout is {found}, and this gpufence reads layout {self.version}",
            f"Use the gpufence that came with the library of {self.whose}",
        )


def matching(looked: tuple[Path, ...], pattern: str) -> Iterator[Path]:
    """Regular files with a name of that pattern, place by place, sorted; no link is followed.

    A place that does not exist or may not be read holds none.
    """
    for place in looked:
        try:
            found = sorted(place.glob(pattern))
        except OSError:
            continue
        yield from (path for path in found if _is_regular(path))


def read_each(
    read: Callable[[Path], _Read], paths: Iterable[Path]
) -> tuple[list[_Read], list[RegionError]]:
    """What can be read, and why the rest cannot."""
    answers = [_try(read, path) for path in paths]
    errors = [answer for answer in answers if isinstance(answer, RegionError)]
    return [answer for answer in answers if not isinstance(answer, RegionError)], errors


def _try(read: Callable[[Path], _Read], path: Path) -> _Read | RegionError:
    try:
        return read(path)
    except RegionError as error:
        return error


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


class SharedFile:
    """An open file of a known size; `with` closes it.

    Reads copy: nothing is mapped, so a file that shrinks meanwhile is an error and no signal.
    """

    def __init__(self, path: Path, file_bytes: int) -> None:
        """Open it.

        Raises:
            RegionError: it cannot be opened, or is not of that size.
        """
        self.path = path
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._fd = os.open(path, flags)
        except OSError as error:
            raise self.broken(*_why_not_opened(error)) from None
        found = os.fstat(self._fd)
        if stat.S_ISREG(found.st_mode) and found.st_size == file_bytes:
            return
        os.close(self._fd)
        raise self.broken(
            f"it has {found.st_size} bytes where {file_bytes} belong"
            if stat.S_ISREG(found.st_mode)
            else "it is no regular file"
        )

    def __enter__(self) -> SharedFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`.

        Raises:
            RegionError: they are not there any more, or the disk refuses them.
        """
        try:
            got = os.pread(self._fd, count, offset)
        except OSError as error:
            raise self.broken((error.strerror or "unreadable").lower()) from None
        if len(got) != count:
            raise self.broken("it ended while it was read")
        return got

    def owners(self, offset: int, count: int) -> Iterator[Owner]:
        """Who signed the `count` slots whose records begin at `offset`; free slots are left out."""
        here = own_namespace()
        records = self.read(offset, _PROCESS.size * count)
        for slot, record in enumerate(_PROCESS.iter_unpack(records)):
            pid, uid, ticks, namespace = record
            if pid == 0:
                continue
            foreign = here == 0 or namespace != here
            gone = not self._is_locked(slot) or (not foreign and is_gone(pid, ticks))
            life = Life.GONE if gone else Life.ALIVE
            yield Owner(slot, pid, uid, ticks, namespace, foreign, life)

    def broken(self, why: str, fix: str = "") -> RegionError:
        """The error to raise about this file."""
        remedy = fix or "Remove the file once none of its container's processes lives"
        return RegionError(self.path, why, remedy)

    def _is_locked(self, slot: int) -> bool:
        """Whether somebody holds the slot's lock: he lives, or a child that inherited it does."""
        return _any_locked(self._fd, layout.LOCK_BASE + slot, 1)


def is_in_use(path: Path) -> bool:
    """Whether a process may still have a place in the file, whatever its layout."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # no proof that nobody has
    try:
        return _any_locked(fd, layout.LOCK_BASE, 0)
    finally:
        os.close(fd)


def uuid_text(raw: bytes) -> str:
    """The 16 bytes of a UUID as nvidia-smi -L prints them."""
    digits = raw.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


def _why_not_opened(error: OSError) -> tuple[str, str]:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied", "Run this as the container's user or as root"
    if error.errno == errno.ENOENT:
        return "it is gone", "Start it again"
    return (error.strerror or "unreadable").lower(), ""


def _any_locked(fd: int, start: int, count: int) -> bool:
    """Whether somebody else has a lock on one of the bytes; a count of 0 means to the end."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, count, 0)
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return True  # a file system without locks proves nobody's death
    return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)


def own_namespace() -> int:
    """Inode of our pid namespace; 0 when it cannot be read."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def start_ticks() -> int:
    """When this process began, as field 22 of its stat line; 0 when that cannot be read."""
    found = _stat_of(os.getpid())
    return found[2] if found else 0


def is_gone(pid: int, ticks: int) -> bool:
    """As AskPid in lib/src/state/owner.cpp: proven dead, or another process by now.

    Args:
        pid: in our own pid namespace.
        ticks: when it began, as field 22 of its stat line; 0 when nobody knows.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    found = _stat_of(pid) if ticks else None
    if found is None:
        return False
    state, threads, began = found
    return began != ticks or (state in "ZX" and threads <= 1)


def _stat_of(pid: int) -> tuple[str, int, int] | None:
    """State, threads and start; None where /proc does not tell, or is another pid namespace's."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()  # the command's name may hold blanks and brackets
        return fields[0], int(fields[17]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
