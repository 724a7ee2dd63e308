"""Real drivers 470 to 550, without a GPU: every lookup through the library is the driver's answer.

A driver's libraries load anywhere, look names up and answer that there is no GPU. Files come from
`ci/fetch-drivers`. There is no earlier release whose tests could be run against this library.
"""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.sim import lookup_rule
from tests.sim.test_lookup import DRIVERS, REAL_BRANCHES, every_name
from tests.support.machine import REPO, Finished, Sim

OURS = "libgpufence.so"
ABSENT, ABSENT_IN_NVML = 500, 13

# What a program does first, without a GPU: codes, and what the calls wrote into their outputs.
FIRST_CALLS = """
import ctypes, json
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
value, handle = ctypes.c_int(77), ctypes.c_void_p(77)
told = {"version": [cuda.cuDriverGetVersion(ctypes.byref(value)), value.value]}
told["init"] = [cuda.cuInit(0), cuda.cuInit(1)]
value.value = 77
told["count"] = [cuda.cuDeviceGetCount(ctypes.byref(value)), value.value]
told["alloc"] = [cuda.cuMemAlloc_v2(ctypes.byref(handle), ctypes.c_size_t(1 << 20)), handle.value]
told["free"] = cuda.cuMemFree_v2(ctypes.c_uint64(0))
told["nvml"] = [nvml.nvmlInit_v2(), nvml.nvmlInitWithFlags(0), nvml.nvmlShutdown()]
nvml.nvmlErrorString.restype = ctypes.c_char_p
told["text"] = [nvml.nvmlErrorString(code).decode() for code in (0, 9, 13)]
print(json.dumps(told))
"""


@pytest.fixture(params=REAL_BRANCHES)
def branch(request: pytest.FixtureRequest) -> str:
    """A driver whose files are here."""
    folder = DRIVERS / request.param
    if not (folder / "libcuda.so.1").exists() or not (folder / "libnvidia-ml.so.1").exists():
        pytest.skip(f"no real driver in {folder}: run ci/fetch-drivers .drivers")
    return str(request.param)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A file with every name that any driver or header has, one a line."""
    path = tmp_path / "names"
    path.write_text("".join(f"{name}\n" for name in sorted(every_name())), encoding="ascii")
    return path


def over(
    sim: Sim, branch: str, program: str, *words: str | Path, preload: bool = True, **limits: str
) -> Finished:
    """A program over the real driver, with the library or without."""
    folder = {"LD_LIBRARY_PATH": str(DRIVERS / branch)}
    return sim.run(program, *words, preload=preload, env={**folder, **limits})


@pytest.mark.parametrize("limits", [{}, {"MEMORY_LIMIT": "1g", "CORE_LIMIT": "30"}])
def test_every_version_and_flag_of_cugetprocaddress_is_answered_as_bare(
    sim: Sim, branch: str, limits: dict[str, str], tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    asked.write_text("".join(f"{n}\n" for n in lookup_rule.names_to_ask()), encoding="ascii")
    env = {f"GPUFENCE_{name}": value for name, value in limits.items()}
    env["GPUFENCE_STATE_DIR"] = str(tmp_path / "state")

    bare = over(sim, branch, "lookup_table", asked, preload=False)
    fenced = over(sim, branch, "lookup_table", asked, **env)

    assert bare.returncode == 0, bare.stderr
    assert len(bare.stdout.splitlines()) > 4000
    assert (fenced.stdout, fenced.stderr) == (bare.stdout, "")


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_the_loader_finds_the_names_of_the_driver_and_no_other(
    sim: Sim, branch: str, library: str, names: Path
) -> None:
    bare = over(sim, branch, "lookup_names", names, library, preload=False)
    fenced = over(sim, branch, "lookup_names", names, library)

    assert bare.returncode == 0, bare.stderr
    assert len(bare.stdout.splitlines()) > 250
    assert (fenced.stdout, fenced.stderr) == (bare.stdout, "")


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_whatever_way_finds_a_function_finds_ours(
    sim: Sim, branch: str, library: str, names: Path
) -> None:
    left = [
        line.partition(" : ")[0]
        for line in (REPO / "lib/api/left-to-driver.txt").read_text("utf-8").splitlines()
    ]
    # The drivers define no version, so no version finds anything, with us and without.
    fenced, bare = (
        over(sim, branch, "lookup_objects", names, library, preload=preload)
        for preload in (True, False)
    )

    assert (fenced.returncode, bare.returncode) == (0, 0), fenced.stderr + bare.stderr
    for line in bare.stdout.splitlines():
        assert line.split()[1:] == [library, library, library, "-"]
    assert len(fenced.stdout.splitlines()) == len(bare.stdout.splitlines())
    for line in fenced.stdout.splitlines():
        name, *objects = line.split()
        owner = library if any(fnmatch(name, pattern) for pattern in left) else OURS
        assert objects == [owner, owner, owner, "-"], name


def test_functions_that_the_driver_lacks_answer_by_a_code(sim: Sim, branch: str) -> None:
    """A program that is linked against a newer driver ends bare, and runs with the library."""
    bare = over(sim, branch, "absent_calls", preload=False)
    fenced = over(sim, branch, "absent_calls")

    assert "undefined symbol" in bare.stderr
    told = json.loads(fenced.stdout)
    assert told["known"] == 0
    assert (told["ctx_v2"], told["nvml"]) == (ABSENT, ABSENT_IN_NVML)
    assert told["proc_v2"] == (ABSENT if branch == "470" else 0)
    assert told["text"] == "Success"


@pytest.mark.parametrize("limits", [{}, {"MEMORY_LIMIT": "1g", "CORE_LIMIT": "30"}])
def test_without_its_gpu_the_first_calls_are_answered_as_bare(
    sim: Sim, branch: str, limits: dict[str, str], tmp_path: Path
) -> None:
    env = {f"GPUFENCE_{name}": value for name, value in limits.items()}
    env["GPUFENCE_STATE_DIR"] = str(tmp_path / "state")

    bare = over(sim, branch, sys.executable, "-c", FIRST_CALLS, preload=False)
    fenced = over(sim, branch, sys.executable, "-c", FIRST_CALLS, **env)

    assert fenced.facts == bare.facts
    assert fenced.stderr == ""
    # Another code where the machine has a kernel module, of another driver.
    assert bare.facts["init"][0] != 0
    assert bare.facts["nvml"][0] != 0
