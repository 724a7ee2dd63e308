"""What a DRA agent does for each claim: prepares it once, and takes it back.

Owns the order of steps: grant, files, answer. Must not know gRPC, nor by which rules a claim
becomes a grant, nor how a grant is kept.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpufence.errors import ToolError

from .book import Grant
from .boxes import Boxes
from .grants import Grants

_UID = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}[0-9A-Za-z])?")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the kubelet is told of one device of a claim.

    `requests`: the containers of which get `cdi_devices`; none: every container of the claim.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_devices: tuple[str, ...]


class Rules(Protocol):
    """How a driver's claims become grants."""

    @property
    def driver(self) -> str:
        """Whose claims they are."""

    @property
    def checkpoint(self) -> str:
        """The file's name in the agent's folder."""

    def misfit(self, held: Collection[Grant]) -> str:
        """Why grants that were kept cannot be this agent's; empty when they can."""

    def grant(
        self, key: str, claim: dict[str, Any], uid: str, others: Collection[Grant]
    ) -> tuple[Grant, tuple[Answer, ...]]:
        """What a claim has, beside `others`.

        Raises:
            ToolError: exit 1, it cannot be prepared.
        """


@dataclass(slots=True)
class Claims:
    """Every claim that is prepared on this node. `fetch` asks the API server for one."""

    rules: Rules
    boxes: Boxes
    fetch: Callable[[str, str], dict[str, Any] | None]
    grants: Grants = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.grants = Grants(self.boxes, self.rules.checkpoint)

    def open(self) -> None:
        """Read the checkpoint, and remove what an agent that was killed left behind.

        Raises:
            ToolError: exit 1, when it is damaged or does not fit this node's GPUs.
        """
        self.grants.open(self.rules.misfit)

    def prepare(self, namespace: str, name: str, uid: str) -> tuple[Answer, ...]:
        """Have a claim's files in place; the same answer again, however often it is asked.

        Raises:
            ToolError: exit 1, the claim is not ours, or more than is left.
        """
        key = key_of(uid)
        with self._lock:
            found = self.fetch(namespace, name)
            if found is None:
                raise ToolError(
                    what=f"claim {namespace}/{name} not prepared",
                    why="the API server has none of this name",
                    fix="Delete the pod",
                )
            others = [grant for k, grant in self.grants.held.items() if k != key]
            grant, answers = self.rules.grant(key, found, uid, others)
            if self.grants.held.get(key) != grant:
                self._forget(key)
                self.grants.add(grant)
            self.boxes.fill(grant)
            return answers

    def unprepare(self, uid: str) -> None:
        """Take a claim's files back; one that nobody prepared is taken back, too."""
        key = key_of(uid)
        with self._lock:
            self._forget(key)

    def _forget(self, key: str) -> None:
        if key in self.grants.held:
            self.grants.end([key])
        else:
            self.boxes.empty(key)


def key_of(uid: str) -> str:
    """What a claim's folder and CDI device are called.

    Raises:
        ToolError: exit 1, it is no UID.
    """
    if not _UID.fullmatch(uid):
        raise ToolError(
            what=f"claim '{uid[:80]}' refused", why="that is no UID", fix="Make the claim anew"
        )
    return f"claim-{uid}"
