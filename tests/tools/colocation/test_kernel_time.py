"""What kernels took, from a trace."""

from __future__ import annotations

import math

import pytest
from colocation.workloads.kernel_time import usual_us


def event(name: str, us: float, category: str = "kernel") -> dict[str, object]:
    return {"cat": category, "name": name, "dur": us}


def test_a_kernel_that_was_interrupted_counts_as_the_others_of_its_name() -> None:
    events = [event("a", 10), event("a", 11), event("a", 2_300), event("b", 5)]

    assert usual_us(events) == pytest.approx(3 * 11 + 5)


def test_fills_and_copies_are_the_gpus_time_and_calls_are_not() -> None:
    events = [event("a", 10), event("fill", 2, "gpu_memset"), event("copy", 3, "gpu_memcpy")]

    assert usual_us([*events, event("call", 100, "cuda_runtime"), {"name": "start"}]) == 15


def test_without_records_nothing_is_known() -> None:
    assert math.isnan(usual_us([event("call", 100, "cuda_runtime")]))
