"""What /proc says of a running process: the files it has mapped and how it was started.

Owns the formats of proc(5); must not judge what it reads.
"""

from __future__ import annotations

import os
import pwd
import struct
from dataclasses import dataclass
from pathlib import Path

from gpufence.errors import ToolError

_AT_SECURE = 23  # <linux/auxvec.h>: the loader ignores LD_PRELOAD when this is set
_AT_NULL = 0


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file of a process's address space, all of its segments taken together."""

    path: str
    deleted: bool  # the file was replaced or removed after it was mapped
    ranges: tuple[tuple[int, int], ...]  # [start, end) addresses

    @property
    def name(self) -> str:
        """The last part of the path, such as libcuda.so.550.163.01."""
        return self.path.rpartition("/")[2]

    def holds(self, address: int) -> bool:
        """Whether the address lies inside the file's segments."""
        return any(start <= address < end for start, end in self.ranges)


@dataclass(frozen=True, slots=True)
class Process:
    """A running process, as far as this user may look into it."""

    pid: int
    command: str
    files: tuple[MappedFile, ...]
    preloads: tuple[str, ...]  # LD_PRELOAD's entries when the process was started
    secure: bool  # set-uid, set-gid or file capabilities
    environment: tuple[str, ...] = ()  # "NAME=TEXT" as Latin-1, when the process was started

    def find(self, prefix: str) -> MappedFile | None:
        """The first mapped file whose name starts with `prefix`."""
        return next((file for file in self.files if file.name.startswith(prefix)), None)


def read(pid: int) -> Process:
    """Read one process.

    Raises:
        ToolError: exit 1, when it is gone, another user's, or a kernel thread without memory.
    """
    folder = Path("/proc") / str(pid)
    try:
        maps = os.fsdecode((folder / "maps").read_bytes())
        environ = (folder / "environ").read_bytes().decode("latin-1")
        auxv = (folder / "auxv").read_bytes()
        command = os.fsdecode((folder / "comm").read_bytes()).rstrip("\n")
    except PermissionError:
        raise ToolError(
            what=f"cannot look into process {pid}",
            why="the kernel does not let this user read it",
            fix="Run `gpufence doctor` as the process's own user or as root",
        ) from None
    except OSError:
        raise ToolError(
            what=f"no process {pid}",
            why="it does not exist or has ended",
            fix="Find the right number with `ps`; inside a container the numbers differ",
        ) from None
    preloads = parse_preloads(os.fsdecode(environ.encode("latin-1")))
    variables = tuple(entry for entry in environ.split("\0") if "=" in entry)
    return Process(pid, command, parse_maps(maps), preloads, parse_secure(auxv), variables)


def read_all() -> tuple[list[Process], int]:
    """Every process of this pid namespace by number, and how many this user may not read.

    Kernel threads and whatever ends meanwhile are left out.
    """
    found = []
    unreadable = 0
    numbers = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    for pid in numbers:
        subject = _read_if_possible(pid)
        if subject is not None:
            found.append(subject)
        elif Path(f"/proc/{pid}").exists() and not _is_kernel_thread(pid):
            unreadable += 1
    return found, unreadable


def _read_if_possible(pid: int) -> Process | None:
    try:
        return read(pid)
    except ToolError:
        return None


def _is_kernel_thread(pid: int) -> bool:
    """It has no memory of its own, hence no size in /proc/PID/statm."""
    try:
        return Path(f"/proc/{pid}/statm").read_text(encoding="ascii").startswith("0 ")
    except OSError:
        return True


def user_name(uid: int) -> str:
    """The user's name here, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def parse_maps(text: str) -> tuple[MappedFile, ...]:
    """The files in the text of /proc/PID/maps, in address order; anonymous memory is left out."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for line in text.split("\n"):  # the only character that the kernel escapes in a file's name
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            start, _, end = fields[0].partition("-")
            ranges.setdefault(fields[5], []).append((int(start, 16), int(end, 16)))
    return tuple(
        MappedFile(path.removesuffix(" (deleted)"), path.endswith(" (deleted)"), tuple(spans))
        for path, spans in ranges.items()
    )


def parse_preloads(environ: str) -> tuple[str, ...]:
    """LD_PRELOAD's entries in the text of /proc/PID/environ."""
    for entry in environ.split("\0"):
        if entry.startswith("LD_PRELOAD="):
            return tuple(entry.removeprefix("LD_PRELOAD=").replace(":", " ").split())
    return ()


def parse_secure(auxv: bytes) -> bool:
    """Whether the auxiliary vector of a 64-bit process has AT_SECURE set."""
    for key, value in struct.iter_unpack("QQ", auxv[: len(auxv) // 16 * 16]):
        if key == _AT_NULL:
            break
        if key == _AT_SECURE:
            return bool(value)
    return False
