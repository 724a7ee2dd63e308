"""A container's region file read from outside: what its processes are charged.

Knows the layout of lib/layouts/shared_files.txt and nothing else; standard library only, since GPU
runs use it where no test tools are installed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_PROCESSES = 4096
_DEVICES = 64
_RECORDS_AT = 64 + 128 * _DEVICES
_LIMITS_AT = _RECORDS_AT + 64 * _PROCESSES
_OVERHEAD_AT = _LIMITS_AT + 8 * _DEVICES * _PROCESSES
_CELLS_AT = _OVERHEAD_AT + 8 * _DEVICES * _PROCESSES
_SHARES_AT = _CELLS_AT + 16 * _DEVICES * _PROCESSES
_ACTIVITY_AT = _SHARES_AT + 16 * _DEVICES * _PROCESSES
_PAST_AT = _ACTIVITY_AT + 32 * _DEVICES * _PROCESSES
_RESIDENT_ROWS_AT = _PAST_AT + 32 * _DEVICES
_RESIDENT_AT = _RESIDENT_ROWS_AT + 64 * _DEVICES


@dataclass(frozen=True, slots=True)
class Charge:
    """Bytes of one process on one device."""

    pid: int  # 0: nobody's
    held: int
    asking: int
    overhead: int  # the part of held that no allocation explains


def read_charges(folder: Path, row: int = 0) -> list[Charge]:
    """Every slot's cell in a row of the only region under `folder`, up to the last slot used."""
    (region,) = folder.glob("gpufence-*")
    with region.open("rb") as file:

        def read(layout: str, offset: int) -> list[int]:
            file.seek(offset)
            return list(struct.unpack(layout, file.read(struct.calcsize(layout))))

        (slots,) = read("<I", 20)
        pids = read("<" + "I60x" * slots, _RECORDS_AT)
        overheads = read(f"<{slots}Q", _OVERHEAD_AT + 8 * _PROCESSES * row)
        cells = read(f"<{2 * slots}Q", _CELLS_AT + 16 * _PROCESSES * row)
        return list(map(Charge, pids, cells[::2], cells[1::2], overheads))


def resident(folder: Path, row: int = 0) -> int:
    """What of the row's sum is device memory, in bytes; counted only where memory is oversold."""
    (region,) = folder.glob("gpufence-*")
    with region.open("rb") as file:
        file.seek(20)
        (slots,) = struct.unpack("<I", file.read(4))
        file.seek(_RESIDENT_AT + 16 * _PROCESSES * row)
        return sum(struct.unpack(f"<{2 * slots}Q", file.read(16 * slots)))


def charged(folder: Path, row: int = 0) -> int:
    """The row's sum, in bytes, and what it counts without a living owner."""
    (region,) = folder.glob("gpufence-*")
    with region.open("rb") as file:
        file.seek(64 + 128 * row + 32)
        (orphans,) = struct.unpack("<Q", file.read(8))
    owned = sum(charge.held + charge.asking for charge in read_charges(folder, row))
    return owned + orphans % (1 << 44)
