"""The memory limit on a driver: every family by every way, a stress, and what is shown.

The frameworks and the cost are parts of their own (part_memory_frameworks, part_memory_cost).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import memory_families
import memory_namespace
import memory_stress
import memory_views
from report import Report
from setup import REPO, Ran, Setup, run

SOURCE = REPO / "tests" / "gpu" / "workloads" / "memory_static.cu"
Step = Callable[[Setup, Report, dict[str, Path]], None]
STREAMS = {"static cudart": "legacy", "static cudart per-thread": "per-thread"}


def compile_static(setup: Setup, report: Report, folder: Path) -> dict[str, Path]:
    """The static runtime's program with both kinds of default stream, by name."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or setup.simulated:
        report.judge("memory", "static cudart", "skipped", "no nvcc, or a simulated driver")
        return {}

    def compile_one(name: str) -> Ran:
        flags = ["-O2", "-cudart", "static", "--default-stream", STREAMS[name]]
        command = [nvcc, *flags, "-o", folder / name.replace(" ", "-"), SOURCE]
        return run(command, setup.environment(preload=False), setup.left_s(90))

    programs = {}
    with ThreadPoolExecutor() as pool:
        for name, done in zip(STREAMS, pool.map(compile_one, STREAMS), strict=True):
            if done.status == 0:
                programs[name] = folder / name.replace(" ", "-")
            else:
                report.judge("memory", name, "failed", f"nvcc: {done.stderr[-300:]}")
    return programs


def run_part(setup: Setup, report: Report) -> None:
    """The four in turn; one that breaks does not keep the others from running."""
    with tempfile.TemporaryDirectory() as name:
        static = compile_static(setup, report, Path(name))
        steps: dict[str, Step] = {
            "families": memory_families.run_families,
            "views": memory_views.run_views,
            "namespace": memory_namespace.run_namespace,
            "stress": memory_stress.run_stress,
        }
        for step, action in steps.items():
            try:
                action(setup, report, static)
            except Exception as error:  # noqa: PERF203 - four times is not often
                report.judge("memory", step, "failed", f"{type(error).__name__}: {error}")
