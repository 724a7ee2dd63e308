"""Where a GPU run builds, and the environments it runs programs in.

Must not know what is run. Standard library only, like everything of the GPU run's driver.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended; status is the exit status, -N for signal N, None for a timeout."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Setup:
    """One run: its build, its results folder, the driver it uses and the time it may take."""

    build: Path
    out: Path
    simulated: bool
    deadline: float  # time.monotonic() at which no new step starts

    @property
    def library(self) -> Path:
        """The library under test."""
        return self.build / "lib" / "libgpufence.so"

    def left_s(self, wanted_s: float) -> float:
        """Seconds a step may take: what it wants, or what the budget still has (0: none)."""
        return max(0.0, min(wanted_s, self.deadline - time.monotonic()))

    def environment(
        self, *, preload: bool, extra: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The environment of a program, without or with the library in front of the driver."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUFENCE_", "LD_PRELOAD"))}
        if self.simulated:
            env["LD_LIBRARY_PATH"] = str(self.build / "sim")
            env["GPUFENCE_SIM_STATE"] = str(self.out / "machine")
        if preload:
            env["LD_PRELOAD"] = str(self.library)
        return {**env, **(extra or {})}


def run(
    command: Sequence[object],
    env: Mapping[str, str],
    timeout_s: float,
    cwd: Path = REPO,
) -> Ran:
    """Runs a command to its end; a command that outlives `timeout_s` seconds is killed.

    Words of the command may be paths.
    """
    started = time.monotonic()
    status: int | None
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env=dict(env),
            cwd=cwd,
            capture_output=True,
            timeout=max(timeout_s, 0.1),
            check=False,
        )
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        status, stdout, stderr = None, error.stdout or b"", error.stderr or b""
    except OSError as error:
        status, stdout, stderr = 127, b"", str(error).encode()
    seconds = round(time.monotonic() - started, 2)
    return Ran(
        status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), seconds
    )


def import_our_tests() -> None:
    """The tests' own modules can be imported: ours, whatever else is installed as `tests`.

    A folder without __init__.py gives way to any package of that name behind it on the path.
    """
    for path in (str(REPO / "tools"), str(REPO)):
        if path not in sys.path:
            sys.path.insert(0, path)
    package = types.ModuleType("tests")
    package.__path__ = [str(REPO / "tests")]
    known = getattr(sys.modules.get("tests"), "__path__", [])
    if str(REPO / "tests") not in known:
        sys.modules["tests"] = package


def describe_machine() -> dict[str, str]:
    """What the run ran on, as far as it can be asked without the driver under test."""
    found = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu_count": str(os.cpu_count()),
        "nvcc": shutil.which("nvcc") or "",
        "cmake": shutil.which("cmake") or "",
        "ninja": shutil.which("ninja") or "",
        "interpreter": sys.executable,
    }
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    found["gpu"] = run(query, os.environ, 30).stdout.strip() or "none"
    return found
