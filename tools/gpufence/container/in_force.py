"""Which limits hold for a container now: what was set while it runs, else what its processes found.

Of a container without a process: what its last ones found, which its files still have.

Joins a limits file (gpufence set) with what processes published. Must not know how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufence.config import sizes
from gpufence.config.terms import Priority
from gpufence.errors import ToolError
from gpufence.state import limits_file
from gpufence.state.limits_bytes import Amounts
from gpufence.state.limits_file import SetLimits
from gpufence.state.region import Ceiling, Device, Region
from gpufence.state.shared_file import Life, Owner
from gpufence.state.time_file import Shares, Tenant

_WHOLE_SHARE = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """The limits that a container's programs found by themselves on a GPU; None for no limit.

    Once all of them have ended (not `running`): what they had, None also where no file tells.
    """

    running: bool
    memory_bytes: int | None
    shares: Shares | None


def found(device: Device, limits: SetLimits | None, tenant: Tenant | None) -> Found:
    """What the programs found, as their files have it.

    Args:
        device: the container's memory there.
        limits: what was set for the container. What its last programs found may have been set for
            them: once that was changed or taken back, it tells nothing.
        tenant: the container's place in a time file.
    """
    if any(use.owner.life is Life.ALIVE for use in device.uses):
        published = tenant.shares if tenant and tenant.alive else None
        return Found(True, device.limit_bytes, published)
    if limits is None or limits.is_first:
        return Found(False, device.last_limit_bytes, _last_shares(device, tenant))
    return Found(False, None, None)


def limits_of(of: Region) -> SetLimits | None:
    """What was set for the container; None where no file of its owner's says so."""
    try:
        owner = of.path.stat().st_uid
        return limits_file.read(limits_file.path_of(of.path.parent, of.container), owner)
    except (OSError, ToolError):
        return None


def amounts(limits: SetLimits | None, uuid: str) -> Amounts:
    """What of it is for this GPU."""
    return limits.of(sizes.parse_uuid(uuid)) if limits else Amounts()


def memory(programs: Found, limits: Amounts, ceiling: Ceiling, gpu_bytes: int | None) -> int | None:
    """The memory limit in bytes; None for none, and where `memory_known` says that nobody knows.

    Args:
        programs: what these found.
        limits: with what was set.
        ceiling: what an operator's file allows.
        gpu_bytes: of the whole GPU, for a limit that is a part of it; None: what the programs found
            stands, which they replace at their next request.
    """
    if limits.memory is None or (limits.memory_is_part and gpu_bytes is None):
        return programs.memory_bytes
    if limits.memory_is_part:
        return under(ceiling.memory_bytes, sizes.part_of(gpu_bytes or 0, limits.memory))
    return under(ceiling.memory_bytes, limits.memory or None)


def memory_known(programs: Found, limits: Amounts, limit_bytes: int | None) -> bool:
    """Whether `limit_bytes`, which `memory` told, is the limit."""
    return programs.running or limit_bytes is not None or limits.memory == 0


def under(ceiling: int | None, limit: int | None) -> int | None:
    """What of a limit is left under a ceiling; None for no limit, and for no ceiling."""
    if ceiling is None or limit is None:
        return ceiling if limit is None else limit
    return min(ceiling, limit)


def cores_known(programs: Found, limits: Amounts, *, covered: bool) -> bool:
    """Whether `shares` tells what holds: not for programs whose time file nobody could look for.

    Args:
        programs: what these found.
        limits: with what was set.
        covered: as node_folders.Reach.covers.
    """
    if programs.shares is not None or limits.cores is not None:
        return True
    return programs.running and covered


def shares(published: Shares | None, limits: Amounts, ceiling: Ceiling) -> Shares | None:
    """The shares of GPU time; None for no limit. Idle processes follow what is set only later."""
    if limits.cores is not None:
        hard = under(ceiling.cores, limits.cores or None) or _WHOLE_SHARE
        soft = min(limits.soft_cores or 0, ceiling.soft_cores or _WHOLE_SHARE)
        published = Shares(hard, max(hard, soft))
    return published if published and 0 < published.hard < _WHOLE_SHARE else None


def _last_shares(device: Device, tenant: Tenant | None) -> Shares | None:
    """What the container's programs of this GPU had, all of which have ended.

    None where they did not all have the same, or one had no core limit.
    """
    ended = [use.owner for use in device.uses if use.owner.life is Life.GONE]
    members = {_who(member.owner): member.shares for member in (tenant.members if tenant else ())}
    theirs = {members.get(_who(owner)) for owner in ended}
    return theirs.pop() if len(theirs) == 1 else None


def _who(owner: Owner) -> tuple[int, int, int]:
    return owner.pid_namespace, owner.pid, owner.start_ticks


def priority(tenant: Tenant | None, limits: Amounts) -> Priority | None:
    """Whose launches go first; None where nobody said.

    What living programs go by beats what was set: an operator's file may allow no more than that.
    """
    published = tenant.priority if tenant and tenant.alive else None
    return limits.terms.priority if published is None else published
