"""`gpufence doctor` where the simulated driver limits memory by itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.machine import Sim

REPO = Path(__file__).resolve().parents[2]
SCHEMA = REPO / "docs" / "schemas" / "doctor.json"
GIB = 1 << 30
SET_LIMITS = """
import ctypes, sys
class Limits(ctypes.Structure):
    _fields_ = [("folder", ctypes.c_char_p)] + [(name, ctypes.c_ulonglong) for name in "sh"]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
limits = Limits(b"/sys/fs/cgroup", *map(int, sys.argv[1:]))
assert nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits)) == 0
"""


@pytest.fixture
def newest(sim: Sim) -> Sim:
    """A machine whose driver can limit a cgroup."""
    return Sim(sim.build, sim.state, sim.env, latest=True).with_env(DRIVER=615)


def limit(machine: Sim, soft: int, hard: int) -> None:
    """Set limits as an administrator would."""
    assert machine.run(sys.executable, "-c", SET_LIMITS, soft, hard).stderr == ""


def doctor(machine: Sim, *words: str, fenced: bool = True, **env: str) -> str:
    """What doctor prints."""
    command = (sys.executable, "-m", "gpufence", "doctor", *words)
    env |= {"PYTHONPATH": str(REPO / "tools"), "GPUFENCE_STATE_DIR": str(machine.state.parent)}
    return machine.run(*command, preload=fenced, env=env).stdout


def native(machine: Sim, fenced: bool = True, **env: str) -> Any:  # noqa: ANN401 - JSON
    """What doctor's JSON says of the machine's only GPU."""
    report = json.loads(doctor(machine, "--json", fenced=fenced, **env))
    jsonschema.validate(report, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (gpu,) = report["checks"]["native"]["gpus"]
    return gpu


def lines(machine: Sim, **env: str) -> list[str]:
    """What doctor says to people."""
    said = doctor(machine, **env).splitlines()
    return [line for line in said if line.startswith("native ")]


@pytest.mark.parametrize(("ours", "first"), [("4GiB", "driver"), ("2GiB", "gpufence")])
def test_a_limit_of_the_driver_is_told_beside_ours(newest: Sim, ours: str, first: str) -> None:
    limit(newest, GIB, 2 * GIB)

    gpu = native(newest, GPUFENCE_MEMORY_LIMIT=ours)
    (line,) = lines(newest, GPUFENCE_MEMORY_LIMIT=ours)

    assert (gpu["state"], gpu["soft_bytes"], gpu["hard_bytes"]) == ("set", GIB, 2 * GIB)
    assert gpu["refuses_first"] == first
    assert ": soft 1 GiB, hard 2 GiB; " in line
    assert line.endswith(f"{first} refuses first")


def test_a_limit_that_nobody_fences_does_not_refuse_first(newest: Sim) -> None:
    limit(newest, GIB, 2 * GIB)

    gpu = native(newest, fenced=False, GPUFENCE_MEMORY_LIMIT="1GiB")

    assert gpu["refuses_first"] == "driver"


def test_no_limit_of_the_driver_is_none(newest: Sim) -> None:
    assert native(newest)["state"] == "none"
    assert lines(newest) == ["native   none"]


@pytest.mark.parametrize("driver", [470, 580, 610])
def test_an_older_driver_holds_none(newest: Sim, driver: int) -> None:
    limit(newest, GIB, 2 * GIB)

    assert native(newest.with_env(DRIVER=driver))["state"] == "none"


def test_a_driver_that_does_not_tell_leaves_it_unknown(newest: Sim) -> None:
    limit(newest, GIB, 2 * GIB)
    silent = newest.with_env(FAULTS="nvmlDeviceGetMemoryLimits_v1@*=999")

    gpu = native(silent, GPUFENCE_MEMORY_LIMIT="4GiB")
    (line,) = lines(silent)

    assert (gpu["state"], gpu["hard_bytes"]) == ("unknown", None)
    assert "returned 999" in gpu["problem"]
    assert "unknown: nvmlDeviceGetMemoryLimits_v1 returned 999" in line
