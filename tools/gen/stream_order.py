"""Which functions put something into a stream that is no kernel, and what their hooks say first.

Owns that rule and the reading of its exceptions (`lib/api/stream-order.txt`). Must not know what
the core limiter makes of it, nor which hooks are written by hand.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import HookgenError
from .filters import param_names
from .ir import ENFORCED_KINDS, Function

FILE = "stream-order.txt"
RENDERED = "stream_order.cpp"
_BY_HAND = "by hand, "


@dataclass(frozen=True, slots=True)
class Exemption:
    """A line of the table: names (`*` for any text) that no hook is rendered for, and why."""

    pattern: str
    reason: str

    @property
    def by_hand(self) -> bool:
        """Whether lib/src/hooks has to define every function that the line names."""
        return self.reason.startswith(_BY_HAND)


def read(text: str) -> tuple[Exemption, ...]:
    """The lines `pattern : reason`; empty ones and comments are skipped.

    Raises:
        HookgenError: exit 1; a line has no reason.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = (part.strip() for part in line.partition(" : "))
        if not (pattern and reason):
            raise HookgenError(
                f"{FILE} is damaged",
                f"line {number} is not 'pattern : reason'",
                "Say why no hook shall be rendered.",
            )
        rows.append(Exemption(pattern, reason))
    return tuple(rows)


def exemption(name: str, table: Iterable[Exemption]) -> Exemption | None:
    """The line that names a function; none for most."""
    return next((row for row in table if fnmatch.fnmatchcase(name, row.pattern)), None)


def concerns(function: Function) -> bool:
    """Whether a function may put something into a stream, by its kind and its parameters."""
    return function.kind in ("copy", "stream") or bool(_streams(function))


def leaves(name: str, function: Function, table: Sequence[Exemption]) -> tuple[str, ...]:
    """What the rendered hook of a function says before it forwards, as C++; nothing for none.

    Enforced kinds have none: their hooks account, and are written by hand. A function without a
    stream among its parameters is about all streams of the calling thread's context.
    """
    if function.kind in ENFORCED_KINDS or not concerns(function) or exemption(name, table):
        return ()
    return tuple(
        f"LeaveKernels(PerThread({stream}))" if function.stream else f"LeaveKernels({stream})"
        for stream in _streams(function)
    ) or ("LeaveAllKernels()",)


# Implementation.


def _streams(function: Function) -> list[str]:
    names = param_names(function.params)
    return [
        name for param, name in zip(function.params, names, strict=True) if param.type == "CUstream"
    ]
