"""Benchmarks of bench/, run as parts of a GPU run. Must not know what they measure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from report import Report
from setup import REPO, Setup, run


def judge_bench(
    setup: Setup,
    report: Report,
    script: str,
    verdict: tuple[str, str],
    result: Path,
    timeout_s: float,
    options: Sequence[str] | None = None,
) -> None:
    """Runs bench/`script`, which leaves its figures in `result`, and judges its targets.

    `verdict` is the part and the name under which it is judged; `options` are the script's own, and
    by default those that choose this run's driver.
    """
    if options is None:
        options = () if setup.simulated else ("--real",)
    command = [sys.executable, REPO / "bench" / script, "--build", setup.build, "-o", result]
    environment = setup.environment(preload=False)
    done = run([*command, *options], environment, setup.left_s(timeout_s))
    if done.status not in (0, 1) or not result.exists():
        report.judge(*verdict, "failed", (done.stdout + done.stderr)[-800:])
        return
    body = json.loads(result.read_text(encoding="utf-8"))
    how = "same" if done.status == 0 else "different"
    report.judge(*verdict, how, "\n" + done.stdout.rstrip(), **body)
