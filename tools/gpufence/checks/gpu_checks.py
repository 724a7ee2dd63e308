"""What `gpufence doctor` finds out about the driver: module, devices, symbols, NVML.

Everything that could crash, hang or cost memory runs in a process of its own. Must not know how
findings are printed (doctor.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufence.errors import ExitCode

from .finding import Collected, Finding, failed

_PACKAGE = Path(__file__).resolve().parents[1]
_PROBE_SECONDS = 30
_MODULE_FILE = Path("proc/driver/nvidia/version")
_CONTROL_NODE = Path("dev/nvidiactl")
_MODULE = re.compile(r"NVRM version: .*?(Open )?Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\b")


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver library that the process has open."""

    soname: str
    path: str
    version: str  # from the file's name; '' if it carries none
    simulated: bool

    def __str__(self) -> str:
        return f"{self.path} ({'simulated' if self.simulated else self.version or 'real'})"


def kernel_module(drivers: Sequence[Driver], root: Path = Path("/")) -> Finding:
    """The kernel's part of the driver, against the libraries that are open."""
    found = Collected("module")
    text = _text(root / _MODULE_FILE)
    match = _MODULE.search(text)
    kind = ("open" if match[1] else "proprietary") if match else None
    version = match[2] if match else None
    nodes = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    found.facts |= {"version": version, "kind": kind, "devices": nodes}
    if all(driver.simulated for driver in drivers) and drivers:
        found.told.append("not needed: the driver is simulated")
        return found.done()
    if not match:
        found.told.append("none is loaded")
        return found.done()
    found.told.append(f"{version}, {kind}, {len(nodes)} devices in /dev")
    for driver in drivers:
        if driver.version and not driver.simulated and driver.version != version:
            found.problems.append(
                failed(
                    f"{driver.soname} is {driver.version}",
                    f"the kernel module is {version}, and the driver refuses to work with another",
                    "Reboot after a driver update, or mount the libraries of the running driver",
                    ExitCode.NO_DRIVER,
                )
            )
    if not os.access(root / _CONTROL_NODE, os.R_OK | os.W_OK):
        found.problems.append(
            failed(
                "the GPU cannot be opened",
                "/dev/nvidiactl is missing or may not be read and written",
                "Start the container with the GPU, such as --device nvidia.com/gpu=all",
                ExitCode.NO_DRIVER,
            )
        )
    return found.done()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def symbols(drivers: Sequence[Driver]) -> Finding:
    """What findsyms says of the open driver libraries, where it can run."""
    found = Collected("symbols")
    module = "gpufence.findsyms" if (_PACKAGE / "findsyms").is_dir() else "findsyms"
    libraries: list[object] = []
    found.facts["libraries"] = libraries
    if not drivers:
        found.told.append("no driver to read")
        return found.done()
    if not _importable(module) or not _importable("lief"):
        found.told.append("not read: findsyms needs the package lief")
        return found.done()
    paths = [driver.path for driver in drivers]
    report = _answer([sys.executable, "-m", module, "--json", "--fail-on", "none", *paths])
    if not isinstance(report, dict) or not isinstance(report.get("libraries"), list):
        found.told.append("not read: findsyms failed")
        found.notes.append(
            failed("driver symbols not read", "findsyms failed", "Run `findsyms` to see why")
        )
        return found.done()
    keys = ("soname", "driver", "functions", "covered", "new")
    for library in report["libraries"]:
        facts = {key: library.get(key) for key in keys}
        facts["new"] = len(library.get("new") or [])
        libraries.append(facts)
        found.told.append(
            f"{facts['soname']} {facts['driver'] or ''}: {facts['covered']} of "
            f"{facts['functions']} functions known"
        )
        if facts["covered"] != facts["functions"]:
            missing = facts["functions"] - facts["covered"]
            found.notes.append(
                failed(
                    f"{missing} functions of {facts['soname']} are unknown",
                    "the driver is newer than this library, and calls of them pass it by",
                    "Run `findsyms`, and take a newer gpufence",
                )
            )
    return found.done()


def ask_nvml(drivers: Sequence[Driver], with_context: bool) -> dict[str, Any] | None:
    """What gpu_probe.py prints, or a "problem" alone; None where no NVML is open."""
    if not any(driver.soname.startswith("libnvidia-ml") for driver in drivers):
        return None
    words = ["context"] if with_context else []
    told = _answer([sys.executable, "-S", str(_PACKAGE / "checks" / "gpu_probe.py"), *words])
    if isinstance(told, dict):
        return told
    return {"problem": "it crashed, or did not answer in time"}


def nvml(told: dict[str, Any] | None) -> Finding:
    """Whether NVML's process list knows us, and MIG.

    Args:
        told: by ask_nvml().
    """
    found = Collected("nvml")
    gpus: list[object] = []
    found.facts |= {"gpus": gpus, "problem": None}
    if told is None:
        found.told.append("none")
        return found.done()
    if "problem" in told:
        why = told["problem"]
        found.facts["problem"] = why
        found.told.append(f"does not answer: {why}")
        found.notes.append(
            failed(
                "NVML does not answer",
                str(why),
                "Give the container the 'utility' capability, or see `nvidia-smi`",
            )
        )
        return found.done()
    gpus += [_judge_gpu(gpu, int(told["pid"]), found) for gpu in told["gpus"]]
    return found.done()


def _judge_gpu(gpu: dict[str, Any], pid: int, found: Collected) -> dict[str, object]:
    identity = _identity(gpu, pid)
    listed = gpu.get("listed")
    count = None if listed is None else len(listed)
    facts = {"uuid": gpu["uuid"], "mig": gpu["mig"], "processes": count, "we_are": identity}
    text = {
        "listed by our pid": "the process list knows us by our pid",
        "listed by another number": "the process list knows us by a number of the host's",
        "not listed": "the process list does not know us",
        "no list": "there is no process list",
        "not asked": "not asked whether the process list knows us (--probe)",
    }[identity]
    mig = {True: "MIG on", False: "MIG off", None: "no MIG"}[gpu["mig"]]
    found.told.append(f"{gpu['uuid']}: {mig}; {text}")
    if identity in ("not listed", "no list"):
        found.notes.append(
            failed(
                f"{gpu['uuid']}: {text}",
                "what contexts and modules take is measured by free memory then, which "
                "neighbours blur",
                "Nothing to mend under MIG and WSL; elsewhere mount the container's own /proc",
            )
        )
    return facts


def _identity(gpu: dict[str, Any], pid: int) -> str:
    if gpu.get("listed") is None:
        return "no list"
    newcomers = gpu.get("with_context")
    if newcomers is None:
        return "not asked"
    if pid in newcomers:
        return "listed by our pid"
    return "listed by another number" if newcomers else "not listed"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _answer(command: list[str]) -> Any:  # noqa: ANN401 - whatever JSON the program printed
    """What a program of ours prints; None when it crashed, hung or printed something else.

    It runs without the library as far as LD_PRELOAD goes: asking is no use of the container's.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GPUFENCE_DISABLE": "1",  # /etc/ld.so.preload may bring the library in all the same
    }
    preloads = environment.pop("LD_PRELOAD", "").replace(" ", ":").split(":")
    kept = [entry for entry in preloads if entry.rpartition("/")[2] != "libgpufence.so"]
    if any(kept):
        environment["LD_PRELOAD"] = ":".join(kept)
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
