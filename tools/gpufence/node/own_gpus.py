"""Claims of the agent's own driver: the scheduler has chosen, and nothing is given out twice.

The agent checks that all the same, since only it knows what it has prepared. Must not know where
claims come from, nor how a grant is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gpufence.errors import ToolError

from . import book, slices
from .book import Grant
from .boxes import Boxes
from .claims import Answer
from .gpus import Gpu

CHECKPOINT = "claims.json"
_MOST_CLAIMS = 1000  # of a GPU; the scheduler sets the bound, by what they take


@dataclass(frozen=True, slots=True)
class OwnGpus:
    """The GPUs that this node's slice has."""

    gpus: tuple[Gpu, ...]
    boxes: Boxes
    driver: str = slices.DRIVER
    checkpoint: str = CHECKPOINT

    def misfit(self, held: Collection[Grant]) -> str:
        """Why grants that were kept cannot be this agent's; empty when they can."""
        return book.misfit(self.gpus, held, _MOST_CLAIMS)

    def grant(
        self, key: str, claim: dict[str, Any], uid: str, others: Collection[Grant]
    ) -> tuple[Grant, tuple[Answer, ...]]:
        """What a claim has, beside `others`: each share with the claim's CDI device.

        Raises:
            ToolError: exit 1, the claim is not ours, or more than is left.
        """
        owner, shares = slices.shares_of(claim, uid)
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
        problems = book.overbooked(self.gpus, [*others, made], _MOST_CLAIMS)
        if problems:
            raise ToolError(
                what=f"claim {owner} not prepared",
                why=f"too much would be given out: {problems[0]}",
                fix="It is prepared when other claims are over; see `kubectl get resourceclaims`",
            )
        device = (self.boxes.device(key),)
        return made, tuple(Answer((s.request,), s.pool, s.device, device) for s in shares)
