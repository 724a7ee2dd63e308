"""A PyTorch training in a container of the node that is frozen and resumed, beside a bare one.

Both must compute the same, bit by bit, and no step of the frozen one may end meanwhile. Must not
know how the node is made.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from driven import Driven, DrivenError, started
from node_stage import Box, Stage, StageError
from part_frameworks import WORKLOADS
from report import Report
from setup import Setup

PART, NAME = "node", "a training frozen and resumed"
STEPS, EVERY, FROZEN_AT = 1500, 100, 300
FROZEN_S = 1.2
SETTLED_NS = 50_000_000  # what was launched before may end so long after
START_S, TRAIN_S = 60.0, 40.0


@contextmanager
def training(setup: Setup, node: Stage, box: Box | None) -> Iterator[Driven]:
    """Its program, in a container or bare; it imports for a while."""
    way = "spin" if setup.simulated else "torch"
    words: list[object] = [sys.executable, WORKLOADS / "frozen_training.py", way, STEPS, EVERY]
    env = {**node.environment(box), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = box.command(words) if box else [str(word) for word in words]
    with started(command, env, "a training") as program:
        yield program


def freeze_a_training(
    setup: Setup, report: Report, node: Stage, box: Box, bare: Driven, fenced: Driven
) -> None:
    """Runs both; one verdict."""
    try:
        for program in (bare, fenced):
            program.await_ready(setup.left_s(START_S))
        undisturbed = json.loads(_heard(bare, "go")[-1])
        frozen_ns, resumed_ns, told = _frozen(node, box, fenced)
    except (DrivenError, StageError) as error:
        missing = "cannot be imported" in str(error) or "sees no GPU" in str(error)
        report.judge(PART, NAME, "skipped" if missing else "failed", str(error)[-300:])
        return
    wrong = wrong_training(undisturbed, told, frozen_ns, resumed_ns)
    stood_s = (resumed_ns - frozen_ns) / 1e9
    text = f"{STEPS} steps, held for {stood_s:.2f} s, last loss {told['last']}"
    verdict = "different" if wrong else "same"
    kept = {key: [one[key] for one in (undisturbed, told)] for key in ("last", "losses", "weights")}
    report.judge(PART, NAME, verdict, "; ".join([text, *wrong]), **kept)


def wrong_training(
    undisturbed: dict[str, Any], told: dict[str, Any], frozen_ns: int, resumed_ns: int
) -> list[str]:
    """What is wrong with one that was held between two moments of CLOCK_MONOTONIC."""
    found = [
        f"{what} differ: {undisturbed[what]} / {told[what]}"
        for what in ("losses", "weights", "last")
        if undisturbed[what] != told[what]
    ]
    if not told["libgpufence"] or undisturbed["libgpufence"]:
        found.append("the library was not in one of the two alone")
    held = [at for at in told["done_ns"] if frozen_ns + SETTLED_NS < at < resumed_ns]
    if held:
        found.append(f"{len(held)} steps ended while it was frozen")
    if not any(at > resumed_ns for at in told["done_ns"]):
        found.append("it had ended before it was frozen")
    return found


# Implementation.


def _heard(program: Driven, *words: object) -> list[str]:
    """What a training says until its last line."""
    if words:
        program.say(*words)
    lines = [program.line(TRAIN_S)]
    while not lines[-1].startswith("{"):
        lines.append(program.line(TRAIN_S))
    return lines


def _frozen(node: Stage, box: Box, program: Driven) -> tuple[int, int, dict[str, Any]]:
    """Freezes it in the middle: when that was done, when it was taken back, and what it told."""
    program.say("go")
    while program.line(TRAIN_S) != f"at {FROZEN_AT}":
        pass
    _commanded(node, "freeze", box)
    frozen_ns = time.monotonic_ns()
    time.sleep(FROZEN_S)
    resumed_ns = time.monotonic_ns()
    _commanded(node, "resume", box)
    told: dict[str, Any] = json.loads(_heard(program)[-1])
    return frozen_ns, resumed_ns, told


def _commanded(node: Stage, word: str, box: Box) -> None:
    done = node.command(word, box.name, "--state-dir", str(box.state))
    if done.returncode != 0:
        raise StageError(f"gpufence {word}: {done.stderr.strip()[-200:]}")
