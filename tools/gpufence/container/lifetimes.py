"""What a container is called that nobody named, and whether it has ended.

The same name as OwnLifetime and NameLifetime in lib/src/state/identity.cpp make, found from outside
through /proc. Must not know what files a container has. Standard library only.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from gpufence.state.limits_bytes import check_of

_NAME = re.compile(r"ns(?P<namespace>[0-9a-f]+)-(?P<start>[0-9a-f]+)-[0-9a-f]{16}")
_HIDING = re.compile(r"\bhidepid=[^0o]")
_GET_ID = 0x8008B70D  # NS_GET_ID, Linux 6.18
_AT_FDCWD, _STATX_BTIME = -100, 0x800
_WORD = (1 << 64) - 1
# Of the machine's first processes; a constant of Linux (PROC_PID_INIT_INO).
FIRST_NAMESPACE = 0xEFFFFFFC


class Life(enum.Enum):
    """Whether a container that nobody named has ended."""

    ALIVE = "alive"
    ENDED = "ended"
    UNKNOWN = "unknown"  # nobody can tell from here


@dataclass(frozen=True, slots=True)
class Named:
    """What a name says: the pid namespace, and when its process 1 began (0: nobody knows)."""

    namespace: int
    start_ticks: int


def parse(name: str) -> Named | None:
    """None for a name that was given."""
    if match := _NAME.fullmatch(name):
        return Named(int(match["namespace"], 16), int(match["start"], 16))
    return None


def name_of(proc: Path, root: str) -> str:
    """The name of a process's container.

    Args:
        proc: the process's folder in /proc.
        root: where its view of the disk begins; "" for our own.
    """
    namespace = _inode(proc / "ns" / "pid")
    start = 0 if _hides(proc) else start_of(Path(f"{root}/proc/1"))
    found = Path(f"{root}/").stat()
    cgroups = _inode(Path(f"{root}/sys/fs/cgroup"))
    cgroups ^= _inode(Path(f"{root}/sys/fs/cgroup/memory")) << 32 & _WORD
    raw = struct.pack(
        "=9Q",
        check_of(_boot(root)),
        namespace,
        _id_of(proc / "ns" / "pid"),
        start,
        found.st_dev,
        found.st_ino,
        _born_ns(f"{root}/"),
        _born_ns(f"{root}/dev"),
        cgroups,
    )
    return f"ns{namespace:x}-{start:x}-{check_of(raw):016x}"


def start_of(proc: Path) -> int:
    """Field 22 of a process's stat line; 0 where that cannot be read."""
    try:
        text = (proc / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


class Living:
    """The pid namespaces in which somebody lives, as this user can see from here, now."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Look once."""
        own = _inode(proc / "self" / "ns" / "pid")
        self._starts: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._sees_all = own == FIRST_NAMESPACE
        for folder in proc.iterdir():
            if not folder.name.isdigit():
                continue
            numbers = _numbers(folder)
            # Who has one number alone is in our own namespace.
            namespace = _inode(folder / "ns" / "pid") or (own if len(numbers) == 1 else 0)
            if namespace == 0:
                self._sees_all = self._sees_all and not folder.exists()
                continue
            is_first = numbers[-1:] == [b"1"]
            start = start_of(folder) if is_first else 0
            if is_first or namespace not in self._pids:
                self._pids[namespace] = int(folder.name)
            self._starts[namespace] = start or self._starts.get(namespace, 0)

    def of(self, name: str) -> Life:
        """Of the container that nobody named but by this name.

        Ended: its namespace is gone, or has another process 1. Of a container with the machine's
        pids only our own can be told.
        """
        named = parse(name)
        if named is None or named.namespace == 0 or not self._sees_all:
            return Life.UNKNOWN
        if named.namespace == FIRST_NAMESPACE:
            return Life.ALIVE if name == self._own_name() else Life.UNKNOWN
        start = self._starts.get(named.namespace)
        if start is None:
            return Life.ENDED
        if 0 in (start, named.start_ticks):
            return Life.UNKNOWN
        return Life.ALIVE if start == named.start_ticks else Life.ENDED

    def process_of(self, name: str) -> int | None:
        """A process of the container, as we number it: its first one if it can be seen."""
        named = parse(name)
        if named is None or named.namespace == FIRST_NAMESPACE:
            return None
        return self._pids.get(named.namespace) if self.of(name) is not Life.ENDED else None

    def _own_name(self) -> str:
        try:
            return name_of(Path("/proc/self"), "")
        except OSError:
            return ""


def _numbers(folder: Path) -> list[bytes]:
    """A process's number in each pid namespace, from ours on inwards."""
    try:
        status = (folder / "status").read_bytes()
    except OSError:
        return []
    return status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _boot(root: str) -> bytes:
    """As the container sees it: LXC and systemd-nspawn give each of theirs a number of its own."""
    try:
        return Path(f"{root}/proc/sys/kernel/random/boot_id").read_bytes()[:63]
    except OSError:
        return b""


def _hides(proc: Path) -> bool:
    """Whether the mount of /proc hides processes; of several mounts the last one is on top."""
    try:
        text = (proc / "mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    lines = [line for line in text.splitlines() if line.split(" ", 5)[4:5] == ["/proc"]]
    return bool(lines and _HIDING.search(lines[-1]))


def _id_of(namespace: Path) -> int:
    try:
        fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    word = bytearray(8)
    try:
        fcntl.ioctl(fd, _GET_ID, word)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return int.from_bytes(word, "little")


def _born_ns(path: str) -> int:
    """When a file was made; 0 where the file system does not say."""
    found = ctypes.create_string_buffer(256)
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return 0
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return 0
    mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", found)
    return (seconds * 10**9 + nanoseconds) & _WORD if mask & _STATX_BTIME else 0
