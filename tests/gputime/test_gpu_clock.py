"""Moments of a GPU's clock on the monotonic one, while NTP slews the latter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

# A marker each 10 ms, reached 1 us after it was recorded: by 70 millionths the clocks part 0.7 us
# until the next one, and by 500 they are slewed 5 us.
DRIFTS_PPM = (-70, -20, 0, 20, 70)
SLEWS_PPM = (-500, -20, 0, 20, 500)
MOST_NS = 3_000
MOST_SLEWED_NS = 12_000


def worst_ns(build: Path, drift_ppm: int, slew_ppm: int) -> int:
    """By how much a moment is off at most."""
    program = build / "tests" / "gpu_clock"
    words = [str(program), str(drift_ppm), str(slew_ppm)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("ppm", DRIFTS_PPM)
def test_a_clock_that_drifts_is_followed_to_microseconds(build: Path, ppm: int) -> None:
    assert worst_ns(build, ppm, 0) <= MOST_NS


@pytest.mark.parametrize("drift_ppm", DRIFTS_PPM)
@pytest.mark.parametrize("slew_ppm", SLEWS_PPM)
def test_a_slewed_clock_is_followed_to_microseconds(
    build: Path, drift_ppm: int, slew_ppm: int
) -> None:
    assert worst_ns(build, drift_ppm, slew_ppm) <= MOST_SLEWED_NS
