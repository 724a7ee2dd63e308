"""Which runs stand for the whole matrix of the core limit: limits, lengths, launch paths, grids.

Every pair (limit, path), (limit, length) and (length, blocks) is in some run; every combination
would be half an hour. Pure: must not know who runs them, nor what came out.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMITS = (10, 25, 50, 75, 90)  # percent
LENGTHS_US = (10, 100, 1_000, 20_000, 200_000, 1_000_000)
WAITED_US = (20, 30, 40, 60, 100)  # around where runs that are waited for are measured otherwise
WAITED_LIMITS = (10, 50, 95)  # the last is more than any of them needs
SLEPT_US = (10, 20, 60)  # the same, where waits give the processor away
SLEPT_LIMIT = 10
PATHS = ("plain", "cooperative", "ex", "graph", "two", "sync", "per_thread", "gap")
BLOCKS = (1, 132, 65_536)

WAITING_PATHS = ("sync", "gap")  # they may need less than their limit
MOST_COOPERATIVE_BLOCKS = 132  # all must fit at once; so many do on every GPU that is this large
SHORT_US = 20_000  # kernels up to here run for SHORT_S
SHORT_S = 3.0
LONG_S = 5.0
LEAST_CYCLES = 2  # of a long kernel and the pause by which it is paid for
GAP_RATIO = 2  # a pause, over the kernel before it


@dataclass(frozen=True, slots=True)
class Cell:
    """One run at one limit (percent)."""

    limit: int
    length_us: int
    path: str
    blocks: int

    @property
    def gap_us(self) -> int:
        """The pause behind each kernel."""
        return GAP_RATIO * self.length_us if self.path == "gap" else 0

    @property
    def seconds(self) -> float:
        """How long it launches.

        Shares are taken from one kernel's begin to another's, so whole cycles are exact; a launch
        that is held when the time is over still goes, hence half a cycle less.
        """
        if self.length_us <= SHORT_US:
            return SHORT_S
        cycle_s = self.length_us / 1e6 * 100 / self.limit
        return max(LONG_S, cycle_s * (LEAST_CYCLES - 0.5))

    @property
    def may_need_less(self) -> bool:
        """Whether the work may stay below the limit by itself: then it is run bare as well."""
        return self.path in WAITING_PATHS or (self.length_us <= LENGTHS_US[0] and self.limit > 50)


# Lengths and grids are dealt to the paths in turn, begun elsewhere at each limit. With these steps
# every pair comes up, and no pause follows a kernel of 200 ms or more.
_PATH_STEP, _PATH_START = 7, 3
_GRID_STEP, _GRID_START = 2, 1

# What was off by most before: launches that barely reach the limit.
_HARD = (Cell(90, 10, "plain", 132), Cell(75, 10, "plain", 132))


def cells() -> tuple[Cell, ...]:
    """The runs, by limit and then by length."""
    found = set(_HARD)
    for row, limit in enumerate(LIMITS):
        for column, path in enumerate(PATHS):
            place = (column + _PATH_STEP * row + _PATH_START) % len(PATHS)
            blocks = BLOCKS[(_GRID_STEP * row + place + _GRID_START) % len(BLOCKS)]
            if path == "cooperative":
                blocks = min(blocks, MOST_COOPERATIVE_BLOCKS)
            found.add(Cell(limit, LENGTHS_US[place % len(LENGTHS_US)], path, blocks))
    return tuple(sorted(found, key=lambda cell: (cell.limit, cell.length_us, cell.path)))


def waited_cells() -> tuple[Cell, ...]:
    """Kernels that are waited for one by one, of lengths that are measured in different ways."""
    spun = [Cell(limit, us, "sync", 132) for limit in WAITED_LIMITS for us in WAITED_US]
    slept = [Cell(SLEPT_LIMIT, us, "sleep", 132) for us in SLEPT_US]
    return (*spun, *slept)
