"""What `gpufence demo` does: starts both programs, shows `top` beside them, says what was seen.

Everything lies in a folder that is removed at the end: no file of a real container is read or
written, and the GPU is the simulated one. Must not know how a limit is held.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufence import locate
from gpufence.config import figures
from gpufence.errors import ExitCode, ToolError, one_line
from gpufence.machine import gpus
from gpufence.top import plain, table
from gpufence.top.history import History
from gpufence.top.table import Choice
from gpufence.top.watch import Watcher

GIB = 1 << 30
_TENANT = Path(__file__).with_name("tenant.py")
_KERNEL_MS = 10
_LOOK_S = 1.0
# Starting Python twice and opening the driver takes this long on a slow machine.
_PATIENCE_S = 60.0
_OUT_OF_MEMORY = 2
# A kernel of the simulated GPU that runs while its process stands still seems to last that long,
# and is charged so. Beyond this part of the time a share tells of the machine, not of a limit.
_MOST_STALLED = 0.05
# What a program needs to start; limits and drivers of this shell must not reach the demo.
_KEPT = ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Tenant:
    """One program: its container's name and its limits."""

    name: str
    memory_gib: int
    cores: int

    @property
    def words(self) -> tuple[str, ...]:
        """The command that starts it, up to the program."""
        limits = ("--memory", f"{self.memory_gib}GiB", "--cores", str(self.cores))
        return ("gpufence", "run", "--sim", "--name", self.name, *limits, "--")


TENANTS = (Tenant("train", 6, 60), Tenant("serve", 2, 30))

Report = dict[str, Any]


def show(args: argparse.Namespace) -> ExitCode:
    """As commands/demo.py says."""
    _require_installation()
    _say(
        args.json,
        f"Two programs share one simulated GPU for {args.seconds:g} seconds."
        " No real GPU is used.\n",
    )
    for tenant in TENANTS:
        _say(args.json, f"$ {' '.join(tenant.words)} PROGRAM")
    _say(args.json, "")
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        environment = _environment(folder)
        programs = [
            stack.enter_context(_program(tenant, environment, args.seconds)) for tenant in TENANTS
        ]
        if not args.json:
            _watch(folder, environment, args.seconds, programs)
        reports = [_report(*each) for each in zip(TENANTS, programs, strict=True)]
    if any(each["stalled_ns"] > args.seconds * 1e9 * _MOST_STALLED for each in reports):
        reports = [{**each, "core_share_ratio": None} for each in reports]
    if args.json:
        print(json.dumps({"schema": 1, "seconds": args.seconds, "containers": reports}, indent=2))
    else:
        print("\n".join(_as_text(reports)))
    held = all(_memory_held(report) for report in reports)
    return ExitCode.OK if held else ExitCode.CHECK_FAILED


def _require_installation() -> None:
    try:
        locate.library(None)
        locate.simulator()
    except ToolError as error:  # its status is that of `run`, which keeps the low ones free
        raise ToolError(what=error.what, why=error.why, fix=error.fix) from None


def _say(quiet: bool, line: str) -> None:
    if not quiet:
        print(line, flush=True)


@contextmanager
def _folder() -> Iterator[Path]:
    """One for all files of the demo."""
    folder = Path(tempfile.mkdtemp(prefix="gpufence-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    """What both programs start with: a machine, files and a config file of their own."""
    state, config = folder / "state", folder / "gpufence.conf"
    state.mkdir()
    config.touch()
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        "GPUFENCE_CONFIG": str(config),
        "GPUFENCE_LOG_LEVEL": "off",
        "GPUFENCE_NODE_DIR": str(state),
        "GPUFENCE_SIM_STATE": str(folder / "gpu"),
        "GPUFENCE_STATE_DIR": str(state),
    }


@contextmanager
def _program(
    tenant: Tenant, environment: Mapping[str, str], seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """The running program; killed where the demo ends before it."""
    words = (sys.executable, "-m", *tenant.words, sys.executable, str(_TENANT))
    started = subprocess.Popen(
        [*words, str(seconds), str(_KERNEL_MS)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def _watch(
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    programs: Sequence[subprocess.Popen[str]],
) -> None:
    """Show `top` while the programs run: on a terminal every second in one place, else once."""
    # NVML of the simulated machine is opened here, and finds it by this variable.
    os.environ["GPUFENCE_SIM_STATE"] = environment["GPUFENCE_SIM_STATE"]
    nvml = gpus.Nvml.open(str(locate.simulator() / "libnvidia-ml.so.1"))
    state = environment["GPUFENCE_STATE_DIR"]
    watcher, history = Watcher({}, state, nvml=nvml, node=state), History()
    live, drawn = sys.stdout.isatty(), 0
    begin = time.monotonic()
    shown = False
    print("$ gpufence top", flush=True)
    while time.monotonic() < begin + seconds and all(each.poll() is None for each in programs):
        time.sleep(min(_LOOK_S, seconds / 4))
        look = watcher.look()
        history.add(look)
        half = time.monotonic() - begin >= seconds / 2
        if live or (half and not shown):
            choice = Choice(unicode=plain.speaks_unicode())
            lines = [table.summary(look), *plain.lines(look, history, choice)]
            print((f"\x1b[{drawn}F\x1b[J" if drawn else "") + "\n".join(lines), flush=True)
            drawn, shown = len(lines), True
    print(flush=True)


def _report(tenant: Tenant, program: subprocess.Popen[str]) -> Report:
    """What the program says of itself, beside its limits.

    Raises:
        ToolError: 1, where it failed or did not end.
    """
    try:
        said, complaint = program.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        said, complaint = "", f"it did not end within {_PATIENCE_S:g} s"
    if program.returncode != 0:
        lines = [line for line in complaint.splitlines() if "simulated driver" not in line]
        last = lines[-1].removesuffix(".") if lines else f"its exit status is {program.returncode}"
        raise ToolError(
            what=f"the demo's program '{tenant.name}' failed",
            why=one_line(last.removeprefix("gpufence: ")),
            fix="Run `gpufence run --sim -- gpufence doctor`, which examines this installation",
        )
    found = json.loads(said)
    return {
        "name": tenant.name,
        "core_limit_ratio": tenant.cores / 100,
        "core_share_ratio": round(found["share"], 4),
        "stalled_ns": found["stalled_ns"],
        "memory_limit_bytes": tenant.memory_gib * GIB,
        "memory_seen_bytes": found["seen_bytes"],
        "memory_granted_bytes": found["granted_bytes"],
        "memory_refused_status": found["refused_status"],
    }


def _busy_lines(reports: Sequence[Report]) -> list[str]:
    """Why shares are missing or low, where the machine is the reason."""
    shares = [(each["core_share_ratio"], each["core_limit_ratio"]) for each in reports]
    if any(share is None for share, _ in shares):
        longest = max(each["stalled_ns"] for each in reports)
        return [
            f"  This machine is too busy: a program stood still for {figures.duration(longest)}.",
            "  Run the demo again when fewer other programs run.",
        ]
    if any(share < 0.9 * limit for share, limit in shares) and _overloaded():
        return ["  The simulated GPU runs on this machine's processors, which are busy now."]
    return []


def _overloaded() -> bool:
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def _memory_held(report: Report) -> bool:
    within: bool = report["memory_granted_bytes"] <= report["memory_limit_bytes"]
    refused: bool = report["memory_refused_status"] == _OUT_OF_MEMORY
    return within and refused


def _as_text(reports: Sequence[Report]) -> list[str]:
    lines = ["What was seen"]
    for each in reports:
        name = f"  {each['name']:7}"
        share = each["core_share_ratio"]
        used = f"{share:.1%} used" if share is not None else "not measured"
        lines.append(f"{name}GPU time: a limit of {each['core_limit_ratio']:.0%}, {used}")
        end = "then refused: out of memory" if _memory_held(each) else "and NOT refused"
        lines.append(
            f"{'':9}memory: {figures.size(each['memory_seen_bytes'])} seen,"
            f" {figures.size(each['memory_granted_bytes'])} granted, {end}"
        )
    return [
        *lines,
        *_busy_lines(reports),
        "",
        "Next: hold a program of yours to limits, on a GPU (without one, add --sim):",
        "  gpufence run --name mine --memory 4GiB --cores 50 -- COMMAND",
    ]
