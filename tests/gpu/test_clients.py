"""The GPU run's part about libraries: what it calls wrong, with programs that only say numbers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import part_clients
from report import Report
from setup import Setup

# Speaks as workloads/clients.py does; the environment tells what it says differently.
PROGRAM = """
import json, os, sys
limited = "GPUFENCE_MEMORY_LIMIT" in os.environ
said = {
    "results": {"lines": ["1"], "libgpufence": limited},
    "rate": {"rate": 100 if limited else 400},
    "share": {"rate": 99, "share": 24.0 if limited else 97.0, "seconds": [], "step_ms": 2.4,
              "kernels": 1.0},
    "refused": {"error": "OutOfMemoryError", "message": "total capacity of 4.00 GiB",
                "granted MiB": 3000, "lines": ["1"]},
}
if limited:
    for what, other in json.loads(os.environ["OTHER"]).items():
        said[what] |= other
if sys.argv[1] != "torch":
    raise SystemExit(77)
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(said[line.split()[0]]), flush=True)
"""


def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **other: Any) -> dict[str, Any]:  # noqa: ANN401
    """Every verdict of the part, where the limited program says `other` instead."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = (sys.executable, str(script))
    said = {"OTHER": json.dumps(other)}
    monkeypatch.setattr(part_clients, "python", lambda _script, **env: (command, {**env, **said}))
    monkeypatch.setattr(part_clients, "record_excess_ms", lambda *_: 0.0)
    report = Report(tmp_path)

    part_clients.run_part(Setup(tmp_path, tmp_path, False, time.monotonic() + 60), report)

    verdicts: dict[str, Any] = report.details["parts"]["clients"]
    return verdicts


def test_a_client_that_keeps_its_promises_is_right_and_a_missing_one_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = judged(tmp_path, monkeypatch)

    assert verdicts["PyTorch"]["verdict"] == "same"
    assert {it["verdict"] for name, it in verdicts.items() if name != "PyTorch"} == {"skipped"}
    lines = (tmp_path / "clients.txt").read_text("utf-8").splitlines()
    wanted = ["PyTorch", "equal", "97.0", "24.0", "3000", "OutOfMemoryError"]
    assert wanted in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"results": {"lines": ["2"]}}, "results differ"),
        ({"results": {"libgpufence": False}}, "the library was not there"),
        ({"rate": {"rate": 120}}, "3.8 points above its share"),
        ({"rate": {"rate": 50}}, "13.0 points too little"),
        ({"share": {"step_ms": 12.0}}, "points above its share"),
        ({"refused": {"error": "none"}}, "its error is none"),
        ({"refused": {"message": "total capacity of 139.81 GiB"}}, "its error is OutOfMemoryError"),
        ({"refused": {"granted MiB": 4160}}, "4160 MiB granted"),
        ({"refused": {"lines": ["2"]}}, "results differ after the refusal"),
    ],
)
def test_a_broken_promise_is_seen(
    other: dict[str, Any], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = judged(tmp_path, monkeypatch, **other)["PyTorch"]

    assert verdict["verdict"] == "different"
    assert complaint in verdict["text"]
