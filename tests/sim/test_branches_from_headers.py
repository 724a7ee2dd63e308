"""The simulated branches that no driver on record has: 590 to 615, derived from headers."""

from __future__ import annotations

import sys

import pytest

from tests.support.machine import Sim

ASK = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
version = ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(version))
print(version.value, *(int(hasattr(driver, name)) for name in sys.argv[1:]))
"""
# One name of each release from 13.1 on; the last one came with 13.5, which no branch brings yet.
NAMES = (
    "cuMulticastBindAddr_v2",
    "cuLaunchHostFunc_v2",
    "cuLogicalEndpointCreate",
    "cuMemGetLocationInfo",
    "cuFabricCpyBatchAsync",
)
LIMITS = """
import ctypes, sys
class Limits(ctypes.Structure):
    _fields_ = [("space", ctypes.c_char_p)] + [(n, ctypes.c_ulonglong) for n in ("s", "h", "u")]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
limits = Limits(b"/sys/fs/cgroup/a", *map(int, sys.argv[2:]))
print(getattr(nvml, sys.argv[1])(device, ctypes.byref(limits)), limits.s, limits.h)
"""


@pytest.mark.parametrize(
    ("driver", "version", "count"),
    [
        ("580", 13000, 0),
        ("590", 13010, 1),
        ("595", 13020, 2),
        ("610", 13030, 3),
        ("615", 13040, 4),
        ("latest", 13050, 5),
    ],
)
def test_a_branch_has_the_names_of_its_headers(
    sim: Sim, driver: str, version: int, count: int
) -> None:
    latest = Sim(sim.build, sim.state, sim.env, latest=True).with_env(DRIVER=driver)

    answer = latest.run(sys.executable, "-c", ASK, *NAMES).stdout.split()

    assert answer == [str(version), *["1"] * count, *["0"] * (len(NAMES) - count)]


def test_a_branch_that_nobody_knows_is_refused(sim: Sim) -> None:
    latest = Sim(sim.build, sim.state, sim.env, latest=True).with_env(DRIVER="620")

    assert "GPUFENCE_SIM_DRIVER" in latest.run(sys.executable, "-c", ASK).stderr


def test_native_memory_limits_are_told_as_they_were_set(sim: Sim) -> None:
    latest = Sim(sim.build, sim.state, sim.env, latest=True).with_env(DRIVER="615")
    none = (1 << 64) - 1

    def call(*words: str | int) -> list[int]:
        return [
            int(word) for word in latest.run(sys.executable, "-c", LIMITS, *words).stdout.split()
        ]

    assert call("nvmlDeviceGetMemoryLimits_v1") == [0, 0, none]
    assert call("nvmlDeviceSetMemoryLimits_v1", 1 << 30, 2 << 30)[0] == 0
    assert call("nvmlDeviceGetMemoryLimits_v1") == [0, 1 << 30, 2 << 30]
    assert call("nvmlDeviceSetMemoryLimits_v1", 3 << 30, 2 << 30)[0] == 2
    assert call("nvmlDeviceSetMemoryLimits_v1", 0, none)[0] == 0
    assert call("nvmlDeviceGetMemoryLimits_v1") == [0, 0, none]
