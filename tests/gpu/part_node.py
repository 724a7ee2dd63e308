"""`gpufence node serve` on a GPU: its containers, what their pods say, who goes around the library.

Three containers share the GPU: two saturate it with weights of 3 to 1, a third of high priority
comes and goes, and one is frozen and resumed. A training is frozen and must compute the same. A
process without the library must be named. The kubelet and the API server are played (node_stage).
Leaves node.json and node.svg. At most MOST_S.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from report import Report
from setup import REPO, Setup

sys.path.insert(0, str(REPO / "bench"))

from node_bypass import name_a_stranger
from node_freeze import freeze_a_training, training
from node_series import Phase, drawn, mean
from node_sharing import Shared, share
from node_stage import Stage, StageError, stage

PART = "node"
MOST_S = 70.0
POINTS = 3.0  # a share may be off by so much, and what the library charged may
IDLE_POINTS = 0.5
LEAST_PERCENT = 95.0  # of the GPU, by whoever may have all of it
BESIDE_PRIORITY = 90.0  # by all together: each burst of high priority makes the others wait
THIRD = (20.0, 30.0)  # what the third asks for is 25 % of the time, within its limit of 30


@dataclass(frozen=True, slots=True)
class Promised:
    """What a phase's shares are held against."""

    phase: Phase
    frozen: bool = False  # the first is held, and the second has all
    third: bool = False


PHASES = (
    Promised(Phase("weights 3 to 1", 1.0, 3.4)),
    Promised(Phase("and one of high priority", 4.2, 6.9), third=True),
    Promised(Phase("it has gone", 8.2, 9.4)),
    Promised(Phase("the first frozen", 10.4, 11.4), frozen=True),
    Promised(Phase("resumed", 12.4, 13.8)),
)


def wrong_shares(promised: Promised, shares: dict[str, float]) -> list[str]:
    """What is wrong with the three's shares of a phase, in percent of the GPU's time."""
    first, second, third = (shares[name] for name in ("a", "b", "c"))
    if promised.frozen:
        found = [f"{first:.1f} % while it is frozen"] if first > IDLE_POINTS else []
        return found + ([f"the other has {second:.1f} %"] if second < LEAST_PERCENT else [])
    found = []
    whole = first + second + third
    if whole < (BESIDE_PRIORITY if promised.third else LEAST_PERCENT):
        found.append(f"only {whole:.1f} % in sum")
    for name, got, part in (("first", first, 0.75), ("second", second, 0.25)):
        wanted = part * (whole - third)
        if abs(got - wanted) > POINTS:
            found.append(f"the {name} has {got:.1f} instead of {wanted:.1f}")
    least, most = THIRD if promised.third else (0.0, IDLE_POINTS)
    if not least <= third <= most:
        found.append(f"the third has {third:.1f}")
    return found


def judge_shares(report: Report, shared: Shared, simulated: bool) -> None:
    """Each phase by the GPU's clock, and what the library charged against that."""
    for promised in PHASES:
        charged = {pod: mean(line, promised.phase) for pod, line in shared.charged.items()}
        clock = {pod: mean(line, promised.phase) for pod, line in shared.clock.items()}
        shares = charged if simulated else clock
        wrong = wrong_shares(promised, shares)
        for pod in charged:
            if abs(charged[pod] - shares[pod]) > POINTS:
                wrong.append(f"{pod} was charged {charged[pod]:.1f} for {shares[pod]:.1f}")
        told = " + ".join(f"{shares[pod]:.1f}" for pod in sorted(shares))
        text = "; ".join([f"{told} % of the time", *wrong])
        verdict = "different" if wrong else "same"
        if simulated and verdict != "same" and shares["a"] + shares["b"] > 0:
            # Kernels of the simulator take the host's time, which others use, too.
            verdict = "skipped"
        report.judge(PART, promised.phase.name, verdict, text, charged=charged, clock=clock)
    told = f"requests of 20 ms of the GPU, beside both others: {shared.requests}"
    verdict = "skipped" if simulated else "same" if shared.requests["count"] else "failed"
    report.judge(PART, "requests of high priority", verdict, told)


def leave(setup: Setup, shared: Shared) -> None:
    """The series as JSON, and as a picture."""
    named = {"a": "weight 3", "b": "weight 1", "c": "high priority"}
    series = shared.charged if setup.simulated else shared.clock
    body = {
        "schema": 1,
        "simulated": setup.simulated,
        "step_s": 0.1,
        "phases": [[one.phase.name, one.phase.begin_s, one.phase.end_s] for one in PHASES],
        "clock_percent": shared.clock,
        "charged_percent": shared.charged,
        "events_s": shared.events,
        "kernels": shared.kernels,
        "requests": shared.requests,
    }
    (setup.out / "node.json").write_text(json.dumps(body) + "\n", encoding="utf-8")
    driver = "the simulated driver" if setup.simulated else "a GPU"
    picture = drawn(
        f"Three containers of gpufence node on {driver}",
        {named[pod]: line for pod, line in series.items()},
        [one.phase for one in PHASES],
    )
    (setup.out / "node.svg").write_text(picture, encoding="utf-8")


def run_part(setup: Setup, report: Report) -> None:
    """All of it."""
    missing = [name for name in ("grpc", "google.protobuf", "pytest") if not _is_there(name)]
    if missing:
        report.judge(PART, "all", "skipped", f"this Python has no {', '.join(missing)}")
        return
    bounded = replace(setup, deadline=min(setup.deadline, time.monotonic() + MOST_S))
    with tempfile.TemporaryDirectory(prefix="gpufence-node-") as name:
        folder = Path(name)
        try:
            with stage(bounded, folder) as node:
                _scenes(bounded, report, node, folder)
        except (StageError, OSError) as error:
            report.judge(PART, "all", "failed", f"{type(error).__name__}: {error}")
        said = folder / "said.txt"
        if said.exists():
            (setup.out / "node-agent.txt").write_bytes(said.read_bytes())


def _scenes(setup: Setup, report: Report, node: Stage, folder: Path) -> None:
    boxes = {
        "a": node.container("a", 4096, 15),
        "b": node.container("b", 4096, 5),
        "c": node.container("c", 4096, 30),
    }
    held = {pod: box.env["GPUFENCE_CORE_LIMIT"] for pod, box in boxes.items()}
    report.judge(PART, "grants", "same", f"containers started with core limits {held}")
    # The trainings import while the others share the GPU, and touch it only when they are told.
    with training(setup, node, None) as bare, training(setup, node, boxes["a"]) as fenced:
        try:
            shared = share(setup, node, boxes, folder)
            leave(setup, shared)
            judge_shares(report, shared, setup.simulated)
        except StageError as error:
            report.judge(PART, "shares", "failed", str(error))
        freeze_a_training(setup, report, node, boxes["a"], bare, fenced)
    name_a_stranger(setup, report, node, boxes["b"])


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
