"""What an agent does for each call of the kubelet: units in, files and grants out.

A device plugin is asked about one resource at a time and never told for whom. So nothing is decided
when units are given out (`allocated`), and everything when the container starts (`start`): then the
kubelet lists it with all of its units. Owns whose units are whose; must not know gRPC, nor how a
grant is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from gpufence.errors import ExitCode, ToolError

from . import book
from .book import Grant, Units, Wanted
from .boxes import Boxes
from .config import Config
from .gpus import Gpu
from .grants import Grants

CHECKPOINT = "grants.json"
# The kubelet takes messages of 4 MiB. A unit is its name, "Healthy", and three tags with lengths.
_LONGEST_LIST = 4 << 20
_UNIT_BYTES = 13
_PREFIXES = {"gpu": "g", "memory": "m", "cores": "c"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A container as the kubelet lists it: namespace/pod/container, its units by resource."""

    owner: str
    units: Units


@dataclass(slots=True)
class Desk:
    """Everything that one agent has given out.

    `listing` asks the kubelet for its containers; `settled` says whether the kubelet has run for so
    long that a container which it does not list is over.
    """

    config: Config
    gpus: tuple[Gpu, ...]
    boxes: Boxes
    listing: Callable[[], Sequence[Listed]]
    settled: Callable[[], bool]
    grants: Grants = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.grants = Grants(self.boxes, CHECKPOINT)

    def open(self) -> None:
        """Read the checkpoint, and remove what an agent that was killed left behind.

        Raises:
            ToolError: exit 1, when it is damaged or does not fit this node's GPUs.
        """
        kinds, slots = self.kinds.values(), self.config.slots
        self.grants.open(lambda held: book.misfit(self.gpus, held, slots, kinds))

    @property
    def kinds(self) -> dict[str, str]:
        """Resource names by kind, of those that the configuration has."""
        named = {
            "gpu": self.config.gpu_resource,
            "memory": self.config.memory_resource,
            "cores": self.config.core_resource,
        }
        return {kind: name for kind, name in named.items() if name}

    @property
    def primary(self) -> str:
        """The kind that every container has to ask for."""
        return "gpu" if self.config.gpu_resource else "memory"

    def units(self, kind: str) -> list[str]:
        """Every unit of a kind.

        Raises:
            ToolError: exit 2, when they are more than the kubelet reads.
        """
        count = self._count(kind)
        names = [f"{_PREFIXES[kind]}{number:x}" for number in range(count)]
        if sum(map(len, names)) + _UNIT_BYTES * count > _LONGEST_LIST:
            raise ToolError(
                what=f"{self.kinds[kind]} refused",
                why=f"{count} units of it are more than a kubelet reads",
                fix="Give a larger memory_unit",
                status=ExitCode.USAGE,
            )
        return names

    def _count(self, kind: str) -> int:
        if kind == "memory":
            return sum(gpu.memory_bytes // self.config.memory_unit for gpu in self.gpus)
        return len(self.gpus) * (self.config.slots if kind == "gpu" else book.WHOLE)

    def _is_unit(self, kind: str, name: str) -> bool:
        try:
            number = int(name[1:], 16)
        except ValueError:
            return False
        return name == f"{_PREFIXES[kind]}{number:x}" and number < self._count(kind)

    def preferred(
        self, kind: str, available: Collection[str], must: Collection[str], size: int
    ) -> list[str]:
        """Units to take: those that must be among them, then the first ones.

        Whose units are available is over: the kubelet says so.
        """
        free = set(available) - set(must)
        with self._lock:
            self._end({self.kinds[kind]: tuple(free)})
        rest = sorted(free, key=_number)
        return [*must, *rest][:size]

    def allocated(self, kind: str, names: Iterable[str]) -> str:
        """Units are given out anew: those who had them are over, and nothing of them is left.

        Returns:
            The container's key where the kind is the primary one, else "".
        """
        taken = tuple(sorted(names, key=_number))
        if not taken or not all(self._is_unit(kind, name) for name in taken):
            raise _unknown(kind, taken)
        with self._lock:
            self._end({self.kinds[kind]: taken})
            if kind != self.primary:
                return ""
            key = taken[0]
            self.boxes.empty(key)  # an agent may have been killed before it did
            return key

    def start(self, kind: str, names: Iterable[str]) -> Grant:
        """A container starts, perhaps again: it has its GPU and its files when this returns.

        Raises:
            ToolError: exit 1, the kubelet does not list it, it asks for too little, or does not
                fit now.
        """
        asked = tuple(sorted(names, key=_number))
        with self._lock:
            # What was given out anew has no grant any more (`allocated`): it is its own.
            name = self.kinds[kind]
            held = (grant for grant in self.grants.held.values() if grant.units.get(name) == asked)
            known = next(held, None) or self._place(kind, asked)
            self.boxes.fill(known)
            return known

    def _place(self, kind: str, asked: tuple[str, ...]) -> Grant:
        """What a container gets that has nothing yet."""
        listed = self.listing()
        name, primary = self.kinds[kind], self.kinds[self.primary]
        mine = next((each for each in listed if each.units.get(name) == asked), None)
        if mine is None:
            raise _unknown(kind, asked)
        if primary not in mine.units:
            raise ToolError(
                what=f"{mine.owner} refused",
                why=f"it asks for {name} and no {primary}",
                fix=f"Ask for {primary}, too",
            )
        return self._grant(mine.units[primary][0], mine, listed)

    def _grant(self, key: str, mine: Listed, listed: Sequence[Listed]) -> Grant:
        held = self.grants.held
        over = set(book.ended_by(held.values(), mine.units))
        if self.settled():
            name = self.kinds[self.primary]
            there = {(e.owner, e.units[name][0]) for e in listed if name in e.units}
            over |= {k for k, grant in held.items() if (grant.owner, k) not in there}
        others = [grant for k, grant in held.items() if k not in over]
        wanted = self._wanted(mine)
        gpus, memory = book.place(self.gpus, others, wanted, self.config.policy, self.config.slots)
        made = Grant(key, mine.owner, mine.units, gpus, memory, wanted.cores)
        self.grants.add(made, instead_of=over)
        return made

    def _wanted(self, mine: Listed) -> Wanted:
        counts = {kind: len(mine.units.get(name, ())) for kind, name in self.kinds.items()}
        memory = counts.get("memory", 0) * self.config.memory_unit
        cores = counts.get("cores", 0)
        return Wanted(
            gpus=counts.get("gpu", 1),
            memory_bytes=memory or self.config.default_memory,
            cores=cores or self.config.default_cores,
        )

    def _end(self, units: Units) -> None:
        """Who had units that are free now, or another's, is over."""
        self.grants.end(book.ended_by(self.grants.held.values(), units))


def _number(unit: str) -> tuple[int, str]:
    """Units in their order: m9 before m10."""
    return len(unit), unit


def _unknown(kind: str, names: Sequence[str]) -> ToolError:
    first = names[0] if names else "none"
    return ToolError(
        what=f"units of {kind} refused",
        why=f"the kubelet lists no container with exactly these {len(names)}, {first} for one",
        fix="Delete the pod; if others fail, too, restart the kubelet",
    )
