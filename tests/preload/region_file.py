"""A container's region file read from outside: what its processes are charged.

Knows the layout of lib/src/state/layout.h and nothing else; standard library only, since GPU runs
use it where no test tools are installed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_PROCESSES = 4096
_DEVICES = 64
_LIMITS_AT = 64 + 128 * _DEVICES + 64 * _PROCESSES
_CELLS_AT = _LIMITS_AT + 2 * 8 * _DEVICES * _PROCESSES


@dataclass(frozen=True, slots=True)
class Charge:
    """Bytes of one process on one device."""

    held: int
    asking: int


def read_charges(folder: Path, row: int = 0) -> list[Charge]:
    """Every slot's cell in a row of the only region under `folder`, up to the last slot used."""
    (region,) = folder.glob("gpufence-*")
    with region.open("rb") as file:
        (slots,) = struct.unpack_from("<I", file.read(64), 20)
        file.seek(_CELLS_AT + 16 * _PROCESSES * row)
        return [Charge(*struct.unpack("<QQ", file.read(16))) for _ in range(slots)]


def charged(folder: Path, row: int = 0) -> int:
    """The row's sum, in bytes."""
    return sum(charge.held + charge.asking for charge in read_charges(folder, row))
