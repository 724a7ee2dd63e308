"""One look at everything that is fenced on this machine: GPUs, their containers, their processes.

Joins what regions, time files, NVML and /proc say; what one of them does not know is None. Every
output (screen, text, JSON, metrics) is made from this. Must not know how it is shown. Standard
library only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.config.terms import Priority
from gpufence.container import containers, in_force, node_folders
from gpufence.machine import gpus
from gpufence.machine.people import People, Pod
from gpufence.state import notices, region, time_file
from gpufence.state import shared_layout as layout
from gpufence.state.limits_bytes import Amounts
from gpufence.state.region import Activity
from gpufence.state.shared_file import Life, Owner, RegionError, is_in_use


@dataclass(frozen=True, slots=True)
class Process:
    """One process on one GPU; memory in bytes, None where only a time file knows the process.

    `unified_bytes` of what is used lie on the host, because memory is oversold.
    `pid` is its number in our pid namespace, or, when `foreign`, in its own: it cannot be told
    which of ours that is.
    """

    pid: int
    foreign: bool
    user: str
    command: str | None
    alive: bool
    used_bytes: int | None
    unified_bytes: int | None
    overhead_bytes: int | None
    limit_bytes: int | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class Container:
    """One container on one GPU; memory in bytes.

    `memory_known` is False where its region cannot be seen, `limit_known` also where no program
    lives and its files do not tell what the last ones had. Where memory is `oversold`,
    `unified_bytes` of what is used lie on the host, and `share_bytes` may lie on the device.
    `shares` and `charged_ns` (all GPU time that it was charged) are None without a core limit, and
    where nobody can tell whether one holds (`shares_known`). Launches of one that is `frozen` are
    held; where its files cannot be seen, nobody can tell. `priority` is None where nobody said.
    """

    name: str
    pod: Pod
    alive: bool
    memory_known: bool
    limit_bytes: int | None
    used_bytes: int
    orphan_bytes: int
    oversold: bool
    unified_bytes: int
    share_bytes: int | None
    shares: time_file.Shares | None
    charged_ns: int | None
    has_turn: bool
    activity: Activity
    processes: tuple[Process, ...]
    limit_known: bool = True
    shares_known: bool = True
    frozen: bool = False
    priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `reading` is None where NVML does not show it."""

    uuid: str
    reading: gpus.Reading | None
    containers: tuple[Container, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """`moment_ns` is of CLOCK_MONOTONIC, `problems` are files that could not be read."""

    moment_ns: int
    gpus: tuple[Gpu, ...]
    problems: tuple[RegionError, ...]

    @property
    def containers(self) -> int:
        """How many containers there are, each once."""
        return len({container.name for gpu in self.gpus for container in gpu.containers})

    @property
    def processes(self) -> int:
        """How many processes there are, each once."""
        return len(
            {
                (container.name, process.pid)
                for gpu in self.gpus
                for container in gpu.containers
                for process in container.processes
            }
        )


@dataclass(slots=True)
class Watcher:
    """Looks as often as asked; keeps NVML open and what it learned of processes.

    `folder` is the only one looked into, but for `node`, where containers take turns; None for the
    usual ones. `agent` is the folder of a node's agent, whose containers are looked at as well.
    `all_of_them` also shows containers and processes that have ended.
    """

    environment: Mapping[str, str]
    folder: str | None = None
    all_of_them: bool = False
    people: People = field(default_factory=People)
    nvml: gpus.Nvml | None = None
    node: str | None = None
    agent: str | None = None

    def look(self) -> Look:
        """Everything as it is now."""
        moment_ns = time.monotonic_ns()
        regions, problems = region.read_all(self._regions())
        reach = node_folders.look(self.environment, self.folder, regions, self.people, self.node)
        cores, core_problems = time_file.read_all(reach.files)
        readings = {reading.uuid: reading for reading in self.nvml.read()} if self.nvml else {}
        found: dict[str, list[Container]] = {uuid: [] for uuid in readings}
        seats = _Seats(cores)
        for each in _newest(regions):
            for device in each.devices:
                reading = readings.get(_known_as(device.uuid, found))
                container = self._container(each, device, seats, reading, reach)
                if container.alive or self.all_of_them:
                    found.setdefault(_known_as(device.uuid, found), []).append(container)
        for uuid, seat in seats.left():
            container = self._stranger(seat)
            if container.alive or self.all_of_them:
                found.setdefault(_known_as(uuid, found), []).append(container)
        for uuid, container in self._neighbours(cores, found):
            found[uuid].append(container)
        order = sorted(
            found, key=lambda uuid: (readings[uuid].index if uuid in readings else 9999, uuid)
        )
        return Look(
            moment_ns=moment_ns,
            gpus=tuple(Gpu(uuid, readings.get(uuid), _by_name(found[uuid])) for uuid in order),
            problems=self._worth_telling([*problems, *core_problems]),
        )

    def _regions(self) -> list[Path]:
        found = region.find(self.environment, self.folder)
        for place in containers.of_agent(self.agent) if self.agent else ():
            found += region.find(self.environment, str(place))
        return found

    def _worth_telling(self, problems: list[RegionError]) -> tuple[RegionError, ...]:
        """Files that nobody uses any more are no problem."""
        return tuple(each for each in problems if self.all_of_them or is_in_use(each.path))

    def _container(
        self,
        of: region.Region,
        device: region.Device,
        seats: _Seats,
        reading: gpus.Reading | None,
        reach: node_folders.Reach,
    ) -> Container:
        set_limits = in_force.limits_of(of)
        limits = in_force.amounts(set_limits, device.uuid)
        seat = seats.take(device.uuid, of.container)
        found = in_force.found(device, set_limits, seat.tenant if seat else None)
        gpu_bytes = reading.memory_total_bytes if reading else None
        limit_bytes = in_force.memory(found, limits, device.ceiling, gpu_bytes)
        covered = reach.covers(use.owner for use in device.uses)
        processes = [
            self._process(use.owner, use, device.oversold)
            for use in device.uses
            if use.owner.life is Life.ALIVE or self.all_of_them
        ]
        return Container(
            name=of.container,
            pod=self._pod(use.owner for use in device.uses),
            alive=found.running,
            memory_known=True,
            limit_bytes=limit_bytes,
            used_bytes=device.used_bytes,
            orphan_bytes=device.orphan_bytes,
            oversold=device.oversold,
            unified_bytes=device.unified_bytes,
            share_bytes=device.share_of(limit_bytes),
            shares=in_force.shares(found.shares, limits, device.ceiling),
            charged_ns=seat.tenant.charged_ns if seat else None,
            has_turn=seat.has_turn if seat else False,
            activity=device.activity,
            processes=tuple(processes),
            shares_known=in_force.cores_known(found, limits, covered=covered),
            limit_known=in_force.memory_known(found, limits, limit_bytes),
            frozen=limits.frozen,
            priority=in_force.priority(seat.tenant if seat else None, limits),
        )

    def _stranger(self, seat: _Seat) -> Container:
        """A tenant of a node's time file whose region cannot be seen from here."""
        members = [
            member
            for member in seat.tenant.members
            if member.owner.life is Life.ALIVE or self.all_of_them
        ]
        return _unseen(
            key=seat.tenant.key,
            alive=seat.tenant.alive,
            shares=seat.tenant.shares,
            charged_ns=seat.tenant.charged_ns,
            has_turn=seat.has_turn,
            priority=in_force.priority(seat.tenant, Amounts()),
            pod=self._pod(member.owner for member in members),
            processes=tuple(self._process(member.owner, None, False) for member in members),
        )

    def _neighbours(
        self, cores: list[time_file.TimeFile], known: Iterable[str]
    ) -> Iterator[tuple[str, Container]]:
        """Living containers that only their notices show, on GPUs that are known here."""
        seen = {device.author for each in cores for device in each.devices}
        uuids = {notices.device_key(uuid): uuid for uuid in known}
        written = [notices.read_all(self.environment, self.folder)]
        if self.node is not None:
            written.append(notices.read_all({}, self.node))
        for each in itertools.chain(*written):
            if each.alive and each.device in uuids and each.author not in seen:
                seen.add(each.author)
                yield uuids[each.device], _noticed(each)

    def _process(self, owner: Owner, use: region.Use | None, oversold: bool) -> Process:
        person = self.people.look_up(owner)
        return Process(
            pid=owner.pid if person.pid is None else person.pid,
            foreign=owner.foreign and person.pid is None,
            user=self.people.user(owner.uid),
            command=person.command,
            alive=owner.life is Life.ALIVE,
            used_bytes=use.used_bytes if use else None,
            unified_bytes=(use.unified_bytes if oversold else 0) if use else None,
            overhead_bytes=use.overhead_bytes if use else None,
            limit_bytes=use.limit_bytes if use else None,
            activity=use.activity if use else Activity(),
        )

    def _pod(self, owners: Iterable[Owner]) -> Pod:
        pods = (self.people.look_up(owner).pod for owner in owners)
        return next((pod for pod in pods if pod != Pod()), Pod())


def _noticed(notice: notices.Notice) -> Container:
    """A container whose files cannot be seen from here, as it tells its neighbours."""
    return _unseen(
        key=notice.author,
        alive=notice.alive,
        shares=notice.shares,
        charged_ns=notice.charged_ns,
        has_turn=notice.holds_turn,
        priority=notice.priority,
        pod=Pod(),
        processes=(),
    )


def _unseen(
    *,
    key: int,
    alive: bool,
    shares: time_file.Shares | None,
    charged_ns: int,
    has_turn: bool,
    priority: Priority | None,
    pod: Pod,
    processes: tuple[Process, ...],
) -> Container:
    """A container whose region cannot be seen from here: only what it tells is known."""
    return Container(
        name=f"#{key:016x}",
        pod=pod,
        alive=alive,
        memory_known=False,
        limit_bytes=None,
        used_bytes=0,
        orphan_bytes=0,
        oversold=False,
        unified_bytes=0,
        share_bytes=None,
        shares=in_force.shares(shares, Amounts(), region.NO_CEILING),
        charged_ns=charged_ns,
        has_turn=has_turn,
        activity=Activity(),
        processes=processes,
        limit_known=False,
        priority=priority,
    )


@dataclass(frozen=True, slots=True)
class _Seat:
    """A tenant of a time file, and whether the turn is its own."""

    tenant: time_file.Tenant
    has_turn: bool


class _Seats:
    """The tenants of all time files, until a region claims them."""

    def __init__(self, files: Iterable[time_file.TimeFile]) -> None:
        self._seats: dict[tuple[str, int], _Seat] = {}
        for file in files:
            for device in file.devices:
                for tenant in device.tenants:
                    if tenant.number != layout.OWN_TENANT and not tenant.members:
                        continue  # a neighbour, which has files of its own
                    key = (device.uuid, tenant.key)
                    has_turn = device.takes_turns and device.turn.tenant == tenant.number
                    seat = _Seat(tenant, has_turn)
                    before = self._seats.get(key)
                    # The same name in two files: the one where somebody lives.
                    if before is None or (tenant.alive and not before.tenant.alive):
                        self._seats[key] = seat

    def take(self, uuid: str, container: str) -> _Seat | None:
        """The container's seat on the GPU, once."""
        return self._seats.pop((uuid, time_file.tenant_key(container)), None)

    def left(self) -> list[tuple[str, _Seat]]:
        """Those whose region nobody showed."""
        return [(uuid, seat) for (uuid, _), seat in sorted(self._seats.items())]


def _newest(regions: Iterable[region.Region]) -> list[region.Region]:
    """Each container once: of files with one name, the one where somebody lives, then the first."""
    kept: dict[str, region.Region] = {}
    for each in regions:
        before = kept.get(each.container)
        if before is None or (each.alive and not before.alive):
            kept[each.container] = each
    return list(kept.values())


def _known_as(uuid: str, known: Iterable[str]) -> str:
    """The name that NVML has for it: a part of a GPU is called MIG-... there."""
    mig = "MIG-" + uuid.removeprefix("GPU-")
    return mig if mig in known else uuid


def _by_name(containers: list[Container]) -> tuple[Container, ...]:
    return tuple(sorted(containers, key=lambda container: container.name))
