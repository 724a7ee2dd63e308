"""Which figures the scoreboard has: data, and how one is worked out of what was measured.

Must not know how anything is run or printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PARTS = ("memory", "calls", "time", "tokens")
LIMIT_MIB = 4096


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: `like` is the metric of GPU-Virt-Bench that asks the same, '' if none does.

    `best` is what a limiter that keeps the claim has; None where it is the bare driver's figure.
    """

    name: str
    part: str
    claim: str
    unit: str
    best: float | None = None
    like: str = ""


SEEN = "A container sees a GPU of its limit's size"
HELD = "All processes of a container together are refused what goes beyond the limit"
CRASH = "A killed process gives everything back"
MISTAKE = "With a limit that cannot be read, cuInit fails"
SHARE = "Kernels run during P % of the time"
SOFT = "A soft share lends what others leave"
NEIGHBOUR = "Containers pay for nobody else's time"
COST = "What it costs"

FIGURES = (
    Figure("size that CUDA shows", "memory", SEEN, "of the limit", 1.0),
    Figure("size that NVML shows", "memory", SEEN, "of the limit", 1.0),
    Figure("held by one process", "memory", HELD, "of the limit", 1.0, "IS-001"),
    Figure("held, found by dlsym", "memory", HELD, "of the limit", 1.0),
    Figure("held, found by cuGetProcAddress", "memory", HELD, "of the limit", 1.0),
    Figure("held by four threads", "memory", HELD, "of the limit", 1.0),
    Figure("held by two processes", "memory", HELD, "of the limit", 1.0, "IS-005"),
    Figure("granted after kill -9", "memory", CRASH, "of before", 1.0, "IS-010"),
    Figure("cuInit refused", "memory", MISTAKE, "1: yes", 1.0),
    Figure("cuLaunchKernel", "calls", COST, "ns", None, "OH-001"),
    Figure("cuMemAlloc+cuMemFree 2 MiB", "calls", COST, "ns", None, "OH-002, OH-003"),
    Figure("cuMemAllocAsync+cuMemFreeAsync 2 MiB", "calls", COST, "ns", None, "OH-007"),
    Figure("cuMemGetInfo", "calls", COST, "ns", None, "OH-005"),
    Figure("stream-ordered allocations", "calls", COST, "a second", None, "LLM-002"),
    Figure("GPU time at 30 %, alone", "time", SHARE, "of the limit", 1.0, "IS-003"),
    Figure("GPU time at 30 %, soft 80, alone", "time", SOFT, "of the soft share", 1.0),
    Figure("two at 30 %, soft 80, together", "time", SOFT, "of the GPU", 1.0),
    Figure("at 30 %, soft 80, beside 70 %", "time", SOFT, "of the limit", 1.0),
    Figure("GPU time at 30 %, beside 70 %", "time", NEIGHBOUR, "of the limit", 1.0, "IS-009"),
    Figure("fairness of four at 25 %", "time", NEIGHBOUR, "Jain's index", 1.0, "IS-008"),
    Figure("requests at 30 %, p50", "tokens", NEIGHBOUR, "ms", None, "LLM-004"),
    Figure("requests at 30 %, p99", "tokens", NEIGHBOUR, "ms", None, "LLM-004"),
    Figure("training beside at 70 %", "tokens", NEIGHBOUR, "steps a second", None, "IS-006"),
)


def fairness(shares: Sequence[float]) -> float:
    """Jain's index: 1 where all have as much, 1/n where one has all; 0 of nothing."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def ratio(value: float | None, bare: float | None) -> float | None:
    """What a way has of the bare driver's figure."""
    if value is None or not bare:
        return None
    return value / bare
