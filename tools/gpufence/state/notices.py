"""Notices in a node folder, read from outside: what each container says of itself on each GPU.

Knows its words through shared_layout.py; a moment's view. Anybody may have written
anything there, so what is no notice is passed over, and numbers are only shown. Writes nothing.
Must not know commands or output. Standard library only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufence.config.terms import Priority

from . import shared_layout as layout
from .shared_file import RegionError, SharedFile, folders, is_in_use, matching
from .time_file import Shares, unpack_priority, unpack_shares

FIELDS = layout.structure("Notice").fields(
    "magic", "author", "device", "holder", "shares", "charged_ns", "terms", "check"
)
_NAME = re.compile(r"gpufence-turns([0-9]{1,9})-[0-9a-f]{8}-([0-9a-f]{16})-([0-9a-f]{16})")
# Where `gpufence cdi` has containers meet, unless told otherwise.
NODE = Path("/run/gpufence-node")
# A node has fewer containers; a folder that somebody fills costs no more than this.
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Notice:
    """One container on one GPU.

    `device` is the number of the GPU's first eight bytes. `holds_turn` is what it says of itself.
    `priority` is what counts now, which is high while it has less than its floor; None where the
    notice says nothing.
    """

    author: int
    device: int
    alive: bool
    shares: Shares
    charged_ns: int
    holds_turn: bool
    priority: Priority | None


def read_all(environment: Mapping[str, str], folder: str | None = None) -> Iterator[Notice]:
    """Every notice that can be read."""
    places = folders(environment, folder)
    found = matching(places if folder is not None else (*places, NODE), "gpufence-turns*")
    for _, path in zip(range(_MOST), found, strict=False):
        name = _NAME.fullmatch(path.name)
        if name is None or int(name[1]) != layout.NOTICE_VERSION:
            continue
        try:
            notice = _read(path)
        except (OSError, RegionError):
            continue
        if notice is not None and (notice.device, notice.author) == (
            int(name[2], 16),
            int(name[3], 16),
        ):
            yield notice


def _read(path: Path) -> Notice | None:
    with SharedFile(path, FIELDS.size) as file:
        raw = file.read(0, FIELDS.size)
    magic, author, device, holder, shares, charged_ns, terms, check = FIELDS.unpack(raw)
    if magic != layout.NOTICE_MAGIC or check != check_of(raw):
        return None
    return Notice(
        author=author,
        device=device,
        alive=is_in_use(path),
        shares=unpack_shares(shares),
        charged_ns=charged_ns,
        holds_turn=holder == author,
        priority=unpack_priority(terms),
    )


def check_of(raw: bytes) -> int:
    """As CheckOf in lib/src/state/notice_board.h."""
    mask = 2**64 - 1
    check = layout.NOTICE_VERSION
    for (word,) in struct.iter_unpack("<Q", raw[:-8]):
        check = (check ^ word) * 0x9E3779B97F4A7C15 & mask
        check ^= check >> 29
    return check


def device_key(uuid: str) -> int:
    """The number that notices have for a GPU of this UUID (RowKey); 0: the text is none."""
    digits = uuid.removeprefix("GPU-").removeprefix("MIG-").replace("-", "")
    try:
        return int.from_bytes(bytes.fromhex(digits)[:8], "little") or 1
    except ValueError:
        return 0
