"""What GPUs take beside the time of their kernels, as variables of the simulated driver.

Must not know what is tested on them.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Mapping
from pathlib import Path

from gpufence.state import kept_pauses
from gpufence.state import shared_layout as layout

# An H200 with driver 580, in nanoseconds: docs/core-limiter.md says how each was measured.
H200: Mapping[str, int] = {
    "LAUNCH_GAP_NS": 1_700,
    "STEP_GAP_NS": 950,
    "WIDE_GAP_NS": 950,
    "START_NS": 460,
    "EVENT_NS": 1_540,
    "EVENT_GAP_NS": 960,
    "MEMOP_GAP_NS": 3_700,
    "LAUNCH_NS": 2_500,
}

# Turns, of which a program alone takes none, and how late a wait for the GPU returns.
H200_TURNS: Mapping[str, int] = {"SLICE_NS": 2_091_000, "SWITCH_NS": 155_000}
LATE_WAKE_NS = 5_000


def drawn(seed: int) -> dict[str, int]:
    """A GPU and a host that nobody has measured: the same for a seed each time.

    Each of an H200's numbers times 0.5 to 2; a host 0.5 to 4 times as slow; a clock that moves in
    steps of 32 ns to a microsecond; 10 to 200 multiprocessors.
    """
    draw = random.Random(seed)
    late = ("LAUNCH_NS", "MEMOP_GAP_NS")  # are drawn, too, but behind what was drawn before them
    pauses = {name: ns for name, ns in H200.items() if name not in late} | H200_TURNS
    world = {name: round(ns * 2 ** draw.uniform(-1, 1)) for name, ns in pauses.items()}
    slow = 2 ** draw.uniform(-1, 2)
    world["LAUNCH_NS"] = round(H200["LAUNCH_NS"] * slow)
    world["WAKE_NS"] = round(LATE_WAKE_NS * slow)
    world["EVENT_STEP_NS"] = round(1_000 * 2 ** draw.uniform(-4.97, 0))
    world["SMS"] = draw.randint(10, 200)
    world["MEMOP_GAP_NS"] = round(H200["MEMOP_GAP_NS"] * 2 ** draw.uniform(-1, 1))
    return world


# What the library reckons with there, as it measured before: lib/src/base/pauses.h.
_H200_KNOWN = (1_700, 950, 2_500, 2_000, 2_000, 2_800, 1_540, 950)
_DRIVER = "580.159.04"
_BOARDS = (*range(8), *range(16, 24))  # GPUs, and instances of split ones
CALIBRATES = "GPUFENCE_TEST_CALIBRATES"


def make_known(environment: Mapping[str, str]) -> None:
    """Spare a program under a core limit the measuring: it takes each GPU for an H200.

    Not for GPUs that are drawn, for other drivers, nor where CALIBRATES is set.
    """
    folder = environment.get("GPUFENCE_STATE_DIR", "")
    limited = any(name.startswith("GPUFENCE_CORE_LIMIT") for name in environment)
    if (
        not limited
        or not folder.startswith("/")
        or {CALIBRATES, "GPUFENCE_SIM_EVENT_STEP_NS", "GPUFENCE_SIM_DRIVER"} & set(environment)
        or not os.access(Path(folder).parent, os.W_OK)
    ):
        return
    if not Path(folder).exists():
        Path(folder).mkdir()
        Path(folder).chmod(0o1777)
    for board in _BOARDS:
        _keep(Path(folder), b"".join(_scrambled(2 * board + half) for half in (0, 1)))


def _scrambled(value: int) -> bytes:
    """Half of a simulated UUID (Scramble in lib/sim/machine/file.cpp)."""
    mask = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return (value ^ value >> 31).to_bytes(8, "little")


def _keep(folder: Path, uuid: bytes) -> None:
    path = folder / f"gpufence-pauses1-{uuid.hex()}-{_DRIVER}-{os.geteuid()}"
    raw = kept_pauses.FIELDS.pack(
        layout.KEPT_PAUSES_MAGIC,
        layout.KEPT_PAUSES_VERSION,
        uuid,
        _DRIVER.encode(),
        0,
        *_H200_KNOWN,
        0,
    )
    if path.exists() or not os.access(folder, os.W_OK):
        return
    path.write_bytes(raw[:-8] + struct.pack("<Q", kept_pauses.check_of(raw)))
    path.chmod(0o644)
