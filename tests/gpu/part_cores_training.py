"""Trainings of several containers side by side on one GPU: each rate, and their sum.

By the rates alone: records of kernels would slow what is to be compared.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from driven import Driven, DrivenError
from part_cores_frameworks import PROGRAMS, START_S, start
from part_cores_tenants import SUM_RATIO
from report import Report
from setup import Setup

SCENES = ((30, 70), (50, 50), (25, 25, 25, 25))  # limits, in percent
RATE_POINTS = 3.0  # of the rate, which also moves with the GPU's clock
SECONDS = 6.0
MODEL = PROGRAMS["torch convolution"]


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
        alone = start(setup, stack, MODEL, None)
        scenes = []
        for scene, limits in enumerate(SCENES):
            node = folder / f"node{scene}"
            node.mkdir()
            more = {"GPUFENCE_NODE_DIR": str(node)}
            scenes.append(
                [
                    start(setup, stack, MODEL, limit, **more, GPUFENCE_CONTAINER=f"c{place}")
                    for place, limit in enumerate(limits)
                ]
            )
        try:
            for program in (alone, *(each for scene in scenes for each in scene)):
                program.await_ready(setup.left_s(START_S))
            for limits, programs in zip(SCENES, scenes, strict=True):
                before = _rates([alone])
                rates = _rates(programs)
                _judge(report, limits, rates, [*before, *_rates([alone])])
        except DrivenError as error:
            report.judge("cores_training", "all", "failed", str(error))
