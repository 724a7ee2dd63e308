"""The GPU run's part about jobs on several GPUs: what it calls wrong, with programs of numbers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import part_ranks
from report import Report
from setup import Ran, Setup

# Speaks as workloads/ranks.py does; OTHER tells what the second rank inside a limit says instead.
PROGRAM = """
import json, os, sys
kind, rank = sys.argv[1], int(sys.argv[2])
limited = "GPUFENCE_MEMORY_LIMIT" in os.environ
said = {
    "results": {"lines": [f"{kind} {rank}"], "libgpufence": limited},
    "rate": {"rate": 200 if limited else 400, "steps": 1},
    "share": {"rate": 190, "share": 49.0 if limited else 98.0, "seconds": [], "step_ms": 2.5,
              "kernels": 1.0},
    "refused": {"error": "OutOfMemoryError", "message": "total capacity of 4.00 GiB",
                "granted MiB": 3000, "lines": [f"{kind} {rank}"]},
}
if limited and rank == 1:
    for what, other in json.loads(os.environ["OTHER"]).items():
        said[what] |= other
if kind != "ddp":
    raise SystemExit(77)
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(said[line.split()[0]]), flush=True)
"""


def judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    gpus: int = 2,
    **other: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Every verdict of the part, where the second rank inside a limit says `other` instead."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = (sys.executable, str(script))
    said = {"OTHER": json.dumps(other)}
    monkeypatch.setattr(part_ranks, "python", lambda _script, **env: (command, {**env, **said}))
    monkeypatch.setattr(part_ranks, "record_excess_ms", lambda *_: 0.0)
    monkeypatch.setattr(part_ranks, "run", lambda *_: Ran(0, f"{gpus}\n", "", 0.1))
    report = Report(tmp_path)

    part_ranks.run_part(Setup(tmp_path, tmp_path, False, time.monotonic() + 60), report)

    verdicts: dict[str, Any] = report.details["parts"]["ranks"]
    return verdicts


DDP = "DistributedDataParallel at 50"


def test_a_job_whose_ranks_keep_their_promises_is_right_and_a_missing_one_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = judged(tmp_path, monkeypatch)

    assert verdicts[DDP]["verdict"] == "same", verdicts[DDP]["text"]
    assert {it["verdict"] for name, it in verdicts.items() if name != DDP} == {"skipped"}
    (line,) = [
        each for each in (tmp_path / "ranks.txt").read_text("utf-8").splitlines() if DDP in each
    ]
    wanted = "equal 50.0 98.0 + 98.0 50.0 + 50.0 3000 + 3000 OutOfMemoryError"
    assert line.split() == [*DDP.split(), *wanted.split()]


def test_one_gpu_is_too_few_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = judged(tmp_path, monkeypatch, gpus=1)

    assert verdicts["all"] == {"verdict": "skipped", "text": "needs 2 GPUs, and 1 are here"}


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"results": {"lines": ["2"]}}, "rank 1: results differ"),
        ({"results": {"libgpufence": False}}, "rank 1: the library was not there"),
        ({"rate": {"rate": 210}}, "rank 1: its share is off by +2.5 points"),
        ({"rate": {"rate": 190}}, "rank 1: its share is off by -2.5 points"),
        ({"refused": {"error": "none"}}, "rank 1: its error is none"),
        ({"refused": {"granted MiB": 4160}}, "rank 1: 4160 MiB granted"),
        ({"refused": {"lines": ["2"]}}, "rank 1: results differ after the refusal"),
    ],
)
def test_a_promise_that_one_rank_breaks_is_seen(
    other: dict[str, Any], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = judged(tmp_path, monkeypatch, **other)[DDP]

    assert verdict["verdict"] == "different"
    assert complaint in verdict["text"]


def test_ranks_that_hang_are_ended_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_ranks, "ANSWER_S", 0.5)
    hangs = PROGRAM.replace("print(json.dumps(said[", "time.sleep(60); print(json.dumps(said[")
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", "import time\n" + hangs)

    verdict = judged(tmp_path, monkeypatch)[DDP]

    assert verdict["verdict"] == "failed"
    assert "says nothing for 0.5 s" in verdict["text"]
