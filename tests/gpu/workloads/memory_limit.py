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


def filled(allocate: Callable[[int], Any], piece_mib: int, error: Errors) -> dict[str, Any]:
    """Allocates pieces until the framework's own error: its name, its text, how much was granted.

    Any other error passes through and fails the workload.
    """
    held: list[Any] = []
    said: dict[str, Any] = {"error": "none"}
    try:
        for _ in range(2 * LIMIT // (piece_mib * MIB)):
            held += [allocate(piece_mib * MIB)]
    except error as refusal:
        said["error"] = type(refusal).__name__
        said["message"] = " ".join(str(refusal).split())[:400]
    return {**said, "granted MiB": len(held) * piece_mib}


def refused(allocate: Callable[[int], Any], piece_mib: int, error: Errors) -> None:
    """The same, told line by line."""
    for name, value in filled(allocate, piece_mib, error).items():
        tell(name, value)


def leave() -> None:
    """The last line: the process lived to say it."""
    if LIMIT:
        tell("survived", "yes")
    evidence.leave()
