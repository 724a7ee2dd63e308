"""The core limit while what is launched into ends, and while events are refused; in virtual time.

Streams, contexts and the device end under load, by several threads: nothing hangs, every kernel is
paid for, and nobody is held for what did not run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from .conftest import Finished, Sim
from .test_core_matrix import limited
from .virtual_world import run_together

THREADS = 4
RUN_MS = 1_500
PERCENT = 30
POINTS = 1.5  # the burst of 10 ms, and the end of the last kernel
BARE_PERCENT = 60  # at least, without a limit: making contexts takes its time

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


def ends(sim: Sim, folder: Path, what: str, kernel_us: int, *, fenced: bool = True) -> Any:  # noqa: ANN401
    """What one run of cores_ends says."""
    command = ("cores_ends", what, THREADS, kernel_us, RUN_MS)
    env = limited(folder, PERCENT) if fenced else {}
    (done,) = run_together(sim, folder, [command], env=env, preload=fenced)
    assert done.stderr == ""
    return done.facts


@pytest.mark.parametrize("kernel_us", [200, 5_000])
@pytest.mark.parametrize("what", ["streams", "contexts", "primary", "reset", "mixed"])
def test_the_share_is_held_while_all_that_runs_ends(
    sim: Sim, tmp_path: Path, what: str, kernel_us: int
) -> None:
    facts = ends(sim, tmp_path, what, kernel_us)

    assert facts["ended"] > THREADS
    assert facts["share"] == pytest.approx(PERCENT, abs=POINTS)
