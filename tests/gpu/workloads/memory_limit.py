"""What every framework workload of the memory limit shares.

Plain lines (evidence.tell) are results and must be the same bare and limited. Lines that begin with
"limit" are told only inside a limit, GPUFENCE_TEST_LIMIT bytes; the GPU run knows what they must
say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import evidence

MIB = 1 << 20
LIMIT = int(os.environ.get("GPUFENCE_TEST_LIMIT", "0"))


def tell(name: str, value: object) -> None:
    """One line of the limited run alone."""
    print(f"limit {name}: {value}", flush=True)


Errors = type[BaseException] | tuple[type[BaseException], ...]


def refused(allocate: Callable[[int], Any], piece_mib: int, error: Errors) -> None:
    """Allocates pieces until the framework's own error; tells its name and how much was granted.

    Any other error passes through and fails the workload.
    """
    held: list[Any] = []
    try:
        for _ in range(2 * LIMIT // (piece_mib * MIB)):
            held += [allocate(piece_mib * MIB)]
        tell("error", "none")
    except error as refusal:
        tell("error", type(refusal).__name__)
        tell("message", " ".join(str(refusal).split())[:400])
    tell("granted MiB", len(held) * piece_mib)


def leave() -> None:
    """The last line: the process lived to say it."""
    if LIMIT:
        tell("survived", "yes")
    evidence.leave()
