"""What a DRA agent does for each claim: prepares it once, and takes it back.

The scheduler has chosen; the agent checks that nothing is given out twice all the same, since only
it knows what it has prepared. Must not know gRPC, nor how a grant is kept.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpufence.errors import ToolError

from . import book, slices
from .book import Grant
from .boxes import Boxes
from .gpus import Gpu
from .grants import Grants
from .slices import Share

CHECKPOINT = "claims.json"
_UID = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}[0-9A-Za-z])?")
_MOST_CLAIMS = 1000  # of a GPU; the scheduler sets the bound, by what they take


@dataclass(slots=True)
class Claims:
    """Every claim that is prepared on this node. `fetch` asks the API server for one."""

    gpus: tuple[Gpu, ...]
    boxes: Boxes
    fetch: Callable[[str, str], dict[str, Any] | None]
    grants: Grants = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.grants = Grants(self.boxes, CHECKPOINT)

    def open(self) -> None:
        """Read the checkpoint, and remove what an agent that was killed left behind.

        Raises:
            ToolError: exit 1, when it is damaged or does not fit this node's GPUs.
        """
        self.grants.open(lambda held: book.misfit(self.gpus, held, _MOST_CLAIMS))

    def prepare(self, namespace: str, name: str, uid: str) -> list[tuple[Share, str]]:
        """Have a claim's files in place: its shares, each with its CDI device.

        The same answer again, however often it is asked.

        Raises:
            ToolError: exit 1, the claim is not ours, or more than is left.
        """
        owner = f"{namespace}/{name}"
        key = _key(uid)
        with self._lock:
            found = self.fetch(namespace, name)
            if found is None:
                raise ToolError(
                    what=f"claim {owner} not prepared",
                    why="the API server has none of this name",
                    fix="Delete the pod",
                )
            shares = slices.shares_of(found, uid)
            grant = self._grant(key, owner, shares)
            if self.grants.held.get(key) != grant:
                self.grants.add(grant)
                self.boxes.empty(key)
            self.boxes.fill(grant)
            return [(share, self.boxes.device(key)) for share in shares]

    def unprepare(self, uid: str) -> None:
        """Take a claim's files back; one that nobody prepared is taken back, too."""
        key = _key(uid)
        with self._lock:
            if key in self.grants.held:
                self.grants.end([key])
            else:
                self.boxes.empty(key)

    def _grant(self, key: str, owner: str, shares: tuple[Share, ...]) -> Grant:
        by_device = {slices.device_of(gpu): gpu for gpu in self.gpus}
        memory, cores = slices.amounts_of(shares, owner)
        names = [share.device for share in shares]
        strange = [name for name in names if name not in by_device]
        if strange or len(set(names)) < len(names):
            raise ToolError(
                what=f"claim {owner} not prepared",
                why=f"this node has no GPU '{strange[0]}'" if strange else "it has a GPU twice",
                fix="Make the claim anew",
            )
        gpus = tuple(by_device[name].uuid for name in names)
        made = Grant(key, owner, {}, gpus, memory, cores)
        problems = book.overbooked(self.gpus, [*self._others(key), made], _MOST_CLAIMS)
        if problems:
            raise ToolError(
                what=f"claim {owner} not prepared",
                why=f"too much would be given out: {problems[0]}",
                fix="It is prepared when other claims are over; see `kubectl get resourceclaims`",
            )
        return made

    def _others(self, key: str) -> list[Grant]:
        return [grant for k, grant in self.grants.held.items() if k != key]


def _key(uid: str) -> str:
    """What a claim's folder and CDI device are called."""
    if not _UID.fullmatch(uid):
        raise ToolError(
            what=f"claim '{uid[:80]}' refused", why="that is no UID", fix="Make the claim anew"
        )
    return f"claim-{uid}"
