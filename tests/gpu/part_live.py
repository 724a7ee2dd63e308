"""Limits that `gpufence set` changes while a program works: how long until each has its effect.

A program launches kernels and asks for memory all the time and notes when it got what; the limits
are changed by the command itself, as an operator would.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driven import DrivenError, driven
from report import Report
from setup import REPO, Setup, run

MIB = 1 << 20
NAME = "live"
WORKLOAD = REPO / "tests" / "gpu" / "workloads" / "live_load.py"
REST_S = 2.5  # between two changes of a share
SHORT_REST_S = 0.6
MEMORY_NS = 100_000_000
CORES_NS = 1_000_000_000
WINDOW_NS = 150_000_000
STEP_NS = 5_000_000
NEAR = 0.15  # of the rate that a window has to reach
OUT_OF_MEMORY = 2
LOOKS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """One `gpufence set`: what it was, and when the command began and ended."""

    what: str
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Operator:
    """Who changes the limits of the one container in a folder."""

    setup: Setup
    state: Path

    def command(self, *words: str) -> str:
        """Run `gpufence` and give back what it prints."""
        env = {**self.setup.environment(preload=False), "PYTHONPATH": str(REPO / "tools")}
        line = [sys.executable, "-m", "gpufence", *words, "--state-dir", str(self.state)]
        done = run(line, env, 30)
        if done.status != 0:
            raise DrivenError(f"gpufence {words[0]}: {done.status}: {done.stderr[-300:]}")
        return done.stdout

    def change(self, *words: str, rest_s: float = REST_S) -> Change:
        """Set, and let the program work on for a while."""
        began_ns = time.monotonic_ns()
        self.command("set", NAME, *words)
        change = Change(" ".join(words), began_ns, time.monotonic_ns())
        time.sleep(rest_s)
        return change

    def used_bytes(self) -> int:
        """What the container holds between two requests: the least of several looks."""
        looks = [json.loads(self.command("status", NAME, "--json")) for _ in range(LOOKS)]
        return min(look["containers"][0]["gpus"][0]["memory"]["used_bytes"] for look in looks)


def run_part(setup: Setup, report: Report) -> None:
    """Both kinds of work; PyTorch only where there is one."""
    for way in ("spin", "torch"):
        if way == "torch" and setup.simulated:
            continue
        try:
            _measure(setup, report, way)
        except DrivenError as error:
            verdict = "skipped" if "cannot be imported" in str(error) else "failed"
            report.judge("live", way, verdict, str(error))


def _measure(setup: Setup, report: Report, way: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state, file = Path(folder) / "state", Path(folder) / "moments.json"
        operator = Operator(setup, state)
        names = {"GPUFENCE_CONTAINER": NAME, "GPUFENCE_STATE_DIR": str(state)}
        names["GPUFENCE_MEMORY_LIMIT"] = "4g"
        env = setup.environment(preload=True, extra=names)
        with driven([sys.executable, WORKLOAD, way, file], env, way) as program:
            time.sleep(REST_S)
            cores = [operator.change("--cores", share) for share in ("30", "70", "30", "0")]
            lowered = str(operator.used_bytes() // MIB + 32) + "m"
            memory = [
                operator.change("--memory", limit, rest_s=SHORT_REST_S)
                for limit in (lowered, "4g", lowered)
            ]
            memory.append(operator.change("--reset", rest_s=SHORT_REST_S))
            program.tell("stop")
        moments = json.loads(file.read_text(encoding="utf-8"))
    _judge_cores(report, way, cores, moments["done"])
    _judge_memory(report, way, memory, moments["requests"])


def rate(done: list[int], begin_ns: int, end_ns: int) -> float:
    """Kernels a second between two moments."""
    count = bisect_left(done, end_ns) - bisect_left(done, begin_ns)
    return count * 1e9 / (end_ns - begin_ns)


def reached_ns(done: list[int], change: Change) -> tuple[float, int | None]:
    """The rate that a change led to, and when it was there first, after the command began.

    The rate is that of the last second of the rest; it is there when a window that begins then has
    it. None: never.
    """
    end_ns = change.ended_ns + int(REST_S * 1e9)
    wanted = rate(done, end_ns - 1_000_000_000, end_ns)
    for begin_ns in range(change.began_ns, end_ns - WINDOW_NS, STEP_NS):
        if abs(rate(done, begin_ns, begin_ns + WINDOW_NS) / wanted - 1) <= NEAR:
            return wanted, begin_ns - change.began_ns
    return wanted, None


def _judge_cores(report: Report, way: str, changes: list[Change], done: list[int]) -> None:
    bare = rate(done, changes[0].began_ns - 1_500_000_000, changes[0].began_ns)
    for number, change in enumerate(changes):
        wanted, after_ns = reached_ns(done, change)
        text = f"{100 * wanted / bare:.1f} % of the free rate"
        detail: dict[str, Any] = {
            "rate": wanted,
            "bare_rate": bare,
            "after_ms": None if after_ns is None else after_ns / 1e6,
            "command_ms": (change.ended_ns - change.began_ns) / 1e6,
        }
        right = after_ns is not None and after_ns <= CORES_NS
        if after_ns is not None:
            text += f", {after_ns / 1e6:.0f} ms after the command began"
        verdict = "same" if right else "different"
        report.judge("live", f"{way} {number}: {change.what}", verdict, text, **detail)


def _judge_memory(
    report: Report, way: str, changes: list[Change], requests: list[tuple[int, int]]
) -> None:
    for number, change in enumerate(changes):
        wanted = OUT_OF_MEMORY if number % 2 == 0 else 0
        until_ns = change.ended_ns + int(SHORT_REST_S * 1e9)
        seen = [(moment, code) for moment, code in requests if change.began_ns < moment < until_ns]
        wrong = [moment for moment, code in seen if code != wanted]
        last_ns = max(wrong, default=change.began_ns)
        first_ns = next((moment for moment, code in seen if code == wanted), None)
        after_ns = last_ns - change.ended_ns
        text = f"the last request under the old limit {after_ns / 1e6:+.1f} ms from its end"
        if first_ns is None:
            report.judge("live", f"{way} {number}: {change.what}", "failed", "no effect at all")
            continue
        verdict = "same" if after_ns <= MEMORY_NS else "different"
        detail = {
            "after_end_ms": after_ns / 1e6,
            "first_after_begin_ms": (first_ns - change.began_ns) / 1e6,
            "command_ms": (change.ended_ns - change.began_ns) / 1e6,
        }
        report.judge("live", f"{way} {number}: {change.what}", verdict, text, **detail)
