"""What `gpufence node check` does: asks NVML, the containers' files and /proc, and tells or serves.

Owns what is asked and how the answer looks; the verdict is bypass.py's.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from gpufence import locate
from gpufence.checks import surroundings
from gpufence.config import sizes
from gpufence.container import containers
from gpufence.errors import ExitCode, ToolError, one_line
from gpufence.export import export_write, metrics
from gpufence.machine import engines, process
from gpufence.machine.gpus import Nvml
from gpufence.machine.people import People
from gpufence.state import region

from . import agents, api, check_metrics, config
from .bypass import Account, Bypass, Reason, Seen, judge
from .reports import Reports

# What is seen once may be a request that was granted between two of the questions.
_AGAIN_SECONDS = 0.25
_WATCH_SECONDS = 1.0


def run(args: argparse.Namespace) -> ExitCode:
    """Print a line for each process that goes around its limit.

    Raises:
        ToolError: exit 1, 3 or 4, as the command documents.
    """
    told = _reports(args)
    checker = _Checker(args, _tolerance(args.tolerance))
    if args.watch and not args.listen:
        _watch(checker, told)
    if args.watch:
        threading.Thread(target=_watch, args=(checker, told), daemon=True).start()
    if args.listen:
        from gpufence.export import http_metrics

        metrics.require()
        http_metrics.serve(args.listen, checker.metrics)
    seen, found = checker.look()
    unreadable = sorted({each.pid for each in seen if each.fenced is None})
    _tell_unreadable(unreadable)
    checker.write(seen, found)
    _tell(args, checker.families(seen, found), found, unreadable)
    return ExitCode.CHECK_FAILED if found else ExitCode.OK


def _reports(args: argparse.Namespace) -> Reports:
    for flag, needed in (("events", "watch"), ("ask_eviction", "events")):
        if getattr(args, flag) and not getattr(args, needed):
            name = f"--{flag.replace('_', '-')}"
            raise _usage(f"{name} without --{needed}", "nobody would be told by it", needed)
    if args.watch and (args.json or args.metrics):
        form = "--json" if args.json else "--metrics"
        raise _usage(f"{form} beside --watch", "it goes on until it is ended", "listen")
    called = partial(engines.look_up, Path("/proc"))
    if not args.events:
        return Reports(_line, called)
    server = api.connect(args.api_server)
    return Reports(_line, called, server, config.Config().node, asks_eviction=args.ask_eviction)


def _usage(what: str, why: str, flag: str) -> ToolError:
    return ToolError(what=what, why=why, fix=f"Give --{flag}", status=ExitCode.USAGE)


def _watch(checker: _Checker, told: Reports) -> NoReturn:
    """Look and tell, until the process is ended."""
    unreadable: set[int] = set()
    while True:
        seen, found = checker.look()
        told.tell(found)
        checker.write(seen, found)
        hidden = {each.pid for each in seen if each.fenced is None}
        _tell_unreadable(sorted(hidden - unreadable))
        unreadable = hidden
        time.sleep(_WATCH_SECONDS)


class _Checker:
    """Looks whenever asked, one look at a time."""

    def __init__(self, args: argparse.Namespace, tolerance: int) -> None:
        self._nvml = _nvml()
        self._args = args
        self._tolerance = tolerance
        self._turn = threading.Lock()

    def look(self) -> tuple[tuple[Seen, ...], tuple[Bypass, ...]]:
        """Every process on a GPU, and those of them that were found twice."""
        # Containers come and go, and their folders with them: asked anew each time.
        folders, allowed = _folders(self._args), frozenset(self._args.allow or ())
        with self._turn:
            seen, found = _look(self._nvml, folders, self._tolerance, allowed)
            if found:
                time.sleep(_AGAIN_SECONDS)
                before = {(each.reason, each.seen.uuid, each.seen.pid) for each in found}
                seen, again = _look(self._nvml, folders, self._tolerance, allowed)
                found = tuple(e for e in again if (e.reason, e.seen.uuid, e.seen.pid) in before)
        return seen, found

    def families(self, seen: Sequence[Seen], found: Sequence[Bypass]) -> list[metrics.Family]:
        """What a look found, as metrics."""
        runs = agents.is_running(Path(self._args.agent_dir))
        return check_metrics.families(seen, found, runs)

    def write(self, seen: Sequence[Seen], found: Sequence[Bypass]) -> None:
        """What a look found into the file of metrics, where there is to be one.

        Raises:
            ToolError: exit 1, it cannot be written.
        """
        if self._args.textfile:
            text = metrics.text(self.families(seen, found))
            export_write.replace(Path(self._args.textfile), text)

    def metrics(self) -> str:
        """A look as Prometheus' text."""
        return metrics.text(self.families(*self.look()))


def _nvml() -> Nvml:
    nvml = Nvml.open()
    if nvml is None:
        raise ToolError(
            what="nothing was checked",
            why="there is no NVML, or no driver behind it",
            fix="Run it where `nvidia-smi` works",
            status=ExitCode.NO_DRIVER,
        )
    return nvml


def _tolerance(text: str) -> int:
    try:
        size = sizes.parse_size(text)
        clause, fix = "is a part of a GPU", "Write 64MiB"
    except sizes.TextError as error:
        size, (clause, fix) = None, (error.clause, error.fix)
    if size is None or size.percent_of_device:
        raise ToolError(
            what=f"--tolerance '{sizes.quote(text)}' refused",
            why=f"it {clause}",
            fix=fix,
            status=ExitCode.INVALID_LIMIT,
        )
    return size.amount


def _folders(args: argparse.Namespace) -> tuple[Path, ...]:
    """Where containers keep their ledgers: the agent's, and the usual or the given ones."""
    given = [Path(each) for each in args.state_dir or ()] or containers.places(None)
    return tuple(dict.fromkeys([*containers.of_agent(args.agent_dir), *given]))


def _look(
    nvml: Nvml, folders: Sequence[Path], tolerance: int, allowed: frozenset[str]
) -> tuple[tuple[Seen, ...], tuple[Bypass, ...]]:
    users = nvml.users()
    accounts = _accounts(folders)
    seen = tuple(_seen(each.pid, each.uuid, each.used_bytes) for each in users)
    judged = [each for each in seen if each.command not in allowed]
    return seen, judge(judged, accounts, tolerance)


def _seen(pid: int, uuid: str, used_bytes: int | None) -> Seen:
    try:
        subject = process.read(pid)
    except ToolError:
        return Seen(pid, uuid, "", used_bytes, None)
    command = one_line(subject.command)
    file = surroundings.library_of(subject)
    if file is None:
        return Seen(pid, uuid, command, used_bytes, False)
    # A file of that name need not be ours; one that was replaced meanwhile cannot be looked at.
    path = surroundings.Scene.of(subject).mapped(file.path)
    return Seen(pid, uuid, command, used_bytes, file.deleted or _is_ours(path), file.deleted)


def _is_ours(path: Path) -> bool:
    try:
        return locate.is_library(path)
    except OSError:
        return False


def _accounts(folders: Sequence[Path]) -> list[Account]:
    environment = containers.core_environment()
    paths = dict.fromkeys(path for each in folders for path in region.find(environment, str(each)))
    regions, problems = region.read_all(paths)
    for problem in problems:
        print(f"gpufence: {problem}", file=sys.stderr)
    people = People()
    return [
        Account(
            container=each.container,
            uuid=device.uuid,
            limit_bytes=device.limit_bytes,
            granted={
                pid: use.used_bytes
                for use in device.uses
                if (pid := people.look_up(use.owner).pid)  # None: it has ended
            },
            used_bytes=device.used_bytes,
        )
        for each in regions
        for device in each.devices
    ]


def _tell_unreadable(pids: Sequence[int]) -> None:
    for pid in pids:
        print(
            f"gpufence: process {pid} uses a GPU and cannot be looked into: run this as root, with "
            "the machine's process numbers",
            file=sys.stderr,
        )


def _tell(
    args: argparse.Namespace,
    families: Sequence[metrics.Family],
    found: Sequence[Bypass],
    unreadable: Sequence[int],
) -> None:
    if args.json:
        listed = [_as_dict(each) for each in found]
        told = {"schema": 1, "bypasses": listed, "unreadable": list(unreadable)}
        print(json.dumps(told, indent=2))
    elif args.metrics:
        sys.stdout.write(metrics.text(families))
    else:
        for each in found:
            print(_line(each))


def _line(each: Bypass) -> str:
    seen = each.seen
    used = f"{seen.used_bytes >> 20} MiB" if seen.used_bytes is not None else "memory"
    head = f"{seen.uuid}: process {seen.pid} ({seen.command}) has {used}"
    if each.reason is Reason.UNFENCED:
        return f"{head} without the library"
    allowed = f"{(each.allowed_bytes or 0) >> 20} MiB"
    if each.reason is Reason.UNACCOUNTED:
        return f"{head}, of which {allowed} were granted to it in {each.container}"
    return f"{head}, and {each.container} has more than its limit of {allowed}"


def _as_dict(each: Bypass) -> dict[str, object]:
    return {
        "reason": each.reason.value,
        "pid": each.seen.pid,
        "uuid": each.seen.uuid,
        "command": each.seen.command,
        "container": each.container or None,
        "used_bytes": each.seen.used_bytes,
        "allowed_bytes": each.allowed_bytes,
    }
