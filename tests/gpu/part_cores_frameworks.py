"""Frameworks under a core limit: when their kernels ran, and their rate against no limit.

To be looked at slows a program, and what CUPTI adds between kernels is charged. So the share is the
time that a step's kernels took, by CUPTI's records, times the rate without them; what kernels
covered while they were recorded tells single seconds. All programs start side by side and then work
one after the other, each a container of its own, alone on the GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from driven import Driven, DrivenError, started
from part_cores import SECOND_POINTS, SHARE_POINTS, fenced
from part_frameworks import SKIPPED, python
from report import Report
from setup import Setup

LIMITS = (10, 50, 90)
RATE_POINTS = 3.0  # of the rate, which also moves with the GPU's clock
SECONDS = 3.0  # each of both ways
BARE_S = 2.0
START_S = 120.0
PROGRAMS = {
    "torch convolution": ("cores_torch.py", "convolution"),
    "torch convolution graph": ("cores_torch.py", "convolution-graph"),
    "torch transformer": ("cores_torch.py", "transformer"),
    "torch transformer graph": ("cores_torch.py", "transformer-graph"),
    "jax": ("cores_jax.py",),
}


def _start(setup: Setup, stack: ExitStack, words: tuple[str, ...], limit: int | None) -> Driven:
    script, *arguments = words
    command, extra = python(script, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if limit is None:
        env = setup.environment(preload=False, extra=extra)
    else:
        env = stack.enter_context(fenced(setup, limit, **extra))
    return stack.enter_context(started((*command, *arguments), env, f"{script} {limit or 'bare'}"))


def _ask(program: Driven, seconds: float) -> dict[str, Any]:
    """The rate, what CUPTI saw, if anything, and `percent`: kernels at the rate unseen."""
    timeout_s = 10 * seconds + 60
    rate = json.loads(program.tell("rate", seconds, timeout_s=timeout_s))["rate"]
    seen: dict[str, Any] = json.loads(program.tell("share", seconds, timeout_s=timeout_s))
    seen["seen_rate"] = seen.pop("rate", None)
    if "step_ms" in seen:
        seen["percent"] = rate * seen["step_ms"] / 10
    return {"rate": rate, **seen}


def _judge(
    report: Report, name: str, limit: int, said: dict[str, Any], bare: dict[str, Any]
) -> None:
    of_bare = 100 * said["rate"] / bare["rate"]
    text = f"{of_bare:.1f} % of {bare['rate']:.0f} steps a second"
    wrong = abs(of_bare - limit) > RATE_POINTS
    if "percent" in said and "percent" in bare:
        seconds = " ".join(f"{one:.1f}" for one in said["seconds"])
        text = (
            f"{said['percent']:.2f} % of the time, bare {bare['percent']:.2f}; seen "
            f"{said['share']:.2f}, bare {bare['share']:.2f}, seconds {seconds}; {text}"
        )
        wanted = min(limit, bare["percent"])
        worst = max(abs(one - min(limit, bare["share"])) for one in said["seconds"])
        wrong = abs(said["percent"] - wanted) > SHARE_POINTS or worst > SECOND_POINTS
    verdict = "different" if wrong else "same"
    report.judge("cores_frameworks", f"{name} at {limit} %", verdict, text, said=said, bare=bare)


def run_part(setup: Setup, report: Report) -> None:
    """Some two minutes, a fourth of it imports."""
    if setup.simulated:
        report.judge("cores_frameworks", "all", "skipped", "needs a GPU")
        return
    with ExitStack() as stack:
        running = {
            name: {limit: _start(setup, stack, words, limit) for limit in (None, *LIMITS)}
            for name, words in PROGRAMS.items()
        }
        ready = {name: _are_ready(setup, report, name, running[name]) for name in PROGRAMS}
        for name in (each for each in PROGRAMS if ready[each]):
            _compare(report, name, running[name])


def _are_ready(
    setup: Setup, report: Report, name: str, programs: Mapping[int | None, Driven]
) -> bool:
    try:
        for program in programs.values():
            program.await_ready(setup.left_s(START_S))
    except DrivenError as error:
        verdict = "skipped" if f"status {SKIPPED}" in str(error) else "failed"
        report.judge("cores_frameworks", name, verdict, str(error))
        return False
    return True


def _compare(report: Report, name: str, programs: Mapping[int | None, Driven]) -> None:
    try:
        bare = _ask(programs[None], BARE_S)
        for limit in LIMITS:
            _judge(report, name, limit, _ask(programs[limit], SECONDS), bare)
    except DrivenError as error:
        report.judge("cores_frameworks", name, "failed", str(error))
