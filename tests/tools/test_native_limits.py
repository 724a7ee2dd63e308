"""`gpufence doctor` beside limits of NVIDIA's driver: what NVML's codes mean, who refuses first."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from gpufence.checks import gpu_probe, native_limits
from gpufence.config import limits
from gpufence.config.limits import Claims
from gpufence.config.sources import System

GIB = 1 << 30
UUIDS = ("GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222")
NO_LIMIT = (1 << 64) - 1
HERE = b"/sys"  # stands for a cgroup's folder: one that is there
OVERSOLD = {"GPUFENCE_MEMORY_LIMIT": "1g", "GPUFENCE_OVERSUBSCRIBE": "on"}
ALONE = {"GPUFENCE_MEMORY_LIMIT": "1g", "GPUFENCE_SCOPE": "process"}


def answering(
    code: int, soft: int = 0, hard: int = NO_LIMIT, used: int = 0
) -> Callable[[object, Any], int]:
    """A function of NVML that fills the structure as nvml.h of 13.4 lays it out."""

    def call(_device: object, limits: Any) -> int:  # noqa: ANN401 - ctypes.byref()
        numbers = (ctypes.c_ulonglong * 3)(soft, hard, used)
        ctypes.memmove(ctypes.addressof(limits._obj) + 8, numbers, 24)
        return code

    return call


def probed(call: object, cgroup: bytes | None = HERE) -> Any:  # noqa: ANN401 - JSON
    """What the probe makes of a driver's answer; None as the call: the driver lacks it."""
    nvml = SimpleNamespace(**({"nvmlDeviceGetMemoryLimits_v1": call} if call else {}))
    return gpu_probe._native(nvml, ctypes.c_void_p(1), cgroup)  # type: ignore[arg-type]


def test_limits_are_told_as_the_driver_tells_them() -> None:
    assert probed(answering(0, GIB, 2 * GIB, 5)) == {"soft": GIB, "hard": 2 * GIB, "used": 5}
    assert probed(answering(0, soft=GIB)) == {"soft": GIB, "hard": None, "used": 0}


@pytest.mark.parametrize(
    ("call", "cgroup"),
    [
        (None, HERE),
        (answering(0), HERE),
        (answering(3), HERE),
        (answering(6), HERE),
        (answering(0, GIB, 2 * GIB), None),
    ],
    ids=["older driver", "no limit", "not supported", "not found", "no cgroup v2"],
)
def test_nothing_is_limited(call: object, cgroup: bytes | None) -> None:
    assert probed(call, cgroup) is None


@pytest.mark.parametrize(
    ("code", "cgroup"), [(999, HERE), (6, b"/nowhere"), (3, b"/sys/../sys"), (6, b"/sys/..")]
)
def test_what_cannot_be_told_is_a_problem(code: int, cgroup: bytes) -> None:
    found = probed(answering(code, GIB, GIB), cgroup)

    assert list(found) == ["problem"]
    assert f"returned {code} for {cgroup.decode()}" in found["problem"]


def first(native: dict[str, object], count: int = 1, **env: str) -> object:
    """Who refuses first on the first of so many GPUs, as JSON says it."""
    told = {"gpus": [{"uuid": uuid, "native": native} for uuid in UUIDS[:count]]}
    found = native_limits.check(told, claims_of(env))
    return found.facts["gpus"][0]["refuses_first"]  # type: ignore[index]


def claims_of(env: dict[str, str]) -> Claims:
    """What a process with these variables is limited to."""
    return limits.read(System("/nowhere", tuple(f"{k}={v}" for k, v in env.items())))


@pytest.mark.parametrize(
    ("env", "who"),
    [
        ({}, "driver"),
        ({"GPUFENCE_CORE_LIMIT": "30"}, "driver"),
        ({"GPUFENCE_MEMORY_LIMIT": "4g"}, "driver"),
        ({"GPUFENCE_MEMORY_LIMIT": "2g"}, "gpufence"),
        ({"GPUFENCE_MEMORY_LIMIT": "1g"}, "gpufence"),
        ({"GPUFENCE_MEMORY_LIMIT": "50%"}, "gpufence"),
        ({"GPUFENCE_MEMORY_LIMIT_0": "1g"}, "gpufence"),
        ({f"GPUFENCE_MEMORY_LIMIT_{UUIDS[0]}": "1g"}, "gpufence"),
        ({f"GPUFENCE_MEMORY_LIMIT_{UUIDS[1]}": "1g"}, "driver"),
        ({"GPUFENCE_MEMORY_LIMIT": "4g", "VCUDA_MEMORY_LIMIT": "1g"}, "gpufence"),
        (OVERSOLD, "unknown"),
        (ALONE, "unknown"),
        ({"GPUFENCE_SCOPE": "process"}, "driver"),
        ({"HYPERVISOR_IP": "127.0.0.1", "HYPERVISOR_PORT": "1"}, "unknown"),
    ],
)
def test_the_lower_limit_refuses_first(env: dict[str, str], who: str) -> None:
    assert first({"soft": GIB, "hard": 2 * GIB, "used": 0}, **env) == who


def test_who_refuses_first_may_depend_on_cudas_order_of_the_gpus() -> None:
    native: dict[str, object] = {"soft": 0, "hard": 2 * GIB, "used": 0}

    assert first(native, count=2, GPUFENCE_MEMORY_LIMIT_0="1g") == "unknown"
    assert first(native, 2, GPUFENCE_MEMORY_LIMIT_0="1g", GPUFENCE_MEMORY_LIMIT="2g") == "gpufence"


def test_a_soft_limit_alone_refuses_nothing() -> None:
    assert first({"soft": GIB, "hard": None, "used": 0}, GPUFENCE_MEMORY_LIMIT="1g") is None


def test_a_limit_of_gpufence_counts_only_where_it_is_held() -> None:
    told = {"gpus": [{"uuid": UUIDS[0], "native": {"soft": 0, "hard": GIB, "used": 0}}]}

    assert "hard 1 GiB; the driver refuses first" in native_limits.check(told, None).told[0]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (None, "not asked: NVML is not open"),
        ({"problem": "it crashed"}, "unknown: it crashed"),
        ({"gpus": [{"uuid": UUIDS[0], "native": None}]}, "none"),
        ({"gpus": []}, "none"),
    ],
)
def test_no_limit_and_no_answer_are_one_line(told: dict[str, object] | None, line: str) -> None:
    assert native_limits.check(told, Claims()).told == (line,)
