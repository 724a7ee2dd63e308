"""The scoreboard over the simulated driver: a limiter given by path is measured as ours is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.machine import REPO


def test_our_own_library_given_by_path_holds_what_ours_holds(build: Path, tmp_path: Path) -> None:
    variables = "GPUFENCE_MEMORY_LIMIT={memory_mib}MiB,GPUFENCE_STATE_DIR={state}"
    limiter = f"other={build}/lib/libgpufence.so,{variables}"
    words = ["--build", build, "--only", "memory", "--limiter", limiter, "-o", tmp_path / "told"]

    done = subprocess.run(
        [sys.executable, REPO / "bench" / "scoreboard.py", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told").read_text(encoding="utf-8"))
    values = {row["name"]: row["values"] for row in told["figures"] if row["values"]}
    for name, each in values.items():
        assert each["ours"] == each["other"], name
        assert 0.99 <= each["ours"] <= 1, name  # less than a step of the guest's is not granted
    assert values["size that CUDA shows"]["bare"] > 30
    assert values["cuInit refused"] == {"bare": 0, "ours": 1, "other": 1}
    assert told["left_out"] == [
        {"part": "memory", "way": "mps", "why": "the simulated driver has no MPS"}
    ]
