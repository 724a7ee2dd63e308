"""The lookup table: what a driver answers for every name, against what the headers say.

Three questions: is the table derived from the headers the driver's own; are all answers the same
with the library in front; and is every function then found in the library.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import lookup_model
from report import Report
from setup import REPO, Setup, run

TIMEOUT_S = 60.0
PROGRAM_SOURCE = REPO / "tests" / "lookup" / "lookup_table.c"
OWNERS = REPO / "tests" / "gpu" / "workloads" / "lookup_owners.py"
ODD_NAMES = ("cuNoSuchFunction", "cudaMalloc", "cuMemAlloc_v9", "dlsym", "cu")


def run_part(setup: Setup, report: Report) -> None:
    """Asks all three questions."""
    model = json.loads((REPO / "lib" / "api" / "cuda.json").read_text(encoding="utf-8"))
    symbols = {function["name"] for function in model["functions"]}
    symbols |= {entry["name"] for entry in model["untyped"]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare = _owners(setup, folder, sorted(symbols), [], preload=False)
        exported = {symbol for symbol, owner in bare["names"].items() if owner is not None}
        table = _tables(setup, report, folder, model, exported)
        if table is not None:
            _ownership(setup, report, folder, exported, table)


def _tables(
    setup: Setup, report: Report, folder: Path, model: dict[str, Any], exported: set[str]
) -> lookup_model.Table | None:
    program = setup.build / "tests" / "lookup_table"
    names = folder / "names"
    bases = {entry["base"] for entry in model["thresholds"]}
    names.write_text("\n".join(sorted(bases | exported) + list(ODD_NAMES)) + "\n", encoding="utf-8")
    outputs = []
    for preload in (False, True):
        done = run([program, names], setup.environment(preload=preload), setup.left_s(TIMEOUT_S))
        if done.status != 0:
            text = f"status {done.status}, preload {preload}: {done.stderr[-300:]}"
            report.judge("lookup", "table", "failed", text)
            return None
        outputs.append(done.stdout)
    versions = lookup_model.asked_versions(PROGRAM_SOURCE.read_text(encoding="utf-8"))
    driver_version, rows = lookup_model.decode(outputs[0], versions)
    table = lookup_model.table_of(model, exported, driver_version)
    wrong = [
        f"entry {entry} {name} {version} flags {flags}: driver {answer}, headers {expected}"
        for (entry, name, flags), answers in rows.items()
        for version, answer in zip(versions, answers, strict=True)
        if answer != (expected := table.answer(entry, name, version, flags))
    ]
    asked = len(rows) * len(versions)
    found = sum(
        answer.startswith("0/") and "null" not in answer
        for answers in rows.values()
        for answer in answers
    )
    report.judge(
        "lookup",
        "driver against headers",
        "different" if wrong else "same",
        f"CUDA {driver_version}: {asked - len(wrong)} of {asked} answers equal, {found} found, "
        f"{len(exported)} exported; {wrong[:4]}",
        driver_version=driver_version,
        asked=asked,
        wrong=len(wrong),
        examples=wrong[:200],
        found=found,
        exported=len(exported),
        bases=len(table.plain),
    )
    unlike = [
        f"{first} / {second}"
        for first, second in zip(outputs[0].splitlines(), outputs[1].splitlines(), strict=False)
        if first != second
    ]
    same_length = outputs[0].count("\n") == outputs[1].count("\n")
    report.judge(
        "lookup",
        "preloaded against bare",
        "same" if same_length and not unlike else "different",
        f"{outputs[0].count(chr(10)) - len(unlike)} rows equal, {len(unlike)} not; {unlike[:2]}",
        examples=unlike[:50],
    )
    return table


def _ownership(
    setup: Setup, report: Report, folder: Path, exported: set[str], table: lookup_model.Table
) -> None:
    procedures = [
        [base, version, flags]
        for flags, group in ((0, table.plain), (2, table.per_thread))
        for base, pairs in group.items()
        for version, _ in pairs
    ]
    owners = _owners(setup, folder, sorted(exported), procedures, preload=True)
    ours = setup.library.name
    strangers = [name for name, owner in owners["names"].items() if owner != ours]
    strangers += [str(one[:3]) for one in owners["procedures"] if one[3] != ours]
    total = len(owners["names"]) + len(owners["procedures"])
    report.judge(
        "lookup",
        "every pointer is ours",
        "different" if strangers else "same",
        f"{len(owners['names'])} names and {len(owners['procedures'])} procedures: "
        f"{total - len(strangers)} ours, {len(strangers)} not {strangers[:6]}",
        strangers=strangers,
    )


def _owners(
    setup: Setup, folder: Path, names: list[str], procedures: list[list[Any]], *, preload: bool
) -> dict[str, Any]:
    questions = folder / "questions.json"
    questions.write_text(json.dumps({"names": names, "procedures": procedures}), encoding="utf-8")
    done = run(
        [sys.executable, OWNERS, questions],
        setup.environment(preload=preload),
        setup.left_s(TIMEOUT_S),
    )
    if done.status != 0:
        raise RuntimeError(f"lookup_owners: status {done.status}: {done.stderr[-300:]}")
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers
