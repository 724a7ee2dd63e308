"""Containers that come, go, die and change on a GPU, for as long as the budget allows (soak.py).

Leaves soak.json. Of a run's budget it takes all that is left, MOST_S at most.
"""

from __future__ import annotations

import json
import sys

from report import Report
from setup import REPO, Setup, run

PART = "soak"
MOST_S = 1200.0
START_S, END_S = 15.0, 60.0  # until it begins, and beyond its seconds until it is ended
LEAST_S = 10.0


def run_part(setup: Setup, report: Report) -> None:
    """One verdict."""
    seconds = setup.left_s(MOST_S + START_S) - START_S
    if seconds < LEAST_S:
        report.judge(PART, "all", "skipped", f"needs {START_S + LEAST_S:g} s")
        return
    file = setup.out / "soak.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, REPO / "tests" / "gpu" / "soak.py", "--build", setup.build]
    command += ["--seconds", f"{seconds:.0f}", "--output", file]
    command += ["--sim"] if setup.simulated else []
    done = run(command, setup.environment(preload=False), seconds + START_S + END_S)
    if done.status not in (0, 1) or not file.exists():
        said = (done.stdout + done.stderr).strip()[-500:]
        report.judge(PART, "all", "failed", f"status {done.status}: {said}")
        return
    body = json.loads(file.read_text(encoding="utf-8"))
    report.judge(PART, "all", "different" if body["problems"] else "same", told(body), **body)


def told(body: dict[str, object]) -> str:
    """A soak's figures on a line."""
    counts, problems = body["counts"], body["problems"]
    assert isinstance(counts, dict)
    assert isinstance(problems, list)
    names = ("processes", "killed", "trainings", "set", "frozen", "stopped")
    names += ("roll calls", "looks of NVML")
    parts = [f"{counts.get(name, 0)} {name}" for name in names]
    parts.append(f"at most {100 * float(str(body['fullest'])):.1f} % of a limit in use")
    parts.append(f"charges at most {body['farthest_bytes']} bytes off NVML")
    return f"{body['seconds']} s, seed {body['seed']}: {'; '.join([*parts, *problems])}"
