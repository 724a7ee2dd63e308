"""Frameworks under a core limit: their rate against the same program without one.

Rates stand for GPU time as long as the clock is the same, so the layers are small. Graphs run in
the same way; each program runs bare first, then at each limit, alone on the GPU.
"""

from __future__ import annotations

import json

from part_cores import fenced
from part_frameworks import SKIPPED, python
from report import Report
from setup import Ran, Setup, run

LIMITS = (30, 70)
POINTS = 3.0  # of the rate, which also moves with the GPU's clock
SECONDS = 4
TIMEOUT_S = 90.0
PROGRAMS = {
    "torch convolution": ("cores_torch.py", "convolution"),
    "torch convolution graph": ("cores_torch.py", "convolution-graph"),
    "torch transformer": ("cores_torch.py", "transformer"),
    "torch transformer graph": ("cores_torch.py", "transformer-graph"),
    "jax": ("cores_jax.py",),
}


def _rate(ran: Ran) -> float | str:
    if ran.status == SKIPPED:
        return "skipped: " + ran.stdout.strip()[-200:]
    if ran.status != 0:
        return f"status {ran.status}: {(ran.stdout + ran.stderr)[-400:]}"
    return float(json.loads(ran.stdout.splitlines()[-1])["rate"])


def _judge(setup: Setup, report: Report, name: str, words: tuple[str, ...]) -> None:
    script, *arguments = words
    command, extra = python(script)
    extra |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    whole = (*command, *arguments, str(SECONDS))
    bare = _rate(run(whole, setup.environment(preload=False, extra=extra), setup.left_s(TIMEOUT_S)))
    if isinstance(bare, str):
        verdict = "skipped" if bare.startswith("skipped") else "failed"
        report.judge("cores_frameworks", name, verdict, bare)
        return
    for limit in LIMITS:
        with fenced(setup, limit, **extra) as env:
            rate = _rate(run(whole, env, setup.left_s(TIMEOUT_S)))
        if isinstance(rate, str):
            report.judge("cores_frameworks", f"{name} at {limit} %", "failed", rate)
            continue
        percent = 100 * rate / bare
        verdict = "same" if abs(percent - limit) <= POINTS else "different"
        text = f"{percent:.1f} % of {bare:.0f} steps a second"
        report.judge("cores_frameworks", f"{name} at {limit} %", verdict, text, rates=[bare, rate])


def run_part(setup: Setup, report: Report) -> None:
    """Some two minutes, most of it imports."""
    if setup.simulated:
        report.judge("cores_frameworks", "all", "skipped", "needs a GPU")
        return
    for name, words in PROGRAMS.items():
        if setup.left_s(1) > 0:
            _judge(setup, report, name, words)
