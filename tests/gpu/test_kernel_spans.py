"""When kernels ran, as JAX's profiler tells it, and what that covers. Needs no GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "workloads"))

import cores_jax
import steps


def named(kind: str, pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    """What gives a process or a thread of a trace its name."""
    place = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return {"ph": "M", "name": kind, "args": {"name": name}, **place}


def ran(pid: int, tid: int, name: str, begin_us: float, for_us: float) -> dict[str, Any]:
    """One event of a trace."""
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin_us, "dur": for_us}


DEVICE, HOST = 1, 701
TRACE = (
    named("process_name", DEVICE, "/device:GPU:0"),
    named("process_name", HOST, "/host:CPU"),
    named("thread_name", DEVICE, "Stream #13(Compute,MemcpyD2D)", 13),
    named("thread_name", DEVICE, "XLA Modules", 2),
    named("thread_name", HOST, "Stream #1 of the host", 13),
    ran(DEVICE, 13, "gemm_fusion_dot", 10.5, 2),
    ran(DEVICE, 13, "MemcpyD2D", 12.5, 1),
    ran(DEVICE, 2, "jit_update", 0, 100),
    ran(HOST, 13, "dispatch", 0, 100),
    ran(DEVICE, 13, "loop_fusion", 20.5, 4),
    {},  # as the profiler ends its file
)


def test_only_kernels_on_streams_of_the_gpu_count() -> None:
    assert cores_jax.kernel_spans(TRACE) == [(10_500, 12_500), (20_500, 24_500)]


def test_a_profiler_that_saw_no_kernel_tells_no_span() -> None:
    assert cores_jax.kernel_spans(TRACE[:5]) == []


def test_covered_time_counts_overlaps_once_and_ends_with_the_last_begin() -> None:
    assert steps.covered_percent([(0, 40), (20, 60), (100, 900)]) == 60.0
