"""Pure arithmetic over times: percentiles, and what records of kernels say about shares.

Must not know programs, scenes or promises.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LEAD = 0.1  # of a run, which is credit of an idle GPU and does not count
PAUSE_NS = 5_000_000  # without a kernel: the next one begins a burst
LEAST_BURSTS = 3  # from here on a window reaches from the begin of one to the begin of another
WORDS = 3  # of a record
Interval = tuple[int, int]  # nanoseconds of the GPU's clock


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that is not below `percent` of all; nan of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorted intervals that neither overlap nor touch, covering the same time."""
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def covered_percent(busy: Iterable[Interval], window: Interval) -> float:
    """Percent of a window that united intervals cover."""
    begin, end = window
    covered = sum(max(0, min(end, last) - max(begin, first)) for first, last in busy)
    return 100 * covered / (end - begin)


def common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The time that both cover; each is united, and so is the result."""
    result: list[Interval] = []
    one = other = 0
    while one < len(first) and other < len(second):
        begin = max(first[one][0], second[other][0])
        end = min(first[one][1], second[other][1])
        if begin < end:
            result.append((begin, end))
        if first[one][1] < second[other][1]:
            one += 1
        else:
            other += 1
    return result


@dataclass(frozen=True, slots=True)
class Records:
    """Kernels of one process: when each was begun and ended, and how much work it was."""

    kernels: list[tuple[int, int, int]]  # begin, end and work in nanoseconds, by their begin
    busy: list[Interval]  # united
    longest_ns: int

    @classmethod
    def of(cls, numbers: Iterable[tuple[int, int, int]]) -> Records:
        """Without those that the GPU did not write, which are all over the simulated driver."""
        kernels = sorted(one for one in numbers if one[1] > 0 and one[0] <= one[1])
        busy = united((begin, end) for begin, end, _ in kernels)
        longest_ns = max((end - begin for begin, end, _ in kernels), default=0)
        return cls(kernels, busy, longest_ns)

    @classmethod
    def read(cls, path: Path) -> Records:
        """What kernels.cpp wrote; nothing where it did not get so far."""
        numbers = array("Q", path.read_bytes() if path.exists() else b"")
        parts = (numbers[place::WORDS] for place in range(WORDS))
        return cls.of(zip(*parts, strict=True))

    def work_percent(self, window: Interval) -> float:
        """Work done in a window, in percent of its length.

        A kernel that the driver interrupted counts by its work, evenly over its time.
        """
        begin, end = window
        place = bisect_left(self.kernels, begin - self.longest_ns, key=lambda one: one[0])
        done = 0.0
        while place < len(self.kernels) and self.kernels[place][0] < end:
            first, last, work_ns = self.kernels[place]
            inside = min(end, last) - max(begin, first)
            if inside > 0:
                done += work_ns * inside / (last - first)
            place += 1
        return 100 * done / (end - begin)

    def in_flight(self, window: Interval) -> float:
        """Kernels at a time, in the mean, of the time in a window that has any; nan of none."""
        begin, end = window
        lasted = sum(max(0, min(end, last) - max(begin, first)) for first, last, _ in self.kernels)
        covered = covered_percent(self.busy, window) * (end - begin) / 100
        return lasted / covered if covered > 0 else math.nan

    def seconds(self, window: Interval) -> list[float]:
        """Work of each whole second of a window, in percent."""
        begin, end = window
        return [self.work_percent((at, at + 10**9)) for at in range(begin, end - 10**9 + 1, 10**9)]


def own_window(records: Records) -> Interval | None:
    """Of one program alone: from the begin of a burst to that of the last, if it has bursts.

    So a pause counts with the work behind which it is.
    """
    if not records.busy:
        return None
    first, last = records.busy[0][0], records.busy[-1][1]
    lead = first + int((last - first) * LEAD)
    pairs = zip(records.busy, records.busy[1:], strict=False)
    begins = [b[0] for a, b in pairs if b[0] - a[1] >= PAUSE_NS and b[0] >= lead]
    if len(begins) >= LEAST_BURSTS:
        return begins[0], begins[-1]
    return (lead, last) if last > lead else None


def common_window(all_records: Sequence[Records]) -> Interval | None:
    """In which every one of several programs was under way; None when it is too short."""
    present = [records for records in all_records if records.busy]
    if len(present) == 1:
        return own_window(present[0])
    if not present:
        return None
    begin = max(records.busy[0][0] for records in present)
    end = min(records.busy[-1][1] for records in present)
    begin += int((end - begin) * LEAD)
    return (begin, end) if end - begin >= 10**8 else None
