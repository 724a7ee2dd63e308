"""How far a long step is: a bar for whoever waits at a terminal, one line for a log.

Must not know what the step is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def told(items: Sequence[_Item], what: str) -> Iterator[_Item]:
    """The items, one by one; stderr is told how many are done.

    Args:
        items: what is worked on.
        what: stands in front of the bar, or in the line.
    """
    if sys.stderr is None:
        yield from items
        return
    try:
        if not sys.stderr.isatty():
            raise ModuleNotFoundError  # a bar in a log is many lines
        from rich.console import Console
        from rich.progress import track
    except ModuleNotFoundError:
        print(f"hookgen: {what}: {len(items)} steps", file=sys.stderr, flush=True)
        yield from items
        return
    yield from track(items, f"hookgen: {what}", console=Console(stderr=True), transient=True)
