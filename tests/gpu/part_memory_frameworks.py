"""Frameworks inside a memory limit: results unchanged, and their own errors where it is too little.

Each workload runs bare and then in a container of 4 GiB. Its plain lines must be the same; the
lines that begin with "limit" exist in the second run alone and must say what the workload expects.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from memory_families import LIMIT, container
from part_frameworks import SKIPPED, python
from report import Report
from setup import Ran, Setup, run

TIMEOUT_S = 90.0
AT_ONCE = 8  # most of a workload's time is spent importing, not on the GPU

# What a program is told of a limit, whichever framework asks.
SURVIVED = {"survived": "yes"}
TOTAL = {**SURVIVED, "total": str(LIMIT)}
TORCH = {**TOTAL, "error": "OutOfMemoryError", "a gibibyte after freeing": "1024"}


@dataclass(frozen=True, slots=True)
class Workload:
    """A script of workloads/, what the limited run must say, and what its error must hold.

    `expected` values are whole; `message` is a pattern to be found.
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    expected: dict[str, str]
    message: str
    least_mib: int = 2500  # granted before the refusal


def _torch(name: str, mode: str, message: str) -> Workload:
    command, env = python("memory_torch.py", PYTORCH_CUDA_ALLOC_CONF=mode)
    return Workload(name, command, env, TORCH, message)


def workloads() -> list[Workload]:
    """The slow ones first, so that they overlap with the rest."""
    capacity = r"total capacity of 4\.00 GiB"
    found = [
        _torch("torch", "", capacity),
        _torch("torch expandable_segments", "expandable_segments:True", capacity),
        _torch("torch cudaMallocAsync", "backend:cudaMallocAsync", "out of memory|exceed"),
    ]
    for name, variables, least in (
        ("jax default", {}, 1000),
        ("jax fraction 0.5", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.50"}, 1000),
        ("jax no preallocation", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 1000),
    ):
        command, env = python("memory_jax.py", **variables)
        expected = {**SURVIVED, "error": "JaxRuntimeError", "a gibibyte after freeing": "1024.0"}
        found.append(Workload(name, command, env, expected, "RESOURCE_EXHAUSTED", least))
    others = {
        "triton": ("memory_triton.py", TORCH, capacity),
        "nccl all_reduce": ("memory_nccl.py", TORCH, capacity),
        "cupy pool": ("memory_cupy.py", TORCH, "Out of memory"),
        "cupy async pool": (
            "memory_cupy.py",
            {**TOTAL, "a gibibyte after freeing": "1024"},
            "(?i)out.?of.?memory|cudaErrorMemoryAllocation",
        ),
        "numba": (
            "memory_numba.py",
            {**TOTAL, "a gibibyte after freeing": str(1 << 30)},
            "(?i)out.?of.?memory",
        ),
        "cuda-bindings": (
            "memory_bindings.py",
            {**TOTAL, "error": "RefusedError", "a gibibyte after freeing": "granted"},
            "CUDA_ERROR_OUT_OF_MEMORY",
        ),
    }
    for name, (script, expected, message) in others.items():
        command, env = python(script)
        extra = ("async",) if "async" in name else ()
        found.append(Workload(name, (*command, *extra), env, expected, message))
    return found


def split(output: str) -> tuple[list[str], dict[str, str]]:
    """The plain lines, and what the lines that begin with "limit" say by name."""
    plain, limited = [], {}
    for line in output.splitlines():
        if line.startswith("limit "):
            name, _, value = line.removeprefix("limit ").partition(": ")
            limited[name] = value
        else:
            plain.append(line)
    return plain, limited


def complaints_about(workload: Workload, said: dict[str, str]) -> list[str]:
    """What the limited run said that it should not."""
    found = [
        f"{name} is {said.get(name, 'not told')}, not {value}"
        for name, value in workload.expected.items()
        if said.get(name) != value
    ]
    if not re.search(workload.message, said.get("message", "")):
        found.append(f"message without {workload.message!r}")
    granted = int(said.get("granted MiB", "0"))
    if not workload.least_mib <= granted <= LIMIT >> 20:
        found.append(f"{granted} MiB granted, {workload.least_mib} expected at least")
    return found


def compare(setup: Setup, workload: Workload, folder: Path) -> tuple[Ran, Ran, dict[str, object]]:
    """Both runs, and the evidence that the library was in the second."""
    # Bare, a preallocation would take most of the GPU from the workloads beside this one.
    modest = {**workload.env, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    bare_env = setup.environment(preload=False, extra=modest)
    bare = run(workload.command, bare_env, setup.left_s(TIMEOUT_S))
    if bare.status == SKIPPED:
        return bare, bare, {}
    evidence = folder / (re.sub(r"\W+", "-", workload.name) + ".json")
    with container(setup) as (env, _):
        env |= workload.env
        env |= {"GPUFENCE_TEST_LIMIT": str(LIMIT), "GPUFENCE_TEST_EVIDENCE": str(evidence)}
        limited = run(workload.command, env, setup.left_s(TIMEOUT_S))
    left = json.loads(evidence.read_text(encoding="utf-8")) if evidence.exists() else {}
    return bare, limited, left


def judge(
    report: Report, workload: Workload, bare: Ran, limited: Ran, evidence: dict[str, object]
) -> None:
    """Both runs to one verdict."""
    part, name = "memory_frameworks", workload.name
    if bare.status == SKIPPED:
        report.judge(part, name, "skipped", bare.stdout.strip()[-300:])
        return
    if bare.status != 0:
        reason = (bare.stdout + bare.stderr)[-500:]
        report.judge(part, name, "failed", f"fails bare ({bare.status}): {reason}")
        return
    plain_bare, _ = split(bare.stdout)
    plain_limited, said = split(limited.stdout)
    text = f"{said.get('error')} at {said.get('granted MiB')} MiB: {said.get('message', '')[:160]}"
    detail = {"said": said, "seconds": [bare.seconds, limited.seconds], "lines": len(plain_bare)}
    if limited.status != 0 or evidence.get("libgpufence") is not True:
        reason = (limited.stdout + limited.stderr)[-700:]
        text = f"status {limited.status} inside the limit, evidence {evidence}: {reason}"
        report.judge(part, name, "failed", text, **detail)
        return
    complaints = complaints_about(workload, said)
    if plain_bare != plain_limited:
        unlike = [f"{a} / {b}" for a, b in zip(plain_bare, plain_limited, strict=False) if a != b]
        complaints.append(f"results differ: {unlike[:3]}")
    report.judge(
        part,
        name,
        "different" if complaints else "same",
        "; ".join([f"{len(plain_bare)} lines, {limited.seconds} s, {text}", *complaints]),
        **detail,
    )


def run_part(setup: Setup, report: Report) -> None:
    """Some at once; verdicts come as pairs end."""
    if setup.simulated:
        _rehearse(setup, report)
        return
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(AT_ONCE) as pool:
        pending: dict[Future[tuple[Ran, Ran, dict[str, object]]], Workload] = {
            pool.submit(compare, setup, workload, Path(name)): workload for workload in workloads()
        }
        for done in as_completed(pending):
            judge(report, pending[done], *done.result())


def _rehearse(setup: Setup, report: Report) -> None:
    """Without a GPU no framework works: only that every script can be read is seen."""
    broken = []
    for workload in workloads():
        code = f"import ast; ast.parse(open({workload.command[1]!r}).read())"
        if run([sys.executable, "-c", code], setup.environment(preload=False), 30).status != 0:
            broken.append(workload.name)
    verdict = "failed" if broken else "skipped"
    report.judge("memory_frameworks", "all", verdict, f"needs a GPU; unreadable: {broken}")
