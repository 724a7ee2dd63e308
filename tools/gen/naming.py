"""How driver names are built: base, version and per-thread suffix.

Owns the suffix grammar. Must not know which names exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?P<base>.+?)(?:_v(?P<version>\d+))?(?:_(?P<stream>ptds|ptsz))?")


@dataclass(frozen=True, slots=True)
class Name:
    """`cuMemcpyDtoH_v2_ptds` is base cuMemcpyDtoH, version 2, stream ptds; no suffix means 1."""

    base: str
    version: int
    stream: str


def split(symbol: str) -> Name:
    """Take a symbol apart; every string is a name, at worst all base."""
    match = _NAME.fullmatch(symbol)
    if match is None:
        return Name(symbol, 1, "")
    return Name(match["base"], int(match["version"] or 1), match["stream"] or "")
