"""How long do extract, render and a clean build take?

Usage: bench/toolchain.py [--runs N] [--json]

Works on copies in a temporary folder, with the interpreter that runs it and the cmake and ninja
beside it. Extract counts from a full cache of header wheels: downloads are the network's time, not
ours. The build is everything that ci/build makes, with as many jobs as there are cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TARGETS_S = {"extract": 2.0, "render": 0.3, "build": 15.0}
TOOLS = Path(sys.executable).parent


def main() -> int:
    """Measure and print; returns the exit status, 1 when a target was missed."""
    parser = argparse.ArgumentParser(description="extract, render and build, in seconds")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps = {"extract": extract, "render": render, "build": build}
        taken = {name: measure(step, Path(folder), options.runs) for name, step in steps.items()}
    if options.json:
        print(json.dumps({"schema": 1, "cores": os.cpu_count(), "seconds": taken}))
    else:
        for name, times in taken.items():
            median, least = times["median"], times["min"]
            print(f"{name:8} median {median:.2f} s, min {least:.2f} s (target {TARGETS_S[name]} s)")
    return int(any(taken[name]["median"] > target for name, target in TARGETS_S.items()))


def measure(step: Callable[[Path], float], folder: Path, runs: int) -> dict[str, float]:
    """Median and minimum of some runs, after one that fills caches."""
    step(folder)
    times = [step(folder) for _ in range(runs)]
    return {"median": statistics.median(times), "min": min(times)}


def extract(folder: Path) -> float:
    """The whole `hookgen extract` process: every pinned header set to the model."""
    return seconds([sys.executable, "-m", "gen", "extract", "--out", str(folder / "api")])


def render(folder: Path) -> float:
    """The whole `hookgen render` process, into an empty folder."""
    shutil.rmtree(folder / "gen", ignore_errors=True)
    return seconds([sys.executable, "-m", "gen", "render", "--out", str(folder / "gen")])


def build(folder: Path) -> float:
    """Compile and link library and simulator; CMake's configuration is not counted."""
    target = folder / "build"
    shutil.rmtree(target, ignore_errors=True)
    cmake = str(TOOLS / "cmake")
    choice = subprocess.run(
        [str(REPOSITORY / "ci" / "compiler")], check=True, capture_output=True, text=True
    )
    seconds(
        [
            *(cmake, "-S", str(REPOSITORY / "lib"), "-B", str(target), "-G", "Ninja"),
            *("-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_MAKE_PROGRAM={TOOLS / 'ninja'}"),
            f"-DPython3_EXECUTABLE={sys.executable}",
            *choice.stdout.splitlines(),
        ]
    )
    return seconds([cmake, "--build", str(target)])


def seconds(command: Sequence[str]) -> float:
    """Wall time of a command; what it prints is shown only when it fails."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tools")}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"toolchain bench: '{' '.join(command)}' failed:\n{done.stdout}{done.stderr}")
    return elapsed


if __name__ == "__main__":
    sys.exit(main())
