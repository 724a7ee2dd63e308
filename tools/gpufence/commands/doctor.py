"""Find out whether a process is fenced and a limit can hold there, and what to do if not.

Without PID the process checked is doctor itself: `gpufence run -- gpufence doctor`. It then also
asks the loader where a lookup of cuInit ends, opens the driver without initialising it, and looks
at the kernel module, the driver's symbols, NVML and the memory limits that the driver holds by
itself. With --all, every process that has a driver or the library mapped gets a line.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
from dataclasses import dataclass
from pathlib import Path

from gpufence.checks import gpu_checks, namespaces, native_limits, pauses, surroundings
from gpufence.checks.finding import Finding
from gpufence.checks.gpu_checks import Driver
from gpufence.config.limits import Claims
from gpufence.console import screen
from gpufence.errors import ExitCode, ToolError
from gpufence.machine import process

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "fenced, and nothing keeps a limit from holding",
    1: "the process cannot be read, or does not exist",
    2: "wrong usage",
    3: "fenced, but no driver can be used",
    5: "not fenced, or a limit cannot hold",
}

_LIBRARY = "libgpufence.so"
_DRIVERS = ("libcuda.so.1", "libnvidia-ml.so.1")
# Every simulated device carries this name, so no other file has it.
_SIMULATOR_MARK = b"gpufence simulated GPU"


@dataclass(frozen=True, slots=True)
class Findings:
    """What doctor knows of one process."""

    subject: process.Process
    library: process.MappedFile | None
    fenced_lookups: bool | None  # None: not askable, in another process or without a driver
    drivers: tuple[Driver, ...]
    checks: tuple[Finding, ...]
    problems: tuple[ToolError, ...]  # the first decides the status

    @property
    def notes(self) -> tuple[ToolError, ...]:
        """What is worth knowing and changes no status."""
        return tuple(note for check in self.checks for note in check.notes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("pid", nargs="?", type=int, metavar="PID", help="default: doctor itself")
    parser.add_argument("--all", action="store_true", help="every process that uses a driver")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="make a context on each GPU for a moment, to see whether NVML lists it",
    )
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    screen.add_color(parser)


def run(args: argparse.Namespace) -> ExitCode:
    """Print the findings to stdout.

    Returns:
        OK, NO_DRIVER or CHECK_FAILED, as the module says.

    Raises:
        ToolError: exit 1, when the process cannot be read; 2, for options that exclude another.
    """
    own = args.pid in (None, os.getpid())
    if args.all:
        if args.pid is not None or args.probe:
            raise _wrong_usage("--all is for every process", "Leave PID and --probe out")
        return _run_all(args.json)
    if args.probe and not own:
        raise _wrong_usage("--probe asks for doctor itself", "Leave PID out")
    found = _examine_self(args.probe) if own else _examine(args.pid)
    print(json.dumps(_as_dict(found), indent=2) if args.json else _as_text(found, args.color))
    return found.problems[0].status if found.problems else ExitCode.OK


def _wrong_usage(why: str, fix: str) -> ToolError:
    return ToolError(what="options refused", why=why, fix=fix, status=ExitCode.USAGE)


def _examine(pid: int) -> Findings:
    """Look at another process from outside; a driver it has not opened yet is no problem."""
    subject = process.read(pid)
    library = surroundings.library_of(subject)
    checks, _ = _surroundings(subject, library)
    problems = [] if library else [_why_not_loaded(subject)]
    problems += [problem for check in checks for problem in check.problems]
    return Findings(subject, library, None, _drivers(subject), checks, tuple(problems))


def _examine_self(probe: bool) -> Findings:
    """Look at this process from inside, where the loader itself can be asked."""
    missing = [soname for soname in _DRIVERS if not _opens(soname)]
    subject = process.read(os.getpid())
    library = surroundings.library_of(subject)
    lookups = _lookup_is_fenced(library) if library else None
    problems = []
    if library is None:
        problems.append(_why_not_loaded(subject))
    elif lookups is False:
        problems.append(
            ToolError(
                what="cuInit is not fenced",
                why=f"a lookup finds another definition before {_LIBRARY}",
                fix="Take other CUDA wrappers out of LD_PRELOAD",
                status=ExitCode.CHECK_FAILED,
            )
        )
    if missing:
        problems.append(
            ToolError(
                what="no driver",
                why=f"the loader finds no {' and no '.join(missing)}",
                fix="Install the NVIDIA driver, or try `gpufence run --sim`",
                status=ExitCode.NO_DRIVER,
            )
        )
    drivers = _drivers(subject)
    around, claims = _surroundings(subject, library)
    told = gpu_checks.ask_nvml(drivers, probe)
    checks = (
        *around,
        gpu_checks.kernel_module(drivers),
        gpu_checks.symbols(drivers),
        gpu_checks.nvml(told),
        native_limits.check(told, claims if library else None),
        pauses.check(claims if library else None),
    )
    problems += [problem for check in checks for problem in check.problems]
    return Findings(subject, library, lookups, drivers, checks, tuple(problems))


def _surroundings(
    subject: process.Process, library: process.MappedFile | None
) -> tuple[tuple[Finding, ...], Claims | None]:
    """What can be seen of any process; and its limits, None where they are refused."""
    scene = surroundings.Scene.of(subject)
    proc = Path("/proc") / str(subject.pid)
    limits, claims = surroundings.limits(scene)
    found = (
        surroundings.glibc(scene, library.path if library and not library.deleted else None),
        surroundings.preload(scene),
        limits,
        surroundings.folders(scene, claims),
        namespaces.cgroup(proc, scene.variables()),
        namespaces.pid_namespace(proc),
    )
    return found, claims


def _run_all(as_json: bool) -> ExitCode:
    """Tell every process that has a driver or the library mapped, as far as it may be read."""
    found, unreadable = process.read_all()
    libraries = {each.pid: surroundings.library_of(each) for each in found}
    users = [each for each in found if libraries[each.pid] or _driver_files(each)]
    unfenced = [each for each in users if not libraries[each.pid]]
    if as_json:
        rows = [_process_as_dict(each, libraries[each.pid]) for each in users]
        document = {"schema": 1, "processes": rows, "unreadable": unreadable}
        print(json.dumps(document, indent=2))
    else:
        for each in users:
            state = "fenced    " if libraries[each.pid] else "NOT fenced"
            files = " ".join(file.path for file in _driver_files(each)) or "no driver open"
            print(f"{each.pid:>8}  {state}  {each.command:<16}  {files}")
        lines = [f"problem  {_why_not_loaded(each)}" for each in unfenced]
        lines += [] if users else ["no process uses a driver or the library"]
        lines += [f"note     {unreadable} processes may not be read"] if unreadable else []
        print("\n".join(lines), end="\n" if lines else "")
    return ExitCode.CHECK_FAILED if unfenced else ExitCode.OK


def _driver_files(subject: process.Process) -> list[process.MappedFile]:
    names = [soname.removesuffix("1") for soname in _DRIVERS]
    return [file for name in names if (file := subject.find(name))]


def _process_as_dict(
    subject: process.Process, library: process.MappedFile | None
) -> dict[str, object]:
    return {
        "pid": subject.pid,
        "command": subject.command,
        "library": library.path if library else None,
        "drivers": [file.path for file in _driver_files(subject)],
        "problem": None if library else _why_not_loaded(subject).as_dict(),
    }


def _opens(soname: str) -> bool:
    """Let the loader open the driver; nothing in it is called, so no GPU is touched."""
    try:
        ctypes.CDLL(soname)
    except (OSError, UnicodeDecodeError):  # the loader's message may name a path that is no text
        return False
    return True


def _lookup_is_fenced(library: process.MappedFile) -> bool | None:
    """Whether the process-wide lookup of cuInit ends in our library; None if nothing has it."""
    try:
        function = ctypes.CDLL(None).cuInit
    except (AttributeError, UnicodeDecodeError):
        return None
    return library.holds(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _drivers(subject: process.Process) -> tuple[Driver, ...]:
    found = []
    for soname in _DRIVERS:
        file = subject.find(soname.removesuffix("1"))
        if file is not None:
            version = file.name.removeprefix(soname.removesuffix("1"))
            simulated = _is_simulated(subject.pid, file)
            found.append(Driver(soname, file.path, version if "." in version else "", simulated))
    return tuple(found)


def _is_simulated(pid: int, file: process.MappedFile) -> bool:
    """Whether the file is gpufence's own driver, read through the process's view of the disk."""
    try:
        return _SIMULATOR_MARK in Path(f"/proc/{pid}/root{file.path}").read_bytes()
    except OSError:
        return False


def _why_not_loaded(subject: process.Process) -> ToolError:
    """The most likely reason, most certain first."""
    ours = [entry for entry in subject.preloads if entry.rpartition("/")[2] == _LIBRARY]
    fix = "Start it with `gpufence run -- COMMAND`"
    if not any(file.name.startswith(("ld-linux", "ld-2.")) for file in subject.files):
        why = "it is not a dynamically linked glibc program, so nothing can be preloaded"
        fix = "Use a dynamically linked build of the program"
    elif subject.secure:
        why = "it runs set-uid or with file capabilities, where the loader ignores LD_PRELOAD"
        fix = "Run it without extra privileges"
    elif not subject.preloads:
        why = "it was started without LD_PRELOAD"
    elif not ours:
        why = f"its LD_PRELOAD does not name {_LIBRARY}"
    elif not Path(ours[0]).exists():
        why = f"LD_PRELOAD names {ours[0]}, which does not exist"
    else:
        why = f"the loader could not use {ours[0]}; its warning is on the program's stderr"
    return ToolError(
        what=f"process {subject.pid} ({subject.command}) is not fenced",
        why=why,
        fix=fix,
        status=ExitCode.CHECK_FAILED,
    )


_LABELS = {"note": "yellow", "problem": "red"}


def _as_text(found: Findings, color: str = "never") -> str:
    library = found.library
    state = f"{library.path}{' (replaced since)' if library.deleted else ''}" if library else "no"
    lines = [f"process  {found.subject.pid} ({found.subject.command})", f"library  {state}"]
    if found.fenced_lookups is not None:
        lines.append(f"lookups  {'fenced' if found.fenced_lookups else 'NOT fenced'}")
    lines += [f"driver   {driver}" for driver in found.drivers]
    if not found.drivers:
        lines.append("driver   none is open")
    for check in found.checks:
        lines += [f"{check.check:8} {line}" for line in check.told]
    lines += [f"note     {note}" for note in found.notes]
    lines += [f"problem  {problem}" for problem in found.problems]
    if screen.is_coloured(color):
        lines = [
            screen.paint(line[:8], _LABELS.get(line.split()[0], "dim")) + line[8:] for line in lines
        ]
    return "\n".join(lines)


def _as_dict(found: Findings) -> dict[str, object]:
    return {
        "schema": 1,
        "pid": found.subject.pid,
        "command": found.subject.command,
        "library": found.library.path if found.library else None,
        "lookups_fenced": found.fenced_lookups,
        "drivers": [
            {
                "soname": driver.soname,
                "path": driver.path,
                "version": driver.version or None,
                "simulated": driver.simulated,
            }
            for driver in found.drivers
        ],
        "checks": {check.check: dict(check.facts) for check in found.checks},
        "notes": [note.as_dict() for note in found.notes],
        "problems": [problem.as_dict() for problem in found.problems],
    }
