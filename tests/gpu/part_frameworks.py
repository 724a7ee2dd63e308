"""Frameworks and tools, bare and with the library in front: results must not change.

Each workload is a program that prints results; every line must be the same in both runs. That the
library was really in between is checked twice: it is mapped in the process (the workload's own
evidence) and its log shows that it bound the driver's functions.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import Report
from setup import REPO, Ran, Setup, run

WORKLOADS = REPO / "tests" / "gpu" / "workloads"
WORKLOAD_TIMEOUT_S = 150.0
AT_ONCE = 4  # most of a workload's time is spent importing, not on the GPU
SKIPPED = 77


@dataclass(frozen=True, slots=True)
class Workload:
    """A command, its own variables, and how to read its output.

    `blur` replaces what changes between any two runs; `has_evidence` is False for programs of
    others, which leave none; `alone` is True for those that show what runs on the GPU.
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    blur: str = ""
    has_evidence: bool = True
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Both runs of a workload, and what shows that the library was in between."""

    bare: Ran
    preloaded: Ran
    evidence: dict[str, Any]
    bound: list[str]  # log lines: which library was bound, with how many functions
    lookups: int  # calls of cuGetProcAddress that the log shows


def python(script: str, **env: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and variables of a Python workload."""
    return (sys.executable, str(WORKLOADS / script)), {"PYTHONDONTWRITEBYTECODE": "1", **env}


def workloads(programs: dict[str, Path]) -> list[Workload]:
    """Every workload; `programs` are the compiled ones, by name."""
    allocators = {
        "torch": "",
        "torch-expandable-segments": "expandable_segments:True",
        "torch-cudaMallocAsync": "backend:cudaMallocAsync",
    }
    found = [
        Workload(name, *python("torch_training.py", PYTORCH_CUDA_ALLOC_CONF=mode))
        for name, mode in allocators.items()
    ]
    scripts = ("jax_grad", "cupy_arrays", "numba_kernel", "triton_add", "cuda_bindings")
    found += [Workload(name, *python(f"{name}.py")) for name in (*scripts, "nvml_client")]
    found += [Workload(name, (str(path),)) for name, path in programs.items()]
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        query = "--query-gpu=name,uuid,driver_version,memory.total,pci.bus_id,compute_mode"
        monitor = functools.partial(Workload, has_evidence=False, alone=True)
        found += [
            monitor("nvidia-smi", (smi,), blur=r"[\d.]+|\s+"),
            monitor("nvidia-smi -L", (smi, "-L")),
            monitor("nvidia-smi -q", (smi, "-q", "-d", "MEMORY,COMPUTE"), blur=r"\d+"),
            monitor("nvidia-smi query", (smi, query, "--format=csv")),
        ]
    return found


def compile_static(setup: Setup, report: Report, folder: Path) -> dict[str, Path]:
    """The static-cudart programs, plain and with per-thread default streams."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        report.judge("frameworks", "static cudart", "skipped", "no nvcc")
        return {}
    programs = {}
    for name, flags in (
        ("static-cudart", ["-cudart", "static"]),
        ("static-cudart-per-thread", ["-cudart", "static", "--default-stream", "per-thread"]),
    ):
        target = folder / name
        command = [nvcc, "-O2", *flags, "-o", str(target), str(WORKLOADS / "static_cudart.cu")]
        done = run(command, setup.environment(preload=False), setup.left_s(90))
        if done.status == 0:
            programs[name] = target
        else:
            report.judge("frameworks", name, "failed", f"nvcc: {done.stderr[-300:]}")
    return programs


def compare(setup: Setup, workload: Workload, folder: Path) -> Pair:
    """Runs a workload bare and preloaded."""
    slug = re.sub(r"\W+", "-", workload.name)
    log, evidence = folder / f"{slug}.log", folder / f"{slug}.json"
    bare_env = setup.environment(preload=False, extra=workload.env)
    bare = run(workload.command, bare_env, setup.left_s(WORKLOAD_TIMEOUT_S))
    if bare.status == SKIPPED:
        return Pair(bare, bare, {}, [], 0)
    watched = {
        "GPUFENCE_LOG_LEVEL": "trace",
        "GPUFENCE_LOG_FILE": str(log),
        "GPUFENCE_TEST_EVIDENCE": str(evidence),
    }
    env = setup.environment(preload=True, extra={**workload.env, **watched})
    preloaded = run(workload.command, env, setup.left_s(WORKLOAD_TIMEOUT_S))
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    left = json.loads(evidence.read_text(encoding="utf-8")) if evidence.exists() else {}
    bound = sorted({line.split("gpufence: ")[-1] for line in lines if " bound: " in line})
    return Pair(bare, preloaded, left, bound, sum("cuGetProcAddress(" in line for line in lines))


def judge(report: Report, workload: Workload, pair: Pair) -> None:
    """Turns both runs into one verdict."""
    blur = workload.blur
    outputs = [
        re.sub(blur, "#", ran.stdout) if blur else ran.stdout for ran in (pair.bare, pair.preloaded)
    ]
    detail = {
        "seconds": [pair.bare.seconds, pair.preloaded.seconds],
        "lines": pair.bare.stdout.count("\n"),
        "evidence": pair.evidence,
        "bound": pair.bound,
        "cuGetProcAddress_calls": pair.lookups,
    }
    if pair.bare.status == SKIPPED:
        report.judge("frameworks", workload.name, "skipped", pair.bare.stdout.strip()[-300:])
        return
    if pair.bare.status != 0:
        reason = (pair.bare.stdout + pair.bare.stderr)[-400:]
        report.judge(
            "frameworks",
            workload.name,
            "skipped",
            f"fails without the library too ({pair.bare.status}): {reason}",
            **detail,
        )
        return
    if pair.preloaded.status != 0:
        reason = (pair.preloaded.stdout + pair.preloaded.stderr)[-600:]
        report.judge(
            "frameworks",
            workload.name,
            "failed",
            f"status {pair.preloaded.status} with the library: {reason}",
            **detail,
        )
        return
    text = f"{detail['lines']} lines, {detail['seconds']} s, {pair.lookups} lookups, {pair.bound}"
    present = pair.evidence.get("libgpufence") is True or not workload.has_evidence
    if not present or not pair.bound:
        report.judge(
            "frameworks",
            workload.name,
            "failed",
            f"same output, but nothing shows that the library was in between; {text}",
            **detail,
        )
        return
    if outputs[0] != outputs[1]:
        report.judge(
            "frameworks",
            workload.name,
            "different",
            text,
            **detail,
            bare=pair.bare.stdout[-3000:],
            preloaded=pair.preloaded.stdout[-3000:],
        )
        return
    report.judge("frameworks", workload.name, "same", text, **detail)


def run_part(setup: Setup, report: Report) -> None:
    """Runs all workloads, some at once; verdicts come as pairs end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = workloads(compile_static(setup, report, folder))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pending: dict[Future[Pair], Workload] = {
                pool.submit(compare, setup, workload, folder): workload
                for workload in found
                if not workload.alone
            }
            for done in as_completed(pending):
                judge(report, pending[done], done.result())
        for workload in found:
            if workload.alone:
                judge(report, workload, compare(setup, workload, folder))
