"""Call overhead, measured by bench/call_overhead.py on whatever driver this run uses."""

from __future__ import annotations

from benches import judge_bench
from report import Report
from setup import Setup

BENCH_TIMEOUT_S = 120.0


def run_part(setup: Setup, report: Report) -> None:
    """Runs the benchmark and judges its targets."""
    result = setup.out / "bench.json"
    judge_bench(setup, report, "call_overhead.py", ("bench", "calls"), result, BENCH_TIMEOUT_S)
