"""The colocation bench runs its programs of kernels over the simulated driver, bare and fenced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[3]
SCENES = ("saturate 50/50 5 ms", "bursts 130/130 ms at 30", "pair:1", "single:1")


def measured(build: Path, out: Path) -> Any:  # noqa: ANN401
    """The file that a short session leaves."""
    command = [sys.executable, REPO / "bench" / "colocation.py", "--sim", "--ours", build]
    command += ["--scene", *SCENES, "--way", "bare", "ours", "--seconds", "0.2", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def test_programs_of_kernels_run_over_the_simulated_driver(build: Path, tmp_path: Path) -> None:
    body = measured(build, tmp_path / "out.json")

    lines = {(line["scene"], line["way"]): line for line in body["lines"]}
    assert body["left_out"] == []
    assert [line for line in lines.values() if "error" in line] == []
    assert {scene for scene, way in lines if way == "ours"} == {*SCENES}
    for line in lines.values():
        assert all(tenant["kernels"] > 0 and tenant["rate"] > 0 for tenant in line["tenants"])
    # The same seed is the same program, fenced or not.
    first, second = (lines["single:1", "ours"], lines["alone: random 1000001", "bare"])
    assert first["tenants"][0]["plan"] == second["tenants"][0]["plan"]
