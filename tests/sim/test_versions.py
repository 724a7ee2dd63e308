"""The simulated driver is of the version that was asked for, and says so everywhere alike."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import REPO, Sim

from .lookup_rule import API, exports_of, newest_listed
from .test_lookup import CUDA_VERSIONS, DRIVERS, REAL_BRANCHES

SCRIPT = Path(__file__).with_name("driver_facts.py")
# What version scanners take for a driver's version: such text, and nothing else in its string.
VERSION_TEXT = re.compile(rb"(?<=\0)(?:1\d\.)?[3-9]\d\d\.\d+(?:\.\d+)?(?=\0)")

SUCCESS, NOT_INITIALIZED = 0, 3

# Exports that are not called: the debugger's, those that 580 lost, and the one that gives text.
LEFT_OUT = ("cudbg", "nvmlRetry_NvRmControl", "nvmlDeviceCcu", "nvmlErrorString")

# Functions that some real driver lets through with pointers at zeroes, because it looks at what is
# behind them before it looks whether it is initialised; and cuEGLApiInit, whose arguments nobody
# knows. The simulated driver looks at initialisation first.
LENIENT = {
    "cuEGLApiInit",
    "cuFuncGetName",
    "cuGraphKernelNodeGetParams",
    "cuGraphKernelNodeGetParams_v2",
    "cuKernelGetName",
    "cuLinkDestroy",
    "cuUserObjectRelease",
    "cuUserObjectRetain",
}


def facts(sim: Sim, *arguments: str | Path) -> Any:  # noqa: ANN401 - JSON
    """What driver_facts.py prints for these two libraries."""
    return sim.run(sys.executable, SCRIPT, *arguments).facts


def own_facts(sim: Sim, driver: str) -> Any:  # noqa: ANN401 - JSON
    """The same for the simulated driver, initialised."""
    return facts(sim.with_env(DRIVER=driver), "libcuda.so.1", "libnvidia-ml.so.1", "init")


@pytest.mark.parametrize("branch", REAL_BRANCHES)
def test_without_a_gpu_it_says_what_the_real_driver_says(sim: Sim, branch: str) -> None:
    folder = DRIVERS / branch
    if not (folder / "libnvidia-ml.so.1").exists():
        pytest.skip(f"no real driver in {folder}: run ci/fetch-drivers .drivers")

    theirs = facts(sim, folder / "libcuda.so.1", folder / "libnvidia-ml.so.1")
    version = (folder / "libcuda.so.1").resolve().name.removeprefix("libcuda.so.")
    ours = facts(sim.with_env(DRIVER=version), "libcuda.so.1", "libnvidia-ml.so.1")

    assert len(theirs["errors"]) > 80
    assert ours == theirs


@pytest.mark.parametrize("branch", REAL_BRANCHES)
def test_before_initialisation_it_refuses_what_the_real_driver_refuses(
    sim: Sim, branch: str, tmp_path: Path
) -> None:
    folder = DRIVERS / branch
    if not (folder / "libnvidia-ml.so.1").exists():
        pytest.skip(f"no real driver in {folder}: run ci/fetch-drivers .drivers")
    version = newest_listed(branch)
    listings: list[Path] = []
    for library in ("libcuda", "libnvidia-ml"):
        names = {n for n in exports_of(version, library) if not n.startswith(LEFT_OUT)}
        listings.append(tmp_path / library)
        listings[-1].write_text("\n".join(sorted(names)), encoding="ascii")

    theirs = facts(sim, folder / "libcuda.so.1", folder / "libnvidia-ml.so.1", *listings)
    ours = facts(
        sim.with_env(DRIVER=branch, GPUS=0), "libcuda.so.1", "libnvidia-ml.so.1", *listings
    )

    assert ours[1] == theirs[1]
    # Real ones look at some arguments first, and then complain about those (or die of them).
    told = {name: rc for name, rc in theirs[0].items() if rc in (SUCCESS, NOT_INITIALIZED, 801)}
    assert len(told) > 0.8 * len(theirs[0])
    wrong = {name: (rc, ours[0][name]) for name, rc in told.items() if ours[0][name] != rc}
    assert wrong == {name: (SUCCESS, NOT_INITIALIZED) for name in told if name in LENIENT}


@pytest.mark.parametrize(("branch", "cuda_version"), CUDA_VERSIONS.items())
def test_a_branch_means_its_newest_release_on_record(
    sim: Sim, branch: str, cuda_version: int
) -> None:
    version = newest_listed(branch)

    told = own_facts(sim, branch)

    assert told["cuDriverGetVersion"] == [0, cuda_version]
    expected: dict[str, list[object]] = {
        "nvmlSystemGetDriverVersion/80": [0, version],
        "nvmlSystemGetDriverVersion/4": [7, "untouched"],
        "nvmlSystemGetNVMLVersion/80": [0, f"{cuda_version // 1000}.{version}"],
        "nvmlSystemGetNVMLVersion/4": [7, "untouched"],
    }
    for name in ("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"):
        if name in exports_of(version, "libnvidia-ml"):
            expected[name] = [0, cuda_version]
    assert told["nvml_versions"] == expected


def test_a_full_version_is_told_as_asked(sim: Sim) -> None:
    told = own_facts(sim, "535.104.05")

    assert told["nvml_versions"]["nvmlSystemGetDriverVersion/80"] == [0, "535.104.05"]
    assert told["cuDriverGetVersion"] == [0, 12020]


@pytest.mark.parametrize("asked", ["", "latest"])
def test_asked_for_nothing_it_is_the_driver_of_the_file(sim: Sim, asked: str) -> None:
    plain = own_facts(sim, asked)
    newest = own_facts(Sim(sim.build, sim.state, sim.env, latest=True), asked)

    assert plain["cuDriverGetVersion"] == [0, 13000]
    assert plain["nvml_versions"]["nvmlSystemGetDriverVersion/80"] == [0, newest_listed("580")]
    header = json.loads((API / "cuda.json").read_text(encoding="utf-8"))["header_version"]
    major, minor = header.split(".")
    assert newest["cuDriverGetVersion"] == [0, int(major) * 1000 + int(minor) * 10]


@pytest.mark.parametrize(
    "asked", ["545", "999", "58", "580.", "580.x", "580.159.04.1", "v580", "580 ", "0580.99999"]
)
def test_an_unknown_driver_is_refused_and_nothing_works(sim: Sim, asked: str) -> None:
    program = (
        "import ctypes\n"
        "print(ctypes.CDLL('libcuda.so.1').cuInit(0))\n"
        "print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())\n"
    )

    done = sim.with_env(DRIVER=asked).run(sys.executable, "-c", program)

    assert f"GPUFENCE_SIM_DRIVER='{asked}' refused" in done.stderr
    assert done.stdout == "999\n999\n"


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("library", ["libcuda", "libnvidia-ml"])
def test_the_file_holds_its_version_and_no_other(sim: Sim, latest: bool, library: str) -> None:
    folder = sim.build / "sim" / "latest" if latest else sim.build / "sim"
    driver = "999.13.05" if latest else newest_listed("580")
    texts = {driver.encode(), f"13.{driver}".encode()}
    content = (folder / f"{library}.so.1").read_bytes()

    # A linker may keep the shorter text as the end of the longer one.
    assert set(VERSION_TEXT.findall(content)) <= texts
    assert {text for text in texts if text + b"\0" not in content} == set()


def test_the_file_of_580_exports_what_580_exports(sim: Sim, tmp_path: Path) -> None:
    for library in ("libcuda", "libnvidia-ml"):
        listed = exports_of(newest_listed("580"), library)
        asked = tmp_path / library
        asked.write_text("\n".join(sorted(listed)), encoding="ascii")

        done = sim.run("lookup_names", asked, f"{library}.so.1")

        assert set(done.stdout.splitlines()) == listed


def test_the_manual_lists_exactly_the_variables_that_are_read() -> None:
    sources = (REPO / "lib" / "sim").rglob("*.cpp")
    quoted = re.compile(r'"(GPUFENCE_SIM_[A-Z_]+)"')
    read = {name for path in sources for name in quoted.findall(path.read_text(encoding="utf-8"))}

    manual = (REPO / "docs" / "simulator.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(GPUFENCE_SIM_[A-Z_]+)` \|", manual, re.MULTILINE))

    assert listed == read
