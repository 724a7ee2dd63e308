"""Conformance programs: bare on the driver, again with the library in front, both the same.

Also writes facts.json, the record that the simulator is held to.
"""

from __future__ import annotations

import json
import shutil

import harness
from report import Report
from setup import REPO, Setup

PROGRAM_TIMEOUT_S = 100.0
RECORDED = REPO / "tests" / "conformance" / "facts" / "h200-580.json"
DEVIATIONS = REPO / "lib" / "sim" / "deviations.toml"


def run_part(setup: Setup, report: Report) -> None:
    """Runs every program twice and compares; a difference is tried again before it counts."""
    recorded = harness.load_facts(RECORDED) if RECORDED.exists() else {}
    deviations = harness.load_deviations(DEVIATIONS) if DEVIATIONS.exists() else []
    record: dict[str, object] = {}
    for name in harness.program_names():
        program = setup.build / "tests" / name
        if not program.exists():
            report.judge("conformance", name, "failed", "not built")
            continue
        if setup.left_s(1) <= 0:
            report.judge("conformance", name, "skipped", "the time budget is spent")
            continue
        bare = _run(setup, name, preload=False)
        unstable: set[str] = set()
        if bare.status == "ok":
            preloaded = _run(setup, name, preload=True)
            found = harness.differences(bare.facts, preloaded.facts)
            if found:
                again = _run(setup, name, preload=False)
                unstable = {d.fact for d in harness.differences(bare.facts, again.facts)}
                found = [d for d in found if d.fact not in unstable]
        else:
            preloaded, found = bare, []
        against_record = []
        if name in recorded:
            against_record = [
                d for d in harness.differences(recorded[name], bare.facts) if d.fact not in unstable
            ]
            if setup.simulated:
                against_record = harness.unexplained(name, against_record, deviations)
        record[name] = dict(bare.facts)
        _judge(report, name, bare, preloaded, found, against_record, unstable, name in recorded)
    _write_facts(setup, report, record)


def _run(setup: Setup, name: str, *, preload: bool) -> harness.Outcome:
    # A simulated machine remembers dead processes until the next one looks: start from nothing.
    for leftover in setup.out.glob("machine*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    return harness.run_program(
        setup.build / "tests" / name,
        setup.environment(preload=preload),
        setup.left_s(PROGRAM_TIMEOUT_S),
    )


def _judge(
    report: Report,
    name: str,
    bare: harness.Outcome,
    preloaded: harness.Outcome,
    found: list[harness.Difference],
    against_record: list[harness.Difference],
    unstable: set[str],
    has_record: bool,
) -> None:
    text = f"{len(bare.facts)} facts, {bare.seconds} s"
    if unstable:
        text += f", unstable: {', '.join(sorted(unstable))}"
    if has_record:
        text += f", {len(against_record)} unlike the record"
    verdict = "same"
    if bare.status != "ok":
        verdict = "skipped" if bare.status == "skipped" else "failed"
        text += f", bare {bare.status} {bare.stderr[-300:]}"
    elif preloaded.status != "ok":
        verdict = "failed"
        text += f", preloaded {preloaded.status} {preloaded.stderr[-300:]}"
    elif found or against_record:
        verdict = "different"
    if found:
        text += "; preloaded: " + "; ".join(map(str, found[:6]))
    report.judge(
        "conformance",
        name,
        verdict,
        text,
        facts=dict(bare.facts),
        measured=dict(bare.measured),
        preloaded_differs=[str(d) for d in found],
        record_differs=[str(d) for d in against_record],
        unstable=sorted(unstable),
        seconds=[bare.seconds, preloaded.seconds],
    )


def _write_facts(setup: Setup, report: Report, programs: dict[str, object]) -> None:
    machine = report.details["machine"]
    body = {
        "schema": 1,
        "gpu": "simulated" if setup.simulated else machine["gpu"],
        "programs": programs,
    }
    text = json.dumps(body, indent=1, sort_keys=True)
    (setup.out / "facts.json").write_text(text + "\n", encoding="utf-8")
