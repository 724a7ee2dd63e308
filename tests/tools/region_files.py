"""Region and time files as the library would leave them, made without it, for tests of readers.

Knows the layout through gpufence.state.shared_layout, as the readers do.
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
_REGION = layout.structure("Region")
_REGION_HEADER = layout.structure("RegionHeader").fields(
    "magic", "layout_version", "max_processes", "max_devices", "high_slot"
)
_DEVICE_ROW = layout.structure("DeviceRow").fields("key", "uuid", "orphans")
_ACTIVITY = layout.structure("Activity").fields("refusals", "launches_held", "held_ns")
_CELL = layout.structure("Cell").fields("held", "asking")
_WORD = struct.Struct("<Q")
_PROCESS = layout.structure("ProcessRecord").fields("pid", "uid", "start_ticks", "pid_namespace")
_CORES = layout.structure("TimeBytes")
_CORE_HEADER = layout.structure("TimeHeader").fields(
    "magic", "layout_version", "max_rows", "max_tenants", "max_members", "high_member"
)
_CORE_ROW = layout.structure("TimeRow").fields(
    "key", "uuid", "turn", "foreign_ns", "author", "is_deep"
)
_TENANT = layout.structure("CoreTenant").fields(
    "key", "due_ns", "shares", "backlog_ns", "active_ns", "served_ns", "charged_ns", "terms"
)
_MEMBER = layout.structure("CoreMember").fields("tenant", "shares", "beat", "wanted_ns", "idle_ns")
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

    def put(self, offset: int, form: struct.Struct, *values: int | bytes) -> None:
        os.pwrite(self.fd, form.pack(*values), offset)

    def sign(self, records_at: int, slot: int, owner: Signed) -> None:
        """Write the slot's record and take or give back its lock."""
        at = records_at + _PROCESS.size * slot
        record = (owner.pid, owner.uid, owner.ticks, owner.namespace)
        self.put(at, _PROCESS, *record)
        kind = fcntl.F_WRLCK if owner.locked else fcntl.F_UNLCK
        lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, layout.LOCK_BASE + slot, 1, 0)
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, lock)


class RegionFile(_File):
    """A container's region; rows and slots are the caller's numbers."""

    def __init__(self, folder: Path, container: str = "web", slots: int = 8) -> None:
        name = f"gpufence-{container}.v{layout.REGION_VERSION}"
        super().__init__(folder / name, _REGION.bytes)
        places = (layout.MAX_PROCESSES, layout.MAX_DEVICES)
        header = (layout.REGION_MAGIC, layout.REGION_VERSION, *places, slots)
        self.put(0, _REGION_HEADER, *header)

    def device(self, row: int, orphans: int = 0, past: tuple[int, int, int] = (0, 0, 0)) -> bytes:
        """Claim a row; returns its UUID."""
        name = uuid(row)
        key = int.from_bytes(name[:8], "little")
        at = _REGION.at("rows") + _DEVICE_ROW.size * row
        self.put(at, _DEVICE_ROW, key, name, 3 << layout.ORPHAN_BITS | orphans)
        self.put(_REGION.at("past") + _ACTIVITY.size * row, _ACTIVITY, *past)
        return name

    def process(self, slot: int, owner: Signed) -> None:
        self.sign(_REGION.at("processes"), slot, owner)

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
        self.put(_REGION.at("ratios") + _WORD.size * place, _WORD, ratio)
        self.put(_REGION.at("limits") + _WORD.size * place, _WORD, limit)
        self.put(_REGION.at("overhead") + _WORD.size * place, _WORD, overhead)
        self.put(_REGION.at("cells") + _CELL.size * place, _CELL, held, asking)
        self.put(_REGION.at("activity") + _ACTIVITY.size * place, _ACTIVITY, *activity)


class TimeFile(_File):
    """A time file; rows, tenants and members are the caller's numbers."""

    def __init__(self, folder: Path, name: str = "node", clock: int = 0, members: int = 8) -> None:
        name = f"gpufence-{name}.cores{layout.TIME_VERSION}-{clock:08x}"
        super().__init__(folder / name, _CORES.bytes)
        places = (layout.MAX_TIME_ROWS, layout.MAX_CORE_TENANTS, layout.MAX_CORE_MEMBERS)
        header = (layout.TIME_MAGIC, layout.TIME_VERSION, *places, members)
        self.put(0, _CORE_HEADER, *header)

    def device(
        self, row: int, turn: int = 0, foreign_ns: int = 0, author: int = 0, deep: bool = False
    ) -> bytes:
        name = uuid(row)
        at = _CORES.at("rows") + _CORE_ROW.size * row
        key = int.from_bytes(name[:8], "little")
        self.put(at, _CORE_ROW, key, name, turn, foreign_ns, author, deep)
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
        packed = shares[0] | shares[1] << 32
        words = (key, due_ns, packed, 11, 12, served_ns, charged_ns, terms)
        self.put(_CORES.at("tenants") + _TENANT.size * place, _TENANT, *words)

    def member(self, row: int, number: int, tenant: int, owner: Signed, beat: int = 0) -> None:
        self.sign(_CORES.at("processes"), number, owner)
        place = layout.MAX_CORE_MEMBERS * row + number
        at = _CORES.at("members") + _MEMBER.size * place
        shares = 30_000 | 60_000 << 32
        self.put(at, _MEMBER, tenant + 1, shares, beat, 5, 6)
