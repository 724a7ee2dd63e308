"""The gpufence command over the real library and the simulated driver; and the demo program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
DEMO = str(REPO / "ci" / "demo_program.py")


def gpufence(
    build: Path, *arguments: str, state: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command on a simulated machine of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gpufence", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPO / "tools"),
            "GPUFENCE_SIM_STATE": str(state / "machine"),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def lib(build: Path) -> tuple[str, ...]:
    """The options that choose the library of the build under test."""
    return ("--lib", str(build / "lib" / "libgpufence.so"))


@pytest.fixture
def driver(build: Path) -> dict[str, str]:
    """The environment in which the loader finds the simulated driver of the build under test."""
    return {"LD_LIBRARY_PATH": str(build / "sim")}


def test_doctor_proves_that_it_was_fenced(
    build: Path, tmp_path: Path, lib: tuple[str, ...], driver: dict[str, str]
) -> None:
    inner = [sys.executable, "-m", "gpufence", "doctor", "--json"]

    done = gpufence(build, "run", *lib, "--", *inner, state=tmp_path, **driver)
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert Path(report["library"]).samefile(build / "lib" / "libgpufence.so")
    assert report["lookups_fenced"] is True
    assert report["problems"] == []
    assert [(each["soname"], each["simulated"]) for each in report["drivers"]] == [
        ("libcuda.so.1", True),
        ("libnvidia-ml.so.1", True),
    ]


def test_doctor_sees_a_fenced_process_from_outside(
    build: Path, tmp_path: Path, lib: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "gpufence", "run", *lib, "--", "cat"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
    ) as fenced:
        assert fenced.stdin
        assert fenced.stdout
        fenced.stdin.write(b"x")  # an echo proves that exec has happened
        fenced.stdin.flush()
        assert fenced.stdout.read(1) == b"x"

        done = gpufence(build, "doctor", str(fenced.pid), "--json", state=tmp_path)
        fenced.stdin.close()

    assert done.returncode == 0
    assert json.loads(done.stdout)["command"] == "cat"
    assert json.loads(done.stdout)["library"].endswith("/libgpufence.so")


def test_doctor_knows_the_library_in_another_limiters_place(
    build: Path, tmp_path: Path, driver: dict[str, str]
) -> None:
    place = tmp_path / "libvgpu.so"
    shutil.copy(build / "lib" / "libgpufence.so", place)

    done = gpufence(build, "doctor", "--json", state=tmp_path, LD_PRELOAD=str(place), **driver)
    shutil.copy(build / "lib" / "libgpufence-addpath.so", place)
    another = gpufence(build, "doctor", "--json", state=tmp_path, LD_PRELOAD=str(place), **driver)

    assert (done.returncode, json.loads(done.stdout)["library"]) == (0, str(place))
    assert (another.returncode, json.loads(another.stdout)["library"]) == (5, None)


def test_without_a_driver_doctor_says_fenced_and_driverless(
    build: Path, tmp_path: Path, lib: tuple[str, ...]
) -> None:
    inner = [sys.executable, "-m", "gpufence", "doctor", "--json"]

    done = gpufence(build, "run", *lib, "--", *inner, state=tmp_path)
    report = json.loads(done.stdout)
    if report["drivers"]:
        pytest.skip("this machine has a driver")

    assert done.returncode == 3
    assert report["library"] is not None
    assert [problem["what"] for problem in report["problems"]] == ["no driver"]


def test_doctor_reads_a_process_whose_library_has_a_path_that_is_no_text(
    build: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    shutil.copy(build / "lib" / "libgpufence.so", folder)
    library = str(folder / "libgpufence.so")
    inner = [sys.executable, "-m", "gpufence", "doctor", "--json"]

    # Without a driver the loader's complaint has the path, byte for byte.
    done = gpufence(build, "run", "--lib", library, "--", *inner, state=tmp_path)

    assert done.stderr == ""
    assert json.loads(done.stdout)["library"] == library


@pytest.mark.parametrize("branch", ["470", "525", "535", "550", "580"])
def test_the_demo_program_prints_the_same_under_the_library(
    build: Path, tmp_path: Path, lib: tuple[str, ...], driver: dict[str, str], branch: str
) -> None:
    environment = {**driver, "GPUFENCE_SIM_DRIVER": branch}
    alone = subprocess.run(
        [sys.executable, DEMO],
        env={"PATH": os.environ["PATH"], "GPUFENCE_SIM_STATE": str(tmp_path / "b"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    fenced = gpufence(build, "run", *lib, "--", sys.executable, DEMO, state=tmp_path, **environment)

    assert (alone.returncode, alone.stderr) == (0, "")
    assert f"driver   {branch}." in alone.stdout
    assert "memory   64 MiB filled and read back: True" in alone.stdout
    assert (fenced.returncode, fenced.stdout, fenced.stderr) == (0, alone.stdout, "")


def test_the_simulator_is_never_chosen_silently(
    tmp_path: Path, build: Path, lib: tuple[str, ...]
) -> None:
    if build != REPO / "build":
        pytest.skip("--sim means the simulator of build/, and another build is under test")

    done = gpufence(
        build, "run", *lib, "--sim-driver", "535", "--", "printenv", "GPUFENCE_SIM_DRIVER",
        state=tmp_path,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "535\n")
    assert done.stderr == "gpufence: simulated driver (535), no real GPU is used\n"


def test_findsyms_takes_the_simulated_libraries_for_drivers(build: Path) -> None:
    libraries = [str(build / "sim" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]

    done = subprocess.run(
        [sys.executable, "-m", "findsyms", *libraries, "--json", "--fail-on", "none"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = json.loads(done.stdout)["libraries"]

    assert (done.returncode, done.stderr) == (0, "")
    assert [(each["soname"], each["functions"], each["covered"]) for each in report] == [
        ("libcuda.so.1", 682, 682),
        ("libnvidia-ml.so.1", 404, 404),
    ]
