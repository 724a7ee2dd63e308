"""Frameworks under a core limit: when their kernels ran, and their rate against no limit.

To be looked at slows a program, and what CUPTI adds between kernels is charged. So the share is the
time that a step's kernels took, times the rate without records. A record is longer than its kernel
was by what launching and ending take (record_excess.py): that is measured first and deducted. What
kernels covered while they were recorded tells single seconds. All programs start side by side and
then work one after the other, each a container of its own, alone on the GPU.
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
from setup import Setup, run

LIMITS = (10, 50, 90)
RATE_POINTS = 3.0  # of the rate, which also moves with the GPU's clock
SECONDS = 5.0  # each of both ways
BARE_S = 3.0
EXCESS_TIMEOUT_S = 60.0
START_S = 120.0
PROGRAMS = {
    "torch convolution": ("cores_torch.py", "convolution"),
    "torch convolution graph": ("cores_torch.py", "convolution-graph"),
    "torch transformer": ("cores_torch.py", "transformer"),
    "torch transformer graph": ("cores_torch.py", "transformer-graph"),
    "jax": ("cores_jax.py",),
}


def start(
    setup: Setup, stack: ExitStack, words: tuple[str, ...], limit: int | None, **more: str
) -> Driven:
    """One of PROGRAMS, without a limit or in a container of its own with `more` variables."""
    script, *arguments = words
    command, extra = python(script, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if limit is None:
        env = setup.environment(preload=False, extra=extra)
    else:
        env = stack.enter_context(fenced(setup, limit, **extra, **more))
    return stack.enter_context(started((*command, *arguments), env, f"{script} {limit or 'bare'}"))


def record_excess_ms(setup: Setup, report: Report, part: str) -> float:
    """By how much a record is longer than its kernel; 0 where that cannot be measured."""
    command, extra = python("record_excess.py")
    done = run(
        command, setup.environment(preload=False, extra=extra), setup.left_s(EXCESS_TIMEOUT_S)
    )
    if done.status != 0:
        text = f"not known, nothing is deducted: {(done.stdout + done.stderr)[-300:]}"
        report.judge(part, "excess of a record", "skipped", text)
        return 0.0
    said = json.loads(done.stdout)
    text = f"{said['excess_ns']:.0f} ns, by length in us {said['by_us']}"
    report.judge(part, "excess of a record", "same", text, said=said)
    return float(said["excess_ns"]) / 1e6


def ask(program: Driven, seconds: float, excess_ms: float) -> dict[str, Any]:
    """The rate, what CUPTI saw, if anything, and `percent`: kernels at the rate unseen."""
    timeout_s = 10 * seconds + 60
    rate = json.loads(program.tell("rate", seconds, timeout_s=timeout_s))["rate"]
    seen: dict[str, Any] = json.loads(program.tell("share", seconds, timeout_s=timeout_s))
    seen["seen_rate"] = seen.pop("rate", None)
    if "step_ms" in seen:
        seen["percent"] = rate * (seen["step_ms"] - seen["kernels"] * excess_ms) / 10
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
            f"{said['percent']:.2f} % of the time, bare {bare['percent']:.2f}; "
            f"{said['kernels']:.0f} kernels of {said['step_ms']:.3f} ms a step; seen "
            f"{said['share']:.2f}, bare {bare['share']:.2f}, seconds {seconds}; {text}"
        )
        wanted = min(limit, bare["percent"])
        worst = max(abs(one - min(limit, bare["share"])) for one in said["seconds"])
        wrong = abs(said["percent"] - wanted) > SHARE_POINTS or worst > SECOND_POINTS
    verdict = "different" if wrong else "same"
    report.judge("cores_frameworks", f"{name} at {limit} %", verdict, text, said=said, bare=bare)


def run_part(setup: Setup, report: Report) -> None:
    """Some four minutes, a tenth of it imports."""
    if setup.simulated:
        report.judge("cores_frameworks", "all", "skipped", "needs a GPU")
        return
    with ExitStack() as stack:
        running = {
            name: {limit: start(setup, stack, words, limit) for limit in (None, *LIMITS)}
            for name, words in PROGRAMS.items()
        }
        excess_ms = record_excess_ms(setup, report, "cores_frameworks")
        ready = {name: _are_ready(setup, report, name, running[name]) for name in PROGRAMS}
        for name in (each for each in PROGRAMS if ready[each]):
            _compare(report, name, running[name], excess_ms)


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


def _compare(
    report: Report, name: str, programs: Mapping[int | None, Driven], excess_ms: float
) -> None:
    try:
        bare = ask(programs[None], BARE_S, excess_ms)
        for limit in LIMITS:
            _judge(report, name, limit, ask(programs[limit], SECONDS, excess_ms), bare)
    except DrivenError as error:
        report.judge("cores_frameworks", name, "failed", str(error))
