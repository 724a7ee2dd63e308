"""What must be true of containers and of what an agent gave out, looked at again and again.

Pure: takes what was seen, knows neither a cluster nor files. Every complaint is a line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpufence.node.book import Grant, overbooked
from gpufence.node.gpus import Gpu

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What one pod asks for, of one GPU."""

    memory_mib: int
    cores: int


@dataclass(slots=True)
class Model:
    """All that was ever seen; `wrong`, `lost` and `double` grow."""

    gpus: tuple[Gpu, ...]
    slots: int
    asked: dict[str, Asked] = field(default_factory=dict)
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    without_gpu: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    double: set[str] = field(default_factory=set)
    looks: int = 0

    def look(self, grants: Collection[Grant], running: Collection[str]) -> None:
        """At everything that is given out.

        Args:
            grants: of the agent's checkpoint.
            running: pods whose container ran both before and after the checkpoint was read.
        """
        self.looks += 1
        held = {_pod(grant) for grant in grants}
        self.double |= set(overbooked(self.gpus, grants, self.slots))
        if len(held) < len(grants):
            self.double.add("a container has two grants")
        served = set(running) - self.without_gpu
        self.lost |= {f"{pod} runs without a grant" for pod in served - held}
        for grant in grants:
            self._compare(grant)

    def _compare(self, grant: Grant) -> None:
        pod = _pod(grant)
        asked = self.asked[pod]
        if (grant.memory_bytes, grant.cores) != (asked.memory_mib * MIB, asked.cores):
            self.wrong.add(f"{pod}: {grant.memory_bytes} bytes and {grant.cores} % for {asked}")
        if self.places.setdefault(pod, grant.gpus) != grant.gpus:
            self.lost.add(f"{pod} went from {self.places[pod]} to {grant.gpus}")

    def program(self, pod: str, facts: Mapping[str, int]) -> None:
        """What a program in a pod got until it was refused; all of it in pieces of 64 MiB.

        Where its container was started without a word to the agent, `cuInit` has to fail.
        """
        if facts.get("init") != 0:
            self.without_gpu.add(pod)
            return
        limit = self.asked[pod].memory_mib * MIB
        if facts.get("granted 0") != limit or facts.get("refused 0") != 2:
            self.wrong.add(f"{pod} has a limit of {limit} bytes, and its program saw {facts}")


def _pod(grant: Grant) -> str:
    return grant.owner.split("/")[1]


def percentile(values: Collection[float], percent: float) -> float:
    """The smallest value that so many percent of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
