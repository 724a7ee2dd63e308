"""Which limits hold for a container now: what was set while it runs, else what its processes found.

Of a container without a process: what its last ones found, which its files still have.

Joins a limits file (gpufence set) with what processes published. Must not know how it is shown.
"""

from __future__ import annotations

from gpufence.config import sizes
from gpufence.config.terms import Priority
from gpufence.errors import ToolError
from gpufence.state import limits_file
from gpufence.state.limits_bytes import Amounts
from gpufence.state.region import Ceiling, Device, Region
from gpufence.state.shared_file import Life, Owner
from gpufence.state.time_file import Shares, Tenant

_WHOLE_SHARE = 100_000


def amounts(of: Region, uuid: str) -> Amounts:
    """What was set for the container on this GPU; nothing where no file of its owner's says so."""
    try:
        owner = of.path.stat().st_uid
        found = limits_file.read(limits_file.path_of(of.path.parent, of.container), owner)
        if found is not None:
            return found.of(sizes.parse_uuid(uuid))
    except (OSError, ToolError):
        pass
    return Amounts()


def memory(device: Device, limits: Amounts, gpu_bytes: int | None) -> int | None:
    """The memory limit in bytes; None for none.

    Args:
        device: with what the processes published.
        limits: with what was set.
        gpu_bytes: of the whole GPU, for a limit that is a part of it; None: what the processes
            published stands, which they replace at their next request.
    """
    if limits.memory is None or (limits.memory_is_part and gpu_bytes is None):
        return device.limit_bytes
    if limits.memory_is_part:
        return under(device.ceiling.memory_bytes, sizes.part_of(gpu_bytes or 0, limits.memory))
    return under(device.ceiling.memory_bytes, limits.memory or None)


def under(ceiling: int | None, limit: int | None) -> int | None:
    """What of a limit is left under a ceiling; None for no limit, and for no ceiling."""
    if ceiling is None or limit is None:
        return ceiling if limit is None else limit
    return min(ceiling, limit)


def cores_known(published: Shares | None, limits: Amounts, *, covered: bool) -> bool:
    """Whether `shares` tells what holds: not for programs whose time file nobody could look for.

    Args:
        published: by the programs.
        limits: with what was set.
        covered: as node_folders.Reach.covers.
    """
    return published is not None or limits.cores is not None or covered


def shares(published: Shares | None, limits: Amounts, ceiling: Ceiling) -> Shares | None:
    """The shares of GPU time; None for no limit. Idle processes follow what is set only later."""
    if limits.cores is not None:
        hard = under(ceiling.cores, limits.cores or None) or _WHOLE_SHARE
        soft = min(limits.soft_cores or 0, ceiling.soft_cores or _WHOLE_SHARE)
        published = Shares(hard, max(hard, soft))
    return published if published and 0 < published.hard < _WHOLE_SHARE else None


def last_shares(device: Device, tenant: Tenant | None) -> Shares | None:
    """What the container's programs of this GPU had, all of which have ended.

    None where they did not all have the same, or one had no core limit.
    """
    ended = [use.owner for use in device.uses if use.owner.life is Life.GONE]
    members = {_who(member.owner): member.shares for member in (tenant.members if tenant else ())}
    found = {members.get(_who(owner)) for owner in ended}
    return found.pop() if len(found) == 1 else None


def _who(owner: Owner) -> tuple[int, int, int]:
    return owner.pid_namespace, owner.pid, owner.start_ticks


def priority(tenant: Tenant | None, limits: Amounts) -> Priority | None:
    """Whose launches go first; None where nobody said.

    What living programs go by beats what was set: an operator's file may allow no more than that.
    """
    published = tenant.priority if tenant and tenant.alive else None
    return limits.terms.priority if published is None else published
