"""A container's region file, read from outside: limits, charges and what the limits did.

Knows its words through shared_layout.py; a moment's view, table by table. Takes no slot, heals
nothing, trusts no byte. Must not know commands or output. Standard library only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import shared_layout as layout
from .shared_file import (
    Kind,
    Life,
    Owner,
    RegionError,
    SharedFile,
    read_each,
    uuid_text,
)

_KIND = Kind(
    title="region",
    pattern="gpufence-*.v*",
    name=re.compile(r"gpufence-(.+)\.v([0-9]{1,9})", re.DOTALL),
    magic=layout.REGION_MAGIC,
    version=layout.REGION_VERSION,
    whose="that container",
)

_REGION = layout.structure("Region")
_HEADER = layout.structure("RegionHeader").fields(
    "magic", "layout_version", "max_processes", "max_devices", "high_slot"
)
_ROW = layout.structure("DeviceRow").fields("key", "uuid", "orphans")
_WORD = struct.Struct("<Q")
_CELL = layout.structure("Cell").fields("held", "asking")
_ACTIVITY = layout.structure("Activity").fields("refusals", "launches_held", "held_ns")
_CEILINGS = layout.structure("Ceilings").fields("memory_bytes", "shares")


@dataclass(frozen=True, slots=True)
class Activity:
    """What limits did, counted since the process or the container began.

    `refusals` requests for memory failed for the limit's sake; `launches_held` launches waited,
    `held_ns` nanoseconds all together.
    """

    refusals: int = 0
    launches_held: int = 0
    held_ns: int = 0

    def __add__(self, other: Activity) -> Activity:
        return Activity(
            self.refusals + other.refusals,
            self.launches_held + other.launches_held,
            self.held_ns + other.held_ns,
        )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What an operator's file allows at most, whatever is set; None: anything.

    `cores` and `soft_cores` are thousandths of a percent.
    """

    memory_bytes: int | None = None
    cores: int | None = None
    soft_cores: int | None = None


NO_CEILING = Ceiling()


@dataclass(frozen=True, slots=True)
class Use:
    """One process on one device, in bytes.

    `held_bytes` is granted; `asking_bytes` is being decided right now; `overhead_bytes` is the part
    of what is held that no allocation explains (contexts, code). `limit_bytes` is the limit as this
    process resolved it: None for no limit, or none published. `ratio` is by how much it oversells
    memory, in thousandths: 0 not at all, 1 only where the GPU is full. `resident_bytes` is what of
    its bytes is device memory, counted where memory is oversold.
    """

    owner: Owner
    held_bytes: int
    asking_bytes: int
    overhead_bytes: int
    limit_bytes: int | None
    activity: Activity
    resident_bytes: int = 0
    ratio: int = 0
    ceiling: Ceiling = NO_CEILING

    @property
    def used_bytes(self) -> int:
        """What counts against the limit."""
        return self.held_bytes + self.asking_bytes

    @property
    def unified_bytes(self) -> int:
        """What of it lies on the host; told only where memory is oversold."""
        return max(0, self.used_bytes - self.resident_bytes)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as a container sees it, in bytes.

    `limit_bytes` is in force: the lowest among the living, None when nobody has one. `used_bytes`
    is what the living hold and ask for, and `orphan_bytes` of it what nobody living is charged for,
    since others imported it. `unified_bytes` of it lie on the host, where memory is oversold;
    `ratio` is the highest among the living, 0 where it is not. `ceiling` is the lowest among the
    living. `uses` are by slot, the dead included; `past` is what processes that ended left to the
    counters.
    """

    row: int
    uuid: str
    limit_bytes: int | None
    used_bytes: int
    orphan_bytes: int
    uses: tuple[Use, ...]
    past: Activity
    ratio: int = 0
    unified_bytes: int = 0
    ceiling: Ceiling = NO_CEILING

    @property
    def last_limit_bytes(self) -> int | None:
        """What processes that ended had, where they had the same; None also where none is known."""
        left = {use.limit_bytes for use in self.uses if use.owner.life is Life.GONE}
        return left.pop() if len(left) == 1 else None

    @property
    def oversold(self) -> bool:
        """Whether what the device has no room for lies on the host."""
        return self.ratio > 0

    def share_of(self, limit_bytes: int | None) -> int | None:
        """What of a limit may be device memory; None where only the limit holds.

        As ShareBytes in lib/src/policy/account.h has it.
        """
        if limit_bytes is None or self.ratio <= layout.RATIO_UNIT:
            return None
        return limit_bytes * layout.RATIO_UNIT // self.ratio

    @property
    def activity(self) -> Activity:
        """The container's counters: they only grow while the region exists."""
        return sum((use.activity for use in self.uses), self.past)


@dataclass(frozen=True, slots=True)
class Region:
    """All of a container; `owners` are those who signed a slot, with a device or not."""

    path: Path
    container: str
    devices: tuple[Device, ...]
    owners: tuple[Owner, ...]

    @property
    def alive(self) -> bool:
        """Whether any process of the container lives."""
        return any(owner.life is Life.ALIVE for owner in self.owners)


def find(environment: Mapping[str, str], folder: str | None = None) -> list[Path]:
    """Region files of any version, in the folders of shared_file.folders."""
    return _KIND.find(environment, folder)


def read_all(paths: Iterable[Path]) -> tuple[list[Region], list[RegionError]]:
    """Every region that can be read, and why the others cannot."""
    return read_each(read, paths)


def read(path: Path) -> Region:
    """One region file.

    Raises:
        RegionError: exit 1; no such file, another version, short, damaged, or not permitted.
    """
    name = _KIND.named(path)
    with SharedFile(path, _REGION.bytes) as file:
        slots = _check_header(file)
        owners = tuple(file.owners(_REGION.at("processes"), slots))
        rows = file.read(_REGION.at("rows"), _ROW.size * layout.MAX_DEVICES)
        devices = []
        for number, (key, uuid, orphans) in enumerate(_ROW.iter_unpack(rows)):
            if key != 0:
                orphan_bytes = orphans % (1 << layout.ORPHAN_BITS)
                devices.append(_read_device(file, number, uuid, orphan_bytes, owners, slots))
    return Region(path, name[1] if name else path.name, tuple(devices), owners)


def _check_header(file: SharedFile) -> int:
    """The number of slots that were ever used."""
    magic, version, processes, devices, high_slot = _HEADER.unpack(file.read(0, _HEADER.size))
    _KIND.check(file, magic, version)
    if (processes, devices) != (layout.MAX_PROCESSES, layout.MAX_DEVICES):
        raise file.broken(f"it has places for {processes} processes on {devices} GPUs")
    if high_slot > layout.MAX_PROCESSES:
        raise file.broken(f"it claims to have used {high_slot} slots")
    return int(high_slot)


def _read_device(
    file: SharedFile,
    number: int,
    uuid: bytes,
    orphans: int,
    owners: Iterable[Owner],
    slots: int,
) -> Device:
    def table(name: str, item: struct.Struct) -> list[tuple[int, ...]]:
        at = _REGION.at(name) + item.size * layout.MAX_PROCESSES * number
        return list(item.iter_unpack(file.read(at, item.size * slots)))

    limits = table("limits", _WORD)
    overheads = table("overhead", _WORD)
    cells = table("cells", _CELL)
    activities = table("activity", _ACTIVITY)
    residents = table("resident", _CELL)
    ratios = table("ratios", _WORD)
    ceilings = table("ceilings", _CEILINGS)
    uses = []
    for owner in owners:
        (limit,), (overhead,) = limits[owner.slot], overheads[owner.slot]
        held, asking = cells[owner.slot]
        if not (limit or held or asking or any(activities[owner.slot])):
            continue  # it has nothing to do with this device
        own_limit = None if limit in (0, layout.NO_LIMIT) else limit
        activity = Activity(*activities[owner.slot])
        resident, (ratio,) = sum(residents[owner.slot]), ratios[owner.slot]
        ceiling = _ceiling(*ceilings[owner.slot])
        uses.append(
            Use(owner, held, asking, overhead, own_limit, activity, resident, ratio, ceiling)
        )
    living = [use for use in uses if use.owner.life is Life.ALIVE]
    past = file.read(_REGION.at("past") + _ACTIVITY.size * number, _ACTIVITY.size)
    limit_bytes = _lowest(use.limit_bytes for use in living)
    ratio = max((use.ratio for use in living), default=0)
    unified = sum(use.unified_bytes for use in living)
    return Device(
        row=number,
        uuid=uuid_text(uuid),
        limit_bytes=limit_bytes,
        used_bytes=sum(use.used_bytes for use in living) + orphans,
        orphan_bytes=orphans,
        uses=tuple(uses),
        past=Activity(*_ACTIVITY.unpack(past)),
        ratio=ratio,
        unified_bytes=unified if ratio else 0,
        ceiling=Ceiling(
            _lowest(use.ceiling.memory_bytes for use in living),
            _lowest(use.ceiling.cores for use in living),
            _lowest(use.ceiling.soft_cores for use in living),
        ),
    )


def _ceiling(memory_bytes: int, shares: int) -> Ceiling:
    hard, soft = shares % 2**32, shares >> 32
    return Ceiling(memory_bytes or None, hard or None, soft or None)


def _lowest(amounts: Iterable[int | None]) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)
