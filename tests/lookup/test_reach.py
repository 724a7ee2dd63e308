"""Whichever way a program reaches the driver, it reaches us; what is not ours stays as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import REPO, Sim

OURS = "libgpufence.so"
DRIVER = "libcuda.so.1"

WAYS = [
    "dlsym by soname",
    "dlsym by path",
    "dlsym of v2",
    "dlsym of v1",
    "dlsym per thread",
    "dlsym RTLD_DEFAULT",
    "dlsym RTLD_NEXT",
    "dlsym of the program",
    "dlsym of another namespace",
    "cuGetProcAddress",
    "cuGetProcAddress v1",
    "cuGetProcAddress per thread",
    "cuGetProcAddress of itself",
    "cuGetProcAddress_v2",
    "dlsym found by dlsym",
]


def driver_path(sim: Sim) -> Path:
    return sim.build / "sim" / DRIVER


def test_every_way_leads_to_the_library(sim: Sim) -> None:
    facts = sim.run("reach", driver_path(sim), preload=True).facts

    assert {way: facts[way] for way in WAYS} == dict.fromkeys(WAYS, OURS)
    assert facts["dlsym unknown"] is None


def test_every_way_leads_to_the_driver_without_us(sim: Sim) -> None:
    """The probe can tell the difference: without the preload nothing is ours."""
    facts = sim.run("reach", driver_path(sim)).facts

    assert {way: facts[way] for way in WAYS} == dict.fromkeys(WAYS, DRIVER)


def test_a_versioned_lookup_answers_as_the_driver_does(sim: Sim) -> None:
    """Driver symbols carry no version, so dlvsym is no way around."""
    bare = sim.run("reach", driver_path(sim)).facts["dlvsym"]
    fenced = sim.run("reach", driver_path(sim), preload=True).facts["dlvsym"]

    assert fenced == (OURS if bare == DRIVER else None)


@pytest.mark.parametrize("mode", ["default", "next", "self"])
def test_without_a_driver_nothing_is_found_and_the_error_is_set(sim: Sim, mode: str) -> None:
    """A CUDA probe must not succeed because of us, though we export the name."""
    names = ("cuInit", "nvmlInit_v2", "cuMemGetAttribute", "curl_easy_init", "cups", "c", "nv", "")

    facts = sim.run("probe_symbol", mode, *names, preload=True).facts

    assert facts == {name: {"found": False, "error": True} for name in names}


@pytest.mark.parametrize("mode", ["default", "self"])
def test_names_of_others_are_found_as_before(sim: Sim, mode: str) -> None:
    facts = sim.run("probe_symbol", mode, "malloc", "dlsym", "cos", "dlopen", preload=True).facts

    assert facts["malloc"] == {"found": True, "error": False}
    assert facts["dlsym"] == {"found": True, "error": False}
    assert facts["dlopen"] == {"found": True, "error": False}


def test_an_older_driver_lacks_the_same_names_through_us(sim: Sim) -> None:
    old = sim.with_env(DRIVER=470)
    names = ("cuInit", "cuGetProcAddress", "cuGetProcAddress_v2", "cuLaunchKernelEx")

    bare = old.run("probe_symbol", DRIVER, *names).facts
    fenced = old.run("probe_symbol", DRIVER, *names, preload=True).facts

    assert fenced == bare
    assert [name for name in names if fenced[name]["found"]] == ["cuInit", "cuGetProcAddress"]


def test_calling_what_the_driver_lacks_returns_not_found(sim: Sim) -> None:
    """A program linked against a newer driver gets a code, never a jump through NULL."""
    facts = sim.with_env(DRIVER=470).run("absent_calls", preload=True).facts

    assert facts == {
        "version": 11040,
        "known": 0,
        "proc_v2": 500,
        "ctx_v2": 500,
        "nvml": 13,
        "text": "Success",
    }


@pytest.mark.parametrize("interposer", ["interposer.so", "interposer_plain.so"])
@pytest.mark.parametrize("first", [True, False], ids=["before-us", "behind-us"])
def test_a_second_interposer_neither_loops_nor_opens_a_way_around(
    sim: Sim, interposer: str, first: bool
) -> None:
    other = str(sim.build / "tests" / interposer)
    ours = str(sim.build / "lib" / OURS)
    preload = f"{other}:{ours}" if first else f"{ours}:{other}"

    done = sim.run("reach", driver_path(sim), env={"LD_PRELOAD": preload}, timeout=20)

    assert done.facts["dlsym by soname"] == OURS
    assert done.facts["cuGetProcAddress"] == OURS
    assert done.facts["dlsym unknown"] is None


@pytest.mark.parametrize("round_", range(10))
def test_first_calls_of_many_threads_agree(sim: Sim, round_: int) -> None:
    assert sim.run("storm", 16, preload=True).stdout == "16\n"


@pytest.fixture
def odd(sim: Sim, tmp_path: Path) -> dict[str, str]:
    """An environment whose libcuda.so.1 is tests/lookup/odd_driver.c."""
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / DRIVER).symlink_to(sim.build / "tests" / "odd_driver.so")
    return {"LD_LIBRARY_PATH": str(folder)}


def test_a_driver_newer_than_the_build_works(sim: Sim, odd: dict[str, str]) -> None:
    """Unknown exports reach it, and an enforced name leads to our hook of the variant asked for."""
    done = sim.run("odd_driver_user", preload=True, env=odd)

    assert done.facts == {
        "init": 77,
        "brand_new": 42,
        "absent": True,
        "alloc": "cuMemAlloc_v2",
        "alloc_works": 55,
        "unknown_untouched": True,
        "async": "cuMemAllocAsync",
        "async_per_thread": "cuMemAllocAsync_ptsz",
        "keeps_errno": True,
    }
    assert 'cuGetProcAddress("cuMemAlloc", 12000) of this driver returned an address' in done.stderr


def test_a_line_that_cannot_be_logged_keeps_errno(sim: Sim, odd: dict[str, str]) -> None:
    """Two calls fail on the way to the log and set errno: no such folder, a closed stream."""
    env = {**odd, "GPUFENCE_LOG_FILE": "/nowhere/at/all.log"}

    program = sim.build / "tests" / "odd_driver_user"

    done = sim.run("/bin/sh", "-c", 'exec "$0" 2>&-', program, preload=True, env=env)

    assert done.facts["keeps_errno"] is True


def test_a_second_copy_of_the_driver_leads_to_the_same_hooks(sim: Sim, tmp_path: Path) -> None:
    """A program may load another file of the driver behind the first: names keep their hooks."""
    copy = tmp_path / "another" / DRIVER
    copy.parent.mkdir()
    shutil.copy(driver_path(sim), copy)
    names = REPO / "lib" / "api" / "symbols" / "libcuda-580.159.04.txt"

    done = sim.run("second_driver", copy, names, preload=True)

    assert done.facts["found"] > 600
    assert done.facts["differ"] == 0


def test_a_program_that_uses_no_gpu_opens_no_driver(sim: Sim) -> None:
    done = sim.run("/bin/cat", "/proc/self/maps", preload=True)

    assert OURS in done.stdout
    assert DRIVER not in done.stdout
    assert done.stderr == ""


def test_a_missing_driver_is_one_clear_line(sim: Sim, tmp_path: Path) -> None:
    """A linked program cannot start without a driver; one that holds only our export can."""
    code = (
        "import ctypes; lib = ctypes.CDLL('libgpufence.so');"
        "lib.nvmlErrorString.restype = ctypes.c_char_p;"
        "print(lib.cuInit(0), lib.nvmlInit_v2(), lib.cuInit(0), lib.nvmlErrorString(0).decode())"
    )
    env = {**os.environ, "LD_LIBRARY_PATH": str(sim.build / "lib")}

    done = subprocess.run(
        ["python3", "-c", code], env=env, capture_output=True, text=True, check=False
    )

    assert done.stdout == "500 13 500 Function Not Found\n"
    assert "gpufence: libcuda.so.1 cannot be opened: " in done.stderr
    assert "libnvidia-ml.so.1 cannot be opened: " in done.stderr
