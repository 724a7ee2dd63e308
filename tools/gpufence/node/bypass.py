"""Who uses a GPU without the library, or more of it than the library accounts. Pure.

Three independent witnesses: NVML (who has how much), the containers' files (what the library
granted), and /proc/PID/maps (whether the library is loaded). Owns the verdict; must not know where
they come from, nor how it is told.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


class Reason(enum.Enum):
    """What a process does that its limit does not allow."""

    UNFENCED = "unfenced"  # the library is not loaded
    UNACCOUNTED = "unaccounted"  # it has more than the library granted
    BEYOND = "beyond"  # its container has more than its limit


@dataclass(frozen=True, slots=True)
class Seen:
    """A process on a GPU, by its number on this machine.

    `used_bytes` is NVML's figure, None where it has none; `fenced` is whether the library is
    loaded, None where nobody may look. `old`: what it has loaded was replaced or removed since.
    """

    pid: int
    uuid: str
    command: str
    used_bytes: int | None
    fenced: bool | None
    old: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """A container on a GPU, by its files: bytes granted to each of its processes, and in all."""

    container: str
    uuid: str
    limit_bytes: int | None
    granted: Mapping[int, int]
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Bypass:
    """A process that goes around its limit; `allowed_bytes` is None where it has no account."""

    reason: Reason
    seen: Seen
    container: str
    allowed_bytes: int | None


def judge(
    seen: Iterable[Seen], accounts: Iterable[Account], tolerance_bytes: int
) -> tuple[Bypass, ...]:
    """Every process that goes around its limit, once for each GPU, by GPU and number.

    Args:
        seen: every process on every GPU.
        accounts: every container on every GPU.
        tolerance_bytes: by how much NVML's figure may be above what was granted; the driver rounds
            and knows of allocations a moment before the library does.
    """
    users = {(each.uuid, each.pid): each for each in seen}
    found: dict[tuple[str, int], Bypass] = {}
    for key, each in users.items():
        if each.fenced is False:
            found[key] = Bypass(Reason.UNFENCED, each, "", None)
    for account in accounts:
        inside = {
            pid: user
            for pid in account.granted
            if (user := users.get((account.uuid, pid))) and user.used_bytes is not None
        }
        used = sum(user.used_bytes or 0 for user in inside.values())
        # A limit that was lowered under the use is no bypass: then the files say as much.
        most = max(account.limit_bytes or 0, account.used_bytes)
        over = account.limit_bytes is not None and used > most + tolerance_bytes
        for pid, user in inside.items():
            granted, key = account.granted[pid], (account.uuid, pid)
            if (user.used_bytes or 0) > granted + tolerance_bytes:
                made = Bypass(Reason.UNACCOUNTED, user, account.container, granted)
                found.setdefault(key, made)
            elif over:
                made = Bypass(Reason.BEYOND, user, account.container, account.limit_bytes)
                found.setdefault(key, made)
    return tuple(found[key] for key in sorted(found))
