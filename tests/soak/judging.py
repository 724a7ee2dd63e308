"""Whether what the soak saw is what a limit promises: nothing lost, nothing passed, nothing grown.

Owns the promises and their tolerances. Must not know processes, files or the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

MIB = 1 << 20
# malloc keeps what a burst of calls took, in pages of 4 KiB. A byte lost in each hundredth call
# would be more than this within ten minutes.
GROWTH_KIB = 256
# What an idle container may have saved up (the default burst is less), a kernel, and what passes
# until a new limit is read.
SAVED_NS = 250_000_000
# docs/results/2026-11-23-h200-time.md: shares are held within a hundredth of the GPU.
SHARE_TOLERANCE = 0.01


@dataclass(slots=True)
class Allowance:
    """What one container may hold of the device, while its limit changes.

    A lowered limit frees nothing: what was used when it was lowered may stay, but not grow.
    """

    limit: int
    most: int = field(init=False)

    def __post_init__(self) -> None:
        self.most = self.limit

    def change(self, limit: int) -> None:
        """A new limit is in force from now on, or a moment later."""
        self.limit = limit
        self.most = max(self.most, limit)

    def settle(self, used: int) -> str:
        """Everything stands still and uses so much; what is wrong with it, or ''."""
        passed = used > self.most
        problem = f"uses {used} bytes where {self.most} are allowed" if passed else ""
        self.most = max(self.limit, used)
        return problem


@dataclass(slots=True)
class Share:
    """What GPU time one container may take, while its limit changes."""

    percent: float
    since_ns: int
    allowed_ns: float = 0.0
    window_ns: int = 0

    def change(self, percent: float, now_ns: int) -> None:
        """A new limit is in force from now on."""
        self._pass(now_ns)
        # Until its processes have read it, the higher one may hold: SAVED_NS has room for that.
        self.percent = percent

    def settle(self, took_ns: int, now_ns: int) -> str:
        """Its kernels took so much since the last time; what is wrong with it, or ''."""
        self._pass(now_ns)
        allowed = self.allowed_ns + SHARE_TOLERANCE * self.window_ns + SAVED_NS
        passed = took_ns > allowed
        problem = f"took {took_ns} ns of GPU time where {allowed:.0f} are allowed" if passed else ""
        self.allowed_ns, self.window_ns = 0.0, 0
        return problem

    def _pass(self, now_ns: int) -> None:
        passed_ns = now_ns - self.since_ns
        self.allowed_ns += self.percent / 100 * passed_ns
        self.window_ns += passed_ns
        self.since_ns = now_ns


def ledger(charged: Mapping[int, int], holds: Mapping[int, int]) -> list[str]:
    """Bytes by process: what is charged against what the driver says; what differs, a line each."""
    return [
        f"process {pid} is charged {charged.get(pid, 0)} bytes and holds {holds.get(pid, 0)}"
        for pid in sorted(charged.keys() | holds.keys())
        if charged.get(pid, 0) != holds.get(pid, 0)
    ]


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure early and late: medians over a quarter of the samples each."""

    name: str
    early: float
    late: float
    most_more: float

    @property
    def problem(self) -> str:
        """What is wrong, or ''."""
        if self.late - self.early <= self.most_more:
            return ""
        return f"{self.name} grew from {self.early:g} to {self.late:g}"


def growth(name: str, samples: Sequence[float], most_more: float) -> Growth | None:
    """The second quarter beside the last one; the first is warm-up. None: too few samples."""
    quarter = len(samples) // 4
    if quarter < 10:
        return None
    return Growth(
        name, median(samples[quarter : 2 * quarter]), median(samples[-quarter:]), most_more
    )
