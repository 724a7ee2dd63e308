"""NVML, asked all the while what each container of the soak holds, against what it may hold.

Must not know what happens to the containers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpufence.machine.gpus import Nvml
from judging import Allowance
from soak_members import MIB, Container

LOOK_S = 0.02
LOOKS = 3  # in a row above the limit: a list is no picture of one moment


@dataclass(slots=True)
class Seen:
    """A container: what it may hold, and for how many looks it has held more."""

    container: Container
    allowed: Allowance
    over: int = 0
    most_over: int = 0  # bytes, of those that lasted


@dataclass(slots=True)
class Watch:
    """What `look` saw so far; `fullest`: the greatest part of a limit that was in use."""

    nvml: Nvml
    uuid: str
    looks: int = 0
    fullest: float = 0.0
    _seen: dict[str, Seen] = field(default_factory=dict)
    _gone: list[Seen] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def know(self, container: Container) -> None:
        """Look at this one, too."""
        with self._lock:
            allowed = Allowance(container.first_mib * MIB)
            self._seen[container.name] = Seen(container, allowed)

    def forget(self, container: Container) -> None:
        """It has ended."""
        with self._lock:
            self._gone.append(self._seen.pop(container.name))

    @contextmanager
    def changing(self, container: Container, limit: int) -> Iterator[None]:
        """Its limit changes meanwhile: until then the higher one holds, and then the new one.

        What it holds when the limit is lowered may stay.
        """
        seen = self._seen[container.name]
        with self._lock:
            seen.allowed.change(max(limit, seen.allowed.limit))
        yield
        with self._lock:
            seen.allowed.change(limit)

    def problems(self) -> list[str]:
        """A line for each container that held more than it may, for more than a moment."""
        with self._lock:
            return [
                f"{each.container.name} held {each.most_over} bytes more than it may"
                for each in [*self._seen.values(), *self._gone]
                if each.most_over
            ]

    def look(self) -> None:
        """Once."""
        users = [user for user in self.nvml.users() if user.uuid == self.uuid]
        holds = {user.pid: user.used_bytes or 0 for user in users}
        with self._lock:
            self.looks += 1
            for seen in self._seen.values():
                used = sum(holds.get(each.pid, 0) for each in list(seen.container.members))
                self.fullest = max(self.fullest, used / seen.allowed.most)
                over = used - seen.allowed.most
                seen.over = seen.over + 1 if over > 0 else 0
                if seen.over >= LOOKS:
                    seen.most_over = max(seen.most_over, over)
