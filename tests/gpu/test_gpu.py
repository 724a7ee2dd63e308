"""The GPU run as tests, one for each of its parts; skipped, with a message, without a GPU.

The parts themselves judge; a failure here shows their summary. tests/gpu/run.py runs them all in
one go and keeps what they learned.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PARTS = (
    "lookup",
    "conformance",
    "bench",
    "memory",
    "memory_cost",
    "cores_cost",
    "oversold",
    "cores",
    "cores_tenants",
    "cores_training",
    "live",
    "frameworks",
    "memory_frameworks",
    "clients",
    "oversold_training",
    "cores_frameworks",
    "node",
    "ranks",
    "soak",
)


@pytest.fixture(scope="module")
def gpu_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build made where the GPU is; GPUFENCE_TEST_GPU_BUILD names one to keep between runs."""
    # The control device proves nothing: a driver library makes it where there is no GPU, too.
    if not [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]:
        pytest.skip("no NVIDIA GPU: there is neither /dev/nvidia0 nor /dev/dxg")
    kept = os.environ.get("GPUFENCE_TEST_GPU_BUILD")
    return Path(kept) if kept else tmp_path_factory.mktemp("build-gpu")


@pytest.mark.parametrize("part", PARTS)
def test_the_gpu_runs_part_is_right(part: str, gpu_build: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "run.py"), "--only", part]
    command += ["--out", str(tmp_path), "--build", str(gpu_build)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    summary = tmp_path / "summary.txt"
    assert done.returncode == 0, summary.read_text("utf-8") if summary.exists() else done.stderr
