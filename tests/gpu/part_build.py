"""The GPU run's first part: the project built on the machine it will be tested on."""

from __future__ import annotations

import os
import sys

from report import Report
from setup import REPO, Setup, run

BUILD_TIMEOUT_S = 240.0


def run_part(setup: Setup, report: Report) -> bool:
    """Configures and builds library, simulator and test programs.

    Returns:
        Whether there is a library to test. Test programs that do not compile are reported and
        skipped later; they do not stop the run.
    """
    configure = [
        "cmake",
        "-S",
        REPO / "lib",
        "-B",
        setup.build,
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGPUFENCE_TESTS=ON",
        f"-DPython3_EXECUTABLE={sys.executable}",
    ]
    done = run(configure, os.environ, setup.left_s(60))
    if done.status != 0:
        report.judge("build", "configure", "failed", done.stderr[-800:], seconds=done.seconds)
        return False
    # -k 0: one program that does not compile must not keep the others from being built.
    done = run(
        ["cmake", "--build", setup.build, "--", "-k", "0"],
        os.environ,
        setup.left_s(BUILD_TIMEOUT_S),
    )
    verdict = "same" if done.status == 0 else "failed"
    tail = "" if done.status == 0 else (done.stdout + done.stderr)[-1500:]
    report.judge("build", "build", verdict, f"{done.seconds} s {tail}", seconds=done.seconds)
    return setup.library.exists()
