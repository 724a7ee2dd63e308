"""Region and core files as the library would leave them, made without it, for tests of readers.

Knows the layout through gpufence.shared_layout, which tests/state holds to the C++ headers.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gpufence.state import shared_layout as layout

GIB = 1 << 30
FOREIGN = 1  # no pid namespace has this inode


def uuid(number: int) -> bytes:
    """A UUID that says which it is."""
    return bytes([0xAB, number]) + bytes(range(2, 16))


def own_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@dataclass(frozen=True, slots=True)
class Signed:
    """Whom a slot belongs to; the default is a living process of another pid namespace."""

    pid: int = 7
    uid: int = 1000
    ticks: int = 1
    namespace: int = FOREIGN
    locked: bool = True


def this_process() -> Signed:
    pid = os.getpid()
    return Signed(pid, os.getuid(), start_ticks(pid), own_namespace())


class _File:
    """A sparse file that stays open, so that the locks of its slots stay held."""

    def __init__(self, path: Path, file_bytes: int) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self.fd, file_bytes)

    def __enter__(self) -> _File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self.fd)

    def put(self, offset: int, form: str, *values: int | bytes) -> None:
        os.pwrite(self.fd, struct.pack(form, *values), offset)

    def sign(self, records_at: int, slot: int, owner: Signed) -> None:
        """Write the slot's record and take or give back its lock."""
        at = records_at + layout.PROCESS_BYTES * slot
        record = (owner.pid, owner.uid, owner.ticks, owner.namespace)
        self.put(at, layout.PROCESS_FORMAT, *record)
        kind = fcntl.F_WRLCK if owner.locked else fcntl.F_UNLCK
        lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, layout.LOCK_BASE + slot, 1, 0)
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, lock)


class RegionFile(_File):
    """A container's region; rows and slots are the caller's numbers."""

    def __init__(self, folder: Path, container: str = "web", slots: int = 8) -> None:
        name = f"gpufence-{container}.v{layout.REGION_VERSION}"
        super().__init__(folder / name, layout.REGION_BYTES)
        places = (layout.MAX_PROCESSES, layout.MAX_DEVICES)
        header = (layout.REGION_MAGIC, layout.REGION_VERSION, *places, slots)
        self.put(0, layout.REGION_HEADER_FORMAT, *header)

    def device(self, row: int, orphans: int = 0, past: tuple[int, int, int] = (0, 0, 0)) -> bytes:
        """Claim a row; returns its UUID."""
        at = layout.ROWS_AT + layout.ROW_BYTES * row
        name = uuid(row)
        self.put(at, "<8s16s", name[:8], name)
        self.put(at + layout.ROW_ORPHANS_AT, "<Q", 3 << layout.ORPHAN_BITS | orphans)
        at = layout.PAST_AT + layout.ACTIVITY_BYTES * row
        self.put(at, layout.ACTIVITY_FORMAT, *past)
        return name

    def process(self, slot: int, owner: Signed) -> None:
        self.sign(layout.PROCESSES_AT, slot, owner)

    def use(
        self,
        row: int,
        slot: int,
        held: int = 0,
        asking: int = 0,
        overhead: int = 0,
        limit: int = 0,
        activity: tuple[int, int, int] = (0, 0, 0),
        ratio: int = 0,
    ) -> None:
        place = layout.MAX_PROCESSES * row + slot
        self.put(layout.RATIOS_AT + 8 * place, "<Q", ratio)
        self.put(layout.LIMITS_AT + 8 * place, "<Q", limit)
        self.put(layout.OVERHEAD_AT + 8 * place, "<Q", overhead)
        self.put(layout.CELLS_AT + layout.CELL_BYTES * place, layout.CELL_FORMAT, held, asking)
        at = layout.ACTIVITY_AT + layout.ACTIVITY_BYTES * place
        self.put(at, layout.ACTIVITY_FORMAT, *activity)


class CoreFile(_File):
    """A core file; rows, tenants and members are the caller's numbers."""

    def __init__(self, folder: Path, name: str = "node", clock: int = 0, members: int = 8) -> None:
        name = f"gpufence-{name}.cores{layout.CORE_VERSION}-{clock:08x}"
        super().__init__(folder / name, layout.CORE_BYTES)
        places = (layout.MAX_CORE_ROWS, layout.MAX_CORE_TENANTS, layout.MAX_CORE_MEMBERS)
        header = (layout.CORE_MAGIC, layout.CORE_VERSION, *places, members)
        self.put(0, layout.CORE_HEADER_FORMAT, *header)

    def device(
        self, row: int, turn: int = 0, foreign_ns: int = 0, author: int = 0, deep: bool = False
    ) -> bytes:
        name = uuid(row)
        at = layout.CORE_ROWS_AT + layout.CORE_ROW_BYTES * row
        key = int.from_bytes(name[:8], "little")
        self.put(at, layout.CORE_ROW_FORMAT, key, name, turn, 0, foreign_ns, author, deep)
        return name

    def tenant(
        self,
        row: int,
        number: int,
        key: int,
        shares: tuple[int, int] = (30_000, 60_000),
        due_ns: int = 0,
        served_ns: int = 0,
        charged_ns: int = 0,
        terms: int = 0,
    ) -> None:
        place = layout.MAX_CORE_TENANTS * row + number
        words = (key, due_ns, shares[0] | shares[1] << 32, 11, 12, served_ns, charged_ns)
        at = layout.TENANTS_AT + layout.CORE_TENANT_BYTES * place
        self.put(at, layout.CORE_TENANT_FORMAT, *words)
        self.put(at + layout.CORE_TENANT_TERMS_AT, "<Q", terms)

    def member(self, row: int, number: int, tenant: int, owner: Signed, beat: int = 0) -> None:
        self.sign(layout.CORE_PROCESSES_AT, number, owner)
        place = layout.MAX_CORE_MEMBERS * row + number
        at = layout.MEMBERS_AT + layout.CORE_MEMBER_BYTES * place
        shares = 30_000 | 60_000 << 32
        self.put(at, layout.CORE_MEMBER_FORMAT, tenant + 1, shares, beat, 5, 6)
