"""What a core limit costs, measured by bench/cores.py on whatever driver this run uses."""

from __future__ import annotations

from benches import judge_bench
from report import Report
from setup import Setup

TIMEOUT_S = 240.0


def run_part(setup: Setup, report: Report) -> None:
    """Judges the real driver's figures; those over the simulator are shown."""
    result = setup.out / "cores-cost.json"
    judge_bench(setup, report, "cores.py", ("cores_cost", "all"), result, TIMEOUT_S)
