"""What an agent has given out: each grant in the checkpoint first, and its files after it.

An agent that is killed between the two leaves files without a grant, which the next one removes,
never a grant that nobody knows of. The only writer of the checkpoint; must not know who asks, nor
take a lock: whoever asks holds one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.errors import one_line

from . import checkpoint
from .book import Grant
from .boxes import Boxes


@dataclass(slots=True)
class Grants:
    """Grants by key; `name` is the checkpoint's file in the agent's folder."""

    boxes: Boxes
    name: str
    held: dict[str, Grant] = field(default_factory=dict)

    def open(self, misfit: Callable[[Collection[Grant]], str]) -> None:
        """Read the checkpoint, and remove what an agent that was killed left behind.

        Args:
            misfit: why grants cannot be this agent's, empty when they can.

        Raises:
            ToolError: exit 1, when it is damaged or does not fit.
        """
        self.held = checkpoint.read(self._path)
        if why := misfit(self.held.values()):
            raise checkpoint.refused(self._path, why)
        for key in sorted(self.boxes.keys() - set(self.held)):
            self.boxes.empty(key)

    def add(self, made: Grant, instead_of: Iterable[str] = ()) -> None:
        """Give out, in place of grants that are over; the files of `made` are the caller's."""
        over = set(instead_of)
        others = {key: grant for key, grant in self.held.items() if key not in over}
        self._keep({**others, made.key: made})
        for key in sorted(over - {made.key}):
            self.boxes.empty(key)
        _tell(f"{made.owner} has {made}")

    def end(self, keys: Iterable[str]) -> None:
        """Forget grants and remove their files; the checkpoint first."""
        over = sorted(set(keys))
        if not over:
            return
        for key in over:
            _tell(f"{self.held[key].owner} is over")
        self._keep({key: grant for key, grant in self.held.items() if key not in over})
        for key in over:
            self.boxes.empty(key)

    def _keep(self, grants: dict[str, Grant]) -> None:
        checkpoint.write(self._path, grants.values())
        self.held = grants

    @property
    def _path(self) -> Path:
        return self.boxes.folder / self.name


def _tell(text: str) -> None:
    print(f"gpufence: {one_line(text)}", file=sys.stderr, flush=True)
