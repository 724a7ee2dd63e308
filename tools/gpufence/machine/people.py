"""Who a process is, as /proc tells: command, user, its number here, its pod's or engine's names.

A process of another pid namespace is found here by the number it has there, where this user may
look. What was found is kept, since it does not change while the process lives. Must not know
regions. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.state.shared_file import Life, Owner

from . import engines
from .process import user_name

# A process that is not found now may be one that this user may not see: not asked for all the time.
_LOOK_AGAIN_S = 5.0
_MOST_KEPT = 10_000

# Names that tell a pod: vgpu-manager's, then what pod specs usually call what they pass on.
_POD = ("VGPU_POD_NAME", "POD_NAME")
_NAMESPACE = ("VGPU_POD_NAMESPACE", "POD_NAMESPACE")
_CONTAINER = ("VGPU_CONTAINER_NAME",)


@dataclass(frozen=True, slots=True)
class Pod:
    """What a process's environment or its engine calls its pod and container; "" for nothing."""

    name: str = ""
    namespace: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """`pid` is the process's number in our pid namespace; None when it cannot be told."""

    pid: int | None
    command: str | None
    pod: Pod


_NOBODY = Person(None, None, Pod())


@dataclass(slots=True)
class People:
    """Looks processes up and remembers them."""

    proc: Path = Path("/proc")
    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[int, int, int], Person] = field(default_factory=dict)
    _pids_there: dict[tuple[int, int], int] = field(default_factory=dict)
    _looked_at: float | None = None
    _users: dict[int, str] = field(default_factory=dict)

    def look_up(self, owner: Owner) -> Person:
        """Who signed a slot; nobody when the process is gone or cannot be seen."""
        if owner.life is Life.GONE:
            return _NOBODY
        key = (owner.pid_namespace, owner.pid, owner.start_ticks)
        person = self._known.get(key)
        if person is None or person.pid is None:
            person = self._find(owner)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[key] = person
        return person

    def user(self, uid: int) -> str:
        """The user's name here, or the number."""
        if uid not in self._users:
            self._users[uid] = user_name(uid)
        return self._users[uid]

    def _find(self, owner: Owner) -> Person:
        pid: int | None = owner.pid
        if owner.foreign:
            pid = self._pid_here(owner.pid_namespace, owner.pid)
        if pid is None:
            return _NOBODY
        try:
            command = os.fsdecode((self.proc / str(pid) / "comm").read_bytes()).rstrip("\n")
        except OSError:
            return _NOBODY
        return Person(pid, printable(command), self.pod_of(pid))

    def _pid_here(self, namespace: int, pid: int) -> int | None:
        now = self.clock()
        if self._looked_at is None or now - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at = now
            self._pids_there = dict(self._list_pids())
        return self._pids_there.get((namespace, pid))

    def _list_pids(self) -> list[tuple[tuple[int, int], int]]:
        """(pid namespace, number there) and number here of every process that can be seen."""
        found = []
        for folder in self.proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                namespace = (folder / "ns" / "pid").stat().st_ino
                status = (folder / "status").read_bytes()
            except OSError:
                continue
            numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
            if numbers and numbers[-1].isdigit():
                found.append(((namespace, int(numbers[-1])), int(folder.name)))
        return found

    def pod_of(self, pid: int) -> Pod:
        """What a process's environment and its engine call its pod and container.

        Args:
            pid: in our own pid namespace.
        """
        names = self._environment(pid)

        def first(candidates: tuple[str, ...]) -> str:
            return next((names[name] for name in candidates if names.get(name)), "")

        own = Pod(first(_POD), first(_NAMESPACE), first(_CONTAINER))
        if not engines.is_elsewhere(self.proc, pid):
            return own
        engine = engines.look_up(self.proc, pid)
        found = Pod(
            own.name or engine.pod,
            own.namespace or engine.namespace,
            own.container or engine.container,
        )
        return found if found != Pod() else Pod(container=names.get("HOSTNAME", ""))

    def _environment(self, pid: int) -> dict[str, str]:
        try:
            raw = (self.proc / str(pid) / "environ").read_bytes()
        except OSError:
            return {}
        pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0"))
        return {name: printable(text) for name, _, text in pairs}


def printable(text: str) -> str:
    """A text that others chose, for a terminal: no control characters, no surrogates."""
    return "".join(character if character.isprintable() else "?" for character in text)
