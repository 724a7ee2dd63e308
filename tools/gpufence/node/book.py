"""Who has which GPU, and how much of it: the rules by which nothing is given out twice.

Pure: takes and returns values, knows neither files nor the kubelet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpufence.errors import ToolError

from .gpus import Gpu

WHOLE = 100  # percent of a GPU's time

# Units by their resource's name, sorted, as the kubelet has them.
Units = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a container asks for: so many GPUs, and of each of them that much.

    `memory_bytes` 0 is a whole GPU's memory, `cores` 0 no core limit.
    """

    gpus: int
    memory_bytes: int
    cores: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a container may have of one GPU; 0 of something is no limit of it there."""

    gpu: str
    memory_bytes: int
    cores: int

    def __str__(self) -> str:
        memory = f"{self.memory_bytes >> 20} MiB" if self.memory_bytes else "no memory limit"
        return f"{memory}, {self.cores or WHOLE} % of {self.gpu}"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a container has. `key` names its folder, `owner` is namespace/pod/container.

    `parts`: where somebody else gives out the GPUs, and of each as much as there; the two amounts
    are 0 then.
    """

    key: str
    owner: str
    units: Units
    gpus: tuple[str, ...]
    memory_bytes: int
    cores: int
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return "; ".join(map(str, self.parts))
        return f"{self.memory_bytes >> 20} MiB of {', '.join(self.gpus)}"


def place(
    gpus: Iterable[Gpu], grants: Collection[Grant], wanted: Wanted, policy: str, slots: int
) -> tuple[tuple[str, ...], int]:
    """GPUs on which the container fits, and the bytes that it has on each.

    Args:
        gpus: of the node.
        grants: what the others have.
        wanted: by the container.
        policy: "spread" prefers the GPU with most free memory, "pack" the one with least.
        slots: how many containers a GPU takes.

    Raises:
        ToolError: exit 1, it fits nowhere now.
    """
    fitting = []
    for order, gpu in enumerate(gpus):
        there = [grant for grant in grants if gpu.uuid in grant.gpus]
        free = gpu.memory_bytes - sum(grant.memory_bytes for grant in there)
        share = wanted.memory_bytes or gpu.memory_bytes
        cores = WHOLE - sum(grant.cores for grant in there)
        if share <= free and wanted.cores <= cores and len(there) < slots:
            rank = -free if policy == "spread" else free
            fitting.append((rank, order, gpu.uuid, share))
    chosen = sorted(fitting)[: wanted.gpus]
    if len(chosen) < wanted.gpus:
        raise ToolError(
            what=f"no room for {_spelled(wanted)}",
            why=f"{len(fitting)} of the {wanted.gpus} GPUs that it needs have so much left",
            fix="It starts when other containers end; or ask for less",
        )
    # Where it has whole GPUs of different sizes, the smallest counts: there is one limit for all.
    return tuple(uuid for _, _, uuid, _ in chosen), min(share for *_, share in chosen)


def _spelled(wanted: Wanted) -> str:
    memory = f"{wanted.memory_bytes >> 20} MiB" if wanted.memory_bytes else "all memory"
    return f"{memory} and {wanted.cores} % of {wanted.gpus} GPUs"


def ended_by(grants: Iterable[Grant], units: Units) -> tuple[str, ...]:
    """Keys of those whose containers are over, since the kubelet gives their units out anew."""
    return tuple(
        grant.key
        for grant in grants
        if any(
            not set(taken).isdisjoint(grant.units.get(name, ())) for name, taken in units.items()
        )
    )


def misfit(
    gpus: Collection[Gpu], grants: Collection[Grant], slots: int, resources: Iterable[str] = ()
) -> str:
    """Why grants that were kept cannot be this agent's; empty when they can."""
    # Under other names the kubelet would give the same units out a second time.
    known = {gpu.uuid for gpu in gpus} | set(resources)
    named = {each for grant in grants for each in (*grant.gpus, *grant.units)}
    problems = overbooked(gpus, grants, slots)
    problems += [f"it has {each}, which this agent does not have" for each in sorted(named - known)]
    return problems[0] if problems else ""


def overbooked(gpus: Iterable[Gpu], grants: Collection[Grant], slots: int) -> list[str]:
    """What must never be: a line for each GPU of which more is given out than it has."""
    found = []
    for gpu in gpus:
        there = [grant for grant in grants if gpu.uuid in grant.gpus]
        memory, cores = (sum(each.memory_bytes for each in there), sum(g.cores for g in there))
        if memory > gpu.memory_bytes or cores > WHOLE or len(there) > slots:
            found.append(f"{gpu.uuid}: {memory} bytes, {cores} %, {len(there)} containers")
    return found
