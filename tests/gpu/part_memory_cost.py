"""What a memory limit costs, measured by bench/memory.py on whatever driver this run uses.

On a real driver the flatness is shown a second time over the simulated one, whose own calls are
cheap enough for a difference of nanoseconds to show.
"""

from __future__ import annotations

import json
import sys

from report import Report
from setup import REPO, Setup, run

TIMEOUT_S = 240.0


def run_part(setup: Setup, report: Report) -> None:
    """Judges the real driver's figures; those over the simulator are shown."""
    if not setup.simulated:
        _measure(setup, report, "cost", ["--real"])
    if (setup.build / "sim" / "libcuda.so.1").exists():
        _measure(setup, report, "cost over the simulated driver", ["--seconds", "0.1"])


def _measure(setup: Setup, report: Report, name: str, options: list[str]) -> None:
    result = setup.out / f"memory-{name.replace(' ', '-')}.json"
    command = [sys.executable, REPO / "bench" / "memory.py", "--build", setup.build, "-o", result]
    done = run([*command, *options], setup.environment(preload=False), setup.left_s(TIMEOUT_S))
    if done.status not in (0, 1) or not result.exists():
        report.judge("memory_cost", name, "failed", (done.stdout + done.stderr)[-800:])
        return
    body = json.loads(result.read_text(encoding="utf-8"))
    verdict = "same" if done.status == 0 else "different"
    report.judge("memory_cost", name, verdict, "\n" + done.stdout.rstrip(), **body)
