"""How a core limit is held beside its shares: priority, weight, burst and floor.

Data, its grammar and its words; must not know where it is written. Standard library only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import figures, library, sizes

DEFAULT_FLOOR = 5_000  # thousandths of a percent


class Priority(enum.IntEnum):
    """Whose launches go first; the values are the library's."""

    NORMAL = 0
    LOW = 1
    HIGH = 2

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower()

    @property
    def rank(self) -> int:
        """Higher goes first."""
        return (1, 0, 2)[self]


_WORDS = {each.word: each for each in Priority}


@dataclass(frozen=True, slots=True)
class Terms:
    """Of a container, on every GPU; None is not set.

    `burst_ns` is GPU time that may be saved up, `floor` thousandths of a percent of the GPU.
    """

    priority: Priority | None = None
    weight: int | None = None
    burst_ns: int | None = None
    floor: int | None = None

    def over(self, general: Terms) -> Terms:
        """These, and where nothing is set, the general ones."""
        return Terms(
            general.priority if self.priority is None else self.priority,
            general.weight if self.weight is None else self.weight,
            general.burst_ns if self.burst_ns is None else self.burst_ns,
            general.floor if self.floor is None else self.floor,
        )

    def as_dict(self) -> dict[str, int | str]:
        """What is set, nanoseconds and thousandths of a percent as integers."""
        word = None if self.priority is None else self.priority.word
        values = (word, self.weight, self.burst_ns, self.floor)
        named = zip(TERM_KEYS, values, strict=True)
        return {name: each for name, each in named if each is not None}

    def words(self) -> dict[str, str]:
        """What is set, for people, by what it is called."""
        named = {
            "priority": None if self.priority is None else self.priority.word,
            "weight": None if self.weight is None else str(self.weight),
            "burst": None if self.burst_ns is None else burst_text(self.burst_ns),
            "floor": None if self.floor is None else figures.share(self.floor),
        }
        return {name: each for name, each in named.items() if each is not None}


NO_TERMS = Terms()


def words_of(amounts: Mapping[str, Any]) -> dict[str, str]:
    """Terms.words() of what Terms.as_dict() made."""
    priority = amounts.get("priority")
    return Terms(
        _WORDS[priority] if priority is not None else None,
        amounts.get("weight"),
        amounts.get("core_burst_ns"),
        amounts.get("core_floor_millipercent"),
    ).words()


def burst_text(ns: int) -> str:
    """A duration as it may be written, exactly, but for parts of a microsecond."""
    for unit_ns, unit in ((10**9, "s"), (10**6, "ms")):
        if ns and ns % unit_ns == 0:
            return f"{ns // unit_ns} {unit}"
    return f"{ns // 1000} us" if ns else "none"


def parse_priority(text: str) -> Priority:
    """low, normal or high, in any case.

    Raises:
        TextError: for anything else.
    """
    return Priority(library.parse("priority", text))


# As JSON has them, in the order of GRAMMARS.
TERM_KEYS = ("priority", "weight", "core_burst_ns", "core_floor_millipercent")

# By the name of the flag and the command's argument: what it is called, and how it is read.
GRAMMARS: dict[str, tuple[str, Callable[[str], int]]] = {
    "priority": ("priority", parse_priority),
    "weight": ("weight", sizes.parse_weight),
    "core_burst": ("burst", sizes.parse_burst),
    "core_floor": ("floor", sizes.parse_floor),
}
