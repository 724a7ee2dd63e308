"""Compiles and calibrates kernels.cpp. Must not know what it runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from measuring import compiler

from .session import Kernels

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
COMPILE_S, CALIBRATE_S = 120.0, 60.0


class NoKernels(Exception):
    """There is no program of kernels; the text says why."""


def declarations(builds: Sequence[Path]) -> tuple[Path | None, Path]:
    """A build that has rendered the driver's, and the folder of them; else the CUDA toolkit's.

    Raises:
        NoKernels: there are none.
    """
    for build in builds:
        if (build / "gen" / "driver_abi.h").exists():
            return build, build / "gen"
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    toolkit = Path(nvcc).resolve().parents[1]
    for folder in (toolkit / "include", *sorted(toolkit.glob("targets/*/include"))):
        if (folder / "cuda.h").exists():
            return None, folder
    raise NoKernels("no build has gen/driver_abi.h, and no CUDA toolkit is installed")


def driver(build: Path | None, headers: Path) -> list[object]:
    """What to link for the driver's name alone: the loader chooses which one it is."""
    if build is not None and (build / "sim" / "libcuda.so.1").exists():
        return ["-L", build / "sim", "-l:libcuda.so.1"]
    return [
        "-L",
        headers.parent / "lib64" / "stubs",
        "-L",
        headers.parent / "lib" / "stubs",
        "-lcuda",
    ]


def compile_kernels(builds: Sequence[Path], folder: Path, env: Mapping[str, str]) -> Kernels:
    """Compiles the program and measures how fast this GPU works.

    Raises:
        NoKernels: one of the two failed.
    """
    build, headers = declarations(builds)
    program = folder / "kernels"
    command: list[object] = [*compiler(build), "-O2", "-std=c++20", "-pthread", "-I", headers]
    command += ["-I", REPO / "tests", "-I", HERE, HERE / "kernels.cpp", "-o", program]
    command += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed"]
    command += driver(build, headers)
    _run(command, env, COMPILE_S, "kernels.cpp does not compile")
    told = json.loads(_run([program, "calibrate"], env, CALIBRATE_S, "calibration failed"))
    return Kernels(program, float(told["one"]), float(told["full"]))


def _run(command: Sequence[object], env: Mapping[str, str], timeout_s: float, what: str) -> str:
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKernels(f"{what}: {type(error).__name__}") from None
    if done.returncode != 0:
        raise NoKernels(f"{what}: {done.stderr.strip()[:400] or done.returncode}")
    return done.stdout
