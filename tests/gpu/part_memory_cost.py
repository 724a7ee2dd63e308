"""What a memory limit costs, measured by bench/memory.py on whatever driver this run uses.

On a real driver the flatness is shown a second time over the simulated one, whose own calls are
cheap enough for a difference of nanoseconds to show.
"""

from __future__ import annotations

from benches import judge_bench
from report import Report
from setup import Setup

TIMEOUT_S = 240.0
PARTS = ("live", "processes", "threads", "start")


def run_part(setup: Setup, report: Report) -> None:
    """Judges the real driver's figures; those over the simulator are shown."""
    for part in () if setup.simulated else PARTS:
        _measure(setup, report, f"cost {part}", ["--real", "--only", part])
    if (setup.build / "sim" / "libcuda.so.1").exists():
        _measure(setup, report, "cost over the simulated driver", ["--seconds", "0.1"])


def _measure(setup: Setup, report: Report, name: str, options: list[str]) -> None:
    result = setup.out / f"memory-{name.replace(' ', '-')}.json"
    judge_bench(setup, report, "memory.py", ("memory_cost", name), result, TIMEOUT_S, options)
