"""What a core limit costs, measured by bench/cores.py on whatever driver this run uses."""

from __future__ import annotations

import json
import sys

from report import Report
from setup import REPO, Setup, run

TIMEOUT_S = 120.0


def run_part(setup: Setup, report: Report) -> None:
    """Judges the real driver's figures; those over the simulator are shown."""
    result = setup.out / "cores-cost.json"
    command = [sys.executable, REPO / "bench" / "cores.py", "--build", setup.build, "-o", result]
    if not setup.simulated:
        command.append("--real")
    done = run(command, setup.environment(preload=False), setup.left_s(TIMEOUT_S))
    if done.status not in (0, 1) or not result.exists():
        report.judge("cores_cost", "all", "failed", (done.stdout + done.stderr)[-800:])
        return
    body = json.loads(result.read_text(encoding="utf-8"))
    verdict = "same" if done.status == 0 else "different"
    report.judge("cores_cost", "all", verdict, "\n" + done.stdout.rstrip(), **body)
