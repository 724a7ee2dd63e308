"""What was measured of GPUs' pauses, kept in files: read and written from outside.

Knows its words through shared_layout.py. A file counts here as it does for a
program of the same user: of root or of that user, and nobody else may write it. Must not know
commands or output. Standard library only.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from . import shared_layout as layout

NAMES = tuple(layout.structure("PauseNumbers").members)
FIELDS = layout.structure("KeptPauses").fields(
    "magic",
    "version",
    "gpu.uuid",
    "gpu.driver",
    "measured_s",
    *(f"pauses.{name}" for name in NAMES),
    "check",
)
_NAME = re.compile(
    rf"gpufence-pauses{layout.KEPT_PAUSES_VERSION}-([0-9a-f]{{32}})"
    r"-([0-9a-z.-]{1,31})-([0-9]{1,10})"
)
_NOBODY_KNOWN = 65534


@dataclass(frozen=True, slots=True)
class KeptPauses:
    """A file's content: nanoseconds by their names in base/pauses.h."""

    path: Path
    uuid: bytes
    driver: str
    measured_s: int
    pauses: dict[str, int]


def read_all(folders: Iterable[Path]) -> list[KeptPauses]:
    """Every file that counts, of the folders in their order, the own user's before root's."""
    found = []
    for folder in folders:
        try:
            names = sorted(os.listdir(folder), key=lambda name: name.endswith("-0"))
        except OSError:
            continue
        found += [
            kept
            for name in names
            if _NAME.fullmatch(name) and (kept := read(folder / name)) is not None
        ]
    return found


def read(path: Path) -> KeptPauses | None:
    """A file that counts; None: it is none."""
    name = _NAME.fullmatch(path.name)
    try:
        raw = _bytes_of(path)
    except OSError:
        return None
    if name is None or raw is None or len(raw) != FIELDS.size:
        return None
    magic, version, uuid, driver, measured_s, *rest = FIELDS.unpack(raw)
    if (magic, version) != (layout.KEPT_PAUSES_MAGIC, layout.KEPT_PAUSES_VERSION):
        return None
    text = driver.split(b"\0")[0].decode(errors="replace")
    if rest[-1] != check_of(raw) or (uuid.hex(), text) != (name[1], name[2]):
        return None
    return KeptPauses(path, uuid, text, measured_s, dict(zip(NAMES, rest, strict=False)))


def as_text(kept: KeptPauses) -> str:
    """For people."""
    pauses = kept.pauses
    when = _when(kept)[:10]
    return (
        f"{pauses['launch_gap_ns']} ns between kernels, {pauses['step_gap_ns']} between steps of a "
        f"graph, measured {when} by driver {kept.driver}, kept in {kept.path.parent}"
    )


def as_dict(kept: KeptPauses) -> dict[str, object]:
    """The same for --json."""
    return {
        "uuid": kept.uuid.hex(),
        "driver": kept.driver,
        "measured": _when(kept),
        "path": str(kept.path),
        "pauses": kept.pauses,
    }


def _when(kept: KeptPauses) -> str:
    return datetime.fromtimestamp(kept.measured_s, timezone.utc).isoformat()


def check_of(raw: bytes) -> int:
    """As CheckOf in lib/src/state/kept_pauses.cpp."""
    mask = 2**64 - 1
    check = layout.KEPT_PAUSES_VERSION
    for (word,) in struct.iter_unpack("<Q", raw[:-8]):
        check = (check ^ word) * 0x9E3779B97F4A7C15 & mask
        check ^= check >> 29
    return check


def _bytes_of(path: Path) -> bytes | None:
    """What is in a file that nobody but root and this user can have written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        trusted = found.st_uid in (0, os.geteuid()) and found.st_uid != _NOBODY_KNOWN
        if not stat.S_ISREG(found.st_mode) or not trusted or found.st_mode & 0o022:
            return None
        return os.read(fd, FIELDS.size + 1)
    finally:
        os.close(fd)
