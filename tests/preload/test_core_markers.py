"""The parts of markers alone (tests/programs/marker_cases.cpp), each case a promise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CASES = [
    "asks_relaxed",
    "callbacks",
    "context_ends",
    "context_ends_in_launch",
    "full_list",
    "full_queue",
    "left_meanwhile",
    "lost_place",
    "no_room",
    "stream_ends",
]


@pytest.mark.parametrize("case", CASES)
def test_markers_keep_their_promise(build: Path, case: str) -> None:
    command = [str(build / "tests" / "marker_cases"), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
