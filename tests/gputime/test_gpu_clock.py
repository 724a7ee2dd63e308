"""Moments of a GPU's clock on the monotonic one, while NTP slews the latter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

# A marker each 10 ms: by 500 millionths the clocks part 5 us until the next one, by as much the
# bounds are looser then, and a marker is reached 1 us after it was recorded.
MOST_NS = 12_000


@pytest.mark.parametrize("ppm", [-500, -20, 0, 20, 500])
def test_a_slewed_clock_is_followed_to_microseconds(build: Path, ppm: int) -> None:
    program = build / "tests" / "gpu_clock"
    said = subprocess.run([program, str(ppm)], check=True, capture_output=True, text=True).stdout

    assert int(said) <= MOST_NS
