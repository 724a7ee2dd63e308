"""Whether what tests/release/guest.py told inside a system is what a limit promises.

Owns the promises. Must not know systems, mounts or processes.
"""

from __future__ import annotations

from typing import Any

LIMIT_MIB = 4096
OUT_OF_MEMORY = 2
# The footprint of a context, and a step of the guest: what these leave must be granted.
CONTEXT_MIB = 600


def problems(told: dict[str, Any], *, held_mib: int = 0) -> list[str]:
    """What is wrong, a line each.

    Args:
        told: by the guest.
        held_mib: what another process of the container had meanwhile.
    """
    found = []
    if any(told["begun"]):
        found.append(f"cuInit and its followers returned {told['begun']}")
    found += [
        f"{name} is {told[name]}, not {LIMIT_MIB}"
        for name in ("total_mib", "nvml_mib")
        if told[name] != LIMIT_MIB
    ]
    contexts = 2 if held_mib else 1
    most = LIMIT_MIB - held_mib
    least = most - contexts * CONTEXT_MIB
    if not least <= told["granted_mib"] <= most:
        found.append(f"granted {told['granted_mib']} MiB, not {least} to {most}")
    if told["refused"] != OUT_OF_MEMORY:
        found.append(f"refused with {told['refused']}, not {OUT_OF_MEMORY}")
    return found
