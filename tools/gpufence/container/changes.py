"""What was set for a container, when and by whom: one JSON object a line, oldest first.

Owns the file beside a limits file; must not know how limits are stored. A change is written down
before it holds, with the generation that it will have, so that none is missing: whoever was killed
in between leaves one that never held.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpufence.config.terms import Priority
from gpufence.machine.process import user_name
from gpufence.state.limits_bytes import EVERY_GPU, Amounts
from gpufence.state.shared_file import uuid_text

_MOST_BYTES = 1 << 20
_MODE = 0o644
_AMOUNTS = frozenset(
    (
        "memory_bytes",
        "memory_percent_billionths",
        "cores_millipercent",
        "soft_cores_millipercent",
        "weight",
        "core_burst_ns",
        "core_floor_millipercent",
    )
)
_PRIORITIES = frozenset(each.word for each in Priority)


def append(
    path: Path,
    owner: int,
    generation: int,
    old: Mapping[bytes, Amounts],
    new: Mapping[bytes, Amounts],
) -> None:
    """Write one change down. The older half goes once there is a MiB of them.

    Args:
        path: the history; it is made where there is none.
        owner: uid of the container's owner, whose or root's file it is.
        generation: that the new limits will have.
        old: what held before.
        new: what will hold.

    Raises:
        OSError: the file cannot be written, or is not a plain file of root's or of this user.
    """
    line = json.dumps(
        {
            "schema": 1,
            "time": _now(),
            "generation": generation,
            **_author(),
            "old": as_dict(old),
            "new": as_dict(new),
        }
    )
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
        os.fchmod(descriptor, _MODE)
    try:
        found = os.fstat(descriptor)
        own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if not own or found.st_uid not in (0, owner):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        os.write(descriptor, line.encode() + b"\n")
        keeper = 0 if new else owner  # as of the limits file
        if os.geteuid() == 0 and found.st_uid != keeper:
            os.fchown(descriptor, keeper, -1)
    finally:
        os.close(descriptor)
    if found.st_size > _MOST_BYTES:
        _halve(path)


def read(path: Path, owner: int, generation: int) -> list[dict[str, Any]]:
    """Every change, oldest first, each with `held`: whether it came into force.

    Args:
        path: the history; [] where there is none, or another user's.
        owner: uid of the container's owner.
        generation: of the limits that hold now.

    Lines that are no change of schema 1 are left out.
    """
    try:
        lines = _content(path, owner).split(b"\n")
    except OSError:
        return []
    changes = [change for line in lines if (change := _change(line)) is not None]
    # Whoever came after one who was killed took the same generation.
    last = {change["generation"]: index for index, change in enumerate(changes)}
    return [
        {
            **change,
            "held": change["generation"] <= generation and last[change["generation"]] == index,
        }
        for index, change in enumerate(changes)
    ]


def as_dict(entries: Mapping[bytes, Amounts]) -> dict[str, dict[str, int | str | bool]]:
    """What is set, by GPU, bytes and thousandths of a percent as integers."""
    return {
        "all" if uuid == EVERY_GPU else uuid_text(uuid): amounts_as_dict(amounts)
        for uuid, amounts in sorted(entries.items())
    }


def amounts_as_dict(amounts: Amounts) -> dict[str, int | str | bool]:
    """What is set for one GPU; 0 is an explicit "no limit"."""
    memory = "memory_percent_billionths" if amounts.memory_is_part else "memory_bytes"
    named = {
        memory: amounts.memory,
        "cores_millipercent": amounts.cores,
        "soft_cores_millipercent": amounts.soft_cores,
    }
    set_ = {name: amount for name, amount in named.items() if amount is not None}
    return {**set_, **amounts.terms.as_dict(), **({"frozen": True} if amounts.frozen else {})}


def _content(path: Path, owner: int) -> bytes:
    # The folder may be anybody's to write: what stands there is not followed and not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        counts = stat.S_ISREG(found.st_mode) and found.st_uid in (0, owner)
        return file.read() if counts else b""


def _change(line: bytes) -> dict[str, Any] | None:
    try:
        change = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return change if _is_change(change) else None


def _is_change(change: object) -> bool:
    """Whether it is as append() writes it."""
    return (
        isinstance(change, dict)
        and change.get("schema") == 1
        and all(_is_count(change.get(key)) for key in ("generation", "uid"))
        and all(isinstance(change.get(key), str) for key in ("time", "user"))
        and isinstance(change.get("sudo_user", ""), str)
        and all(_is_limits(change.get(key)) for key in ("old", "new"))
    )


def _is_limits(limits: object) -> bool:
    return isinstance(limits, dict) and all(
        isinstance(amounts, dict) and all(_is_amount(*each) for each in amounts.items())
        for amounts in limits.values()
    )


def _is_amount(name: str, amount: object) -> bool:
    if name == "priority":
        return isinstance(amount, str) and amount in _PRIORITIES
    return amount is True if name == "frozen" else name in _AMOUNTS and _is_count(amount)


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 64


def _now() -> str:
    now = datetime.fromtimestamp(time.time(), timezone.utc)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _author() -> dict[str, object]:
    """Who asks: the user, and under sudo who that is in truth."""
    uid = os.getuid()
    sudo = os.environ.get("SUDO_USER", "") if uid == 0 else ""
    return {"uid": uid, "user": user_name(uid), **({"sudo_user": sudo} if sudo else {})}


def _halve(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_bytes(b"".join(lines[len(lines) // 2 :]))
    draft.chmod(_MODE)
    os.chown(draft, path.stat().st_uid, -1)
    draft.rename(path)
