"""Trainings of several containers side by side on one GPU: each rate, and their sum.

By the rates alone: records of kernels would slow what is to be compared.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from driven import Driven, DrivenError, started
from part_cores import fenced
from part_cores_frameworks import START_S
from part_cores_tenants import SUM_RATIO
from part_frameworks import python
from report import Report
from setup import Setup

SCENES = ((30, 70), (50, 50), (25, 25, 25, 25))  # limits, in percent
RATE_POINTS = 3.0  # of the rate, which also moves with the GPU's clock
SECONDS = 6.0
MODEL = ("cores_torch.py", "convolution")


def _start(setup: Setup, stack: ExitStack, limit: int | None, names: dict[str, str]) -> Driven:
    command, extra = python(*MODEL[:1])
    if limit is None:
        env = setup.environment(preload=False, extra=extra)
    else:
        env = stack.enter_context(fenced(setup, limit, **extra, **names))
    words = (*command, *MODEL[1:])
    return stack.enter_context(started(words, env, f"training at {limit or 'no'} limit"))


def _rates(programs: Sequence[Driven]) -> list[float]:
    """Steps a second of each, all at the same time."""
    for program in programs:
        program.say("rate", SECONDS)
    return [float(json.loads(each.line(4 * SECONDS + 60))["rate"]) for each in programs]


def _judge(
    report: Report, limits: Sequence[int], rates: Sequence[float], bare: Sequence[float]
) -> None:
    alone = sum(bare) / len(bare)
    parts = [100 * rate / alone for rate in rates]
    wrong = [
        f"{part:.1f} instead of {limit}"
        for part, limit in zip(parts, limits, strict=True)
        if abs(part - limit) > RATE_POINTS
    ]
    if sum(parts) < 100 * SUM_RATIO:
        wrong.append("too little in sum")
    text = f"{' + '.join(f'{part:.1f}' for part in parts)} = {sum(parts):.1f} % of the steps of a"
    text += f" bare one: {' and '.join(f'{one:.1f}' for one in bare)} a second before and after"
    name = "/".join(map(str, limits))
    verdict = "different" if wrong else "same"
    report.judge("cores_training", name, verdict, "; ".join([text, *wrong]), rates=rates)


def run_part(setup: Setup, report: Report) -> None:
    """About a minute, a third of it imports."""
    if setup.simulated:
        report.judge("cores_training", "all", "skipped", "needs a GPU")
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        alone = _start(setup, stack, None, {})
        scenes = []
        for scene, limits in enumerate(SCENES):
            node = folder / f"node{scene}"
            node.mkdir()
            names = [
                {"GPUFENCE_NODE_DIR": str(node), "GPUFENCE_CONTAINER": f"c{scene}-{place}"}
                for place in range(len(limits))
            ]
            scenes.append([_start(setup, stack, *pair) for pair in zip(limits, names, strict=True)])
        try:
            for program in (alone, *(each for scene in scenes for each in scene)):
                program.await_ready(setup.left_s(START_S))
            for limits, programs in zip(SCENES, scenes, strict=True):
                before = _rates([alone])
                rates = _rates(programs)
                _judge(report, limits, rates, [*before, *_rates([alone])])
        except DrivenError as error:
            report.judge("cores_training", "all", "failed", str(error))
