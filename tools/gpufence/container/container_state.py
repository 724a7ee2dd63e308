"""All that files and /proc tell of a container, as the object that `status --json` prints.

Joins region, limits file and time files; bytes, nanoseconds and thousandths of a percent as
integers, null where there is none or nobody can tell. Must not know how it is shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufence.errors import ToolError
from gpufence.machine import process
from gpufence.machine.people import People
from gpufence.state import limits_file, region, time_file
from gpufence.state.limits_bytes import Amounts
from gpufence.state.limits_file import SetLimits
from gpufence.state.region import Device, Use
from gpufence.state.shared_file import Life, Owner
from gpufence.state.time_file import Shares, Tenant, TimeDevice, TimeFile

from . import called, changes, in_force, leftovers, lifetimes, node_folders
from .containers import Container, core_environment


@dataclass(frozen=True, slots=True)
class Cores:
    """Every time file that can be read, and of which processes these are all; who lives here."""

    files: list[TimeFile]
    reach: node_folders.Reach
    people: People
    living: lifetimes.Living


def read_cores(given: str | None, node: str | None = None) -> Cores:
    """Look now; a time file that cannot be read tells nothing, and nothing depends on it.

    Args:
        given: the only folder to look into but for `node`; None for the usual ones.
        node: where containers take turns.
    """
    environment = core_environment()
    regions = region.read_all(region.find(environment, given))[0]
    people = People()
    reach = node_folders.look(environment, given, regions, people, node)
    return Cores(time_file.read_all(reach.files)[0], reach, people, lifetimes.Living())


def read(container: Container, cores: Cores) -> dict[str, Any]:
    """One container.

    Raises:
        ToolError: its region or its limits file cannot be read.
    """
    found = region.read(container.region) if container.region else None
    limits = limits_file.read(container.limits_path, container.owner)
    seats = _seats(container.name, cores.files)
    devices = found.devices if found else ()
    names = _called(container, cores)
    return {
        "name": container.name,
        "called": names,
        "state": _life(found, lives=names is not None or _goes_on(container, cores)),
        "owner_uid": container.owner,
        "running": bool(found and found.alive),
        "region": str(container.region) if container.region else None,
        "limits_file": str(limits.path) if limits else None,
        "set": changes.as_dict(limits.entries) if limits else {},
        "frozen": bool(limits and limits.frozen),
        "gpus": [_gpu(device, limits, seats.get(device.uuid), cores.reach) for device in devices],
        "processes": [
            _process(owner) for owner in (found.owners if found else ()) if _lives(owner)
        ],
    }


def _life(found: region.Region | None, *, lives: bool) -> str:
    """STATE; `lives`: a process is in it, or its command is."""
    if found is None:
        return "prepared"
    if found.alive:
        return "running"
    return "idle" if lives else "ended"


def _goes_on(container: Container, cores: Cores) -> bool:
    """Whether it lives, of one that nobody has a name for: as long as its first process does."""
    if leftovers.command_lives(container.name):
        return True
    return cores.living.process_of(container.name) is not None


def _called(container: Container, cores: Cores) -> dict[str, str] | None:
    pod = called.names(container.name, container.region, cores.people, cores.living)
    if not called.label(pod):
        return None
    return {"namespace": pod.namespace, "pod": pod.name, "container": pod.container}


def read_all(
    chosen: Iterable[Container], cores: Cores
) -> tuple[list[dict[str, Any]], list[ToolError]]:
    """Every container that can be read, and why the others cannot."""
    answers = [_try(container, cores) for container in chosen]
    problems = [each for each in answers if isinstance(each, ToolError)]
    return [each for each in answers if not isinstance(each, ToolError)], problems


def _try(container: Container, cores: Cores) -> dict[str, Any] | ToolError:
    try:
        return read(container, cores)
    except ToolError as problem:
        return problem


def shares_of(container: Container, given: str | None) -> dict[str, int]:
    """The shares that its running programs found by themselves, by UUID; hard ones."""
    seats = _seats(container.name, read_cores(given).files)
    found = {
        uuid: in_force.shares(tenant.shares, Amounts(), region.NO_CEILING)
        for uuid, (_, tenant, _) in seats.items()
        if tenant.alive
    }
    return {uuid: shares.hard for uuid, shares in found.items() if shares is not None}


def _lives(owner: Owner) -> bool:
    return owner.life is Life.ALIVE


def _seats(name: str, cores: Iterable[TimeFile]) -> dict[str, tuple[TimeDevice, Tenant, bool]]:
    """By UUID: the device, the container's place there, and whether others share it.

    A place without a living process is one only where there is no other.
    """
    key = time_file.tenant_key(name)
    found = [
        (device, tenant, device.author != 0)
        for each in cores
        if each.same_clock
        for device in each.devices
        for tenant in device.tenants
        if tenant.key == key
    ]
    return {seat[0].uuid: seat for seat in sorted(found, key=lambda seat: seat[1].alive)}


def _gpu(
    device: Device,
    limits: SetLimits | None,
    seat: tuple[TimeDevice, Tenant, bool] | None,
    reach: node_folders.Reach,
) -> dict[str, Any]:
    amounts = in_force.amounts(limits, device.uuid)
    living = [use for use in device.uses if _lives(use.owner)]
    found = in_force.found(device, limits, seat[1] if seat else None)
    covered = reach.covers(use.owner for use in living)
    return {
        "gpu": device.row,
        "uuid": device.uuid,
        "memory": _memory(device, amounts, living, found.memory_bytes),
        "cores": _cores(device, amounts, found.shares, seat),
        "cores_known": in_force.cores_known(found, amounts, covered=covered),
        "refusals": device.activity.refusals,
        "processes": [_use(use) for use in living],
    }


def _memory(
    device: Device, amounts: Amounts, living: list[Use], published: int | None
) -> dict[str, Any]:
    limit, source = published, "environment" if published else None
    part = None
    if amounts.memory is not None:
        wanted = amounts.memory or None
        limit, source = wanted, "set"
        if amounts.memory_is_part:
            limit, part = None, amounts.memory
        elif in_force.under(device.ceiling.memory_bytes, wanted) != wanted:
            limit, source = device.ceiling.memory_bytes, "ceiling"
    return {
        "limit_bytes": limit,
        "limit_percent_billionths": part,
        "limit_from": source,
        "used_bytes": device.used_bytes,
        "device_bytes": device.used_bytes - device.unified_bytes,
        "unified_bytes": device.unified_bytes,
        "oversold": device.oversold,
        "device_limit_bytes": device.share_of(limit),
        "overhead_bytes": sum(use.overhead_bytes for use in living),
        "orphan_bytes": device.orphan_bytes,
        "over_bytes": max(0, device.used_bytes - limit) if limit else 0,
    }


def _cores(
    device: Device,
    amounts: Amounts,
    published: Shares | None,
    seat: tuple[TimeDevice, Tenant, bool] | None,
) -> dict[str, Any] | None:
    """None where no share holds, or where nobody can tell."""
    shares = in_force.shares(published, amounts, device.ceiling)
    if shares is None:
        return None
    takes_part = bool(seat and seat[1].alive and seat[2])
    activity = device.activity
    return {
        "core_limit_ratio": shares.hard / 100_000,
        "core_soft_limit_ratio": max(shares.soft, shares.hard) / 100_000,
        "share_millipercent": shares.hard,
        "soft_share_millipercent": max(shares.soft, shares.hard),
        "share_from": "environment" if amounts.cores is None else "set",
        "used_ns": seat[1].charged_ns if seat else 0,
        "owed_ns": _owed_ns(seat[1]) if seat else 0,
        "launches_held": activity.launches_held,
        "held_ns": activity.held_ns,
        "node": takes_part,
        "turn": _turn(seat[0], seat[1]) if seat and takes_part else None,
    }


def _owed_ns(tenant: Tenant) -> int:
    """Wall-clock time until the container may launch again."""
    return max(0, tenant.due_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC))


def _turn(device: TimeDevice, tenant: Tenant) -> str | None:
    """Whose turn it is, for a container that takes turns now."""
    if not device.takes_turns:
        return None
    if device.turn.tenant is None:
        return "free"
    if device.turn.tenant != tenant.number:
        return "another's"
    return "ending" if device.turn.closing else "its own"


def _use(use: Use) -> dict[str, Any]:
    return {
        **_process(use.owner),
        "used_bytes": use.used_bytes,
        "overhead_bytes": use.overhead_bytes,
        "limit_bytes": use.limit_bytes,
        "refusals": use.activity.refusals,
        "launches_held": use.activity.launches_held,
        "held_ns": use.activity.held_ns,
    }


def _process(owner: Owner) -> dict[str, Any]:
    """A number of another pid namespace names nobody here, so its command stays unknown."""
    return {
        "pid": owner.pid,
        "pid_namespace": owner.pid_namespace,
        "foreign_pid": owner.foreign,
        "uid": owner.uid,
        "user": process.user_name(owner.uid),
        "command": None if owner.foreign else _command(owner.pid),
    }


def _command(pid: int) -> str | None:
    """The command line, else the name in brackets as ps(1) has it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if words != [b""]:
            return os.fsdecode(b" ".join(words))
        return f"[{os.fsdecode(Path(f'/proc/{pid}/comm').read_bytes()).strip()}]"
    except OSError:
        return None
