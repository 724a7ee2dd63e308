"""A time file, read from outside: who runs on which GPU, what each owes, whose turn it is.

Knows its words through shared_layout.py; a moment's view. Trusts no byte. Must not know commands
or output. Standard library only.

Moments are nanoseconds of CLOCK_MONOTONIC on the machine that runs the containers, 0 for never.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufence.config.terms import Priority

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
    title="time file",
    pattern="gpufence-*.cores*",
    name=re.compile(r"gpufence-(.+)\.cores([0-9]{1,9})-([0-9a-f]{8})", re.DOTALL),
    magic=layout.TIME_MAGIC,
    version=layout.TIME_VERSION,
    whose="those containers",
)
_FILE = layout.structure("TimeBytes")
_HEADER = layout.structure("TimeHeader").fields(
    "magic", "layout_version", "max_rows", "max_tenants", "max_members", "high_member"
)
_ROW = layout.structure("TimeRow").fields("key", "uuid", "turn", "foreign_ns", "author", "is_deep")
_TENANT = layout.structure("CoreTenant").fields(
    "key", "due_ns", "shares", "backlog_ns", "active_ns", "served_ns", "charged_ns", "terms"
)
_MEMBER = layout.structure("CoreMember").fields("tenant", "shares", "beat", "wanted_ns", "idle_ns")


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the GPU's time, in thousandths of a percent; `soft` holds while nobody else wants it."""

    hard: int
    soft: int


@dataclass(frozen=True, slots=True)
class Member:
    """One process on one GPU.

    `beat_us` is its last heartbeat in microseconds, with `outstanding` work or without; `wanted_ns`
    when it last asked for the turn; `idle_ns` since when nothing of it is outstanding.
    """

    owner: Owner
    shares: Shares
    beat_us: int
    outstanding: bool
    wanted_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container on a GPU: the file's own, or a neighbour that it knows of, without members.

    `key` is the hash of its name (tenant_key), or a number that the neighbour drew. `due_ns` is the
    moment at which all it used is paid for; `served_ns` the time it held turns, over its share, of
    which only differences mean anything; `charged_ns` all GPU time it was ever charged.
    `backlog_ns` is since when it wants the GPU without a pause, `active_ns` when it last did.
    `priority` is None where nobody wrote one.
    """

    number: int
    key: int
    shares: Shares
    due_ns: int
    served_ns: int
    charged_ns: int
    backlog_ns: int
    active_ns: int
    priority: Priority | None
    members: tuple[Member, ...]

    @property
    def alive(self) -> bool:
        """Whether any process of the container is on the GPU."""
        return any(member.owner.life is Life.ALIVE for member in self.members)


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is: a tenant's number, None while the GPU is free; `began_us` as its moment.

    A holder that is `closing` launches no more.
    """

    tenant: int | None
    closing: bool
    began_us: int


@dataclass(frozen=True, slots=True)
class TimeDevice:
    """One GPU; `foreign_ns` is when somebody without a seat in this file last used it.

    `author` is the number under which the container has a notice in a node folder; 0: it has none.
    `takes_turns` while its queues there are deep; otherwise `turn` says nothing about it.
    """

    row: int
    uuid: str
    turn: Turn
    foreign_ns: int
    author: int
    takes_turns: bool
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class TimeFile:
    """All of a time file.

    `name` is the container's. `same_clock` says that its
    moments are of this machine's clock since the last boot.
    """

    path: Path
    name: str
    same_clock: bool
    devices: tuple[TimeDevice, ...]


def tenant_key(container: str) -> int:
    """The key that a container of this name has as a tenant (JoinTimeRow)."""
    return _hash(os.fsencode(container)) or 1


def find(environment: Mapping[str, str], folder: str | None = None) -> list[Path]:
    """Time files of any version and clock, in the folders of shared_file.folders."""
    return _KIND.find(environment, folder)


def read_all(paths: Iterable[Path]) -> tuple[list[TimeFile], list[RegionError]]:
    """Every time file that can be read, and why the others cannot."""
    return read_each(read, paths)


def read(path: Path) -> TimeFile:
    """One time file.

    Raises:
        RegionError: exit 1; no such file, another version, short, damaged, or not permitted.
    """
    name = _KIND.named(path)
    with SharedFile(path, _FILE.bytes) as file:
        high_member = _check_header(file)
        owners = {owner.slot: owner for owner in file.owners(_FILE.at("processes"), high_member)}
        rows = file.read(_FILE.at("rows"), _ROW.size * layout.MAX_TIME_ROWS)
        devices = tuple(
            _read_device(file, number, row, owners, high_member)
            for number, row in enumerate(_ROW.iter_unpack(rows))
            if row[0] != 0
        )
    same_clock = name is not None and int(name[3], 16) == _clock_identity()
    return TimeFile(path, name[1] if name else path.name, same_clock, devices)


def _check_header(file: SharedFile) -> int:
    """The number of members' places that were ever used."""
    header = _HEADER.unpack(file.read(0, _HEADER.size))
    magic, version, rows, tenants, members, high_member = header
    _KIND.check(file, magic, version)
    expected = (layout.MAX_TIME_ROWS, layout.MAX_CORE_TENANTS, layout.MAX_CORE_MEMBERS)
    if (rows, tenants, members) != expected:
        raise file.broken(f"it has places for {members} processes of {tenants} on {rows} GPUs")
    if high_member > layout.MAX_CORE_MEMBERS:
        raise file.broken(f"it claims to have used {high_member} places")
    return int(high_member)


def _read_device(
    file: SharedFile,
    number: int,
    row: tuple[int, bytes, int, int, int, int],
    owners: Mapping[int, Owner],
    high_member: int,
) -> TimeDevice:
    _, uuid, turn, foreign_ns, author, is_deep = row
    members = _read_members(file, number, owners, high_member)
    tenants_bytes = _TENANT.size * layout.MAX_CORE_TENANTS
    raw = file.read(_FILE.at("tenants") + tenants_bytes * number, tenants_bytes)
    tenants = []
    for place, words in enumerate(_TENANT.iter_unpack(raw)):
        key, due_ns, shares, backlog_ns, active_ns, served_ns, charged_ns, terms = words
        if key != 0:
            tenants.append(
                Tenant(
                    number=place,
                    key=key,
                    shares=unpack_shares(shares),
                    due_ns=due_ns,
                    served_ns=served_ns,
                    charged_ns=charged_ns,
                    backlog_ns=backlog_ns,
                    active_ns=active_ns,
                    priority=unpack_priority(terms),
                    members=tuple(members.get(place, ())),
                )
            )
    held = unpack_turn(turn)
    return TimeDevice(
        row=number,
        uuid=uuid_text(uuid),
        turn=held,
        foreign_ns=foreign_ns,
        author=author,
        takes_turns=is_deep != 0,
        tenants=tuple(tenants),
    )


def _read_members(
    file: SharedFile, number: int, owners: Mapping[int, Owner], high_member: int
) -> dict[int, list[Member]]:
    """The device's members by their tenant's number."""
    start = _FILE.at("members") + _MEMBER.size * layout.MAX_CORE_MEMBERS * number
    raw = file.read(start, _MEMBER.size * high_member)
    members: dict[int, list[Member]] = {}
    for place, words in enumerate(_MEMBER.iter_unpack(raw)):
        tenant, shares, beat, wanted_ns, idle_ns = words
        if place in owners and 0 < tenant <= layout.MAX_CORE_TENANTS:
            member = Member(
                owner=owners[place],
                shares=unpack_shares(shares),
                beat_us=beat >> 1,
                outstanding=bool(beat & 1),
                wanted_ns=wanted_ns,
                idle_ns=idle_ns,
            )
            members.setdefault(tenant - 1, []).append(member)
    return members


def unpack_shares(word: int) -> Shares:
    """As UnpackShares in time_file.h."""
    return Shares(hard=word & 0xFFFFFFFF, soft=word >> 32)


def unpack_priority(terms: int) -> Priority | None:
    """Of a container's terms, as UnpackTerms in time_file.h; None where nobody said."""
    return next((each for each in Priority if each.rank + 1 == terms & 0xFF), None)


def unpack_turn(word: int) -> Turn:
    """As UnpackTurn in lib/src/policy/turn.cpp."""
    tenant = word & layout.TURN_TENANT_MASK
    closing = bool(word & layout.TURN_CLOSING)
    return Turn(tenant - 1 if tenant else None, closing, word >> layout.TURN_BEGAN_SHIFT)


def _hash(text: bytes) -> int:
    """FNV-1a, 64 bits, as HashText in lib/src/state/identity.cpp."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value


def _clock_identity() -> int:
    """The part of a time file's name that tells clocks apart (time_file.cpp)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    try:
        clock = os.stat("/proc/self/ns/time").st_ino
    except OSError:
        clock = 0
    return (_hash(boot[:63]) ^ clock) & 0xFFFFFFFF
