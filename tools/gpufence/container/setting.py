"""How a container's limits are changed while it runs: its history, its limits file, its programs.

Owns the order of the three; must not know who asks, nor what the limits mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpufence.state import limits_file
from gpufence.state.limits_bytes import Amounts

from . import changes
from .containers import Container

Entries = Mapping[bytes, Amounts]


def apply(
    container: Container, edit: Callable[[Entries], Entries], *, replace_damaged: bool = False
) -> tuple[Entries, Entries, int]:
    """Change the limits file and tell running programs: the entries before and after, and theirs.

    Raises:
        ToolError: 1, it cannot be read or written.
    """
    path = container.limits_path
    before: list[Entries] = []

    def record(generation: int, old: Entries, new: Entries) -> None:
        before.append(old)
        changes.append(limits_file.history_of(path), container.owner, generation, old, new)

    told = limits_file.told(container.region) if container.region else 0
    changed = limits_file.change(
        path, container.owner, told, edit, record, replace_damaged=replace_damaged
    )
    if container.region:
        limits_file.announce(container.region, changed.generation)
    return before[-1], changed.entries, changed.generation
