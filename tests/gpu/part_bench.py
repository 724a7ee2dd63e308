"""Call overhead, measured by bench/run.py on whatever driver this run uses."""

from __future__ import annotations

import json
import sys

from report import Report
from setup import REPO, Setup, run

BENCH_TIMEOUT_S = 120.0


def run_part(setup: Setup, report: Report) -> None:
    """Runs the benchmark and judges its targets."""
    result = setup.out / "bench.json"
    command = [sys.executable, REPO / "bench" / "run.py", "--build", setup.build, "-o", result]
    if not setup.simulated:
        command.append("--real")
    done = run(command, setup.environment(preload=False), setup.left_s(BENCH_TIMEOUT_S))
    if done.status not in (0, 1) or not result.exists():
        report.judge("bench", "calls", "failed", (done.stdout + done.stderr)[-800:])
        return
    body = json.loads(result.read_text(encoding="utf-8"))
    verdict = "same" if done.status == 0 else "different"
    report.judge("bench", "calls", verdict, "\n" + done.stdout.rstrip(), **body)
